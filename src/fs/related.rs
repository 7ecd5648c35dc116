//! `.resourcesync/links`, `.resourcesync/collections` and `.resourcesync/uris`: where the links of resources lead.
//!
//! Below `links` each resource is a directory, under its own path, with an entry for each of its links: a symbolic link where
//! the target is in the mirror, else a file with the URI. Below `collections` each collection is a directory of symbolic links
//! to its members. Below `uris` a resource is found by its URI, or by its canonical one, written as one name; none is listed.
//! All of it is made when it is looked up, by indexes of the catalog, and nothing of it lasts in the kernel: a commit has
//! nothing to invalidate. Every local user can ask for any of it, so requests are answered beside the session's threads.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, ReplyEntry};

use super::attributes::Owner;
use super::control::{self, Made, Snapshots};
use super::inodes::{URIS, collection_ino, links_ino};
use super::reply::{FOR_EVER, NOT_AT_ALL, answer};
use super::stream::Stream;
use crate::catalog::{CatalogError, Pool, ROOT, Reader, Related, Shown};
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
    pub(super) fn forget(&self) {
        self.changed.store(Datetime::now().nanos(), Ordering::Release);
    }

    fn changed(&self) -> i64 {
        self.changed.load(Ordering::Acquire)
    }
}

/// The two directories.
pub(super) struct Relations {
    readers: Arc<Pool>,
    owner: Owner,
    generation: Generation,
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
    pub(super) fn new(readers: Arc<Pool>, owner: Owner, generation: Generation, snapshots: Arc<Snapshots>) -> Self {
        Self { readers, owner, generation, snapshots, collections: Arc::default() }
    }

    /// The attributes of what lies under a name in `links`: it is as old as its resource's or its directory's last change.
    pub(super) fn directory(&self, name: i64) -> Result<FileAttr, Errno> {
        let found = self.ask(|reader| reader.shown_by_number(name))?.ok_or(Errno::ENOENT)?;
        // Whether a target is in the mirror, any change may tell anew.
        let changed = found.changed.max(self.collections.changed());
        Ok(self.owner.directory(links_ino(name), changed))
    }

    pub(super) fn reply_directory(&self, name: i64, reply: ReplyEntry) {
        self.reply(self.directory(name), reply);
    }

    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, Errno> {
        answer(self.readers.ask_within(LONGEST, question))
    }

    fn reply(&self, attributes: Result<FileAttr, Errno>, reply: ReplyEntry) {
        match attributes {
            Ok(attributes) => reply.entry_with_ttls(&NOT_AT_ALL, &NOT_AT_ALL, &attributes, self.generation),
            Err(errno) => reply.error(errno),
        }
    }

    /// Answers with something that is made, and is the same whenever it is looked at.
    fn reply_made(&self, place: &str, content: String, made: Made, reply: ReplyEntry) {
        let (ino, content) = self.snapshots.add_same(place, content.into_bytes(), made);
        let attributes = match made {
            Made::Link(mtime) => self.owner.link(ino, mtime, content.len() as u64),
            Made::File(mtime) => self.owner.file(ino, mtime, content.len() as u64),
            Made::Now => self.owner.file(ino, Datetime::now().nanos(), content.len() as u64),
        };
        reply.entry_with_ttls(&FOR_EVER, &NOT_AT_ALL, &attributes, self.generation);
    }

    /// Looks a name up in what lies under another name in `links`.
    pub(super) fn lookup(&self, above: i64, name: &str, reply: ReplyEntry) {
        if name == "." {
            return self.reply_directory(above, reply);
        }
        let found = self.ask(|reader| {
            if name == ".." {
                return Ok(Found::Above(reader.parent(above)?));
            }
            Ok(match reader.shown_by_number(above)? {
                None => Found::Nothing,
                Some(Shown { version: None, .. }) => match reader.shown(above, name)? {
                    Some(below) => Found::Name(below.name),
                    None => Found::Nothing,
                },
                Some(Shown { version: Some(version), changed, .. }) => {
                    let links = named(reader.related(version)?);
                    match links.into_iter().find(|(own, _)| own == name) {
                        Some((_, link)) => Found::Link {
                            to: reader.path_of_uri(&link.uri, above)?,
                            uri: link.uri,
                            path: reader.tree_path(above)?,
                            changed,
                        },
                        None => Found::Nothing,
                    }
                }
            })
        });
        match found {
            Err(errno) => reply.error(errno),
            Ok(Found::Nothing) => reply.error(Errno::ENOENT),
            Ok(Found::Above(Some(parent))) => self.reply_directory(parent, reply),
            Ok(Found::Above(None)) => self.reply(Ok(self.owner.directory(control::DIRECTORY_INO, 0)), reply),
            Ok(Found::Name(name)) => self.reply_directory(name, reply),
            Ok(Found::Link { to: Some(to), path, changed, .. }) => {
                // `.resourcesync`, `links`, and the path itself, whose last name is a directory here.
                let target = target(2 + path.split('/').count(), &to);
                self.reply_made(&format!("{path}/{name}"), target, Made::Link(changed), reply);
            }
            Ok(Found::Link { uri, path, changed, .. }) => {
                self.reply_made(&format!("{path}/{name}"), format!("{uri}\n"), Made::File(changed), reply);
            }
        }
    }

    /// Lists what lies under a name in `links`.
    pub(super) fn list(&self, name: i64, offset: u64, mut stream: Stream) {
        let listed = self.dots(&mut stream, offset, links_ino(name), || {
            let parent = self.ask(|reader| reader.parent(name))?;
            Ok(parent.map_or(control::DIRECTORY_INO, links_ino))
        });
        let listed = listed.and_then(|goes_on| match goes_on {
            false => Ok(()),
            true => self.ask(|reader| {
                let Some(shown) = reader.shown_by_number(name)? else { return Ok(()) };
                let after = i64::try_from(offset.saturating_sub(2)).unwrap_or(i64::MAX);
                let Some(version) = shown.version else {
                    let after = (offset > 2).then_some(after);
                    return reader.list(name, after, |entry| {
                        let attributes = self.owner.directory(links_ino(entry.cookie), 0);
                        stream.add(entry.cookie.unsigned_abs() + 2, &entry.name, &attributes, &NOT_AT_ALL)
                    });
                };
                let links = named(reader.related(version)?);
                let first = usize::try_from(after).unwrap_or(usize::MAX);
                for (index, (name, link)) in links.iter().enumerate().skip(first) {
                    let is_here = reader.path_of_uri(&link.uri, shown.name)?.is_some();
                    if !stream.add(index as u64 + 3, name, &self.made(is_here, index as u64), &NOT_AT_ALL) {
                        break;
                    }
                }
                Ok(())
            }),
        });
        stream.end(listed);
    }

    /// What is listed of something that is made when it is looked up. With attributes it would count as looked up.
    fn made(&self, is_link: bool, index: u64) -> FileAttr {
        // A number is never of two kinds.
        let ino = |kind: u64| control::DIRECTORY_INO + (1 << kind) + index;
        if is_link { self.owner.link(ino(60), 0, 0) } else { self.owner.file(ino(59), 0, 0) }
    }

    /// Lists `.` and `..`; false if there was no room for them.
    fn dots(
        &self,
        stream: &mut Stream,
        offset: u64,
        own: u64,
        above: impl FnOnce() -> Result<u64, Errno>,
    ) -> Result<bool, Errno> {
        let above = if offset < 2 { above()? } else { own };
        for (index, (name, ino)) in [(".", own), ("..", above)].into_iter().enumerate() {
            if offset <= index as u64 && !stream.add(index as u64 + 1, name, &self.owner.directory(ino, 0), &NOT_AT_ALL)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The attributes of a collection's directory, or of that of all.
    pub(super) fn collection(&self, number: u64) -> Result<FileAttr, Errno> {
        let is_there = number == ALL || self.ask(|reader| reader.is_collection(signed(number)))?;
        match is_there {
            true => Ok(self.owner.directory(collection_ino(number), self.collections.changed())),
            false => Err(Errno::ENOENT),
        }
    }

    pub(super) fn reply_collection(&self, number: u64, reply: ReplyEntry) {
        self.reply(self.collection(number), reply);
    }

    /// Looks a collection up among all, or a member in a collection.
    pub(super) fn lookup_member(&self, number: u64, name: &str, reply: ReplyEntry) {
        match (name, number) {
            (".", _) => return self.reply_collection(number, reply),
            ("..", ALL) => return self.reply(Ok(self.owner.directory(control::DIRECTORY_INO, 0)), reply),
            ("..", _) => return self.reply_collection(ALL, reply),
            _ => {}
        }
        if number == ALL {
            return match self.ask(|reader| reader.collection_called(name)) {
                Ok(Some(number)) => self.reply_collection(number.unsigned_abs(), reply),
                Ok(None) => reply.error(Errno::ENOENT),
                Err(errno) => reply.error(errno),
            };
        }
        match self.ask(|reader| member_path(reader, signed(number), name)) {
            Err(errno) => reply.error(errno),
            Ok(None) => reply.error(Errno::ENOENT),
            Ok(Some(path)) => {
                let made = Made::Link(self.collections.changed());
                self.reply_made(&format!("{number}/{name}"), target(3, &path), made, reply);
            }
        }
    }

    /// The attributes of `uris`.
    pub(super) fn uris(&self) -> FileAttr {
        self.owner.directory(URIS, 0)
    }

    pub(super) fn reply_uris(&self, reply: ReplyEntry) {
        self.reply(Ok(self.uris()), reply);
    }

    /// Looks a resource up by a URI in which slashes are written as `%2F` and percent signs as `%25`.
    pub(super) fn lookup_uri(&self, name: &str, reply: ReplyEntry) {
        match name {
            "." => return self.reply_uris(reply),
            ".." => return self.reply(Ok(self.owner.directory(control::DIRECTORY_INO, 0)), reply),
            _ => {}
        }
        let uri = written(name);
        let found = match self.ask(|reader| reader.path_of_uri(&uri, ROOT)) {
            Ok(None) => self.ask(|reader| reader.canonical(&uri)?.map(|name| reader.tree_path(name)).transpose()),
            found => found,
        };
        match found {
            Ok(Some(path)) => self.reply_made(name, target(2, &path), Made::Link(0), reply),
            Ok(None) => reply.error(Errno::ENOENT),
            Err(errno) => reply.error(errno),
        }
    }

    /// Lists nothing: a resource is found there by who knows its URI.
    pub(super) fn list_uris(&self, offset: u64, mut stream: Stream) {
        let listed = self.dots(&mut stream, offset, URIS, || Ok(control::DIRECTORY_INO)).map(|_| ());
        stream.end(listed);
    }

    /// Lists all collections, or the members of one.
    pub(super) fn list_members(&self, number: u64, offset: u64, mut stream: Stream) {
        let above = if number == ALL { control::DIRECTORY_INO } else { collection_ino(ALL) };
        let listed = self.dots(&mut stream, offset, collection_ino(number), || Ok(above)).and_then(|goes_on| {
            if !goes_on {
                return Ok(());
            }
            let after = i64::try_from(offset.saturating_sub(2)).unwrap_or(i64::MAX);
            self.ask(|reader| {
                if number == ALL {
                    return reader.collections(after, |number, name| {
                        let own = number.unsigned_abs();
                        let attributes = self.owner.directory(collection_ino(own), self.collections.changed());
                        stream.add(own + 2, name, &attributes, &NOT_AT_ALL)
                    });
                }
                reader.members(signed(number), after, |version, member| {
                    let path = reader.tree_path(member)?;
                    let cookie = version.unsigned_abs() + 2;
                    Ok(stream.add(cookie, &member_name(&path), &self.made(true, cookie), &NOT_AT_ALL))
                })
            })
        });
        stream.end(listed);
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

/// What a name in `links` is.
enum Found {
    Nothing,
    Above(Option<i64>),
    Name(i64),
    Link { uri: String, to: Option<String>, path: String, changed: i64 },
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
