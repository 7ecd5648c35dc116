//! What a daemon tells the command that started it, and what a command asks of a daemon: a JSON text a
//! line.

use serde::{Deserialize, Serialize};

use crate::mirror::log::{SyncEntry, VersionEntry};
use crate::printable::redacted;
use crate::sync::Progress;

/// How far a sync is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Syncing {
    pub(super) phase: String,
    #[serde(flatten)]
    pub(super) progress: Progress,
}

impl Syncing {
    pub(super) fn of(progress: Progress) -> Self {
        Self { phase: progress.phase.to_owned(), progress }
    }
}

/// From the daemon, while it starts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// How far it is.
    Progress(Syncing),
    /// The mount answers.
    Ready {
        /// Whether the tree is complete.
        complete: bool,
        resources: u64,
        /// What the user should know.
        notes: Vec<String>,
    },
    /// It ends without a mount.
    Failed { code: u8, error: String },
}

impl Report {
    /// The same without secrets.
    pub(super) fn redacted(&self) -> Self {
        match self {
            Self::Progress(progress) => Self::Progress(progress.clone()),
            Self::Ready { complete, resources, notes } => Self::Ready {
                complete: *complete,
                resources: *resources,
                notes: notes.iter().map(|note| redacted(note).into_owned()).collect(),
            },
            Self::Failed { code, error } => Self::Failed { code: *code, error: redacted(error).into_owned() },
        }
    }
}

/// What an audit found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AuditReport {
    pub(super) in_sync: bool,
    /// Resources that the lists name.
    pub(super) listed: u64,
    /// Those that the Source's changes made newer than the lists.
    pub(super) newer: u64,
    pub(super) counts: Counts,
    /// Files of content that were hashed again.
    pub(super) checked_files: u64,
    pub(super) checked_bytes: u64,
    /// Of each kind, the first ten thousand.
    pub(super) missing: Vec<FindingEntry>,
    pub(super) extra: Vec<FindingEntry>,
    pub(super) stale: Vec<FindingEntry>,
    pub(super) corrupt: Vec<FindingEntry>,
    /// What could not be read.
    pub(super) unread: Vec<String>,
    /// What is wrong with the cache itself.
    #[serde(default)]
    pub(super) cache: Vec<String>,
    /// Why the mirror was not compared with the lists, if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) not_compared: Option<String>,
}

/// How many findings of each kind there are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) missing: u64,
    pub(super) extra: u64,
    pub(super) stale: u64,
    pub(super) corrupt: u64,
}

/// Something that an audit found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FindingEntry {
    /// In the mount.
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) uri: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<DifferenceEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

/// What is not as listed: `lastmod`, `length`, or the name of a digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DifferenceEntry {
    pub(super) what: String,
    pub(super) here: String,
    pub(super) listed: String,
}

/// To a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Sync now.
    Refresh { accept_deletions: bool },
    /// Tell the versions of the resource at this path, or what changed below it, since then.
    Log { path: String, since: Option<String> },
    /// Compare the mirror with its Source's lists.
    Audit { content: bool, repair: bool },
    /// Fetch what is at or below this path.
    Fetch { path: String, pin: bool },
    /// Change options.
    Remount { options: Vec<String>, sloppy: bool },
}

/// From a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    /// Files and bytes that are there, and files that could not be had.
    Fetched { files: u64, bytes: u64, failed: u64, total: u64 },
    /// How far a sync is.
    Syncing(Syncing),
    /// A sync that changed something.
    Sync(SyncEntry),
    /// A version of a resource.
    Version(VersionEntry),
    /// What the user should know beside the answer.
    Note { text: String },
    /// What an audit found.
    Audited(Box<AuditReport>),
    /// It is done.
    Done { text: String },
    /// It failed.
    Failed { error: String },
}
