//! The daemon's end of the control socket: it answers processes of its own user and of root, as the kernel reports them,
//! whatever the permissions of the directory.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _};
use tokio::net::{UnixListener, unix::OwnedWriteHalf};

use super::control::{SOCKET, TICK, say, short};
use super::messages::{Request, Response, Syncing};
use super::{audit, log};
use crate::catalog::{Ever, Wish};
use crate::sync::{AuditScope, Engine, Trigger, Wanted};
use crate::{mirror, options};

/// The longest request in bytes.
const MOST_REQUEST: u64 = 64 << 10;

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

async fn answer(engine: &Arc<Engine>, line: &str, mut to: OwnedWriteHalf) {
    let response = match serde_json::from_str(line) {
        Err(error) => Response::Failed { error: format!("a request that is not understood: {error}") },
        Ok(Request::Refresh { accept_deletions }) => refresh(engine, accept_deletions, &mut to).await,
        Ok(Request::Audit { content, repair }) => audit::tell(engine, AuditScope { content, repair }, &mut to).await,
        Ok(Request::Log { path, since }) => log::tell(engine, &path, since.as_deref(), &mut to).await,
        Ok(Request::Fetch { path, pin }) => fetch(engine, &path, pin, &mut to).await,
        Ok(Request::Remount { options, sloppy }) => match options::Options::parse(&options, sloppy) {
            Ok(parsed) => remount(engine, &parsed).await,
            Err(error) => Response::Failed { error },
        },
    };
    say(&mut to, &response).await;
}

async fn refresh(engine: &Arc<Engine>, accept_deletions: bool, to: &mut OwnedWriteHalf) -> Response {
    // A task of its own: whoever asked may go, and the sync goes on.
    let own = Arc::clone(engine);
    let mut work = tokio::spawn(async move { own.sync(Trigger::Refresh { accept_deletions }).await });
    let mut tick = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = tick.tick() => say(to, &Response::Syncing(Syncing::of(engine.status().progress()))).await,
        }
    };
    match result {
        Ok(Ok(summary)) => Response::Done { text: mirror::describe(engine, &summary) },
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
        .filter(|name| options::Definition::find(name).is_some())
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
