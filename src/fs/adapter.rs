//! fuser's callbacks.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use super::attributes::Owner;
use super::control::{self, Snapshots};
use super::{Contents, listing, xattr};
use crate::catalog::{CatalogError, Inode, Node, Pool, ROOT, ROOT_INO, Reader};
use crate::store::Body;

/// How the tree is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The owner of everything.
    pub uid: u32,
    /// The group of everything.
    pub gid: u32,
    /// Permissions that are taken away.
    pub umask: u16,
    /// Whether `.resourcesync` is listed.
    pub visible: bool,
    /// The generation of all inode numbers.
    pub generation: u64,
    /// Whether a listing always brings attributes with it. That pins about 1.1 KB of kernel memory for
    /// each entry, and makes `ls -l` and `find -ls` twice as fast; without, the kernel chooses.
    pub always_plus: bool,
}

/// The file system as fuser wants it.
pub struct Filesystem {
    readers: Arc<Pool>,
    contents: Arc<dyn Contents>,
    owner: Owner,
    view: View,
    generation: Generation,
    snapshots: Snapshots,
    no_open: bool,
    no_opendir: bool,
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filesystem").field("view", &self.view).finish_non_exhaustive()
    }
}

/// An inode never changes, so what is said of it holds for ever.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
const NOT_AT_ALL: Duration = Duration::ZERO;
const STATFS_BLOCK: u32 = 4096;
const WRITING: Errno = Errno::EROFS;

fn reply_read(reply: ReplyData, content: &Body, offset: u64, size: u32) {
    match content.read_at(offset, size) {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => {
            tracing::error!(%error, "cannot read from the cache");
            reply.error(Errno::EIO);
        }
    }
}

impl Filesystem {
    /// A file system over a catalog and what brings content.
    #[must_use]
    pub fn new(readers: Arc<Pool>, contents: Arc<dyn Contents>, view: View) -> Self {
        Self {
            readers,
            contents,
            owner: Owner { uid: view.uid, gid: view.gid, umask: view.umask },
            view,
            generation: Generation(view.generation),
            snapshots: Snapshots::default(),
            no_open: false,
            no_opendir: false,
        }
    }

    /// Asks the catalog; a failure is logged and becomes EIO.
    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, Errno> {
        self.readers.ask(question).map_err(|error| {
            tracing::error!("{error}");
            Errno::EIO
        })
    }

    fn control_directory(&self) -> FileAttr {
        self.owner.directory(control::DIRECTORY_INO, 0)
    }

    fn lookup_control(&self, name: &str, reply: ReplyEntry) {
        let Some(content) = self.contents.control(name) else { return reply.error(Errno::ENOENT) };
        let (ino, content) = self.snapshots.add(content);
        let attributes = self.owner.file(ino, crate::document::Datetime::now().nanos(), content.len() as u64);
        reply.entry_with_ttls(&FOR_EVER, &NOT_AT_ALL, &attributes, self.generation);
    }

    fn negative(&self, reply: ReplyEntry) {
        // Inode 0 says "there is no such name", and may be remembered.
        reply.entry(&FOR_EVER, &self.owner.file(0, 0, 0), Generation(0));
    }

    fn parent(reader: &Reader, directory: i64) -> Result<i64, CatalogError> {
        Ok(reader.parent(directory)?.unwrap_or(ROOT))
    }

    fn xattrs(&self, ino: INodeNo) -> Result<std::collections::BTreeMap<String, Vec<u8>>, Errno> {
        let Some(Inode::Version(version)) = Inode::from_ino(ino.0).filter(|_| !Snapshots::is_ours(ino.0)) else {
            return Ok(Default::default());
        };
        let row = self.ask(|reader| reader.version(version))?.ok_or(Errno::ENOENT)?;
        Ok(xattr::attributes(&row, self.contents.verified(version)))
    }

    fn stream(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(&listing::Item<'_>, &FileAttr, bool) -> bool,
    ) -> Result<(), Errno> {
        if ino.0 == control::DIRECTORY_INO {
            let names = [".", ".."].into_iter().chain(control::FILES);
            for (index, name) in names.enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
                let directory = index < 2;
                let node = match directory {
                    true => Node::Directory { ino: [control::DIRECTORY_INO, ROOT_INO][index], changed: 0 },
                    false => {
                        Node::File { ino: control::DIRECTORY_INO + (1 << 61) + index as u64, mtime: 0, size: None }
                    }
                };
                let item = listing::Item { cookie: index as u64 + 1, name, node };
                if !add(&item, &self.owner.node(&node), false) {
                    break;
                }
            }
            return Ok(());
        }
        let Some(Inode::Directory(directory)) = Inode::from_ino(ino.0) else { return Err(Errno::ENOTDIR) };
        let mut unknown = Vec::new();
        let visible = self.view.visible && directory == ROOT;
        self.ask(|reader| {
            let missing = Node::Directory { ino: ino.0, changed: 0 };
            let own = reader.node(Inode::Directory(directory))?.unwrap_or(missing);
            let above = Inode::Directory(Self::parent(reader, directory)?);
            let parent = reader.node(above)?.unwrap_or(missing);
            listing::directory(reader, directory, own, parent, offset, visible, |item| {
                let known = !matches!(item.node, Node::File { size: None, .. });
                let more = add(item, &self.owner.node(&item.node), known);
                if !known
                    && more
                    && let Some(Inode::Version(version)) = Inode::from_ino(item.node.ino())
                {
                    unknown.push(version);
                }
                more
            })
        })?;
        if !unknown.is_empty() {
            self.contents.expect_sizes(unknown);
        }
        Ok(())
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if !self.view.always_plus {
            wanted |= InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        let granted = wanted & offered;
        self.no_open = granted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = granted.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // Only what is offered is asked for, and a size that is not taken is set to the nearest.
        let _ = config.add_capabilities(granted);
        let _ = config.set_max_background(64);
        if let Err(nearest) = config.set_max_readahead(1 << 20) {
            let _ = config.set_max_readahead(nearest);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(name) = name.to_str() else { return self.negative(reply) };
        if Snapshots::is_ours(parent.0) {
            return match name {
                "." => reply.entry(&FOR_EVER, &self.control_directory(), self.generation),
                ".." => reply.entry(&FOR_EVER, &self.owner.directory(ROOT_INO, 0), self.generation),
                _ => self.lookup_control(name, reply),
            };
        }
        if parent.0 == ROOT_INO && name == control::DIRECTORY {
            return reply.entry(&FOR_EVER, &self.control_directory(), self.generation);
        }
        let Some(inode) = Inode::from_ino(parent.0) else { return reply.error(Errno::ENOENT) };
        let found = self.ask(|reader| match (name, inode) {
            // Asked by those who open by handle.
            (".", inode) => reader.node(inode),
            ("..", Inode::Directory(directory)) => reader.node(Inode::Directory(Self::parent(reader, directory)?)),
            (_, Inode::Directory(directory)) => reader.lookup(directory, name),
            (_, Inode::Version(_)) => Ok(None),
        });
        match found {
            Err(errno) => reply.error(errno),
            Ok(None) => self.negative(reply),
            Ok(Some(node)) => {
                let known = !matches!(node, Node::File { size: None, .. });
                let attr_ttl = if known { FOR_EVER } else { NOT_AT_ALL };
                reply.entry_with_ttls(&attr_ttl, &FOR_EVER, &self.owner.node(&node), self.generation);
            }
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        if Snapshots::is_ours(ino.0) {
            self.snapshots.forget(ino.0, lookups);
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == control::DIRECTORY_INO {
            return reply.attr(&FOR_EVER, &self.control_directory());
        }
        if Snapshots::is_ours(ino.0) {
            return match self.snapshots.get(ino.0) {
                Some(content) => {
                    let now = crate::document::Datetime::now().nanos();
                    reply.attr(&FOR_EVER, &self.owner.file(ino.0, now, content.len() as u64));
                }
                None => reply.error(Errno::ENOENT),
            };
        }
        let Some(inode) = Inode::from_ino(ino.0) else { return reply.error(Errno::ENOENT) };
        match self.ask(|reader| reader.node(inode)) {
            Err(errno) => reply.error(errno),
            Ok(None) => reply.error(Errno::ENOENT),
            Ok(Some(Node::File { ino, mtime, size: None })) => {
                let Inode::Version(version) = inode else { return reply.error(Errno::EIO) };
                let owner = self.owner;
                self.contents.size(
                    version,
                    Box::new(move |size| match size {
                        Ok(size) => reply.attr(&FOR_EVER, &owner.file(ino, mtime, size)),
                        Err(()) => reply.error(Errno::EIO),
                    }),
                );
            }
            Ok(Some(node)) => reply.attr(&FOR_EVER, &self.owner.node(&node)),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            reply.error(WRITING);
        } else if self.no_open {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
        }
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.no_opendir {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if Snapshots::is_ours(ino.0) {
            return match self.snapshots.get(ino.0) {
                Some(content) => {
                    let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                    let end = begin.saturating_add(size as usize).min(content.len());
                    reply.data(&content[begin..end]);
                }
                None => reply.error(Errno::ENOENT),
            };
        }
        let Some(Inode::Version(version)) = Inode::from_ino(ino.0) else { return reply.error(Errno::EISDIR) };
        match self.contents.ready(version) {
            Some(readable) => reply_read(reply, &readable, offset, size),
            None => self.contents.read(
                version,
                offset,
                u64::from(size),
                Box::new(move |found| match found {
                    Ok(readable) => reply_read(reply, &readable, offset, size),
                    Err(()) => reply.error(Errno::EIO),
                }),
            ),
        }
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let streamed = self.stream(ino, offset, |item, attributes, _| {
            !reply.add(attributes.ino, item.cookie, attributes.kind, item.name)
        });
        match streamed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let streamed = self.stream(ino, offset, |item, attributes, known| {
            let ttl = if known { FOR_EVER } else { NOT_AT_ALL };
            !reply.add(attributes.ino, item.cookie, item.name, &ttl, attributes, self.generation)
        });
        match streamed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (used, available) = self.contents.room();
        let block = u64::from(STATFS_BLOCK);
        let free = available / block;
        // No inodes are counted: monitors would take a full tree for a full disk.
        reply.statfs(used.div_ceil(block) + free, free, free, 0, 0, STATFS_BLOCK, 255, STATFS_BLOCK);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // Asked for every file by `ls -l`: access lists, security labels. There are none.
        let Some(name) = name.to_str().filter(|name| name.starts_with("user.")) else {
            return reply.error(Errno::ENODATA);
        };
        match self.xattrs(ino) {
            Ok(all) => match all.get(name) {
                Some(value) => reply_xattr(reply, value, size),
                None => reply.error(Errno::ENODATA),
            },
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.xattrs(ino) {
            Ok(all) => {
                let mut names = Vec::new();
                for name in all.keys() {
                    names.extend_from_slice(name.as_bytes());
                    names.push(0);
                }
                reply_xattr(reply, &names, size);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn access(&self, _request: &Request, _ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) { reply.error(WRITING) } else { reply.ok() }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn setattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(WRITING);
    }

    fn mknod(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _m: u32, _u: u32, _d: u32, reply: ReplyEntry) {
        reply.error(WRITING);
    }

    fn mkdir(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _m: u32, _u: u32, reply: ReplyEntry) {
        reply.error(WRITING);
    }

    fn unlink(&self, _r: &Request, _p: INodeNo, _n: &OsStr, reply: ReplyEmpty) {
        reply.error(WRITING);
    }

    fn rmdir(&self, _r: &Request, _p: INodeNo, _n: &OsStr, reply: ReplyEmpty) {
        reply.error(WRITING);
    }

    fn symlink(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _t: &std::path::Path, reply: ReplyEntry) {
        reply.error(WRITING);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(WRITING);
    }

    fn link(&self, _r: &Request, _i: INodeNo, _p: INodeNo, _n: &OsStr, reply: ReplyEntry) {
        reply.error(WRITING);
    }

    fn create(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _m: u32, _u: u32, _f: i32, reply: ReplyCreate) {
        reply.error(WRITING);
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(WRITING);
    }

    fn setxattr(&self, _r: &Request, _i: INodeNo, _n: &OsStr, _v: &[u8], _f: i32, _p: u32, reply: ReplyEmpty) {
        reply.error(WRITING);
    }

    fn removexattr(&self, _r: &Request, _i: INodeNo, _n: &OsStr, reply: ReplyEmpty) {
        reply.error(WRITING);
    }
}

/// Answers as getxattr(2) and listxattr(2) want it: a size of 0 asks for the size.
fn reply_xattr(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}
