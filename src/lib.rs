//! A remote ResourceSync Source (ANSI/NISO Z39.99) as an ordinary read-only directory.
//!
//! Data flows one way: a Source's documents and bytes come in, become rows and objects, and go out
//! through FUSE. Each room opens with what it owns, assumes, promises and must never know; who may use
//! whom:
//!
//! | room | may use |
//! | --- | --- |
//! | [`bounds`] | nothing of ours; every room may use it |
//! | [`printable`] | nothing of ours; every room may use it |
//! | [`document`] | nothing of ours |
//! | [`path`] | nothing of ours |
//! | [`patch`] | nothing of ours |
//! | [`catalog`] | [`document`], [`path`] |
//! | [`store`] | nothing of ours |
//! | [`source`] | [`document`] |
//! | [`versions`] | [`source`], [`document`] |
//! | [`sync`] | all above |
//! | [`notify`] | [`source`], [`document`] for times, and the engine's door |
//! | [`fs`] | [`catalog`], [`document`] for times, [`path`] for names, and "bring me this version"; not HTTP |
//! | [`demo`] | [`document`] |
//! | [`cli`] | all |
//!
//! Everything but [`fs`] and [`cli`] is tested without a mount.
//!
//! Layout, each line uses only those above it:
//! - `bounds`, `path`, `printable`
//! - `document`, `patch`, `store`
//! - `catalog`, `source`
//! - `demo`, `fs`, `versions`
//! - `sync`
//! - `notify`
//! - `cli`

// Tests state what must hold; there a panic is the point.
// What is written for a person goes through one printer (`cli::show`), which makes foreign text harmless.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod bounds;
pub mod catalog;
pub mod cli;
pub mod demo;
pub mod document;
pub mod fs;
pub mod notify;
pub mod patch;
pub mod path;
pub mod printable;
pub mod source;
pub mod store;
pub mod sync;
pub mod versions;
