//! Members of packages: where in a package the content of a version lies, or a patch that makes it, and what was found of it.

use rusqlite::{OptionalExtension, Row, params};

use super::listed::{Listed, Sameness};
use super::packages::signed;
use super::reader::Reader;
use super::transaction::Transaction;
use super::{CatalogError, Extra, Record};
use crate::document::Hashes;
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// What is known of the content of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Nobody has looked yet.
    Unseen,
    /// It is here, and is what is listed.
    Verified,
    /// It is not what is listed, or cannot be read.
    Damaged,
    /// It is here and whole, and nothing is listed that it could be held to.
    Intact,
}

/// Where in a package the content of a version lies.
#[derive(Clone, Debug)]
pub struct MemberRow {
    /// The version.
    pub version: i64,
    /// The package.
    pub package: i64,
    /// Where its local header begins.
    pub header: u64,
    /// Bytes in the package.
    pub compressed: u64,
    /// Bytes of the content.
    pub size: u64,
    /// The CRC-32 of the content.
    pub crc: u32,
    /// Bytes of its name.
    pub name_length: u16,
    /// Whether it is deflated; else it is stored as it is.
    pub deflated: bool,
    /// The digests that its manifest gives, where those are not the version's own.
    pub hashes: Option<Hashes>,
    /// Whether a content coding is to be undone.
    pub coded: bool,
    /// What is known of it.
    pub state: MemberState,
    /// The epoch of the package for which the state holds.
    pub epoch: i64,
}

/// What was found of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The version that has it as its content.
    pub version: i64,
    /// What it is.
    pub state: MemberState,
    /// The epoch of the package whose bytes were looked at.
    pub epoch: i64,
    /// The SHA-256 of the content, where nothing else holds the version to it.
    pub sha256: Option<[u8; 32]>,
}

/// A member that nobody has looked at, and what its content is held to.
#[derive(Clone, Debug)]
pub struct UnseenMember {
    /// The member.
    pub member: MemberRow,
    /// The length that is listed, as coded.
    pub length: Option<u64>,
    /// The digests that are listed.
    pub hashes: Hashes,
}

/// What came of giving a version a member as its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// This version of the same step, of which the same was listed, has it now.
    New(i64),
    /// It has it now, or had something as good.
    Yes,
    /// No such resource is in the tree.
    NotListed,
    /// What is listed of the resource is not what the manifest says.
    Other,
}

/// Sums over packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberTotals {
    /// Versions of the current tree with a member as their content.
    pub members: u64,
    /// Those of them that are here and verified.
    pub verified: u64,
    /// Those of them that are damaged.
    pub damaged: u64,
}

pub(super) const MEMBER: &str = "m.version, m.package, m.header, m.compressed, m.size, m.crc, m.name_length, \
                                 m.deflated, m.hashes, m.state, m.coded, p.epoch";

/// Whether version `v` has its content in a member that is here.
pub(super) const MEMBER_HERE: &str = "EXISTS (SELECT 1 FROM member m JOIN package p ON p.id = m.package \
     WHERE m.version = v.id AND (m.state IN (1, 3) OR m.state = 0 AND p.whole))";

pub(super) fn member(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<MemberRow>> {
    let Some(version) = row.get::<_, Option<i64>>(first)? else { return Ok(None) };
    let unsigned = |index: usize| row.get::<_, i64>(first + index).map(i64::unsigned_abs);
    let hashes: Option<Vec<u8>> = row.get(first + 8)?;
    Ok(Some(MemberRow {
        version,
        package: row.get(first + 1)?,
        header: unsigned(2)?,
        compressed: unsigned(3)?,
        size: unsigned(4)?,
        crc: row.get(first + 5)?,
        name_length: row.get(first + 6)?,
        deflated: row.get(first + 7)?,
        hashes: hashes.as_deref().map(Hashes::from_bytes),
        state: match row.get::<_, i64>(first + 9)? {
            1 => MemberState::Verified,
            2 => MemberState::Damaged,
            3 => MemberState::Intact,
            _ => MemberState::Unseen,
        },
        coded: row.get(first + 10)?,
        epoch: row.get::<_, Option<i64>>(first + 11)?.unwrap_or(0),
    }))
}

impl Reader {
    /// Members of a package that nobody has looked at and that the current tree needs, in the order in
    /// which they lie, from one offset on.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn unseen_members(&self, package: i64, from: u64, limit: usize) -> Result<Vec<UnseenMember>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT {MEMBER}, CASE WHEN v.settled THEN NULL ELSE v.size END, v.hashes, v.extra
             FROM member m JOIN package p ON p.id = m.package JOIN version v ON v.id = m.version
             WHERE m.package = ?1 AND m.header >= ?2 AND m.state = 0 AND v.until IS NULL AND v.object IS NULL{}
             ORDER BY m.header LIMIT ?3",
            self.wanted()?
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn patches(&self, version: i64) -> Result<Vec<(String, MemberRow)>> {
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn version_before(&self, version: i64) -> Result<Option<i64>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT b.id, b.gone FROM version v JOIN version b ON b.name = v.name AND b.until IS NOT NULL
             AND COALESCE(b.change, 0) < 16
             WHERE v.id = ?1 AND (b.begin, b.id) < (v.begin, v.id) ORDER BY b.begin DESC, b.id DESC LIMIT 1",
        )?;
        let found: Option<(i64, Option<i64>)> =
            statement.query_row([version], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found.filter(|(_, gone)| gone.is_none()).map(|(id, _)| id))
    }

    /// Bytes of the members that [`Reader::unseen_members`] gives, and their number.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn unseen_bytes(&self, package: i64) -> Result<(u64, u64)> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT COALESCE(sum(m.compressed), 0), count(*) FROM member m JOIN version v ON v.id = m.version
             WHERE m.package = ?1 AND m.state = 0 AND v.until IS NULL AND v.object IS NULL{}",
            self.wanted()?
        ))?;
        Ok(statement.query_row([package], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs()))
        })?)
    }

    /// Sums over members. Reads a row for each: not for a request that somebody waits for.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn member_totals(&self) -> Result<MemberTotals> {
        let mut statement = self.connection().prepare_cached(
            "SELECT count(*), COALESCE(sum(m.state IN (1, 3)), 0), COALESCE(sum(m.state = 2), 0)
             FROM member m JOIN version v ON v.id = m.version WHERE v.until IS NULL",
        )?;
        Ok(statement.query_row([], |row| {
            let unsigned = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(MemberTotals { members: unsigned(0)?, verified: unsigned(1)?, damaged: unsigned(2)? })
        })?)
    }
}

impl Transaction<'_> {
    /// A patch in a package makes a version of the one before it.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn attach_patch(&self, version: i64, media: &str, row: &MemberRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT OR IGNORE INTO patch (version, package, header, compressed, size, crc, name_length, deflated, type)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                version,
                row.package,
                signed(row.header),
                signed(row.compressed),
                signed(row.size),
                row.crc,
                row.name_length,
                row.deflated,
                media
            ])?;
        Ok(())
    }

    /// The member that a version has as its content has been looked at.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn member_is(&self, looked: &Looked) -> Result<()> {
        let counts = self
            .connection()
            .prepare_cached(
                "UPDATE member SET state = ?2 WHERE version = ?1
                 AND EXISTS (SELECT 1 FROM package WHERE id = member.package AND epoch = ?3)",
            )?
            .execute(params![looked.version, looked.state as i64, looked.epoch])?;
        if counts > 0 && looked.state == MemberState::Damaged {
            self.past_changed(looked.version)?;
        }
        if let Some(sha256) = looked.sha256.filter(|_| counts > 0) {
            self.connection()
                .prepare_cached("UPDATE version SET served = ?2 WHERE id = ?1 AND served IS NULL")?
                .execute(params![looked.version, sha256.as_slice()])?;
        }
        Ok(())
    }

    /// Where a version of the past can be had has changed.
    fn past_changed(&self, version: i64) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE name SET changed = ?2 WHERE id = (SELECT name FROM version WHERE id = ?1 AND until IS NOT NULL)")?
            .execute([version, self.now])?;
        Ok(())
    }

    /// Gives a version that this step made, and of which a length is listed, a member as its content.
    fn attach_to_new(&self, version: i64, record: &Record, row: &MemberRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT INTO member (version, package, header, compressed, size, crc, name_length, deflated, hashes, coded, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, ?9, 0) ON CONFLICT (version) DO NOTHING",
            )?
            .execute(params![
                version,
                row.package,
                signed(row.header),
                signed(row.compressed),
                signed(row.size),
                row.crc,
                row.name_length,
                row.deflated,
                record.coded
            ])?;
        Ok(())
    }

    /// A size that was not listed is what the package says, unless the content is coded.
    fn settle_to_member(&self, version: i64, row: &MemberRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE version SET size = ?2, settled = 1
                 WHERE id = ?1 AND size IS NULL AND (extra IS NULL OR extra NOT LIKE '%\"encoding\"%')",
            )?
            .execute(params![version, signed(row.size)])?;
        Ok(())
    }

    /// Gives a version that was just brought into the tree from a manifest a member as its content.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn attach(&self, version: i64, record: &Record, row: &MemberRow) -> Result<Attached> {
        if self.recent.same(record) == Some(version) && record.size.is_some() {
            self.attach_to_new(version, record, row)?;
            return Ok(Attached::New(version));
        }
        self.attach_to_any(version, row)?;
        Ok(Attached::Yes)
    }

    fn attach_to_any(&self, version: i64, row: &MemberRow) -> Result<()> {
        let hashes = row.hashes.as_ref().map(Hashes::to_bytes);
        // Content that is here already is as good, and stays.
        self.connection()
            .prepare_cached(
                "INSERT INTO member (version, package, header, compressed, size, crc, name_length, deflated, hashes, coded, state)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, COALESCE(extra LIKE '%\"encoding\"%', 0), 0
                 FROM version WHERE id = ?1 AND object IS NULL
                   AND (size IS NULL OR size = ?5 OR extra LIKE '%\"encoding\"%')
                 ON CONFLICT (version) DO UPDATE SET package = excluded.package, header = excluded.header,
                     compressed = excluded.compressed, size = excluded.size, crc = excluded.crc,
                     name_length = excluded.name_length, deflated = excluded.deflated, hashes = excluded.hashes, state = 0
                 WHERE member.package != excluded.package AND member.state NOT IN (1, 3)
                   AND NOT (member.state = 0 AND EXISTS (SELECT 1 FROM package WHERE id = member.package AND whole))",
            )?
            .execute(params![
                version,
                row.package,
                signed(row.header),
                signed(row.compressed),
                signed(row.size),
                row.crc,
                row.name_length,
                row.deflated,
                hashes
            ])?;
        self.past_changed(version)?;
        self.settle_to_member(version, row)
    }

    /// Gives the current version of the resource that `record` describes, as a manifest has it, a member
    /// as its content, if what is listed of it is the same: by hash, else by length and time; by length
    /// alone only if the list is as old as the manifest.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn attach_to_listed(
        &mut self,
        directory: i64,
        record: &Record,
        row: &MemberRow,
        length_suffices: bool,
    ) -> Result<Attached> {
        if let Some(version) = self.recent.same(record).filter(|_| record.size.is_some()) {
            self.attach_to_new(version, record, row)?;
            return Ok(Attached::New(version));
        }
        let Some(version) = self.current(directory, record)? else { return Ok(Attached::NotListed) };
        let (sameness, fits, same_hashes) = self
            .connection()
            .prepare_cached(
                "SELECT mtime, dated, CASE WHEN settled THEN NULL ELSE size END, hashes, size,
                        COALESCE(extra LIKE '%\"encoding\"%', 0) FROM version WHERE id = ?1",
            )?
            .query_row([version], |found| {
                let hashes: Option<Vec<u8>> = found.get(3)?;
                let hashes = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
                let facts = Listed {
                    modified: (found.get::<_, u8>(1)? == 1).then_some(found.get(0)?),
                    size: found.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs),
                    hashes: &hashes,
                };
                let shown = found.get::<_, Option<i64>>(4)?.map(i64::unsigned_abs);
                // A size that was shown is never contradicted.
                let fits = found.get::<_, bool>(5)? == record.coded
                    && (record.coded || shown.is_none_or(|shown| shown == row.size));
                Ok((facts.compared_with(&Listed::of(record)), fits, hashes == record.hashes))
            })?;
        let agrees = match sameness {
            Sameness::Same => true,
            Sameness::InLength => length_suffices,
            Sameness::No => false,
        };
        if !agrees || !fits {
            return Ok(Attached::Other);
        }
        let hashes = (!same_hashes && !record.hashes.is_empty()).then(|| record.hashes.clone());
        self.attach_to_any(version, &MemberRow { hashes, ..row.clone() })?;
        Ok(Attached::Yes)
    }

    /// The current version of the resource at the path of `record`.
    fn current(&mut self, directory: i64, record: &Record) -> Result<Option<i64>> {
        match self.find(directory, record)? {
            None => Ok(None),
            Some(row) if row.version.is_some() => Ok(row.version),
            Some(row) => Ok(self.child(row.id, SELF)?.and_then(|row| row.version)),
        }
    }
}
