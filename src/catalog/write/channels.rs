//! Channels of notifications, and what was delivered on them and is not in the tree yet.
//!
//! A delivery is kept until all that it says is in the tree. What tells it from others stays a while longer: one
//! that comes twice counts once.

use crate::catalog::model::ids::SetId;
use rusqlite::{OptionalExtension, params};

use crate::catalog::error::CatalogError;
use crate::catalog::model::channels::{LOOSE, PING, Reading, Subscription, WHOLE};
use crate::catalog::write::transaction::Transaction;
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

/// So many deliveries that were dealt with are remembered of each channel.
const REMEMBERED: i64 = 2000;

/// What was delivered.
#[derive(Clone, Copy, Debug)]
pub struct NewDelivery<'d> {
    /// When, by our clock.
    pub came: Datetime,
    /// What it is taken for.
    pub reading: Reading,
    /// Its SHA-256.
    pub digest: &'d [u8; 32],
    /// What of it is kept.
    pub body: &'d [u8],
}

impl Transaction<'_> {
    /// The number of a channel, made where there is none.
    pub fn channel(&self, rset: SetId, url: &str, capability: Capability) -> Result<i64> {
        Ok(self
            .connection()
            .prepare_cached(
                "INSERT INTO channel (rset, url, capability) VALUES (?1, ?2, ?3)
                 ON CONFLICT (rset, url, capability) DO UPDATE SET url = excluded.url RETURNING id",
            )?
            .query_row(params![rset, url, capability.name()], |row| row.get(0))?)
    }

    /// Keeps the subscription of a channel, or that there is none.
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
    pub fn channel_joins(&self, channel: i64, until: Option<Datetime>) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE channel SET cursor = ?2 WHERE id = ?1")?
            .execute(params![channel, until.map(Datetime::nanos)])?;
        Ok(())
    }

    /// Keeps what was delivered on a channel, and returns its number; none if the same one came before.
    pub fn deliver(&self, channel: i64, delivery: &NewDelivery<'_>) -> Result<Option<i64>> {
        let NewDelivery { came, reading, digest, body } = *delivery;
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
