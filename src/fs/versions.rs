//! `.versions`: a directory of versions for each resource, and the whole tree as of any moment.
//!
//! What lies below a resource's name is asked of its Source when it is listed, or a moment in it is looked up; then
//! a reply may wait, as long as `timeout`. All else is answered from the catalog. Listings of versions may change,
//! so their attributes are asked for each time, and the time of the directory says whether they did. The tree as of
//! a moment is kept by the kernel until the past changes.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, ReplyEntry};
use lru::LruCache;

use super::attributes::Owner;
use super::control::Snapshots;
use super::inodes::{Moments, Place, moment_ino, versions_ino};
use super::reply::{FOR_EVER, NOT_AT_ALL, ask};
use super::stream::Stream;
use super::{Contents, xattr};
use crate::catalog::{
    CatalogError, DirEntry, Ever, Inode, Node, Pool, ROOT, ROOT_INO, Reader, VersionLog, version_ino,
};
use crate::document::Datetime;
use crate::path::SELF;

/// The name of the directory at the root.
pub(super) const DIRECTORY: &str = ".versions";
/// What the name of a moment's tree begins with.
const AT: char = '@';
/// The most resources, and the most versions of all of them, that are kept between one look and the next.
const MOST_HISTORIES: usize = 64;
const MOST_VERSIONS: usize = 100_000;
/// How long a name in a directory of versions holds: what archives say of the past may turn out to be wrong.
const BRIEFLY: Duration = Duration::from_secs(5);

/// The versions of a resource as they were known at a time.
struct History {
    /// When they changed last.
    changed: i64,
    /// The newest first.
    versions: Vec<VersionLog>,
    /// Places among them of those that can be had, in the order of their ranks.
    listed: Vec<usize>,
    /// That of the resource's name.
    extension: String,
}

pub(super) struct Versions {
    readers: Arc<Pool>,
    contents: Arc<dyn Contents>,
    owner: Owner,
    generation: Generation,
    snapshots: Arc<Snapshots>,
    pub(super) moments: Arc<Moments>,
    histories: Mutex<LruCache<i64, Arc<History>>>,
}

/// What is found under a name.
enum Found {
    Nothing,
    /// The version whose file has this name.
    Version(Node, String),
    /// A symbolic link to this name, with the time of what it names.
    Link(i64, String),
}

impl Versions {
    pub(super) fn new(
        readers: Arc<Pool>,
        contents: Arc<dyn Contents>,
        owner: Owner,
        generation: Generation,
        snapshots: Arc<Snapshots>,
    ) -> Self {
        let most = NonZeroUsize::new(MOST_HISTORIES).unwrap_or(NonZeroUsize::MIN);
        Self {
            readers,
            contents,
            owner,
            generation,
            snapshots,
            moments: Arc::default(),
            histories: Mutex::new(LruCache::new(most)),
        }
    }

    /// The attributes of what lies in `.versions` under a name; of `.versions` itself, for the root's.
    pub(super) fn directory(&self, name: i64) -> Result<FileAttr, Errno> {
        let ever = ask(&self.readers, |reader| reader.ever(name))?;
        let changed = match ever.is_directory {
            true => ever.changed,
            false => ever.changed.max(self.contents.asked(ever.resource).as_of),
        };
        Ok(self.owner.directory(versions_ino(name), changed))
    }

    /// The attributes of a directory of the tree as of a moment.
    pub(super) fn directory_at(&self, number: u32, name: i64) -> Result<FileAttr, Errno> {
        let moment = self.moments.moment(number).ok_or(Errno::ENOENT)?;
        Ok(self.owner.directory(moment_ino(number, name), moment))
    }

    pub(super) fn forget(&self, place: Option<Place>, lookups: u64) {
        if let Some(Place::Moment(number, name)) = place {
            self.moments.forget(number, name, lookups);
        }
    }

    /// What is known of a directory of versions, or of a moment.
    pub(super) fn xattrs(&self, place: Place) -> Result<xattr::Attributes, Errno> {
        match place {
            Place::Versions(name) => ask(&self.readers, |reader| match reader.ever(name)? {
                Ever { is_directory: true, .. } => Ok(xattr::Attributes::default()),
                Ever { resource, .. } => xattr::of_history(reader, resource, &self.contents.asked(resource)),
            }),
            Place::Moment(number, _) => Ok(xattr::of_moment(self.moments.moment(number))),
            Place::Tree(_) | Place::Made | Place::Links(_) | Place::Collection(_) | Place::Uris => {
                Ok(xattr::Attributes::default())
            }
        }
    }

    pub(super) fn lookup_in_versions(self: &Arc<Self>, directory: i64, name: &str, reply: ReplyEntry) {
        let above = |reader: &Reader| Ok(reader.parent(directory)?.unwrap_or(ROOT));
        if name == "." {
            return self.reply_directory(directory, reply);
        }
        if name == ".." {
            return match (directory, ask(&self.readers, above)) {
                (ROOT, _) => reply.entry(&FOR_EVER, &self.owner.directory(ROOT_INO, 0), self.generation),
                (_, Ok(parent)) => self.reply_directory(parent, reply),
                (_, Err(errno)) => reply.error(errno),
            };
        }
        let known = ask(&self.readers, |reader| Ok((reader.lookup_ever(directory, name)?, reader.ever(directory)?)));
        match known {
            Err(errno) => reply.error(errno),
            Ok((Some(below), _)) => self.reply_directory(below, reply),
            Ok((None, _)) if directory == ROOT => self.lookup_moment(name, reply),
            Ok((None, ever)) => self.lookup_version(ever, name, reply),
        }
    }

    fn reply_directory(&self, name: i64, reply: ReplyEntry) {
        match self.directory(name) {
            Ok(attributes) => reply.entry_with_ttls(&NOT_AT_ALL, &FOR_EVER, &attributes, self.generation),
            Err(errno) => reply.error(errno),
        }
    }

    /// There is no such name, as yet.
    fn negative(&self, reply: ReplyEntry) {
        reply.error(Errno::ENOENT);
    }

    fn link(&self, target: String, mtime: i64, reply: ReplyEntry) {
        let (ino, content) = self.snapshots.add_link(target.into_bytes(), mtime);
        let attributes = self.owner.link(ino, mtime, content.len() as u64);
        reply.entry_with_ttls(&FOR_EVER, &NOT_AT_ALL, &attributes, self.generation);
    }

    fn node(&self, node: &Node, name_ttl: &Duration, reply: ReplyEntry) {
        reply.entry_with_ttls(ttl(node), name_ttl, &self.owner.node(node), self.generation);
    }

    /// `@DATETIME`: its own spelling is a directory, all others are links to that.
    fn lookup_moment(&self, name: &str, reply: ReplyEntry) {
        let spelled = name.strip_prefix(AT).and_then(|text| Datetime::parse_spelled(text).ok());
        let Some(moment) = spelled else { return self.negative(reply) };
        let own = format!("{AT}{}", moment.basic(true));
        if own != name {
            return self.link(own, moment.nanos(), reply);
        }
        match self.moments.number(moment.nanos()) {
            Some(number) => {
                let attributes = self.owner.directory(moment_ino(number, ROOT), moment.nanos());
                reply.entry(&FOR_EVER, &attributes, self.generation);
            }
            None => {
                tracing::error!("more moments are looked at than can be told apart; close some");
                reply.error(Errno::ENFILE);
            }
        }
    }

    /// A version by the name of its file, or by any moment at which it was in force. Where names lie below the
    /// resource's own, its versions are in `@self`.
    fn lookup_version(self: &Arc<Self>, ever: Ever, name: &str, reply: ReplyEntry) {
        let Ever { resource, is_directory, .. } = ever;
        let extension = match ask(&self.readers, |reader| reader.versions_extension(resource)) {
            Ok(extension) => extension,
            Err(errno) => return reply.error(errno),
        };
        let stem = name.strip_suffix(extension.as_str()).unwrap_or(name);
        // Of versions within a second, `~2` and so on tells one from the other.
        let time = stem.split_once('~').map_or(stem, |(time, _)| time);
        let Some(moment) = [time, name].iter().find_map(|text| Datetime::parse_spelled(text).ok()) else {
            return self.negative(reply);
        };
        let (this, name) = (Arc::clone(self), name.to_owned());
        let answer = move |this: &Self, found| match found {
            Err(errno) => reply.error(errno),
            Ok(Found::Nothing) => this.negative(reply),
            Ok(Found::Version(Node::File { mtime, .. }, name) | Found::Link(mtime, name)) if is_directory => {
                this.link(format!("{SELF}/{name}"), mtime, reply);
            }
            Ok(Found::Version(node, _)) => this.node(&node, &BRIEFLY, reply),
            Ok(Found::Link(mtime, target)) => this.link(target, mtime, reply),
        };
        // A history may be long.
        self.contents.aside(Box::new(move || {
            if let Ok(found @ Found::Version(..)) = this.exactly(resource, &name) {
                return answer(&this, Ok(found));
            }
            let contents = Arc::clone(&this.contents);
            let then = Box::new(move |asked: bool| {
                let found = match this.version_at(resource, &name, moment) {
                    // Nobody knows whether there is none.
                    Ok(Found::Nothing) if !asked => Err(Errno::EIO),
                    found => found,
                };
                answer(&this, found);
            });
            contents.history(resource, Some(moment), then);
        }));
    }

    /// The version whose file has this name, if it can be had.
    fn exactly(&self, resource: i64, name: &str) -> Result<Found, Errno> {
        let history = self.history(resource)?;
        let found = history.versions.iter().find(|version| version.name == name && !version.places.is_empty());
        Ok(found.map_or(Found::Nothing, |version| Found::Version(file(version), version.name.clone())))
    }

    fn version_at(&self, resource: i64, name: &str, moment: Datetime) -> Result<Found, Errno> {
        if let found @ Found::Version(..) = self.exactly(resource, name)? {
            return Ok(found);
        }
        let history = self.history(resource)?;
        // Another spelling of a version's own name means that version, whatever fraction of its second is left out.
        let own = format!("{}{}", moment.basic(true), history.extension);
        let mut versions = history.versions.iter();
        let found = versions.clone().find(|version| version.name == own);
        let found = found.or_else(|| versions.find(|version| version.in_force(moment)));
        let found = found.filter(|version| !version.places.is_empty());
        Ok(found.map_or(Found::Nothing, |version| Found::Link(version.mtime, version.name.clone())))
    }

    pub(super) fn lookup_at(self: &Arc<Self>, number: u32, directory: i64, name: &str, reply: ReplyEntry) {
        let Some(moment) = self.moments.moment(number) else { return reply.error(Errno::ENOENT) };
        if name == "." || name == ".." && directory == ROOT {
            return match name {
                "." => self.reply_at(
                    number,
                    &Node::Directory { ino: moment_ino(number, directory), changed: moment },
                    reply,
                ),
                _ => self.reply_directory(ROOT, reply),
            };
        }
        let found = ask(&self.readers, |reader| match name {
            ".." => {
                let ino = crate::catalog::directory_ino(reader.parent(directory)?.unwrap_or(ROOT));
                Ok((Some(Node::Directory { ino, changed: moment }), None))
            }
            _ => match reader.lookup_at(directory, name, moment)? {
                None => Ok((None, resource_that_was(reader, directory, name)?)),
                found => Ok((found, None)),
            },
        });
        let resource = match found {
            Err(errno) => return reply.error(errno),
            Ok((Some(node), _)) => return self.reply_at(number, &node, reply),
            Ok((None, None)) => return self.negative(reply),
            Ok((None, Some(resource))) => resource,
        };
        let (this, name) = (Arc::clone(self), name.to_owned());
        let then = move |asked: bool| {
            let found = ask(&this.readers, |reader| match reader.lookup_at(directory, &name, moment)? {
                None if name != SELF && reader.ever(resource)?.is_directory => {
                    // What lies below it may have been there: that is asked for by its own name.
                    let ino = crate::catalog::directory_ino(resource);
                    Ok(Some(Node::Directory { ino, changed: moment }))
                }
                found => Ok(found),
            });
            match found {
                Err(errno) => reply.error(errno),
                // Nobody knows whether there is none.
                Ok(None) if !asked => reply.error(Errno::EIO),
                Ok(None) => this.negative(reply),
                Ok(Some(node)) => this.reply_at(number, &node, reply),
            }
        };
        self.contents.history(resource, Some(Datetime::from_nanos(moment)), Box::new(then));
    }

    fn reply_at(&self, number: u32, node: &Node, reply: ReplyEntry) {
        match self.own_directory(number, node) {
            Some(attributes) => {
                self.given(number, &attributes);
                reply.entry(&FOR_EVER, &attributes, self.generation);
            }
            None => self.node(node, &FOR_EVER, reply),
        }
    }

    /// The kernel is given a directory of a moment's tree.
    fn given(&self, number: u32, attributes: &FileAttr) {
        if let Some(Place::Moment(_, name)) = Place::of(attributes.ino.0) {
            self.moments.given(number, name);
        }
    }

    /// The attributes of a directory of the current tree as one of a moment's.
    fn own_directory(&self, number: u32, node: &Node) -> Option<FileAttr> {
        let Node::Directory { ino, changed } = *node else { return None };
        let name = match Place::of(ino) {
            Some(Place::Tree(Inode::Directory(name)) | Place::Moment(_, name)) => name,
            _ => return None,
        };
        Some(self.owner.directory(moment_ino(number, name), changed))
    }

    pub(super) fn list_at(&self, number: u32, directory: i64, offset: u64, mut stream: Stream) {
        let Some(moment) = self.moments.moment(number) else { return stream.end(Err(Errno::ENOENT)) };
        let listed = ask(&self.readers, |reader| {
            let own = self.owner.directory(moment_ino(number, directory), moment);
            let above = match reader.parent(directory)? {
                Some(parent) => self.owner.directory(moment_ino(number, parent), moment),
                None => self.owner.directory(versions_ino(ROOT), moment),
            };
            if !dots(&mut stream, offset, &own, &above) {
                return Ok(());
            }
            reader.list_at(directory, moment, after(offset), |DirEntry { cookie, name, node }| {
                let cookie = cookie.unsigned_abs();
                match self.own_directory(number, &node) {
                    Some(attributes) => {
                        let added = stream.add(cookie, &name, &attributes, &FOR_EVER);
                        if added && stream.looks_up() {
                            self.given(number, &attributes);
                        }
                        added
                    }
                    None => stream.add(cookie, &name, &self.owner.node(&node), ttl(&node)),
                }
            })
        });
        stream.end(listed);
    }

    pub(super) fn list_versions(self: &Arc<Self>, directory: i64, offset: u64, stream: Stream) {
        match ask(&self.readers, |reader| reader.ever(directory)) {
            Err(errno) => stream.end(Err(errno)),
            Ok(Ever { is_directory: true, .. }) => self.list_names(directory, offset, stream),
            Ok(Ever { resource, .. }) if offset == 0 => {
                let this = Arc::clone(self);
                let then = Box::new(move |_| this.list_files(directory, offset, stream, resource));
                self.contents.history(resource, None, then);
            }
            Ok(Ever { resource, .. }) => {
                let this = Arc::clone(self);
                self.contents.aside(Box::new(move || this.list_files(directory, offset, stream, resource)));
            }
        }
    }

    /// The versions of a resource, as they are now.
    fn history(&self, resource: i64) -> Result<Arc<History>, Errno> {
        let changed = ask(&self.readers, |reader| reader.ever(resource))?.changed;
        let locked = || self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = locked().get(&resource).filter(|known| known.changed == changed) {
            return Ok(Arc::clone(known));
        }
        let (versions, extension) =
            ask(&self.readers, |reader| Ok((reader.versions_of(resource)?, reader.versions_extension(resource)?)))?;
        let mut listed: Vec<usize> = (0..versions.len()).filter(|index| !versions[*index].places.is_empty()).collect();
        listed.sort_unstable_by_key(|index| versions[*index].rank);
        let history = Arc::new(History { changed, versions, listed, extension });
        let mut histories = locked();
        let mut most = MOST_VERSIONS.saturating_sub(history.versions.len());
        histories.put(resource, Arc::clone(&history));
        let kept: Vec<(i64, usize)> =
            histories.iter().skip(1).map(|(name, known)| (*name, known.versions.len())).collect();
        for (name, count) in kept {
            match most.checked_sub(count) {
                Some(left) => most = left,
                None => drop(histories.pop(&name)),
            }
        }
        Ok(history)
    }

    /// A cookie is the rank of a version, so that a listing goes on at the right place whatever became known
    /// meanwhile.
    fn list_files(&self, directory: i64, offset: u64, mut stream: Stream, resource: i64) {
        let listed = self.history(resource).and_then(|history| {
            if !self.both_dots(&mut stream, directory, offset)? {
                return Ok(());
            }
            let number = |index: &usize| history.versions[*index].rank.unsigned_abs();
            let first = history.listed.partition_point(|index| number(index) <= offset);
            for index in &history.listed[first..] {
                let version = &history.versions[*index];
                let node = file(version);
                let attributes = self.owner.node(&node);
                if !stream.add(number(index), &version.name, &attributes, ttl(&node).min(&BRIEFLY)) {
                    break;
                }
            }
            Ok(())
        });
        stream.end(listed);
    }

    fn list_names(&self, directory: i64, offset: u64, mut stream: Stream) {
        let listed = self.both_dots(&mut stream, directory, offset).and_then(|more| match more {
            false => Ok(()),
            true => ask(&self.readers, |reader| {
                reader.list_ever(directory, after(offset), |id, name| {
                    let attributes = self.owner.directory(versions_ino(id), 0);
                    stream.add(id.unsigned_abs(), name, &attributes, &NOT_AT_ALL)
                })
            }),
        });
        stream.end(listed);
    }

    fn both_dots(&self, stream: &mut Stream, directory: i64, offset: u64) -> Result<bool, Errno> {
        let own = self.owner.directory(versions_ino(directory), 0);
        let above = match ask(&self.readers, |reader| reader.parent(directory))? {
            Some(parent) => self.owner.directory(versions_ino(parent), 0),
            None => self.owner.directory(ROOT_INO, 0),
        };
        Ok(dots(stream, offset, &own, &above))
    }
}

/// Where a listing by names goes on.
fn after(offset: u64) -> Option<i64> {
    i64::try_from(offset).ok().filter(|after| *after >= 8)
}

fn dots(stream: &mut Stream, offset: u64, own: &FileAttr, above: &FileAttr) -> bool {
    (offset >= 1 || stream.add(1, ".", own, &NOT_AT_ALL)) && (offset >= 2 || stream.add(2, "..", above, &NOT_AT_ALL))
}

/// How long the attributes of a node hold.
fn ttl(node: &Node) -> &'static Duration {
    if matches!(node, Node::File { size: None, .. }) { &NOT_AT_ALL } else { &FOR_EVER }
}

fn file(version: &VersionLog) -> Node {
    Node::File { ino: version_ino(version.id), mtime: version.mtime, size: version.size }
}

/// The resource that has, or had, this name.
fn resource_that_was(reader: &Reader, directory: i64, name: &str) -> Result<Option<i64>, CatalogError> {
    if name == SELF {
        return Ok(Some(directory));
    }
    let known = reader.lookup_ever(directory, name)?;
    Ok(known)
}
