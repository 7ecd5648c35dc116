//! Documents of changes that a set is followed by, and how far each was read.

use crate::catalog::model::origin::Changed;
use crate::document::{Capability, Datetime};

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

    pub(in crate::catalog) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&self.entries.to_le_bytes());
        bytes[8..].copy_from_slice(&self.digest);
        bytes
    }

    pub(in crate::catalog) fn all_of(bytes: &[u8]) -> Vec<Self> {
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
    /// The beginning of its interval.
    pub from: Option<Datetime>,
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
