//! What the catalog holds, as values: no SQL, and no connection.
//!
//! Layout; a line uses only those above it, and `document`, `path` and `bounds`:
//! - `collection`, `ids`, `integers`, `mementos`, `targets`, `validators`
//! - `inode`, `links`, `members`, `packages`, `reach`, `rows`
//! - `origin`, `record`
//! - `channels`, `feeds`, `filter`, `nodes`, `same_bytes`, `snapshot`, `version_log`
//! - `timeline`

pub(super) mod channels;
pub(super) mod collection;
pub(super) mod feeds;
pub(super) mod filter;
pub(super) mod ids;
pub(super) mod inode;
pub(super) mod integers;
pub(super) mod links;
pub(super) mod members;
pub(super) mod mementos;
pub(super) mod nodes;
pub(super) mod origin;
pub(super) mod packages;
pub(super) mod reach;
pub(super) mod record;
pub(super) mod rows;
pub(super) mod same_bytes;
pub(super) mod snapshot;
pub(super) mod targets;
pub(super) mod timeline;
pub(super) mod validators;
pub(super) mod version_log;
