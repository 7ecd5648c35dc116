//! Packages of dumps.

use crate::catalog::db::numbers::{here, unseen};
use crate::catalog::model::ids::{PackageId, SetId};
use rusqlite::{OptionalExtension, params};

use crate::catalog::error::CatalogError;
use crate::catalog::model::integers::signed;
use crate::catalog::model::packages::{PackageBytes, PackageRow};
use crate::catalog::write::transaction::Transaction;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// A package of a set as its dump lists it: the one that is known, or a new one. Returns its number.
    pub fn put_package(&self, row: &PackageRow) -> Result<PackageId> {
        let hashes = (!row.hashes.is_empty()).then(|| row.hashes.to_bytes());
        Ok(self
            .connection()
            .prepare_cached(
                "INSERT INTO package (rset, url, edition, length, hashes, at, wanted, changes, archived)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (rset, url, edition) DO UPDATE SET wanted = max(wanted, excluded.wanted),
                     archived = max(archived, excluded.archived) RETURNING id",
            )?
            .query_row(
                params![
                    row.rset,
                    row.url,
                    row.edition,
                    row.length.map(signed),
                    hashes,
                    row.at.map(Datetime::nanos),
                    row.wanted,
                    row.changes,
                    row.archived
                ],
                |row| row.get(0),
            )?)
    }

    /// A server has shown how large a package is, and how to tell whether it changed.
    pub fn package_found(&self, id: PackageId, size: u64, validator: Option<&str>) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE package SET size = CASE WHEN recast THEN size ELSE ?2 END, validator = ?3 WHERE id = ?1",
            )?
            .execute(params![id, signed(size), validator])?;
        Ok(())
    }

    /// A package is written anew as a ZIP file, of this size once that is known.
    pub fn package_recast(&self, id: PackageId, size: Option<u64>) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE package SET recast = 1, size = ?2, epoch = epoch + (?2 IS NOT NULL) WHERE id = ?1")?
            .execute(params![id, size.map(signed)])?;
        Ok(())
    }

    /// What the server has of a package is something else than it was: it may be a ZIP file now.
    pub fn package_renewed(&self, id: PackageId) -> Result<()> {
        self.connection().execute("UPDATE package SET recast = 0 WHERE id = ?1", [id])?;
        self.package_gone(id, true)
    }

    /// So much of a package is here. Returns how many bytes were before.
    pub fn package_has(&self, id: PackageId, here: PackageBytes, now: Datetime) -> Result<u64> {
        let PackageBytes { bytes, whole, doubtful } = here;
        let before: Option<i64> = self
            .connection()
            .prepare_cached("SELECT bytes FROM package WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        self.connection()
            .prepare_cached(
                "UPDATE package SET bytes = ?2, whole = max(whole, ?3), doubtful = max(doubtful, ?4), durable = 0, used = ?5
                 WHERE id = ?1",
            )?
            .execute(params![id, signed(bytes), whole, doubtful, now.nanos()])?;
        if doubtful {
            // What had nothing but a length to be held to is looked at again, with other eyes.
            self.connection().execute(
                concat!(
                    "UPDATE member SET state = ",
                    unseen!(),
                    " WHERE package = ?1 AND ",
                    here!("state"),
                    " AND hashes IS NULL
                 AND version IN (SELECT id FROM version WHERE hashes IS NULL)"
                ),
                [id],
            )?;
        }
        Ok(before.unwrap_or(0).unsigned_abs())
    }

    /// Versions have been given the members of a package.
    pub fn package_indexed(&self, id: PackageId) -> Result<()> {
        self.connection().execute("UPDATE package SET indexed = 1 WHERE id = ?1", [id])?;
        Ok(())
    }

    /// A package was read from.
    pub fn touch_package(&self, id: PackageId, now: Datetime) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE package SET used = ?2 WHERE id = ?1")?
            .execute(params![id, now.nanos()])?;
        Ok(())
    }

    /// The bytes of a package have left the store. Its members can still be had from its Source; `again`:
    /// it is brought here anew if it was to be here before.
    pub fn package_gone(&self, id: PackageId, again: bool) -> Result<()> {
        self.connection().execute(
            "UPDATE package SET whole = 0, wanted = wanted AND ?2, bytes = 0, doubtful = 0, durable = 0, size = NULL,
             validator = NULL, epoch = epoch + 1 WHERE id = ?1",
            params![id, again],
        )?;
        self.connection().execute(concat!("UPDATE member SET state = ", unseen!(), " WHERE package = ?1"), [id])?;
        Ok(())
    }

    /// Forgets a package and its members.
    pub fn forget_package(&self, id: PackageId) -> Result<()> {
        self.connection().execute("DELETE FROM member WHERE package = ?1", [id])?;
        self.connection().execute("DELETE FROM patch WHERE package = ?1", [id])?;
        self.connection().execute("DELETE FROM package WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Forgets the packages of a set that no version has content in and that are none of these; returns
    /// their numbers.
    pub fn forget_idle_packages(&self, rset: SetId, kept: &[PackageId]) -> Result<Vec<PackageId>> {
        let idle: Vec<PackageId> = self
            .connection()
            .prepare_cached(
                // Of versions that are superseded, what is not here cannot be had again in any case.
                "SELECT id FROM package p WHERE rset = ?1 AND NOT p.archived AND NOT EXISTS (
                     SELECT 1 FROM member m JOIN version v ON v.id = m.version
                     WHERE m.package = p.id AND (v.until IS NULL OR p.bytes > 0 OR p.wanted))
                 AND NOT EXISTS (SELECT 1 FROM patch m WHERE m.package = p.id)",
            )?
            .query_map([rset], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let idle: Vec<PackageId> = idle.into_iter().filter(|id| !kept.contains(id)).collect();
        idle.iter().try_for_each(|id| self.forget_package(*id))?;
        Ok(idle)
    }
}
