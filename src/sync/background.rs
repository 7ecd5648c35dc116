//! What the engine does behind, as long as it is mounted: syncs when it is time, brings ahead of use what is wanted
//! here, lets history go that is kept no longer, or reaches back as far as archives do.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::apply::attach;
use super::content::fetch::{Contents, StaleHint};
use super::context::{Context, Unchecked};
use super::error::SyncError;
use super::packages::members;
use super::summary::Trigger;
use super::transfer::package::NewMembers;
use super::waits::{AGAIN, until};
use super::{Engine, archives, orphans, packages};

/// While changes are delivered, polls are no further apart than that.
const SLOWEST: Duration = Duration::from_secs(86_400);
/// How long wrong bytes do not make us look for changes after they did.
const CALM: Duration = Duration::from_secs(3);
/// The longest wait between such tries.
const AT_LAST: Duration = Duration::from_secs(3600);

/// How often it is looked for history that is not to be kept any longer.
const SOONEST_FORGOTTEN: Duration = Duration::from_secs(5);
const LATEST_FORGOTTEN: Duration = Duration::from_secs(86_400);

/// What a wait is multiplied with: from 0.9 to 1.1.
fn unevenness() -> f64 {
    0.9 + 0.2 * fastrand::f64()
}

/// What the background works with.
#[derive(Debug)]
pub(super) struct Background {
    /// When the engine was opened, before it brought anything.
    opened: SystemTime,
    /// Who found bytes that are not what they should be. Held by whoever follows the Source.
    stale_hints: Mutex<mpsc::UnboundedReceiver<StaleHint>>,
}

impl Background {
    pub(super) fn new(opened: SystemTime, stale_hints: mpsc::UnboundedReceiver<StaleHint>) -> Self {
        Self { opened, stale_hints: Mutex::new(stale_hints) }
    }
}

impl Engine {
    /// Does all that is done behind, until it is dropped. Each is a task: what keeps one busy keeps no other.
    #[must_use]
    pub fn spawn_background_tasks(self: &Arc<Self>) -> JoinSet<()> {
        let mut behind = JoinSet::new();
        let own = Arc::clone(self);
        behind.spawn(async move { own.follow().await });
        let own = Arc::clone(self);
        behind.spawn(async move { own.attend().await });
        behind.spawn(fetch_ahead(Arc::clone(&self.contents), self.signals.wanted.subscribe()));
        behind.spawn(forget_history(Arc::clone(&self.context)));
        behind.spawn(archives::reach_back(Arc::clone(&self.context), self.signals.asked.subscribe()));
        behind.spawn(orphans::delete_orphans(Arc::clone(&self.context), self.background.opened));
        behind
    }

    /// Has the lists read for what notifications do not tell.
    async fn attend(self: &Arc<Self>) {
        let own = Arc::clone(self);
        let read_lists = move |announced| {
            let own = Arc::clone(&own);
            tokio::spawn(async move { own.sync(Trigger::Notified(announced)).await.ok() })
        };
        self.inbox.attend(&self.signals.wanted, read_lists).await;
    }

    /// Syncs as often as `poll` says, and when bytes are not what they should be. While all that changes is delivered,
    /// each poll that finds nothing makes the next one later. Runs until it is dropped.
    async fn follow(self: &Arc<Self>) {
        let mut stale_hints = self.background.stale_hints.lock().await;
        let mut calm = Instant::now();
        let mut poll = self.signals.poll.subscribe();
        let mut synced = self.signals.synced.subscribe();
        let mut live = self.inbox.live.subscribe();
        let mut last = Instant::now();
        // Mirrors that were mounted together, or heard of a change together, must not poll together.
        let mut uneven = unevenness();
        loop {
            let slower = match *live.borrow_and_update() {
                true => self.inbox.slower.load(Ordering::Acquire),
                false => 1,
            };
            let every = match *poll.borrow_and_update() {
                _ if self.context.status.away() => Some(AGAIN),
                poll => poll.map(|poll| (poll * slower).min(poll.max(SLOWEST))),
            };
            let next = every.filter(|_| !self.context.config.offline).map(|every| last + every.mul_f64(uneven));
            tokio::select! {
                () = until(next) => {
                    // The error is in the status.
                    self.inbox.polled(&self.sync(Trigger::Poll).await);
                    (last, uneven) = (Instant::now(), unevenness());
                }
                Some(StaleHint(done)) = stale_hints.recv() => {
                    let mut all = vec![done];
                    while let Ok(StaleHint(done)) = stale_hints.try_recv() {
                        all.push(done);
                    }
                    // A Source of which much is wrong is not asked each time.
                    if Instant::now() >= calm && !self.context.config.offline {
                        let _ = self.sync(Trigger::StaleHint).await;
                        calm = Instant::now() + CALM;
                        last = Instant::now();
                    }
                    for done in all {
                        // Whoever doubted may have given up.
                        let _ = done.send(());
                    }
                }
                _ = poll.changed() => {}
                _ = live.changed() => {}
                _ = synced.changed() => last = Instant::now(),
            }
        }
    }
}

/// Lets history go that is not to be kept any longer, now and then. Runs until it is dropped.
async fn forget_history(context: Arc<Context>) {
    let every = (context.config.keep / 10).clamp(SOONEST_FORGOTTEN, LATEST_FORGOTTEN);
    loop {
        if let Err(error) = context.write_queue.forget_history().await {
            context.status.error(&format!("cannot let go of old versions: {error}"));
        }
        tokio::time::sleep(every).await;
    }
}

/// Checks members that versions were just given, each package's in a task of its own. Ends with the engine.
pub(super) async fn check_members(contents: Weak<Contents>, mut unchecked: mpsc::UnboundedReceiver<Unchecked>) {
    while let Some((NewMembers { package, members }, turn)) = unchecked.recv().await {
        let Some(contents) = contents.upgrade() else { return };
        tokio::spawn(async move {
            let checked = members::given(&contents.context, &package, members).await;
            drop(turn);
            match checked {
                Ok(damage) => contents.mend(&package, damage).await,
                Err(error) => contents.context.status.error(&error.to_string()),
            }
        });
    }
}

/// Brings the packages here that the tree is made from, and looks at all their members; with
/// `content=all`, fetches what is missing then. After each sync that changed something or that somebody
/// asked for; what failed is tried again, ever later. Runs until it is dropped.
async fn fetch_ahead(contents: Arc<Contents>, mut wanted: watch::Receiver<()>) {
    let mut missed = contents.context.write_queue.missed();
    let mut reported = 0;
    let mut retry = AGAIN;
    loop {
        wanted.mark_unchanged();
        let brought = tokio::select! {
            brought = bring_all(&contents, &mut reported) => brought,
            // What goes on goes on; what is wanted now may be something else.
            _ = wanted.changed() => continue,
        };
        let left = match brought {
            Ok(left) => left,
            Err(error) => {
                contents.context.status.error(&error.to_string());
                1
            }
        };
        let again = (left > 0).then(|| Instant::now() + retry);
        tokio::select! {
            () = until(again) => retry = (retry * 2).min(AT_LAST),
            _ = wanted.changed() => retry = AGAIN,
            _ = missed.changed() => {}
        }
    }
}

/// Brings here what is to be here ahead of use; returns how much of it could not be had.
async fn bring_all(contents: &Arc<Contents>, reported: &mut u64) -> Result<u64, SyncError> {
    let mut left = bring_packages(contents, reported).await?;
    if contents.context.config.content_all && !contents.context.config.offline {
        left += contents.fetch_missing().await?;
    }
    Ok(left)
}

/// Brings packages here, gives versions their members where that is still to be done, and looks at
/// members that nobody has looked at. Returns how many packages could not be had. `reported` is how many members had been looked at
/// when that was last reported.
async fn bring_packages(contents: &Arc<Contents>, reported: &mut u64) -> Result<u64, SyncError> {
    let context = &contents.context;
    let rows = context.readers.ask(|reader| reader.packages())?;
    let mut coming = FuturesUnordered::new();
    for row in rows {
        if !row.wanted && row.bytes == 0 {
            continue;
        }
        if row.wanted && !row.whole && !context.config.offline {
            match row.indexed && !row.changes {
                true => packages::complete_what_is_needed(context, &row)?,
                false => packages::start(context, &row, None).map_err(|error| SyncError::cache(&row.url, error))?,
            }
        }
        coming.push(async move {
            packages::settled(context, row.id).await;
            row.id
        });
    }
    let mut failed = 0;
    while let Some(id) = coming.next().await {
        let Some(row) = context.readers.ask(|reader| reader.package(id))? else { continue };
        if let Some(error) = packages::failure(context, id) {
            tracing::debug!(%error, "a package is not whole yet");
            failed += 1;
        }
        if row.wanted
            && row.whole
            && !row.indexed
            && !row.changes
            && let Err(error) = attach::attach_later(context, &row).await
        {
            context.status.error(&error.to_string());
            failed += 1;
        }
        let Some(package) = packages::get(context, id) else { continue };
        let damage = members::pass(context, &package).await?;
        // It goes on whatever becomes of this round: the catalog has the damage, and tells of it no second time.
        let contents = Arc::clone(contents);
        let mending = tokio::spawn(async move { contents.mend(&package, damage).await });
        mending.await?;
    }
    let seen = context.status.progress().verified;
    if std::mem::replace(reported, seen) != seen {
        tracing::info!(members = seen, failed, "packages are here, and their members were looked at");
    }
    Ok(failed)
}
