//! Why a sync is wanted, and what it came to.

use std::fmt;

use super::notification_body::Announced;
use crate::catalog::Tally;
use crate::printable::count;
use crate::source::Discovery;

/// Why a sync is wanted.
#[derive(Clone, Debug)]
pub enum Trigger {
    /// The mirror is mounted; with what discovery found just before, if it did.
    Mount(Option<Box<Discovery>>),
    /// It is time.
    Poll,
    /// Somebody asks for it.
    Refresh {
        /// Whether what a complete list leaves out is let go, however much it is.
        accept_deletions: bool,
    },
    /// A notification came that tells no more than this, or a channel was joined.
    Notified(Announced),
    /// Bytes are not what they should be: the mirror may be behind.
    StaleHint,
    /// An audit found that the mirror is not what the lists say.
    Repair,
}

/// What a sync came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// New resources.
    pub added: u64,
    /// New versions.
    pub updated: u64,
    /// Resources gone.
    pub deleted: u64,
    /// Deletions held back.
    pub held: u64,
    /// Resources as they were, in documents that were read.
    pub unchanged: u64,
    /// Documents that had not changed.
    pub not_modified: u64,
    /// Versions that stand elsewhere among those of their moment.
    pub moved: u64,
    /// Whether a document could not be read whole.
    pub partial: bool,
}

/// For people.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = [(self.added, "added"), (self.updated, "updated"), (self.deleted, "deleted")];
        let changed = counted.into_iter().filter(|(number, _)| *number > 0);
        let mut parts: Vec<String> = changed.map(|(number, word)| format!("{} {word}", count(number))).collect();
        if parts.is_empty() && !self.partial {
            parts.push("nothing changed".to_owned());
        }
        if self.held > 0 {
            parts.push(format!("{} deletions held back until another list agrees", count(self.held)));
        }
        if self.partial {
            parts.push("some documents could not be read whole; see `resourcesync status`".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

impl Summary {
    pub(super) fn of(tally: &Tally) -> Self {
        Self {
            added: tally.added,
            updated: tally.updated,
            deleted: tally.deleted,
            moved: tally.moved,
            unchanged: tally.known,
            ..Self::default()
        }
    }

    pub(super) fn changed(&self) -> bool {
        self.added + self.updated + self.deleted + self.moved > 0
    }

    pub(super) fn add(&mut self, part: &Self) {
        self.added += part.added;
        self.updated += part.updated;
        self.deleted += part.deleted;
        self.moved += part.moved;
        self.held += part.held;
        self.unchanged += part.unchanged;
        self.not_modified += part.not_modified;
        self.partial |= part.partial;
    }
}
