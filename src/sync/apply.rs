//! What a Source lists and reports becomes names and versions: lists by difference, changes in their order.
//!
//! Layout, each line uses only those above it:
//! - `set_rows`, `step_context`
//! - `attach`
//! - `seed`, `step`
//! - `list_step`
//! - `baseline`
//! - `lost_feeds`, `change_step`, `notified`
//! - `changes`

pub(super) mod attach;
pub(super) mod baseline;
mod change_step;
pub(super) mod changes;
mod list_step;
pub(super) mod lost_feeds;
pub(super) mod notified;
pub(super) mod seed;
pub(super) mod set_rows;
pub(super) mod step;
pub(super) mod step_context;
