//! What is in the mirror: sets, names, versions, places of content (objects, and members of packages),
//! validators of documents.
//!
//! **Owns** one SQLite database, `catalog.db` in the cache directory, and the lock on that directory.
//! The catalog *is* the file system: there is no second tree in memory, so memory does not grow with
//! the Source, a remount is instant, and a crash is a transaction that never was.
//!
//! **Assumes** that one process holds the [`CacheLock`], that one [`Writer`] writes, and that readers
//! come and go.
//!
//! **Promises** that a committed step is visible whole or not at all; that numbers of names and
//! versions are never used twice, so an inode number never changes its meaning; that an inode is one
//! immutable version (its content may become known later: its size when that was unknown, its object).
//!
//! **Never knows** HTTP, FUSE, or how the bytes of an object are kept.
//!
//! Inode numbers: the root is 1, a directory is twice its name's number, a file is twice its version's
//! number plus one. Numbers of names and versions begin above 7, so none is 1.
//!
//! Times are nanoseconds since 1970 in UTC. A *live* name is one of the current tree: a file with a
//! current version, or a directory below which a live file is.

mod bulk;
mod changes;
mod channels;
mod check;
mod compare;
mod contents;
mod feeds;
mod filter;
mod history;
mod listed;
mod lock;
mod log;
mod members;
mod mementos;
mod moments;
mod naming;
mod packages;
mod past;
mod reach;
mod reader;
mod record;
mod related;
mod remembered;
mod rows;
mod schema;
mod sets;
mod snapshot;
mod targets;
mod timeline;
mod transaction;
mod tree;
mod validators;
mod writeback;
mod writer;

use std::path::Path;

use thiserror::Error;

pub use changes::{Changed, How, Moved};
pub use channels::{Backlog, Channel, Reading, Subscription, Waiting};
pub use compare::{Compared, Comparison, Difference, Kept};
pub use feeds::{Beginning, Beside, Edition, Feed, Offer, Tally};
pub use filter::{Filter, Wish, has_others_only};
pub use history::{VersionLog, Whence};
pub use lock::CacheLock;
pub use log::{ChangeRow, SyncRow};
pub use members::{Attached, Looked, MemberRow, MemberState, MemberTotals, UnseenMember};
pub use mementos::{EntrySays, Memento, MementoLink, MementoRow, TimeMapRow};
pub use moments::Ever;
pub use packages::PackageRow;
pub use past::Past;
pub use reach::{ArchivedRow, Reach};
pub use reader::{Content, DirEntry, Node, Place, Pool, Reader, Totals, VersionRow};
pub use record::{Extra, Record};
pub use related::{Related, Shown};
pub use rows::{Changes, DocumentRow, Evictable, News, Outcome, Seed, SetRow, SetState, Stored, SyncResult, Upserted};
pub use snapshot::Snapshot;
pub use targets::{Relation, Target};
pub use transaction::{Recent, Transaction, Unseen};
pub use validators::KnownContent;
pub use writer::Writer;

/// The file name of the database in the cache directory.
pub const DATABASE: &str = "catalog.db";

/// The inode number of the root.
pub const ROOT_INO: u64 = 1;

/// The number of the root among names.
pub const ROOT: i64 = 1;

/// The inode number of the directory that is this name.
#[must_use]
pub fn directory_ino(name: i64) -> u64 {
    if name == ROOT { ROOT_INO } else { name.unsigned_abs() << 1 }
}

/// The inode number of a version.
#[must_use]
pub fn version_ino(version: i64) -> u64 {
    version.unsigned_abs() << 1 | 1
}

/// What an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inode {
    /// The directory with this name number.
    Directory(i64),
    /// The version with this number.
    Version(i64),
}

impl Inode {
    /// Reads an inode number; none if it cannot be one of the catalog's.
    #[must_use]
    pub fn from_ino(ino: u64) -> Option<Self> {
        let number = i64::try_from(ino >> 1).ok()?;
        match (ino, ino & 1) {
            (ROOT_INO, _) => Some(Self::Directory(ROOT)),
            (_, 0) if number > ROOT => Some(Self::Directory(number)),
            (_, 1) => Some(Self::Version(number)),
            _ => None,
        }
    }
}

/// Why the catalog could not answer or be changed.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// SQLite said no: the disk is full, the file is damaged, and so on.
    #[error("catalog: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The database is damaged.
    #[error("{path} is damaged ({error}); remove the cache directory, and it will be made anew from the Source")]
    Damaged {
        /// The database.
        path: String,
        /// What SQLite says.
        error: String,
    },
    /// SQLite gave a row another number than it was to have.
    #[error("catalog: a row was given the number {given}, not {wanted}; this is a bug, and the step was undone")]
    Numbers {
        /// What it was given.
        given: i64,
        /// What it was to have.
        wanted: i64,
    },
    /// A filter has a pattern that is none.
    #[error("{0}")]
    Pattern(String),
    /// The file system said no.
    #[error("{path}: {error}")]
    Io {
        /// What was opened.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The database was made by a later version of this program.
    #[error(
        "{path} has schema {found}, newer than the {known} this version knows; use the newer resourcesync, or another cache="
    )]
    Newer {
        /// The database.
        path: String,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// What is to be written is more than a bound allows.
    #[error(transparent)]
    Beyond(#[from] crate::bounds::Beyond),
    /// A question that any user may ask took too long.
    #[error("this question took the catalog more than {} ms; ask for less at once", .0.as_millis())]
    Slow(std::time::Duration),
    /// Another process works with this cache.
    #[error("the cache {path} is in use by {holder}; unmount that first, or give this mount another cache=DIR")]
    InUse {
        /// The cache directory.
        path: String,
        /// As far as it is known.
        holder: String,
    },
    /// The cache belongs to another Source.
    #[error("the cache {path} holds {found}, not {wanted}; give this mount another cache=DIR")]
    OtherSource {
        /// The cache directory.
        path: String,
        /// What it was made for.
        found: String,
        /// What was asked for.
        wanted: String,
    },
}

impl CatalogError {
    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), error }
    }
}
