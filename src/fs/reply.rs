//! What replies to the kernel have in common: how long they hold, and what a failed question becomes.

use std::time::Duration;

use fuser::Errno;

use crate::catalog::{CatalogError, Pool, Reader};

/// An inode never changes, so what is said of it holds for ever.
pub(super) const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

pub(super) const NOT_AT_ALL: Duration = Duration::ZERO;

/// Asks the catalog.
pub(super) fn ask<T>(readers: &Pool, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> Result<T, Errno> {
    answer(readers.ask(question))
}

/// A failure of the catalog is logged and becomes EIO.
pub(super) fn answer<T>(answer: Result<T, CatalogError>) -> Result<T, Errno> {
    answer.map_err(|error| {
        tracing::error!("{error}");
        Errno::EIO
    })
}
