//! A remote ResourceSync Source as a read-only directory.

// Tests state what must hold; there a panic is the point.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod catalog;
pub mod document;
pub mod path;
pub mod source;
pub mod store;
