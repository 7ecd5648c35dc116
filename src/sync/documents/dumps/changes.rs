//! Packages of Change Dumps (core 13): which of them have what is missing, and their manifests.

use std::sync::Arc;

use super::{Dump, Fit, Listed, Listing, Reading, enter, fits, forget, read};
use crate::catalog::SetRow;
use crate::document::{Capability, Datetime};
use crate::source::{SourceError, Trouble};
use crate::sync::context::Context;
use crate::sync::documents::fetch::Lists;
use crate::sync::documents::spooled::{Spooled, ended_before};
use crate::sync::error::SyncError;

/// Packages of changes, from the oldest to the newest.
#[derive(Debug, Default)]
pub(in crate::sync) struct Packed {
    pub(in crate::sync) packages: Vec<Listed>,
    /// What happened before then is in the tree.
    since: Option<Datetime>,
    pub(in crate::sync) failed: Vec<SourceError>,
}

impl Packed {
    pub(in crate::sync) fn extend(&mut self, other: Self) {
        self.packages.extend(other.packages);
        self.since = other.since;
        self.failed.extend(other.failed);
    }

    /// The packages that ended before `covered`, which only the history needs, and the others.
    pub(in crate::sync) fn split(self, covered: Option<Datetime>) -> (Self, Self) {
        let (past, packages) = self.packages.into_iter().partition(|listed| ended_before(listed.until, covered));
        let past = Self { packages: past, since: self.since, failed: Vec::new() };
        (past, Self { packages, since: covered, failed: self.failed })
    }

    /// Bytes of all of them, as far as they are listed.
    pub(in crate::sync) fn bytes(&self) -> u64 {
        self.packages.iter().filter_map(|listed| listed.row.length).fold(0, u64::saturating_add)
    }

    /// Where a package begins that leaves something out between itself and what is known before it.
    pub(in crate::sync) fn hole(&self, since: Option<Datetime>) -> Option<Datetime> {
        let mut covered = since;
        for listed in &self.packages {
            if let Some(from) = listed.from.filter(|from| covered.is_some_and(|covered| *from > covered)) {
                return Some(from);
            }
            covered = covered.max(listed.until);
        }
        None
    }
}

/// The packages of these Change Dumps that have changes from a moment on.
pub(in crate::sync) async fn packages_since(
    context: &Context,
    set: &SetRow,
    documents: Vec<Spooled>,
    since: Option<Datetime>,
) -> Result<Packed, SyncError> {
    let (rset, status) = (set.id, Arc::clone(&context.status));
    let looked = tokio::task::spawn_blocking(move || {
        let mut listing = Listing::new(rset, status);
        for document in &documents {
            if let Err(error) = listing.add(document) {
                listing.failed.push(error);
            }
        }
        Packed { since, packages: listing.packages, failed: listing.failed }
    });
    let mut packed = looked.await?;
    if packed.packages.iter().all(|listed| listed.from.is_some()) {
        packed.packages.sort_by_key(|listed| listed.from);
    }
    packed.packages.retain(|listed| !ended_before(listed.until, since));
    Ok(packed)
}

/// The manifests of packages of changes, in their order, up to the first that cannot be had. The packages are brought here,
/// if they fit, and are not of an archive.
pub(in crate::sync) async fn manifests_of_changes(
    context: &Arc<Context>,
    packed: Packed,
    archived: bool,
) -> Result<Lists, SyncError> {
    let mut dump = Dump { packages: packed.packages, failed: packed.failed, ..Dump::default() };
    let wanted = !archived && fits(context, &dump)? == Fit::All;
    let how = Reading { download: wanted, wanted, beside: false, archived, manifest: Capability::ChangeDumpManifest };
    if dump.packages.is_empty() {
        return Ok(dump.into_lists());
    }
    enter(context, &mut dump, how).await?;
    // The interval of a package ends where that of the next one begins: it may all be in the tree.
    dump.packages.retain(|listed| {
        let done = listed.until.zip(packed.since).is_some_and(|(until, since)| until <= since);
        !(done && listed.row.indexed)
    });
    read(context, &mut dump, &[], how).await;
    let mut lists = Lists { failed: dump.failed, ..Lists::default() };
    let mut manifests: Vec<Spooled> = dump.manifests;
    for listed in &dump.packages {
        match manifests.iter().position(|document| document.row.package == Some(listed.row.id)) {
            Some(place) => {
                let mut document = manifests.swap_remove(place);
                document.about.from = document.about.from.or(listed.from);
                // What the package covers is done with it, whatever becomes of the dump.
                document.about.until = document.about.until.or(listed.until);
                lists.read.push(document);
            }
            None => {
                // What is no package will not become one by lying here.
                forget(context, listed.row.id).await?;
                if lists.failed.is_empty() {
                    let trouble = Trouble::Nowhere("its manifest was not had".to_owned());
                    lists.failed.push(SourceError::new(&listed.row.url, trouble));
                }
                break;
            }
        }
    }
    Ok(lists)
}
