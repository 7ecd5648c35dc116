//! Content that is fetched before anybody reads it.

use crate::catalog::{NameId, VersionId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::fetch::Contents;
use super::flight::Failure;
use crate::sync::error::SyncError;
use crate::sync::writer::open_files::Ready;

/// Versions that are asked of the catalog at once.
const PAGE: usize = 1000;
/// What is small, in bytes.
const SMALL: u64 = 64 << 10;
/// How many small ones wait for a connection.
const WAITING: usize = 2;
/// What took no longer than this may have all connections.
const QUICK: Duration = Duration::from_secs(1);

impl Contents {
    /// Fetches what is at or below a name.
    pub(in crate::sync) async fn fetch_below(
        self: &Arc<Self>,
        name: NameId,
        tell: impl FnMut(u64, u64, u64) + Send,
    ) -> Result<(), SyncError> {
        let mut there = Vec::new();
        self.context
            .readers
            .ask(|reader| reader.below(name, |version, size, here| there.push((version, size, here))))?;
        self.fetch_these(there, tell).await
    }

    /// Fetches the versions of a resource that can be had.
    pub(in crate::sync) async fn fetch_versions(
        self: &Arc<Self>,
        resource: NameId,
        tell: impl FnMut(u64, u64, u64) + Send,
    ) -> Result<(), SyncError> {
        let versions = self.context.readers.ask(|reader| reader.versions_of(resource))?;
        let to_be_had = versions.iter().filter(|version| !version.places.is_empty());
        let there = to_be_had.map(|version| (version.id, version.size, version.is_here())).collect();
        self.fetch_these(there, tell).await
    }

    /// Fetches versions, of which the size may be known, and which may be here.
    async fn fetch_these(
        self: &Arc<Self>,
        there: Vec<(VersionId, Option<u64>, bool)>,
        mut tell: impl FnMut(u64, u64, u64) + Send,
    ) -> Result<(), SyncError> {
        let (here, missing): (Vec<_>, Vec<_>) = there.into_iter().partition(|(.., here)| *here);
        let mut files = here.len() as u64;
        let mut bytes = here.iter().filter_map(|(_, size, _)| *size).sum();
        let mut failed = 0;
        let missing: Vec<_> = missing.into_iter().map(|(version, size, _)| (version, size)).collect();
        tell(files, bytes, failed);
        self.bring_packages_of(&missing.iter().map(|(version, _)| *version).collect::<Vec<_>>()).await?;
        self.many(missing, |result| {
            match result {
                Err(_) => failed += 1,
                Ok(ready) => {
                    files += 1;
                    bytes += ready.size;
                }
            }
            tell(files, bytes, failed);
        })
        .await;
        Ok(())
    }

    /// Fetches what is missing, once through.
    pub(in crate::sync) async fn fetch_missing(self: &Arc<Self>) -> Result<u64, SyncError> {
        // Versions that come into being meanwhile are for the next pass, or one that fails would go on for ever.
        let (to_fetch, upto) = self.context.readers.ask(|reader| reader.count_missing())?;
        if to_fetch == 0 {
            return Ok(0);
        }
        self.context.status.update(|progress| {
            progress.phase = "fetching content";
            (progress.to_fetch, progress.fetched, progress.failed) = (to_fetch, 0, 0);
        });
        // A pass that was broken off goes on where it was: what hangs at its beginning keeps no other waiting.
        let begun = self.reached.load(Ordering::Acquire).min(upto);
        let (mut after, mut end, mut failed) = (begun, upto, 0);
        let mut again = false;
        let result = loop {
            let page = match self.context.readers.ask(|reader| reader.missing(after, end, PAGE)) {
                Ok(page) => page,
                Err(error) => break Err(error.into()),
            };
            let Some((last, _)) = page.last() else {
                if !again && begun > 0 {
                    (again, after, end) = (true, 0, begun);
                    continue;
                }
                self.reached.store(0, Ordering::Release);
                break Ok(failed);
            };
            after = last.number();
            self.reached.store(after, Ordering::Release);
            self.many(page, |result| {
                failed += u64::from(result.is_err());
                self.context.status.update(|progress| {
                    progress.fetched += u64::from(result.is_ok());
                    progress.failed = failed;
                });
            })
            .await;
        };
        self.context.status.phase("idle");
        result
    }

    /// Fetches versions whose sizes may be known, as many at a time as connections allow.
    ///
    /// Of what may take long, one connection is left for readers. What is small, from a Source that has just been quick several
    /// times, is done before anybody who waits for it would notice: it may have them all, and some more wait their turn, so that
    /// no connection idles while what came on it is verified and stored. Readers go before those who wait.
    pub(in crate::sync) async fn many(
        self: &Arc<Self>,
        versions: Vec<(VersionId, Option<u64>)>,
        mut done: impl FnMut(Result<Ready, Failure>),
    ) {
        let mut left = versions.into_iter().peekable();
        let mut running = FuturesUnordered::new();
        let mut quick = 0;
        loop {
            let connections = self.context.client.connections();
            let most = |size: Option<u64>| match size {
                Some(size) if size <= SMALL && quick >= connections => connections + WAITING,
                _ => connections.saturating_sub(1).max(1),
            };
            while let Some((version, _)) = left.next_if(|(_, size)| running.len() < most(*size)) {
                let this = Arc::clone(self);
                running.push(async move {
                    if let Some(ready) = this.ready(version) {
                        return (Ok(ready), None);
                    }
                    let began = Instant::now();
                    let flight = this.flight(version, false);
                    let mut done = flight.done.subscribe();
                    let landed = done.wait_for(Option::is_some).await;
                    let result = match landed.map(|done| done.clone()) {
                        Ok(Some(result)) => result,
                        _ => Err(Failure::new("the fetch was given up")),
                    };
                    (result, Some(began.elapsed()))
                });
            }
            match running.next().await {
                Some((result, took)) => {
                    match took {
                        // What was here already says nothing of the Source.
                        None => {}
                        Some(took) if result.is_ok() && took < QUICK => quick += 1,
                        Some(_) => quick = 0,
                    }
                    done(result);
                }
                None => return,
            }
        }
    }
}
