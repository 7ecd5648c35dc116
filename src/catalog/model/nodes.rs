//! Nodes of the tree, and versions.

use crate::catalog::model::ids::{NameId, VersionId};
use crate::catalog::model::members::MemberRow;
use crate::catalog::model::record::Extra;
use crate::document::{Datetime, Hashes};

/// A file or a directory, as `stat` needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory {
        /// Its inode number.
        ino: u64,
        /// When its names last changed, in nanoseconds.
        changed: Datetime,
    },
    /// A version of a resource.
    File {
        /// Its inode number.
        ino: u64,
        /// Nanoseconds.
        mtime: Datetime,
        /// Bytes; `None` where the Source did not say and nobody asked yet.
        size: Option<u64>,
    },
}

impl Node {
    /// The inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        match self {
            Self::Directory { ino, .. } | Self::File { ino, .. } => *ino,
        }
    }
}

/// A live name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Where a later listing goes on: the number of the name.
    pub cookie: i64,
    /// The name.
    pub name: String,
    /// What it names.
    pub node: Node,
}

/// All that is kept of a version.
#[derive(Clone, Debug)]
pub struct VersionRow {
    /// Its number.
    pub id: VersionId,
    /// The number of its name.
    pub name: NameId,
    /// What is fetched.
    pub uri: String,
    /// When it came into force.
    pub begin: Datetime,
    /// Whether it still is.
    pub current: bool,
    /// The time that `stat` shows.
    pub mtime: Datetime,
    /// Where that is from: 0 the list, 1 `lastmod`, 2 the change.
    pub dated: u8,
    /// Bytes, as a reader gets them.
    pub size: Option<u64>,
    /// Whether the size is what we found, not what the Source lists.
    pub settled: bool,
    /// The SHA-256 of the content that it ever had: an inode never has another.
    pub served: Option<[u8; 32]>,
    /// The digests of the bytes, as coded.
    pub hashes: Hashes,
    /// The media type.
    pub media: Option<String>,
    /// The rest.
    pub extra: Extra,
    /// The content, where it is in the store.
    pub content: Option<Content>,
    /// The member of a package that is its content.
    pub member: Option<MemberRow>,
}

/// Where content is.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the store, as an object, and when it was read last, as far as that was noted.
    Object(Content, Datetime),
    /// In a package, which may be here or not.
    Member(MemberRow),
}

/// Content that is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its name in the store.
    pub sha256: [u8; 32],
    /// Bytes.
    pub size: u64,
    /// Whether a hash or a length of the Source agreed.
    pub verified: bool,
}

/// Sums over the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files in the current tree whose content is in the store.
    pub cached: u64,
    /// Their bytes.
    pub bytes: u64,
}
