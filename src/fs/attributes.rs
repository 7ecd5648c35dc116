//! What `stat` shows of an inode, and for how long the kernel may keep it.

use std::time::Duration;

use crate::catalog::Node;
use crate::document::Datetime;

/// For what never changes, as an inode.
pub(super) const UNLIMITED: Duration = Duration::from_secs(u32::MAX as u64);
/// For what the kernel asks for each time.
pub(super) const UNCACHED: Duration = Duration::ZERO;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
}

/// The attributes of an inode, but for owner and permissions, which are those of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode number.
    pub ino: u64,
    /// The type of the file.
    pub kind: FileType,
    /// In bytes; 0 where it is not known yet.
    pub size: u64,
    /// When it was modified.
    pub mtime: Datetime,
}

impl Attributes {
    /// Of a directory whose names last changed at this time, in nanoseconds.
    pub(super) fn directory(ino: u64, changed: Datetime) -> Self {
        Self { ino, kind: FileType::Directory, size: 0, mtime: changed }
    }

    /// Of a file.
    pub(super) fn file(ino: u64, mtime: Datetime, size: u64) -> Self {
        Self { ino, kind: FileType::Regular, size, mtime }
    }

    /// Of a symbolic link to a target of so many bytes.
    pub(super) fn symlink(ino: u64, mtime: Datetime, size: u64) -> Self {
        Self { ino, kind: FileType::Symlink, size, mtime }
    }

    /// Of a node of the catalog.
    pub(super) fn of(node: &Node) -> Self {
        match *node {
            Node::Directory { ino, changed } => Self::directory(ino, changed),
            Node::File { ino, mtime, size } => Self::file(ino, mtime, size.unwrap_or(0)),
        }
    }
}

/// What a name names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub attributes: Attributes,
    /// How long its attributes hold.
    pub attributes_ttl: Duration,
    /// How long the name holds.
    pub name_ttl: Duration,
}

impl Entry {
    /// A name and attributes that hold as long as the kernel keeps them.
    pub(super) fn unlimited(attributes: Attributes) -> Self {
        Self { attributes, attributes_ttl: UNLIMITED, name_ttl: UNLIMITED }
    }

    /// A name that holds, and attributes that the kernel asks for each time.
    pub(super) fn with_uncached_attributes(attributes: Attributes) -> Self {
        Self { attributes, attributes_ttl: UNCACHED, name_ttl: UNLIMITED }
    }

    /// A name that the kernel asks for each time, of an inode that does not change.
    pub(super) fn with_uncached_name(attributes: Attributes) -> Self {
        Self { attributes, attributes_ttl: UNLIMITED, name_ttl: UNCACHED }
    }

    /// What the kernel asks for each time.
    pub(super) fn uncached(attributes: Attributes) -> Self {
        Self { attributes, attributes_ttl: UNCACHED, name_ttl: UNCACHED }
    }

    /// A node of the catalog. A size that is not known does not hold, so that the kernel asks for it.
    pub(super) fn of(node: &Node) -> Self {
        Self { attributes: Attributes::of(node), attributes_ttl: ttl(node), name_ttl: UNLIMITED }
    }
}

/// How long the attributes of a node hold.
pub(super) fn ttl(node: &Node) -> Duration {
    if matches!(node, Node::File { size: None, .. }) { UNCACHED } else { UNLIMITED }
}
