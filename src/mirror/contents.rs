//! The engine as the file system sees it, and the threads that answer what a dispatch thread must not.

use crate::catalog::{NameId, VersionId};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::report::Reporter;
use crate::document::Datetime;
use crate::fs::{Asked, ContentError, Contents, Then};
use crate::printable;
use crate::store::Body;
use crate::sync::{self, Engine};

/// The engine, as the file system sees it.
pub(super) struct EngineContents {
    pub(super) engine: Arc<Engine>,
    pub(super) reporter: Arc<Reporter>,
    pub(super) runtime: Handle,
    pub(super) workers: Workers,
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads for what any local user may ask for and what takes a dispatch thread too long: as few as leave the machine to others,
/// and apart from those that content and syncs need.
#[derive(Clone)]
pub(super) struct Workers {
    jobs: SyncSender<Job>,
    /// When it was last logged that there were too many requests.
    logged: Arc<Mutex<Option<Instant>>>,
}

/// How many threads.
const THREADS: usize = 3;
/// How many requests wait for them; more are answered with EIO.
const MOST_WAITING: usize = 4096;
/// That it was so is logged no more often: any user can cause it.
const LOGGED_EVERY: Duration = Duration::from_secs(1);

impl Workers {
    /// Starts the threads. They end with it.
    ///
    /// # Errors
    /// If one cannot be started.
    pub(super) fn start() -> std::io::Result<Self> {
        let (sender, jobs) = sync_channel::<Job>(MOST_WAITING);
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            std::thread::Builder::new().name("aside".to_owned()).spawn(move || {
                crate::sync::priority::lower();
                // The lock is held by the one that waits for a request; the others wait for it.
                while let Ok(job) = { jobs.lock().recv() } {
                    // A bug that ends one request ends no thread.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                }
            })?;
        }
        Ok(Self { jobs: sender, logged: Arc::default() })
    }

    fn run(&self, job: Job) {
        // A reply that is dropped is answered with EIO.
        if self.jobs.try_send(job).is_ok() {
            return;
        }
        let mut logged = self.logged.lock();
        if logged.is_none_or(|when| when.elapsed() > LOGGED_EVERY) {
            *logged = Some(Instant::now());
            tracing::warn!(
                "too many requests below .resourcesync and .versions at once; some are answered with an error"
            );
        }
    }
}

impl Contents for EngineContents {
    fn ready(&self, version: VersionId) -> Option<Body> {
        self.engine.reading(version, &self.runtime).map(|ready| ready.body)
    }

    fn read(&self, version: VersionId, offset: u64, len: u64, then: Then<Result<Body, ContentError>>) {
        let engine = Arc::clone(&self.engine);
        self.runtime.spawn(async move {
            let found = engine.read(version, offset, len).await.map(|ready| ready.body).map_err(ContentError::from);
            // Replying reads the file.
            tokio::task::spawn_blocking(move || then(found));
        });
    }

    fn is_due(&self, version: VersionId) -> bool {
        self.engine.is_due(version)
    }

    fn has_timeless(&self) -> bool {
        self.engine.has_timeless()
    }

    fn revalidate(&self, version: VersionId, then: Then<bool>) {
        let engine = Arc::clone(&self.engine);
        self.runtime.spawn(async move {
            let is_current = engine.revalidate(version).await;
            tokio::task::spawn_blocking(move || then(is_current));
        });
    }

    fn size(&self, version: VersionId, then: Then<Result<u64, ContentError>>) {
        let engine = Arc::clone(&self.engine);
        self.runtime.spawn(async move { then(engine.size(version).await.map_err(ContentError::from)) });
    }

    fn expect_sizes(&self, versions: Vec<VersionId>) {
        let _runtime = self.runtime.enter();
        self.engine.expect_sizes(versions);
    }

    fn verified(&self, version: VersionId) -> Option<bool> {
        if self.engine.streaming(version) {
            return Some(false);
        }
        self.engine.ready(version).map(|ready| ready.verified)
    }

    fn history(&self, resource: NameId, moment: Option<Datetime>, then: Then<bool>) {
        let (engine, workers) = (Arc::clone(&self.engine), self.workers.clone());
        self.runtime.spawn(async move {
            let asked = engine.history(resource, moment).await;
            // The answer asks the catalog.
            workers.run(Box::new(move || then(asked)));
        });
    }

    fn aside(&self, what: Box<dyn FnOnce() + Send>) {
        self.workers.run(what);
    }

    fn asked(&self, resource: NameId) -> Asked {
        let sync::Asked { as_of, when, trouble } = self.engine.asked(resource);
        Asked { as_of, when, trouble }
    }

    fn control(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "status.json" => {
                let text = serde_json::to_string_pretty(&self.reporter.report()).unwrap_or_default();
                Some(format!("{}\n", printable::json(&text)).into_bytes())
            }
            "metrics" => Some(self.reporter.report().metrics().into_bytes()),
            _ => None,
        }
    }

    fn most_snapshots(&self) -> u64 {
        self.engine.bounds().snapshots
    }

    fn room(&self) -> (u64, u64) {
        let available = self.engine.store().room().map(|room| room.available).unwrap_or(0);
        (self.engine.stored_bytes(), available)
    }
}
