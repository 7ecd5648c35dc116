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
//! A function that returns a [`CatalogError`] returns one if SQLite fails. Each function names the other errors that it returns.
//!
//! Times are nanoseconds since 1970 in UTC. A *live* name is one of the current tree: a file with a
//! current version, or a directory below which a live file is.

#![allow(clippy::missing_errors_doc, reason = "the errors of SQLite are described once, above")]

mod db;
mod error;
mod model;
mod read;
mod write;

pub use db::lock::CacheLock;
pub use db::pool::{Pool, Reader};
pub use db::schema::DATABASE;
pub use error::CatalogError;
pub use model::channels::{Backlog, Channel, Reading, Subscription, Waiting};
pub use model::feeds::{Beginning, Beside, Edition, Feed, Offer, Tally};
pub use model::filter::{Filter, Wish, has_others_only};
pub use model::ids::{DocumentId, NameId, PackageId, SetId, VersionId};
pub use model::inode::{Inode, ROOT, ROOT_INO, directory_ino, version_ino};
pub use model::links::{Related, Shown};
pub use model::members::{Attached, Looked, MemberRow, MemberState, MemberTotals, UnseenMember};
pub use model::mementos::{Answered, EntrySays, Memento, MementoLink, MementoRow, TimeMapRow};
pub use model::nodes::{Content, DirEntry, Node, Place, Totals, VersionRow};
pub use model::origin::{Changed, How, Moved};
pub use model::packages::{PackageBytes, PackageRow};
pub use model::reach::{ArchivedRow, Reach};
pub use model::record::{Extra, Record};
pub use model::rows::{
    Changes, DocumentRow, Evictable, News, Outcome, Seed, SetRow, SetState, Stored, SyncResult, Upserted,
};
pub use model::snapshot::Snapshot;
pub use model::targets::{Relation, Target};
pub use model::validators::KnownContent;
pub use model::version_log::{VersionLog, Whence};
pub use read::compare::{Compared, Comparison, Difference, Kept};
pub use read::log::{ChangeRow, SyncRow};
pub use read::snapshots::Ever;
pub use write::changes::ToldChange;
pub use write::channels::NewDelivery;
pub use write::past::Past;
pub use write::state::Recent;
pub use write::transaction::{Transaction, Unseen};
pub use write::writer::Writer;
