//! Facts about content: what has come into the store, what has left it, what was learnt of sizes.

use crate::catalog::model::ids::{NameId, VersionId};
use rusqlite::{OptionalExtension, params};

use crate::catalog::error::CatalogError;
use crate::catalog::model::nodes::Content;
use crate::catalog::model::origin::How;
use crate::catalog::write::insert::VersionValues;
use crate::catalog::write::transaction::Transaction;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// Content of a version has come into the store. Its size becomes known if it was not. What was shown of a version and is
    /// not that of the content makes it a successor's. Returns whether the store did not have it before.
    pub fn store(&mut self, version: VersionId, content: &Content, now: Datetime) -> Result<bool> {
        let size = i64::try_from(content.size).unwrap_or(i64::MAX);
        let other: Option<bool> = self
            .connection()
            .prepare_cached("SELECT COALESCE(size != ?2, 0) OR COALESCE(served != ?3, 0) FROM version WHERE id = ?1")?
            .query_row(params![version, size, content.sha256.as_slice()], |row| row.get(0))
            .optional()?;
        match other {
            Some(true) => self.supersede(version, Some(content), now),
            Some(false) => self.put(version, content, size, now),
            None => Ok(false),
        }
    }

    fn put(&self, version: VersionId, content: &Content, size: i64, now: Datetime) -> Result<bool> {
        let known: Option<i64> = self
            .connection()
            .prepare_cached("UPDATE object SET used = ?2, verified = max(verified, ?3) WHERE sha256 = ?1 RETURNING id")?
            .query_row(params![content.sha256.as_slice(), now.nanos(), content.verified], |row| row.get(0))
            .optional()?;
        let object = match known {
            Some(object) => object,
            None => {
                self.connection()
                    .prepare_cached(
                        "INSERT INTO object (sha256, size, used, verified, durable) VALUES (?1, ?2, ?3, ?4, 0)",
                    )?
                    .execute(params![content.sha256.as_slice(), size, now.nanos(), content.verified])?;
                self.connection().last_insert_rowid()
            }
        };
        self.connection()
            .prepare_cached(
                "UPDATE version SET object = ?2, settled = settled OR size IS NULL, size = COALESCE(size, ?3),
                 served = ?4 WHERE id = ?1",
            )?
            .execute(params![version, object, size, content.sha256.as_slice()])?;
        // What is here may make others that are listed as had nowhere.
        self.connection()
            .prepare_cached(
                "UPDATE name SET changed = ?2 WHERE id = (SELECT name FROM version WHERE id = ?1 AND until IS NOT NULL)",
            )?
            .execute(params![version, self.now])?;
        Ok(known.is_none())
    }

    /// The size of a version has become known.
    pub fn settle_size(&self, version: VersionId, size: u64) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE version SET size = ?2, settled = 1 WHERE id = ?1 AND size IS NULL")?
            .execute(params![version, i64::try_from(size).unwrap_or(i64::MAX)])?;
        Ok(())
    }

    /// A current version turned out not to be what its size said, or what was served of it: a successor
    /// takes its name, with the content that was found, or else with nothing known beyond the list.
    pub fn supersede(&mut self, version: VersionId, content: Option<&Content>, now: Datetime) -> Result<bool> {
        let row: Option<(NameId, NameId, String)> = self
            .connection()
            .query_row(
                "SELECT id, parent, name FROM name WHERE version = ?1 AND id = (SELECT name FROM version WHERE id = ?1)",
                [version],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        let Some((id, parent, name)) = row else { return self.supersede_past(version, content, now) };
        let Some(known) = VersionValues::load(self.connection(), version)? else { return Ok(false) };
        let next = self.new_version();
        // Of what was never served, nothing was wrong but what had been said of its size; and without content, only the inode
        // is another. That is no version of its own.
        let phantom = content.is_none() || known.settled && known.served.is_none();
        let begin = if phantom { known.begin } else { now };
        VersionValues {
            id: next,
            begin,
            until: None,
            size: known.size.filter(|_| !known.settled && content.is_none()),
            settled: false,
            object: None,
            served: None,
            change: if phantom { known.change } else { known.change.and_then(How::of_successor) },
            gone: None,
            came: known.came.filter(|_| phantom),
            went: None,
            ended: None,
            rank: phantom.then(|| known.rank.unwrap_or(version.number())),
            ..known
        }
        .insert(self.connection())?;
        self.close(version, now)?;
        if phantom {
            self.orphan(version, next)?;
        }
        self.relink(next)?;
        self.connection()
            .execute("UPDATE name SET version = ?2, changed = ?3 WHERE id = ?1", params![id, next, self.now])?;
        self.tree.changes.from(begin);
        self.tree.count(&self.transaction, parent, &name, 0)?;
        content.map_or(Ok(false), |content| self.store(next, content, now))
    }

    /// Another takes the place of a version that is no resource's any more: whoever has it open goes on with it.
    pub(in crate::catalog) fn orphan(&self, version: VersionId, next: VersionId) -> Result<()> {
        self.connection().execute("UPDATE OR IGNORE memento SET version = ?2 WHERE version = ?1", [version, next])?;
        self.connection().execute("DELETE FROM memento WHERE version = ?1", [version])?;
        self.connection().execute("DELETE FROM link WHERE version = ?1", [version])?;
        // One that has no end would count as current: as content to be fetched, for one.
        self.connection().execute(
            "UPDATE version SET name = 0, change = NULL, came = NULL, gone = NULL, went = NULL,
                 until = COALESCE(until, begin), ended = COALESCE(ended, ?2) WHERE id = ?1",
            params![version, self.now],
        )?;
        Ok(())
    }

    /// The same of a superseded version whose size turned out to be another, or of which readers have seen bytes that failed
    /// verification.
    fn supersede_past(&mut self, version: VersionId, content: Option<&Content>, now: Datetime) -> Result<bool> {
        let known = VersionValues::load(self.connection(), version)?;
        let may_go = |known: &VersionValues| {
            (known.settled || content.is_none()) && known.served.is_none() && known.name.number() > 0
        };
        let Some(known) = known.filter(may_go) else { return Ok(false) };
        let (name, begin, Some(until)) = (known.name, known.begin, known.until) else { return Ok(false) };
        let next = self.new_version();
        VersionValues {
            id: next,
            size: known.size.filter(|_| !known.settled),
            settled: false,
            object: None,
            served: None,
            rank: known.rank.or(Some(version.number())),
            ..known
        }
        .insert(self.connection())?;
        self.orphan(version, next)?;
        self.lived(name, begin, until)?;
        content.map_or(Ok(false), |content| self.store(next, content, now))
    }

    /// Content was read just now.
    pub fn touch(&self, sha256: &[u8; 32], now: Datetime) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE object SET used = ?2 WHERE sha256 = ?1")?
            .execute(params![sha256.as_slice(), now.nanos()])?;
        Ok(())
    }

    /// Content has left the store.
    pub fn forget_object(&self, object: i64) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE name SET changed = ?2 WHERE id IN (SELECT name FROM version WHERE object = ?1 AND until IS NOT NULL)",
            )?
            .execute(params![object, self.now])?;
        self.connection().prepare_cached("UPDATE version SET object = NULL WHERE object = ?1")?.execute([object])?;
        self.connection().prepare_cached("DELETE FROM object WHERE id = ?1")?.execute([object])?;
        Ok(())
    }

    /// The content with this digest turned out to be missing or damaged. Returns its size, if it was known.
    pub fn forget_content(&self, sha256: &[u8; 32]) -> Result<Option<u64>> {
        let found: Option<(i64, i64)> = self
            .connection()
            .query_row("SELECT id, size FROM object WHERE sha256 = ?1", [sha256.as_slice()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((object, size)) = found else { return Ok(None) };
        self.forget_object(object)?;
        Ok(Some(size.unsigned_abs()))
    }

    /// All content of now is known to have reached the disk.
    pub fn all_durable(&self) -> Result<()> {
        self.connection().execute("UPDATE object SET durable = 1 WHERE durable = 0", [])?;
        self.connection().execute("UPDATE package SET durable = 1 WHERE durable = 0 AND bytes > 0", [])?;
        Ok(())
    }

    /// Keeps the content of a name and of all below it.
    pub fn pin(&self, name: NameId) -> Result<()> {
        self.connection().execute("INSERT OR IGNORE INTO pin (name) VALUES (?1)", [name])?;
        Ok(())
    }
}
