//! Inode numbers.

use crate::catalog::model::ids::{NameId, VersionId};

/// The inode number of the root.
pub const ROOT_INO: u64 = 1;

/// The number of the root among names.
pub const ROOT: NameId = NameId::new(1);

/// The inode number of the directory that is this name.
#[must_use]
pub fn directory_ino(name: NameId) -> u64 {
    if name == ROOT { ROOT_INO } else { name.number().unsigned_abs() << 1 }
}

/// The inode number of a version.
#[must_use]
pub fn version_ino(version: VersionId) -> u64 {
    version.number().unsigned_abs() << 1 | 1
}

/// What an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inode {
    /// The directory with this name number.
    Directory(NameId),
    /// The version with this number.
    Version(VersionId),
}

impl Inode {
    /// Reads an inode number; none if it cannot be one of the catalog's.
    #[must_use]
    pub fn from_ino(ino: u64) -> Option<Self> {
        let number = i64::try_from(ino >> 1).ok()?;
        match (ino, ino & 1) {
            (ROOT_INO, _) => Some(Self::Directory(ROOT)),
            (_, 0) if number > ROOT.number() => Some(Self::Directory(NameId::new(number))),
            (_, 1) => Some(Self::Version(VersionId::new(number))),
            _ => None,
        }
    }
}
