//! What every inode is: the current tree, `.versions` and `.resourcesync`, without the kernel.
//!
//! Each request has a method that returns its [`Answer`], or, for listings, ends its [`Sink`]. What would wait for the
//! Source, or would take a dispatch thread too long, is answered later, from another thread.

use crate::document::Datetime;
use std::sync::Arc;

use super::answer::Answer;
use super::attributes::{Attributes, Entry, UNCACHED, UNLIMITED};
use super::control::{self, Snapshots};
use super::control_files::ControlFiles;
use super::error::FsError;
use super::inodes::{Moments, Place, collection_ino, links_ino, versions_ino};
use super::listing::Sink;
use super::related::{self, Collections, Relations};
use super::versions::{self, Versions};
use super::{Contents, current, xattr};
use crate::catalog::{CatalogError, Inode, Node, Pool, ROOT, ROOT_INO, Reader, VersionId};
use crate::store::Body;

/// The content of a regular file.
#[derive(Debug)]
pub enum Content {
    /// Of a version.
    Version(Body),
    /// Of a file of `.resourcesync`.
    Control(Arc<Vec<u8>>),
}

/// The tree of a mount.
pub struct Tree {
    readers: Arc<Pool>,
    contents: Arc<dyn Contents>,
    /// Whether `.resourcesync` and `.versions` are listed in the root.
    visible: bool,
    snapshots: Arc<Snapshots>,
    control_files: ControlFiles,
    versions: Arc<Versions>,
    relations: Arc<Relations>,
    recent: xattr::Recent,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("visible", &self.visible).finish_non_exhaustive()
    }
}

impl Tree {
    /// The tree of a catalog, whose contents are fetched by `contents`. `visible` tells whether the root lists
    /// `.resourcesync` and `.versions`.
    #[must_use]
    pub fn new(readers: Arc<Pool>, contents: Arc<dyn Contents>, visible: bool) -> Self {
        let snapshots = Arc::<Snapshots>::default();
        let versions = Versions::new(Arc::clone(&readers), Arc::clone(&contents), Arc::clone(&snapshots));
        let relations = Relations::new(Arc::clone(&readers), Arc::clone(&snapshots));
        Self {
            control_files: ControlFiles::new(Arc::clone(&contents), Arc::clone(&snapshots)),
            readers,
            contents,
            visible,
            snapshots,
            versions: Arc::new(versions),
            relations: Arc::new(relations),
            recent: xattr::Recent::new(),
        }
    }

    /// The moments whose trees the kernel knows of.
    #[must_use]
    pub fn moments(&self) -> Arc<Moments> {
        Arc::clone(&self.versions.moments)
    }

    /// When collections changed.
    #[must_use]
    pub fn collections(&self) -> Arc<Collections> {
        Arc::clone(&self.relations.collections)
    }

    /// Queries the catalog.
    pub(super) fn readers(&self) -> &Pool {
        &self.readers
    }

    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, FsError> {
        Ok(self.readers.ask(question)?)
    }

    /// Answers what is about links, collections and URIs from another thread.
    fn relate<T: Send + 'static>(
        &self,
        answer: impl FnOnce(&Relations) -> Result<T, FsError> + Send + 'static,
    ) -> Answer<T> {
        let (relations, contents) = (Arc::clone(&self.relations), Arc::clone(&self.contents));
        Answer::later(move |then| contents.aside(Box::new(move || then(answer(&relations)))))
    }

    /// Looks a name up in a directory. `None` means that there is no such name, which the kernel may remember until it is
    /// told otherwise; [`FsError::NotFound`] means that there is none as yet.
    pub fn lookup(&self, parent: u64, name: &str) -> Answer<Option<Entry>> {
        let found = match Place::of(parent) {
            Some(Place::Tree(Inode::Directory(ROOT))) if name == control::DIRECTORY => {
                Ok(Entry::unlimited(control::directory())).into()
            }
            Some(Place::Tree(Inode::Directory(ROOT))) if name == versions::DIRECTORY => {
                Ok(Entry::with_uncached_attributes(Attributes::directory(versions_ino(ROOT), Datetime::EPOCH))).into()
            }
            Some(Place::Tree(inode)) => return self.ask(|reader| current::lookup(reader, inode, name)).into(),
            Some(Place::Made) => self.lookup_made(name),
            Some(Place::Versions(directory)) => self.versions.lookup_in_versions(directory, name),
            Some(Place::Moment(number, directory)) => self.versions.lookup_at(number, directory, name),
            Some(Place::Links(directory)) => {
                let name = name.to_owned();
                self.relate(move |relations| relations.lookup(directory, &name))
            }
            Some(Place::Collection(number)) => {
                let name = name.to_owned();
                self.relate(move |relations| relations.lookup_member(number, &name))
            }
            Some(Place::Uris) => {
                let name = name.to_owned();
                self.relate(move |relations| relations.lookup_uri(&name))
            }
            None => Err(FsError::NotFound).into(),
        };
        found.map(Some)
    }

    fn lookup_made(&self, name: &str) -> Answer<Entry> {
        match name {
            "." => Ok(Entry::unlimited(control::directory())).into(),
            ".." => Ok(Entry::unlimited(Attributes::directory(ROOT_INO, Datetime::EPOCH))).into(),
            related::LINKS => self.relate(|relations| relations.directory(ROOT)).map(Entry::uncached),
            related::COLLECTIONS => self.relate(|relations| relations.collection(related::ALL)).map(Entry::uncached),
            related::BY_URI => Ok(Entry::uncached(Relations::uris())).into(),
            _ => self.control_files.lookup(name),
        }
    }

    /// The kernel forgets an inode that was looked up so often.
    pub fn forget(&self, ino: u64, lookups: u64) {
        match Place::of(ino) {
            Some(Place::Made) => self.snapshots.forget(ino, lookups),
            place => self.versions.forget(place, lookups),
        }
    }

    /// The attributes of an inode, and how long they hold.
    pub fn getattr(&self, ino: u64) -> Answer<(Attributes, std::time::Duration)> {
        let unlimited = |attributes| (attributes, UNLIMITED);
        let uncached = |attributes| (attributes, UNCACHED);
        match Place::of(ino) {
            None => Err(FsError::NotFound).into(),
            Some(Place::Made) if ino == control::DIRECTORY_INO => Ok(unlimited(control::directory())).into(),
            Some(Place::Made) => self.snapshots.attributes(ino).map(unlimited).into(),
            Some(Place::Tree(inode)) => self.getattr_current(inode).map(unlimited),
            Some(Place::Versions(name)) => self.versions.directory(name).map(uncached).into(),
            Some(Place::Moment(number, name)) => self.versions.directory_at(number, name).map(unlimited).into(),
            Some(Place::Links(name)) => self.relate(move |relations| relations.directory(name)).map(uncached),
            Some(Place::Collection(number)) => self.relate(move |relations| relations.collection(number)).map(uncached),
            Some(Place::Uris) => Ok(unlimited(Relations::uris())).into(),
        }
    }

    /// A size that is not known is fetched.
    fn getattr_current(&self, inode: Inode) -> Answer<Attributes> {
        let node = match self.ask(|reader| reader.node(inode)) {
            Err(error) => return Err(error).into(),
            Ok(None) => return Err(FsError::NotFound).into(),
            Ok(Some(node)) => node,
        };
        let (Node::File { ino, mtime, size: None }, Inode::Version(version)) = (node, inode) else {
            return Ok(Attributes::of(&node)).into();
        };
        let contents = Arc::clone(&self.contents);
        Answer::later(move |then| {
            let sized = move |size: Result<u64, _>| {
                then(size.map(|size| Attributes::file(ino, mtime, size)).map_err(FsError::Content));
            };
            contents.size(version, Box::new(sized));
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::NotALink`] if this is none.
    pub fn readlink(&self, ino: u64) -> Result<Arc<Vec<u8>>, FsError> {
        // All links are made when they are looked up.
        self.snapshots.target(ino)
    }

    /// The version that is read under an inode number; none of what chooses nothing, as a file of `.resourcesync`.
    pub(super) fn version(ino: u64) -> Option<VersionId> {
        match Place::of(ino) {
            Some(Place::Tree(Inode::Version(version))) => Some(version),
            _ => None,
        }
    }

    /// Opens a file. Content of which the Source lists neither a digest nor a time is revalidated; if its server has other content,
    /// the error is [`FsError::Stale`], and the name leads to the next version.
    pub fn open(&self, ino: u64) -> Answer<()> {
        let Some(version) = Self::version(ino).filter(|version| self.contents.is_due(*version)) else {
            return Ok(()).into();
        };
        let contents = Arc::clone(&self.contents);
        Answer::later(move |then| {
            let revalidated = move |is_current| then(if is_current { Ok(()) } else { Err(FsError::Stale) });
            contents.revalidate(version, Box::new(revalidated));
        })
    }

    /// Content of which `offset` to `offset + len` can be read.
    pub fn read(&self, ino: u64, offset: u64, len: u32) -> Answer<Content> {
        if Snapshots::is_ours(ino) {
            return self.snapshots.get(ino).map(Content::Control).into();
        }
        let Some(Inode::Version(version)) = Inode::from_ino(ino) else { return Err(FsError::IsADirectory).into() };
        if let Some(body) = self.contents.ready(version) {
            return Ok(Content::Version(body)).into();
        }
        let contents = Arc::clone(&self.contents);
        Answer::later(move |then| {
            let fetched = move |body: Result<Body, _>| then(body.map(Content::Version).map_err(FsError::Content));
            contents.read(version, offset, u64::from(len), Box::new(fetched));
        })
    }

    /// Lists a directory from after `offset`, the cookie of the entry that was listed last.
    pub fn list<S: Sink>(&self, ino: u64, offset: u64, mut sink: S) {
        match Place::of(ino) {
            Some(Place::Versions(name)) => self.versions.list_versions(name, offset, sink),
            Some(Place::Moment(number, name)) => self.versions.list_at(number, name, offset, sink),
            Some(Place::Links(name)) => self.list_related(move |relations| relations.list(name, offset, sink)),
            Some(Place::Collection(number)) => {
                self.list_related(move |relations| relations.list_members(number, offset, sink));
            }
            Some(Place::Uris) => Relations::list_uris(offset, sink),
            Some(Place::Made) => {
                list_control(offset, &mut sink);
                sink.end(Ok(()));
            }
            Some(Place::Tree(Inode::Directory(directory))) => {
                let visible = self.visible && directory == ROOT;
                let listed =
                    self.ask(|reader| current::list(reader, directory, offset, visible, &mut sink)).map(|unknown| {
                        if !unknown.is_empty() {
                            self.contents.expect_sizes(unknown);
                        }
                    });
                sink.end(listed);
            }
            _ => sink.end(Err(FsError::NotADirectory)),
        }
    }

    fn list_related(&self, list: impl FnOnce(&Relations) + Send + 'static) {
        let relations = Arc::clone(&self.relations);
        self.contents.aside(Box::new(move || list(&relations)));
    }

    /// The extended attributes of an inode.
    ///
    /// # Errors
    /// If the catalog cannot be read, or has no such version.
    pub fn xattrs(&self, ino: u64) -> Result<Arc<xattr::Attributes>, FsError> {
        match Place::of(ino) {
            Some(Place::Tree(Inode::Version(version))) => {
                // A process that reads attributes in a loop keeps this thread busy: other threads run first.
                std::thread::yield_now();
                // Before the query: the attributes may be newer than this number, never older.
                let commits = self.readers.commits();
                let verified = self.contents.verified(version);
                if let Some(known) = self.recent.get(version, commits, verified) {
                    return Ok(known);
                }
                let (row, links) = self.ask(|reader| xattr::facts(reader, version))?.ok_or(FsError::NotFound)?;
                let attributes = Arc::new(xattr::attributes(&row, &links, verified));
                self.recent.put(version, commits, verified, &attributes);
                Ok(attributes)
            }
            Some(Place::Versions(name)) => self.versions.xattrs(name).map(Arc::new),
            Some(Place::Moment(number, _)) => Ok(Arc::new(xattr::of_moment(self.versions.moments.moment(number)))),
            _ => Ok(Arc::default()),
        }
    }
}

fn list_control<S: Sink>(offset: u64, sink: &mut S) {
    // `uris` is not listed: what is there is found by its URI alone.
    let fixed = [
        (".", control::directory()),
        ("..", Attributes::directory(ROOT_INO, Datetime::EPOCH)),
        (related::LINKS, Attributes::directory(links_ino(ROOT), Datetime::EPOCH)),
        (related::COLLECTIONS, Attributes::directory(collection_ino(related::ALL), Datetime::EPOCH)),
    ];
    let files = control::FILES.iter().zip(1..).map(|(name, number)| {
        // Made for the listing, it would count as looked up.
        (*name, Attributes::file(control::DIRECTORY_INO + (1 << 61) + number, Datetime::EPOCH, 0))
    });
    let (dots, directories) = fixed.split_at(2);
    let all = dots.iter().copied().chain(files).chain(directories.iter().copied());
    for ((name, attributes), cookie) in all.zip(1..).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
        if !sink.add(cookie, name, &attributes, UNCACHED) {
            break;
        }
    }
}
