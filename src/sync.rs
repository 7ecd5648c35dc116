//! The engine: baseline, changes, patches, content, audit, and everything else that changes what is mirrored.
//!
//! **Owns** the way in: lists and changes become names and versions, bytes become objects. It is the only
//! writer of the catalog and of the store. Timers, commands and readers ask it for a sync; it decides what
//! that needs.
//!
//! **Assumes** that it holds the cache's lock.
//!
//! **Promises** that a sync is visible whole or not at all; that what a Source no longer lists is
//! deleted only if every document of the set was read to its end; that a change is applied once, and the
//! cursor passes no failure; that bytes reach a reader only as
//! the `verify` option allows; that many readers of one version make one request; that it can be
//! stopped at any moment and goes on from there.
//!
//! **Never knows** FUSE: it announces [`News`] and answers with files.
//!
//! Layout, each line uses only those above it:
//! - `config`, `error`, `notification_body`, `waits`
//! - `priority`, `status`, `under_way`
//! - `summary`
//! - `transfer`
//! - `writer`
//! - `context`
//! - `packages`, `orphans`
//! - `documents`, `content`
//! - `apply`
//! - `archives`, `audit`, `notifications`, `schedule`
//! - `background`
//!
//! Locks, in the order in which they may be taken together: a sync's turn, the writer. All others are
//! held for a look or an assignment, and never while one waits for anything.

mod apply;
mod archives;
mod audit;
mod background;
mod config;
mod content;
mod context;
mod documents;
mod error;
mod notification_body;
mod notifications;
mod orphans;
mod packages;
pub(crate) mod priority;
mod schedule;
mod status;
mod summary;
mod transfer;
mod under_way;
mod waits;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};

use crate::bounds::{self, Bounds};
use crate::catalog::{CatalogError, Changes, Filter, NameId, News, Pool, SetRow, VersionId, Wish, Writer};
use crate::document::Datetime;
use crate::path::Mapper;
use crate::source::{Client, Discovery};
use crate::store::Store;

pub use audit::finding::{Audit, AuditScope, Finding, Findings};
pub use config::{Adjustment, Config, SeedFrom, Verify};
pub use content::flight::Failure;
pub use content::mementos::Asked;
pub use error::SyncError;
pub use notification_body::Announced;
pub use notifications::queue::{Heard, Inbox, OfferedChannel};
pub use status::{Progress, Status, Trouble};
pub use summary::{Summary, Trigger};
pub use writer::open_files::Ready;

pub use crate::catalog::{Channel, Subscription};

use background::Background;
use content::fetch;
use content::fetch::Contents;
use content::freshness::Revalidated;
use content::mementos::History;
use content::readahead::Readahead;
use context::Context;
use transfer::package::Downloads;
use writer::open_files::OpenFiles;
use writer::write_queue::{Limits, WriteQueue};

/// What is fetched ahead of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Everything of the current tree at or below this name.
    Below(NameId),
    /// All versions of this resource that are known and can be had.
    Versions(NameId),
}

/// The engine of one mirror.
#[derive(Debug)]
pub struct Engine {
    context: Arc<Context>,
    contents: Arc<Contents>,
    readahead: Arc<Readahead>,
    history: Arc<History>,
    inbox: Arc<Inbox>,
    /// One sync at a time.
    turn: tokio::sync::Mutex<()>,
    signals: Signals,
    background: Background,
}

/// What tells tasks in the background that there is something to do.
#[derive(Debug)]
struct Signals {
    /// How often the Source is polled.
    poll: watch::Sender<Option<Duration>>,
    /// A sync has ended.
    synced: watch::Sender<()>,
    /// A sync has ended that somebody asked for, or the first.
    asked: watch::Sender<()>,
    /// What is wanted ahead of use may be something else than before.
    wanted: watch::Sender<()>,
}

/// Holds a cache to what it was made for: the layout of its tree follows from it.
fn bind(writer: &Writer, cache: &Path, config: &Config) -> Result<(), SyncError> {
    let wanted = [
        ("source", Some(config.source.as_str())),
        ("base", config.base.as_deref()),
        ("set", config.set.as_deref()),
        ("prefer", config.prefer.as_deref()),
        ("index", config.index.as_deref()),
    ];
    // A cache of before there was an option has what is had without it.
    let known = if writer.sets()?.is_empty() { None } else { Some(String::new()) };
    for (key, wanted) in wanted {
        let wanted = wanted.unwrap_or_default();
        match writer.meta(key)?.or_else(|| known.clone()) {
            None => writer.set_meta(key, wanted)?,
            Some(found) if found == wanted => {}
            Some(found) => {
                let name = |value: &str| if value.is_empty() { format!("no {key}") } else { format!("{key} {value}") };
                let path = cache.display().to_string();
                return Err(CatalogError::OtherSource { path, found: name(&found), wanted: name(wanted) }.into());
            }
        }
    }
    Ok(())
}

/// Has a writer show what is wished for. Returns what that changes.
fn refilter(writer: &mut Writer, wish: Wish) -> Result<Changes, CatalogError> {
    let filter = Filter::new(wish).map_err(CatalogError::Pattern)?;
    let before = writer.set_filter(Arc::new(filter));
    let shown = writer.long(|writer| {
        let mut transaction = writer.begin(true)?;
        if transaction.refilter()? { transaction.commit() } else { Ok(Changes::default()) }
    });
    if shown.is_err() {
        // The rows are as they were, and steps go by what they are.
        writer.set_filter(before);
    }
    shown
}

/// Opens the cache for a Source. The channels are for what a commit means for readers, and for members that are to be checked.
fn open_context(
    cache: &Path,
    config: Config,
    client: Arc<Client>,
    mapper: Mapper,
    (announce, unchecked): (mpsc::UnboundedSender<News>, mpsc::UnboundedSender<context::Unchecked>),
) -> Result<Context, SyncError> {
    let store = Store::open(cache, config.bounds.free).map_err(|error| SyncError::cache(cache.display(), error))?;
    let (store, mapper) = (Arc::new(store), Arc::new(mapper));
    let mut writer = Writer::open(cache, Arc::clone(&mapper))?;
    bind(&writer, cache, &config)?;
    refilter(&mut writer, config.filter.clone())?;
    if writer.meta(schedule::PUBLIC)?.is_some() {
        client.reach().was_public();
    }
    let status = Arc::new(Status::default());
    let readers = Arc::new(writer.readers());
    let limits = Limits {
        cache_size: config.cache_size.filter(|_| !config.content_all),
        keep: config.keep,
        log: config.bounds.log,
    };
    let files = OpenFiles::new(&config.bounds);
    let write_queue =
        WriteQueue::open(writer, (Arc::clone(&store), Arc::clone(&status)), announce, limits, files.clone())?;
    fetch::tidy(&store, &readers)?;
    packages::tidy(&store, &readers, &write_queue)?;
    let downloads = Downloads::new(client.connections());
    Ok(Context { config, client, store, readers, mapper, write_queue, status, files, downloads, unchecked })
}

impl Engine {
    /// Opens the cache for a Source. What a commit means for readers is sent to `announce`. Call it
    /// within a tokio runtime.
    ///
    /// # Errors
    /// If the cache cannot be used, or belongs to another Source.
    pub fn open(
        cache: &Path,
        config: Config,
        client: Arc<Client>,
        mapper: Mapper,
        announce: mpsc::UnboundedSender<News>,
    ) -> Result<Arc<Self>, SyncError> {
        let opened = SystemTime::now();
        let (unchecked, new_members) = mpsc::unbounded_channel();
        let context = Arc::new(open_context(cache, config, client, mapper, (announce, unchecked))?);
        let (stale_hint, stale_hints) = mpsc::unbounded_channel();
        let history = History::new(Arc::clone(&context));
        let contents = Contents::new(Arc::clone(&context), stale_hint, &history);
        tokio::spawn(background::check_members(Arc::downgrade(&contents), new_members));
        Ok(Arc::new(Self {
            inbox: Arc::new(Inbox::new(Arc::clone(&context))),
            signals: Signals {
                poll: watch::Sender::new(context.config.poll),
                synced: watch::Sender::new(()),
                asked: watch::Sender::new(()),
                wanted: watch::Sender::new(()),
            },
            background: Background::new(opened, stale_hints),
            readahead: Arc::new(Readahead::new(Arc::clone(&contents))),
            turn: tokio::sync::Mutex::new(()),
            contents,
            history,
            context,
        }))
    }

    /// Questions to the catalog.
    #[must_use]
    pub fn readers(&self) -> &Arc<Pool> {
        &self.context.readers
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.context.store
    }

    /// How much is taken of what servers send, and given to local users.
    #[must_use]
    pub fn bounds(&self) -> &Bounds {
        &self.context.config.bounds
    }

    /// What is being done.
    #[must_use]
    pub fn status(&self) -> &Arc<Status> {
        &self.context.status
    }

    /// The generation of all inode numbers of this cache.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn generation(&self) -> Result<u64, SyncError> {
        Ok(self.context.write_queue.with(|writer| writer.generation())?)
    }

    /// The sets that are mirrored.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn sets(&self) -> Result<Vec<SetRow>, SyncError> {
        self.context.sets()
    }

    /// Brings what the Source has to tell of the versions of a resource into the catalog: all that it lists, and the
    /// one that was in force at a moment. Returns within the timeout; false if the Source could not be asked.
    pub async fn history(&self, resource: NameId, moment: Option<Datetime>) -> bool {
        self.history.bring(resource, moment, true).await
    }

    /// What came of asking for the versions of a resource.
    #[must_use]
    pub fn asked(&self, resource: NameId) -> Asked {
        self.history.asked(resource)
    }

    /// What is delivered on channels.
    #[must_use]
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// A receiver that is told when a sync has ended: what the sets offer may be something else than before.
    #[must_use]
    pub fn synced(&self) -> watch::Receiver<()> {
        self.signals.synced.subscribe()
    }

    /// Bytes of all content in the store.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.context.write_queue.stored_bytes()
    }

    /// Finds out what the Source offers.
    ///
    /// # Errors
    /// If nothing is found.
    pub async fn discover(&self) -> Result<Discovery, SyncError> {
        self.context.discover().await
    }

    /// Brings the mirror in step with the Source. One at a time: a second caller waits for its turn.
    ///
    /// # Errors
    /// If nothing could be synced; what was mirrored stays.
    pub async fn sync(&self, trigger: Trigger) -> Result<Summary, SyncError> {
        let _turn = self.turn.lock().await;
        if self.context.config.offline {
            return Err(SyncError::Unfit("the mount is offline (-o offline); the Source is left alone".to_owned()));
        }
        let by_hand = matches!(trigger, Trigger::Refresh { .. });
        if by_hand {
            self.history.try_again();
        }
        if let Err(error) = self.context.store.check_room(0) {
            let error = SyncError::from(error);
            self.context.status.ended(Some(error.to_string()), false);
            self.context.status.error(&format!("sync failed: {error}"));
            return Err(error);
        }
        let mark = self.inbox.mark()?;
        self.context.status.began();
        // Nothing else is wanted ahead of use after a poll that found nothing.
        let asked = !matches!(trigger, Trigger::Poll | Trigger::Notified(_) | Trigger::StaleHint);
        let sync = std::panic::AssertUnwindSafe(schedule::sync(&self.context, trigger));
        let sync = futures_util::FutureExt::catch_unwind(sync);
        let result = match tokio::time::timeout(Duration::from_secs(self.context.config.bounds.sync), sync).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(SyncError::Unfit("a bug ended the sync; see the log".to_owned())),
            Err(_) => Err(SyncError::Unfit(
                bounds::SYNC.passed("the time of the sync", &self.context.config.bounds).to_string(),
            )),
        };
        let away = matches!(&result, Err(error) if error.is_away());
        self.context.status.ended(result.as_ref().err().map(ToString::to_string), away);
        self.inbox.caught_up(&mark, result.as_ref());
        self.signals.synced.send_replace(());
        if asked || result.as_ref().is_ok_and(Summary::changed) {
            self.signals.wanted.send_replace(());
        }
        if asked {
            self.signals.asked.send_replace(());
        }
        if by_hand {
            self.contents.try_again();
        }
        if result.is_ok() {
            self.context.write_queue.told().await;
        }
        match &result {
            Ok(summary) if asked || summary.changed() || summary.partial => tracing::info!(?summary, "synced"),
            Ok(summary) => tracing::debug!(?summary, "synced"),
            Err(error) => self.context.status.error(&format!("sync failed: {error}")),
        }
        result
    }

    /// Compares the mirror with the Source's current lists, and what is in the cache with itself as far as `scope` says: that also
    /// where the Source is away. What is repaired is compared again.
    ///
    /// # Errors
    /// If the Source or the cache cannot be read.
    pub async fn audit(&self, scope: AuditScope) -> Result<Audit, SyncError> {
        let found = self.compare(scope).await?;
        if !scope.repair || found.in_sync() {
            return Ok(found);
        }
        self.sync(Trigger::Repair).await?;
        self.compare(AuditScope { repair: false, ..scope }).await
    }

    async fn compare(&self, scope: AuditScope) -> Result<Audit, SyncError> {
        audit::lists::audit(&self.context, &self.contents, &self.turn, scope).await
    }

    /// Whether all history is kept, also that which archives have.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        self.context.keeps_all()
    }

    /// Changes what can be changed while running.
    pub fn adjust(&self, adjustment: &Adjustment) {
        if let Some(timeout) = adjustment.timeout {
            self.context.client.set_timeout(timeout);
        }
        if let Some(connections) = adjustment.connections {
            self.context.client.set_connections(connections);
        }
        if let Some(rate) = adjustment.rate {
            self.context.client.set_rate(rate);
        }
        if let Some(poll) = adjustment.poll {
            self.signals.poll.send_replace(poll);
        }
    }

    /// Shows what is wished for from now on, given what was until then, and leaves out all else. Only lists that were left alone
    /// for another selection are asked for.
    ///
    /// # Errors
    /// If a pattern is none, the catalog cannot be written, or such lists cannot be read.
    pub async fn show(&self, wish: impl FnOnce(Wish) -> Wish + Send + 'static) -> Result<(), SyncError> {
        self.context
            .write_queue
            .step(move |writer| {
                let wish = wish(writer.wish());
                Ok(((), refilter(writer, wish)?))
            })
            .await?;
        self.context.write_queue.told().await;
        // What is shown now may have to be fetched.
        self.signals.wanted.send_replace(());
        let is_otherwise = |set: SetRow| self.context.readers.ask(|reader| reader.was_selected_otherwise(set.id));
        let otherwise: Vec<bool> = self.sets()?.into_iter().map(is_otherwise).collect::<Result<_, _>>()?;
        if otherwise.contains(&true) && !self.context.config.offline {
            self.sync(Trigger::Poll).await?;
        }
        Ok(())
    }

    /// Why sets that the Source names are missing, in a text each: what leads to them is not there.
    #[must_use]
    pub fn lacking(&self) -> Vec<String> {
        let lacking = self.context.readers.ask(|reader| reader.meta(schedule::LACKING)).ok().flatten();
        lacking.and_then(|texts| serde_json::from_str(&texts).ok()).unwrap_or_default()
    }

    /// The file with the content of a version, if it can be had without waiting.
    #[must_use]
    pub fn ready(&self, version: VersionId) -> Option<Ready> {
        self.contents.ready(version)
    }

    /// As [`Engine::ready`], for a reader. Also brings what is likely to be read next from the disk, on the threads of `runtime`
    /// that may block.
    #[must_use]
    pub fn reading(&self, version: VersionId, runtime: &tokio::runtime::Handle) -> Option<Ready> {
        let (ready, after) = self.readahead.reading(version);
        for share in after.map(|after| self.readahead.following(after)).unwrap_or_default() {
            let readahead = Arc::clone(&self.readahead);
            runtime.spawn_blocking(move || readahead.bring_near(&share));
        }
        ready
    }

    /// The file with the content of a version, fetched if need be, once so much of it is there that
    /// `offset` to `offset + len` can be read.
    ///
    /// # Errors
    /// If it cannot be had.
    pub async fn read(&self, version: VersionId, offset: u64, len: u64) -> Result<Ready, Failure> {
        self.contents.read(version, offset, len).await
    }

    /// Whether a server is to be asked whether it has other content, before this version is opened.
    #[must_use]
    pub fn is_due(&self, version: VersionId) -> bool {
        self.contents.is_due(version)
    }

    /// Whether there may be versions that are due some time.
    #[must_use]
    pub fn has_timeless(&self) -> bool {
        self.contents.has_timeless()
    }

    /// Asks a server whether it has other content for a version; false if there is a new version now.
    pub async fn revalidate(&self, version: VersionId) -> bool {
        self.contents.revalidate_soon(version).await != Revalidated::Superseded
    }

    /// The size of a version, asked for if need be.
    ///
    /// # Errors
    /// If it cannot be had.
    pub async fn size(&self, version: VersionId) -> Result<u64, Failure> {
        self.contents.size(version).await
    }

    /// Somebody lists a directory in which the sizes of these versions are not known: they will be
    /// asked for next.
    pub fn expect_sizes(&self, versions: Vec<VersionId>) {
        self.contents.expect_sizes(versions);
    }

    /// Whether the content of a version is being served before it is verified.
    #[must_use]
    pub fn streaming(&self, version: VersionId) -> bool {
        self.contents.streaming(version)
    }

    /// Fetches content, and keeps it if `pin` says so. `tell` is told of progress: files and bytes done, files that
    /// failed.
    ///
    /// # Errors
    /// If the catalog fails. Files that cannot be had are counted.
    pub async fn fetch(
        &self,
        wanted: Wanted,
        pin: bool,
        tell: impl FnMut(u64, u64, u64) + Send,
    ) -> Result<(), SyncError> {
        if pin {
            let (Wanted::Below(name) | Wanted::Versions(name)) = wanted;
            self.context.write_queue.write(move |transaction| transaction.pin(name)).await?;
        }
        match wanted {
            Wanted::Below(name) => self.contents.fetch_below(name, tell).await,
            Wanted::Versions(resource) => self.contents.fetch_versions(resource, tell).await,
        }
    }

    /// Waits until the step of the catalog that is under way has ended.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub async fn finish_step(&self) -> Result<(), SyncError> {
        self.context.write_queue.finish_step().await
    }

    /// Brings everything to the disk, before the end.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn close(&self) -> Result<(), SyncError> {
        packages::note_all(&self.context).await;
        self.context.write_queue.close().await
    }
}
