//! FUSE: a thin adapter over the catalog and "bring me this version".
//!
//! **Owns** how the tree looks to the kernel: attributes, extended attributes, directory streams, the
//! files of `.resourcesync`, and what the kernel may keep for how long.
//!
//! **Assumes** that an inode never changes (see the catalog), and that [`Contents`] answers every
//! question within its deadline.
//!
//! **Promises** that no dispatch thread waits for the network: a request that needs it is handed on
//! with its reply. LOOKUP, READDIR and STATFS of the current tree, and READDIR of the tree
//! as of a moment, are answered from the catalog alone.
//! Every write is EROFS.
//!
//! **Never knows** HTTP, or how content is found, verified or stored.
//!
//! ## What the kernel keeps
//!
//! Since an inode is one immutable version, names and attributes are given for ever, pages are kept,
//! and `open` and `opendir` are answered ENOSYS once, after which the kernel does not ask again: warm
//! work never leaves it (`tests/mounted/requests.rs` counts). For Sources of large files, `open` is answered, and reads go straight to the
//! files of the store ([`Io`]). A commit is followed by the invalidations that it implies, from a thread of
//! its own ([`invalidate`]), which no reply depends on.
//!
//! `.versions` is the exception: what an archive knows of the past may be learnt at any time. So names that are not
//! there are not remembered, and directories are asked for their time whenever they are listed
//! (`FUSE_AUTO_INVAL_DATA`, which asks nothing where attributes hold for ever). The tree as of a moment is kept as
//! the current one is; when the past changes, its listings are dropped, and its names asked for again.
//!
//! A size that is not known yet is 0 with no time to live in LOOKUP, so that the kernel asks GETATTR
//! before anybody sees it; GETATTR may wait for the Source.
//!
//! [`Tree`] is all of that without the kernel: only `adapter`, `stream` and `io` reply to it.
//!
//! Layout, each line uses only those above it:
//! - `attributes`, `error`, `requests`
//! - `answer`, `control`, `owner`, `reply`
//! - `control_files`, `inodes`, `io`, `xattr`
//! - `listing`
//! - `related`, `stream`, `versions`
//! - `current`, `invalidate`
//! - `tree`
//! - `adapter`

mod adapter;
mod answer;
mod attributes;
mod control;
mod control_files;
mod current;
mod error;
mod inodes;
pub mod invalidate;
mod io;
mod listing;
mod owner;
mod related;
mod reply;
mod requests;
mod stream;
mod tree;
mod versions;
mod xattr;

pub use adapter::{Filesystem, View};
pub use answer::{Answer, Then};
pub use attributes::{Attributes, Entry, FileType};
pub use error::{ContentError, FsError};
pub use inodes::Moments;
pub use io::{Asked as AskedIo, Backing, Io, Way};
pub use listing::Sink;
pub use related::Collections;
pub use requests::{Kind, Requests};
pub use tree::{Content, Tree};

use crate::catalog::{NameId, VersionId};
use crate::document::Datetime;
use crate::store::Body;

/// What came of asking a Source for the versions of a resource.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// When what is known was had, or ceased to be fresh, in nanoseconds; 0 if nothing was asked.
    pub as_of: Datetime,
    /// When it was had last.
    pub when: Option<Datetime>,
    /// Why it could not be had last.
    pub trouble: Option<String>,
}

/// "Bring me this version", and what else the adapter cannot know.
pub trait Contents: Send + Sync + 'static {
    /// The content of a version, if no waiting is needed.
    fn ready(&self, version: VersionId) -> Option<Body>;

    /// The content of a version, once `offset` to `offset + len` can be read.
    fn read(&self, version: VersionId, offset: u64, len: u64, then: Then<Result<Body, ContentError>>);

    /// Whether [`Contents::revalidate`] is to be called before a version is opened.
    fn is_due(&self, version: VersionId) -> bool;

    /// Whether there may be versions that are due some time.
    fn has_timeless(&self) -> bool;

    /// Asks whether the Source has other content for a version, and calls `then` with whether it is the current one still.
    fn revalidate(&self, version: VersionId, then: Then<bool>);

    /// The size of a version, in bytes.
    fn size(&self, version: VersionId, then: Then<Result<u64, ContentError>>);

    /// The sizes of these versions are likely to be asked for next.
    fn expect_sizes(&self, versions: Vec<VersionId>);

    /// Whether the content of a version was held to what the Source lists: `None` if it is not here.
    fn verified(&self, version: VersionId) -> Option<bool>;

    /// Calls `then` when what the Source has to tell of the versions of a resource is known, or cannot be had within
    /// the deadline: all that it lists, or what was in force at a moment. It is told whether the Source could be asked.
    fn history(&self, resource: NameId, moment: Option<Datetime>, then: Then<bool>);

    /// Runs what would take a dispatch thread too long.
    fn aside(&self, what: Box<dyn FnOnce() + Send>);

    /// What came of asking for the versions of a resource.
    fn asked(&self, resource: NameId) -> Asked;

    /// A file of `.resourcesync` as it is now.
    fn control(&self, name: &str) -> Option<Vec<u8>>;

    /// The most bytes of files of `.resourcesync` that are kept for those who have them open.
    fn most_snapshots(&self) -> u64;

    /// Used and available bytes, for `df`.
    fn room(&self) -> (u64, u64);
}
