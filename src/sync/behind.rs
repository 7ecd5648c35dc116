//! What the engine does behind, as long as it is mounted: syncs when it is time, brings ahead of use what is wanted
//! here, lets history go that is kept no longer, or reaches back as far as archives do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::content::Doubt;
use super::{Engine, SyncError, Trigger, dumps};

/// When to try again what failed because the Source was away.
pub(super) const AGAIN: Duration = Duration::from_secs(60);
/// While changes are delivered, polls are no further apart than that.
const SLOWEST: Duration = Duration::from_secs(86_400);
/// How long wrong bytes do not make us look for changes after they did.
const CALM: Duration = Duration::from_secs(3);
/// The longest wait between such tries.
const AT_LAST: Duration = Duration::from_secs(3600);

/// How often it is looked for history that is not to be kept any longer.
const SOONEST_FORGOTTEN: Duration = Duration::from_secs(5);
const LATEST_FORGOTTEN: Duration = Duration::from_secs(86_400);

/// Waits until a moment, or for ever.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// What a wait is multiplied with: from 0.9 to 1.1.
fn unevenness() -> f64 {
    0.9 + 0.2 * fastrand::f64()
}

impl Engine {
    /// Does all that is done behind, until it is dropped. Each is a task: what keeps one busy keeps no other.
    #[must_use]
    pub fn go_on_behind(self: &Arc<Self>) -> JoinSet<()> {
        let mut behind = JoinSet::new();
        let own = Arc::clone(self);
        behind.spawn(async move { own.follow().await });
        let own = Arc::clone(self);
        behind.spawn(async move { own.attend().await });
        let own = Arc::clone(self);
        behind.spawn(async move { own.fetch_ahead().await });
        let own = Arc::clone(self);
        behind.spawn(async move { own.forget_history().await });
        let own = Arc::clone(self);
        behind.spawn(async move { own.reach_back().await });
        let own = Arc::clone(self);
        behind.spawn(own.let_leftovers_go());
        behind
    }

    /// Lets history go that is not to be kept any longer, now and then. Runs until it is dropped.
    async fn forget_history(&self) {
        let every = (self.config.keep / 10).clamp(SOONEST_FORGOTTEN, LATEST_FORGOTTEN);
        loop {
            if let Err(error) = self.ledger.forget_history().await {
                self.status.error(&format!("cannot let go of old versions: {error}"));
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Syncs as often as `poll` says, and when bytes are not what they should be. While all that changes is delivered,
    /// each poll that finds nothing makes the next one later. Runs until it is dropped.
    async fn follow(self: &Arc<Self>) {
        let mut doubts = self.doubts.lock().await;
        let mut calm = Instant::now();
        let mut poll = self.poll.subscribe();
        let mut synced = self.synced.subscribe();
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
                _ if self.status.away() => Some(AGAIN),
                poll => poll.map(|poll| (poll * slower).min(poll.max(SLOWEST))),
            };
            let next = every.filter(|_| !self.config.offline).map(|every| last + every.mul_f64(uneven));
            tokio::select! {
                () = until(next) => {
                    // The error is in the status.
                    self.inbox.polled(&self.sync(Trigger::Poll).await);
                    (last, uneven) = (Instant::now(), unevenness());
                }
                Some(Doubt(done)) = doubts.recv() => {
                    let mut all = vec![done];
                    while let Ok(Doubt(done)) = doubts.try_recv() {
                        all.push(done);
                    }
                    // A Source of which much is wrong is not asked each time.
                    if Instant::now() >= calm && !self.config.offline {
                        let _ = self.sync(Trigger::Doubt).await;
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

    /// Brings the packages here that the tree is made from, and looks at all their members; with
    /// `content=all`, fetches what is missing then. After each sync that changed something or that somebody
    /// asked for; what failed is tried again, ever later. Runs until it is dropped.
    async fn fetch_ahead(self: &Arc<Self>) {
        let mut wanted = self.wanted.subscribe();
        let mut missed = self.ledger.missed();
        let mut retry = AGAIN;
        loop {
            wanted.mark_unchanged();
            let brought = tokio::select! {
                brought = self.bring_all() => brought,
                // What goes on goes on; what is wanted now may be something else.
                _ = wanted.changed() => continue,
            };
            let left = match brought {
                Ok(left) => left,
                Err(error) => {
                    self.status.error(&error.to_string());
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
    async fn bring_all(self: &Arc<Self>) -> Result<u64, SyncError> {
        let mut left = self.bring_packages().await?;
        if self.config.content_all && !self.config.offline {
            left += self.contents.fetch_missing().await?;
        }
        Ok(left)
    }

    /// Brings packages here, gives versions their members where that is still to be done, and looks at
    /// members that nobody has looked at. Returns how many packages could not be had.
    async fn bring_packages(self: &Arc<Self>) -> Result<u64, SyncError> {
        let rows = self.readers.ask(|reader| reader.packages())?;
        let mut coming = FuturesUnordered::new();
        for row in rows {
            if !row.wanted && row.bytes == 0 {
                continue;
            }
            if row.wanted && !row.whole && !self.config.offline {
                match row.indexed && !row.changes {
                    true => self.packages.complete_what_is_needed(&row)?,
                    false => self
                        .packages
                        .start(&row, None)
                        .map_err(|error| SyncError::Cache(format!("{}: {error}", row.url)))?,
                }
            }
            let packages = Arc::clone(&self.packages);
            coming.push(async move {
                packages.settled(row.id).await;
                row.id
            });
        }
        let mut failed = 0;
        while let Some(id) = coming.next().await {
            let Some(row) = self.readers.ask(|reader| reader.package(id))? else { continue };
            if let Some(error) = self.packages.failure(id) {
                tracing::debug!(%error, "a package is not whole yet");
                failed += 1;
            }
            if row.wanted
                && row.whole
                && !row.indexed
                && !row.changes
                && let Err(error) = dumps::attach_later(self, &row).await
            {
                self.status.error(&error.to_string());
                failed += 1;
            }
            let Some(package) = self.packages.get(id) else { continue };
            let verifier = self.verifier();
            let damage = verifier.pass(&package).await?;
            // It goes on whatever becomes of this round: the catalog has the damage, and tells of it no second time.
            let contents = Arc::clone(&self.contents);
            let mending = tokio::spawn(async move { contents.mend(&package, damage).await });
            mending.await.map_err(|error| SyncError::Cache(error.to_string()))?;
        }
        let seen = self.status.progress().verified;
        if self.reported.swap(seen, Ordering::AcqRel) != seen {
            tracing::info!(members = seen, failed, "packages are here, and their members were looked at");
        }
        Ok(failed)
    }
}
