//! Members of packages.

use crate::catalog::db::numbers::{damaged, here, own, unseen};
use crate::catalog::model::ids::{PackageId, VersionId};
use rusqlite::{OptionalExtension, params};

use crate::catalog::db::columns::{MEMBER, member};
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::integers::signed;
use crate::catalog::model::members::{MemberRow, MemberTotals, UnseenMember};
use crate::catalog::model::record::Extra;
use crate::document::Hashes;

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// Members of a package that nobody has looked at and that the current tree needs, in the order in
    /// which they lie, from one offset on.
    pub fn unseen_members(&self, package: PackageId, from: u64, limit: usize) -> Result<Vec<UnseenMember>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT {MEMBER}, CASE WHEN v.settled THEN NULL ELSE v.size END, v.hashes, v.extra
             FROM member m JOIN package p ON p.id = m.package JOIN version v ON v.id = m.version
             WHERE m.package = ?1 AND m.header >= ?2 AND m.state = {unseen} AND v.until IS NULL AND v.object IS NULL{}
             ORDER BY m.header LIMIT ?3",
            self.wanted()?,
            unseen = unseen!()
        ))?;
        let rows = statement.query_map(params![package, signed(from), signed(limit as u64)], |row| {
            let Some(member) = member(row, 0)? else { return Ok(None) };
            let hashes: Option<Vec<u8>> = row.get(13)?;
            let hashes = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
            let extra: Option<String> = row.get(14)?;
            let coded_length = || serde_json::from_str::<Extra>(extra.as_deref().unwrap_or_default()).ok()?.length;
            let length = match member.coded {
                true => coded_length(),
                false => row.get::<_, Option<i64>>(12)?.map(i64::unsigned_abs),
            };
            let hashes = member.hashes.clone().unwrap_or(hashes);
            Ok(Some(UnseenMember { member, length, hashes }))
        })?;
        Ok(rows.filter_map(rusqlite::Result::transpose).collect::<rusqlite::Result<_>>()?)
    }

    /// The patches in packages that make a version of the one before it: their media types, and where they lie.
    pub fn patches(&self, version: VersionId) -> Result<Vec<(String, MemberRow)>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT m.version, m.package, m.header, m.compressed, m.size, m.crc, m.name_length, m.deflated, NULL, 0, 0,
                    p.epoch, m.type FROM patch m JOIN package p ON p.id = m.package WHERE m.version = ?1",
        )?;
        let rows = statement.query_map([version], |row| {
            let media: String = row.get(12)?;
            Ok(member(row, 0)?.map(|row| (media, row)))
        })?;
        Ok(rows.filter_map(rusqlite::Result::transpose).collect::<rusqlite::Result<_>>()?)
    }

    /// The version that this one superseded, if that did not end with its resource.
    pub fn version_before(&self, version: VersionId) -> Result<Option<VersionId>> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT b.id, b.gone FROM version v JOIN version b ON b.name = v.name AND b.until IS NOT NULL
             AND ",
            own!("b.change"),
            "
             WHERE v.id = ?1 AND (b.begin, b.id) < (v.begin, v.id) ORDER BY b.begin DESC, b.id DESC LIMIT 1"
        ))?;
        let found: Option<(VersionId, Option<i64>)> =
            statement.query_row([version], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found.filter(|(_, gone)| gone.is_none()).map(|(id, _)| id))
    }

    /// Bytes of the members that [`Reader::unseen_members`] gives, and their number.
    pub fn unseen_bytes(&self, package: PackageId) -> Result<(u64, u64)> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT COALESCE(sum(m.compressed), 0), count(*) FROM member m JOIN version v ON v.id = m.version
             WHERE m.package = ?1 AND m.state = {unseen} AND v.until IS NULL AND v.object IS NULL{}",
            self.wanted()?,
            unseen = unseen!()
        ))?;
        Ok(statement.query_row([package], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
        })?)
    }

    /// Sums over members. Reads a row for each: not for a request that somebody waits for.
    pub fn member_totals(&self) -> Result<MemberTotals> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT count(*), COALESCE(sum(",
            here!("m.state"),
            "), 0), COALESCE(sum(m.state = ",
            damaged!(),
            "), 0)
             FROM member m JOIN version v ON v.id = m.version WHERE v.until IS NULL"
        ))?;
        Ok(statement.query_row([], |row| {
            let unsigned = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(MemberTotals { members: unsigned(0)?, verified: unsigned(1)?, damaged: unsigned(2)? })
        })?)
    }
}
