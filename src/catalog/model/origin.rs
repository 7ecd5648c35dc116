//! How a version came to be, and what a change did to the tree.

use crate::catalog::model::ids::VersionId;
use crate::document::Change;

/// How a version came, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How(i64);

impl How {
    /// Numbers below this one are of changes that the Source told of.
    pub(in crate::catalog) const LISTED: i64 = 8;
    /// What only an archive tells of, which is no change.
    pub(in crate::catalog) const ARCHIVED: Self = Self(16);
    /// Numbers below this one are of changes without a time.
    pub(in crate::catalog) const DATED: i64 = 4;
    const EXACT: i64 = 4;

    /// A change that the Source told of; `exact` if it gave the change a time of its own.
    #[must_use]
    pub fn change(kind: Change, exact: bool) -> Self {
        Self(Self::kind_number(kind) + if exact { Self::EXACT } else { 0 })
    }

    /// A difference between two editions of a list.
    #[must_use]
    pub fn listed(kind: Change) -> Self {
        Self(Self::kind_number(kind) + Self::LISTED)
    }

    fn kind_number(kind: Change) -> i64 {
        match kind {
            Change::Created => 1,
            Change::Updated => 2,
            Change::Deleted => 3,
        }
    }

    /// The number of the change that made the version which follows one that came by `number`, where what was served turned
    /// out to be another content: an update, if the Source had reported a change at all.
    pub(in crate::catalog) fn of_successor(number: i64) -> Option<i64> {
        (number < Self::LISTED).then(|| Self::kind_number(Change::Updated))
    }

    pub(in crate::catalog) fn of(number: Option<i64>) -> Option<Self> {
        number.map(Self)
    }

    pub(in crate::catalog) fn number(self) -> i64 {
        self.0
    }

    /// Whether only an archive tells of it: a version that was seen at a moment, and no change.
    #[must_use]
    pub fn is_archived(self) -> bool {
        self == Self::ARCHIVED
    }

    /// The nature of the change.
    #[must_use]
    pub fn kind(self) -> Change {
        match self.0 & 3 {
            1 => Change::Created,
            2 => Change::Updated,
            _ => Change::Deleted,
        }
    }

    /// Whether the Source told of it, rather than two editions of a list.
    #[must_use]
    pub fn is_change(self) -> bool {
        self.0 < Self::LISTED
    }

    /// Whether the change has a time of its own.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.is_change() && self.0 & Self::EXACT != 0
    }
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A resource appeared.
    Added,
    /// A new version.
    Updated,
    /// A resource went.
    Deleted,
    /// The tree shows it already.
    Known,
    /// It is known, is not what the tree shows now, and may have happened again: only what follows it in its
    /// list tells.
    Stale,
    /// It came late: a version that was superseded before it was known.
    Past,
    /// It is known, and stands elsewhere among the versions of its moment now, of which another is shown.
    Moved,
    /// What went was never here.
    Absent,
}

/// A version that was put elsewhere among those of its moment.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Its number from now on.
    pub version: VersionId,
    /// Whether it is what the tree shows now.
    pub is_shown: bool,
}
