//! When a list was made, as far as that is known.

use crate::catalog::model::origin::How;
use crate::document::Datetime;

/// When the snapshot of a list began. What changes have brought since then is newer than what it lists.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// By the clock of the Source: changes with a time from then on are newer.
    at: Datetime,
    /// By our clock: changes of these kinds that were seen for the first time from then on are newer.
    seen: Datetime,
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
        let is_comparable = listed.is_some_and(|listed| at >= listed.plus_nanos(-Self::LONGEST));
        let seen = if is_comparable { at.plus_nanos(Self::SECOND) } else { Datetime::MAX };
        Self { at, seen, kinds: How::DATED }
    }

    /// That of a list without a time, which was not begun before this moment, by our clock; or else nothing is known of it, and
    /// all changes are newer.
    #[must_use]
    pub fn begun_after(begun: Option<Datetime>) -> Self {
        match begun {
            Some(begun) => Self { at: Datetime::MAX, seen: begun, kinds: How::LISTED },
            None => Self { at: Datetime::MIN, seen: Datetime::MAX, kinds: How::DATED },
        }
    }

    /// The earliest moment at which a list was begun that has changed since it was read then.
    #[must_use]
    pub fn earliest(read: Datetime) -> Datetime {
        read.plus_nanos(-Self::TO_WRITE)
    }

    pub(in crate::catalog) fn at(self) -> Datetime {
        self.at
    }

    pub(in crate::catalog) fn seen(self) -> Datetime {
        self.seen
    }

    pub(in crate::catalog) fn kinds(self) -> i64 {
        self.kinds
    }

    /// Whether a version is newer that a change brought: `begin` is when it began, `seen` when the change was first seen, if it
    /// is of one of the kinds.
    pub(in crate::catalog) fn is_before(self, begin: Datetime, seen: Option<Datetime>) -> bool {
        begin >= self.at || seen >= Some(self.seen)
    }
}
