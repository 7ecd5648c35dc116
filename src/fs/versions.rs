//! `.versions`: a directory of versions for each resource, and the whole tree as of any moment.
//!
//! What lies below a resource's name is asked of its Source when it is listed, or a moment in it is looked up; then
//! a reply may wait, as long as `timeout`. All else is answered from the catalog. Listings of versions may change,
//! so their attributes are asked for each time, and the time of the directory says whether they did. The tree as of
//! a moment is kept by the kernel until the past changes.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use super::answer::{Answer, Then};
use super::attributes::{Attributes, Entry, UNCACHED, UNLIMITED, ttl};
use super::control::Snapshots;
use super::error::FsError;
use super::inodes::{Moments, Place, moment_ino, versions_ino};
use super::listing::{Sink, add_dots, after};
use super::{Contents, xattr};
use crate::catalog::{
    CatalogError, DirEntry, Ever, Inode, NameId, Node, Pool, ROOT, ROOT_INO, Reader, VersionLog, directory_ino,
    version_ino,
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
    changed: Datetime,
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
    snapshots: Arc<Snapshots>,
    pub(super) moments: Arc<Moments>,
    histories: Mutex<LruCache<NameId, Arc<History>>>,
}

/// What is found under a name.
enum Found {
    Nothing,
    /// The version whose file has this name.
    Version(Node, String),
    /// A symbolic link to this name, with the time of what it names.
    Link(Datetime, String),
}

impl Versions {
    pub(super) fn new(readers: Arc<Pool>, contents: Arc<dyn Contents>, snapshots: Arc<Snapshots>) -> Self {
        let most = NonZeroUsize::new(MOST_HISTORIES).unwrap_or(NonZeroUsize::MIN);
        Self { readers, contents, snapshots, moments: Arc::default(), histories: Mutex::new(LruCache::new(most)) }
    }

    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, FsError> {
        Ok(self.readers.ask(question)?)
    }

    /// The attributes of what lies in `.versions` under a name; of `.versions` itself, for the root's.
    pub(super) fn directory(&self, name: NameId) -> Result<Attributes, FsError> {
        let ever = self.ask(|reader| reader.ever(name))?;
        let changed = match ever.is_directory {
            true => ever.changed,
            false => ever.changed.max(self.contents.asked(ever.resource).as_of),
        };
        Ok(Attributes::directory(versions_ino(name), changed))
    }

    /// The attributes of a directory of the tree as of a moment.
    pub(super) fn directory_at(&self, number: u32, name: NameId) -> Result<Attributes, FsError> {
        let moment = self.moments.moment(number).ok_or(FsError::NotFound)?;
        Ok(Attributes::directory(moment_ino(number, name), moment))
    }

    pub(super) fn forget(&self, place: Option<Place>, lookups: u64) {
        if let Some(Place::Moment(number, name)) = place {
            self.moments.forget(number, name, lookups);
        }
    }

    /// The extended attributes of a directory of versions.
    pub(super) fn xattrs(&self, name: NameId) -> Result<xattr::Attributes, FsError> {
        self.ask(|reader| match reader.ever(name)? {
            Ever { is_directory: true, .. } => Ok(xattr::Attributes::default()),
            Ever { resource, .. } => xattr::of_history(reader, resource, &self.contents.asked(resource)),
        })
    }

    pub(super) fn lookup_in_versions(self: &Arc<Self>, directory: NameId, name: &str) -> Answer<Entry> {
        match name {
            "." => return self.entry_of_directory(directory).into(),
            ".." if directory == ROOT => {
                return Ok(Entry::unlimited(Attributes::directory(ROOT_INO, Datetime::EPOCH))).into();
            }
            ".." => {
                let parent = self.ask(|reader| Ok(reader.parent(directory)?.unwrap_or(ROOT)));
                return parent.and_then(|parent| self.entry_of_directory(parent)).into();
            }
            _ => {}
        }
        match self.ask(|reader| Ok((reader.lookup_ever(directory, name)?, reader.ever(directory)?))) {
            Err(error) => Err(error).into(),
            Ok((Some(below), _)) => self.entry_of_directory(below).into(),
            Ok((None, _)) if directory == ROOT => self.lookup_moment(name).into(),
            Ok((None, ever)) => self.lookup_version(ever, name),
        }
    }

    fn entry_of_directory(&self, name: NameId) -> Result<Entry, FsError> {
        Ok(Entry::with_uncached_attributes(self.directory(name)?))
    }

    fn link(&self, target: String, mtime: Datetime) -> Entry {
        Entry::with_uncached_name(self.snapshots.add_link(target.into_bytes(), mtime))
    }

    /// `@DATETIME`: its own spelling is a directory, all others are links to that.
    fn lookup_moment(&self, name: &str) -> Result<Entry, FsError> {
        let spelled = name.strip_prefix(AT).and_then(|text| Datetime::parse_spelled(text).ok());
        let moment = spelled.ok_or(FsError::NotFound)?;
        let own = format!("{AT}{}", moment.basic(true));
        if own != name {
            return Ok(self.link(own, moment));
        }
        let number = self.moments.number(moment).ok_or(FsError::TooManySnapshots)?;
        Ok(Entry::unlimited(Attributes::directory(moment_ino(number, ROOT), moment)))
    }

    /// A version by the name of its file, or by any moment at which it was in force. Where names lie below the
    /// resource's own, its versions are in `@self`.
    fn lookup_version(self: &Arc<Self>, ever: Ever, name: &str) -> Answer<Entry> {
        let Ever { resource, is_directory, .. } = ever;
        let extension = match self.ask(|reader| reader.versions_extension(resource)) {
            Ok(extension) => extension,
            Err(error) => return Err(error).into(),
        };
        let stem = name.strip_suffix(extension.as_str()).unwrap_or(name);
        // Of versions within a second, `~2` and so on tells one from the other.
        let time = stem.split_once('~').map_or(stem, |(time, _)| time);
        let Some(moment) = [time, name].iter().find_map(|text| Datetime::parse_spelled(text).ok()) else {
            return Err(FsError::NotFound).into();
        };
        let (this, name) = (Arc::clone(self), name.to_owned());
        Answer::later(move |then| {
            let own = Arc::clone(&this);
            // A history may be long.
            own.contents.aside(Box::new(move || this.find_version(resource, name, moment, then)));
        })
        .and_then({
            let this = Arc::clone(self);
            move |found| this.entry_of_version(found, is_directory).ok_or(FsError::NotFound)
        })
    }

    fn entry_of_version(&self, found: Found, is_directory: bool) -> Option<Entry> {
        match found {
            Found::Nothing => None,
            Found::Version(Node::File { mtime, .. }, name) | Found::Link(mtime, name) if is_directory => {
                Some(self.link(format!("{SELF}/{name}"), mtime))
            }
            Found::Version(node, _) => Some(Entry { name_ttl: BRIEFLY, ..Entry::of(&node) }),
            Found::Link(mtime, target) => Some(self.link(target, mtime)),
        }
    }

    /// Finds a version by its name, or by a moment, which the Source is asked for.
    fn find_version(
        self: Arc<Self>,
        resource: NameId,
        name: String,
        moment: Datetime,
        then: Then<Result<Found, FsError>>,
    ) {
        if let Ok(found @ Found::Version(..)) = self.exactly(resource, &name) {
            return then(Ok(found));
        }
        let this = Arc::clone(&self);
        let answered = move |was_asked: bool| {
            then(match this.version_at(resource, &name, moment) {
                Ok(Found::Nothing) if !was_asked => Err(FsError::UnknownHistory),
                found => found,
            });
        };
        self.contents.history(resource, Some(moment), Box::new(answered));
    }

    /// The version whose file has this name, if it can be had.
    fn exactly(&self, resource: NameId, name: &str) -> Result<Found, FsError> {
        let history = self.history(resource)?;
        let found = history.versions.iter().find(|version| version.name == name && !version.places.is_empty());
        Ok(found.map_or(Found::Nothing, |version| Found::Version(file(version), version.name.clone())))
    }

    fn version_at(&self, resource: NameId, name: &str, moment: Datetime) -> Result<Found, FsError> {
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

    pub(super) fn lookup_at(self: &Arc<Self>, number: u32, directory: NameId, name: &str) -> Answer<Entry> {
        let Some(moment) = self.moments.moment(number) else { return Err(FsError::NotFound).into() };
        let of_directory = |name| Node::Directory { ino: directory_ino(name), changed: moment };
        match name {
            "." => return Ok(self.entry_at(number, &of_directory(directory))).into(),
            ".." if directory == ROOT => return self.entry_of_directory(ROOT).into(),
            ".." => {
                let parent = self.ask(|reader| Ok(reader.parent(directory)?.unwrap_or(ROOT)));
                return parent.map(|parent| self.entry_at(number, &of_directory(parent))).into();
            }
            _ => {}
        }
        let found = self.ask(|reader| match reader.lookup_at(directory, name, moment)? {
            None => Ok((None, resource_that_was(reader, directory, name)?)),
            found => Ok((found, None)),
        });
        let resource = match found {
            Err(error) => return Err(error).into(),
            Ok((Some(node), _)) => return Ok(self.entry_at(number, &node)).into(),
            Ok((None, None)) => return Err(FsError::NotFound).into(),
            Ok((None, Some(resource))) => resource,
        };
        let (this, name) = (Arc::clone(self), name.to_owned());
        Answer::later(move |then| {
            let own = Arc::clone(&this);
            let answered = move |was_asked: bool| {
                then(match this.find_at(directory, &name, moment, resource) {
                    Ok(None) if !was_asked => Err(FsError::UnknownHistory),
                    Ok(None) => Err(FsError::NotFound),
                    Ok(Some(node)) => Ok(this.entry_at(number, &node)),
                    Err(error) => Err(error),
                });
            };
            own.contents.history(resource, Some(moment), Box::new(answered));
        })
    }

    /// What a name was at a moment, now that the versions of its resource are known.
    fn find_at(
        &self,
        directory: NameId,
        name: &str,
        moment: Datetime,
        resource: NameId,
    ) -> Result<Option<Node>, FsError> {
        self.ask(|reader| match reader.lookup_at(directory, name, moment)? {
            // What lies below it may have been there: that is asked for by its own name.
            None if name != SELF && reader.ever(resource)?.is_directory => {
                Ok(Some(Node::Directory { ino: directory_ino(resource), changed: moment }))
            }
            found => Ok(found),
        })
    }

    fn entry_at(&self, number: u32, node: &Node) -> Entry {
        match as_of(number, node) {
            Some((name, attributes)) => {
                self.moments.given(number, name);
                Entry::unlimited(attributes)
            }
            None => Entry::of(node),
        }
    }

    pub(super) fn list_at<S: Sink>(&self, number: u32, directory: NameId, offset: u64, mut sink: S) {
        let Some(moment) = self.moments.moment(number) else { return sink.end(Err(FsError::NotFound)) };
        let own = Attributes::directory(moment_ino(number, directory), moment);
        let parent = || {
            Ok(match self.ask(|reader| reader.parent(directory))? {
                Some(parent) => Attributes::directory(moment_ino(number, parent), moment),
                None => Attributes::directory(versions_ino(ROOT), moment),
            })
        };
        let listed = add_dots(&mut sink, offset, &own, parent).and_then(|has_room| match has_room {
            false => Ok(()),
            true => self.ask(|reader| {
                reader.list_at(directory, moment, after(offset), |DirEntry { cookie, name, node }| {
                    let cookie = cookie.unsigned_abs();
                    let Some((number_of_name, attributes)) = as_of(number, &node) else {
                        return sink.add(cookie, &name, &Attributes::of(&node), ttl(&node));
                    };
                    let added = sink.add(cookie, &name, &attributes, UNLIMITED);
                    if added && sink.looks_up() {
                        self.moments.given(number, number_of_name);
                    }
                    added
                })
            }),
        });
        sink.end(listed);
    }

    pub(super) fn list_versions<S: Sink>(self: &Arc<Self>, directory: NameId, offset: u64, sink: S) {
        match self.ask(|reader| reader.ever(directory)) {
            Err(error) => sink.end(Err(error)),
            Ok(Ever { is_directory: true, .. }) => self.list_names(directory, offset, sink),
            Ok(Ever { resource, .. }) if offset == 0 => {
                let this = Arc::clone(self);
                let then = Box::new(move |_| this.list_files(directory, offset, sink, resource));
                self.contents.history(resource, None, then);
            }
            Ok(Ever { resource, .. }) => {
                let this = Arc::clone(self);
                self.contents.aside(Box::new(move || this.list_files(directory, offset, sink, resource)));
            }
        }
    }

    /// The versions of a resource, as they are now.
    fn history(&self, resource: NameId) -> Result<Arc<History>, FsError> {
        let changed = self.ask(|reader| reader.ever(resource))?.changed;
        if let Some(known) = self.histories.lock().get(&resource).filter(|known| known.changed == changed) {
            return Ok(Arc::clone(known));
        }
        let (versions, extension) =
            self.ask(|reader| Ok((reader.versions_of(resource)?, reader.versions_extension(resource)?)))?;
        let mut listed: Vec<usize> = (0..versions.len()).filter(|index| !versions[*index].places.is_empty()).collect();
        listed.sort_unstable_by_key(|index| versions[*index].rank);
        let history = Arc::new(History { changed, versions, listed, extension });
        let mut histories = self.histories.lock();
        let mut most = MOST_VERSIONS.saturating_sub(history.versions.len());
        histories.put(resource, Arc::clone(&history));
        let kept: Vec<(NameId, usize)> =
            histories.iter().skip(1).map(|(name, known)| (*name, known.versions.len())).collect();
        for (name, count) in kept {
            match most.checked_sub(count) {
                Some(left) => most = left,
                None => drop(histories.pop(&name)),
            }
        }
        Ok(history)
    }

    /// A cookie is the rank of a version, so that a listing continues at the right place whatever became known since.
    fn list_files<S: Sink>(&self, directory: NameId, offset: u64, mut sink: S, resource: NameId) {
        let listed = self.history(resource).and_then(|history| {
            if !self.add_dots(&mut sink, directory, offset)? {
                return Ok(());
            }
            let number = |index: &usize| history.versions[*index].rank.unsigned_abs();
            let first = history.listed.partition_point(|index| number(index) <= offset);
            for index in &history.listed[first..] {
                let version = &history.versions[*index];
                let node = file(version);
                if !sink.add(number(index), &version.name, &Attributes::of(&node), ttl(&node).min(BRIEFLY)) {
                    break;
                }
            }
            Ok(())
        });
        sink.end(listed);
    }

    fn list_names<S: Sink>(&self, directory: NameId, offset: u64, mut sink: S) {
        let listed = self.add_dots(&mut sink, directory, offset).and_then(|has_room| match has_room {
            false => Ok(()),
            true => self.ask(|reader| {
                reader.list_ever(directory, after(offset), |id, name| {
                    sink.add(
                        id.number().unsigned_abs(),
                        name,
                        &Attributes::directory(versions_ino(id), Datetime::EPOCH),
                        UNCACHED,
                    )
                })
            }),
        });
        sink.end(listed);
    }

    fn add_dots<S: Sink>(&self, sink: &mut S, directory: NameId, offset: u64) -> Result<bool, FsError> {
        add_dots(sink, offset, &Attributes::directory(versions_ino(directory), Datetime::EPOCH), || {
            let parent = self.ask(|reader| reader.parent(directory))?;
            Ok(Attributes::directory(parent.map_or(ROOT_INO, versions_ino), Datetime::EPOCH))
        })
    }
}

/// A directory of the current tree as one of the tree of a moment: the number of its name, and its attributes.
fn as_of(number: u32, node: &Node) -> Option<(NameId, Attributes)> {
    let Node::Directory { ino, changed } = *node else { return None };
    let Some(Inode::Directory(name)) = Inode::from_ino(ino) else { return None };
    Some((name, Attributes::directory(moment_ino(number, name), changed)))
}

fn file(version: &VersionLog) -> Node {
    Node::File { ino: version_ino(version.id), mtime: version.mtime, size: version.size }
}

/// The resource that has, or had, this name.
fn resource_that_was(reader: &Reader, directory: NameId, name: &str) -> Result<Option<NameId>, CatalogError> {
    if name == SELF {
        return Ok(Some(directory));
    }
    let known = reader.lookup_ever(directory, name)?;
    Ok(known)
}
