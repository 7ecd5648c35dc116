//! `resourcesync log`: the versions of one resource, or what changed in a mount.

use std::path::Path;
use std::sync::Arc;

use tokio::net::unix::OwnedWriteHalf;

use super::messages::{Request, Response};
use super::{Done, Stop, control, exit, show};
use crate::bounds;
use crate::document::Datetime;
use crate::mirror::log::{ChangeEntry, LogEntry, SyncEntry, VersionEntry, entries};
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

/// Answers for the daemon.
pub(super) async fn tell(engine: &Arc<Engine>, path: &str, since: Option<&str>, to: &mut OwnedWriteHalf) -> Response {
    let since = since.and_then(|text| Datetime::parse(text).ok()).map(|(moment, _)| moment);
    let (sender, mut found) = tokio::sync::mpsc::channel(1);
    let work = entries(engine, path, since, sender);
    let pass_on = async {
        while let Some(entry) = found.recv().await {
            let response = match entry {
                LogEntry::Sync(sync) => Response::Sync(sync),
                LogEntry::Version(version) => Response::Version(version),
                LogEntry::Note(text) => Response::Note { text },
            };
            control::say(to, &response).await;
        }
    };
    match tokio::join!(work, pass_on).0 {
        Ok(()) => Response::Done { text: String::new() },
        Err(error) => Response::Failed { error },
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
