//! The current tree.

use super::attributes::{Attributes, Entry, ttl};
use super::inodes::versions_ino;
use super::listing::{DOT, DOT_DOT, Sink, after};
use super::{control, versions};
use crate::catalog::{CatalogError, DirEntry, Inode, NameId, Node, ROOT, Reader, VersionId, directory_ino};
use crate::document::Datetime;

/// The cookies of the directories in the root that are not the Source's.
const CONTROL: u64 = 3;
const VERSIONS: u64 = 4;

/// Looks a name up in a directory, or `.` in anything: opening by handle asks for that.
pub(super) fn lookup(reader: &Reader, inode: Inode, name: &str) -> Result<Option<Entry>, CatalogError> {
    let found = match (name, inode) {
        (".", inode) => reader.node(inode)?,
        ("..", Inode::Directory(directory)) => {
            reader.node(Inode::Directory(reader.parent(directory)?.unwrap_or(ROOT)))?
        }
        (_, Inode::Directory(directory)) => reader.lookup(directory, name)?,
        (_, Inode::Version(_)) => None,
    };
    Ok(found.as_ref().map(Entry::of))
}

/// Lists a directory from after `offset`. `visible` tells whether the directories that are not the
/// Source's are listed. Returns the versions listed whose sizes are not known.
pub(super) fn list<S: Sink>(
    reader: &Reader,
    directory: NameId,
    offset: u64,
    visible: bool,
    sink: &mut S,
) -> Result<Vec<VersionId>, CatalogError> {
    let missing = Node::Directory { ino: directory_ino(directory), changed: Datetime::EPOCH };
    let node = |directory| Ok::<_, CatalogError>(reader.node(Inode::Directory(directory))?.unwrap_or(missing));
    let (own, parent) = (node(directory)?, node(reader.parent(directory)?.unwrap_or(ROOT))?);
    let control = Node::Directory { ino: control::DIRECTORY_INO, changed: Datetime::EPOCH };
    let versions = Node::Directory { ino: versions_ino(ROOT), changed: Datetime::EPOCH };
    let fixed = [
        (DOT, ".", own, true),
        (DOT_DOT, "..", parent, true),
        (CONTROL, control::DIRECTORY, control, visible),
        (VERSIONS, versions::DIRECTORY, versions, visible),
    ];
    for (cookie, name, node, is_shown) in fixed {
        if is_shown && offset < cookie && !sink.add(cookie, name, &Attributes::of(&node), ttl(&node)) {
            return Ok(Vec::new());
        }
    }
    let mut unknown = Vec::new();
    reader.list(directory, after(offset), |DirEntry { cookie, name, node }| {
        let added = sink.add(cookie.unsigned_abs(), &name, &Attributes::of(&node), ttl(&node));
        if added
            && matches!(node, Node::File { size: None, .. })
            && let Some(Inode::Version(version)) = Inode::from_ino(node.ino())
        {
            unknown.push(version);
        }
        added
    })?;
    Ok(unknown)
}
