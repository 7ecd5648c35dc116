//! What happened: the syncs of a mirror, and the changes that each brought.

use crate::catalog::model::ids::NameId;
use rusqlite::{Connection, Row, params};

use crate::catalog::db::names::names;
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::ROOT;
use crate::catalog::model::origin::How;
use crate::document::{Change, Datetime};

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

impl Reader {
    /// Syncs since a moment of our clock, newest first.
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
    pub fn changes_of(&self, sync: i64, below: NameId, mut visit: impl FnMut(ChangeRow)) -> Result<()> {
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

    /// Whether anything lies below a name now.
    pub fn is_directory(&self, name: NameId) -> Result<bool> {
        let mut statement =
            self.connection().prepare_cached("SELECT version IS NULL AND live > 0 FROM name WHERE id = ?1")?;
        Ok(statement.query_row([name], |row| row.get(0))?)
    }

    /// The number of the name at this path, whether it is in the tree now or was once.
    pub fn find_ever(&self, path: &str) -> Result<Option<NameId>> {
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

fn lies_below(connection: &Connection, name: NameId, above: NameId) -> Result<bool> {
    let mut statement = connection.prepare_cached("SELECT parent FROM name WHERE id = ?1")?;
    let mut at = name;
    while at.number() > 0 {
        if at == above {
            return Ok(true);
        }
        at = statement.query_row([at], |row| row.get(0))?;
    }
    Ok(false)
}
