//! Directory streams. A cookie is the number of a name, so that a stream goes on at the right place
//! whatever was inserted or deleted meanwhile; numbers below 8 are for the names that are not rows.

use super::inodes::versions_ino;
use super::{control, versions};
use crate::catalog::{CatalogError, DirEntry, Node, ROOT, Reader};

/// The cookies of the names that are not rows.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
const CONTROL: u64 = 3;
const VERSIONS: u64 = 4;

/// One entry of a stream.
pub(super) struct Item<'n> {
    pub(super) cookie: u64,
    pub(super) name: &'n str,
    pub(super) node: Node,
}

/// Visits a directory's entries from after `offset`, until `visit` says that there is no room.
pub(super) fn directory(
    reader: &Reader,
    directory: i64,
    own: Node,
    parent: Node,
    offset: u64,
    visible: bool,
    mut visit: impl FnMut(&Item<'_>) -> bool,
) -> Result<(), CatalogError> {
    let control = Node::Directory { ino: control::DIRECTORY_INO, changed: 0 };
    let versions = Node::Directory { ino: versions_ino(ROOT), changed: 0 };
    let fixed = [
        (DOT, ".", own, true),
        (DOT_DOT, "..", parent, true),
        (CONTROL, control::DIRECTORY, control, visible),
        (VERSIONS, versions::DIRECTORY, versions, visible),
    ];
    for (cookie, name, node, shown) in fixed {
        if shown && offset < cookie && !visit(&Item { cookie, name, node }) {
            return Ok(());
        }
    }
    let after = i64::try_from(offset).ok().filter(|after| *after > 7);
    reader.list(directory, after, |DirEntry { cookie, name, node }| {
        visit(&Item { cookie: cookie.unsigned_abs(), name: &name, node })
    })
}
