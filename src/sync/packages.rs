//! Packages of dumps: brought here as a whole, or in the parts that somebody wants.
//!
//! Each package is one sparse file. A download fills it from the front; whoever needs a part that is
//! not there yet waits where the download will be soon, and else fetches that part aside, so that the
//! directory of a package and any member can be read long before all of it is here. A server without
//! ranges makes everybody wait for the download.

mod download;
mod recast;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};

use super::fill::{MOST_BREAKS, Notes, Parts, Result, Wanted, part};
use super::ledger::Ledger;
use super::lock::locked;
use super::open_files::OpenFiles;
use super::package::{Asking, Known, NOWHERE, Package, archived};
use super::status::Status;
use super::{Shared, SyncError};
use crate::bounds::{self, Bounds};
use crate::catalog::{CatalogError, PackageRow, Pool, Stored};
use crate::source::{Client, SourceError, Trouble};
use crate::store::Store;
use crate::store::archive::{ArchiveError, Directory, Found, Member, Partial};
use crate::store::boot::boot_id;

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
    bounds: Bounds,
    slots: Arc<Semaphore>,
    /// A download has ended.
    pub(super) ended: Notify,
}

impl Packages {
    pub(super) fn new(shared: Shared, offline: bool) -> Arc<Self> {
        let Shared { client, store, readers, ledger, status, files, bounds } = shared;
        let at_once = client.connections().saturating_sub(1).clamp(1, MOST_AT_ONCE);
        Arc::new(Self {
            client,
            store,
            readers,
            ledger,
            status,
            offline,
            files,
            bounds,
            slots: Arc::new(Semaphore::new(at_once)),
            ended: Notify::new(),
        })
    }

    /// A package by its number.
    pub(super) fn get(&self, id: i64) -> Option<Arc<Package>> {
        if let Some(package) = self.files.package(id) {
            return Some(package);
        }
        let row = self.readers.ask(|reader| reader.package(id)).map_err(|error| self.status.error(&error.to_string()));
        self.take(&row.ok()??).map_err(|error| self.status.error(&format!("cache: package {id}: {error}"))).ok()
    }

    /// The package of a row, opened where it is not.
    pub(super) fn take(&self, row: &PackageRow) -> std::io::Result<Arc<Package>> {
        if let Some(package) = self.files.package(row.id) {
            return Ok(package);
        }
        let file = Arc::new(self.store.package(row.id)?);
        let is_whole = row.whole && row.size == Some(file.metadata()?.len());
        let notes = if is_whole { None } else { Notes::read(&self.store.package_notes(row.id)) };
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
        self.store.forget_package(id)?;
        self.files.close(&[Stored::Package(id)]);
        Ok(())
    }

    /// The most bytes of a package that are taken, and what is wrong with more. A dump may be mistaken in a length, but not
    /// by much.
    fn most(&self, package: &Package) -> (u64, Trouble) {
        match package.listed {
            None => (self.bounds.resource, bounds::RESOURCE.passed("the size of the package", &self.bounds).into()),
            Some(listed) => {
                let most = listed.saturating_mul(2).saturating_add(SMALL);
                let problem =
                    format!("the package is larger than {most} bytes, where its dump lists {listed}; given up");
                (most, Trouble::Nowhere(problem))
            }
        }
    }

    /// Whether the last try to bring a package here failed, and how.
    pub(super) fn failure(&self, id: i64) -> Option<SourceError> {
        self.files.package(id).and_then(|package| locked(&package.known).failed.clone())
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
                // One that waits for its turn has no end in sight: other places do.
                (_, Some(false)) if package.is_busy() => {
                    return Err(SourceError::new(&package.url, Trouble::NoRanges));
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

    /// Brings a member of a package here: only its local header tells where it ends.
    ///
    /// # Errors
    /// As [`Packages::bring`]. A local header that is not the member's is for who reads it.
    pub(super) async fn bring_member(
        self: &Arc<Self>,
        package: &Arc<Package>,
        member: &Member,
        moved: impl Fn(),
    ) -> Result<()> {
        self.bring(package, member.extent(), &moved).await?;
        match member.data(&package.file) {
            Ok(data) => self.bring(package, (member.header, data.saturating_add(member.compressed)), moved).await,
            Err(_) => Ok(()),
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
            Ok(()) if !package.is_recast() => locked(&package.known).ranges = Some(true),
            Ok(()) | Err(_) => {}
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
        path: &str,
        patient: bool,
    ) -> Result<(Found, Option<String>)> {
        // With one connection, the download has it.
        let patient = patient || self.client.connections() < 2;
        self.head_start(package).await;
        let mut tries = 0;
        loop {
            if package.total().is_none() && package.downloading().is_none() && !package.is_whole() {
                self.probe(package).await?;
            } else if package.total().is_none() {
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
            let (own, bounds, path) = (Arc::clone(package), self.bounds, path.to_owned());
            let read = tokio::task::spawn_blocking(move || {
                let reader = Arc::clone(&own);
                let partial = Partial::new(Arc::clone(&own.file), total, move |begin, end| reader.has(begin, end));
                Directory::find_one(partial, &path, &bounds)
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
                        true => match self.bring(package, part, || ()).await {
                            // Only the download brings it, and that waits for its turn.
                            Err(error) if matches!(error.trouble, Trouble::NoRanges) && package.is_busy() => {
                                self.settled(package.id).await;
                                if let Some(error) = self.failure(package.id) {
                                    return Err(error);
                                }
                            }
                            brought => brought?,
                        },
                        false if ranges == Some(false) => {
                            return Err(SourceError::new(&package.url, Trouble::NoRanges));
                        }
                        false if package.has(part.0, part.1) => {}
                        false => self.aside(package, part.0, part.1).await?,
                    }
                }
                Ok(Err(error)) => {
                    if !self.may_be_recast(package).await? {
                        return Err(SourceError::new(&package.url, Trouble::Nowhere(error.to_string())));
                    }
                }
                Err(error) => return Err(SourceError::new(&package.url, Trouble::Broken(error.to_string()))),
            }
        }
    }

    /// Whether a package that is no ZIP file may become one when all of it is here; notes so.
    async fn may_be_recast(self: &Arc<Self>, package: &Arc<Package>) -> Result<bool> {
        if package.is_whole() || package.is_recast() {
            return Ok(false);
        }
        self.bring(package, (0, 16), || ()).await?;
        let is = recast::kind(&package.file).is_some();
        if is {
            self.begin_recast(package).await?;
        }
        Ok(is)
    }

    /// Nothing is read of a package any more before it was written anew.
    async fn begin_recast(&self, package: &Package) -> Result<()> {
        locked(&package.known).ranges = Some(false);
        package.recast.store(true, Ordering::Release);
        let noted = self.ledger.package_recast(package.id, None).await;
        noted.map_err(|error| SourceError::new(&package.url, Trouble::Disk(error.to_string())))
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
                .is_some_and(|notes| notes.url == row.url && notes.boot == boot_id() && notes.validator.is_some()),
        };
        if !sound {
            store.forget_package(row.id).map_err(disk)?;
            ledger.with(|writer| -> std::result::Result<(), CatalogError> {
                let transaction = writer.begin(true)?;
                transaction.package_gone(row.id, true)?;
                transaction.commit()?;
                Ok(())
            })?;
        }
    }
    Ok(())
}
