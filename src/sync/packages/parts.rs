//! Parts of packages that somebody wants: waited for where the download will be soon, else fetched aside.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::download::{probe, renew, start};
use super::opened::{LEAST_PART, SMALL, begin_recast, failure, settled};
use super::recast;
use crate::source::{SourceError, Trouble};
use crate::store::archive::{ArchiveError, Directory, Found, Member, Partial};
use crate::sync::context::Context;
use crate::sync::transfer::package::{Asking, Known, Package};
use crate::sync::transfer::sparse::{MOST_BREAKS, Result, Wanted, part};

/// A part that the download reaches this soon is waited for.
pub(in crate::sync) const SOON: u64 = 1 << 20;

/// How much of the end of a package is fetched to find its directory.
pub(in crate::sync) const TAIL: u64 = 128 << 10;

/// The most of a directory that is fetched in one step.
pub(in crate::sync) const DIRECTORY_STEP: u64 = 16 << 20;

/// How long a download may take before the directory is fetched aside.
pub(in crate::sync) const HEAD_START: Duration = Duration::from_millis(400);

/// Brings a part of a package here: waits for the download where that will be there soon, else fetches
/// it aside. `moved` is called at each progress.
///
/// # Errors
/// If there is no progress for as long as `timeout` says.
pub(in crate::sync) async fn bring(
    context: &Arc<Context>,
    package: &Arc<Package>,
    (begin, end): (u64, u64),
    moved: impl Fn(),
) -> Result<()> {
    let begun = Instant::now();
    let mut steps = package.parts.moved();
    let mut tries = 0;
    loop {
        let last = (*steps.borrow_and_update()).max(begun);
        moved();
        if package.has(begin, end) {
            return Ok(());
        }
        if package.gone.load(Ordering::Acquire) {
            return Err(SourceError::new(&package.url, Trouble::Changed));
        }
        if context.config.offline {
            return Err(nowhere(package, "not in the cache, and the mount is offline".to_owned()));
        }
        let known = package.known.lock().clone();
        let asked_end = known.total.map_or(end, |total| end.min(total));
        if is_coming(context, package, &known, (begin, asked_end)) || package.is_asked(begin, asked_end) {
            let timeout = context.client.timeout();
            let deadline = tokio::time::Instant::from_std(last + timeout + context.client.backlog());
            if tokio::time::timeout_at(deadline, steps.changed()).await.is_err() {
                let trouble = Trouble::Stalled { what: "more of the package", after: timeout };
                return Err(SourceError::new(&package.url, trouble));
            }
            continue;
        }
        let known = Known { failed: known.failed.filter(|_| tries > 0), ..known };
        if let Err(error) = ask(context, package, known, (begin, end), &moved).await? {
            if matches!(error.trouble, Trouble::Changed) && !package.is_busy() {
                // What was found of its members is of an edition that is gone.
                renew(context, package).await?;
            }
            let goes_on = matches!(error.trouble, Trouble::NoRanges) || error.trouble.passes();
            if !goes_on || tries >= MOST_BREAKS {
                return Err(error);
            }
        }
        tries += 1;
    }
}

fn nowhere(package: &Package, problem: String) -> SourceError {
    SourceError::new(&package.url, Trouble::Nowhere(problem))
}

/// Whether the download of a package will bring a part of it soon, or nothing else can.
fn is_coming(context: &Context, package: &Package, known: &Known, (begin, end): (u64, u64)) -> bool {
    let Some(at) = package.downloading() else { return false };
    // What is missing of a part that the download is within comes in order, and no other way sooner.
    let missing = package.parts.ranges().gap(begin, end).map_or(begin, |(first, _)| first);
    known.total.is_none()
        || known.ranges == Some(false)
        || context.client.connections() < 2
        || (missing >= at.saturating_sub(SOON) && missing < at.saturating_add(SOON))
}

/// Asks for a part of a package in the way that its server knows. The inner error may pass, the outer one is for good.
async fn ask(
    context: &Arc<Context>,
    package: &Arc<Package>,
    known: Known,
    (begin, end): (u64, u64),
    moved: impl Fn(),
) -> Result<Result<()>> {
    match (known.total, known.ranges) {
        (Some(total), Some(true) | None) if begin >= total => {
            Err(nowhere(package, format!("it ends at {total}, and something at {begin} was wanted")))
        }
        (Some(_), Some(true) | None) => {
            let mut steps = package.parts.moved();
            let fetch = aside(context, package, begin, end);
            tokio::pin!(fetch);
            loop {
                tokio::select! {
                    came = &mut fetch => return Ok(came),
                    _ = steps.changed() => moved(),
                }
            }
        }
        // One that waits for its turn has no end in sight: other places do.
        (_, Some(false)) if package.is_busy() => Err(SourceError::new(&package.url, Trouble::NoRanges)),
        (_, Some(false)) => match known.failed {
            Some(error) => Err(error),
            None => start_whole(context, package, known.total.unwrap_or(0)).map(Ok),
        },
        (None, _) => match known.failed {
            Some(error) => Ok(Err(error)),
            None => Ok(probe(context, package).await),
        },
    }
}

/// Begins to download a package whose server gives no parts of it.
fn start_whole(context: &Arc<Context>, package: &Arc<Package>, total: u64) -> Result<()> {
    let row = context.readers.ask(|reader| reader.package(package.id)).ok().flatten();
    let row = row.ok_or_else(|| nowhere(package, "its package is not known any more".to_owned()))?;
    let fits = row.wanted || context.write_queue.cache_size().is_none_or(|limit| total <= limit);
    if !fits {
        let problem = "its server gives no parts of it, and it is larger than cache_size".to_owned();
        return Err(nowhere(package, problem));
    }
    start(context, &row, None).map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))
}

/// Brings a member of a package here: only its local header tells where it ends.
///
/// # Errors
/// As [`Packages::bring`]. A local header that is not the member's is for who reads it.
pub(in crate::sync) async fn bring_member(
    context: &Arc<Context>,
    package: &Arc<Package>,
    member: &Member,
    moved: impl Fn(),
) -> Result<()> {
    bring(context, package, member.extent(), &moved).await?;
    match member.data(&package.file) {
        Ok(data) => bring(context, package, (member.header, data.saturating_add(member.compressed)), moved).await,
        Err(_) => Ok(()),
    }
}

/// Fetches a part of a package whose length is known, and what lies next to it.
pub(in crate::sync) async fn aside(context: &Context, package: &Arc<Package>, begin: u64, end: u64) -> Result<()> {
    let known = package.known.lock().clone();
    let total = known.total.unwrap_or(end);
    let far = end.max(begin.saturating_add(LEAST_PART)).min(total);
    // No more than is missing.
    let gap = package.parts.ranges().gap(begin, far).unwrap_or((begin, far));
    let room = context.store.check_room(gap.1 - gap.0);
    room.map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))?;
    let _asking = Asking::begin(package, gap);
    let wanted = Wanted {
        url: &package.url,
        validator: known.validator.as_deref(),
        patience: Some(context.client.timeout()),
        begin: gap.0,
        end: gap.1,
        total,
    };
    let came = part(&context.client, &package.parts, &package.file, &wanted).await;
    match &came {
        Err(error) if matches!(error.trouble, Trouble::NoRanges) => package.known.lock().ranges = Some(false),
        Ok(()) if !package.is_recast() => package.known.lock().ranges = Some(true),
        Ok(()) | Err(_) => {}
    }
    came
}

/// A member by its path. The directory is brought here as far as it is needed. Who is not patient does
/// not wait for the whole of a package whose server gives no parts of it.
///
/// # Errors
/// If the package cannot be had, or is none; [`Trouble::NoRanges`] if it would have to be waited for.
pub(in crate::sync) async fn find_one(
    context: &Arc<Context>,
    package: &Arc<Package>,
    path: &str,
    patient: bool,
) -> Result<(Found, Option<String>)> {
    // With one connection, the download has it.
    let patient = patient || context.client.connections() < 2;
    head_start(context, package).await;
    loop {
        let total = length(context, package).await?;
        let (own, bounds, path) = (Arc::clone(package), context.config.bounds, path.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let reader = Arc::clone(&own);
            let partial = Partial::new(Arc::clone(&own.file), total, move |begin, end| reader.has(begin, end));
            Directory::find_one(partial, &path, &bounds)
        });
        match read.await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(ArchiveError::Hole(at))) => {
                bring_directory(context, package, directory_step(at, total), patient).await?;
            }
            Ok(Err(error)) => {
                if !may_be_recast(context, package).await? {
                    return Err(nowhere(package, error.to_string()));
                }
            }
            Err(error) => return Err(SourceError::new(&package.url, Trouble::Broken(error.to_string()))),
        }
    }
}

/// How long a package is. A server that does not tell has to be heard out.
async fn length(context: &Arc<Context>, package: &Arc<Package>) -> Result<u64> {
    const MOST_TRIES: u32 = 3;
    for _ in 0..MOST_TRIES {
        if package.total().is_none() && package.downloading().is_none() && !package.is_whole() {
            probe(context, package).await?;
        } else if package.total().is_none() {
            bring(context, package, (0, 1), || ()).await?;
        }
        let here = || package.file.metadata().map(|metadata| metadata.len()).unwrap_or(0);
        if let Some(total) = package.total().or_else(|| package.is_whole().then(here)) {
            return Ok(total);
        }
        settled(context, package.id).await;
        if let Some(error) = failure(context, package.id) {
            return Err(error);
        }
    }
    Err(SourceError::new(&package.url, Trouble::Broken("its length cannot be found".to_owned())))
}

/// The part of a package to be brought next, of which the reader of its directory misses what is `at` this place.
fn directory_step(at: u64, total: u64) -> (u64, u64) {
    let tail = total.saturating_sub(TAIL);
    match at {
        0 => (0, 4096.min(total)),
        at if at >= tail => (tail, total),
        // Between the first record of a directory and its end, all is directory.
        at => (at, if tail - at <= DIRECTORY_STEP { tail } else { at + DIRECTORY_STEP }),
    }
}

/// Brings a part of the directory of a package here, for who is patient, or not.
async fn bring_directory(
    context: &Arc<Context>,
    package: &Arc<Package>,
    part: (u64, u64),
    patient: bool,
) -> Result<()> {
    if !patient && !package.is_whole() {
        let ranges = package.known.lock().ranges;
        return match ranges {
            Some(false) => Err(SourceError::new(&package.url, Trouble::NoRanges)),
            _ if package.has(part.0, part.1) => Ok(()),
            _ => aside(context, package, part.0, part.1).await,
        };
    }
    match bring(context, package, part, || ()).await {
        // Only the download brings it, and that waits for its turn.
        Err(error) if matches!(error.trouble, Trouble::NoRanges) && package.is_busy() => {
            settled(context, package.id).await;
            failure(context, package.id).map_or(Ok(()), Err)
        }
        brought => brought,
    }
}

/// Whether a package that is no ZIP file may become one when all of it is here; notes so.
pub(in crate::sync) async fn may_be_recast(context: &Arc<Context>, package: &Arc<Package>) -> Result<bool> {
    if package.is_whole() || package.is_recast() {
        return Ok(false);
    }
    bring(context, package, (0, 16), || ()).await?;
    let is = recast::kind(&package.file).is_some();
    if is {
        begin_recast(context, package).await?;
    }
    Ok(is)
}

/// A download that is quick is the shortest way to everything in a package.
pub(in crate::sync) async fn head_start(context: &Context, package: &Package) {
    let begun = Instant::now();
    let mut steps = package.parts.moved();
    while !package.is_whole() && package.downloading().is_some() {
        steps.mark_unchanged();
        let _ = tokio::time::timeout(Duration::from_millis(50), steps.changed()).await;
        let waited = begun.elapsed();
        let slow = package.total().is_none_or(|total| total > SMALL) || !is_moving(package);
        if waited > context.client.timeout() || (waited > HEAD_START && slow && package.total().is_some()) {
            return;
        }
    }
}

/// Whether bytes came just now.
pub(in crate::sync) fn is_moving(package: &Package) -> bool {
    package.parts.moved().borrow().elapsed() < HEAD_START
}
