//! fuser's callbacks.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};

use super::attributes::Owner;
use super::control::{self, Made, Snapshots};
use super::inodes::{Moments, Place, collection_ino, links_ino, versions_ino};
use super::io::{Choice, Io, KEPT, Opened, Way};
use super::related::{self, Collections, Relations};
use super::reply::{FOR_EVER, NOT_AT_ALL, ask};
use super::requests::{Kind, Requests};
use super::stream::Stream;
use super::versions::{self, Versions};
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
    readers: Arc<Pool>,
    contents: Arc<dyn Contents>,
    owner: Owner,
    view: View,
    generation: Generation,
    snapshots: Arc<Snapshots>,
    versions: Arc<Versions>,
    relations: Arc<Relations>,
    waiting: Arc<Mutex<Waiting>>,
    io: Arc<Io>,
    opened: Arc<Opened>,
    requests: Arc<Requests>,
    recent: xattr::Recent,
    no_open: bool,
    no_opendir: bool,
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filesystem").field("view", &self.view).finish_non_exhaustive()
    }
}

const STATFS_BLOCK: u32 = 4096;
const WRITING: Errno = Errno::EROFS;

fn reply_read(reply: ReplyData, content: &Body, offset: u64, size: u32) {
    content.read_at(offset, size, |bytes| match bytes {
        Ok(bytes) => reply.data(bytes),
        Err(error) => {
            tracing::error!(%error, "cannot read from the cache");
            reply.error(Errno::EIO);
        }
    });
}

impl Filesystem {
    /// A file system over a catalog and what brings content.
    #[must_use]
    pub fn new(
        readers: Arc<Pool>,
        contents: Arc<dyn Contents>,
        view: View,
        io: Arc<Io>,
        requests: Arc<Requests>,
    ) -> Self {
        let owner = Owner { uid: view.uid, gid: view.gid, umask: view.umask };
        let (generation, snapshots) = (Generation(view.generation), Arc::<Snapshots>::default());
        let versions =
            Versions::new(Arc::clone(&readers), Arc::clone(&contents), owner, generation, Arc::clone(&snapshots));
        let relations = Relations::new(Arc::clone(&readers), owner, generation, Arc::clone(&snapshots));
        Self {
            readers,
            contents,
            relations: Arc::new(relations),
            waiting: Arc::default(),
            owner,
            view,
            generation,
            snapshots,
            versions: Arc::new(versions),
            io,
            opened: Arc::default(),
            requests,
            recent: xattr::Recent::new(),
            no_open: false,
            no_opendir: false,
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, Errno> {
        ask(&self.readers, question)
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
        Arc::clone(&self.versions.moments)
    }

    /// What was gathered of collections.
    #[must_use]
    pub fn collections(&self) -> Arc<Collections> {
        Arc::clone(&self.relations.collections)
    }

    fn control_directory(&self) -> FileAttr {
        self.owner.directory(control::DIRECTORY_INO, 0)
    }

    fn lookup_control(&self, name: &str, reply: ReplyEntry) {
        let Some(at) = control::FILES.iter().position(|file| *file == name) else { return reply.error(Errno::ENOENT) };
        let is_served = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.replies[at].push(reply);
            std::mem::replace(&mut waiting.is_served, true)
        };
        if !is_served {
            let serving = Serving { waiting: Arc::clone(&self.waiting), is_done: false };
            let (contents, snapshots) = (Arc::clone(&self.contents), Arc::clone(&self.snapshots));
            let (owner, generation) = (self.owner, self.generation);
            // Outside of the lock: if there is no room for it, it is dropped at once.
            self.contents.aside(Box::new(move || serve_waiting(serving, &*contents, &snapshots, owner, generation)));
        }
    }

    /// Answers what is about links, collections and URIs beside the session's threads.
    fn relate(&self, answer: impl FnOnce(&Relations) + Send + 'static) {
        let relations = Arc::clone(&self.relations);
        self.contents.aside(Box::new(move || answer(&relations)));
    }

    fn negative(&self, reply: ReplyEntry) {
        // Inode 0 says "there is no such name", and may be remembered.
        reply.entry(&FOR_EVER, &self.owner.file(0, 0, 0), Generation(0));
    }

    fn parent(reader: &Reader, directory: i64) -> Result<i64, CatalogError> {
        Ok(reader.parent(directory)?.unwrap_or(ROOT))
    }

    fn xattrs(&self, ino: INodeNo) -> Result<Arc<xattr::Attributes>, Errno> {
        match Place::of(ino.0) {
            Some(Place::Tree(Inode::Version(version))) => {
                // A process that reads attributes in a loop keeps this thread busy: other threads run first.
                std::thread::yield_now();
                // Before the query: the attributes may be newer than this number, never older.
                let commits = self.readers.commits();
                let verified = self.contents.verified(version);
                if let Some(known) = self.recent.get(version, commits, verified) {
                    return Ok(known);
                }
                let (row, links) = self.ask(|reader| xattr::facts(reader, version))?.ok_or(Errno::ENOENT)?;
                let attributes = Arc::new(xattr::attributes(&row, &links, verified));
                self.recent.put(version, commits, verified, &attributes);
                Ok(attributes)
            }
            Some(place @ (Place::Versions(_) | Place::Moment(..))) => self.versions.xattrs(place).map(Arc::new),
            _ => Ok(Arc::default()),
        }
    }

    /// Answers a listing.
    fn list(&self, ino: INodeNo, offset: u64, mut stream: Stream) {
        match Place::of(ino.0) {
            Some(Place::Versions(name)) => self.versions.list_versions(name, offset, stream),
            Some(Place::Moment(number, name)) => self.versions.list_at(number, name, offset, stream),
            Some(Place::Links(name)) => self.relate(move |relations| relations.list(name, offset, stream)),
            Some(Place::Collection(number)) => {
                self.relate(move |relations| relations.list_members(number, offset, stream));
            }
            Some(Place::Uris) => self.relate(move |relations| relations.list_uris(offset, stream)),
            Some(Place::Made) => {
                self.list_control(offset, &mut stream);
                stream.end(Ok(()));
            }
            Some(Place::Tree(Inode::Directory(directory))) => {
                let result = self.list_tree(directory, offset, &mut stream);
                stream.end(result);
            }
            _ => stream.end(Err(Errno::ENOTDIR)),
        }
    }

    fn list_control(&self, offset: u64, stream: &mut Stream) {
        // Of `uris`, there is nothing to see for who does not know what to look for.
        let directories = [related::LINKS, related::COLLECTIONS];
        let names = [".", ".."].into_iter().chain(control::FILES).chain(directories);
        let made = 2 + control::FILES.len();
        for (index, name) in names.enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            let node = match index {
                0 | 1 => Node::Directory { ino: [control::DIRECTORY_INO, ROOT_INO][index], changed: 0 },
                _ if index == made => Node::Directory { ino: links_ino(ROOT), changed: 0 },
                _ if index > made => Node::Directory { ino: collection_ino(related::ALL), changed: 0 },
                _ => Node::File { ino: control::DIRECTORY_INO + (1 << 61) + index as u64, mtime: 0, size: None },
            };
            if !stream.add(index as u64 + 1, name, &self.owner.node(&node), &NOT_AT_ALL) {
                break;
            }
        }
    }

    fn list_tree(&self, directory: i64, offset: u64, stream: &mut Stream) -> Result<(), Errno> {
        let mut unknown = Vec::new();
        let visible = self.view.visible && directory == ROOT;
        self.ask(|reader| {
            let missing = Node::Directory { ino: crate::catalog::directory_ino(directory), changed: 0 };
            let own = reader.node(Inode::Directory(directory))?.unwrap_or(missing);
            let above = Inode::Directory(Self::parent(reader, directory)?);
            let parent = reader.node(above)?.unwrap_or(missing);
            listing::directory(reader, directory, own, parent, offset, visible, |item| {
                let known = !matches!(item.node, Node::File { size: None, .. });
                let ttl = if known { FOR_EVER } else { NOT_AT_ALL };
                let more = stream.add(item.cookie, item.name, &self.owner.node(&item.node), &ttl);
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

    fn lookup_made(&self, name: &str, reply: ReplyEntry) {
        match name {
            "." => reply.entry(&FOR_EVER, &self.control_directory(), self.generation),
            ".." => reply.entry(&FOR_EVER, &self.owner.directory(ROOT_INO, 0), self.generation),
            related::LINKS => self.relate(|relations| relations.reply_directory(ROOT, reply)),
            related::COLLECTIONS => self.relate(|relations| relations.reply_collection(related::ALL, reply)),
            related::BY_URI => self.relations.reply_uris(reply),
            _ => self.lookup_control(name, reply),
        }
    }

    fn lookup_tree(&self, inode: Inode, name: &str, reply: ReplyEntry) {
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

    fn getattr_made(&self, ino: u64, reply: ReplyAttr) {
        if ino == control::DIRECTORY_INO {
            return reply.attr(&FOR_EVER, &self.control_directory());
        }
        let Some(length) = self.snapshots.size(ino) else { return reply.error(Errno::ENOENT) };
        let attributes = match self.snapshots.made(ino) {
            Some(Made::Link(mtime)) => self.owner.link(ino, mtime, length),
            Some(Made::File(mtime)) => self.owner.file(ino, mtime, length),
            _ => self.owner.file(ino, crate::document::Datetime::now().nanos(), length),
        };
        reply.attr(&FOR_EVER, &attributes);
    }

    fn getattr_tree(&self, inode: Inode, reply: ReplyAttr) {
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
        if self.io.may_pass_through(&self.readers) {
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
        let Some(name) = name.to_str() else { return self.negative(reply) };
        match Place::of(parent.0) {
            Some(Place::Made) => self.lookup_made(name, reply),
            Some(Place::Versions(directory)) => self.versions.lookup_in_versions(directory, name, reply),
            Some(Place::Moment(number, directory)) => self.versions.lookup_at(number, directory, name, reply),
            Some(Place::Links(directory)) => {
                let name = name.to_owned();
                self.relate(move |relations| relations.lookup(directory, &name, reply));
            }
            Some(Place::Collection(number)) => {
                let name = name.to_owned();
                self.relate(move |relations| relations.lookup_member(number, &name, reply));
            }
            Some(Place::Uris) => {
                let name = name.to_owned();
                self.relate(move |relations| relations.lookup_uri(&name, reply));
            }
            Some(Place::Tree(Inode::Directory(ROOT))) if name == control::DIRECTORY => {
                reply.entry(&FOR_EVER, &self.control_directory(), self.generation);
            }
            Some(Place::Tree(Inode::Directory(ROOT))) if name == versions::DIRECTORY => {
                let attributes = self.owner.directory(versions_ino(ROOT), 0);
                reply.entry_with_ttls(&NOT_AT_ALL, &FOR_EVER, &attributes, self.generation);
            }
            Some(Place::Tree(inode)) => self.lookup_tree(inode, name, reply),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        match Place::of(ino.0) {
            Some(Place::Made) => self.snapshots.forget(ino.0, lookups),
            place => self.versions.forget(place, lookups),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.count(Kind::Getattr, ino);
        let directory = match Place::of(ino.0) {
            None => return reply.error(Errno::ENOENT),
            Some(Place::Made) => return self.getattr_made(ino.0, reply),
            Some(Place::Tree(inode)) => return self.getattr_tree(inode, reply),
            Some(Place::Versions(name)) => self.versions.directory(name).map(|attributes| (NOT_AT_ALL, attributes)),
            Some(Place::Moment(number, name)) => {
                self.versions.directory_at(number, name).map(|attributes| (FOR_EVER, attributes))
            }
            Some(Place::Links(name)) => {
                return self.relate(move |relations| reply_attributes(relations.directory(name), reply));
            }
            Some(Place::Collection(number)) => {
                return self.relate(move |relations| reply_attributes(relations.collection(number), reply));
            }
            Some(Place::Uris) => Ok((FOR_EVER, self.relations.uris())),
        };
        match directory {
            Ok((ttl, attributes)) => reply.attr(&ttl, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        // All links are made when they are looked up.
        self.requests.count(Kind::Readlink);
        match self.snapshots.get(ino.0) {
            Ok(target) if matches!(self.snapshots.made(ino.0), Some(Made::Link(_))) => reply.data(&target),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.count(Kind::Open, ino);
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(WRITING);
        }
        let resource = match Place::of(ino.0) {
            Some(Place::Tree(Inode::Version(version))) => Some((version, self.io.choice(&self.readers))),
            // The files of `.resourcesync` choose nothing.
            _ => None,
        };
        if let Some((version, choice)) = &resource
            && self.contents.is_due(*version)
        {
            let through = matches!(choice, Some(Choice { way: Way::Passthrough, .. })).then_some(*version);
            let (opened, io, contents) = (Arc::clone(&self.opened), Arc::clone(&self.io), Arc::clone(&self.contents));
            let unique = request.unique();
            let answer = move |is_current: bool| match is_current {
                true => opened.open(unique, ino, through.and_then(|version| contents.ready(version)), &io, reply),
                // The kernel looks up the name once more, and finds the next version.
                false => reply.error(Errno::ESTALE),
            };
            return self.contents.revalidate(*version, Box::new(answer));
        }
        match resource {
            Some((version, Some(Choice { way: Way::Passthrough, .. }))) => {
                self.opened.open(request.unique(), ino, self.contents.ready(version), &self.io, reply);
            }
            // There is nothing to choose by yet: kept count of, since it may still be open when there is.
            Some((_, None)) => self.opened.open(request.unique(), ino, None, &self.io, reply),
            // What opens are to wait for, some time, is opened each time.
            Some((_, Some(Choice { way: Way::Kernel, .. }))) if self.no_open && !self.contents.has_timeless() => {
                reply.error(Errno::ENOSYS)
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
        self.count(Kind::Read, ino);
        if Snapshots::is_ours(ino.0) {
            return match self.snapshots.get(ino.0) {
                Ok(content) => {
                    let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                    let end = begin.saturating_add(size as usize).min(content.len());
                    reply.data(&content[begin..end]);
                }
                Err(errno) => reply.error(errno),
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

    fn readdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.count(Kind::Readdir, ino);
        self.list(ino, offset, Stream::plain(reply));
    }

    fn readdirplus(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.count(Kind::Readdirplus, ino);
        self.list(ino, offset, Stream::plus(reply, self.generation));
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
            return reply.error(Errno::ENOTSUP);
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
        self.count(Kind::Listxattr, ino);
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

/// Lookups of files of `.resourcesync`, which one thread answers.
#[derive(Default)]
struct Waiting {
    /// By file.
    replies: [Vec<ReplyEntry>; control::FILES.len()],
    /// Whether that thread runs.
    is_served: bool,
}

/// The files of `.resourcesync` are made during a fifth of the time at most, however often they are looked up.
const PAUSES: u32 = 4;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The one that answers them. If it ends before it is done, or never begins, what waits is answered with EIO, and the next
/// lookup starts another one.
struct Serving {
    waiting: Arc<Mutex<Waiting>>,
    is_done: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_done {
            let left = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            left.replies.into_iter().flatten().for_each(|reply| reply.error(Errno::EIO));
        }
    }
}

/// Makes the files that lookups wait for, until none do: each once for all that began to wait before it was made.
fn serve_waiting(
    mut serving: Serving,
    contents: &dyn Contents,
    snapshots: &Snapshots,
    owner: Owner,
    generation: Generation,
) {
    loop {
        let replies = {
            let mut waiting = serving.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.is_served = waiting.replies.iter().any(|replies| !replies.is_empty());
            if !waiting.is_served {
                serving.is_done = true;
                return;
            }
            std::mem::take(&mut waiting.replies)
        };
        let began = Instant::now();
        for (name, replies) in control::FILES.iter().zip(replies).filter(|(_, replies)| !replies.is_empty()) {
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| contents.control(name)));
            let Some(content) = made.ok().flatten() else {
                replies.into_iter().for_each(|reply| reply.error(Errno::ENOENT));
                continue;
            };
            let (ino, size) = snapshots.add_current(content, replies.len() as u64, contents.most_snapshots());
            let attributes = owner.file(ino, crate::document::Datetime::now().nanos(), size);
            for reply in replies {
                reply.entry_with_ttls(&FOR_EVER, &NOT_AT_ALL, &attributes, generation);
            }
        }
        std::thread::sleep((began.elapsed() * PAUSES).min(LONGEST_PAUSE));
    }
}

/// Answers with attributes that hold for this request only.
fn reply_attributes(attributes: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match attributes {
        Ok(attributes) => reply.attr(&NOT_AT_ALL, &attributes),
        Err(errno) => reply.error(errno),
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
