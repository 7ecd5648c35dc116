//! What is listed beside what is in the tree, without changing anything.

use crate::catalog::db::numbers::here;
use crate::catalog::model::ids::{NameId, SetId, VersionId};
use rusqlite::{Connection, params};

use crate::catalog::db::names::names;
use crate::catalog::db::naming::Named;
use crate::catalog::db::pool::Reader;
use crate::catalog::db::snapshots::{seen, went_later};
use crate::catalog::db::tree::{NameRow, Numbers, Tree};
use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::ROOT;
use crate::catalog::model::origin::How;
use crate::catalog::model::record::Record;
use crate::catalog::model::snapshot::Snapshot;
use crate::document::{Datetime, Hashes};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// How one resource of a list compares with the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// As listed.
    Same,
    /// Changed since the list was made, as the Source's changes told.
    Newer,
    /// Listed before in the same lists.
    Repeated,
    /// Not in the tree.
    Missing,
    /// In the tree, and not as listed.
    Stale(Vec<Difference>),
}

/// Something that is not as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `lastmod`, `length`, or the name of a digest.
    pub what: &'static str,
    /// As it is here.
    pub here: String,
    /// As it is listed.
    pub listed: String,
}

/// Compares lists with the tree of one set, entry by entry.
#[derive(Debug)]
pub struct Comparison<'r> {
    reader: &'r Reader,
    rset: SetId,
    directory: NameId,
    seen: Numbers,
    /// The directory that was looked into last.
    last: Option<(Vec<String>, Option<NameId>)>,
}

impl<'r> Comparison<'r> {
    /// Begins one with a set and its directory.
    #[must_use]
    pub fn new(reader: &'r Reader, rset: SetId, directory: NameId) -> Self {
        Self { reader, rset, directory, seen: Numbers::default(), last: None }
    }

    fn connection(&self) -> &Connection {
        self.reader.connection()
    }

    fn directory_at(&mut self, above: &[String]) -> Result<Option<NameId>> {
        if let Some((known, id)) = &self.last
            && known == above
        {
            return Ok(*id);
        }
        let mut at = Some(self.directory);
        for name in above {
            at = match at {
                Some(parent) => Tree::row(self.connection(), parent, name)?.map(|row| row.id),
                None => None,
            };
        }
        self.last = Some((above.to_vec(), at));
        Ok(at)
    }

    /// The path of a resource below the directory of its set, as it is, or would be, in the tree.
    pub fn path(&mut self, record: &Record) -> Result<String> {
        let name = match self.directory_at(record.path.above())? {
            Some(parent) => Named::find(self.connection(), parent, &record.path, &record.uri)?.name,
            None => record.path.leaf().into(),
        };
        Ok(record.path.above().iter().map(|above| format!("{above}/")).collect::<String>() + &name)
    }

    /// Compares one resource, as a list of this snapshot has it.
    pub fn entry(&mut self, record: &Record, snapshot: Option<Snapshot>) -> Result<Compared> {
        let Some(parent) = self.directory_at(record.path.above())? else { return Ok(Compared::Missing) };
        let found = match Named::find(self.connection(), parent, &record.path, &record.uri)?.row {
            None => return Ok(Compared::Missing),
            Some(NameRow { id, version: Some(version), .. }) => Some((id, version)),
            Some(NameRow { id, .. }) => match Tree::row(self.connection(), id, SELF)? {
                Some(NameRow { id: inner, version: Some(version), .. }) => Some((inner, version)),
                inner => {
                    let names = (id, inner.map_or(id, |inner| inner.id));
                    let newer = match snapshot {
                        Some(snapshot) => went_later(self.connection(), names, snapshot)?,
                        None => false,
                    };
                    return Ok(if newer { Compared::Newer } else { Compared::Missing });
                }
            },
        };
        let Some((id, version)) = found else { return Ok(Compared::Missing) };
        if !self.seen.insert(id) {
            return Ok(Compared::Repeated);
        }
        self.version(version, record, snapshot)
    }

    fn version(&self, version: VersionId, record: &Record, snapshot: Option<Snapshot>) -> Result<Compared> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT mtime, dated, CASE WHEN settled THEN NULL ELSE size END, hashes, change, begin, ",
            seen!(),
            " FROM version v WHERE id = ?1"
        ))?;
        Ok(statement.query_row(rusqlite::params![version, snapshot.map_or(0, Snapshot::kinds)], |row| {
            let changed = How::of(row.get(4)?).is_some_and(How::is_change);
            let (begin, seen) = (row.get(5)?, row.get(6)?);
            if changed && snapshot.is_some_and(|snapshot| snapshot.is_before(begin, seen)) {
                return Ok(Compared::Newer);
            }
            let hashes: Option<Vec<u8>> = row.get(3)?;
            let known = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
            let mut differences = Vec::new();
            let mtime: Datetime = row.get(0)?;
            let agree = record.hashes.iter().any(|hash| known.get(hash.algorithm()) == Some(hash));
            // What a change said of its time, and a list of its own, needs not be the same where the bytes are.
            let timed = row.get::<_, u8>(1)? == 1 && record.dated == 1 && !(changed && agree);
            if timed && mtime != record.mtime {
                differences.push(Difference {
                    what: "lastmod",
                    here: mtime.to_string(),
                    listed: record.mtime.to_string(),
                });
            }
            let size = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
            if let Some((here, listed)) = size.zip(record.size).filter(|(here, listed)| here != listed) {
                differences.push(Difference { what: "length", here: here.to_string(), listed: listed.to_string() });
            }
            for hash in record.hashes.iter() {
                if let Some(here) = known.get(hash.algorithm()).filter(|here| *here != hash) {
                    differences.push(Difference {
                        what: hash.algorithm().token(),
                        here: here.to_string(),
                        listed: hash.to_string(),
                    });
                }
            }
            Ok(if differences.is_empty() { Compared::Same } else { Compared::Stale(differences) })
        })?)
    }

    /// Visits the paths and names of what is in the tree, and was in none of the lists; `snapshot` is that of the oldest of them. If
    /// `shown`, what the filter leaves out may be in lists that were not read.
    pub fn extra(&self, snapshot: Option<Snapshot>, shown: bool, mut visit: impl FnMut(String)) -> Result<()> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT n.id FROM name n JOIN version v ON v.id = n.version
             WHERE n.rset = ?1 AND NOT COALESCE(v.change < ?3 AND (v.begin >= ?4 OR ",
            seen!(),
            " >= ?5), 0) AND NOT (?6 AND n.live = 0 AND n.hidden > 0)"
        ))?;
        let (at, seen) = (snapshot.map(Snapshot::at), snapshot.map(Snapshot::seen));
        let kinds = snapshot.map(Snapshot::kinds);
        let mut rows = statement.query(params![self.rset, kinds, How::LISTED, at, seen, shown])?;
        while let Some(row) = rows.next()? {
            let id: NameId = row.get(0)?;
            if !self.seen.contains(id) {
                visit(names(self.connection(), id, ROOT)?.join("/"));
            }
        }
        Ok(())
    }
}

/// Content that is to be looked at: where it is, and the versions that have it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The name of the object in the store.
    pub sha256: [u8; 32],
    /// Its number.
    pub id: i64,
    /// Bytes, as they should be.
    pub size: u64,
}

impl Reader {
    /// The objects of the store, some at a time, after the one with this number.
    pub fn objects(&self, after: i64, limit: usize) -> Result<Vec<Kept>> {
        let mut statement = self
            .connection()
            .prepare_cached("SELECT sha256, id, size FROM object WHERE id > ?1 ORDER BY id LIMIT ?2")?;
        let rows = statement.query_map(params![after, i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(Kept { sha256: row.get(0)?, id: row.get(1)?, size: row.get::<_, i64>(2)?.unsigned_abs() })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether there is an object with this digest.
    pub fn has_object(&self, sha256: &[u8; 32]) -> Result<bool> {
        let mut statement = self.connection().prepare_cached("SELECT 1 FROM object WHERE sha256 = ?1")?;
        Ok(statement.exists([sha256.as_slice()])?)
    }

    /// The versions that have an object as their content.
    pub fn versions_with(&self, object: i64) -> Result<Vec<VersionId>> {
        let mut statement = self.connection().prepare_cached("SELECT id FROM version WHERE object = ?1")?;
        Ok(statement.query_map([object], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether content is that of a version that a hash or a length of its list held it to, or of a superseded one.
    pub fn is_kept(&self, sha256: &[u8; 32]) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM object o JOIN version v ON v.object = o.id
                 WHERE o.sha256 = ?1 AND (v.until IS NOT NULL OR v.hashes IS NOT NULL OR NOT v.settled))",
        )?;
        Ok(statement.query_row([sha256.as_slice()], |row| row.get(0))?)
    }

    /// Some of the current versions that have the content with this SHA-256.
    pub fn current_with(&self, sha256: &[u8; 32], limit: usize) -> Result<Vec<VersionId>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT v.id FROM object o JOIN version v ON v.object = o.id
             WHERE o.sha256 = ?1 AND v.until IS NULL LIMIT ?2",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let versions = statement.query_map(params![sha256.as_slice(), limit], |row| row.get(0))?;
        Ok(versions.collect::<rusqlite::Result<_>>()?)
    }

    /// The versions whose content is a member that is here, some at a time, after this one.
    pub fn members_here(&self, after: i64, limit: usize) -> Result<Vec<VersionId>> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT m.version FROM member m JOIN version v ON v.id = m.version
             WHERE m.version > ?1 AND ",
            here!("m.state"),
            " AND v.object IS NULL ORDER BY m.version LIMIT ?2"
        ))?;
        let rows = statement.query_map(params![after, i64::try_from(limit).unwrap_or(i64::MAX)], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The path of the resource of a version.
    pub fn path_of(&self, version: VersionId) -> Result<String> {
        let name =
            self.connection().query_row("SELECT name FROM version WHERE id = ?1", [version], |row| row.get(0))?;
        Ok(names(self.connection(), name, ROOT)?.join("/"))
    }
}
