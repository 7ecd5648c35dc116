//! What the current tree still needs of packages, and what a process left of them.

use std::sync::Arc;

use super::download::start;
use super::opened::{LEAST_PART, take};
use crate::catalog::{CatalogError, PackageId, PackageRow, Pool};
use crate::store::Store;
use crate::store::boot::boot_id;
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::transfer::package::archived;
use crate::sync::transfer::sparse::Notes;
use crate::sync::writer::write_queue::WriteQueue;

/// Brings what the current tree still needs of a package here: all of it, or the members alone where
/// those are the lesser part.
pub(in crate::sync) fn complete_what_is_needed(
    context: &Arc<Context>,
    row: &PackageRow,
) -> std::result::Result<(), SyncError> {
    let (bytes, members) = context.readers.ask(|reader| reader.unseen_bytes(row.id))?;
    if members == 0 {
        return Ok(());
    }
    let package = take(context, row)?;
    let most = package.total().or(row.length).unwrap_or(0);
    let few = bytes.saturating_mul(2) < most && package.known.lock().ranges != Some(false);
    let needed = if few { Some(extents(context, row.id)?) } else { None };
    Ok(start(context, row, needed)?)
}

/// Where the members lie that the current tree still needs, near ones as one part.
pub(in crate::sync) fn extents(context: &Context, id: PackageId) -> std::result::Result<Vec<(u64, u64)>, CatalogError> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut from = 0;
    loop {
        let page = context.readers.ask(|reader| reader.unseen_members(id, from, 1000))?;
        let Some(last) = page.last() else { return Ok(extents) };
        from = last.member.header + 1;
        for unseen in &page {
            let (begin, end) = archived(&unseen.member).extent();
            match extents.last_mut() {
                Some((_, upto)) if begin <= *upto + LEAST_PART => *upto = (*upto).max(end),
                _ => extents.push((begin, end)),
            }
        }
    }
}

/// Forgets the bytes of packages that the catalog does not know, and what the catalog knows of packages
/// whose bytes are not what it says.
pub(in crate::sync) fn tidy(
    store: &Store,
    readers: &Pool,
    write_queue: &WriteQueue,
) -> std::result::Result<(), SyncError> {
    let rows = readers.ask(|reader| reader.packages())?;
    for id in store.packages()? {
        if !rows.iter().any(|row| row.id.number() == id) {
            store.forget_package(id)?;
        }
    }
    for row in rows.iter().filter(|row| row.bytes > 0 || row.whole) {
        let length = store.package(row.id.number()).and_then(|file| file.metadata())?.len();
        let sound = match row.whole {
            true => row.size == Some(length),
            false => Notes::read(&store.package_notes(row.id.number()))
                .is_some_and(|notes| notes.url == row.url && notes.boot == boot_id() && notes.validator.is_some()),
        };
        if !sound {
            store.forget_package(row.id.number())?;
            write_queue.with(|writer| -> std::result::Result<(), CatalogError> {
                let transaction = writer.begin(true)?;
                transaction.package_gone(row.id, true)?;
                transaction.commit()?;
                Ok(())
            })?;
        }
    }
    Ok(())
}
