//! Room in the store: what may go when there is too much, and what is history no more.

use super::open_files::OpenFiles;
use crate::catalog::{CatalogError, Evictable, Stored, Writer};
use crate::document::Datetime;
use crate::store::Store;

/// Content that is looked at in one step.
const PAGE: usize = 500;

/// Lets content go, least recently used first, until no more than `limit` bytes are left; returns how
/// many are. What is pinned stays, and so does what could not be fetched again and was superseded after `since`.
pub(in crate::sync) fn evict(
    writer: &mut Writer,
    store: &Store,
    open: &OpenFiles,
    limit: u64,
    since: Datetime,
) -> Result<u64, CatalogError> {
    let mut left = writer.stored_bytes()?;
    let mut after = None;
    while left > limit {
        let candidates = writer.evictable(PAGE, after.as_ref(), since)?;
        let Some(last) = candidates.last() else { break };
        after = Some(last.clone());
        let mut wanted = left - limit;
        left -= let_go(writer, store, open, &candidates, |size| {
            let more = wanted > 0;
            wanted = wanted.saturating_sub(size);
            more
        })?;
    }
    Ok(left)
}

/// Lets history go that was superseded before `since`, a page of it, from `after` on, which is none again when all was
/// looked at; returns how many bytes that were. What is pinned stays, and
/// so do the last three versions of each resource.
pub(in crate::sync) fn forget_history(
    writer: &mut Writer,
    store: &Store,
    open: &OpenFiles,
    since: Datetime,
    after: &mut Option<Evictable>,
) -> Result<u64, CatalogError> {
    let candidates = writer.expired(PAGE, after.as_ref(), since)?;
    let gone = let_go(writer, store, open, &candidates, |_| true)?;
    *after = candidates.last().cloned();
    Ok(gone)
}

/// Lets these go, as long as `more` of their sizes says so, but for what is pinned or being read; returns how many
/// bytes that were.
fn let_go(
    writer: &mut Writer,
    store: &Store,
    open: &OpenFiles,
    candidates: &[Evictable],
    mut more: impl FnMut(u64) -> bool,
) -> Result<u64, CatalogError> {
    let readers = writer.readers();
    let mut gone = Vec::new();
    for candidate in candidates {
        let names = writer.names_that_may_be_pinned(candidate)?;
        let pinned =
            readers.ask(|reader| names.iter().try_fold(false, |pinned, name| Ok(pinned || reader.pinned(*name)?)))?;
        if pinned || open.is_busy(candidate.stored) {
            continue;
        }
        if !more(candidate.size) {
            break;
        }
        gone.push(candidate);
    }
    let transaction = writer.begin(false)?;
    for one in &gone {
        match one.stored {
            Stored::Object(_) => transaction.forget_object(one.id)?,
            Stored::Package(id) => transaction.package_gone(id, false)?,
        }
    }
    transaction.commit()?;
    // Only after the catalog has forgotten it: a crash in between leaves a file too many, never a
    // row too many.
    let places: Vec<Stored> = gone.iter().map(|one| one.stored).collect();
    let removed = places.iter().try_for_each(|place| match place {
        Stored::Object(sha256) => store.remove(sha256),
        Stored::Package(id) => store.forget_package(id.number()),
    });
    // Last, so that whoever opens a package anew begins a file of its own.
    open.close(&places);
    removed.map_err(|error| CatalogError::Io { path: store.root().display().to_string(), error })?;
    Ok(gone.iter().map(|one| one.size).sum())
}
