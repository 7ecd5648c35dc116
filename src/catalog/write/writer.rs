//! The one writer.

use crate::catalog::db::numbers::own;
use crate::catalog::model::ids::{NameId, PackageId, SetId, VersionId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::catalog::db::columns::sets;
use crate::catalog::db::meta::{meta, set_meta};
use crate::catalog::db::pool::{Gate, Pool};
use crate::catalog::db::schema::DATABASE;
use crate::catalog::db::{schema, writeback};
use crate::catalog::error::CatalogError;
use crate::catalog::model::filter::{Filter, Wish};
use crate::catalog::model::rows::{DocumentRow, Evictable, SetRow, Stored};
use crate::catalog::write::transaction::Transaction;
use crate::document::Datetime;
use crate::path::Mapper;

type Result<T> = std::result::Result<T, CatalogError>;

/// The only connection that writes.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    mapper: Arc<Mapper>,
    filter: Arc<Filter>,
    gate: Arc<Gate>,
}

/// How long a checkpoint waits for readers that have begun already.
const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(250);

impl Writer {
    /// Opens the catalog of a cache directory, making it where there is none.
    ///
    /// # Errors
    /// If the database cannot be opened, is newer than this program, or is damaged.
    pub fn open(cache: &Path, mapper: Arc<Mapper>) -> Result<Self> {
        let path = cache.join(DATABASE);
        let mut writer =
            Self { connection: schema::open(&path)?, path, mapper, filter: Arc::default(), gate: Arc::default() };
        writer.index_links()?;
        Ok(writer)
    }

    /// From the next step on, the tree shows what this filter admits; [`Transaction::refilter`] brings into line what is there.
    /// Returns the one before.
    pub fn set_filter(&mut self, filter: Arc<Filter>) -> Arc<Filter> {
        std::mem::replace(&mut self.filter, filter)
    }

    /// What the tree shows.
    #[must_use]
    pub fn wish(&self) -> Wish {
        self.filter.wish().clone()
    }

    /// Readers of the same catalog.
    #[must_use]
    pub fn readers(&self) -> Pool {
        Pool::new(self.path.clone(), Arc::clone(&self.mapper), Arc::clone(&self.gate))
    }

    /// A fact about the cache as a whole.
    pub fn meta(&self, key: &str) -> Result<Option<String>> {
        meta(&self.connection, key)
    }

    /// Keeps a fact about the cache as a whole.
    pub fn set_meta(&self, key: &str, value: &str) -> Result<()> {
        set_meta(&self.connection, key, value)
    }

    /// The generation of all inode numbers of this cache.
    pub fn generation(&self) -> Result<u64> {
        Ok(self.meta("generation")?.and_then(|value| value.parse().ok()).unwrap_or(1))
    }

    /// The sets, in the order in which they were made.
    pub fn sets(&self) -> Result<Vec<SetRow>> {
        sets(&self.connection)
    }

    /// The documents that a set was made from.
    pub fn documents(&self, rset: SetId) -> Result<Vec<DocumentRow>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, url, etag, last_modified, at, part, entries, package, next FROM document WHERE rset = ?1 ORDER BY id",
        )?;
        let rows = statement.query_map([rset], |row| {
            Ok(DocumentRow {
                id: row.get(0)?,
                url: row.get(1)?,
                etag: row.get(2)?,
                last_modified: row.get(3)?,
                at: row.get::<_, Option<i64>>(4)?.map(Datetime::from_nanos),
                part: row.get(5)?,
                entries: row.get::<_, i64>(6)?.unsigned_abs(),
                package: row.get(7)?,
                next: row.get(8)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Begins a step. Until it is committed, nobody sees it. A `durable` step has reached the disk when
    /// it is committed; another one may be lost, whole, with the machine's power.
    pub fn begin(&mut self, durable: bool) -> Result<Transaction<'_>> {
        self.connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
        let number =
            |key| -> Result<i64> { Ok(meta(&self.connection, key)?.and_then(|value| value.parse().ok()).unwrap_or(8)) };
        let (next_name, next_version) = (NameId::new(number("next_name")?), VersionId::new(number("next_version")?));
        let transaction = self.connection.unchecked_transaction()?;
        let (filter, gate) = (Arc::clone(&self.filter), Arc::clone(&self.gate));
        Ok(Transaction::new(transaction, &self.mapper, (next_name, next_version), filter, gate))
    }

    /// Makes a step that writes much. What it leaves in the write-ahead log is for [`Writer::checkpoint`], soon: this commit or
    /// the next would bring all of it into the database while somebody waits.
    ///
    /// # Errors
    /// As the step says, or if SQLite fails.
    pub fn long<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        self.connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        let done = writeback::during(Path::new(&log), || step(self));
        // The commit of what comes next is as any other.
        self.connection.pragma_update(None, "wal_autocheckpoint", schema::CHECKPOINT_AFTER)?;
        done
    }

    /// The size of the write-ahead log, in bytes.
    #[must_use]
    pub fn log_size(&self) -> u64 {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        std::fs::metadata(log).map_or(0, |log| log.len())
    }

    /// Writes what the write-ahead log holds back into the database, and empties it. Readers that begin wait for a moment:
    /// where one is always reading, there would be no end to the log. Returns false if some went on reading; then the log
    /// is emptied later.
    pub fn checkpoint(&self) -> Result<bool> {
        let _gate = self.gate.close();
        self.connection.busy_timeout(CHECKPOINT_PATIENCE)?;
        let busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        self.connection.busy_timeout(schema::BUSY_TIMEOUT)?;
        Ok(!busy?)
    }

    /// Bytes of all content in the store.
    pub fn stored_bytes(&self) -> Result<u64> {
        let sum: i64 = self.connection.query_row(
            "SELECT (SELECT COALESCE(sum(size), 0) FROM object) + (SELECT COALESCE(sum(bytes), 0) FROM package)",
            [],
            |row| row.get(0),
        )?;
        Ok(sum.unsigned_abs())
    }

    /// Content that may be let go, least recently used first, after one such. What was superseded after `since` by
    /// our clock is not offered, nor the last three of a resource: it is history. Packages are, or one superseded member would keep all of a package for ever.
    pub fn evictable(&self, limit: usize, after: Option<&Evictable>, since: Datetime) -> Result<Vec<Evictable>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT used, place, sha256, size, id FROM (
                 SELECT o.used, o.id * 2 AS place, o.id, o.sha256, o.size FROM object o
                 WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.object = o.id AND v.name > 0 AND {IS_HISTORY} AND {IS_KEPT})
                 UNION ALL
                 SELECT p.used, p.id * 2 + 1 AS place, p.id, NULL, p.bytes FROM package p
                 WHERE p.bytes > 0 AND p.indexed)
             WHERE (used, place) > (?2, ?3) ORDER BY used, place LIMIT ?4",
        ))?;
        let (used, place) = after.map_or((Datetime::MIN, 0), |after| {
            (after.used, after.id * 2 + i64::from(matches!(after.stored, Stored::Package(_))))
        });
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![since.nanos(), used, place, limit], evictable)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Content of nothing but history that is not kept any more: superseded before `since` by our clock, and not of
    /// the last three of its resource. What no resource has is let go, too. Goes on after one such.
    pub fn expired(&self, limit: usize, after: Option<&Evictable>, since: Datetime) -> Result<Vec<Evictable>> {
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT used, place, sha256, size, id FROM (
                 SELECT o.used, o.id * 2 AS place, o.sha256, o.size, o.id FROM object o
                 WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.object = o.id AND v.name > 0 AND (NOT ({IS_HISTORY}) OR {IS_KEPT}))
                 UNION ALL
                 SELECT p.used, p.id * 2 + 1 AS place, NULL, p.bytes, p.id FROM package p
                 WHERE p.bytes > 0 AND p.indexed AND EXISTS (SELECT 1 FROM member m WHERE m.package = p.id)
                   AND NOT EXISTS (SELECT 1 FROM member m JOIN version v ON v.id = m.version
                                   WHERE m.package = p.id AND v.name > 0 AND (NOT ({IS_HISTORY}) OR {IS_KEPT})))
             WHERE place > ?2 ORDER BY place LIMIT ?3",
        ))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let after = after.map_or(0, |after| after.id * 2 + i64::from(matches!(after.stored, Stored::Package(_))));
        let rows = statement.query_map(params![since.nanos(), after, limit], evictable)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The names of all versions whose content is kept there, if anything is pinned at all.
    pub fn names_that_may_be_pinned(&self, of: &Evictable) -> Result<Vec<NameId>> {
        let question = match of.stored {
            Stored::Object(_) => "SELECT DISTINCT name FROM version WHERE object = ?1 AND EXISTS (SELECT 1 FROM pin)",
            Stored::Package(_) => {
                "SELECT DISTINCT v.name FROM member m JOIN version v ON v.id = m.version
                 WHERE m.package = ?1 AND EXISTS (SELECT 1 FROM pin)"
            }
        };
        let mut statement = self.connection.prepare_cached(question)?;
        let rows = statement.query_map([of.id], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Packages that are not known to have reached the disk.
    pub fn packages_not_durable(&self) -> Result<Vec<PackageId>> {
        let mut statement = self.connection.prepare_cached("SELECT id FROM package WHERE durable = 0 AND bytes > 0")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Content that is not known to have reached the disk.
    pub fn not_durable(&self) -> Result<Vec<(i64, [u8; 32])>> {
        let mut statement = self.connection.prepare_cached("SELECT id, sha256 FROM object WHERE durable = 0")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// Whether version `v` is of our own history: it was synced, and superseded.
const IS_HISTORY: &str = concat!("v.until IS NOT NULL AND ", own!("v.change"));

/// Whether it is recent enough to be kept: since `?1`, or one of the last three of its resource; or what the next is
/// made of by a patch, and those after it.
const IS_KEPT: &str = concat!("(COALESCE(v.ended, ?1) >= ?1
     OR NOT EXISTS (SELECT 1 FROM version w WHERE w.name = v.name AND w.until IS NOT NULL AND ", own!("w.change"), "
         AND (w.begin, w.id) > (v.begin, v.id) LIMIT 1 OFFSET 2)
     OR EXISTS (SELECT 1 FROM version w WHERE w.id = (SELECT id FROM version x WHERE x.name = v.name AND x.until IS NOT NULL
             AND ", own!("x.change"), " AND (x.begin, x.id) > (v.begin, v.id) ORDER BY x.begin, x.id LIMIT 1)
         AND w.object IS NULL AND (instr(w.extra, 'patch') OR EXISTS (SELECT 1 FROM patch p WHERE p.version = w.id))))");

fn evictable(row: &rusqlite::Row<'_>) -> rusqlite::Result<Evictable> {
    let id = row.get(4)?;
    let sha256: Option<[u8; 32]> = row.get(2)?;
    Ok(Evictable {
        used: row.get(0)?,
        stored: sha256.map_or(Stored::Package(PackageId::new(id)), Stored::Object),
        id,
        size: row.get::<_, i64>(3)?.unsigned_abs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_kept_short_again_by_the_checkpoint_that_follows_a_long_step() {
        let folder = tempfile::tempdir().unwrap();
        let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
        let mut writer = Writer::open(folder.path(), mapper).unwrap();
        let long = std::panic::AssertUnwindSafe(|| writer.long(|_| -> Result<()> { panic!("a bug") }));
        std::panic::catch_unwind(long).unwrap_err();
        let after = |writer: &Writer| -> i64 {
            writer.connection.pragma_query_value(None, "wal_autocheckpoint", |row| row.get(0)).unwrap()
        };
        assert_eq!(after(&writer), 0, "the step never came to its end");
        writer.long(|_| Ok(())).unwrap();
        assert_eq!(after(&writer), schema::CHECKPOINT_AFTER);
        assert!(writer.checkpoint().unwrap());
        assert_eq!(writer.log_size(), 0);
    }
}
