//! What a set offers, the Change Lists and Change Dumps that are followed, and the syncs that changed something.

use crate::catalog::model::ids::SetId;
use rusqlite::params;

use crate::catalog::error::CatalogError;
use crate::catalog::model::feeds::{Beginning, Feed, Offer, Tally};
use crate::catalog::write::transaction::Transaction;
use crate::catalog::write::writer::Writer;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Writer {
    /// Keeps what a set offers, if that is not what was known.
    pub fn keep_offers(&mut self, rset: SetId, offers: &[Offer]) -> Result<()> {
        let known = self.readers().ask(|reader| reader.offers(rset))?;
        if known.len() == offers.len() && offers.iter().all(|offer| known.contains(offer)) {
            return Ok(());
        }
        let transaction = self.begin(true)?;
        transaction.connection().execute("DELETE FROM offer WHERE rset = ?1", [rset])?;
        for offer in offers {
            transaction.connection().execute(
                "INSERT OR IGNORE INTO offer (rset, capability, url, hubs) VALUES (?1, ?2, ?3, ?4)",
                params![
                    rset,
                    offer.capability.name(),
                    offer.url,
                    serde_json::to_string(&offer.hubs).ok().filter(|_| !offer.hubs.is_empty())
                ],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Transaction<'_> {
    /// Says that this step is a sync of its set, which the log is to tell of.
    pub fn begin_sync(&mut self) -> Result<()> {
        let last: i64 = self.connection().query_row("SELECT COALESCE(max(id), 0) FROM sync", [], |row| row.get(0))?;
        self.sync = Some(last + 1);
        Ok(())
    }

    /// Notes what the sync of this step did, and from what.
    pub fn end_sync(&self, rset: SetId, how: &str, tally: &Tally) -> Result<()> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let last = || self.connection().query_row("SELECT COALESCE(max(id), 0) + 1 FROM sync", [], |row| row.get(0));
        let id: i64 = self.sync.map_or_else(last, Ok)?;
        self.connection().execute(
            "INSERT INTO sync (id, rset, time, how, added, updated, deleted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                id,
                rset,
                Datetime::now().nanos(),
                how,
                number(tally.added),
                number(tally.updated + tally.past),
                number(tally.deleted)
            ],
        )?;
        Ok(())
    }

    /// Keeps how far a Change List or Change Dump was followed.
    pub fn put_feed(&self, rset: SetId, feed: &Feed) -> Result<()> {
        let beside = feed.beside.as_ref();
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO feed (rset, root, capability, url, etag, last_modified, above, cursor, read,
                     failure, until, beside, beside_etag, beside_last_modified, edition,
                     lost, edition_url, missed, history_from, edition_from)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
            )?
            .execute(params![
                rset,
                feed.root,
                feed.capability.name(),
                feed.url,
                feed.etag,
                feed.last_modified,
                feed.above,
                feed.cursor.map(Datetime::nanos),
                feed.read.iter().copied().flat_map(Beginning::to_bytes).collect::<Vec<u8>>(),
                feed.failure,
                feed.until.map(Datetime::nanos),
                beside.map(|beside| &beside.url),
                beside.and_then(|beside| beside.etag.as_ref()),
                beside.and_then(|beside| beside.last_modified.as_ref()),
                feed.edition.entries.iter().flat_map(|digest| digest.to_le_bytes()).collect::<Vec<u8>>(),
                feed.lost.map(Datetime::nanos),
                feed.edition.url,
                feed.missed.map(Datetime::nanos),
                feed.history_from.map(Datetime::nanos),
                feed.edition.from.map(Datetime::nanos)
            ])?;
        self.connection()
            .prepare_cached("DELETE FROM feed_replaced WHERE rset = ?1 AND root = ?2")?
            .execute(params![rset, feed.root])?;
        Ok(())
    }

    /// The lists changed the tree: what its feeds report is read again, whether they have changed or not. The edition of each
    /// stays known, to tell what has happened since that.
    pub fn reread_feeds(&self, rset: SetId) -> Result<()> {
        self.connection().execute(
            "UPDATE feed SET etag = NULL, last_modified = NULL, beside_etag = NULL, beside_last_modified = NULL, read = x''
             WHERE rset = ?1",
            [rset],
        )?;
        Ok(())
    }

    /// Lists of resources that are complete, and of this time, make up for changes that were lost before.
    pub fn lists_make_up(&self, rset: SetId, at: Option<Datetime>) -> Result<()> {
        self.connection().execute(
            "UPDATE feed SET lost = NULL WHERE rset = ?1 AND lost <= ?2",
            params![rset, at.map(Datetime::nanos)],
        )?;
        Ok(())
    }

    /// Notes that newer lists were applied: changes that a feed lists from where it was followed, or from the former cursor of the
    /// set, `before`, are not in the history yet.
    pub fn note_history_gap(&self, rset: SetId, before: Option<Datetime>) -> Result<()> {
        self.connection().execute(
            "UPDATE feed SET history_from = max(cursor, COALESCE(?2, cursor)) WHERE rset = ?1 AND history_from IS NULL",
            params![rset, before.map(Datetime::nanos)],
        )?;
        Ok(())
    }

    /// Forgets a feed that newer lists replaced, but for the time from which its changes are not in the history.
    pub fn replace_feed(&self, rset: SetId, feed: &Feed) -> Result<()> {
        let known = "SELECT rset, root, capability, max(COALESCE(history_from, cursor), COALESCE(cursor, history_from))
                     FROM feed WHERE rset = ?1 AND root = ?2 AND COALESCE(history_from, cursor) IS NOT NULL";
        let row = params![rset, feed.root];
        self.connection().execute(
            &format!("INSERT OR REPLACE INTO feed_replaced (rset, root, capability, history_from) {known}"),
            row,
        )?;
        self.connection().execute("DELETE FROM feed WHERE rset = ?1 AND root = ?2", row)?;
        Ok(())
    }

    /// Notes why a feed cannot be followed, and since when it is `missed`. How far it was followed does not change.
    pub fn note_feed_failure(&self, rset: SetId, feed: &Feed) -> Result<()> {
        let missed = feed.missed.map(Datetime::nanos);
        let known = self
            .connection()
            .prepare_cached("UPDATE feed SET failure = ?3, missed = ?4 WHERE rset = ?1 AND root = ?2")?
            .execute(params![rset, feed.root, feed.failure, missed])?;
        if known == 0 { self.put_feed(rset, feed) } else { Ok(()) }
    }

    /// Forgets the feeds of a set that are at none of these roots.
    pub fn forget_feeds(&self, rset: SetId, roots: &[String]) -> Result<()> {
        let roots = serde_json::to_string(roots).unwrap_or_else(|_| "[]".to_owned());
        for table in ["feed", "feed_replaced"] {
            self.connection().execute(
                &format!("DELETE FROM {table} WHERE rset = ?1 AND root NOT IN (SELECT value FROM json_each(?2))"),
                params![rset, roots],
            )?;
        }
        Ok(())
    }
}
