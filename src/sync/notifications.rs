//! What is delivered on channels, and how it gets into the tree.
//!
//! Layout, each line uses only those above it:
//! - `coverage`
//! - `queue`

pub(super) mod coverage;
pub(super) mod queue;
