//! Packages that are open, and what is kept of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bounds;
use crate::catalog::{PackageId, PackageRow, Stored};
use crate::source::{SourceError, Trouble};
use crate::store::boot::boot_id;
use crate::sync::context::Context;
use crate::sync::transfer::package::{Known, NOWHERE, Package};
use crate::sync::transfer::sparse::{Notes, Parts, Result};

/// Packages up to this size are waited for rather than read aside, if they come.
pub(super) const SMALL: u64 = 16 << 20;

/// How often it is noted that a package is in use.
const TOUCH_EVERY: Duration = Duration::from_secs(10);

/// A package by its number.
pub(in crate::sync) fn get(context: &Context, id: PackageId) -> Option<Arc<Package>> {
    if let Some(package) = context.files.package(id) {
        return Some(package);
    }
    let row =
        context.readers.ask(|reader| reader.package(id)).map_err(|error| context.status.error(&error.to_string()));
    take(context, &row.ok()??).map_err(|error| context.status.error(&format!("cache: package {id}: {error}"))).ok()
}

/// The package of a row, opened where it is not.
pub(in crate::sync) fn take(context: &Context, row: &PackageRow) -> std::io::Result<Arc<Package>> {
    if let Some(package) = context.files.package(row.id) {
        return Ok(package);
    }
    let file = Arc::new(context.store.package(row.id.number())?);
    let is_whole = row.whole && row.size == Some(file.metadata()?.len());
    let notes = if is_whole { None } else { Notes::read(&context.store.package_notes(row.id.number())) };
    let notes = notes.filter(|notes| notes.url == row.url && notes.boot == boot_id() && notes.validator.is_some());
    let known = match &notes {
        Some(notes) => {
            Known { total: notes.total, validator: notes.validator.clone(), ranges: Some(true), failed: None }
        }
        // Without a validator nothing tells whether it is still what it was.
        None => Known {
            total: row.size.filter(|_| is_whole || row.validator.is_some()),
            validator: row.validator.clone(),
            ..Known::default()
        },
    };
    // What a server has of one that is written anew is none of its parts.
    let known = if row.recast { Known { ranges: Some(false), ..known } } else { known };
    let package = Arc::new(Package {
        id: row.id,
        epoch: row.epoch,
        url: row.url.clone(),
        listed: row.length,
        file,
        doubtful: AtomicBool::new(row.doubtful),
        recast: AtomicBool::new(row.recast),
        parts: Arc::new(Parts::new(notes.map(|notes| notes.ranges).unwrap_or_default())),
        known: Mutex::new(known),
        whole: AtomicBool::new(is_whole),
        busy: AtomicBool::new(false),
        stream: AtomicU64::new(NOWHERE),
        asked: Mutex::new(Vec::new()),
        touched: Mutex::new(None),
        counted: AtomicU64::new(0),
        gone: AtomicBool::new(false),
        looking: Arc::default(),
    });
    Ok(context.files.put_package(row.id, package))
}

/// A package is being read from.
pub(in crate::sync) fn touch(context: &Context, package: &Package) {
    let mut touched = package.touched.lock();
    if touched.is_none_or(|last| last.elapsed() > TOUCH_EVERY) {
        *touched = Some(Instant::now());
        context.write_queue.touched_package(package.id);
    }
}

/// Waits until the download of a package, if there is one, has ended.
pub(in crate::sync) async fn settled(context: &Context, id: PackageId) {
    loop {
        let ended = context.downloads.ended.notified();
        let running = context.files.is_busy(Stored::Package(id));
        if !running {
            return;
        }
        // Looked at again now and then: an end between the look and the wait would be missed.
        let _ = tokio::time::timeout(Duration::from_millis(200), ended).await;
    }
}

/// Removes a package that nothing needs.
pub(in crate::sync) fn forget(context: &Context, id: PackageId) -> std::io::Result<()> {
    context.store.forget_package(id.number())?;
    context.files.close(&[Stored::Package(id)]);
    Ok(())
}

/// The most bytes of a package that are taken, and what is wrong with more. A dump may be mistaken in a length, but not
/// by much.
pub(in crate::sync) fn most(context: &Context, package: &Package) -> (u64, Trouble) {
    match package.listed {
        None => (
            context.config.bounds.resource,
            bounds::RESOURCE.passed("the size of the package", &context.config.bounds).into(),
        ),
        Some(listed) => {
            let most = listed.saturating_mul(2).saturating_add(SMALL);
            let problem = format!("the package is larger than {most} bytes, where its dump lists {listed}; given up");
            (most, Trouble::Nowhere(problem))
        }
    }
}

/// Whether the last try to bring a package here failed, and how.
pub(in crate::sync) fn failure(context: &Context, id: PackageId) -> Option<SourceError> {
    context.files.package(id).and_then(|package| package.known.lock().failed.clone())
}

/// Nothing is read of a package any more before it was written anew.
pub(in crate::sync) async fn begin_recast(context: &Context, package: &Package) -> Result<()> {
    package.known.lock().ranges = Some(false);
    package.recast.store(true, Ordering::Release);
    let noted = context.write_queue.package_recast(package.id, None).await;
    noted.map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))
}

/// The least that is fetched aside: who reads one member is likely to read the next.
pub(in crate::sync) const LEAST_PART: u64 = 256 << 10;
