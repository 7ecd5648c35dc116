//! Feeds and offers of a set.

use crate::catalog::model::ids::SetId;
use rusqlite::Row;

use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::feeds::{Beginning, Beside, Edition, Feed, Offer};
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

const FEED: &str = "root, capability, url, etag, last_modified, above, cursor, read, failure, until, beside, \
    beside_etag, beside_last_modified, edition, lost, edition_url, missed, history_from, edition_from";

pub(in crate::catalog) fn digests(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).filter_map(|digest| digest.try_into().ok()).map(u64::from_le_bytes).collect()
}

pub(in crate::catalog) fn feed(row: &Row<'_>) -> rusqlite::Result<Feed> {
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
            from: row.get::<_, Option<i64>>(18)?.map(Datetime::from_nanos),
        },
        lost: row.get::<_, Option<i64>>(14)?.map(Datetime::from_nanos),
        missed: row.get::<_, Option<i64>>(16)?.map(Datetime::from_nanos),
        history_from: row.get::<_, Option<i64>>(17)?.map(Datetime::from_nanos),
    })
}

impl Reader {
    /// What a set offers.
    pub fn offers(&self, rset: SetId) -> Result<Vec<Offer>> {
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
    pub fn feeds(&self, rset: SetId) -> Result<Vec<Feed>> {
        let mut statement =
            self.connection().prepare_cached(&format!("SELECT {FEED} FROM feed WHERE rset = ?1 ORDER BY root"))?;
        let rows = statement.query_map([rset], feed)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Feeds that disappeared, and that newer lists replaced: the root of each, and from when its changes are not in the history.
    pub fn replaced_feeds(&self, rset: SetId) -> Result<Vec<Feed>> {
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
