//! What reached the disk: noted after each flush, and checked after an unclean shutdown.

use crate::catalog::{CatalogError, Writer};
use crate::store::Store;
use crate::store::boot::boot_id;
use crate::sync::error::SyncError;
use crate::sync::status::Status;

pub(super) fn on_disk(store: &Store, error: std::io::Error) -> CatalogError {
    CatalogError::Io { path: store.root().display().to_string(), error }
}

pub(super) fn flush(writer: &mut Writer, store: &Store) -> Result<(), CatalogError> {
    store.flush().map_err(|error| on_disk(store, error))?;
    let transaction = writer.begin(true)?;
    transaction.all_durable()?;
    transaction.commit()?;
    writer.set_meta("boot", &boot_id())
}

/// After the machine went down, content that may not have reached the disk is looked at again.
pub(super) fn recheck(writer: &mut Writer, store: &Store, status: &Status) -> Result<(), SyncError> {
    let now = boot_id();
    if writer.meta("boot")?.is_some_and(|before| before != now) {
        let mut bad = Vec::new();
        for (object, sha256) in writer.not_durable()? {
            if !store.check(&sha256).unwrap_or(false) {
                bad.push((object, sha256));
            }
        }
        // Of packages, which have no name that would tell, what is not known to have reached the disk comes anew.
        for package in writer.packages_not_durable()? {
            let transaction = writer.begin(true)?;
            transaction.package_gone(package, true)?;
            transaction.commit()?;
            store.forget_package(package.number())?;
        }
        if !bad.is_empty() {
            status.warning(&format!(
                "{} files in the cache did not survive the machine's last end; they will be fetched again",
                bad.len()
            ));
            let transaction = writer.begin(true)?;
            for (object, sha256) in &bad {
                transaction.forget_object(*object)?;
                store.remove(sha256)?;
            }
            transaction.commit()?;
        }
    }
    writer.set_meta("boot", &now)?;
    Ok(())
}
