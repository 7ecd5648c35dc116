//! Channels of notifications, and what was delivered on them and is not in the tree yet.
//!
//! A delivery is kept until all that it says is in the tree. What tells it from others stays a while longer: one
//! that comes twice counts once.

use rusqlite::{OptionalExtension, Row, params};

use super::CatalogError;
use super::reader::Reader;
use super::transaction::Transaction;
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

/// So many deliveries that were dealt with are remembered of each channel.
const REMEMBERED: i64 = 2000;

/// A channel of notifications of a set (Change Notification 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its number.
    pub id: i64,
    /// The set that it tells of.
    pub rset: i64,
    /// The topic of WebSub, or the URL of a WebSocket.
    pub url: String,
    /// `change-notification` or `framework-notification`.
    pub capability: Capability,
    /// Its notifications are in the tree up to then, without a gap; none where nothing is known to join.
    pub cursor: Option<Datetime>,
    /// The subscription at a hub, where one was asked for.
    pub subscription: Option<Subscription>,
}

/// A subscription at a hub (WebSub 5).
#[derive(Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The URL that the hub delivers to.
    pub callback: String,
    /// The last segment of its path: what nobody can guess.
    pub token: String,
    /// What the hub signs deliveries with.
    pub secret: String,
    /// The hub.
    pub hub: String,
    /// The topic, as the hub knows it.
    pub topic: String,
    /// When the lease ends, by our clock; none before the hub granted one.
    pub expires: Option<Datetime>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subscription at {} until {:?}", self.hub, self.expires)
    }
}

/// What can be made of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nothing but that something has changed.
    Ping,
    /// It tells all changes of an interval (Change Notification 3).
    Whole {
        /// Where the interval begins.
        from: Datetime,
        /// Where it ends.
        until: Datetime,
        /// Whether each change has a time of its own: then it does not matter when it comes.
        dated: bool,
    },
    /// It tells changes, but not of which interval: the drafts have none.
    Loose {
        /// No change of it happened before that.
        from: Datetime,
        /// Or after that.
        until: Datetime,
        /// Whether each change has a time of some kind: said again, it has not happened again.
        dated: bool,
    },
}

impl Reading {
    /// Whether the same body, once more, tells nothing new.
    fn counts_once(self) -> bool {
        matches!(self, Self::Whole { .. } | Self::Loose { dated: true, .. })
    }
}

/// A delivery that is not in the tree yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number: deliveries are numbered as they come.
    pub id: i64,
    /// When it came, by our clock.
    pub came: Datetime,
    /// What can be made of it.
    pub reading: Reading,
}

/// What waits on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries.
    pub deliveries: u64,
    /// Bytes of them.
    pub bytes: u64,
}

const CHANNEL: &str = "id, rset, url, capability, cursor, token, callback, secret, hub, topic, expires";

fn channel(row: &Row<'_>) -> rusqlite::Result<Option<Channel>> {
    let capability: String = row.get(3)?;
    let Some(capability) = Capability::from_name(&capability) else { return Ok(None) };
    let time = |nanos: Option<i64>| nanos.map(Datetime::from_nanos);
    let token: Option<String> = row.get(5)?;
    let subscription = match token {
        Some(token) => Some(Subscription {
            token,
            callback: row.get(6)?,
            secret: row.get(7)?,
            hub: row.get(8)?,
            topic: row.get(9)?,
            expires: time(row.get(10)?),
        }),
        None => None,
    };
    Ok(Some(Channel {
        id: row.get(0)?,
        rset: row.get(1)?,
        url: row.get(2)?,
        capability,
        cursor: time(row.get(4)?),
        subscription,
    }))
}

impl Reader {
    /// All channels that ever were joined.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn channels(&self) -> Result<Vec<Channel>> {
        let mut statement = self.connection().prepare_cached(&format!("SELECT {CHANNEL} FROM channel ORDER BY id"))?;
        let rows = statement.query_map([], channel)?;
        let known = rows.filter_map(|row| row.transpose());
        Ok(known.collect::<rusqlite::Result<_>>()?)
    }

    /// What waits on a channel: the whole ones in the order of their intervals, then the others as they came. No more
    /// than so many, nor, if they are more than one, than so many bytes.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn waiting(&self, channel: i64, (most, bytes): (usize, u64)) -> Result<Vec<Waiting>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT id, came, kind, since, until, dated, length(body) FROM delivery WHERE channel = ?1 AND NOT done
             ORDER BY kind != 1, CASE kind WHEN 1 THEN since END, CASE kind WHEN 1 THEN until END, id LIMIT ?2",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![channel, most])?;
        let mut waiting = Vec::new();
        let mut sum = 0;
        while let Some(row) = rows.next()? {
            sum += row.get::<_, i64>(6)?.unsigned_abs();
            if sum > bytes && !waiting.is_empty() {
                break;
            }
            let time = |index| Ok::<_, rusqlite::Error>(Datetime::from_nanos(row.get::<_, i64>(index)?));
            waiting.push(Waiting {
                id: row.get(0)?,
                came: time(1)?,
                reading: match row.get::<_, i64>(2)? {
                    WHOLE => Reading::Whole { from: time(3)?, until: time(4)?, dated: row.get(5)? },
                    LOOSE => Reading::Loose { from: time(3)?, until: time(4)?, dated: row.get(5)? },
                    _ => Reading::Ping,
                },
            });
        }
        Ok(waiting)
    }

    /// How much waits on a channel.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn backlog(&self, channel: i64) -> Result<Backlog> {
        let mut statement = self.connection().prepare_cached(
            "SELECT count(*), COALESCE(sum(length(body)), 0) FROM delivery WHERE channel = ?1 AND NOT done",
        )?;
        Ok(statement.query_row([channel], |row| {
            let number = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
            Ok(Backlog { deliveries: number(0)?, bytes: number(1)? })
        })?)
    }

    /// The number of the delivery that came last, on any channel; 0 if none ever did.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn last_delivery(&self) -> Result<i64> {
        let question = "SELECT COALESCE(max(id), 0) FROM delivery";
        Ok(self.connection().query_row(question, [], |row| row.get(0))?)
    }

    /// The body of a delivery.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn delivery(&self, id: i64) -> Result<Vec<u8>> {
        let mut statement = self.connection().prepare_cached("SELECT body FROM delivery WHERE id = ?1")?;
        Ok(statement.query_row([id], |row| row.get(0))?)
    }
}

const PING: i64 = 0;
const WHOLE: i64 = 1;
const LOOSE: i64 = 2;

impl Transaction<'_> {
    /// The number of a channel, made where there is none.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn channel(&self, rset: i64, url: &str, capability: Capability) -> Result<i64> {
        Ok(self
            .connection()
            .prepare_cached(
                "INSERT INTO channel (rset, url, capability) VALUES (?1, ?2, ?3)
                 ON CONFLICT (rset, url, capability) DO UPDATE SET url = excluded.url RETURNING id",
            )?
            .query_row(params![rset, url, capability.name()], |row| row.get(0))?)
    }

    /// Keeps the subscription of a channel, or that there is none.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn put_subscription(&self, channel: i64, subscription: Option<&Subscription>) -> Result<()> {
        self.connection().execute(
            "UPDATE channel SET token = ?2, callback = ?3, secret = ?4, hub = ?5, topic = ?6, expires = ?7 WHERE id = ?1",
            params![
                channel,
                subscription.map(|one| &one.token),
                subscription.map(|one| &one.callback),
                subscription.map(|one| &one.secret),
                subscription.map(|one| &one.hub),
                subscription.map(|one| &one.topic),
                subscription.and_then(|one| one.expires).map(Datetime::nanos),
            ],
        )?;
        Ok(())
    }

    /// Notes up to when the notifications of a channel are in the tree.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn channel_joins(&self, channel: i64, until: Option<Datetime>) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE channel SET cursor = ?2 WHERE id = ?1")?
            .execute(params![channel, until.map(Datetime::nanos)])?;
        Ok(())
    }

    /// Keeps a delivery, and returns its number; none if the same one came before.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn deliver(
        &self,
        channel: i64,
        came: Datetime,
        reading: Reading,
        digest: &[u8; 32],
        body: &[u8],
    ) -> Result<Option<i64>> {
        let known = self
            .connection()
            .prepare_cached("SELECT 1 FROM delivery WHERE channel = ?1 AND digest = ?2")?
            .query_row(params![channel, digest], |_| Ok(()))
            .optional()?;
        // Each ping says that something has changed since the one before it.
        if known.is_some() && reading.counts_once() {
            return Ok(None);
        }
        let (kind, interval, dated) = match reading {
            Reading::Ping => (PING, None, false),
            Reading::Whole { from, until, dated } => (WHOLE, Some((from, until)), dated),
            Reading::Loose { from, until, dated } => (LOOSE, Some((from, until)), dated),
        };
        self.connection()
            .prepare_cached(
                "INSERT INTO delivery (channel, came, kind, since, until, dated, digest, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                channel,
                came.nanos(),
                kind,
                interval.map(|(from, _)| from.nanos()),
                interval.map(|(_, until)| until.nanos()),
                dated,
                digest,
                body,
            ])?;
        Ok(Some(self.connection().last_insert_rowid()))
    }

    /// These deliveries are dealt with.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn delivered(&self, channel: i64, deliveries: &[i64]) -> Result<()> {
        let mut done = self.connection().prepare_cached("UPDATE delivery SET done = 1, body = x'' WHERE id = ?1")?;
        for id in deliveries {
            done.execute([id])?;
        }
        self.connection()
            .prepare_cached(
                "DELETE FROM delivery WHERE channel = ?1 AND done AND id < (SELECT max(id) FROM delivery) - ?2",
            )?
            .execute([channel, REMEMBERED])?;
        Ok(())
    }
}
