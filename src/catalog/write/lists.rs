//! When a list was made, as far as that is known, and what is newer than it.

use crate::catalog::db::meta::{meta, set_meta};
use crate::catalog::error::CatalogError;
use crate::catalog::model::ids::SetId;
use crate::catalog::write::transaction::Transaction;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// Notes the edition of lists that have no time of their own, which were read whole just now; it was not begun before `begun`.
    pub fn note_edition(&self, rset: SetId, edition: &str, begun: Option<Datetime>) -> Result<()> {
        set_meta(self.connection(), &format!("edition {rset}"), &format!("{edition} {}", self.now.nanos()))?;
        match begun {
            Some(begun) => set_meta(self.connection(), &format!("begun {rset}"), &begun.nanos().to_string()),
            None => Ok(()),
        }
    }

    /// When another edition of lists without a time was read last, by our clock, if this is not the one that was noted then.
    pub fn edition_before(&self, rset: SetId, edition: &str) -> Result<Option<Datetime>> {
        let known = meta(self.connection(), &format!("edition {rset}"))?;
        let known = known.as_deref().and_then(|text| text.split_once(' ')).filter(|(known, _)| *known != edition);
        Ok(known.and_then(|(_, read)| read.parse().ok()).map(Datetime::from_nanos))
    }

    /// Whether this is the edition of lists without a time that was noted last.
    pub fn is_edition_known(&self, rset: SetId, edition: &str) -> Result<bool> {
        let known = meta(self.connection(), &format!("edition {rset}"))?;
        Ok(known.as_deref().and_then(|text| text.split_once(' ')).is_some_and(|(known, _)| known == edition))
    }

    /// Whether documents of lists that may be being written are to be waited for: until they have been in this state for so long,
    /// in nanoseconds. Under `key` it is kept since when; it begins if `begins` is set.
    pub fn waits(&self, key: &str, state: &str, begins: bool, long: i64) -> Result<bool> {
        let known = meta(self.connection(), key)?;
        let known = known.as_deref().and_then(|text| text.split_once(' ')).filter(|(known, _)| *known == state);
        match known.and_then(|(_, since)| since.parse::<i64>().ok()) {
            Some(since) => Ok((0..long).contains(&self.now.nanos().saturating_sub(since))),
            None if !begins => Ok(false),
            None => {
                set_meta(self.connection(), key, &format!("{state} {}", self.now.nanos()))?;
                Ok(true)
            }
        }
    }

    /// Forgets since when documents are waited for under `key`.
    pub fn stop_waiting(&self, key: &str) -> Result<()> {
        match meta(self.connection(), key)?.is_none_or(|known| known.is_empty()) {
            true => Ok(()),
            false => set_meta(self.connection(), key, ""),
        }
    }
}
