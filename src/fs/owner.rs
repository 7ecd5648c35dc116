//! Attributes as fuser has them, with the owner and the permissions of the mount.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType as FuseType, INodeNo};

use super::attributes::{Attributes, FileType};
use crate::document::Datetime;

/// Who owns all files, and which permissions are taken away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) umask: u16,
}

/// The unit of `st_blocks` (stat(2)), in bytes.
const BLOCK: u64 = 512;

fn system_time(time: Datetime) -> SystemTime {
    let distance = Duration::from_nanos(time.nanos().unsigned_abs());
    if time.nanos() >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// The type of a file as fuser has it.
pub(super) fn fuse_type(kind: FileType) -> FuseType {
    match kind {
        FileType::Directory => FuseType::Directory,
        FileType::Regular => FuseType::RegularFile,
        FileType::Symlink => FuseType::Symlink,
    }
}

impl Owner {
    /// The attributes of an inode as the kernel gets them.
    pub(super) fn attributes(&self, of: &Attributes) -> FileAttr {
        let mtime = system_time(of.mtime);
        let perm = match of.kind {
            FileType::Directory => 0o555 & !self.umask,
            FileType::Regular => 0o444 & !self.umask,
            // Nobody looks at the permissions of a link.
            FileType::Symlink => 0o777,
        };
        FileAttr {
            ino: INodeNo(of.ino),
            size: of.size,
            blocks: of.size.div_ceil(BLOCK),
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind: fuse_type(of.kind),
            perm,
            // One link of a directory says that subdirectories are not counted.
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}
