//! What is written to the cache: many facts about single versions in one transaction, steps of a sync, and what is deleted
//! where there is too much.
//!
//! Layout, each line uses only those above it:
//! - `durability`, `facts`, `open_files`
//! - `eviction`
//! - `write_queue`

mod durability;
mod eviction;
mod facts;
pub(super) mod open_files;
pub(super) mod write_queue;
