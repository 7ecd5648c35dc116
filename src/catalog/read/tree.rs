//! Questions to the catalog, each over a read-only connection of its own.

use crate::catalog::db::numbers::{here, unseen};
use crate::catalog::model::ids::{NameId, VersionId};
use rusqlite::{OptionalExtension, Row, params};

use crate::catalog::db::columns::{MEMBER, MEMBER_HERE, member, sets};
use crate::catalog::db::meta::meta;
use crate::catalog::db::names::{SHOWN, URI, derived_uri};
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::{Inode, ROOT, directory_ino, version_ino};
use crate::catalog::model::nodes::{Content, DirEntry, Node, Place, Totals, VersionRow};
use crate::catalog::model::rows::SetRow;
use crate::document::{Datetime, Hashes};

type Result<T> = std::result::Result<T, CatalogError>;

/// How many versions a sample looks at, and how far from where it looks one may lie.
const SAMPLES: i64 = 31;

const NEARBY: i64 = 100;

/// How many names are looked at for a file that lies beside another.
const NEIGHBOURS: i64 = 8;

const NODE: &str = "n.id, n.changed, v.id, v.mtime, v.size";

impl Reader {
    /// The node of this name in the directory with this number.
    pub fn lookup(&self, directory: NameId, name: &str) -> Result<Option<Node>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT {NODE} FROM name n LEFT JOIN version v ON v.id = n.version
             WHERE n.parent = ?1 AND n.name = ?2 AND {SHOWN}"
        ))?;
        Ok(statement.query_row(params![directory, name], |row| node(row, 0)).optional()?)
    }

    /// The node with this inode number, in the current tree or not; a directory even if nothing is
    /// left in it.
    pub fn node(&self, inode: Inode) -> Result<Option<Node>> {
        match inode {
            Inode::Directory(name) => {
                let mut statement = self.connection().prepare_cached("SELECT changed FROM name WHERE id = ?1")?;
                let changed = statement.query_row([name], |row| row.get(0)).optional()?;
                Ok(changed.map(|changed| Node::Directory { ino: directory_ino(name), changed }))
            }
            Inode::Version(version) => {
                let mut statement =
                    self.connection().prepare_cached("SELECT mtime, size FROM version WHERE id = ?1")?;
                let found = statement.query_row([version], |row| Ok((row.get(0)?, size(row, 1)?))).optional()?;
                Ok(found.map(|(mtime, size)| Node::File { ino: version_ino(version), mtime, size }))
            }
        }
    }

    /// Visits the live names of a directory in the order of their names, after the one whose cookie is
    /// `after`, until `visit` says false.
    pub fn list(&self, directory: NameId, after: Option<i64>, mut visit: impl FnMut(DirEntry) -> bool) -> Result<()> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.name, {NODE} FROM name n LEFT JOIN version v ON v.id = n.version
             WHERE n.parent = ?1 AND n.name > COALESCE((SELECT name FROM name WHERE id = ?2), '')
               AND {SHOWN}
             ORDER BY n.name"
        ))?;
        let mut rows = statement.query(params![directory, after])?;
        while let Some(row) = rows.next()? {
            if !visit(DirEntry { name: row.get(0)?, cookie: row.get(1)?, node: node(row, 1)? }) {
                break;
            }
        }
        Ok(())
    }

    /// The current file before that of a version in its directory, if it is not far: between them may be directories, and names of
    /// what went.
    pub fn before(&self, version: VersionId) -> Result<Option<VersionId>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT version FROM (
                 SELECT b.version, b.hidden FROM version v JOIN name n ON n.id = v.name
                 JOIN name b ON b.parent = n.parent AND b.name < n.name WHERE v.id = ?1 ORDER BY b.name DESC LIMIT ?2)
             WHERE version IS NOT NULL AND hidden = 0 LIMIT 1",
        )?;
        Ok(statement.query_row(params![version, NEIGHBOURS], |row| row.get(0)).optional()?)
    }

    /// The current files after that of a version in its directory, of so many names and some more.
    pub fn following(&self, version: VersionId, limit: usize) -> Result<Vec<VersionId>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT version FROM (
                 SELECT f.version, f.hidden FROM version v JOIN name n ON n.id = v.name
                 JOIN name f ON f.parent = n.parent AND f.name > n.name WHERE v.id = ?1 ORDER BY f.name LIMIT ?2)
             WHERE version IS NOT NULL AND hidden = 0",
        )?;
        let names = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(NEIGHBOURS);
        let rows = statement.query_map(params![version, names], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The directory that this one lies in.
    pub fn parent(&self, directory: NameId) -> Result<Option<NameId>> {
        let mut statement = self.connection().prepare_cached("SELECT parent FROM name WHERE id = ?1")?;
        let parent: Option<NameId> = statement.query_row([directory], |row| row.get(0)).optional()?;
        Ok(parent.filter(|parent| parent.number() > 0))
    }

    /// A size that about half of the current files do not reach, in bytes, by a sample of them; none if no size is known.
    pub fn median_size(&self) -> Result<Option<u64>> {
        let last: i64 =
            self.connection().query_row("SELECT COALESCE(max(id), 0) FROM version", [], |row| row.get(0))?;
        let mut statement = self.connection().prepare_cached(
            "SELECT size FROM version WHERE id BETWEEN ?1 AND ?1 + ?2 AND until IS NULL AND size IS NOT NULL LIMIT 1",
        )?;
        let mut sizes = Vec::new();
        for number in 0..SAMPLES {
            sizes.extend(
                statement.query_row([last * number / SAMPLES, NEARBY], |row| size(row, 0)).optional()?.flatten(),
            );
        }
        let half = sizes.len() / 2;
        Ok((!sizes.is_empty()).then(|| *sizes.select_nth_unstable(half).1))
    }

    /// All that is kept of a version.
    ///
    /// # Errors
    /// If SQLite fails, or the row says what no row of ours can say.
    pub fn version(&self, version: VersionId) -> Result<Option<VersionRow>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT v.name, v.begin, v.until, v.mtime, v.dated, v.size, v.hashes, t.type, v.extra, {URI},
                    r.directory, o.sha256, o.size, o.verified, v.settled, v.served, {MEMBER}
             FROM version v JOIN name n ON n.id = v.name LEFT JOIN rset r ON r.id = n.rset
             LEFT JOIN media t ON t.id = v.media LEFT JOIN object o ON o.id = v.object
             LEFT JOIN member m ON m.version = v.id LEFT JOIN package p ON p.id = m.package
             WHERE v.id = ?1",
        ))?;
        let found = statement
            .query_row([version], |row| {
                let hashes: Option<Vec<u8>> = row.get(6)?;
                let extra: Option<String> = row.get(8)?;
                let until: Option<Datetime> = row.get(2)?;
                let uri: Option<String> = row.get(9)?;
                let directory: Option<NameId> = row.get(10)?;
                let sha256: Option<[u8; 32]> = row.get(11)?;
                let content = match sha256 {
                    None => None,
                    Some(sha256) => Some(Content { sha256, size: size(row, 12)?.unwrap_or(0), verified: row.get(13)? }),
                };
                let known = VersionRow {
                    id: version,
                    name: row.get(0)?,
                    uri: String::new(),
                    begin: Datetime::from_nanos(row.get(1)?),
                    current: until.is_none(),
                    mtime: Datetime::from_nanos(row.get(3)?),
                    dated: row.get(4)?,
                    size: size(row, 5)?,
                    settled: row.get(14)?,
                    served: row.get(15)?,
                    hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
                    media: row.get(7)?,
                    extra: extra.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                    content,
                    member: member(row, 16)?,
                };
                Ok((known, uri, directory.unwrap_or(ROOT)))
            })
            .optional()?;
        let Some((mut known, uri, directory)) = found else { return Ok(None) };
        known.uri = match uri {
            Some(uri) => uri,
            None => derived_uri(self.connection(), self.mapper(), known.name, directory)?,
        };
        Ok(Some(known))
    }

    /// Where the content of a version is, if it is known to be anywhere but at its Source.
    pub fn place(&self, version: VersionId) -> Result<Option<Place>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT o.sha256, o.size, o.verified, o.used, {MEMBER} FROM version v LEFT JOIN object o ON o.id = v.object
             LEFT JOIN member m ON m.version = v.id LEFT JOIN package p ON p.id = m.package WHERE v.id = ?1"
        ))?;
        let found = statement.query_row([version], |row| match row.get::<_, Option<[u8; 32]>>(0)? {
            Some(sha256) => {
                let size = size(row, 1)?.unwrap_or(0);
                let used = Datetime::from_nanos(row.get(3)?);
                Ok(Some(Place::Object(Content { sha256, size, verified: row.get(2)? }, used)))
            }
            None => Ok(member(row, 4)?.map(Place::Member)),
        });
        Ok(found.optional()?.flatten())
    }

    /// Versions of the current tree that have no content in the store, and their sizes, in the order of their numbers,
    /// after `after` and up to `upto`: what `content=all` still has to fetch.
    pub fn missing(&self, after: i64, upto: i64, limit: usize) -> Result<Vec<(VersionId, Option<u64>)>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT id, size FROM version v WHERE id > ?1 AND id <= ?3 AND until IS NULL AND object IS NULL
             AND NOT {MEMBER_HERE}{} ORDER BY id LIMIT ?2",
            self.wanted()?
        ))?;
        let rows = statement.query_map(params![after, i64::try_from(limit).unwrap_or(i64::MAX), upto], |row| {
            Ok((row.get(0)?, size(row, 1)?))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How many versions of the current tree have no content in the store, and the last of them. Reads a row for each version:
    /// not for a request that somebody waits for.
    pub fn count_missing(&self) -> Result<(u64, i64)> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT count(*), COALESCE(max(id), 0) FROM version v
             WHERE until IS NULL AND object IS NULL AND NOT {MEMBER_HERE}{}",
            self.wanted()?
        ))?;
        Ok(statement.query_row([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?)))?)
    }

    /// Visits the files of the current tree at or below a name: version, size, and whether its content is
    /// in the store.
    pub fn below(&self, name: NameId, mut visit: impl FnMut(VersionId, Option<u64>, bool)) -> Result<()> {
        let mut statement = self.connection().prepare_cached(&format!(
            "WITH RECURSIVE below (id) AS (
                 SELECT ?1 UNION ALL SELECT n.id FROM name n JOIN below b ON n.parent = b.id
                 WHERE {SHOWN})
             SELECT v.id, v.size, v.object IS NOT NULL OR {MEMBER_HERE} FROM below b JOIN name n ON n.id = b.id
             JOIN version v ON v.id = n.version",
        ))?;
        let mut rows = statement.query([name])?;
        while let Some(row) = rows.next()? {
            visit(row.get(0)?, size(row, 1)?, row.get(2)?);
        }
        Ok(())
    }

    /// How many files of the current tree are at or below a name.
    pub fn count_below(&self, name: NameId) -> Result<u64> {
        let mut statement = self.connection().prepare_cached(&format!(
            "WITH RECURSIVE below (id) AS (
                 SELECT ?1 UNION ALL SELECT n.id FROM name n JOIN below b ON n.parent = b.id WHERE {SHOWN})
             SELECT count(*) FROM below b JOIN name n ON n.id = b.id WHERE n.version IS NOT NULL",
        ))?;
        Ok(statement.query_row([name], |row| row.get::<_, i64>(0))?.unsigned_abs())
    }

    /// The number of the live name at this path from the root of the mount.
    pub fn find(&self, path: &str) -> Result<Option<NameId>> {
        let mut at = ROOT;
        let mut statement = self
            .connection()
            .prepare_cached(&format!("SELECT n.id FROM name n WHERE n.parent = ?1 AND n.name = ?2 AND {SHOWN}"))?;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            match statement.query_row(params![at, name], |row| row.get(0)).optional()? {
                Some(id) => at = id,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// A fact about the cache as a whole.
    pub fn meta(&self, key: &str) -> Result<Option<String>> {
        meta(self.connection(), key)
    }

    /// The sets, in the order in which they were made.
    pub fn sets(&self) -> Result<Vec<SetRow>> {
        sets(self.connection())
    }

    /// Sums over what is cached. Reads a row for each: not for a request that somebody waits for.
    pub fn totals(&self) -> Result<Totals> {
        // By what is here, which may be little, and not by all versions that there ever were.
        let wanted = self.wanted()?;
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT count(*), COALESCE(sum(size), 0) FROM (
                 SELECT v.size FROM version v INDEXED BY version_object
                 WHERE v.object IS NOT NULL AND v.until IS NULL{wanted}
                 UNION ALL
                 SELECT v.size FROM member m JOIN package p ON p.id = m.package JOIN version v ON v.id = m.version
                 WHERE ({here} OR m.state = {unseen} AND p.whole) AND v.object IS NULL AND v.until IS NULL{wanted})",
            here = here!("m.state"),
            unseen = unseen!(),
        ))?;
        Ok(statement.query_row([], |row| {
            let unsigned = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(Totals { cached: unsigned(0)?, bytes: unsigned(1)? })
        })?)
    }

    /// Whether this name or one it lies in is pinned.
    pub fn pinned(&self, name: NameId) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(
            "WITH RECURSIVE up (id) AS (
                 SELECT ?1 UNION ALL SELECT n.parent FROM name n JOIN up ON n.id = up.id WHERE n.parent > 0)
             SELECT EXISTS (SELECT 1 FROM up JOIN pin ON pin.name = up.id)",
        )?;
        Ok(statement.query_row([name], |row| row.get(0))?)
    }
}

pub(in crate::catalog) fn size(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(i64::unsigned_abs))
}

pub(in crate::catalog) fn node(row: &Row<'_>, first: usize) -> rusqlite::Result<Node> {
    match row.get::<_, Option<VersionId>>(first + 2)? {
        None => Ok(Node::Directory { ino: directory_ino(row.get(first)?), changed: row.get(first + 1)? }),
        Some(version) => {
            Ok(Node::File { ino: version_ino(version), mtime: row.get(first + 3)?, size: size(row, first + 4)? })
        }
    }
}
