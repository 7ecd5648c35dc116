//! The database file: its schema, its lock, its connections, and what both readers and the writer know of its tables.
//!
//! Layout; a line uses only those above it, `model` and `error`:
//! - `numbers`
//! - `columns`, `lock`, `meta`, `names`, `snapshots`, `writeback`, `last_names`, `values`
//! - `tree`
//! - `naming`, `schema`
//! - `pool`

pub(super) mod columns;
pub(super) mod last_names;
pub(super) mod lock;
pub(super) mod meta;
pub(super) mod names;
pub(super) mod naming;
pub(super) mod numbers;
pub(super) mod pool;
pub(super) mod schema;
pub(super) mod snapshots;
pub(super) mod tree;
mod values;
pub(super) mod writeback;
