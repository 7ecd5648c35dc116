//! Files that come in parts: which parts are here, and the requests that fetch the others.
//!
//! Layout, each line uses only those above it:
//! - `ranges`
//! - `sparse`
//! - `package`

pub(super) mod package;
pub(super) mod ranges;
pub(super) mod sparse;
