//! Documents of a Source: fetched, read, followed and brought into the order of time. Nothing here writes the catalog, but for what
//! is known of packages.
//!
//! Layout, each line uses only those above it:
//! - `spooled`, `staged`
//! - `align`, `outline`
//! - `fetch`
//! - `editions`, `listing`, `order`
//! - `lists`, `follow`
//! - `dumps`

pub(super) mod align;
pub(super) mod dumps;
pub(super) mod editions;
pub(super) mod fetch;
pub(super) mod follow;
pub(super) mod listing;
pub(super) mod lists;
pub(super) mod order;
pub(super) mod outline;
pub(super) mod spooled;
mod staged;
