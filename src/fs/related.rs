//! `.resourcesync/links`, `.resourcesync/collections` and `.resourcesync/uris`: where the links of resources lead.
//!
//! Below `links` each resource is a directory, under its own path, with an entry for each of its links: a symbolic link where
//! the target is in the mirror, else a file with the URI. Below `collections` each collection is a directory of symbolic links
//! to its members. Below `uris` a resource is found by its URI, or by its canonical one, written as one name; none is listed.
//! All of it is made when it is looked up, by indexes of the catalog, and nothing of it lasts in the kernel: a commit has
//! nothing to invalidate. Every local user can ask for any of it, so requests are answered by threads of their own.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::attributes::{Attributes, Entry, UNCACHED};
use super::control::{self, Made, Snapshots};
use super::error::FsError;
use super::inodes::{URIS, collection_ino, links_ino};
use super::listing::{Sink, add_dots};
use crate::catalog::{CatalogError, NameId, Pool, ROOT, Reader, Related};
use crate::document::Datetime;
use crate::path::shortened;

/// The directory of links in `.resourcesync`.
pub(super) const LINKS: &str = "links";
/// The directory of collections there.
pub(super) const COLLECTIONS: &str = "collections";
/// The directory of resources by their URIs.
pub(super) const BY_URI: &str = "uris";
/// The number of that of collections, as a collection.
pub(super) const ALL: u64 = 0;

/// When the tree changed last.
#[derive(Debug, Default)]
pub struct Collections {
    /// By our clock, in nanoseconds.
    changed: AtomicI64,
}

impl Collections {
    /// The tree is another.
    pub fn forget(&self) {
        self.changed.store(Datetime::now().nanos(), Ordering::Release);
    }

    fn changed(&self) -> Datetime {
        Datetime::from_nanos(self.changed.load(Ordering::Acquire))
    }
}

/// The two directories.
pub(super) struct Relations {
    readers: Arc<Pool>,
    snapshots: Arc<Snapshots>,
    pub(super) collections: Arc<Collections>,
}

/// The name of a relation as a file may be called; of one that is repeated, with its number.
fn relation_name(relation: &str, repeated: usize) -> String {
    let mut name = relation.replace('%', "%25").replace('/', "%2F").replace('~', "%7E");
    name.retain(|c| !c.is_control());
    if matches!(name.as_str(), "" | "." | "..") {
        name.push('~');
    }
    if repeated > 0 {
        name = format!("{name}~{}", repeated + 1);
    }
    shortened(&name).into_owned()
}

/// The links of a resource by the names that they are shown under.
fn named(links: Vec<Related>) -> Vec<(String, Related)> {
    let mut all: Vec<(String, Related)> = Vec::with_capacity(links.len());
    let mut repeated = 0;
    for link in links {
        repeated = match all.last() {
            Some((_, before)) if before.relation == link.relation => repeated + 1,
            _ => 0,
        };
        all.push((relation_name(&link.relation, repeated), link));
    }
    all
}

/// What a member of a collection is called there: its path in one name.
fn member_name(path: &str) -> Cow<'_, str> {
    match path.contains(['/', '%']) {
        true => Cow::Owned(shortened(&path.replace('%', "%25").replace('/', "%2F")).into_owned()),
        false => Cow::Borrowed(path),
    }
}

/// The path, or the URI, that was written as one name.
fn written(name: &str) -> String {
    name.replace("%2F", "/").replace("%25", "%")
}

/// Names from this length on may have been cut.
const LONG: usize = 200;
/// The longest that one question takes: who asks them all keeps few threads busy, and for no longer.
const LONGEST: Duration = Duration::from_millis(500);

/// The target of a symbolic link that lies so many directories below the root of the mount.
fn target(depth: usize, path: &str) -> String {
    format!("{}{path}", "../".repeat(depth))
}

impl Relations {
    pub(super) fn new(readers: Arc<Pool>, snapshots: Arc<Snapshots>) -> Self {
        Self { readers, snapshots, collections: Arc::default() }
    }

    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, FsError> {
        Ok(self.readers.ask_within(LONGEST, question)?)
    }

    /// The attributes of a directory in `links`: it is as old as the last change of its resource, or of what is below it.
    pub(super) fn directory(&self, name: NameId) -> Result<Attributes, FsError> {
        let shown = self.ask(|reader| reader.shown_by_number(name))?.ok_or(FsError::NotFound)?;
        // Any change may decide whether a target is in the mirror.
        Ok(Attributes::directory(links_ino(name), shown.changed.max(self.collections.changed())))
    }

    /// An entry that is made, and is the same whenever it is looked up.
    fn made(&self, place: &str, content: String, made: Made) -> Entry {
        Entry::with_uncached_name(self.snapshots.add_same(place, content.into_bytes(), made))
    }

    /// Looks a name up in a directory of `links`.
    pub(super) fn lookup(&self, directory: NameId, name: &str) -> Result<Entry, FsError> {
        match name {
            "." => return Ok(Entry::uncached(self.directory(directory)?)),
            ".." => return Ok(Entry::uncached(self.parent(directory)?)),
            _ => {}
        }
        match self.ask(|reader| find_in_links(reader, directory, name))? {
            None => Err(FsError::NotFound),
            Some(Found::Directory(name)) => Ok(Entry::uncached(self.directory(name)?)),
            Some(Found::Link { to: Some(to), path, changed, .. }) => {
                // `.resourcesync`, `links`, and the path itself, whose last name is a directory here.
                let target = target(2 + path.split('/').count(), &to);
                Ok(self.made(&format!("{path}/{name}"), target, Made::Link(changed)))
            }
            Some(Found::Link { uri, path, changed, .. }) => {
                Ok(self.made(&format!("{path}/{name}"), format!("{uri}\n"), Made::File(changed)))
            }
        }
    }

    /// The directory that a directory of `links` is in.
    fn parent(&self, directory: NameId) -> Result<Attributes, FsError> {
        match self.ask(|reader| reader.parent(directory))? {
            Some(parent) => self.directory(parent),
            None => Ok(control::directory()),
        }
    }

    /// Lists a directory of `links`.
    pub(super) fn list<S: Sink>(&self, directory: NameId, offset: u64, mut sink: S) {
        let own = Attributes::directory(links_ino(directory), Datetime::EPOCH);
        let parent = || {
            let parent = self.ask(|reader| reader.parent(directory))?;
            Ok(parent.map_or(control::directory(), |parent| Attributes::directory(links_ino(parent), Datetime::EPOCH)))
        };
        let listed = add_dots(&mut sink, offset, &own, parent).and_then(|has_room| match has_room {
            false => Ok(()),
            true => self.ask(|reader| list_links(reader, directory, offset, &mut sink)),
        });
        sink.end(listed);
    }

    /// The attributes of the directory of a collection, or of all.
    pub(super) fn collection(&self, number: u64) -> Result<Attributes, FsError> {
        let is_there = number == ALL || self.ask(|reader| reader.is_collection(signed(number)))?;
        match is_there {
            true => Ok(Attributes::directory(collection_ino(number), self.collections.changed())),
            false => Err(FsError::NotFound),
        }
    }

    /// Looks a collection up among all, or a member in a collection.
    pub(super) fn lookup_member(&self, number: u64, name: &str) -> Result<Entry, FsError> {
        let directory = match (name, number) {
            (".", _) => self.collection(number)?,
            ("..", ALL) => control::directory(),
            ("..", _) => self.collection(ALL)?,
            (_, ALL) => {
                let found = self.ask(|reader| reader.collection_called(name))?.ok_or(FsError::NotFound)?;
                self.collection(found.unsigned_abs())?
            }
            _ => {
                let path = self.ask(|reader| member_path(reader, signed(number), name))?.ok_or(FsError::NotFound)?;
                let made = Made::Link(self.collections.changed());
                return Ok(self.made(&format!("{number}/{name}"), target(3, &path), made));
            }
        };
        Ok(Entry::uncached(directory))
    }

    /// The attributes of `uris`.
    pub(super) fn uris() -> Attributes {
        Attributes::directory(URIS, Datetime::EPOCH)
    }

    /// Looks a resource up by a URI in which slashes are written as `%2F` and percent signs as `%25`.
    pub(super) fn lookup_uri(&self, name: &str) -> Result<Entry, FsError> {
        match name {
            "." => return Ok(Entry::uncached(Self::uris())),
            ".." => return Ok(Entry::uncached(control::directory())),
            _ => {}
        }
        let uri = written(name);
        let found = match self.ask(|reader| reader.path_of_uri(&uri, ROOT))? {
            None => self.ask(|reader| reader.canonical(&uri)?.map(|name| reader.tree_path(name)).transpose())?,
            found => found,
        };
        Ok(self.made(name, target(2, &found.ok_or(FsError::NotFound)?), Made::Link(Datetime::EPOCH)))
    }

    /// Lists nothing: a resource is found there by its URI alone.
    pub(super) fn list_uris<S: Sink>(offset: u64, mut sink: S) {
        let listed = add_dots(&mut sink, offset, &Self::uris(), || Ok(control::directory())).map(|_| ());
        sink.end(listed);
    }

    /// Lists all collections, or the members of one.
    pub(super) fn list_members<S: Sink>(&self, number: u64, offset: u64, mut sink: S) {
        let own = Attributes::directory(collection_ino(number), Datetime::EPOCH);
        let parent = match number {
            ALL => control::directory(),
            _ => Attributes::directory(collection_ino(ALL), Datetime::EPOCH),
        };
        let listed = add_dots(&mut sink, offset, &own, || Ok(parent)).and_then(|has_room| {
            if !has_room {
                return Ok(());
            }
            let after = i64::try_from(offset.saturating_sub(2)).unwrap_or(i64::MAX);
            self.ask(|reader| {
                if number == ALL {
                    return reader.collections(after, |number, name| {
                        let own = number.unsigned_abs();
                        let attributes = Attributes::directory(collection_ino(own), self.collections.changed());
                        sink.add(own + 2, name, &attributes, UNCACHED)
                    });
                }
                reader.members(signed(number), after, |version, member| {
                    let path = reader.tree_path(member)?;
                    let cookie = version.unsigned_abs() + 2;
                    Ok(sink.add(cookie, &member_name(&path), &listed_only(true, cookie), UNCACHED))
                })
            })
        });
        sink.end(listed);
    }
}

/// What a name in `links` is.
enum Found {
    Directory(NameId),
    Link { uri: String, to: Option<String>, path: String, changed: Datetime },
}

fn find_in_links(reader: &Reader, directory: NameId, name: &str) -> Result<Option<Found>, CatalogError> {
    let Some(shown) = reader.shown_by_number(directory)? else { return Ok(None) };
    let Some(version) = shown.version else {
        return Ok(reader.shown(directory, name)?.map(|below| Found::Directory(below.name)));
    };
    let links = named(reader.related(version)?);
    let Some((_, link)) = links.into_iter().find(|(own, _)| own == name) else { return Ok(None) };
    let to = reader.path_of_uri(&link.uri, directory)?;
    Ok(Some(Found::Link { uri: link.uri, to, path: reader.tree_path(directory)?, changed: shown.changed }))
}

fn list_links<S: Sink>(reader: &Reader, directory: NameId, offset: u64, sink: &mut S) -> Result<(), CatalogError> {
    let Some(shown) = reader.shown_by_number(directory)? else { return Ok(()) };
    let after = i64::try_from(offset.saturating_sub(2)).unwrap_or(i64::MAX);
    let Some(version) = shown.version else {
        return reader.list(directory, (offset > 2).then_some(after), |entry| {
            let attributes = Attributes::directory(links_ino(NameId::new(entry.cookie)), Datetime::EPOCH);
            sink.add(entry.cookie.unsigned_abs() + 2, &entry.name, &attributes, UNCACHED)
        });
    };
    let links = named(reader.related(version)?);
    let first = usize::try_from(after).unwrap_or(usize::MAX);
    for (index, (name, link)) in links.iter().enumerate().skip(first) {
        let is_here = reader.path_of_uri(&link.uri, shown.name)?.is_some();
        if !sink.add(index as u64 + 3, name, &listed_only(is_here, index as u64), UNCACHED) {
            break;
        }
    }
    Ok(())
}

/// The attributes, in a listing, of what is made when it is looked up. Made for the listing, it would count as looked up.
fn listed_only(is_link: bool, index: u64) -> Attributes {
    // A number is never of two types.
    let ino = |bit: u64| control::DIRECTORY_INO + (1 << bit) + index;
    if is_link {
        Attributes::symlink(ino(60), Datetime::EPOCH, 0)
    } else {
        Attributes::file(ino(59), Datetime::EPOCH, 0)
    }
}

/// The number of a collection, as the catalog has it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The path of the member of a collection that has this name there.
fn member_path(reader: &Reader, collection: i64, name: &str) -> Result<Option<String>, CatalogError> {
    // Most names say where their member is; of one that was cut, only the members know.
    if let Some(member) = reader.find(&written(name))?
        && reader.is_member(collection, member)?
    {
        return Ok(Some(reader.tree_path(member)?).filter(|path| member_name(path) == name));
    }
    if name.len() < LONG || !name.contains('~') {
        return Ok(None);
    }
    let mut found = None;
    reader.members(collection, 0, |_, member| {
        let path = reader.tree_path(member)?;
        found = (member_name(&path) == name).then_some(path);
        Ok(found.is_none())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_has_a_name_of_its_own() {
        let link = |relation: &str| Related { relation: relation.to_owned(), uri: String::new() };
        let links = ["alternate", "alternate", "alternate", "collection", "http://x.example/rel/a%b", "."];
        let names: Vec<String> = named(links.map(link).to_vec()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["alternate", "alternate~2", "alternate~3", "collection", "http:%2F%2Fx.example%2Frel%2Fa%25b", ".~"]
        );
        let long = member_name(&"a/".repeat(200)).into_owned();
        assert!(long.len() <= 255 && long != member_name(&"a/".repeat(201)), "{long}");
    }
}
