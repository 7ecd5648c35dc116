//! The content of versions, on demand and ahead of it: fetched from its URL, taken from a package, made by a patch, or had of an
//! archive.
//!
//! Layout, each line uses only those above it:
//! - `location`
//! - `flight`
//! - `freshness`, `mementos`
//! - `download`
//! - `fetch`
//! - `impostors`, `locations`, `packed`, `patched`, `readahead`, `revalidate`, `prefetch`

pub(super) mod download;
pub(super) mod fetch;
pub(super) mod flight;
pub(super) mod freshness;
pub(super) mod impostors;
pub(super) mod location;
pub(super) mod locations;
pub(super) mod mementos;
pub(super) mod packed;
pub(super) mod patched;
pub(super) mod prefetch;
pub(super) mod readahead;
pub(super) mod revalidate;
