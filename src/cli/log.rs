//! `resourcesync log`: the versions of one resource, or what changed in a mount.

use std::path::Path;
use std::sync::Arc;

use tokio::net::unix::OwnedWriteHalf;

use super::messages::{ChangeEntry, PlaceEntry, Request, Response, SyncEntry, VersionEntry};
use super::{Done, Stop, control, exit, show};
use crate::bounds;
use crate::catalog::{How, VersionLog, Whence};
use crate::document::Datetime;
use crate::printable::line;
use crate::sync::Engine;

pub(super) fn run(path: &Path, since: Option<&str>, json: bool) -> Done {
    let since = since.map(moment).transpose()?.map(|moment| moment.to_string());
    let (mounted, below) = control::place_once(path)?;
    let mut told = Told { json, entries: 0 };
    let asked = control::ask(&mounted.directory, &Request::Log { path: below, since }, |response| match response {
        Response::Sync(sync) => told.entry(sync, &sync_text(sync)),
        Response::Version(version) => told.entry(version, &version_text(version)),
        Response::Note { text } => show::err(format_args!("{}: {text}", show::error_word("resourcesync"))),
        _ => {}
    });
    // A list that was begun is ended in any case.
    if asked.is_ok() || told.entries > 0 {
        told.end();
    }
    asked.map(|_| ())
}

/// Prints entries as they come.
struct Told {
    json: bool,
    entries: u64,
}

impl Told {
    fn entry(&mut self, entry: &impl serde::Serialize, text: &str) {
        if self.json {
            let text = serde_json::to_string(entry).unwrap_or_default();
            show::json(&format!("{}{text}", if self.entries == 0 { "[" } else { ",\n " }));
        } else {
            show::print(text);
        }
        self.entries += 1;
    }

    fn end(&self) {
        match (self.json, self.entries) {
            (true, 0) => show::out("[]"),
            (true, _) => show::out("]"),
            (false, 0) => show::out("nothing is known to have changed"),
            (false, _) => {}
        }
    }
}

fn sync_text(sync: &SyncEntry) -> String {
    let counts = [(sync.added, "added"), (sync.updated, "updated"), (sync.deleted, "deleted")];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", show::count(*count)))
        .collect();
    let counts = if counts.is_empty() { vec!["versions put in their order".to_owned()] } else { counts };
    let mut text = format!(
        "{}  {}\n",
        show::bold(&show::moment(&sync.time)),
        format_args!("{}: {}", sync.from, counts.join(", "))
    );
    for change in &sync.changes {
        text.push_str(&format!("  {}", change_text(change)));
    }
    text
}

/// A change, on one line.
pub(super) fn change_text(change: &ChangeEntry) -> String {
    let (letter, colour) = match change.change.as_str() {
        "created" => ("A", "32"),
        "updated" => ("M", "33"),
        _ => ("D", "31"),
    };
    let (letter, moment) = (show::paint(colour, letter), show::moment(&change.datetime));
    format!("{letter}  {}  {}\n", line(&change.path), show::dim(&moment))
}

fn version_text(version: &VersionEntry) -> String {
    let how = if version.archived { "archived" } else { "listed" };
    let mut facts = vec![version.change.clone().unwrap_or_else(|| how.to_owned())];
    facts.push(version.size.map_or_else(|| "size not known".to_owned(), show::size));
    match (&version.until, version.deleted) {
        (None, _) => facts.push("in force".to_owned()),
        (Some(until), true) => facts.push(format!("deleted {}", show::moment(until))),
        (Some(_), false) if version.archived => {}
        (Some(until), false) => facts.push(format!("superseded {}", show::moment(until))),
    }
    facts.extend(version.hash.clone());
    let places: Vec<String> = version
        .places
        .iter()
        .map(|place| match &place.url {
            Some(url) if place.kind != "source" => format!("{} {}", place.kind, line(url)),
            _ => place.kind.clone(),
        })
        .collect();
    let whence = match &version.name {
        Some(name) => format!("{name}  {}", show::dim(&places.join(", "))),
        None => show::dim("can be had nowhere"),
    };
    let sources = [("described by", &version.describedby), ("via", &version.via)];
    let sources: String = sources
        .into_iter()
        .flat_map(|(what, uris)| {
            uris.iter().map(move |uri| format!("    {}\n", show::dim(&line(&format!("{what} {uri}")))))
        })
        .collect();
    format!("{}  {}\n    {whence}\n{sources}", show::bold(&show::moment(&version.begin)), facts.join(", "))
}

/// A W3C datetime, or so long ago: `90s`, `15m`, `2h`, `3d`, `1w`.
fn moment(text: &str) -> Result<Datetime, Stop> {
    if let Ok((moment, _)) = Datetime::parse(text) {
        return Ok(moment);
    }
    let span = text.trim().trim_end_matches("ago").trim_end();
    // A number alone is more likely a year than seconds.
    let span = bounds::duration(span).filter(|_| !span.ends_with(|c: char| c.is_ascii_digit()));
    let span = span.and_then(|span| i64::try_from(span.as_nanos()).ok());
    let moment = span.and_then(|span| Datetime::now().nanos().checked_sub(span));
    moment.map(Datetime::from_nanos).ok_or_else(|| {
        let error = format!("{text:?} is no time: give 2026-03-01, 2026-03-01T12:00:00Z, or 15m, 2h, 3d");
        Stop::new(exit::USAGE, error)
    })
}

/// The most changes that are told of one sync.
const MOST_CHANGES: usize = 200_000;

/// Answers for the daemon.
pub(super) async fn tell(engine: &Arc<Engine>, path: &str, since: Option<&str>, to: &mut OwnedWriteHalf) -> Response {
    match entries(engine, path, since, to).await {
        Ok(()) => Response::Done { text: String::new() },
        Err(error) => Response::Failed { error },
    }
}

async fn entries(engine: &Arc<Engine>, path: &str, since: Option<&str>, to: &mut OwnedWriteHalf) -> Result<(), String> {
    let failed = |error: crate::catalog::CatalogError| error.to_string();
    let since = since.and_then(|text| Datetime::parse(text).ok()).map(|(moment, _)| moment);
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
            control::say(to, &Response::Note { text }).await;
        }
        let reading = Arc::clone(&readers);
        let versions = tokio::task::spawn_blocking(move || reading.ask(|reader| reader.versions_of(resource)));
        let versions = versions.await.map_err(|error| error.to_string())?.map_err(failed)?;
        if !versions.is_empty() {
            for version in versions.into_iter().filter(|version| {
                // By the Source's clock: when it came, or went.
                since.is_none_or(|since| version.begin >= since || version.until.is_some_and(|until| until >= since))
            }) {
                control::say(to, &Response::Version(version_entry(version))).await;
            }
            return Ok(());
        }
    }
    for sync in readers.ask(|reader| reader.syncs(since)).map_err(failed)? {
        let reading = Arc::clone(&readers);
        let changes = tokio::task::spawn_blocking(move || {
            let mut changes = Vec::new();
            reading.ask(|reader| {
                reader.changes_of(sync.id, name, |change| {
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
        let changes = changes.await.map_err(|error| error.to_string())?.map_err(failed)?;
        if changes.is_empty() && !path.is_empty() {
            continue;
        }
        // Of a directory, what is told is what happened there.
        let count = |kind: &str| changes.iter().filter(|change| change.change == kind).count() as u64;
        let (added, updated, deleted) = match path.is_empty() {
            true => (sync.added, sync.updated, sync.deleted),
            false => (count("created"), count("updated"), count("deleted")),
        };
        let entry = SyncEntry { time: sync.time.to_string(), from: sync.how, added, updated, deleted, changes };
        control::say(to, &Response::Sync(entry)).await;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_datetime_or_so_long_ago() {
        for text in ["2026-03-01", "2026-03-01T12:00:00Z", "90s", "15m", "2h", "3d", "1w", "2 hours ago", "1 day"] {
            assert!(moment(text).is_ok(), "{text}");
        }
        for text in ["", "yesterday", "-", "h", "99999999999999999999d", "3x", "9223372036854775807w"] {
            assert!(moment(text).is_err(), "{text}");
        }
        let hour = moment("1h").unwrap_or_else(|stop| panic!("{}", stop.message)).nanos();
        assert!((Datetime::now().nanos() - hour - 3_600_000_000_000).abs() < 5_000_000_000);
    }
}
