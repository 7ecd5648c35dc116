//! When a list was made, as far as that is known, and what is newer than it.

use rusqlite::params;

use super::CatalogError;
use super::changes::How;
use super::transaction::Transaction;
use super::writer::{meta, set_meta};
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

/// When the snapshot of a list began. What changes have brought since then is newer than what it lists.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// By the clock of the Source: changes with a time from then on are newer.
    at: i64,
    /// By our clock: changes of these kinds that were seen for the first time from then on are newer.
    seen: i64,
    /// The number below which the kinds of those changes are: without a time, or all of them.
    kinds: i64,
}

impl Snapshot {
    /// So much earlier than it was listed before, a new edition of a list cannot have been begun, if its clock is right.
    const LONGEST: i64 = 3_600_000_000_000;
    /// How long the documents of a list are written, in nanoseconds.
    pub const TO_WRITE: i64 = 600_000_000_000;
    /// An `at` may be in whole seconds.
    const SECOND: i64 = 1_000_000_000;

    /// That of a list of this `at`, an earlier edition of which was read at `listed`, by our clock.
    #[must_use]
    pub fn new(at: Datetime, listed: Option<Datetime>) -> Self {
        let at = at.nanos();
        let is_comparable = listed.is_some_and(|listed| at >= listed.nanos().saturating_sub(Self::LONGEST));
        let seen = if is_comparable { at.saturating_add(Self::SECOND) } else { i64::MAX };
        Self { at, seen, kinds: How::DATED }
    }

    /// That of a list without a time, which was not begun before this moment, by our clock; or else nothing is known of it, and
    /// all changes are newer.
    #[must_use]
    pub fn begun_after(begun: Option<Datetime>) -> Self {
        match begun {
            Some(begun) => Self { at: i64::MAX, seen: begun.nanos(), kinds: How::LISTED },
            None => Self { at: i64::MIN, seen: i64::MAX, kinds: How::DATED },
        }
    }

    /// The earliest moment at which a list was begun that has changed since it was read then.
    #[must_use]
    pub fn earliest(read: Datetime) -> Datetime {
        Datetime::from_nanos(read.nanos().saturating_sub(Self::TO_WRITE))
    }

    pub(super) fn at(self) -> i64 {
        self.at
    }

    pub(super) fn seen(self) -> i64 {
        self.seen
    }

    pub(super) fn kinds(self) -> i64 {
        self.kinds
    }

    /// Whether a version is newer that a change brought: `begin` is when it began, `seen` when the change was first seen, if it
    /// is of one of the kinds.
    pub(super) fn is_before(self, begin: i64, seen: Option<i64>) -> bool {
        begin >= self.at || seen >= Some(self.seen)
    }
}

/// The time at which a version `v` was first seen that a change below the kind `?2` brought, as SQL.
macro_rules! seen {
    () => {
        "CASE WHEN v.change < ?2 THEN (SELECT s.time FROM sync s WHERE s.id = v.came) END"
    };
}
pub(super) use seen;

/// Whether a change took the resource with these names away after a snapshot.
pub(super) fn went_later(connection: &rusqlite::Connection, names: (i64, i64), snapshot: Snapshot) -> Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM version v WHERE v.name IN (?1, ?2)
             AND (v.gone IN (3, 7) AND v.until >= ?3
                 OR v.gone IN (3, 7) AND v.gone < ?5 AND (SELECT s.time FROM sync s WHERE s.id = v.went) >= ?4))",
    )?;
    let values = params![names.0, names.1, snapshot.at, snapshot.seen, snapshot.kinds];
    Ok(statement.query_row(values, |row| row.get(0))?)
}

impl Transaction<'_> {
    /// Notes the edition of lists that have no time of their own, which were read whole just now; it was not begun before `begun`.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn note_edition(&self, rset: i64, edition: &str, begun: Option<Datetime>) -> Result<()> {
        set_meta(self.connection(), &format!("edition {rset}"), &format!("{edition} {}", self.now))?;
        match begun {
            Some(begun) => set_meta(self.connection(), &format!("begun {rset}"), &begun.nanos().to_string()),
            None => Ok(()),
        }
    }

    /// When another edition of lists without a time was read last, by our clock, if this is not the one that was noted then.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn edition_before(&self, rset: i64, edition: &str) -> Result<Option<Datetime>> {
        let known = meta(self.connection(), &format!("edition {rset}"))?;
        let known = known.as_deref().and_then(|text| text.split_once(' ')).filter(|(known, _)| *known != edition);
        Ok(known.and_then(|(_, read)| read.parse().ok()).map(Datetime::from_nanos))
    }

    /// Whether this is the edition of lists without a time that was noted last.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn is_edition_known(&self, rset: i64, edition: &str) -> Result<bool> {
        let known = meta(self.connection(), &format!("edition {rset}"))?;
        Ok(known.as_deref().and_then(|text| text.split_once(' ')).is_some_and(|(known, _)| known == edition))
    }

    /// Whether documents of lists that may be being written are to be waited for: until they have been in this state for so long,
    /// in nanoseconds. Under `key` it is kept since when; it begins if `begins` is set.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn waits(&self, key: &str, state: &str, begins: bool, long: i64) -> Result<bool> {
        let known = meta(self.connection(), key)?;
        let known = known.as_deref().and_then(|text| text.split_once(' ')).filter(|(known, _)| *known == state);
        match known.and_then(|(_, since)| since.parse::<i64>().ok()) {
            Some(since) => Ok((0..long).contains(&self.now.saturating_sub(since))),
            None if !begins => Ok(false),
            None => {
                set_meta(self.connection(), key, &format!("{state} {}", self.now))?;
                Ok(true)
            }
        }
    }
}
