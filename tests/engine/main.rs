//! The rules of a mirror (following, ordering, dumps, versions, archives, notifications), on mirrors that are opened in this
//! process: without a mount, without root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

#[path = "../support/mod.rs"]
mod support;

mod archives;
mod behind;
mod bounds;
mod changedumps;
mod changes;
mod content;
mod contract;
mod documents;
mod drafts;
mod dumps;
mod faults;
mod feeds;
mod following;
mod mementos;
mod notified;
mod past;
mod pitfalls;
