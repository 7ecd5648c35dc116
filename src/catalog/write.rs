//! The one writer, and what a transaction changes, by topic. It uses `db`, `model` and `error`, never `read`.
//!
//! Layout; a line uses only those above it:
//! - `insert`, `state`
//! - `transaction`
//! - `writer`, `archived`, `bulk`, `changes`, `channels`, `contents`, `filter`, `lists`, `members`, `naming`, `packages`, `reach`,
//!   `validators`
//! - `feeds`, `past`, `sets`, `targets`

pub(super) mod archived;
pub(super) mod bulk;
pub(super) mod changes;
pub(super) mod channels;
pub(super) mod contents;
pub(super) mod feeds;
pub(super) mod filter;
mod insert;
pub(super) mod lists;
pub(super) mod members;
pub(super) mod naming;
pub(super) mod packages;
pub(super) mod past;
pub(super) mod reach;
pub(super) mod sets;
pub(super) mod state;
pub(super) mod targets;
pub(super) mod transaction;
pub(super) mod validators;
pub(super) mod writer;
