//! The life of a mount: cache, engine, session, and its end.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{Config as SessionConfig, Session, SessionACL};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getegid, geteuid, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::guard::Guard;
use super::messages::{Report, Syncing};
use super::task::Task;
use super::{Done, Stop, confine, exit, logging, server};
use crate::bounds::{self, Bounds};
use crate::catalog::{CacheLock, News};
use crate::fs::{Backing, Collections, Filesystem, Io, Moments, Requests, View, invalidate};
use crate::mirror::{self, FirstSync, Mirror, MirrorConfig};
use crate::source::{Client, Discovery};
use crate::store::private;
use crate::sync::Engine;
use crate::{printable, users};

/// Where a daemon stands before it is confined.
#[derive(Debug)]
struct Place {
    /// Whether root mounts.
    root: bool,
    /// Whose all files are.
    uid: u32,
    gid: u32,
    guard: Arc<Guard>,
    cache: PathBuf,
}

/// How long a daemon that is about to end may hold the cache before a new one gives up.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// The least number of descriptors that is asked for.
const DESCRIPTORS: u64 = 65_536;
/// How long the end may take.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// How long a step of the catalog is waited for, where nothing is to be kept.
const LAST_STEP: Duration = Duration::from_secs(2);
/// Listings bring attributes with them as long as what the kernel then knows of all resources takes no more than this part of
/// the memory. It gives it back where others need it, as it does of a local disk: an inode and its name
/// take 1,088 bytes here, and 1,320 on ext4. Of a mount that is new, the number of resources is not known
/// when the kernel must be told; it is taken for small.
const KNOWN_PART: u64 = 4;
const KNOWN_EACH: u64 = 1088;

/// Tells whoever started us.
type Tell = Box<dyn Fn(&Report) + Send + Sync>;

/// Runs as the daemon that a mount command started: reports go to stdout, a line each, until the
/// mount answers.
pub(super) fn run_detached(task: &Task) -> Done {
    // Not a leader of its group, having been spawned; if it fails, we are a session of our own already.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    let tell: Tell = Box::new(|report| {
        let line = serde_json::to_string(&report.redacted()).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        // Who started us may be gone.
        let _ = writeln!(out, "{}", printable::json(&line)).and_then(|()| out.flush());
        if matches!(report, Report::Ready { .. }) {
            quiet_stdout();
        }
    });
    let result = live(task, &tell, true);
    if let Err(stop) = &result {
        tell(&Report::Failed { code: stop.code, error: stop.message.clone() });
    }
    result
}

/// A pipe that stays open would hang whoever reads it to its end.
fn quiet_stdout() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Runs in the foreground, logging to stderr, until it is unmounted or told to end. `ready` is called
/// when the mount answers.
pub(super) fn run_here(task: &Task, ready: impl Fn(&Report) + Send + Sync + 'static) -> Done {
    live(task, &(Box::new(ready) as Tell), false)
}

/// Opens the cache directory, and takes its lock.
fn take_cache(task: &Task, wanted: &Path) -> Result<(CacheLock, OwnedFd, PathBuf), String> {
    let own = [task.options.run_as.as_ref().map_or_else(|| geteuid().as_raw(), |user| user.uid)];
    // For as long as this is root's process, only root may change what the path leads to.
    let above = if task.options.run_as.is_some() { &[][..] } else { &own[..] };
    let holder = format!("process {}, mounted at {}", std::process::id(), task.directory.display());
    let began = Instant::now();
    loop {
        let owners = private::Owners { users: &own, above, is_private_group: &users::is_private_group };
        let (directory, cache) =
            private::open(wanted, owners).map_err(|error| format!("-o cache={}: {error}", wanted.display()))?;
        match CacheLock::take(&cache, &holder, LOCK_PATIENCE) {
            Ok(lock) if lock.is_of(&cache) => return Ok((lock, directory, cache)),
            Err(error) if cache.exists() => return Err(error.to_string()),
            _ => {}
        }
        if began.elapsed() > LOCK_PATIENCE {
            return Err(format!(
                "cache {}: another process removes it again and again; choose another directory with cache=",
                wanted.display()
            ));
        }
    }
}

fn live(task: &Task, tell: &Tell, detached: bool) -> Done {
    let failed = |error: String| Stop::new(exit::MOUNT_FAILED, error);
    let options = &task.options;
    // Files that others may read are given their mode one by one: the cache, its log and its socket are for this user only.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let wanted = options.cache_for(&task.source).map_err(failed)?;
    let new = !wanted.exists();
    let (lock, directory, cache) = take_cache(task, &wanted).map_err(failed)?;
    let exposed = private::tighten(&directory, &confine::OWN)
        .map_err(|error| failed(format!("-o cache={}: {error}", cache.display())))?;
    // Who held it until now may have put something there.
    let new = new && !cache.join("catalog.db").exists();
    let prepared = match prepare(task, &cache) {
        Ok(prepared) => prepared,
        Err(error) => {
            if new {
                // There is nothing in it.
                let _ = lock.remove_cache(&cache);
            }
            return Err(failed(error));
        }
    };
    if detached {
        logging::to_the_machine(&cache);
    } else {
        logging::to_stderr();
    }
    match prepared.held {
        confine::Held::Fully => tracing::debug!("confined"),
        confine::Held::Partly => tracing::debug!("confined, as far as this kernel can"),
        confine::Held::Not => {
            tracing::info!(
                "this kernel has no Landlock: what the daemon reaches of the file system is what its user may"
            );
        }
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("this is a bug: {panic}")));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .map_err(|error| Stop::new(exit::USAGE, error.to_string()))?;
    let guard = Arc::clone(&prepared.place.guard);
    let done = runtime.block_on(serve(task, prepared, exposed, tell));
    runtime.shutdown_timeout(Duration::from_secs(2));
    if new && done.is_err() {
        // Nothing was mirrored: nothing is worth keeping. What cannot be removed does no harm; the directory itself may be in
        // one that we do not reach.
        let _ = lock.remove_cache(&cache);
        guard.forget();
    }
    drop(lock);
    done
}

/// What a daemon has got before it was confined.
struct Prepared {
    place: Place,
    client: Arc<Client>,
    listener: Option<TcpListener>,
    held: confine::Held,
}

/// Does what a confined process could not, and confines this one.
fn prepare(task: &Task, cache: &Path) -> Result<Prepared, String> {
    let options = &task.options;
    let place = Place {
        root: geteuid().is_root(),
        uid: options.uid.unwrap_or_else(|| geteuid().as_raw()),
        gid: options.gid.unwrap_or_else(|| getegid().as_raw()),
        guard: Arc::new(Guard::start(task)?),
        cache: cache.to_owned(),
    };
    // The files that it reads are not for whom we are about to become.
    let client = mirror::open_client(&task.source, options)?;
    limit_itself(&options.bounds)?;
    let listener = mirror::bind(options)?;
    if let Some(user) = &options.run_as {
        confine::give(cache, user)?;
    }
    let held = confine::confine(&confine::Needs { user: options.run_as.as_ref(), cache })?;
    Ok(Prepared { place, client, listener, held })
}

/// Sets what the kernel holds this process to: the descriptors that it may need, and the memory that it is given.
fn limit_itself(bounds: &Bounds) -> Result<(), String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // A part of them is kept open, and each connection has one.
    let needed = (4 * bounds.files + bounds.connections + bounds.callers).max(DESCRIPTORS);
    let given = maximum.map_or(needed, |most| most.min(needed));
    if current.is_some_and(|current| current < given) {
        // Without it, fewer files stay open.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(given), maximum });
    }
    if bounds.memory != bounds::NONE {
        let most = Some(bounds.memory);
        setrlimit(Resource::Data, Rlimit { current: most, maximum: most }).map_err(|error| {
            let most = bounds::MEMORY.unit.show(bounds.memory);
            format!("-o {}={most}: the kernel does not hold this process to it: {error}", bounds::MEMORY)
        })?;
    }
    Ok(())
}

fn config(task: &Task, cache: &Path) -> MirrorConfig {
    MirrorConfig {
        source: task.source.clone(),
        directory: task.directory.clone(),
        cache: cache.to_owned(),
        options: task.options.clone(),
    }
}

async fn serve(task: &Task, prepared: Prepared, exposed: bool, tell: &Tell) -> Done {
    let Prepared { place, client, listener, .. } = prepared;
    let place = &place;
    let failed = |error: String| Stop::new(exit::MOUNT_FAILED, error);
    let (announce, changes) = mpsc::unbounded_channel();
    let cache = place.cache.as_path();
    let mirror = Mirror::open(config(task, cache), client, listener, announce).map_err(failed)?;
    let (engine, notifier) = (mirror.engine(), mirror.notifier());
    if exposed {
        // The secrets of its subscriptions may be known.
        engine.inbox().forget_subscriptions().await.map_err(|error| failed(error.to_string()))?;
        tracing::warn!(cache = %cache.display(), "other users could read the catalog; hubs are given new secrets");
    }
    let report = |progress: &crate::sync::Progress| tell(&Report::Progress(Syncing::of(progress.clone())));
    let found = mirror.discover(report).await.map_err(failed)?;
    let Mounted { end, note } = mount(place, &mirror, changes).map_err(failed)?;
    if let Some(note) = &note {
        tracing::warn!("{note}");
    }
    if let Err(error) = server::serve(cache, Arc::clone(engine)) {
        tracing::warn!(%error, "no control socket; refresh and fetch --pin will not work");
    }
    tracing::info!(source = task.source, directory = %task.directory.display(), cache = %cache.display(), "mounted");
    let mut ended = std::pin::pin!(wait_for_end(end));
    // Before the first sync: what is delivered meanwhile must not be missed.
    notifier.start();
    let first = tokio::select! {
        first = first_sync(&mirror, tell, found, note) => first.map(|()| None),
        asked = &mut ended => Ok(Some(asked)),
    };
    let mut behind = engine.spawn_background_tasks();
    // What ends it: a signal, or the mount that is gone; or a first sync that failed.
    let (asked, failure) = match first {
        Ok(None) => (ended.await, None),
        Ok(Some(asked)) => {
            (asked, Some(failed("it was unmounted, or told to end, before its tree was complete".to_owned())))
        }
        Err(stop) => (true, Some(stop)),
    };
    behind.abort_all();
    if asked {
        unmount(place).await;
    }
    notifier.close().await;
    match failure {
        Some(stop) => {
            // The cache may be another's after that, or be removed. A step that takes longer is undone when it is opened again.
            let _ = tokio::time::timeout(LAST_STEP, engine.finish_step()).await;
            Err(stop)
        }
        None => {
            close(engine).await;
            Ok(())
        }
    }
}

async fn unmount(place: &Place) {
    let guard = Arc::clone(&place.guard);
    let result = tokio::task::spawn_blocking(move || guard.unmount());
    match tokio::time::timeout(Duration::from_secs(5), result).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(error, "the mount could not be taken away; umount -l does"),
        _ => tracing::warn!("the mount could not be taken away in time; umount -l does"),
    }
}

/// Brings everything to the disk.
async fn close(engine: &Engine) {
    match tokio::time::timeout(LAST_WORDS, engine.close()).await {
        Ok(Ok(())) => tracing::info!("unmounted"),
        Ok(Err(error)) => tracing::error!(%error, "the cache may be fetched again in part"),
        Err(_) => tracing::error!("the disk is slow; the cache may be fetched again in part"),
    }
}

fn mount(place: &Place, mirror: &Mirror, changes: mpsc::UnboundedReceiver<News>) -> Result<Mounted, String> {
    let (engine, MirrorConfig { options, directory, .. }) = (mirror.engine(), mirror.config());
    let view = View {
        uid: place.uid,
        gid: place.gid,
        umask: options.umask,
        visible: options.visible,
        generation: engine.generation().map_err(|error| error.to_string())?,
        always_plus: mirror.resources()?.saturating_mul(KNOWN_EACH) < memory() / KNOWN_PART,
    };
    let backing = place.root.then(|| Arc::clone(&place.guard) as Arc<dyn Backing>);
    let io = Arc::new(Io::new(options.io, backing, bounds::count(options.bounds.files)));
    let requests = Arc::<Requests>::default();
    let contents = mirror.contents(&io, &requests)?;
    // Each thread has a queue of its own, if whom we became may open the device. An answer of ours to OPEN has to go to the
    // queue that the request came from: where there are such, there is one queue.
    let one_queue = io.may_pass_through(engine.readers());
    let own_io = Arc::clone(&io);
    let filesystem = Filesystem::new(Arc::clone(engine.readers()), contents, view, io, requests);
    let kept = (filesystem.moments(), filesystem.collections());
    let mut config = SessionConfig::default();
    config.acl = if place.root || options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(4);
    config.clone_fd = !one_queue && std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    let (device, note) = place.guard.mount()?;
    let session = device.try_clone().and_then(|own| {
        own_io.set_device(own);
        Session::from_fd(filesystem, device, config.acl, config)
    });
    let end = session.and_then(|session| answer(session, kept, changes)).map_err(|error| {
        // Nobody would answer there. If it cannot be taken away, that is the lesser of two errors.
        let _ = place.guard.unmount();
        format!("{}: {error}", directory.display())
    })?;
    Ok(Mounted { end, note })
}

/// A mount that answers.
struct Mounted {
    /// Resolves when there is nothing to answer any more.
    end: oneshot::Receiver<std::io::Result<()>>,
    /// What is worth a warning of how it was mounted.
    note: Option<String>,
}

/// Answers the kernel, on threads of its own; they tell when there is nothing to answer any more.
fn answer(
    session: Session<Filesystem>,
    (moments, collections): (Arc<Moments>, Arc<Collections>),
    changes: mpsc::UnboundedReceiver<News>,
) -> std::io::Result<oneshot::Receiver<std::io::Result<()>>> {
    let device = session.as_fd().try_clone_to_owned()?;
    invalidate::start(session.notifier(), device, moments, collections, changes)?;
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new().name("session".to_owned()).spawn(move || {
        let _ = ended.send(session.run());
    })?;
    Ok(end)
}

/// Physical memory in bytes.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    pages.map_or(1 << 30, |kilobytes| kilobytes * 1024)
}

/// Syncs for the first time, and reports that the mount is ready.
async fn first_sync(mirror: &Mirror, tell: &Tell, found: Option<Discovery>, note: Option<String>) -> Done {
    let report = |progress: &crate::sync::Progress| tell(&Report::Progress(Syncing::of(progress.clone())));
    let first = mirror.first_sync(found, report).await;
    let FirstSync { had_tree, is_complete, result } = first.map_err(|error| Stop::new(exit::MOUNT_FAILED, error))?;
    let of_sync = match result {
        None if !had_tree => Some("the lists are still being read; `resourcesync status` shows how far".to_owned()),
        Some(Ok(summary)) if summary.partial || summary.held > 0 => Some(summary.to_string()),
        Some(Err(error)) => Some(format!("{error}; what is in the cache is served")),
        None | Some(Ok(_)) => None,
    };
    let resources = mirror.resources().unwrap_or(0);
    tell(&Report::Ready { complete: is_complete, resources, notes: note.into_iter().chain(of_sync).collect() });
    Ok(())
}

/// Waits until the mount is gone; returns true if a signal asks us to take it away.
async fn wait_for_end(end: oneshot::Receiver<std::io::Result<()>>) -> bool {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let asked = async {
        let mut waits: futures_util::stream::FuturesUnordered<_> =
            signals.iter_mut().map(|signal| signal.recv()).collect();
        futures_util::StreamExt::next(&mut waits).await
    };
    tokio::select! {
        result = end => {
            if let Ok(Err(error)) = result {
                tracing::error!(%error, "the FUSE session ended");
            }
            false
        }
        _ = asked => true,
    }
}
