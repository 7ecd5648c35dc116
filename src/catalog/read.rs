//! Questions to the catalog, as methods of [`Reader`](super::Reader), by topic. They use `db`, `model` and `error`, never each
//! other and never `write`.

pub(super) mod audit;
pub(super) mod channels;
pub(super) mod compare;
pub(super) mod feeds;
pub(super) mod filter;
pub(super) mod links;
pub(super) mod log;
pub(super) mod members;
pub(super) mod mementos;
pub(super) mod packages;
pub(super) mod reach;
pub(super) mod sets;
pub(super) mod snapshots;
pub(super) mod targets;
pub(super) mod tree;
pub(super) mod validators;
pub(super) mod versions;
