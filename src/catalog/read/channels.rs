//! Channels, and what waits on them.

use rusqlite::{Row, params};

use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::channels::{Backlog, Channel, LOOSE, Reading, Subscription, WHOLE, Waiting};
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

const CHANNEL: &str = "id, rset, url, capability, cursor, token, callback, secret, hub, topic, expires";

pub(in crate::catalog) fn channel(row: &Row<'_>) -> rusqlite::Result<Option<Channel>> {
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
    pub fn channels(&self) -> Result<Vec<Channel>> {
        let mut statement = self.connection().prepare_cached(&format!("SELECT {CHANNEL} FROM channel ORDER BY id"))?;
        let rows = statement.query_map([], channel)?;
        let known = rows.filter_map(|row| row.transpose());
        Ok(known.collect::<rusqlite::Result<_>>()?)
    }

    /// What waits on a channel: the whole ones in the order of their intervals, then the others as they came. No more
    /// than so many, nor, if they are more than one, than so many bytes.
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
    pub fn last_delivery(&self) -> Result<i64> {
        let question = "SELECT COALESCE(max(id), 0) FROM delivery";
        Ok(self.connection().query_row(question, [], |row| row.get(0))?)
    }

    /// The body of a delivery.
    pub fn delivery(&self, id: i64) -> Result<Vec<u8>> {
        let mut statement = self.connection().prepare_cached("SELECT body FROM delivery WHERE id = ?1")?;
        Ok(statement.query_row([id], |row| row.get(0))?)
    }
}
