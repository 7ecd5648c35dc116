//! What `stat` shows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use crate::catalog::Node;

/// Who owns the files, and who may read them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) umask: u16,
}

const BLOCK: u64 = 512;

/// A moment in nanoseconds as the kernel wants it.
pub(super) fn time(nanos: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    if nanos >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

impl Owner {
    /// The attributes of a node; a size that is not known is 0.
    pub(super) fn node(&self, node: &Node) -> FileAttr {
        match *node {
            Node::Directory { ino, changed } => self.directory(ino, changed),
            Node::File { ino, mtime, size } => self.file(ino, mtime, size.unwrap_or(0)),
        }
    }

    pub(super) fn directory(&self, ino: u64, changed: i64) -> FileAttr {
        // One link says that subdirectories are not counted.
        self.attributes(ino, changed, 0, FileType::Directory, 0o555)
    }

    pub(super) fn file(&self, ino: u64, mtime: i64, size: u64) -> FileAttr {
        self.attributes(ino, mtime, size, FileType::RegularFile, 0o444)
    }

    /// A symbolic link to a target of so many bytes.
    pub(super) fn link(&self, ino: u64, mtime: i64, length: u64) -> FileAttr {
        FileAttr { perm: 0o777, ..self.attributes(ino, mtime, length, FileType::Symlink, 0o777) }
    }

    fn attributes(&self, ino: u64, mtime: i64, size: u64, kind: FileType, mode: u16) -> FileAttr {
        let mtime = time(mtime);
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(BLOCK),
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind,
            perm: mode & !self.umask,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}
