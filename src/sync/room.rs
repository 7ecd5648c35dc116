//! Room in the store: what may go when there is too much.

use crate::catalog::{CatalogError, Writer};
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
            let names = writer.names_with(candidate.object)?;
            let pinned = readers
                .ask(|reader| names.iter().try_fold(false, |pinned, name| Ok(pinned || reader.pinned(*name)?)))?;
            if !pinned {
                left -= candidate.size.min(left);
                gone.push((candidate.object, candidate.sha256));
            }
            after = Some(candidate);
        }
        let transaction = writer.begin(false)?;
        for (object, _) in &gone {
            transaction.forget_object(*object)?;
        }
        transaction.commit()?;
        // Only after the catalog has forgotten it: a crash in between leaves a file too many, never a
        // row too many.
        open.close(&gone.iter().map(|(_, sha256)| *sha256).collect::<Vec<_>>());
        for (_, sha256) in &gone {
            store
                .remove(sha256)
                .map_err(|error| CatalogError::Io { path: store.root().display().to_string(), error })?;
        }
    }
    Ok(left)
}
