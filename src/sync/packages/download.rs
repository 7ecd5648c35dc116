//! The download of a package: begun, gone on with, begun anew, held to what its dump says, and noted for
//! the next process.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::opened::{LEAST_PART, begin_recast, get, most, take};
use super::recast;
use crate::catalog::{PackageBytes, PackageRow, Stored};
use crate::source::{Answer, Asked, Expected, Hasher, SourceError, Trouble, verify};
use crate::store::boot::boot_id;
use crate::sync::context::Context;
use crate::sync::transfer::package::{NOWHERE, Package};
use crate::sync::transfer::sparse::{Fill, MOST_BREAKS, Notes, Result, whole};

/// After how many bytes of parts it is noted that they are here.
const COUNT_EACH: u64 = 1 << 20;

/// Begins to bring a package here, if nobody does: all of it, or these parts of it.
pub(in crate::sync) fn start(
    context: &Arc<Context>,
    row: &PackageRow,
    needed: Option<Vec<(u64, u64)>>,
) -> std::io::Result<()> {
    let package = take(context, row)?;
    if context.config.offline || package.is_whole() {
        return Ok(());
    }
    if package.busy.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    package.known.lock().failed = None;
    let (context, row) = (Arc::clone(context), row.clone());
    // Who looks next is to see at once that a download is under way; of one that waits for its turn,
    // parts are fetched aside.
    let slot = Arc::clone(&context.downloads.slots).try_acquire_owned().ok();
    if slot.is_some() {
        package.stream.store(0, Ordering::Release);
    }
    tokio::spawn(async move {
        let _slot = match slot {
            Some(slot) => Some(slot),
            None => Arc::clone(&context.downloads.slots).acquire_owned().await.ok(),
        };
        let own = Arc::clone(&package);
        let work = std::panic::AssertUnwindSafe(download(&context, package, &row, needed.as_deref()));
        if futures_util::FutureExt::catch_unwind(work).await.is_err() {
            let problem = "a bug ended the download; see the log".to_owned();
            over(&context, &own, Some(SourceError::new(&row.url, Trouble::Broken(problem))));
        }
        context.downloads.ended.notify_waiters();
    });
    Ok(())
}

/// Downloads until it is done, or there is no hope for now.
async fn download(context: &Context, first: Arc<Package>, row: &PackageRow, needed: Option<&[(u64, u64)]>) {
    let mut package = first;
    let mut breaks = 0;
    let error = loop {
        if package.gone.load(Ordering::Acquire) {
            break None;
        }
        package.stream.store(0, Ordering::Release);
        package.parts.progress();
        let before = package.parts.ranges().len();
        let error = match download_once(context, &package, row, needed).await {
            Ok(()) => break None,
            Err(error) => error,
        };
        if package.gone.load(Ordering::Acquire) {
            // Nobody wants it any more, or it is begun anew already.
            break Some(error).filter(|_| context.files.package(row.id).is_some());
        }
        if matches!(error.trouble, Trouble::Changed) && breaks < MOST_BREAKS {
            // What is here is of another edition.
            breaks += 1;
            package = match renew(context, &package).await {
                Ok(next) => next,
                Err(error) => break Some(error),
            };
            continue;
        }
        breaks = if package.parts.ranges().len() > before { 1 } else { breaks + 1 };
        let goes_on = error.trouble.passes() || error.trouble.is_away();
        if !goes_on || breaks >= MOST_BREAKS || package.known.lock().validator.is_none() {
            break Some(error);
        }
        tokio::time::sleep(Duration::from_secs(u64::from(breaks))).await;
    };
    over(context, &package, error);
}

/// A download has ended. Who asks for the package may have another one open than it began with.
fn over(context: &Context, package: &Arc<Package>, error: Option<SourceError>) {
    if let Some(error) = &error {
        context.status.error(&error.to_string());
    }
    for one in [Some(Arc::clone(package)), context.files.package(package.id)].into_iter().flatten() {
        if error.is_some() {
            one.known.lock().failed.clone_from(&error);
        }
        one.stream.store(NOWHERE, Ordering::Release);
        one.busy.store(false, Ordering::Release);
        one.parts.progress();
    }
}

/// Lets go what is here of a package, and begins it anew: in a file of its own, so that who reads the
/// old one goes on reading that, and with nothing known of its members.
pub(in crate::sync) async fn renew(context: &Context, package: &Arc<Package>) -> Result<Arc<Package>> {
    let failed = |error: String| SourceError::new(&package.url, Trouble::Disk(error));
    let _nobody_looks = package.looking.lock().await;
    if package.gone.load(Ordering::Acquire) {
        // Somebody was faster.
        return get(context, package.id).ok_or_else(|| failed("it is not known any more".to_owned()));
    }
    // First the catalog, then the file, then who has it open: whoever opens it anew finds all of it new.
    context.write_queue.package_renewed(package.id).await.map_err(|error| failed(error.to_string()))?;
    context.store.forget_package(package.id.number()).map_err(|error| failed(error.to_string()))?;
    context.files.close(&[Stored::Package(package.id)]);
    let row = context.readers.ask(|reader| reader.package(package.id)).map_err(|error| failed(error.to_string()))?;
    let Some(row) = row else { return Err(failed("it is not known any more".to_owned())) };
    let next = take(context, &row).map_err(|error| failed(error.to_string()))?;
    let (was_busy, here) = (package.busy.swap(false, Ordering::AcqRel), package.parts.ranges().len());
    let missing = package.total().unwrap_or(here).saturating_sub(here);
    context.status.update(|progress| {
        progress.package_bytes_known = progress.package_bytes_known.saturating_sub(missing);
    });
    package.stream.store(NOWHERE, Ordering::Release);
    package.parts.progress();
    if was_busy && next.busy.swap(true, Ordering::AcqRel) {
        // Somebody has begun it anew already.
        return Err(SourceError::new(&package.url, Trouble::Changed));
    }
    Ok(next)
}

async fn download_once(
    context: &Context,
    package: &Arc<Package>,
    row: &PackageRow,
    needed: Option<&[(u64, u64)]>,
) -> Result<()> {
    let disk = |error: std::io::Error| SourceError::new(&package.url, Trouble::Disk(error.to_string()));
    let (answer, mut notes) = begin(context, package, needed.is_some()).await?;
    let missing = notes.total.or(row.length).unwrap_or(0).saturating_sub(package.parts.ranges().len());
    context.store.check_room(if needed.is_none() { missing } else { 0 }).map_err(disk)?;
    context.status.update(|progress| {
        progress.package_bytes_known = progress.package_bytes_known.saturating_add(missing);
    });
    let fill = Fill {
        client: &context.client,
        store: &context.store,
        status: &context.status,
        url: &package.url,
        file: &package.file,
        notes_path: context.store.package_notes(package.id.number()),
        parts: &package.parts,
        patience: None,
        listed: None,
        // A body without an announced end must have one all the same.
        most: most(context, package),
        held_to_a_hash: false,
        aside: false,
        gone: Some(&package.gone),
        at: &|at, came| {
            package.stream.store(at, Ordering::Release);
            context.status.came(came);
        },
    };
    let result = fill.run(answer, &mut notes, needed).await;
    notes.ranges = package.parts.ranges().clone();
    if let (Ok(total), None) = (&result, notes.total) {
        notes.total = Some(*total);
    }
    let is_whole = notes.total.is_some_and(|total| notes.ranges.contains(0, total));
    if is_whole && notes.validator.is_some() && !package.gone.load(Ordering::Acquire) {
        // Whatever ends this process before the catalog knows, it is not downloaded again.
        fill.write_notes(&notes)?;
    }
    match result {
        _ if is_whole => complete(context, package, row, &notes).await,
        Err(error) if matches!(error.trouble, Trouble::Changed) => Err(error),
        Err(error) if notes.validator.is_none() => {
            // Nothing would tell whether what comes next belongs to it.
            renew(context, package).await?;
            Err(error)
        }
        _ => {
            note(context, package).await;
            result.map(|_| ())
        }
    }
}

/// Asks for a package from where it was left; of one of which only parts are needed, no more than how long it is.
async fn begin(context: &Context, package: &Arc<Package>, in_parts: bool) -> Result<(Option<Answer>, Notes)> {
    if package.parts.ranges().len() > 0 {
        return Ok((None, notes(package)));
    }
    if in_parts {
        probe(context, package).await?;
        return Ok((None, notes(package)));
    }
    let answer = context.client.ask(&package.url, &Asked::default()).await?;
    if let Some(coding) = answer.coding() {
        let problem = "a package must come as it is".to_owned();
        return Err(SourceError::new(&package.url, Trouble::BadCoding { coding, problem }));
    }
    let notes = Notes::of(&package.url, &answer);
    check_most(context, package, notes.total)?;
    found(context, package, &notes, None);
    Ok((Some(answer), notes))
}

fn notes(package: &Package) -> Notes {
    let known = package.known.lock().clone();
    Notes {
        url: package.url.clone(),
        validator: known.validator,
        total: known.total,
        ranges: package.parts.ranges().clone(),
        boot: boot_id(),
        streamed: false,
    }
}

/// Holds the length that a server announces of a package to what is taken.
fn check_most(context: &Context, package: &Package, total: Option<u64>) -> Result<()> {
    let (most, trouble) = most(context, package);
    match total.is_some_and(|total| total > most) {
        true => Err(SourceError::new(&package.url, trouble)),
        false => Ok(()),
    }
}

/// A server has answered for a package.
fn found(context: &Context, package: &Package, notes: &Notes, ranges: Option<bool>) {
    {
        let mut known = package.known.lock();
        known.total = notes.total;
        known.validator = notes.validator.clone();
        // Parts of what cannot be told from another edition do not belong together.
        known.ranges = if notes.validator.is_none() { Some(false) } else { ranges.or(known.ranges) };
        known.failed = None;
    }
    package.parts.progress();
    if let Some(total) = notes.total {
        let (id, validator) = (package.id, notes.validator.clone());
        let (write_queue, status) = (context.write_queue.clone(), Arc::clone(&context.status));
        // A long step of the writer's must not stop the bytes from coming.
        tokio::spawn(async move {
            let written =
                write_queue.write(move |transaction| transaction.package_found(id, total, validator.as_deref())).await;
            if let Err(error) = written {
                status.error(&error.to_string());
            }
        });
    }
}

/// Asks for the first bytes of a package, to learn how large it is and whether its server gives parts.
pub(in crate::sync) async fn probe(context: &Context, package: &Arc<Package>) -> Result<()> {
    if package.total().is_some() && package.known.lock().ranges.is_some() {
        return Ok(());
    }
    let asked = Asked { range: Some((0, Some(LEAST_PART - 1))), ..Asked::default() };
    let mut answer = context.client.ask(&package.url, &asked).await?;
    let notes = Notes::of(&package.url, &answer);
    check_most(context, package, notes.total)?;
    let partial = answer.status == 206 && answer.content_range().is_some_and(|(at, _)| at == 0);
    let before = package.known.lock().validator.clone();
    if before.is_some() && before != notes.validator && package.parts.ranges().len() > 0 {
        return Err(SourceError::new(&package.url, Trouble::Changed));
    }
    found(context, package, &notes, Some(partial && whole(&answer).is_some()));
    if partial {
        let mut at = 0;
        while let Some(chunk) = answer.chunk().await? {
            if at + chunk.len() as u64 > LEAST_PART {
                let problem = "more bytes came than were asked for".to_owned();
                return Err(SourceError::new(&package.url, Trouble::Nowhere(problem)));
            }
            let written = package.parts.write(&package.file, &chunk, at);
            written.map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))?;
            at += chunk.len() as u64;
            package.parts.progress();
        }
    }
    Ok(())
}

/// All of a package is here: holds it to what its dump says.
async fn complete(context: &Context, package: &Arc<Package>, row: &PackageRow, notes: &Notes) -> Result<()> {
    let total = notes.total.unwrap_or(0);
    let disk = |error: std::io::Error| SourceError::new(&package.url, Trouble::Disk(error.to_string()));
    package.file.set_len(total).map_err(disk)?;
    let expected = Expected { length: row.length, hashes: row.hashes.clone(), encoding: None, media: None };
    let verdict = if expected.hashes.is_empty() {
        match expected.length.filter(|length| *length != total) {
            Some(expected) => Err(Trouble::WrongLength { got: total, expected }),
            None => Ok(()),
        }
    } else {
        let own = Arc::clone(package);
        let sums = tokio::task::spawn_blocking(move || {
            Hasher::read(&expected.hashes, Whole { file: &own.file, at: 0 }).map(|sums| verify(&sums, &expected))
        });
        sums.await.map_err(|error| disk(std::io::Error::other(error)))?.map_err(disk)?
    };
    let doubtful = verdict.is_err();
    let whole = Notes { total: Some(total), ..notes.clone() };
    found(context, package, &whole, None);
    if let Err(trouble) = verdict {
        context.status.error(&format!(
            "{}: {trouble}; members are taken from it only where its manifest has a hash for them",
            package.url
        ));
    }
    package.doubtful.store(doubtful, Ordering::Release);
    if let Some(kind) = recast::kind(&package.file)
        && recast(context, package, kind, doubtful).await?
    {
        return Ok(());
    }
    package.whole.store(true, Ordering::Release);
    tracing::debug!(url = package.url, bytes = total, doubtful, "a package is here");
    package.parts.progress();
    has_now(context, package, true).await;
    context.store.forget_package_notes(package.id.number()).map_err(disk)
}

/// Writes what came anew, as a package that can be read in place: in a file of its own, so that what still comes of the
/// server's goes into the old one. False if it cannot be, now or later.
async fn recast(context: &Context, package: &Arc<Package>, kind: recast::Kind, doubtful: bool) -> Result<bool> {
    let failed = |trouble| SourceError::new(&package.url, trouble);
    let disk = |error: std::io::Error| failed(Trouble::Disk(error.to_string()));
    begin_recast(context, package).await?;
    let (own, store, bounds) = (Arc::clone(package), Arc::clone(&context.store), context.config.bounds);
    let work = tokio::task::spawn_blocking(move || recast::recast(&own.file, kind, &store, &bounds, !doubtful));
    let made = match work.await.map_err(|error| disk(std::io::Error::other(error)))? {
        Ok(made) => made,
        Err(error) if error.passes() => return Err(disk(std::io::Error::other(error))),
        Err(error) => {
            // The same bytes would come to the same end: they stay, and whoever looks into them finds no package.
            context.status.error(&format!("{}: {error}", package.url));
            return recast_to(context, package, package.total().unwrap_or(0)).await.map(|()| false);
        }
    };
    if made.damaged > 0 {
        context.status.error(&format!(
            "{}: {} records are not what their digests say, or cannot be read; not used",
            package.url, made.damaged
        ));
    }
    // From here on nobody notes anything of the old file; a process that ends before the new one is known begins anew.
    let looking = package.looking.lock().await;
    if package.gone.swap(true, Ordering::AcqRel) {
        return Err(failed(Trouble::Changed));
    }
    let replaced = async {
        context.store.forget_package_notes(package.id.number()).map_err(disk)?;
        context.store.replace_package(package.id.number(), made.file).map_err(disk)?;
        recast_to(context, package, made.size).await?;
        let here = PackageBytes { bytes: made.size, whole: true, doubtful };
        let noted = context.write_queue.package_has(package.id, here).await;
        noted.map_err(|error| failed(Trouble::Disk(error.to_string())))
    };
    let replaced = replaced.await;
    // Whatever came of it, whoever asks next looks at what is there.
    context.files.close(&[Stored::Package(package.id)]);
    drop(looking);
    replaced?;
    package.parts.progress();
    tracing::info!(
        url = package.url,
        resources = made.resources,
        bytes = made.size,
        "a WARC file was written as a package"
    );
    Ok(true)
}

async fn recast_to(context: &Context, package: &Package, size: u64) -> Result<()> {
    let noted = context.write_queue.package_recast(package.id, Some(size)).await;
    noted.map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))
}

/// Notes how much of a package is here, if that is worth it after parts of it were fetched aside.
pub(in crate::sync) async fn count(context: &Context, package: &Package) {
    let here = package.parts.ranges().len();
    if !package.is_whole() && here > package.counted.load(Ordering::Acquire) + COUNT_EACH {
        note(context, package).await;
    }
}

/// Notes which parts of a package are here.
async fn note(context: &Context, package: &Package) {
    let notes = notes(package);
    if notes.validator.is_some()
        && !package.gone.load(Ordering::Acquire)
        && let Err(error) = notes.write(&context.store.package_notes(package.id.number()))
    {
        tracing::warn!(url = package.url, %error, "what is here is not noted; the next process fetches it again");
    }
    has_now(context, package, false).await;
}

/// Notes for the next process which parts of packages are here.
pub(in crate::sync) async fn note_all(context: &Context) {
    for package in context.files.packages() {
        let here = package.parts.ranges().len();
        if !package.is_whole() && here != package.counted.load(Ordering::Acquire) {
            note(context, &package).await;
        }
    }
}

/// Notes how much of a package is here.
async fn has_now(context: &Context, package: &Package, is_whole: bool) {
    if package.gone.load(Ordering::Acquire) {
        return;
    }
    let bytes = match is_whole {
        true => package.total().unwrap_or(0),
        false => package.parts.ranges().len(),
    };
    package.counted.store(bytes, Ordering::Release);
    let doubtful = package.doubtful.load(Ordering::Acquire);
    if let Err(error) =
        context.write_queue.package_has(package.id, PackageBytes { bytes, whole: is_whole, doubtful }).await
    {
        context.status.error(&error.to_string());
    }
}

/// A file from its beginning, whatever offset others read it at.
struct Whole<'f> {
    file: &'f File,
    at: u64,
}

impl std::io::Read for Whole<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = std::os::unix::fs::FileExt::read_at(self.file, out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
