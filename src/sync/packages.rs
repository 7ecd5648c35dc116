//! Packages of dumps: brought here as a whole, or in the parts that somebody wants.
//!
//! Each package is one sparse file. A download fills it from the front; whoever needs a part that is
//! not there yet waits where the download will be soon, and else fetches that part aside, so that the
//! directory of a package and any member can be read long before all of it is here. A server without
//! ranges makes everybody wait for the download.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};

use super::fill::{Fill, MOST_BREAKS, Notes, Parts, Result, Wanted, part, whole};
use super::ledger::{Ledger, boot};
use super::members::archived;
use super::open_files::OpenFiles;
use super::status::Status;
use super::{Shared, SyncError};
use crate::catalog::{CatalogError, PackageRow, Pool, Stored};
use crate::source::{Asked, Client, Expected, Hasher, SourceError, Trouble, verify};
use crate::store::Store;
use crate::store::archive::{ArchiveError, Directory, Found, Member, Partial};

/// The most packages that are downloaded at once.
const MOST_AT_ONCE: usize = 4;
/// A part that the download reaches this soon is waited for.
const SOON: u64 = 1 << 20;
/// The least that is fetched aside: who reads one member is likely to read the next.
const LEAST_PART: u64 = 256 << 10;
/// How much of the end of a package is fetched to find its directory.
const TAIL: u64 = 128 << 10;
/// The most of a directory that is fetched in one step.
const DIRECTORY_STEP: u64 = 16 << 20;
/// How long a download may take before the directory is fetched aside.
const HEAD_START: Duration = Duration::from_millis(400);
/// Packages up to this size are waited for rather than read aside, if they come.
const SMALL: u64 = 16 << 20;
/// After how many bytes of parts it is noted that they are here.
const COUNT_EACH: u64 = 1 << 20;
/// How often it is noted that a package is in use.
const TOUCH_EVERY: Duration = Duration::from_secs(10);

/// No download is under way.
const NOWHERE: u64 = u64::MAX;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a server has shown of a package.
#[derive(Clone, Debug, Default)]
struct Known {
    total: Option<u64>,
    validator: Option<String>,
    /// Whether the server gives parts of it.
    ranges: Option<bool>,
    failed: Option<SourceError>,
}

/// One package, as much of it as is here.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) id: i64,
    /// How often its bytes were begun anew.
    pub(super) epoch: i64,
    pub(super) url: String,
    pub(super) file: Arc<File>,
    pub(super) doubtful: AtomicBool,
    parts: Arc<Parts>,
    known: Mutex<Known>,
    whole: AtomicBool,
    /// Whether a download was begun, or waits for its turn.
    busy: AtomicBool,
    /// Where the download is, once it has its turn.
    stream: AtomicU64,
    /// Parts that are being fetched aside.
    asked: Mutex<Vec<(u64, u64)>>,
    touched: Mutex<Option<Instant>>,
    /// How many bytes of it the catalog knows to be here.
    counted: AtomicU64,
    /// Whether its file has left the store: what comes now is nobody's.
    gone: AtomicBool,
    /// Held by whoever goes through its members.
    pub(super) looking: Arc<tokio::sync::Mutex<()>>,
}

impl Package {
    /// Its length in bytes, once it is known.
    pub(super) fn total(&self) -> Option<u64> {
        locked(&self.known).total
    }

    /// Whether all of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Whether the bytes from the one offset up to the other are here, as far as it reaches.
    pub(super) fn has(&self, begin: u64, end: u64) -> bool {
        if self.is_whole() {
            return true;
        }
        let end = self.total().map_or(end, |total| end.min(total));
        self.parts.ranges().contains(begin, end)
    }

    /// Whether the bytes of a member are here.
    pub(super) fn has_member(&self, member: &Member) -> bool {
        let (begin, end) = member.extent();
        // Only the local header tells how long that is.
        self.has(begin, end)
            && member.data(&self.file).is_ok_and(|data| self.has(begin, data.saturating_add(member.compressed)))
    }

    fn downloading(&self) -> Option<u64> {
        Some(self.stream.load(Ordering::Acquire)).filter(|at| *at != NOWHERE)
    }

    /// Its file has left the store.
    pub(super) fn left(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether a download of it is under way, or waits for its turn.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    fn is_asked(&self, begin: u64, end: u64) -> bool {
        locked(&self.asked).iter().any(|(from, to)| *from <= begin && end <= *to)
    }
}

/// Takes a part off the list of those that are fetched, however that ends.
struct Asking<'p> {
    package: &'p Package,
    part: (u64, u64),
}

impl<'p> Asking<'p> {
    fn begin(package: &'p Package, part: (u64, u64)) -> Self {
        locked(&package.asked).push(part);
        Self { package, part }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asked = locked(&self.package.asked);
        if let Some(at) = asked.iter().position(|part| *part == self.part) {
            asked.swap_remove(at);
        }
        drop(asked);
        self.package.parts.progress();
    }
}

/// All packages of the mirror.
#[derive(Debug)]
pub(super) struct Packages {
    client: Arc<Client>,
    store: Arc<Store>,
    readers: Arc<Pool>,
    ledger: Ledger,
    status: Arc<Status>,
    offline: bool,
    files: OpenFiles,
    slots: Arc<Semaphore>,
    /// A download has ended.
    pub(super) ended: Notify,
}

impl Packages {
    pub(super) fn new(shared: Shared, offline: bool) -> Arc<Self> {
        let Shared { client, store, readers, ledger, status, files } = shared;
        let at_once = client.connections().saturating_sub(1).clamp(1, MOST_AT_ONCE);
        Arc::new(Self {
            client,
            store,
            readers,
            ledger,
            status,
            offline,
            files,
            slots: Arc::new(Semaphore::new(at_once)),
            ended: Notify::new(),
        })
    }

    /// A package by its number.
    pub(super) fn get(&self, id: i64) -> Option<Arc<Package>> {
        if let Some(package) = self.files.package(id) {
            return Some(package);
        }
        let row = self.readers.ask(|reader| reader.package(id)).ok()??;
        self.take(&row).map_err(|error| self.status.error(&format!("cache: package {id}: {error}"))).ok()
    }

    /// The package of a row, opened where it is not.
    pub(super) fn take(&self, row: &PackageRow) -> std::io::Result<Arc<Package>> {
        if let Some(package) = self.files.package(row.id) {
            return Ok(package);
        }
        let file = Arc::new(self.store.package(row.id)?);
        let is_whole = row.whole && row.size == Some(file.metadata()?.len());
        let notes = Notes::read(&self.store.package_notes(row.id))
            .filter(|notes| !is_whole && notes.url == row.url && notes.boot == boot() && notes.validator.is_some());
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
        let package = Arc::new(Package {
            id: row.id,
            epoch: row.epoch,
            url: row.url.clone(),
            file,
            doubtful: AtomicBool::new(row.doubtful),
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
        Ok(self.files.put_package(row.id, package))
    }

    /// A package is being read from.
    pub(super) fn touch(&self, package: &Package) {
        let mut touched = locked(&package.touched);
        if touched.is_none_or(|last| last.elapsed() > TOUCH_EVERY) {
            *touched = Some(Instant::now());
            self.ledger.touched_package(package.id);
        }
    }

    /// Begins to bring a package here, if nobody does: all of it, or these parts of it.
    pub(super) fn start(self: &Arc<Self>, row: &PackageRow, needed: Option<Vec<(u64, u64)>>) -> std::io::Result<()> {
        let package = self.take(row)?;
        if self.offline || package.is_whole() {
            return Ok(());
        }
        if package.busy.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        locked(&package.known).failed = None;
        let (this, row) = (Arc::clone(self), row.clone());
        // Who looks next is to see at once that a download is under way; of one that waits for its turn,
        // parts are fetched aside.
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok();
        if slot.is_some() {
            package.stream.store(0, Ordering::Release);
        }
        tokio::spawn(async move {
            let _slot = match slot {
                Some(slot) => Some(slot),
                None => Arc::clone(&this.slots).acquire_owned().await.ok(),
            };
            let work = std::panic::AssertUnwindSafe(this.download(package, &row, needed.as_deref()));
            if futures_util::FutureExt::catch_unwind(work).await.is_err() {
                this.status.error(&format!("{}: a bug ended the download; see the log", row.url));
            }
            this.ended.notify_waiters();
        });
        Ok(())
    }

    /// Waits until the download of a package, if there is one, has ended.
    pub(super) async fn settled(&self, id: i64) {
        loop {
            let ended = self.ended.notified();
            let running = self.files.is_busy(Stored::Package(id));
            if !running {
                return;
            }
            // Looked at again now and then: an end between the look and the wait would be missed.
            let _ = tokio::time::timeout(Duration::from_millis(200), ended).await;
        }
    }

    /// Removes a package that nothing needs.
    pub(super) fn forget(&self, id: i64) -> std::io::Result<()> {
        self.files.close(&[Stored::Package(id)]);
        self.store.forget_package(id)
    }

    /// Whether the last try to bring a package here failed, and how.
    pub(super) fn failure(&self, id: i64) -> Option<SourceError> {
        self.files.package(id).and_then(|package| locked(&package.known).failed.clone())
    }

    /// Downloads until it is done, or there is no hope for now.
    async fn download(&self, first: Arc<Package>, row: &PackageRow, needed: Option<&[(u64, u64)]>) {
        let mut package = first;
        let mut breaks = 0;
        let error = loop {
            if package.gone.load(Ordering::Acquire) {
                break None;
            }
            package.stream.store(0, Ordering::Release);
            let before = package.parts.ranges().len();
            let error = match self.download_once(&package, row, needed).await {
                Ok(()) => break None,
                Err(error) => error,
            };
            if matches!(error.trouble, Trouble::Changed) && breaks < MOST_BREAKS {
                // What is here is of another edition.
                breaks += 1;
                package = match self.renew(&package).await {
                    Ok(next) => next,
                    Err(error) => break Some(error),
                };
                continue;
            }
            breaks = if package.parts.ranges().len() > before { 1 } else { breaks + 1 };
            let goes_on = error.trouble.passes() || error.trouble.is_away();
            if !goes_on || breaks >= MOST_BREAKS || locked(&package.known).validator.is_none() {
                break Some(error);
            }
            tokio::time::sleep(Duration::from_secs(u64::from(breaks))).await;
        };
        if let Some(error) = error {
            self.status.error(&error.to_string());
            locked(&package.known).failed = Some(error);
        }
        package.stream.store(NOWHERE, Ordering::Release);
        package.busy.store(false, Ordering::Release);
        package.parts.progress();
    }

    /// Lets go what is here of a package, and begins it anew: in a file of its own, so that who reads the
    /// old one goes on reading that, and with nothing known of its members.
    async fn renew(&self, package: &Arc<Package>) -> Result<Arc<Package>> {
        let failed = |error: String| SourceError::new(&package.url, Trouble::Disk(error));
        let _nobody_looks = package.looking.lock().await;
        if package.gone.load(Ordering::Acquire) {
            // Somebody was faster.
            return self.get(package.id).ok_or_else(|| failed("it is not known any more".to_owned()));
        }
        self.files.close(&[Stored::Package(package.id)]);
        self.store.forget_package(package.id).map_err(|error| failed(error.to_string()))?;
        self.ledger.package_renewed(package.id).await.map_err(|error| failed(error.to_string()))?;
        let row = self.readers.ask(|reader| reader.package(package.id)).map_err(|error| failed(error.to_string()))?;
        let Some(row) = row else { return Err(failed("it is not known any more".to_owned())) };
        let next = PackageRow { size: None, validator: None, ..row };
        let next = self.take(&next).map_err(|error| failed(error.to_string()))?;
        next.busy.store(package.busy.load(Ordering::Acquire), Ordering::Release);
        package.busy.store(false, Ordering::Release);
        package.stream.store(NOWHERE, Ordering::Release);
        package.parts.progress();
        Ok(next)
    }

    async fn download_once(
        &self,
        package: &Arc<Package>,
        row: &PackageRow,
        needed: Option<&[(u64, u64)]>,
    ) -> Result<()> {
        let disk = |error: std::io::Error| SourceError::new(&package.url, Trouble::Disk(error.to_string()));
        let resumed = package.parts.ranges().len() > 0;
        let (answer, mut notes) = match needed {
            _ if resumed => (None, self.notes(package)),
            Some(_) => {
                self.probe(package).await?;
                (None, self.notes(package))
            }
            None => {
                let answer = self.client.ask(&package.url, &Asked::default()).await?;
                if let Some(coding) = answer.coding() {
                    let problem = "a package must come as it is".to_owned();
                    return Err(SourceError::new(&package.url, Trouble::BadCoding { coding, problem }));
                }
                let notes = Notes::of(&package.url, &answer);
                self.found(package, &notes, None);
                (Some(answer), notes)
            }
        };
        let missing = notes.total.or(row.length).unwrap_or(0).saturating_sub(package.parts.ranges().len());
        self.store.check_room(if needed.is_none() { missing } else { 0 }).map_err(disk)?;
        self.status.update(|progress| {
            progress.package_bytes_known = progress.package_bytes_known.saturating_add(missing);
        });
        let fill = Fill {
            client: &self.client,
            store: &self.store,
            status: &self.status,
            url: &package.url,
            file: &package.file,
            notes_path: self.store.package_notes(package.id),
            parts: &package.parts,
            patience: None,
            // A body without an announced end must have one all the same.
            listed: row.length.filter(|_| notes.total.is_none()).map(|length| length.saturating_mul(2).max(SMALL)),
            held_to_a_hash: false,
            aside: false,
            at: &|at, came| {
                package.stream.store(at, Ordering::Release);
                self.status.came(came);
            },
        };
        let result = fill.run(answer, &mut notes, needed).await;
        notes.ranges = package.parts.ranges().clone();
        if let (Ok(total), None) = (&result, notes.total) {
            notes.total = Some(*total);
        }
        let complete = notes.total.is_some_and(|total| notes.ranges.contains(0, total));
        if complete && notes.validator.is_some() {
            // Whatever ends this process before the catalog knows, it is not downloaded again.
            fill.write_notes(&notes)?;
        }
        match (&result, complete) {
            (_, true) => self.complete(package, row, &notes).await,
            (Err(error), _) if matches!(error.trouble, Trouble::Changed) => result.map(|_| ()),
            _ => {
                if notes.validator.is_none() && result.is_err() {
                    // Nothing would tell whether what comes next belongs to it.
                    self.renew(package).await?.busy.store(false, Ordering::Release);
                } else {
                    self.note(package).await;
                }
                result.map(|_| ())
            }
        }
    }

    fn notes(&self, package: &Package) -> Notes {
        let known = locked(&package.known).clone();
        Notes {
            url: package.url.clone(),
            validator: known.validator,
            total: known.total,
            ranges: package.parts.ranges().clone(),
            boot: boot(),
            streamed: false,
        }
    }

    /// A server has answered for a package.
    fn found(&self, package: &Package, notes: &Notes, ranges: Option<bool>) {
        {
            let mut known = locked(&package.known);
            known.total = notes.total;
            known.validator = notes.validator.clone();
            // Parts of what cannot be told from another edition do not belong together.
            known.ranges = if notes.validator.is_none() { Some(false) } else { ranges.or(known.ranges) };
            known.failed = None;
        }
        package.parts.progress();
        if let Some(total) = notes.total {
            let (id, validator) = (package.id, notes.validator.clone());
            let (ledger, status) = (self.ledger.clone(), Arc::clone(&self.status));
            // A long step of the writer's must not stop the bytes from coming.
            tokio::spawn(async move {
                let written =
                    ledger.write(move |transaction| transaction.package_found(id, total, validator.as_deref())).await;
                if let Err(error) = written {
                    status.error(&error.to_string());
                }
            });
        }
    }

    /// Asks for the first bytes of a package, to learn how large it is and whether its server gives parts.
    async fn probe(&self, package: &Arc<Package>) -> Result<()> {
        if package.total().is_some() && locked(&package.known).ranges.is_some() {
            return Ok(());
        }
        let asked = Asked { range: Some((0, Some(LEAST_PART - 1))), ..Asked::default() };
        let mut answer = self.client.ask(&package.url, &asked).await?;
        let notes = Notes::of(&package.url, &answer);
        let partial = answer.status == 206 && answer.content_range().is_some_and(|(at, _)| at == 0);
        let before = locked(&package.known).validator.clone();
        if before.is_some() && before != notes.validator && package.parts.ranges().len() > 0 {
            return Err(SourceError::new(&package.url, Trouble::Changed));
        }
        self.found(package, &notes, Some(partial && whole(&answer).is_some()));
        if partial {
            let mut at = 0;
            while let Some(chunk) = answer.chunk().await? {
                std::os::unix::fs::FileExt::write_all_at(&*package.file, &chunk, at)
                    .map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))?;
                package.parts.ranges().add(at, at + chunk.len() as u64);
                at += chunk.len() as u64;
                package.parts.progress();
            }
        }
        Ok(())
    }

    /// All of a package is here: holds it to what its dump says.
    async fn complete(&self, package: &Arc<Package>, row: &PackageRow, notes: &Notes) -> Result<()> {
        let total = notes.total.unwrap_or(0);
        let disk = |error: std::io::Error| SourceError::new(&package.url, Trouble::Disk(error.to_string()));
        package.file.set_len(total).map_err(disk)?;
        let expected = Expected { length: row.length, hashes: row.hashes.clone(), encoding: None };
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
        let found = Notes { total: Some(total), ..notes.clone() };
        self.found(package, &found, None);
        if let Err(trouble) = verdict {
            self.status.error(&format!(
                "{}: {trouble}; members are taken from it only where its manifest has a hash for them",
                package.url
            ));
        }
        package.doubtful.store(doubtful, Ordering::Release);
        package.whole.store(true, Ordering::Release);
        tracing::debug!(url = package.url, bytes = total, doubtful, "a package is here");
        package.parts.progress();
        self.has_now(package, true).await;
        std::fs::remove_file(self.store.package_notes(package.id))
            .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .map_err(disk)
    }

    /// Notes how much of a package is here, if that is worth it after parts of it were fetched aside.
    pub(super) async fn count(&self, package: &Package) {
        let here = package.parts.ranges().len();
        if !package.is_whole() && here > package.counted.load(Ordering::Acquire) + COUNT_EACH {
            self.note(package).await;
        }
    }

    /// Notes which parts of a package are here.
    async fn note(&self, package: &Package) {
        let notes = self.notes(package);
        if notes.validator.is_some() && !package.gone.load(Ordering::Acquire) {
            // What cannot be noted is fetched again by the next process, and nothing else.
            let _ = notes.write(&self.store.package_notes(package.id));
        }
        self.has_now(package, false).await;
    }

    /// Notes for the next process which parts of packages are here.
    pub(super) async fn note_all(&self) {
        for package in self.files.packages() {
            let here = package.parts.ranges().len();
            if !package.is_whole() && here != package.counted.load(Ordering::Acquire) {
                self.note(&package).await;
            }
        }
    }

    /// Notes how much of a package is here.
    async fn has_now(&self, package: &Package, is_whole: bool) {
        if package.gone.load(Ordering::Acquire) {
            return;
        }
        let bytes = match is_whole {
            true => package.total().unwrap_or(0),
            false => package.parts.ranges().len(),
        };
        package.counted.store(bytes, Ordering::Release);
        let doubtful = package.doubtful.load(Ordering::Acquire);
        if let Err(error) = self.ledger.package_has(package.id, bytes, is_whole, doubtful).await {
            self.status.error(&error.to_string());
        }
    }

    /// Brings a part of a package here: waits for the download where that will be there soon, else fetches
    /// it aside. `moved` is called at each progress.
    ///
    /// # Errors
    /// If there is no progress for as long as `timeout` says.
    pub(super) async fn bring(
        self: &Arc<Self>,
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
            if self.offline {
                let problem = "not in the cache, and the mount is offline".to_owned();
                return Err(SourceError::new(&package.url, Trouble::Nowhere(problem)));
            }
            let known = locked(&package.known).clone();
            let asked_end = known.total.map_or(end, |total| end.min(total));
            let waits = match package.downloading() {
                Some(at) => {
                    // What is missing of a part that the download is within comes in order, and no other way sooner.
                    let missing = package.parts.ranges().gap(begin, asked_end).map_or(begin, |(first, _)| first);
                    known.total.is_none()
                        || known.ranges == Some(false)
                        || self.client.connections() < 2
                        || (missing >= at.saturating_sub(SOON) && missing < at.saturating_add(SOON))
                }
                None => false,
            };
            if waits || package.is_asked(begin, asked_end) {
                let timeout = self.client.timeout();
                let deadline = tokio::time::Instant::from_std(last + timeout + self.client.backlog());
                if tokio::time::timeout_at(deadline, steps.changed()).await.is_err() {
                    return Err(SourceError::new(
                        &package.url,
                        Trouble::Stalled { what: "more of the package", after: timeout },
                    ));
                }
                continue;
            }
            let failed = match (known.total, known.ranges) {
                (Some(total), Some(true) | None) if begin >= total => {
                    let problem = format!("it ends at {total}, and something at {begin} was wanted");
                    return Err(SourceError::new(&package.url, Trouble::Nowhere(problem)));
                }
                (Some(_), Some(true) | None) => {
                    let fetch = self.aside(package, begin, end);
                    tokio::pin!(fetch);
                    loop {
                        tokio::select! {
                            came = &mut fetch => break came,
                            _ = steps.changed() => moved(),
                        }
                    }
                }
                (_, Some(false)) => {
                    if let Some(error) = known.failed.filter(|_| tries > 0) {
                        return Err(error);
                    }
                    let row = self.readers.ask(|reader| reader.package(package.id)).ok().flatten();
                    let fits = |row: &PackageRow| {
                        row.wanted || self.ledger.cache_size().is_none_or(|limit| known.total.unwrap_or(0) <= limit)
                    };
                    if row.as_ref().is_some_and(|row| !fits(row)) {
                        let problem = "its server gives no parts of it, and it is larger than cache_size".to_owned();
                        return Err(SourceError::new(&package.url, Trouble::Nowhere(problem)));
                    }
                    match row.map(|row| self.start(&row, None)) {
                        Some(Ok(())) => Ok(()),
                        Some(Err(error)) => {
                            return Err(SourceError::new(&package.url, Trouble::Disk(error.to_string())));
                        }
                        None => Err(SourceError::new(
                            &package.url,
                            Trouble::Nowhere("its package is not known any more".to_owned()),
                        )),
                    }
                }
                (None, _) => match known.failed.filter(|_| tries > 0) {
                    Some(error) => Err(error),
                    None => self.probe(package).await,
                },
            };
            if let Err(error) = failed {
                if matches!(error.trouble, Trouble::Changed) && !package.is_busy() {
                    // What was found of its members is of an edition that is gone.
                    self.renew(package).await?;
                }
                let goes_on = matches!(error.trouble, Trouble::NoRanges) || error.trouble.passes();
                if !goes_on || tries >= MOST_BREAKS {
                    return Err(error);
                }
            }
            tries += 1;
        }
    }

    /// Fetches a part of a package whose length is known, and what lies next to it.
    async fn aside(&self, package: &Arc<Package>, begin: u64, end: u64) -> Result<()> {
        let known = locked(&package.known).clone();
        let total = known.total.unwrap_or(end);
        let far = end.max(begin.saturating_add(LEAST_PART)).min(total);
        // No more than is missing.
        let gap = package.parts.ranges().gap(begin, far).unwrap_or((begin, far));
        let room = self.store.check_room(gap.1 - gap.0);
        room.map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))?;
        let _asking = Asking::begin(package, gap);
        let wanted = Wanted {
            url: &package.url,
            validator: known.validator.as_deref(),
            patience: Some(self.client.timeout()),
            begin: gap.0,
            end: gap.1,
            total,
        };
        let came = part(&self.client, &package.parts, &package.file, &wanted).await;
        match &came {
            Err(error) if matches!(error.trouble, Trouble::NoRanges) => locked(&package.known).ranges = Some(false),
            Ok(()) => locked(&package.known).ranges = Some(true),
            Err(_) => {}
        }
        came
    }

    /// A member by its path. The directory is brought here as far as it is needed. Who is not patient does
    /// not wait for the whole of a package whose server gives no parts of it.
    ///
    /// # Errors
    /// If the package cannot be had, or is none; [`Trouble::NoRanges`] if it would have to be waited for.
    pub(super) async fn find_one(
        self: &Arc<Self>,
        package: &Arc<Package>,
        path: &'static str,
        patient: bool,
    ) -> Result<(Found, Option<String>)> {
        // With one connection, the download has it.
        let patient = patient || self.client.connections() < 2;
        self.head_start(package).await;
        let mut tries = 0;
        loop {
            if package.total().is_none() {
                self.bring(package, (0, 1), || ()).await?;
            }
            let total = package.total().or_else(|| {
                package.is_whole().then(|| package.file.metadata().map(|metadata| metadata.len()).unwrap_or(0))
            });
            let Some(total) = total else {
                // A server that does not tell the length has to be heard out.
                self.settled(package.id).await;
                if let Some(error) = self.failure(package.id) {
                    return Err(error);
                }
                tries += 1;
                if tries > 2 {
                    return Err(SourceError::new(
                        &package.url,
                        Trouble::Broken("its length cannot be found".to_owned()),
                    ));
                }
                continue;
            };
            let own = Arc::clone(package);
            let read = tokio::task::spawn_blocking(move || {
                let reader = Arc::clone(&own);
                let partial = Partial::new(Arc::clone(&own.file), total, move |begin, end| reader.has(begin, end));
                Directory::find_one(partial, path)
            });
            match read.await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(ArchiveError::Hole(at))) => {
                    let tail = total.saturating_sub(TAIL);
                    let part = match at {
                        at if at >= tail => (tail, total),
                        // Between the first record of a directory and its end, all is directory.
                        at => (at, if tail - at <= DIRECTORY_STEP { tail } else { at + DIRECTORY_STEP }),
                    };
                    let part = if at == 0 { (0, 4096.min(total)) } else { part };
                    let ranges = locked(&package.known).ranges;
                    match patient || package.is_whole() {
                        true => self.bring(package, part, || ()).await?,
                        false if ranges == Some(false) => {
                            return Err(SourceError::new(&package.url, Trouble::NoRanges));
                        }
                        false if package.has(part.0, part.1) => {}
                        false => self.aside(package, part.0, part.1).await?,
                    }
                }
                Ok(Err(error)) => {
                    return Err(SourceError::new(&package.url, Trouble::Nowhere(error.to_string())));
                }
                Err(error) => return Err(SourceError::new(&package.url, Trouble::Broken(error.to_string()))),
            }
        }
    }

    /// A download that is quick is the shortest way to everything in a package.
    async fn head_start(&self, package: &Package) {
        let begun = Instant::now();
        let mut steps = package.parts.moved();
        while !package.is_whole() && package.downloading().is_some() {
            steps.mark_unchanged();
            let _ = tokio::time::timeout(Duration::from_millis(50), steps.changed()).await;
            let waited = begun.elapsed();
            let slow = package.total().is_none_or(|total| total > SMALL) || !self.is_moving(package);
            if waited > self.client.timeout() || (waited > HEAD_START && slow && package.total().is_some()) {
                return;
            }
        }
    }

    /// Whether bytes came just now.
    fn is_moving(&self, package: &Package) -> bool {
        package.parts.moved().borrow().elapsed() < HEAD_START
    }

    /// Brings what the current tree still needs of a package here: all of it, or the members alone where
    /// those are the lesser part.
    pub(super) fn complete_what_is_needed(self: &Arc<Self>, row: &PackageRow) -> std::result::Result<(), SyncError> {
        let (bytes, members) = self.readers.ask(|reader| reader.unseen_bytes(row.id))?;
        if members == 0 {
            return Ok(());
        }
        let package = self.take(row).map_err(|error| SyncError::Cache(error.to_string()))?;
        let most = package.total().or(row.length).unwrap_or(0);
        let few = bytes.saturating_mul(2) < most && locked(&package.known).ranges != Some(false);
        let needed = if few { Some(self.extents(row.id)?) } else { None };
        self.start(row, needed).map_err(|error| SyncError::Cache(error.to_string()))
    }

    /// Where the members lie that the current tree still needs, near ones as one part.
    fn extents(&self, id: i64) -> std::result::Result<Vec<(u64, u64)>, CatalogError> {
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let mut from = 0;
        loop {
            let page = self.readers.ask(|reader| reader.unseen_members(id, from, 1000))?;
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

/// Forgets the bytes of packages that the catalog does not know, and what the catalog knows of packages
/// whose bytes are not what it says.
pub(super) fn tidy(store: &Store, readers: &Pool, ledger: &Ledger) -> std::result::Result<(), SyncError> {
    let disk = |error: std::io::Error| SyncError::Cache(error.to_string());
    let rows = readers.ask(|reader| reader.packages())?;
    for id in store.packages().map_err(disk)? {
        if !rows.iter().any(|row| row.id == id) {
            store.forget_package(id).map_err(disk)?;
        }
    }
    for row in rows.iter().filter(|row| row.bytes > 0 || row.whole) {
        let length = store.package(row.id).and_then(|file| file.metadata()).map_err(disk)?.len();
        let sound = match row.whole {
            true => row.size == Some(length),
            false => Notes::read(&store.package_notes(row.id))
                .is_some_and(|notes| notes.url == row.url && notes.boot == boot() && notes.validator.is_some()),
        };
        if !sound {
            store.forget_package(row.id).map_err(disk)?;
            ledger.with(|writer| -> std::result::Result<(), CatalogError> {
                let transaction = writer.begin(true)?;
                if transaction.package_gone(row.id)? {
                    transaction.package_wanted(row.id)?;
                }
                transaction.commit()?;
                Ok(())
            })?;
        }
    }
    Ok(())
}
