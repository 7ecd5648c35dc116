//! What a set offers, the Change Lists and Change Dumps that are followed, and the syncs that changed something.

use rusqlite::{Row, params};

use super::reader::Reader;
use super::transaction::Transaction;
use super::writer::Writer;
use super::{CatalogError, Changed};
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

/// A document that a set offers, as discovery found it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is.
    pub capability: Capability,
    /// Where it is.
    pub url: String,
    /// Of a channel of notifications: the hubs that deliver it.
    pub hubs: Vec<String>,
}

/// So many entries of a list, and what tells them from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// How many.
    pub entries: u64,
    /// Of all that they say.
    pub digest: [u8; 32],
}

impl Beginning {
    const LENGTH: usize = 40;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.entries.to_le_bytes());
        bytes[8..].copy_from_slice(&self.digest);
        bytes
    }

    fn all_of(bytes: &[u8]) -> Vec<Self> {
        let one = |bytes: &[u8]| {
            let (entries, digest) = bytes.split_at_checked(8)?;
            Some(Self { entries: u64::from_le_bytes(entries.try_into().ok()?), digest: digest.try_into().ok()? })
        };
        bytes.chunks_exact(Self::LENGTH).filter_map(one).collect()
    }
}

/// An edition of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// Where the list is.
    pub url: String,
    /// A digest of each entry, from the oldest change to the newest; none where each change has a time.
    pub entries: Vec<u64>,
}

/// The index of an open list, and its validators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Its URL.
    pub url: String,
    /// Of its edition from which all is in the tree.
    pub etag: Option<String>,
    /// As the server sent it.
    pub last_modified: Option<String>,
}

/// How far a Change List or a Change Dump has been followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Where the Capability List says it is.
    pub root: String,
    /// `changelist` or `changedump`.
    pub capability: Capability,
    /// What is asked for now: an open list, an index, a dump.
    pub url: String,
    /// Of the edition of that from which all is in the tree.
    pub etag: Option<String>,
    /// As the server sent it.
    pub last_modified: Option<String>,
    /// Where to look when that is closed or gone.
    pub above: Option<String>,
    /// The end of the interval of that, as it gives it. It is closed if that lies before the time of the request.
    pub until: Option<Datetime>,
    /// The index that an open list links to: a second list may begin while the first stays open.
    pub beside: Option<Beside>,
    /// All changes up to then are in the tree.
    pub cursor: Option<Datetime>,
    /// Changes from then until the lists that were read since are not in the history; the lists include their result.
    pub history_from: Option<Datetime>,
    /// The beginnings of lists that are in the tree, the last ones: a list that begins so, wherever it is, has
    /// been read so far.
    pub read: Vec<Beginning>,
    /// The last edition of the last list: what tells known changes without a time from those that happened again.
    pub edition: Edition,
    /// Since then, by the Source's clock, changes may be missing that came before those that it lists, until a newer list of
    /// resources makes up for them.
    pub lost: Option<Datetime>,
    /// Since when it has been gone, by our clock: the first request that it was not there for.
    pub missed: Option<Datetime>,
    /// Why it could not be followed to its end.
    pub failure: Option<String>,
}

impl Feed {
    /// How many beginnings of lists are kept.
    const MOST_READ: usize = 64;

    /// A list has been read so far; `before` is what was known of it.
    pub fn has_read(&mut self, beginning: Beginning, before: Option<Beginning>) {
        self.read.retain(|known| Some(*known) != before && *known != beginning);
        self.read.push(beginning);
        let more = self.read.len().saturating_sub(Self::MOST_READ);
        self.read.drain(..more);
    }

    /// The time before which changes are not read, where all changes up to `covered` are in the tree: before it they are in the
    /// history, too.
    #[must_use]
    pub fn read_from(&self, covered: Option<Datetime>) -> Option<Datetime> {
        let known = self.history_from.max(self.cursor).filter(|_| self.history_from.is_some());
        covered.map(|covered| known.map_or(covered, |known| known.min(covered)))
    }

    /// One that was never read.
    #[must_use]
    pub fn new(root: &str, capability: Capability) -> Self {
        Self {
            root: root.to_owned(),
            capability,
            url: root.to_owned(),
            etag: None,
            last_modified: None,
            above: None,
            until: None,
            beside: None,
            cursor: None,
            history_from: None,
            read: Vec::new(),
            edition: Edition::default(),
            lost: None,
            missed: None,
            failure: None,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Resources that appeared.
    pub added: u64,
    /// New versions.
    pub updated: u64,
    /// Resources that went.
    pub deleted: u64,
    /// Versions that were superseded before they were known.
    pub past: u64,
    /// Versions that stand elsewhere among those of their moment.
    pub moved: u64,
    /// Changes that were in the tree already.
    pub known: u64,
    /// Deletions of what was never here.
    pub absent: u64,
}

impl Tally {
    /// Counts what came of a change.
    pub fn count(&mut self, changed: Changed) {
        match changed {
            Changed::Added => self.added += 1,
            Changed::Updated => self.updated += 1,
            Changed::Deleted => self.deleted += 1,
            Changed::Past => self.past += 1,
            Changed::Moved => self.moved += 1,
            Changed::Known | Changed::Stale => self.known += 1,
            Changed::Absent => self.absent += 1,
        }
    }

    /// Whether the step left nothing as it was.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.added + self.updated + self.deleted + self.past + self.moved > 0
    }
}

const FEED: &str = "root, capability, url, etag, last_modified, above, cursor, read, failure, until, beside, \
    beside_etag, beside_last_modified, edition, lost, edition_url, missed, history_from";

fn digests(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).filter_map(|digest| digest.try_into().ok()).map(u64::from_le_bytes).collect()
}

fn feed(row: &Row<'_>) -> rusqlite::Result<Feed> {
    let capability: String = row.get(1)?;
    Ok(Feed {
        root: row.get(0)?,
        capability: Capability::from_name(&capability).unwrap_or(Capability::ChangeList),
        url: row.get(2)?,
        etag: row.get(3)?,
        last_modified: row.get(4)?,
        above: row.get(5)?,
        cursor: row.get::<_, Option<i64>>(6)?.map(Datetime::from_nanos),
        read: Beginning::all_of(&row.get::<_, Vec<u8>>(7)?),
        failure: row.get(8)?,
        until: row.get::<_, Option<i64>>(9)?.map(Datetime::from_nanos),
        beside: match row.get(10)? {
            Some(url) => Some(Beside { url, etag: row.get(11)?, last_modified: row.get(12)? }),
            None => None,
        },
        edition: Edition {
            entries: digests(&row.get::<_, Vec<u8>>(13)?),
            url: row.get::<_, Option<String>>(15)?.unwrap_or_default(),
        },
        lost: row.get::<_, Option<i64>>(14)?.map(Datetime::from_nanos),
        missed: row.get::<_, Option<i64>>(16)?.map(Datetime::from_nanos),
        history_from: row.get::<_, Option<i64>>(17)?.map(Datetime::from_nanos),
    })
}

impl Reader {
    /// What a set offers.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn offers(&self, rset: i64) -> Result<Vec<Offer>> {
        let mut statement =
            self.connection().prepare_cached("SELECT capability, url, hubs FROM offer WHERE rset = ?1")?;
        let rows = statement.query_map([rset], |row| {
            let hubs: Option<String> = row.get(2)?;
            Ok((row.get::<_, String>(0)?, row.get(1)?, hubs))
        })?;
        let mut offers = Vec::new();
        for row in rows {
            let (name, url, hubs) = row?;
            let hubs = hubs.and_then(|hubs| serde_json::from_str(&hubs).ok()).unwrap_or_default();
            offers.extend(Capability::from_name(&name).map(|capability| Offer { capability, url, hubs }));
        }
        Ok(offers)
    }

    /// The Change Lists and Change Dumps of a set that are followed.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn feeds(&self, rset: i64) -> Result<Vec<Feed>> {
        let mut statement =
            self.connection().prepare_cached(&format!("SELECT {FEED} FROM feed WHERE rset = ?1 ORDER BY root"))?;
        let rows = statement.query_map([rset], feed)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Feeds that disappeared, and that newer lists replaced: the root of each, and from when its changes are not in the history.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn replaced_feeds(&self, rset: i64) -> Result<Vec<Feed>> {
        let mut statement = self
            .connection()
            .prepare_cached("SELECT root, capability, history_from FROM feed_replaced WHERE rset = ?1 ORDER BY root")?;
        let rows = statement.query_map([rset], |row| {
            let (root, capability): (String, String) = (row.get(0)?, row.get(1)?);
            let capability = Capability::from_name(&capability).unwrap_or(Capability::ChangeList);
            Ok(Feed { history_from: Some(Datetime::from_nanos(row.get(2)?)), ..Feed::new(&root, capability) })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl Writer {
    /// Keeps what a set offers, if that is not what was known.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn keep_offers(&mut self, rset: i64, offers: &[Offer]) -> Result<()> {
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn begin_sync(&mut self) -> Result<()> {
        let last: i64 = self.connection().query_row("SELECT COALESCE(max(id), 0) FROM sync", [], |row| row.get(0))?;
        self.sync = Some(last + 1);
        Ok(())
    }

    /// Notes what the sync of this step did, and from what.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn end_sync(&self, rset: i64, how: &str, tally: &Tally) -> Result<()> {
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn put_feed(&self, rset: i64, feed: &Feed) -> Result<()> {
        let beside = feed.beside.as_ref();
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO feed (rset, root, capability, url, etag, last_modified, above, cursor, read,
                     failure, until, beside, beside_etag, beside_last_modified, edition,
                     lost, edition_url, missed, history_from)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
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
                feed.history_from.map(Datetime::nanos)
            ])?;
        self.connection()
            .prepare_cached("DELETE FROM feed_replaced WHERE rset = ?1 AND root = ?2")?
            .execute(params![rset, feed.root])?;
        Ok(())
    }

    /// The lists changed the tree: what its feeds report is read again, whether they have changed or not. The edition of each
    /// stays known, to tell what has happened since that.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn reread_feeds(&self, rset: i64) -> Result<()> {
        self.connection().execute(
            "UPDATE feed SET etag = NULL, last_modified = NULL, beside_etag = NULL, beside_last_modified = NULL, read = x''
             WHERE rset = ?1",
            [rset],
        )?;
        Ok(())
    }

    /// Lists of resources that are complete, and of this time, make up for changes that were lost before.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn lists_make_up(&self, rset: i64, at: Option<Datetime>) -> Result<()> {
        self.connection().execute(
            "UPDATE feed SET lost = NULL WHERE rset = ?1 AND lost <= ?2",
            params![rset, at.map(Datetime::nanos)],
        )?;
        Ok(())
    }

    /// Notes that newer lists were applied: changes that a feed lists from where it was followed, or from the former cursor of the
    /// set, `before`, are not in the history yet.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn note_history_gap(&self, rset: i64, before: Option<Datetime>) -> Result<()> {
        self.connection().execute(
            "UPDATE feed SET history_from = max(cursor, COALESCE(?2, cursor)) WHERE rset = ?1 AND history_from IS NULL",
            params![rset, before.map(Datetime::nanos)],
        )?;
        Ok(())
    }

    /// Forgets a feed that newer lists replaced, but for the time from which its changes are not in the history.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn replace_feed(&self, rset: i64, feed: &Feed) -> Result<()> {
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn note_feed_failure(&self, rset: i64, feed: &Feed) -> Result<()> {
        let missed = feed.missed.map(Datetime::nanos);
        let known = self
            .connection()
            .prepare_cached("UPDATE feed SET failure = ?3, missed = ?4 WHERE rset = ?1 AND root = ?2")?
            .execute(params![rset, feed.root, feed.failure, missed])?;
        if known == 0 { self.put_feed(rset, feed) } else { Ok(()) }
    }

    /// Forgets the feeds of a set that are at none of these roots.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn forget_feeds(&self, rset: i64, roots: &[String]) -> Result<()> {
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
