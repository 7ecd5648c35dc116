//! What happened: the versions of one resource, the changes of a whole set.

use rusqlite::{Connection, Row, params};

use super::changes::How;
use super::reader::{Reader, names};
use super::{CatalogError, ROOT};
use crate::document::{Change, Datetime, Hashes};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// A sync that changed something.
#[derive(Clone, Debug)]
pub struct SyncRow {
    /// Its number.
    pub id: i64,
    /// When, by our clock.
    pub time: Datetime,
    /// From what.
    pub how: String,
    /// Resources that appeared.
    pub added: u64,
    /// New versions.
    pub updated: u64,
    /// Resources that went.
    pub deleted: u64,
}

/// A change that a sync brought.
#[derive(Clone, Debug)]
pub struct ChangeRow {
    /// Its nature.
    pub kind: Change,
    /// The path of the resource in the mount.
    pub path: String,
    /// When it happened, by the Source's clock; an earliest time if that gave none.
    pub moment: Datetime,
    /// Whether the Source told of the change, rather than two editions of a list.
    pub told: bool,
}

/// A version of a resource.
#[derive(Clone, Debug)]
pub struct VersionLog {
    /// Its number.
    pub id: i64,
    /// When it came into force.
    pub begin: Datetime,
    /// Until when it was; none if it still is.
    pub until: Option<Datetime>,
    /// How it came, if that is known.
    pub how: Option<How>,
    /// Whether it ended because the resource went.
    pub gone: bool,
    /// Bytes.
    pub size: Option<u64>,
    /// Its digests.
    pub hashes: Hashes,
    /// Whether its content is here.
    pub here: bool,
}

impl Reader {
    /// Syncs since a moment of our clock, newest first.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn syncs(&self, since: Option<Datetime>) -> Result<Vec<SyncRow>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT id, time, how, added, updated, deleted FROM sync WHERE time >= ?1 ORDER BY id DESC",
        )?;
        let unsigned = |row: &Row<'_>, index| row.get::<_, i64>(index).map(i64::unsigned_abs);
        let rows = statement.query_map([since.map_or(i64::MIN, Datetime::nanos)], |row| {
            Ok(SyncRow {
                id: row.get(0)?,
                time: Datetime::from_nanos(row.get(1)?),
                how: row.get(2)?,
                added: unsigned(row, 3)?,
                updated: unsigned(row, 4)?,
                deleted: unsigned(row, 5)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Visits the changes of a sync at or below a name, the newest first.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn changes_of(&self, sync: i64, below: i64, mut visit: impl FnMut(ChangeRow)) -> Result<()> {
        let mut statement = self.connection().prepare_cached(
            "SELECT change AS kind, begin AS moment, name, id AS place FROM version WHERE came = ?1
             UNION ALL SELECT gone, until, name, id FROM version WHERE went = ?1 ORDER BY moment DESC, place DESC",
        )?;
        let mut rows = statement.query([sync])?;
        while let Some(row) = rows.next()? {
            let Some(how) = How::of(row.get(0)?) else { continue };
            let name = row.get(2)?;
            if below != ROOT && !lies_below(self.connection(), name, below)? {
                continue;
            }
            visit(ChangeRow {
                kind: how.kind(),
                path: names(self.connection(), name, ROOT)?.join("/"),
                moment: Datetime::from_nanos(row.get(1)?),
                told: how.is_change(),
            });
        }
        Ok(())
    }

    /// All versions of a name, the newest first.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn versions_of(&self, name: i64) -> Result<Vec<VersionLog>> {
        const FACTS: &str = "v.id, v.begin, v.until, v.change, v.gone, v.size, v.hashes,
             v.object IS NOT NULL OR EXISTS (SELECT 1 FROM member m JOIN package p ON p.id = m.package
             WHERE m.version = v.id AND (m.state IN (1, 3) OR m.state = 0 AND p.whole))";
        let mut statement = self.connection().prepare_cached(&format!(
            "WITH own (id) AS (SELECT ?1 UNION ALL SELECT id FROM name WHERE parent = ?1 AND name = ?2)
             SELECT {FACTS} FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
             UNION ALL SELECT {FACTS} FROM own JOIN name n ON n.id = own.id JOIN version v ON v.id = n.version
             ORDER BY 2 DESC, 1 DESC"
        ))?;
        let rows = statement.query_map(params![name, SELF], |row| {
            let hashes: Option<Vec<u8>> = row.get(6)?;
            Ok(VersionLog {
                id: row.get(0)?,
                begin: Datetime::from_nanos(row.get(1)?),
                until: row.get::<_, Option<i64>>(2)?.map(Datetime::from_nanos),
                how: How::of(row.get(3)?),
                gone: row.get::<_, Option<i64>>(4)?.is_some(),
                size: row.get::<_, Option<i64>>(5)?.map(i64::unsigned_abs),
                hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
                here: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether anything lies below a name now.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn is_directory(&self, name: i64) -> Result<bool> {
        let mut statement =
            self.connection().prepare_cached("SELECT version IS NULL AND live > 0 FROM name WHERE id = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0))?)
    }

    /// The number of the name at this path, whether it is in the tree now or was once.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn find_ever(&self, path: &str) -> Result<Option<i64>> {
        let mut at = ROOT;
        let mut statement = self.connection().prepare_cached("SELECT id FROM name WHERE parent = ?1 AND name = ?2")?;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            let mut rows = statement.query(params![at, name])?;
            match rows.next()? {
                Some(row) => at = row.get(0)?,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }
}

fn lies_below(connection: &Connection, name: i64, above: i64) -> Result<bool> {
    let mut statement = connection.prepare_cached("SELECT parent FROM name WHERE id = ?1")?;
    let mut at = name;
    while at > 0 {
        if at == above {
            return Ok(true);
        }
        at = statement.query_row([at], |row| row.get(0))?;
    }
    Ok(false)
}
