//! A mirror of one Source without a kernel: what its tree shows, and what it reports of itself.
//!
//! Layout, each line uses only those above it:
//! - `report`
//! - `bridge`

pub(crate) mod bridge;
pub(crate) mod report;
