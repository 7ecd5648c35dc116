//! The versions of one resource, or what changed in a mirror, as `log` shows them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::catalog::{How, NameId, Pool, SyncRow, VersionLog, Whence};
use crate::document::Datetime;
use crate::sync::Engine;

/// An entry of a log.
#[derive(Debug)]
pub enum LogEntry {
    /// A sync that changed something.
    Sync(SyncEntry),
    /// A version of a resource.
    Version(VersionEntry),
    /// What the user should know.
    Note(String),
}

/// A sync, as `log` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncEntry {
    /// By the clock of this machine.
    pub time: String,
    /// What it came from.
    pub from: String,
    /// Resources that were created.
    pub added: u64,
    /// Resources that were updated.
    pub updated: u64,
    /// Resources that were deleted.
    pub deleted: u64,
    /// The newest first. A set's first sync does not have its own: they would be all resources.
    pub changes: Vec<ChangeEntry>,
}

/// A change, as `log` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeEntry {
    /// `created`, `updated` or `deleted`.
    pub change: String,
    /// In the mount.
    pub path: String,
    /// By the Source's clock.
    pub datetime: String,
}

/// A version, as `log` shows it.
#[derive(Debug, Serialize, Deserialize)]
pub struct VersionEntry {
    /// `created` or `updated`, if that is known.
    pub change: Option<String>,
    /// Whether only an archive tells of it.
    pub archived: bool,
    /// When it became current, by the clock of the Source.
    pub begin: String,
    /// None while it is in force.
    pub until: Option<String>,
    /// Whether it ended because its resource was deleted.
    pub deleted: bool,
    /// In bytes, if that is known.
    pub size: Option<u64>,
    /// The strongest digest that the Source lists.
    pub hash: Option<String>,
    /// Whether its content is in the cache.
    pub cached: bool,
    /// The name of its file below `.versions/PATH/`; none if it can be had nowhere.
    pub name: Option<String>,
    /// Where it can be had, the nearest first.
    #[serde(rename = "where")]
    pub places: Vec<PlaceEntry>,
    /// What describes it, and what it comes from, by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub describedby: Vec<String>,
    /// What it comes from, by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
}

/// Where a version can be had.
#[derive(Debug, Serialize, Deserialize)]
pub struct PlaceEntry {
    /// `cache`, `source`, `package`, `memento` or `patch`.
    pub kind: String,
    /// Where that is, of what has a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The most changes that are told of one sync.
const MOST_CHANGES: usize = 200_000;

/// Nobody may be left to receive it; then nothing is lost.
async fn send(to: &mpsc::Sender<LogEntry>, entry: LogEntry) {
    let _ = to.send(entry).await;
}

/// Finds the versions of the resource at a path of the mount, or what changed at or below it, since a time; sends each entry to
/// `to` when it is found.
///
/// # Errors
/// If nothing has, or had, that name; or if the catalog cannot be read.
pub async fn entries(
    engine: &Engine,
    path: &str,
    since: Option<Datetime>,
    to: mpsc::Sender<LogEntry>,
) -> Result<(), String> {
    let failed = |error: crate::catalog::CatalogError| error.to_string();
    let readers = Arc::clone(engine.readers());
    let (asked, path) = (path, in_tree(path));
    let mut found = readers.ask(|reader| reader.find_ever(path)).map_err(failed)?;
    if found.is_none()
        && path != asked
        && let Some((above, _)) = path.rsplit_once('/')
    {
        // The file of a version, or another spelling of its time.
        found = readers.ask(|reader| reader.find_ever(above)).map_err(failed)?;
    }
    let Some(name) = found else {
        return Err(format!("{path}: nothing of that name is, or was, in the mirror"));
    };
    let is_resource = !path.is_empty() && !readers.ask(|reader| reader.is_directory(name)).map_err(failed)?;
    if is_resource {
        let resource = readers.ask(|reader| reader.ever(name)).map_err(failed)?.resource;
        engine.history(resource, None).await;
        if let Some(trouble) = engine.asked(resource).trouble {
            let text = format!("the Source could not be asked for other versions: {trouble}");
            send(&to, LogEntry::Note(text)).await;
        }
        let reading = Arc::clone(&readers);
        let versions = tokio::task::spawn_blocking(move || reading.ask(|reader| reader.versions_of(resource)));
        let versions = versions.await.map_err(|error| error.to_string())?.map_err(failed)?;
        if !versions.is_empty() {
            for version in versions.into_iter().filter(|version| {
                // By the Source's clock: when it came, or went.
                since.is_none_or(|since| version.begin >= since || version.until.is_some_and(|until| until >= since))
            }) {
                send(&to, LogEntry::Version(version_entry(version))).await;
            }
            return Ok(());
        }
    }
    for sync in readers.ask(|reader| reader.syncs(since)).map_err(failed)? {
        if let Some(entry) = sync_entry(&readers, sync, name, path.is_empty()).await? {
            send(&to, LogEntry::Sync(entry)).await;
        }
    }
    Ok(())
}

/// What a sync changed at or below a name; none if that is nothing, but for the whole mirror (`is_root`).
async fn sync_entry(
    readers: &Arc<Pool>,
    sync: SyncRow,
    name: NameId,
    is_root: bool,
) -> Result<Option<SyncEntry>, String> {
    let reading = Arc::clone(readers);
    let id = sync.id;
    let changes = tokio::task::spawn_blocking(move || {
        let mut changes = Vec::new();
        reading.ask(|reader| {
            reader.changes_of(id, name, |change| {
                if changes.len() < MOST_CHANGES {
                    changes.push(ChangeEntry {
                        change: change.kind.name().to_owned(),
                        path: change.path,
                        datetime: change.moment.to_string(),
                    });
                }
            })
        })?;
        Ok(changes)
    });
    let changes = changes.await.map_err(|error| error.to_string())?;
    let changes = changes.map_err(|error: crate::catalog::CatalogError| error.to_string())?;
    if changes.is_empty() && !is_root {
        return Ok(None);
    }
    // Of a directory, what is told is what happened there.
    let count = |kind: &str| changes.iter().filter(|change| change.change == kind).count() as u64;
    let (added, updated, deleted) = match is_root {
        true => (sync.added, sync.updated, sync.deleted),
        false => (count("created"), count("updated"), count("deleted")),
    };
    Ok(Some(SyncEntry { time: sync.time.to_string(), from: sync.how, added, updated, deleted, changes }))
}

/// The path in the current tree of what lies in `.versions`, or in the tree as of a moment.
fn in_tree(path: &str) -> &str {
    let Some(rest) = path.strip_prefix(".versions").filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return path;
    };
    let rest = rest.trim_start_matches('/');
    let (first, below) = rest.split_once('/').unwrap_or((rest, ""));
    match first.strip_prefix('@').map(Datetime::parse_spelled) {
        Some(Ok(_)) => below,
        _ => rest,
    }
}

fn version_entry(version: VersionLog) -> VersionEntry {
    let cached = version.is_here();
    let place = |whence: &Whence| {
        let (kind, url) = match whence {
            Whence::Cache => ("cache", None),
            Whence::Source(url) => ("source", Some(url)),
            Whence::Package(url) => ("package", Some(url)),
            Whence::Memento(url) => ("memento", Some(url)),
            Whence::Patch => ("patch", None),
        };
        PlaceEntry { kind: kind.to_owned(), url: url.cloned() }
    };
    let linked = |relation: &str| {
        version.sources.iter().filter(|(own, _)| *own == relation).map(|(_, uri)| uri.clone()).collect()
    };
    VersionEntry {
        describedby: linked("describedby"),
        via: linked("via"),
        change: version.how.filter(|how| !how.is_archived()).map(|how| how.kind().name().to_owned()),
        archived: version.how.is_some_and(How::is_archived),
        begin: version.begin.to_string(),
        until: version.until.map(|until| until.to_string()),
        deleted: version.gone,
        size: version.size,
        hash: version.hashes.strongest().map(ToString::to_string),
        cached,
        name: (!version.places.is_empty()).then_some(version.name),
        places: version.places.iter().map(place).collect(),
    }
}
