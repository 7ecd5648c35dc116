//! The socket in the cache directory by which commands ask a daemon. The daemon answers processes of its own user and of root,
//! as the kernel reports them, whatever the permissions of the directory.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, unix::OwnedWriteHalf};

use super::messages::{Progress, Request, Response};
use super::{Stop, audit, log, mounts, options, report, show};
use crate::catalog::{Ever, SetState, Wish};
use crate::printable;
use crate::sync::{Engine, Trigger, Wanted};

const SOCKET: &str = "control";
/// The longest request in bytes.
const MOST_REQUEST: u64 = 64 << 10;

/// A path to the socket that is short whatever the directory's is: socket addresses hold 108 bytes.
fn short(directory: &std::fs::File) -> String {
    format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())
}

/// Begins to answer commands.
///
/// # Errors
/// If the socket cannot be made.
pub(super) fn serve(cache: &Path, engine: Arc<Engine>) -> std::io::Result<()> {
    let directory = std::fs::File::open(cache)?;
    match std::fs::remove_file(cache.join(SOCKET)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(short(&directory))?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) if !is_allowed(&stream) => drop(stream),
                Ok((stream, _)) => {
                    let engine = Arc::clone(&engine);
                    tokio::spawn(async move {
                        let (from, to) = stream.into_split();
                        let mut line = String::new();
                        let mut from = tokio::io::BufReader::new(from.take(MOST_REQUEST));
                        if from.read_line(&mut line).await.is_ok() {
                            answer(&engine, &line, to).await;
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the control socket");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        }
    });
    Ok(())
}

/// Whether a process of this user may give orders.
fn is_allowed(stream: &tokio::net::UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw())
}

pub(super) async fn say(to: &mut OwnedWriteHalf, response: &Response) {
    let safe = match response {
        Response::Note { text } => Some(Response::Note { text: printable::redacted(text).into_owned() }),
        Response::Done { text } => Some(Response::Done { text: printable::redacted(text).into_owned() }),
        Response::Failed { error } => Some(Response::Failed { error: printable::redacted(error).into_owned() }),
        _ => None,
    };
    let line = serde_json::to_string(safe.as_ref().unwrap_or(response)).unwrap_or_default();
    // Whoever asked may be gone; the work is done all the same.
    let _ = to.write_all(format!("{}\n", printable::json(&line)).as_bytes()).await;
}

async fn answer(engine: &Arc<Engine>, line: &str, mut to: OwnedWriteHalf) {
    let response = match serde_json::from_str(line) {
        Err(error) => Response::Failed { error: format!("a request that is not understood: {error}") },
        Ok(Request::Refresh { accept_deletions }) => refresh(engine, accept_deletions, &mut to).await,
        Ok(Request::Audit { content, repair }) => audit::tell(engine, content, repair, &mut to).await,
        Ok(Request::Log { path, since }) => log::tell(engine, &path, since.as_deref(), &mut to).await,
        Ok(Request::Fetch { path, pin }) => fetch(engine, &path, pin, &mut to).await,
        Ok(Request::Remount { options, sloppy }) => match options::Options::parse(&options, sloppy) {
            Ok(parsed) => remount(engine, &parsed).await,
            Err(error) => Response::Failed { error },
        },
    };
    say(&mut to, &response).await;
}

/// What a sync came to, for people.
pub(super) fn summary_text(summary: &crate::sync::Summary) -> String {
    let mut parts = Vec::new();
    for (number, word) in [(summary.added, "added"), (summary.updated, "updated"), (summary.deleted, "deleted")] {
        if number > 0 {
            parts.push(format!("{} {word}", show::count(number)));
        }
    }
    if parts.is_empty() && !summary.partial {
        parts.push("nothing changed".to_owned());
    }
    if summary.held > 0 {
        parts.push(format!("{} deletions held back until another list agrees", show::count(summary.held)));
    }
    if summary.partial {
        parts.push("some documents could not be read whole; see `resourcesync status`".to_owned());
    }
    parts.join(", ")
}

/// How often progress is told.
pub(super) const TICK: std::time::Duration = std::time::Duration::from_millis(100);

async fn refresh(engine: &Arc<Engine>, accept_deletions: bool, to: &mut OwnedWriteHalf) -> Response {
    // A task of its own: whoever asked may go, and the sync goes on.
    let own = Arc::clone(engine);
    let mut work = tokio::spawn(async move { own.sync(Trigger::Refresh { accept_deletions }).await });
    let mut tick = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = tick.tick() => say(to, &Response::Syncing(Progress::of(engine))).await,
        }
    };
    match result {
        Ok(Ok(summary)) => {
            let mut text = summary_text(&summary);
            let sets = engine.sets().unwrap_or_default();
            if let Some(set) = sets.iter().find(|set| set.state == SetState::Gap) {
                text.push_str(&format!("; the state is {}, see `resourcesync status`", set.state.name()));
            }
            Response::Done { text }
        }
        Ok(Err(error)) => Response::Failed { error: error.to_string() },
        Err(error) => Response::Failed { error: error.to_string() },
    }
}

/// What a path means to `fetch`, and how many files that are.
async fn wanted(engine: &Arc<Engine>, path: &str) -> Result<(Wanted, u64), String> {
    let readers = engine.readers();
    let failed = |error: crate::catalog::CatalogError| error.to_string();
    let Some(below) = path.strip_prefix(".versions").filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        let name = readers.ask(|reader| reader.find(path)).map_err(failed)?;
        let name = name.ok_or_else(|| format!("{path}: there is no such resource or directory in the mirror"))?;
        return Ok((Wanted::Below(name), readers.ask(|reader| reader.count_below(name)).map_err(failed)?));
    };
    let name = readers.ask(|reader| reader.find_ever(below)).map_err(failed)?;
    let name = name.ok_or_else(|| format!("{path}: of .versions, give the directory of a resource's versions"))?;
    let Ever { is_directory, resource, .. } = readers.ask(|reader| reader.ever(name)).map_err(failed)?;
    if is_directory {
        return Err(format!(
            "{path}: versions are fetched of one resource at a time; give the directory of its versions"
        ));
    }
    engine.history(resource, None).await;
    let versions = readers.ask(|reader| reader.versions_of(resource)).map_err(failed)?;
    let to_be_had = versions.iter().filter(|version| !version.places.is_empty()).count();
    Ok((Wanted::Versions(resource), to_be_had as u64))
}

async fn fetch(engine: &Arc<Engine>, path: &str, pin: bool, to: &mut OwnedWriteHalf) -> Response {
    let (wanted, total) = match wanted(engine, path).await {
        Ok(found) => found,
        Err(error) => return Response::Failed { error },
    };
    let (tell, mut told) = tokio::sync::watch::channel((0, 0, 0));
    let tell = move |files, bytes, failed| {
        tell.send_replace((files, bytes, failed));
    };
    let work = engine.fetch(wanted, pin, tell);
    tokio::pin!(work);
    let mut tick = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = tick.tick() => {
                let (files, bytes, failed) = *told.borrow_and_update();
                say(to, &Response::Fetched { files, bytes, failed, total }).await;
            }
        }
    };
    let (files, bytes, failed) = *told.borrow();
    say(to, &Response::Fetched { files, bytes, failed, total }).await;
    match result {
        Ok(()) => Response::Done { text: String::new() },
        Err(error) => Response::Failed { error: error.to_string() },
    }
}

/// What can be changed while mounted.
const CHANGEABLE: [&str; 4] = ["timeout", "connections", "rate", "poll"];
/// And of what is shown.
const FILTERS: [&str; 5] = ["include", "exclude", "type", "collection", "newer"];

async fn remount(engine: &Arc<Engine>, parsed: &options::Options) -> Response {
    let changeable: Vec<&str> = CHANGEABLE.into_iter().chain(FILTERS).collect();
    let fixed: Vec<&str> = parsed
        .given
        .iter()
        .map(String::as_str)
        .filter(|name| {
            name.starts_with("limit_")
                || options::DEFINITIONS.iter().any(|one| one.usage.split('=').next() == Some(name))
        })
        .filter(|name| !changeable.contains(name) && !matches!(*name, "remount" | "ro"))
        .collect();
    let mut changed: Vec<&str> =
        parsed.given.iter().map(String::as_str).filter(|name| changeable.contains(name)).collect();
    changed.dedup();
    engine.adjust(&crate::sync::Adjustment {
        timeout: changed.contains(&"timeout").then_some(parsed.timeout),
        connections: changed.contains(&"connections").then_some(parsed.connections),
        rate: changed.contains(&"rate").then_some(parsed.rate),
        poll: changed.contains(&"poll").then_some(parsed.poll),
    });
    if changed.iter().any(|name| FILTERS.contains(name)) {
        // What is not named stays as it is.
        let asked = parsed.filter.clone();
        let given = FILTERS.map(|name| changed.contains(&name));
        let wish = move |before: Wish| Wish {
            include: if given[0] { asked.include } else { before.include },
            exclude: if given[1] { asked.exclude } else { before.exclude },
            types: if given[2] { asked.types } else { before.types },
            collections: if given[3] { asked.collections } else { before.collections },
            newer: if given[4] { asked.newer } else { before.newer },
        };
        if let Err(error) = engine.show(wish).await {
            return Response::Failed { error: error.to_string() };
        }
    }
    let mut text = match changed.as_slice() {
        [] => "nothing to change".to_owned(),
        names => format!("changed {}", names.join(", ")),
    };
    if !fixed.is_empty() {
        text.push_str(&format!("; {} cannot be changed while mounted: unmount, and mount anew", fixed.join(", ")));
    }
    Response::Done { text }
}

/// Asks the daemon of the mount at `directory`, and hands each of its answers on until the last one.
pub(super) fn ask(directory: &Path, request: &Request, mut hear: impl FnMut(&Response)) -> Result<String, Stop> {
    let status = directory.join(".resourcesync/status.json");
    let text = std::fs::read(&status).map_err(|error| Stop::failed(format_args!("{}: {error}", status.display())))?;
    let report: report::Report = serde_json::from_slice(&text)
        .map_err(|error| Stop::failed(format_args!("{}: {error}; is it of another version?", status.display())))?;
    let reach = |error: std::io::Error| {
        let cache = report.cache.display();
        Stop::failed(format_args!(
            "cannot reach the daemon through its cache {cache}: {error}; only who mounted it may"
        ))
    };
    let cache = std::fs::File::open(&report.cache).map_err(reach)?;
    let mut stream = UnixStream::connect(short(&cache)).map_err(reach)?;
    let mut line = serde_json::to_vec(request).map_err(Stop::failed)?;
    line.push(b'\n');
    stream.write_all(&line).map_err(reach)?;
    for line in BufReader::new(stream).lines() {
        let response: Response = serde_json::from_str(&line.map_err(reach)?).map_err(Stop::failed)?;
        match response {
            Response::Done { text } => return Ok(text),
            Response::Failed { error } => return Err(Stop::failed(error)),
            response => hear(&response),
        }
    }
    Err(Stop::failed("the daemon ended before it was done; its log says why"))
}

/// The mount in which a path lies, and the path below it.
pub(super) fn place(path: &Path) -> Result<(mounts::Mounted, String), Stop> {
    let absolute = path.canonicalize().map_err(|error| Stop::failed(format_args!("{}: {error}", path.display())))?;
    place_of(path, &absolute)
}

/// The mount in which a path lies, or lay: it may be gone.
pub(super) fn place_once(path: &Path) -> Result<(mounts::Mounted, String), Stop> {
    let failed = |error: std::io::Error| Stop::failed(format_args!("{}: {error}", path.display()));
    let absolute = std::path::absolute(path).map_err(failed)?;
    let known = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = known else { return place(path) };
    let rest = absolute.strip_prefix(above).unwrap_or(Path::new(""));
    place_of(path, &real.join(rest))
}

fn place_of(path: &Path, absolute: &Path) -> Result<(mounts::Mounted, String), Stop> {
    let mounted = mounts::containing(absolute).map_err(Stop::failed)?.ok_or_else(|| {
        Stop::failed(format_args!(
            "{} does not lie in a resourcesync mount; `resourcesync status` lists them",
            path.display()
        ))
    })?;
    let below = absolute.strip_prefix(&mounted.directory).unwrap_or(absolute).to_string_lossy().into_owned();
    Ok((mounted, below))
}
