//! A mirror of one Source: the engine, its notifications and its tree, put together as options ask, without a kernel.
//!
//! **Owns** the order in which a mirror comes up: the client, the engine over its cache, the notifications, the contents that the
//! tree shows, the first sync.
//!
//! **Assumes** that the caller holds the lock of the cache.
//!
//! **Promises** that whatever can be done with a mirror can be done without a mount and without root: the daemon adds the
//! kernel, tests add nothing.
//!
//! **Never knows** FUSE sessions, signals, or how a command reaches a daemon.
//!
//! Layout, each line uses only those above it:
//! - `log`, `report`
//! - `contents`

mod contents;
pub mod log;
pub(crate) mod report;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::catalog::{News, SetRow, SetState};
use crate::fs::{Contents, Io, Requests};
use crate::notify::{self, Notifier};
use crate::options::Options;
use crate::path::{INDEX, Mapper};
use crate::source::{Client, Credentials, Discovery, Options as ClientOptions};
use crate::sync::{Config, Engine, Progress, Summary, Trigger};
use contents::{EngineContents, Workers};
use report::Reporter;

/// How long a mount that has a tree waits for the Source, so that its user sees what is new.
const INITIAL_SYNC_WAIT: Duration = Duration::from_millis(100);
/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// What a mirror is of, and where.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// The URL that the user gave.
    pub source: String,
    /// The mount point, as reports name it.
    pub directory: PathBuf,
    /// The cache directory.
    pub cache: PathBuf,
    /// The options of the mount.
    pub options: Options,
}

/// A mirror.
#[derive(Debug)]
pub struct Mirror {
    config: MirrorConfig,
    engine: Arc<Engine>,
    notifier: Arc<Notifier>,
}

/// How the first sync went.
#[derive(Clone, Debug)]
pub struct FirstSync {
    /// Whether there was a tree before.
    pub had_tree: bool,
    /// Whether the tree is complete now.
    pub is_complete: bool,
    /// What came of it, or why it failed; none if it has not ended, or the mirror is offline.
    pub result: Option<Result<Summary, String>>,
}

/// The client that asks a Source, with credentials and certificates as options name them.
///
/// # Errors
/// If a file cannot be read, or TLS cannot be set up.
pub fn open_client(source: &str, options: &Options) -> Result<Arc<Client>, String> {
    let credentials = match &options.credentials {
        Some(path) => Credentials::read(path).map_err(|error| error.to_string())?,
        None => Credentials::default(),
    };
    Client::new(ClientOptions {
        timeout: options.timeout,
        connections: options.connections,
        rate: options.rate,
        ca: options.ca.clone(),
        credentials,
        reach: options.reach(source),
        bounds: options.bounds,
    })
}

/// Binds the address that hubs deliver to, for which a port below 1024 wants a right that the daemon gives up.
///
/// # Errors
/// If it cannot be bound, with what may help.
pub fn bind(options: &Options) -> Result<Option<TcpListener>, String> {
    let Some(address) = options.listen.filter(|_| options.notify && !options.offline) else { return Ok(None) };
    TcpListener::bind(address).map(Some).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => "something else is there: `ss -ltnp` shows what",
            std::io::ErrorKind::AddrNotAvailable => "this machine has no such address: `ip address` shows those it has",
            std::io::ErrorKind::PermissionDenied => "ports below 1024 are for root",
            _ => "try another address or port",
        };
        format!("-o listen={address}: {error}; {hint}")
    })
}

/// What a sync came to, for people.
#[must_use]
pub fn describe(engine: &Engine, summary: &Summary) -> String {
    let sets = engine.sets().unwrap_or_default();
    match sets.iter().find(|set| set.state == SetState::Gap) {
        Some(set) => format!("{summary}; the state is {}, see `resourcesync status`", set.state.name()),
        None => summary.to_string(),
    }
}

fn open_engine(
    config: &MirrorConfig,
    client: Arc<Client>,
    announce: mpsc::UnboundedSender<News>,
) -> Result<Arc<Engine>, String> {
    let MirrorConfig { source, options, .. } = config;
    let base = options.base.as_deref().unwrap_or(source);
    let mapper = Mapper::new(base, options.base.is_some())
        .and_then(|mapper| mapper.with_index(options.index.as_deref().unwrap_or(INDEX)))
        .map_err(|error| error.to_string())?;
    let wanted = Config {
        source: source.clone(),
        set: options.set.clone(),
        base: options.base.clone(),
        index: options.index.clone(),
        content_all: options.content_all,
        seed: options.seed,
        verify: options.verify,
        offline: options.offline,
        cache_size: options.cache_size,
        poll: options.poll,
        relist: options.relist,
        revalidate: options.revalidate.unwrap_or(Some(options.poll.unwrap_or(Duration::MAX))),
        keep: options.keep,
        filter: options.filter.clone(),
        prefer: options.prefer.as_deref().map(Into::into),
        bounds: options.bounds,
    };
    Engine::open(&config.cache, wanted, client, mapper, announce).map_err(|error| error.to_string())
}

impl Mirror {
    /// Opens a mirror over its cache. What its commits change is sent to `announce`. Hubs deliver to `listener`.
    ///
    /// # Errors
    /// If the cache cannot be opened, or belongs to another Source; or if the notifications cannot be set up.
    pub fn open(
        config: MirrorConfig,
        client: Arc<Client>,
        listener: Option<TcpListener>,
        announce: mpsc::UnboundedSender<News>,
    ) -> Result<Self, String> {
        let engine = open_engine(&config, Arc::clone(&client), announce)?;
        let wanted = notify::Options {
            off: !config.options.notify || config.options.offline,
            listener,
            callback: config.options.callback.clone(),
            bounds: config.options.bounds,
        };
        let notifier = Notifier::new(Arc::clone(&engine), client, wanted)
            .map_err(|error| format!("cannot listen to hubs: {error}"))?;
        Ok(Self { config, engine, notifier: Arc::new(notifier) })
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Its notifications.
    #[must_use]
    pub fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    /// What it was opened with.
    #[must_use]
    pub fn config(&self) -> &MirrorConfig {
        &self.config
    }

    /// How many resources its tree shows.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn resources(&self) -> Result<u64, String> {
        Ok(self.sets()?.iter().map(SetRow::shown).sum())
    }

    fn sets(&self) -> Result<Vec<SetRow>, String> {
        self.engine.sets().map_err(|error| error.to_string())
    }

    /// Whether each of its sets has a tree, complete or not.
    fn has_tree(&self) -> Result<bool, String> {
        let sets = self.sets()?;
        Ok(!sets.is_empty() && sets.iter().all(|set| set.state != SetState::Empty))
    }

    /// Without a tree, a Source that does not answer is an error, before anything is mounted. Returns what it offers, where it
    /// was asked.
    ///
    /// # Errors
    /// If there is neither a tree nor a Source.
    pub async fn discover(&self, report: impl Fn(&Progress)) -> Result<Option<Discovery>, String> {
        let (has_tree, options) = (self.has_tree()?, &self.config.options);
        if options.offline && !has_tree {
            let cache = self.config.cache.display();
            return Err(format!(
                "there is nothing in the cache {cache} to serve offline; mount it without offline first"
            ));
        }
        if has_tree || options.bg || options.offline {
            return Ok(None);
        }
        report(&self.engine.status().progress());
        Ok(Some(self.engine.discover().await.map_err(|error| error.to_string())?))
    }

    /// What the tree shows: content from the engine, and files that report on this mirror.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn contents(&self, io: &Arc<Io>, requests: &Arc<Requests>) -> Result<Arc<dyn Contents>, String> {
        let reporter = Reporter {
            engine: Arc::clone(&self.engine),
            io: Arc::clone(io),
            requests: Arc::clone(requests),
            notifier: Arc::clone(&self.notifier),
            source: self.config.source.clone(),
            directory: self.config.directory.clone(),
            offline: self.config.options.offline,
            content_all: self.config.options.content_all,
            runtime: Handle::current(),
            totals: Arc::default(),
        };
        Ok(Arc::new(EngineContents {
            engine: Arc::clone(&self.engine),
            reporter: Arc::new(reporter),
            runtime: Handle::current(),
            workers: Workers::start().map_err(|error| format!("cannot start a thread: {error}"))?,
        }))
    }

    /// Syncs for the first time, and returns when the tree is complete, after `wait=`, or at once with `bg`. The sync continues
    /// in the background.
    ///
    /// # Errors
    /// If the sync fails and there is no tree.
    pub async fn first_sync(&self, found: Option<Discovery>, report: impl Fn(&Progress)) -> Result<FirstSync, String> {
        let (has_tree, options) = (self.has_tree()?, &self.config.options);
        if options.offline {
            return Ok(FirstSync { had_tree: has_tree, is_complete: has_tree, result: None });
        }
        let engine = Arc::clone(&self.engine);
        let mut sync = tokio::spawn(async move { engine.sync(Trigger::Mount(found.map(Box::new))).await });
        let wait = match (options.bg, has_tree) {
            (true, _) => Duration::ZERO,
            (false, true) => INITIAL_SYNC_WAIT.min(options.wait),
            (false, false) => options.wait,
        };
        let deadline = tokio::time::Instant::now() + wait;
        let mut tick = tokio::time::interval(PROGRESS_EVERY);
        let result = loop {
            tokio::select! {
                result = &mut sync => break Some(result),
                () = tokio::time::sleep_until(deadline) => break None,
                _ = tick.tick() => report(&self.engine.status().progress()),
            }
        };
        let result = match result {
            None => None,
            Some(Ok(Ok(summary))) => Some(Ok(summary)),
            Some(Ok(Err(error))) if has_tree || options.bg => Some(Err(error.to_string())),
            Some(Ok(Err(error))) => return Err(error.to_string()),
            Some(Err(error)) => return Err(error.to_string()),
        };
        let is_complete =
            self.sets().is_ok_and(|sets| !sets.is_empty() && sets.iter().all(|set| set.state == SetState::Complete));
        Ok(FirstSync { had_tree: has_tree, is_complete, result })
    }
}
