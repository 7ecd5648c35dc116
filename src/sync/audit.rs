//! The mirror beside what its Source lists, and the cache beside itself.
//!
//! Layout, each line uses only those above it:
//! - `finding`
//! - `cache`
//! - `lists`

pub(super) mod cache;
pub(super) mod finding;
pub(super) mod lists;
