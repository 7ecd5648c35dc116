//! fuser's callbacks: what the kernel asks becomes a request to the tree, and its answer a reply.

use crate::document::Datetime;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::answer::Answer;
use super::attributes::{Attributes, Entry, UNLIMITED};
use super::error::FsError;
use super::inodes::{Moments, Place};
use super::io::{Choice, Io, KEPT, Opened, Way};
use super::owner::Owner;
use super::related::Collections;
use super::reply::errno;
use super::requests::{Kind, Requests};
use super::stream::Stream;
use super::tree::{Content, Tree};
use super::{Contents, control};
use crate::catalog::Pool;

/// How the tree is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The owner of everything.
    pub uid: u32,
    /// The group of everything.
    pub gid: u32,
    /// Permissions that are taken away.
    pub umask: u16,
    /// Whether `.resourcesync` and `.versions` are listed.
    pub visible: bool,
    /// The generation of all inode numbers.
    pub generation: u64,
    /// Whether a listing always brings attributes with it. Then the first `find` takes three times as long as
    /// of names alone, and the `find -ls`, `du` or `rsync` that follows a fifth: of 3.77 million files in
    /// directories of 9,000, 25 s and then 17 s, where each LOOKUP that is asked takes 27 µs. Without, the kernel
    /// chooses, and chooses names where a directory is read whole before its files are looked at.
    pub always_plus: bool,
}

/// The file system as fuser wants it.
pub struct Filesystem {
    tree: Tree,
    contents: Arc<dyn Contents>,
    owner: Owner,
    view: View,
    generation: Generation,
    io: Arc<Io>,
    opened: Arc<Opened>,
    requests: Arc<Requests>,
    no_open: bool,
    no_opendir: bool,
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filesystem").field("view", &self.view).finish_non_exhaustive()
    }
}

/// The unit in which statfs(2) counts, in bytes.
const STATFS_BLOCK: u32 = 4096;

impl Filesystem {
    /// A file system over a catalog and what fetches content.
    #[must_use]
    pub fn new(
        readers: Arc<Pool>,
        contents: Arc<dyn Contents>,
        view: View,
        io: Arc<Io>,
        requests: Arc<Requests>,
    ) -> Self {
        Self {
            tree: Tree::new(readers, Arc::clone(&contents), view.visible),
            contents,
            owner: Owner { uid: view.uid, gid: view.gid, umask: view.umask },
            view,
            generation: Generation(view.generation),
            io,
            opened: Arc::default(),
            requests,
            no_open: false,
            no_opendir: false,
        }
    }

    /// Counts a request about this inode, unless it is one of those that show the counts.
    fn count(&self, kind: Kind, ino: INodeNo) {
        if !matches!(Place::of(ino.0), Some(Place::Made | Place::Links(_) | Place::Collection(_) | Place::Uris)) {
            self.requests.count(kind);
        }
    }

    /// The moments whose trees the kernel knows of.
    #[must_use]
    pub fn moments(&self) -> Arc<Moments> {
        self.tree.moments()
    }

    /// When collections changed.
    #[must_use]
    pub fn collections(&self) -> Arc<Collections> {
        self.tree.collections()
    }
}

/// Answers with a name. Inode 0 means that there is no such name, which the kernel remembers.
fn reply_entry(found: Option<Entry>, owner: Owner, generation: Generation, reply: ReplyEntry) {
    match found {
        Some(Entry { attributes, attributes_ttl, name_ttl }) => {
            reply.entry_with_ttls(&attributes_ttl, &name_ttl, &owner.attributes(&attributes), generation);
        }
        None => reply.entry(&UNLIMITED, &owner.attributes(&Attributes::file(0, Datetime::EPOCH, 0)), Generation(0)),
    }
}

/// Answers with the bytes from `offset` on.
fn reply_read(content: &Content, offset: u64, size: u32, reply: ReplyData) {
    match content {
        Content::Control(bytes) => {
            let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let end = begin.saturating_add(size as usize).min(bytes.len());
            reply.data(&bytes[begin..end]);
        }
        Content::Version(body) => body.read_at(offset, size, |bytes| match bytes {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(errno(&FsError::Cache(error))),
        }),
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if !self.view.always_plus {
            wanted |= InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        // Of a store that itself lies on a stacked file system, files are refused when they are opened.
        if !offered.contains(InitFlags::FUSE_PASSTHROUGH) || config.set_max_stack_depth(1).is_err() {
            self.io.rule_out("this kernel has no passthrough (Linux 6.9 has)");
        }
        if self.io.may_pass_through(self.tree.readers()) {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
        } else {
            let _ = config.set_max_stack_depth(0);
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
        if name != control::DIRECTORY {
            self.count(Kind::Lookup, parent);
        }
        let (owner, generation) = (self.owner, self.generation);
        // The catalog has no names but those in UTF-8.
        let Some(name) = name.to_str() else { return reply_entry(None, owner, generation, reply) };
        self.tree.lookup(parent.0, name).then(move |found| match found {
            Ok(found) => reply_entry(found, owner, generation, reply),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        self.tree.forget(ino.0, lookups);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.count(Kind::Getattr, ino);
        let owner = self.owner;
        self.tree.getattr(ino.0).then(move |found| match found {
            Ok((attributes, ttl)) => reply.attr(&ttl, &owner.attributes(&attributes)),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        self.requests.count(Kind::Readlink);
        match self.tree.readlink(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.count(Kind::Open, ino);
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(errno(&FsError::ReadOnly));
        }
        // The files of `.resourcesync` choose nothing.
        let resource = Tree::version(ino.0).map(|version| (version, self.io.choice(self.tree.readers())));
        let answer = self.tree.open(ino.0);
        if let (Some((version, choice)), false) = (&resource, matches!(answer, Answer::Now(Ok(())))) {
            let through = matches!(choice, Some(Choice { way: Way::Passthrough, .. })).then_some(*version);
            let (opened, io, contents) = (Arc::clone(&self.opened), Arc::clone(&self.io), Arc::clone(&self.contents));
            let unique = request.unique();
            return answer.then(move |answer| match answer {
                Ok(()) => opened.open(ino, through.and_then(|version| contents.ready(version)), &io, (unique, reply)),
                // The kernel looks up the name once more, and finds the next version.
                Err(error) => reply.error(errno(&error)),
            });
        }
        match resource {
            Some((version, Some(Choice { way: Way::Passthrough, .. }))) => {
                self.opened.open(ino, self.contents.ready(version), &self.io, (request.unique(), reply));
            }
            // There is nothing to choose by yet: kept count of, since it may still be open when there is.
            Some((_, None)) => self.opened.open(ino, None, &self.io, (request.unique(), reply)),
            // What opens are to wait for, some time, is opened each time.
            Some((_, Some(Choice { way: Way::Kernel, .. }))) if self.no_open && !self.contents.has_timeless() => {
                reply.error(errno(&FsError::NotImplemented))
            }
            _ => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
        }
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.count(Kind::Release, ino);
        if fh == KEPT {
            self.opened.close(ino);
        }
        reply.ok();
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.count(Kind::Opendir, ino);
        if self.no_opendir {
            reply.error(errno(&FsError::NotImplemented));
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
        self.count(Kind::Read, ino);
        self.tree.read(ino.0, offset, size).then(move |content| match content {
            Ok(content) => reply_read(&content, offset, size, reply),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.count(Kind::Readdir, ino);
        self.tree.list(ino.0, offset, Stream::plain(reply));
    }

    fn readdirplus(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.count(Kind::Readdirplus, ino);
        self.tree.list(ino.0, offset, Stream::plus(reply, self.owner, self.generation));
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.count(Kind::Statfs, ino);
        let (used, available) = self.contents.room();
        let block = u64::from(STATFS_BLOCK);
        let free = available / block;
        // No inodes are counted: monitors would take a full tree for a full disk.
        reply.statfs(used.div_ceil(block) + free, free, free, 0, 0, STATFS_BLOCK, 255, STATFS_BLOCK);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.count(Kind::Getxattr, ino);
        // Access lists and security labels, which `ls -l` asks of each file, and the kernel never keeps: 2,000 requests for
        // 1,000 files. Told that there is no such thing here, and not just none of this file, it asks once.
        let Some(name) = name.to_str().filter(|name| name.starts_with("user.")) else {
            return reply.error(errno(&FsError::NoNamespace));
        };
        match self.tree.xattrs(ino.0) {
            Ok(all) => match all.get(name) {
                Some(value) => reply_xattr(reply, value, size),
                None => reply.error(errno(&FsError::NoAttribute)),
            },
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.count(Kind::Listxattr, ino);
        match self.tree.xattrs(ino.0) {
            Ok(all) => {
                let mut names = Vec::new();
                for name in all.keys() {
                    names.extend_from_slice(name.as_bytes());
                    names.push(0);
                }
                reply_xattr(reply, &names, size);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn access(&self, _request: &Request, _ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        if mask.contains(AccessFlags::W_OK) { reply.error(errno(&FsError::ReadOnly)) } else { reply.ok() }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(errno(&FsError::NotImplemented));
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
        reply.error(errno(&FsError::ReadOnly));
    }

    fn mknod(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _m: u32, _u: u32, _d: u32, reply: ReplyEntry) {
        reply.error(errno(&FsError::ReadOnly));
    }

    fn mkdir(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _m: u32, _u: u32, reply: ReplyEntry) {
        reply.error(errno(&FsError::ReadOnly));
    }

    fn unlink(&self, _r: &Request, _p: INodeNo, _n: &OsStr, reply: ReplyEmpty) {
        reply.error(errno(&FsError::ReadOnly));
    }

    fn rmdir(&self, _r: &Request, _p: INodeNo, _n: &OsStr, reply: ReplyEmpty) {
        reply.error(errno(&FsError::ReadOnly));
    }

    fn symlink(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _t: &std::path::Path, reply: ReplyEntry) {
        reply.error(errno(&FsError::ReadOnly));
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
        reply.error(errno(&FsError::ReadOnly));
    }

    fn link(&self, _r: &Request, _i: INodeNo, _p: INodeNo, _n: &OsStr, reply: ReplyEntry) {
        reply.error(errno(&FsError::ReadOnly));
    }

    fn create(&self, _r: &Request, _p: INodeNo, _n: &OsStr, _m: u32, _u: u32, _f: i32, reply: ReplyCreate) {
        reply.error(errno(&FsError::ReadOnly));
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
        reply.error(errno(&FsError::ReadOnly));
    }

    fn setxattr(&self, _r: &Request, _i: INodeNo, _n: &OsStr, _v: &[u8], _f: i32, _p: u32, reply: ReplyEmpty) {
        reply.error(errno(&FsError::ReadOnly));
    }

    fn removexattr(&self, _r: &Request, _i: INodeNo, _n: &OsStr, reply: ReplyEmpty) {
        reply.error(errno(&FsError::ReadOnly));
    }
}

/// Answers as getxattr(2) and listxattr(2) want it: a size of 0 asks for the size.
fn reply_xattr(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(errno(&FsError::BufferTooSmall)),
    }
}
