//! What a Source lists and reports becomes names and versions: lists by difference, changes in their order.
//!
//! Layout, each line uses only those above it:
//! - `set_rows`, `attach`
//! - `seed`, `step`
//! - `baseline`
//! - `lost_feeds`
//! - `changes`

pub(super) mod attach;
pub(super) mod baseline;
pub(super) mod changes;
pub(super) mod lost_feeds;
pub(super) mod seed;
pub(super) mod set_rows;
pub(super) mod step;
