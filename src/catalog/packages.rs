//! Packages of dumps.

use rusqlite::{OptionalExtension, Row, params};

use super::CatalogError;
use super::reader::Reader;
use super::transaction::Transaction;
use crate::document::{Datetime, Hashes};

type Result<T> = std::result::Result<T, CatalogError>;

/// A package of a dump.
#[derive(Clone, Debug, Default)]
pub struct PackageRow {
    /// Its number, which is never used twice.
    pub id: i64,
    /// The set it belongs to.
    pub rset: i64,
    /// Where it can be had.
    pub url: String,
    /// What its dump says of it: the same URL with another edition is another package.
    pub edition: String,
    /// What tells that the bytes at the URL are still those that are here.
    pub validator: Option<String>,
    /// Its length as listed.
    pub length: Option<u64>,
    /// Its digests as listed.
    pub hashes: Hashes,
    /// When its snapshot began.
    pub at: Option<Datetime>,
    /// Its length as found.
    pub size: Option<u64>,
    /// Whether all of it is here.
    pub whole: bool,
    /// Whether all of it that is needed is to be brought here ahead of use.
    pub wanted: bool,
    /// Whether it is of a Change Dump: then what it has of superseded versions is wanted, too.
    pub changes: bool,
    /// Whether it is not what its dump says, so that only members with a hash of their own are trusted.
    pub doubtful: bool,
    /// Whether versions were given its members.
    pub indexed: bool,
    /// How many bytes of it are here.
    pub bytes: u64,
    /// How often its bytes were begun anew: what was found of members counts for one epoch only.
    pub epoch: i64,
    /// Whether what its server has is no ZIP file, and is written as one when all of it is here: its parts are not the server's.
    pub recast: bool,
    /// Whether an archive has it: what lies in it can be had for good.
    pub archived: bool,
}

const PACKAGE: &str = "id, rset, url, edition, validator, length, hashes, at, size, whole, wanted, doubtful, indexed, bytes, epoch, changes, recast, archived";

fn package(row: &Row<'_>) -> rusqlite::Result<PackageRow> {
    let hashes: Option<Vec<u8>> = row.get(6)?;
    Ok(PackageRow {
        id: row.get(0)?,
        rset: row.get(1)?,
        url: row.get(2)?,
        edition: row.get(3)?,
        validator: row.get(4)?,
        length: row.get::<_, Option<i64>>(5)?.map(i64::unsigned_abs),
        hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
        at: row.get::<_, Option<i64>>(7)?.map(Datetime::from_nanos),
        size: row.get::<_, Option<i64>>(8)?.map(i64::unsigned_abs),
        whole: row.get(9)?,
        wanted: row.get(10)?,
        doubtful: row.get(11)?,
        indexed: row.get(12)?,
        bytes: row.get::<_, i64>(13)?.unsigned_abs(),
        epoch: row.get(14)?,
        changes: row.get(15)?,
        recast: row.get(16)?,
        archived: row.get(17)?,
    })
}

/// A number as SQLite keeps it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Reader {
    /// All packages, in the order of their numbers.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn packages(&self) -> Result<Vec<PackageRow>> {
        let mut statement = self.connection().prepare_cached(&format!("SELECT {PACKAGE} FROM package ORDER BY id"))?;
        let rows = statement.query_map([], package)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// A package.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package(&self, id: i64) -> Result<Option<PackageRow>> {
        let mut statement =
            self.connection().prepare_cached(&format!("SELECT {PACKAGE} FROM package WHERE id = ?1"))?;
        Ok(statement.query_row([id], package).optional()?)
    }
}

impl Transaction<'_> {
    /// A package of a set as its dump lists it: the one that is known, or a new one. Returns its number.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn put_package(&self, row: &PackageRow) -> Result<i64> {
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package_found(&self, id: i64, size: u64, validator: Option<&str>) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE package SET size = CASE WHEN recast THEN size ELSE ?2 END, validator = ?3 WHERE id = ?1",
            )?
            .execute(params![id, signed(size), validator])?;
        Ok(())
    }

    /// A package is written anew as a ZIP file, of this size once that is known.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package_recast(&self, id: i64, size: Option<u64>) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE package SET recast = 1, size = ?2, epoch = epoch + (?2 IS NOT NULL) WHERE id = ?1")?
            .execute(params![id, size.map(signed)])?;
        Ok(())
    }

    /// What the server has of a package is something else than it was: it may be a ZIP file now.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package_renewed(&self, id: i64) -> Result<()> {
        self.connection().execute("UPDATE package SET recast = 0 WHERE id = ?1", [id])?;
        self.package_gone(id, true)
    }

    /// So many bytes of a package are here; `whole`: all of them. Returns how many were before.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package_has(&self, id: i64, bytes: u64, whole: bool, doubtful: bool, now: Datetime) -> Result<u64> {
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
                "UPDATE member SET state = 0 WHERE package = ?1 AND state IN (1, 3) AND hashes IS NULL
                 AND version IN (SELECT id FROM version WHERE hashes IS NULL)",
                [id],
            )?;
        }
        Ok(before.unwrap_or(0).unsigned_abs())
    }

    /// Versions have been given the members of a package.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package_indexed(&self, id: i64) -> Result<()> {
        self.connection().execute("UPDATE package SET indexed = 1 WHERE id = ?1", [id])?;
        Ok(())
    }

    /// A package was read from.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn touch_package(&self, id: i64, now: Datetime) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE package SET used = ?2 WHERE id = ?1")?
            .execute(params![id, now.nanos()])?;
        Ok(())
    }

    /// The bytes of a package have left the store. Its members can still be had from its Source; `again`:
    /// it is brought here anew if it was to be here before.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn package_gone(&self, id: i64, again: bool) -> Result<()> {
        self.connection().execute(
            "UPDATE package SET whole = 0, wanted = wanted AND ?2, bytes = 0, doubtful = 0, durable = 0, size = NULL,
             validator = NULL, epoch = epoch + 1 WHERE id = ?1",
            params![id, again],
        )?;
        self.connection().execute("UPDATE member SET state = 0 WHERE package = ?1", [id])?;
        Ok(())
    }

    /// Forgets a package and its members.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn forget_package(&self, id: i64) -> Result<()> {
        self.connection().execute("DELETE FROM member WHERE package = ?1", [id])?;
        self.connection().execute("DELETE FROM patch WHERE package = ?1", [id])?;
        self.connection().execute("DELETE FROM package WHERE id = ?1", [id])?;
        Ok(())
    }

    /// Forgets the packages of a set that no version has content in and that are none of these; returns
    /// their numbers.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn forget_idle_packages(&self, rset: i64, kept: &[i64]) -> Result<Vec<i64>> {
        let idle: Vec<i64> = self
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
        let idle: Vec<i64> = idle.into_iter().filter(|id| !kept.contains(id)).collect();
        idle.iter().try_for_each(|id| self.forget_package(*id))?;
        Ok(idle)
    }
}
