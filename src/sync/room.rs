//! Room in the store: what may go when there is too much.

use crate::catalog::{CatalogError, Stored, Writer};
use crate::store::Store;

use super::open_files::OpenFiles;

/// Lets content go, least recently used first, until no more than `limit` bytes are left; returns how
/// many are. What is pinned stays, and so does what could not be fetched again.
pub(super) fn evict(writer: &mut Writer, store: &Store, open: &OpenFiles, limit: u64) -> Result<u64, CatalogError> {
    let readers = writer.readers();
    let mut left = writer.stored_bytes()?;
    let mut after = None;
    while left > limit {
        let candidates = writer.evictable(500, after.as_ref())?;
        if candidates.is_empty() {
            break;
        }
        let mut gone = Vec::new();
        for candidate in candidates {
            if left <= limit {
                break;
            }
            let names = writer.names_that_may_be_pinned(&candidate)?;
            let pinned = readers
                .ask(|reader| names.iter().try_fold(false, |pinned, name| Ok(pinned || reader.pinned(*name)?)))?;
            if !pinned && !open.is_busy(candidate.stored) {
                left -= candidate.size.min(left);
                gone.push(candidate.clone());
            }
            after = Some(candidate);
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
            Stored::Package(id) => store.forget_package(*id),
        });
        // Last, so that whoever opens a package anew begins a file of its own.
        open.close(&places);
        removed.map_err(|error| CatalogError::Io { path: store.root().display().to_string(), error })?;
    }
    Ok(left)
}
