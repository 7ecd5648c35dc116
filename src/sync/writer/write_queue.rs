//! The writer's door: whoever has something to keep gives it here.
//!
//! Facts about single versions (content that came, a size that was learnt) are gathered and written
//! many at a time, while readers already see them in [`WriteQueue::pending`]; so a long step of a sync
//! makes nobody wait who only wants to read.
//!
//! Content is let go, and is written down as being here, by who holds the writer alone: no row is made of a file that is not
//! there, and no file goes of which there is a row. Only what is damaged goes before its row does, so that nobody reads it
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::durability::{flush, on_disk, recheck};
use super::eviction;
use super::facts::{self, Fact, Written};
use super::open_files::OpenFiles;
use crate::catalog::{
    CatalogError, Changes, Content, KnownContent, Looked, MemberState, News, PackageBytes, PackageId, Stored,
    Transaction, VersionId, Writer,
};
use crate::document::Datetime;
use crate::store::{Object, Store};
use crate::sync::error::SyncError;
use crate::sync::priority;
use crate::sync::status::Status;

/// How often what came into the store is brought to the disk.
const FLUSH: Duration = Duration::from_secs(30);

/// How long the end of a sync waits for the kernel to know of it.
const TELLING: Duration = Duration::from_secs(10);

/// The most facts in one transaction.
const BATCH: usize = 2000;

/// Where it is kept how the last process ended, and what is there if it ended as it should.
const ENDED: &str = "ended";
const WELL: &str = "well";

/// What was told of versions, and is not in the catalog yet.
#[derive(Debug, Default)]
struct Pending {
    contents: HashMap<VersionId, Content>,
    sizes: HashMap<VersionId, u64>,
    members: HashMap<VersionId, Looked>,
}

/// The writer's door. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::sync) struct WriteQueue(Arc<Inner>);

/// What the write queue keeps to.
#[derive(Clone, Copy, Debug)]
pub(in crate::sync) struct Limits {
    /// The most bytes of content in the store.
    pub cache_size: Option<u64>,
    /// How long history is kept.
    pub keep: Duration,
    /// The most bytes of the write-ahead log when a step begins.
    pub log: u64,
}

/// What is done with the writer.
type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
struct Inner {
    writer: Arc<Mutex<Writer>>,
    steps: std::sync::mpsc::Sender<Job>,
    facts: mpsc::UnboundedSender<Fact>,
    pending: Mutex<Pending>,
    /// Told of each time that content is not in the store after all.
    missed: watch::Sender<()>,
    announce: mpsc::UnboundedSender<News>,
    stored: AtomicU64,
    limits: Limits,
    /// Whether a long step has left much in the write-ahead log.
    long_step: AtomicBool,
    /// Whether the process before this one did not come to its end.
    cut_off: bool,
    store: Arc<Store>,
    status: Arc<Status>,
    open_files: OpenFiles,
}

/// Starts the thread that all steps run on, which ends with the write queue. It is one, and always the same: an allocator keeps for
/// each thread what the largest step on it took for a moment.
fn start_thread() -> std::io::Result<std::sync::mpsc::Sender<Job>> {
    let (sender, jobs) = std::sync::mpsc::channel::<Job>();
    let runtime = tokio::runtime::Handle::current();
    std::thread::Builder::new().name("writer".to_owned()).spawn(move || {
        let _context = runtime.enter();
        priority::lower();
        for job in jobs {
            // A bug ends one step.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        }
    })?;
    Ok(sender)
}

impl WriteQueue {
    pub(in crate::sync) fn open(
        writer: Writer,
        (store, status): (Arc<Store>, Arc<Status>),
        announce: mpsc::UnboundedSender<News>,
        limits: Limits,
        open_files: OpenFiles,
    ) -> Result<Self, SyncError> {
        let mut writer = writer;
        recheck(&mut writer, &store, &status)?;
        let cut_off = writer.meta(ENDED)?.as_deref() != Some(WELL);
        writer.set_meta(ENDED, "")?;
        let (facts, incoming) = mpsc::unbounded_channel();
        let steps = start_thread().map_err(|error| SyncError::Thread(Arc::new(error)))?;
        let stored = AtomicU64::new(writer.stored_bytes()?);
        let write_queue = Self(Arc::new(Inner {
            writer: Arc::new(Mutex::new(writer)),
            steps,
            facts,
            pending: Mutex::default(),
            missed: watch::Sender::new(()),
            announce,
            stored,
            limits,
            long_step: AtomicBool::new(false),
            cut_off,
            store,
            status,
            open_files,
        }));
        tokio::spawn(write_down(Arc::downgrade(&write_queue.0), incoming));
        Ok(write_queue)
    }

    /// Whether the process before this one did not come to its end.
    pub(in crate::sync) fn was_cut_off(&self) -> bool {
        self.0.cut_off
    }

    /// Looks at what the writer knows.
    pub(in crate::sync) fn with<T>(&self, look: impl FnOnce(&mut Writer) -> T) -> T {
        look(&mut self.0.writer.lock())
    }

    /// Runs a step on the thread of the writer, and announces what it changed. It is done also if the caller goes away.
    pub(in crate::sync) async fn step<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Writer) -> Result<(T, Changes), CatalogError> + Send + 'static,
    ) -> Result<T, SyncError> {
        let write_queue = self.clone();
        let (finish, finished) = oneshot::channel();
        let job = move || {
            let mut writer = write_queue.0.writer.lock();
            // What a long step left is written back behind, unless that takes too long.
            let is_long =
                !write_queue.0.long_step.load(Ordering::Acquire) && writer.log_size() > write_queue.0.limits.log;
            if is_long && let Err(error) = writer.checkpoint() {
                write_queue.0.status.error(&format!("cannot write the catalog's log back: {error}"));
            }
            let done = step(&mut writer);
            if done.is_err() {
                // What was written for nothing may fill the disk. The error that counts is that of the step.
                let _ = writer.checkpoint();
            }
            drop(writer);
            // Here, for the caller may be gone by now: a sync has a deadline.
            let done = done.map(|(value, changes)| {
                write_queue.announce(changes);
                value
            });
            // Whoever waits for the step may be the last to use the write queue.
            drop(write_queue);
            let _ = finish.send(done);
        };
        // The thread lives as long as the write queue does.
        let _ = self.0.steps.send(Box::new(job));
        let done = finished.await.map_err(|_| SyncError::Step("a bug ended a step; see the log"))?;
        Ok(done?)
    }

    /// A long step was made: what it left in the write-ahead log is brought into the database soon.
    pub(in crate::sync) fn long_step_made(&self) {
        self.0.long_step.store(true, Ordering::Release);
    }

    /// Writes something small at once.
    pub(in crate::sync) async fn write(
        &self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<(), CatalogError> + Send + 'static,
    ) -> Result<(), SyncError> {
        self.step(move |writer| {
            let mut transaction = writer.begin(true)?;
            change(&mut transaction)?;
            Ok(((), transaction.commit()?))
        })
        .await
    }

    fn announce(&self, changes: Changes) {
        if !changes.is_empty() {
            // Nobody listens where nothing is mounted.
            let _ = self.0.announce.send(News::Changed(changes));
        }
    }

    /// Waits until whoever looks at the tree has been told of all that was changed, within a deadline.
    pub(in crate::sync) async fn told(&self) {
        let (done, wait) = oneshot::channel();
        let told = Box::new(move || {
            // Whoever waited may have given up.
            let _ = done.send(());
        });
        if self.0.announce.send(News::Told(told)).is_ok() && tokio::time::timeout(TELLING, wait).await.is_err() {
            self.0
                .status
                .warning("the kernel takes its time to forget what changed; names may be out of date for a moment");
        }
    }

    fn tell(&self, fact: Fact) {
        // The receiver lives as long as this write queue does.
        let _ = self.0.facts.send(fact);
    }

    /// Content of a version has come into the store.
    ///
    /// # Errors
    /// With the size that it was said to have a moment ago, if that is another.
    pub(in crate::sync) fn stored(&self, version: VersionId, content: Content) -> Result<(), u64> {
        let mut pending = self.0.pending.lock();
        if let Some(said) = pending.sizes.get(&version).filter(|said| **said != content.size) {
            return Err(*said);
        }
        pending.contents.insert(version, content);
        self.tell(Fact::Stored(version, content));
        Ok(())
    }

    /// Content that came and is not in the catalog yet.
    pub(in crate::sync) fn pending(&self, version: VersionId) -> Option<Content> {
        self.0.pending.lock().contents.get(&version).copied()
    }

    /// A size that became known and is not in the catalog yet.
    pub(in crate::sync) fn pending_size(&self, version: VersionId) -> Option<u64> {
        self.0.pending.lock().sizes.get(&version).copied()
    }

    /// The size of a version has become known. Returns it: that of its content, if that has come meanwhile.
    pub(in crate::sync) fn size(&self, version: VersionId, size: u64) -> u64 {
        let mut pending = self.0.pending.lock();
        if let Some(content) = pending.contents.get(&version) {
            return content.size;
        }
        pending.sizes.insert(version, size);
        self.tell(Fact::Size(version, size));
        size
    }

    /// A version is not what was said or served of it; its successor has this content, if it is known.
    pub(in crate::sync) fn superseded(&self, version: VersionId, content: Option<Content>) {
        self.tell(Fact::Superseded(version, content.map(|content| (content, None))));
    }

    /// A server has other content for a version than it had: it is that of its successor.
    pub(in crate::sync) fn renewed(&self, version: VersionId, content: Content, known: KnownContent) {
        self.tell(Fact::Superseded(version, Some((content, Some(known)))));
    }

    /// A server was asked whether it has other content for a version.
    pub(in crate::sync) fn checked(&self, version: VersionId, known: KnownContent) {
        self.tell(Fact::Checked(version, known));
    }

    /// Content was read.
    pub(in crate::sync) fn touched(&self, sha256: [u8; 32]) {
        self.tell(Fact::Touched(sha256));
    }

    /// A package was read from.
    pub(in crate::sync) fn touched_package(&self, package: PackageId) {
        self.tell(Fact::TouchedPackage(package));
    }

    /// The member that a version has as its content was looked at.
    pub(in crate::sync) fn member(&self, looked: Looked) {
        self.0.pending.lock().members.insert(looked.version, looked);
        self.tell(Fact::Member(looked));
    }

    /// What was found of a member and is not in the catalog yet.
    pub(in crate::sync) fn pending_member(&self, version: VersionId, epoch: i64) -> Option<MemberState> {
        self.0.pending.lock().members.get(&version).filter(|looked| looked.epoch == epoch).map(|looked| looked.state)
    }

    /// The bytes of a package are begun anew: what was found of its members counts no more.
    pub(in crate::sync) async fn package_renewed(&self, package: PackageId) -> Result<(), SyncError> {
        self.step(move |writer| {
            let transaction = writer.begin(true)?;
            transaction.package_renewed(package)?;
            let changes = transaction.commit()?;
            Ok((writer.stored_bytes()?, changes))
        })
        .await
        .map(|bytes| self.0.stored.store(bytes, Ordering::Relaxed))
    }

    /// Counts again what is in the store.
    pub(in crate::sync) async fn recount(&self) -> Result<(), SyncError> {
        let bytes = self.step(|writer| Ok((writer.stored_bytes()?, Changes::default()))).await?;
        self.0.stored.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Members have been looked at.
    pub(in crate::sync) async fn seen(&self, looked: Vec<Looked>) -> Result<(), SyncError> {
        self.step(move |writer| {
            let transaction = writer.begin(false)?;
            looked.iter().try_for_each(|looked| transaction.member_is(looked))?;
            Ok(((), transaction.commit()?))
        })
        .await
    }

    /// A package is written anew, of this size once that is known.
    pub(in crate::sync) async fn package_recast(&self, package: PackageId, size: Option<u64>) -> Result<(), SyncError> {
        self.write(move |transaction| transaction.package_recast(package, size)).await
    }

    /// So much of a package is here.
    pub(in crate::sync) async fn package_has(&self, package: PackageId, here: PackageBytes) -> Result<(), SyncError> {
        let before = self
            .step(move |writer| {
                // If this is lost with the machine's power, the package comes anew.
                let transaction = writer.begin(false)?;
                let before = transaction.package_has(package, here, Datetime::now())?;
                Ok((before, transaction.commit()?))
            })
            .await?;
        // Somebody may count anew in between: no less than nothing is ever left.
        let _ = self.0.stored.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |stored| {
            Some(stored.saturating_add(here.bytes).saturating_sub(before))
        });
        self.keep_to_the_limit().await;
        Ok(())
    }

    /// What was superseded before this moment, by our clock, is not kept for history's sake.
    fn kept_since(&self) -> Datetime {
        let keep = i64::try_from(self.0.limits.keep.as_nanos()).unwrap_or(i64::MAX);
        Datetime::from_nanos(Datetime::now().nanos().saturating_sub(keep))
    }

    /// Lets go what is history no more.
    pub(in crate::sync) async fn forget_history(&self) -> Result<(), SyncError> {
        let mut after = None;
        let mut bytes = 0;
        loop {
            let (store, open) = (Arc::clone(&self.0.store), self.0.open_files.clone());
            let since = self.kept_since();
            let forget = move |writer: &mut Writer| {
                let gone = eviction::forget_history(writer, &store, &open, since, &mut after)?;
                Ok(((gone, writer.stored_bytes()?, after), Changes::default()))
            };
            let (gone, left, next) = self.step(forget).await?;
            self.0.stored.store(left, Ordering::Relaxed);
            bytes += gone;
            after = next;
            if after.is_none() {
                break;
            }
        }
        if bytes > 0 {
            tracing::info!(bytes, "history that is kept no longer has gone");
        }
        Ok(())
    }

    async fn keep_to_the_limit(&self) {
        if let Some(limit) = self.0.limits.cache_size
            && self.stored_bytes() > limit
        {
            make_room(self, limit).await;
        }
    }

    /// The most bytes that are kept, where there is a limit.
    pub(in crate::sync) fn cache_size(&self) -> Option<u64> {
        self.0.limits.cache_size
    }

    /// Content is not in the store after all.
    pub(in crate::sync) fn lost(&self, sha256: [u8; 32]) {
        self.tell(Fact::Lost(sha256));
    }

    /// Changes whenever content is found not to be in the store after all.
    pub(in crate::sync) fn missed(&self) -> watch::Receiver<()> {
        self.0.missed.subscribe()
    }

    /// Lets content go that is not what it was.
    pub(in crate::sync) async fn discard(&self, sha256: [u8; 32]) -> Result<(), SyncError> {
        let store = Arc::clone(&self.0.store);
        self.step(move |writer| {
            // First: what is missing is noticed when it is read, and what is damaged is not.
            store.remove(&sha256).map_err(|error| on_disk(&store, error))?;
            let transaction = writer.begin(true)?;
            transaction.forget_content(&sha256)?;
            Ok(((), transaction.commit()?))
        })
        .await?;
        self.missing(&[Stored::Object(sha256)]);
        self.recount().await
    }

    /// Content was found not to be here.
    fn missing(&self, places: &[Stored]) {
        // What is open of it would pass for being here.
        self.0.open_files.close(places);
        self.0.missed.send_replace(());
    }

    /// Lets content go that is nobody's: of these files those that are as old as they were, and of which the catalog knows
    /// nothing. Returns how many files and bytes that were.
    pub(in crate::sync) async fn delete_orphans(&self, files: Vec<Object>) -> Result<(u64, u64), SyncError> {
        let (own, store) = (self.clone(), Arc::clone(&self.0.store));
        self.step(move |writer| {
            let (readers, mut gone) = (writer.readers(), (0, 0));
            let wanted: HashSet<[u8; 32]> =
                own.0.pending.lock().contents.values().map(|content| content.sha256).collect();
            for file in files {
                let is_old = store.came(&file.sha256).is_ok_and(|came| came == file.came);
                if is_old && !wanted.contains(&file.sha256) && !readers.ask(|reader| reader.has_object(&file.sha256))? {
                    store.remove(&file.sha256).map_err(|error| on_disk(&store, error))?;
                    gone = (gone.0 + 1, gone.1 + file.size);
                }
            }
            Ok((gone, Changes::default()))
        })
        .await
    }

    /// Bytes of all content in the store.
    pub(in crate::sync) fn stored_bytes(&self) -> u64 {
        self.0.stored.load(Ordering::Relaxed)
    }

    /// Waits until what was told so far is written.
    pub(in crate::sync) async fn settled(&self) -> Result<(), SyncError> {
        let (done, wait) = oneshot::channel();
        self.tell(Fact::Settled(done));
        wait.await.map_err(|_| SyncError::Step("the writer has ended already"))
    }

    /// Waits until the steps that were asked for have ended.
    pub(in crate::sync) async fn finish_step(&self) -> Result<(), SyncError> {
        self.step(|_| Ok(((), Changes::default()))).await
    }

    /// Writes what is still to be written, and brings everything to the disk.
    pub(in crate::sync) async fn close(&self) -> Result<(), SyncError> {
        self.settled().await?;
        let store = Arc::clone(&self.0.store);
        self.step(move |writer| {
            flush(writer, &store)?;
            writer.set_meta(ENDED, WELL)?;
            writer.checkpoint()?;
            Ok(((), Changes::default()))
        })
        .await
    }
}

/// Writes facts as they come, many at a time, until the write queue is gone.
async fn write_down(write_queue: std::sync::Weak<Inner>, mut incoming: mpsc::UnboundedReceiver<Fact>) {
    let mut flushed = tokio::time::Instant::now();
    let mut dirty = false;
    loop {
        let first = tokio::time::timeout_at(flushed + FLUSH, incoming.recv()).await;
        let Some(inner) = write_queue.upgrade() else { return };
        let write_queue = WriteQueue(inner);
        match first {
            Ok(None) => return,
            Ok(Some(first)) => {
                // A moment's patience makes one transaction of what a burst brings.
                tokio::time::sleep(Duration::from_millis(10)).await;
                let mut batch = vec![first];
                while batch.len() < BATCH
                    && let Ok(fact) = incoming.try_recv()
                {
                    batch.push(fact);
                }
                dirty |= batch.iter().any(|fact| matches!(fact, Fact::Stored(..) | Fact::Superseded(..)));
                write_batch(&write_queue, batch).await;
            }
            Err(_) => {}
        }
        if flushed.elapsed() >= FLUSH {
            if dirty || write_queue.0.long_step.swap(false, Ordering::AcqRel) {
                let store = Arc::clone(&write_queue.0.store);
                let result = write_queue
                    .step(move |writer| {
                        flush(writer, &store)?;
                        writer.checkpoint()?;
                        Ok(((), Changes::default()))
                    })
                    .await;
                if let Err(error) = result {
                    write_queue.0.status.error(&format!("cannot bring the cache to the disk: {error}"));
                    write_queue.long_step_made();
                }
                dirty = false;
            }
            flushed = tokio::time::Instant::now();
        }
    }
}

async fn write_batch(write_queue: &WriteQueue, batch: Vec<Fact>) {
    let (mut versions, mut sized, mut looked) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut closing = Vec::new();
    let mut facts = Vec::new();
    for fact in batch {
        match fact {
            Fact::Settled(done) => closing.push(done),
            Fact::Stored(version, _) => {
                versions.insert(version);
                facts.push(fact);
            }
            Fact::Size(version, _) => {
                sized.insert(version);
                facts.push(fact);
            }
            Fact::Member(one) => {
                looked.insert(one.version);
                facts.push(fact);
            }
            _ => facts.push(fact),
        }
    }
    let store = Arc::clone(&write_queue.0.store);
    let result = write_queue
        .step(move |writer| {
            let mut transaction = writer.begin(false)?;
            let written = facts::write(&mut transaction, &store, &facts)?;
            Ok((written, transaction.commit()?))
        })
        .await;
    let mut gone = Vec::new();
    match result {
        Ok(Written { came, went, missing }) => {
            gone.extend(missing.into_iter().map(Stored::Object));
            write_queue.0.stored.fetch_add(came, Ordering::Relaxed);
            // Nothing goes that was not counted when it came.
            write_queue.0.stored.fetch_sub(went, Ordering::Relaxed);
        }
        Err(error) => {
            write_queue
                .0
                .status
                .error(&format!("what was fetched could not be noted, and will be fetched again: {error}"));
        }
    }
    {
        let mut pending = write_queue.0.pending.lock();
        pending.contents.retain(|version, _| !versions.contains(version));
        pending.sizes.retain(|version, _| !sized.contains(version));
        pending.members.retain(|version, _| !looked.contains(version));
    }
    if !gone.is_empty() {
        write_queue.missing(&gone);
    }
    write_queue.keep_to_the_limit().await;
    closing.into_iter().for_each(|done| {
        let _ = done.send(());
    });
}

async fn make_room(write_queue: &WriteQueue, limit: u64) {
    let (store, open) = (Arc::clone(&write_queue.0.store), write_queue.0.open_files.clone());
    let since = write_queue.kept_since();
    let result = write_queue
        .step(move |writer| {
            let left = eviction::evict(writer, &store, &open, limit, since)?;
            Ok((left, Changes::default()))
        })
        .await;
    match result {
        Ok(left) => {
            write_queue.0.stored.store(left, Ordering::Relaxed);
            if left > limit {
                write_queue.0.status.warning(&format!(
                    "the cache holds {left} bytes, more than cache_size={limit}: the rest is pinned or cannot be fetched again"
                ));
            }
        }
        Err(error) => write_queue.0.status.error(&format!("cannot make room in the cache: {error}")),
    }
}
