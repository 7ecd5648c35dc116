//! What is asked of the catalog and told by it, as plain values.

use crate::catalog::model::ids::{DocumentId, NameId, PackageId, SetId, VersionId};
use std::collections::{BTreeSet, HashSet};

use crate::document::Datetime;

/// What a commit means for who has looked at the tree before.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The inode numbers of directories whose names changed.
    pub directories: BTreeSet<u64>,
    /// Names that appeared, went or changed: the directory's inode number, and the name. Meaningless
    /// if there are `too_many`.
    pub names: HashSet<(u64, String)>,
    /// Whether more names changed than are worth telling one by one.
    pub too_many: bool,
    /// The tree of moments from this one on, in nanoseconds, is not what it was.
    pub since: Option<Datetime>,
}

impl Changes {
    /// Above this number, forgetting all names is cheaper.
    pub const MOST_NAMES: usize = 1000;

    pub(in crate::catalog) fn name(&mut self, directory: u64, name: &str) {
        if self.too_many {
            return;
        }
        self.names.insert((directory, name.to_owned()));
        if self.names.len() > Self::MOST_NAMES {
            self.too_many = true;
            self.names = HashSet::new();
        }
    }

    /// The tree of this moment, and of those after it, is another.
    pub(in crate::catalog) fn from(&mut self, moment: Datetime) {
        self.since = Some(self.since.map_or(moment, |since| since.min(moment)));
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.names.is_empty() && !self.too_many && self.since.is_none()
    }
}

/// For whoever shows the tree.
pub enum News {
    /// A commit changed this.
    Changed(Changes),
    /// To be called when all that was said before has been seen to.
    Told(Box<dyn FnOnce() + Send>),
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Changed(changes) => changes.fmt(f),
            Self::Told(_) => f.write_str("Told"),
        }
    }
}

/// What one entry of a list came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new resource.
    Added,
    /// A new version.
    Updated,
    /// As it was.
    Unchanged,
    /// Listed before in the same sync.
    Repeated,
}

/// What came of bringing a resource into the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upserted {
    /// What the entry came to.
    pub outcome: Outcome,
    /// The version that is current now.
    pub version: Option<VersionId>,
}

/// What a set was first filled from, or what its changes came from, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// `list` or `dump`; of changes, `changelist` or `changedump`.
    pub from: String,
    /// For people.
    pub why: String,
}

/// How far a set is in step with its Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetState {
    /// Nothing was synced yet.
    Empty,
    /// All that the Source lists is here.
    Complete,
    /// A document could not be read whole: some may be missing, nothing was deleted.
    Partial,
    /// A mass deletion waits to be confirmed.
    Held,
    /// Changes happened between what the tree was made from and the first that the Source still tells of.
    Gap,
}

impl SetState {
    /// The name that the status shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Complete => "complete",
            Self::Partial => "partial",
            Self::Held => "held",
            Self::Gap => "gap",
        }
    }

    pub(in crate::catalog) fn from_name(name: &str) -> Self {
        [Self::Complete, Self::Partial, Self::Held, Self::Gap]
            .into_iter()
            .find(|state| state.name() == name)
            .unwrap_or(Self::Empty)
    }
}

/// A set of resources.
#[derive(Clone, Debug)]
pub struct SetRow {
    /// Its number.
    pub id: SetId,
    /// The URL of what describes it.
    pub key: String,
    /// The name of its directory, where there are several.
    pub label: String,
    /// The name below which its resources lie.
    pub directory: NameId,
    /// How far it is in step.
    pub state: SetState,
    /// The smallest `at` of what the baseline was made from.
    pub cursor: Option<Datetime>,
    /// The `at` of the newest list applied.
    pub at: Option<Datetime>,
    /// When the last sync ended, by our clock.
    pub synced: Option<Datetime>,
    /// Files in the current tree.
    pub resources: u64,
    /// How many of them the filter leaves out.
    pub left_out: u64,
    /// Deletions held back.
    pub held: Option<u64>,
    /// The edition of the list that left them out.
    pub held_edition: Option<String>,
    /// What it was first filled from.
    pub seed: Option<Seed>,
    /// What its changes came from last.
    pub follows: Option<Seed>,
}

impl SetRow {
    /// How many of its resources are shown.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.resources.saturating_sub(self.left_out)
    }
}

/// A document that the tree was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentRow {
    /// Its number.
    pub id: DocumentId,
    /// Where it was had.
    pub url: String,
    /// Validators for the next request.
    pub etag: Option<String>,
    /// As the server sent it.
    pub last_modified: Option<String>,
    /// When its snapshot began.
    pub at: Option<Datetime>,
    /// Whether an index named it.
    pub part: bool,
    /// How many entries it has.
    pub entries: u64,
    /// The package that it is the manifest of.
    pub package: Option<PackageId>,
    /// The page that continues it (`rs:ln rel="next"`).
    pub next: Option<String>,
}

impl DocumentRow {
    /// The same, which is asked for again without a condition.
    #[must_use]
    pub fn without_validators(self) -> Self {
        Self { etag: None, last_modified: None, ..self }
    }
}

/// What the store keeps as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// An object, by its name in the store.
    Object([u8; 32]),
    /// A package, by its number.
    Package(PackageId),
}

/// Content that may be let go.
#[derive(Clone, Debug)]
pub struct Evictable {
    /// What it is.
    pub stored: Stored,
    /// Its number in the catalog.
    pub id: i64,
    /// When it was last read, in nanoseconds.
    pub used: Datetime,
    /// Bytes.
    pub size: u64,
}

/// What a sync wrote about its set.
#[derive(Clone, Debug)]
pub struct SyncResult {
    /// How far the set is in step now.
    pub state: SetState,
    /// The smallest `at` of the documents.
    pub cursor: Option<Datetime>,
    /// The `at` of the list.
    pub at: Option<Datetime>,
    /// Deletions held back.
    pub held: Option<u64>,
    /// The edition of the list that left them out.
    pub held_edition: Option<String>,
}
