//! `resourcesync status`: what each mount of this machine is doing.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::{Done, Stop, control, mounts, show};
use crate::document::Datetime;
use crate::mirror::report::{ChannelReport, Report};
use crate::printable::line as line_of;

/// How long a mount may take to answer: a dead one must not keep the others from being shown.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `status` is called with.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A mount, or a path in one
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON: one object for DIR, else a list
    #[arg(long)]
    json: bool,
    /// Show it again every second
    #[arg(long)]
    watch: bool,
}

pub(super) fn run(arguments: &Arguments) -> Done {
    let Arguments { directory, json, watch } = arguments;
    loop {
        let text = once(directory.as_deref(), *json)?;
        if *watch && !*json {
            show::clear();
        }
        if *json {
            show::json(&text)
        } else {
            show::print(&text)
        }
        if !*watch {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn once(directory: Option<&Path>, json: bool) -> Result<String, Stop> {
    let directories: Vec<PathBuf> = match directory {
        Some(directory) => vec![control::place(directory)?.0.directory],
        None => mounts::ours().map_err(Stop::failed)?.into_iter().map(|mounted| mounted.directory).collect(),
    };
    let reports: Vec<(PathBuf, Result<Report, String>)> =
        directories.into_iter().map(|directory| (directory.clone(), read(&directory))).collect();
    if json {
        let values: Vec<serde_json::Value> = reports
            .into_iter()
            .map(|(directory, report)| match report {
                Ok(report) => serde_json::to_value(report).unwrap_or_default(),
                Err(error) => serde_json::json!({"directory": directory, "state": "dead", "error": error}),
            })
            .collect();
        let shown = match (directory, values.as_slice()) {
            (Some(_), [only]) => serde_json::to_string_pretty(only),
            _ => serde_json::to_string_pretty(&values),
        };
        return Ok(shown.unwrap_or_default() + "\n");
    }
    if reports.is_empty() {
        return Ok("no Source is mounted here; try: resourcesync demo\n".to_owned());
    }
    let mut text = String::new();
    for (directory, report) in &reports {
        match report {
            Ok(report) => person(&mut text, report),
            Err(error) => text.push_str(&format!(
                "{}  {}\n  {error}\n  its daemon is gone; mount it again, or: umount {}\n",
                show::bold(&directory.display().to_string()),
                show::state("dead"),
                directory.display()
            )),
        }
    }
    Ok(text)
}

/// Reads a mount's status, unless it does not answer.
fn read(directory: &Path) -> Result<Report, String> {
    let path = directory.join(".resourcesync/status.json");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(std::fs::read(path).map_err(|error| error.to_string())));
    let text = told.recv_timeout(PATIENCE).map_err(|_| format!("no answer for {} s", PATIENCE.as_secs()))??;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// The report of one mount for people.
fn person(text: &mut String, report: &Report) {
    text.push_str(&format!(
        "{}  {}\n",
        show::bold(&report.directory.display().to_string()),
        show::state(&report.state)
    ));
    for (name, value) in
        [tree_lines(report), download_lines(report), origin_lines(report), channel_lines(report), trouble_lines(report)]
            .concat()
    {
        text.push_str(&format!("  {} {}\n", show::dim(&format!("{name:<10}")), line_of(&value)));
        if let ("errors", Some(last)) = (name, report.errors.last()) {
            text.push_str(&format!("             {}\n", line_of(&last.error)));
        }
    }
}

/// Lines by their names.
type Lines = Vec<(&'static str, String)>;

/// What the tree has, and what is being done.
fn tree_lines(report: &Report) -> Lines {
    let cached = format!("{} cached ({})", show::count(report.cached.resources), show::size(report.cached.bytes));
    let mut lines =
        vec![("source", report.source.clone()), ("resources", format!("{}, {cached}", show::count(report.resources)))];
    for set in report.sets.iter().filter(|_| report.sets.len() > 1) {
        let resources = show::plural(set.resources, "resource", "resources");
        lines.push(("set", format!("{}: {resources}, {}", set.name, set.state)));
    }
    let left_out: u64 = report.sets.iter().map(|set| set.left_out).sum();
    if left_out > 0 {
        lines.push(("filter", format!("leaves out {}", show::plural(left_out, "resource", "resources"))));
    }
    let last = report.last_sync.as_deref().and_then(|time| Datetime::parse(time).ok());
    lines.push(("last sync", last.map_or_else(|| "never".to_owned(), |(time, _)| show::ago(time))));
    if report.activity != "idle" {
        lines.push(("now", activity(report)));
    }
    lines.push(("io", format!("{}: {}", report.io, report.io_why)));
    lines
}

/// What is being done, and how far it is.
fn activity(report: &Report) -> String {
    let progress = &report.progress;
    let mut shown = report.activity.clone();
    if report.activity == "fetching content" {
        shown.push_str(&format!(", {} of {} files", show::count(progress.fetched), show::count(progress.to_fetch)));
        if progress.failed > 0 {
            shown.push_str(&format!(", {} failed", show::count(progress.failed)));
        }
    } else if progress.documents_known > 0 {
        shown.push_str(&format!(", {} of {} documents", progress.documents, progress.documents_known));
        if progress.entries > 0 {
            shown.push_str(&format!(", {} entries", show::count(progress.entries)));
        }
    }
    shown
}

/// Packages of dumps.
fn download_lines(report: &Report) -> Lines {
    let (packages, progress, mut lines) = (&report.packages, &report.progress, Lines::new());
    if packages.known > 0 {
        let mut shown = format!(
            "{} here of {} ({}); {} of {} members verified",
            packages.whole,
            show::plural(packages.known, "package", "packages"),
            show::size(packages.bytes),
            show::count(packages.verified),
            show::count(packages.members)
        );
        if packages.damaged > 0 {
            shown.push_str(&format!(", {} damaged", show::count(packages.damaged)));
        }
        lines.push(("packages", shown));
    }
    if progress.package_bytes < progress.package_bytes_known && progress.bytes_per_second > 0 {
        let shown = format!(
            "{} {} of {}, {}/s, {} left",
            show::gauge(progress.package_bytes, progress.package_bytes_known),
            show::size(progress.package_bytes),
            show::size(progress.package_bytes_known),
            show::size(progress.bytes_per_second),
            progress.seconds_left.map_or_else(|| "?".to_owned(), show::duration)
        );
        lines.push(("download", shown));
    }
    lines
}

/// Where the tree and its history come from.
fn origin_lines(report: &Report) -> Lines {
    let mut lines = Lines::new();
    if let Some(archives) = &report.archives {
        let since = archives.since.as_deref().map(|since| format!(", back to {}", show::moment(since)));
        let mut shown = show::plural(archives.read, "document", "documents");
        for (count, what) in [(archives.left, "to be read"), (archives.failed, "failed")] {
            if count > 0 {
                shown.push_str(&format!(", {} {what}", show::count(count)));
            }
        }
        shown.push_str(&since.unwrap_or_default());
        lines.push(("archives", shown));
    }
    lines.push(("seed", format!("{}: {}", report.seed.from, report.seed.why)));
    for set in &report.sets {
        let Some(changes) = &set.changes else { continue };
        let whose = if report.sets.len() > 1 { format!("{}, ", set.name) } else { String::new() };
        let upto = set.cursor.as_deref().map(|cursor| format!(", up to {}", show::moment(cursor)));
        let upto = upto.unwrap_or_default();
        lines.push(("changes", format!("{whose}{}{upto}: {}", changes.from, changes.why)));
    }
    lines
}

fn channel_lines(report: &Report) -> Lines {
    let of_channel = |channel| ("channel", channel_text(channel, report.sets.len() > 1));
    let mut lines: Lines = report.channels.iter().map(of_channel).collect();
    if report.notifications.missed > 0 {
        let missed = show::plural(report.notifications.missed, "change was", "changes were");
        let shown = format!("{missed} found by polls, and not notified: is a channel dead that looks live?");
        lines.push(("missed", shown));
    }
    lines
}

/// Where the cache is, and what needs attention.
fn trouble_lines(report: &Report) -> Lines {
    let mut lines = vec![("cache", report.cache.display().to_string())];
    for set in &report.sets {
        let Some(held) = set.held_deletions else { continue };
        let held = show::plural(held, "deletion", "deletions");
        lines.push(("held", format!("{held} in {}, until another complete list agrees", set.name)));
    }
    if let Some(last) = report.errors.last() {
        lines.push(("errors", format!("{}, the last at {}:", show::count(report.error_count), last.time)));
    }
    if let Some(last) = report.warnings.last() {
        let more = report.warnings.len() - 1;
        let more = if more > 0 { format!(" (and {more} more in .resourcesync/status.json)") } else { String::new() };
        lines.push(("warning", format!("{last}{more}")));
    }
    lines
}

/// A channel of notifications, on one line.
fn channel_text(channel: &ChannelReport, several: bool) -> String {
    let mut shown = if several { format!("{}, ", channel.set) } else { String::new() };
    let transport = match channel.transport.as_str() {
        "websub" => "WebSub",
        "websocket" => "WebSocket",
        "callback" => "HTTP callback",
        "xmpp" => "XMPP",
        other => other,
    };
    shown.push_str(&format!("{} by {transport}: {}", channel.capability, show::state(&channel.state)));
    let time =
        |text: &Option<String>| text.as_deref().and_then(|text| Datetime::parse(text).ok()).map(|(time, _)| time);
    if let Some(since) = time(&channel.since).filter(|_| matches!(channel.state.as_str(), "failing" | "denied")) {
        shown.push_str(&format!(", since {}", show::ago(since)));
    }
    if channel.state == "live" {
        if let Some(until) = &channel.lease_until {
            shown.push_str(&format!(", lease until {}", show::moment(until)));
        }
        match time(&channel.last_notification) {
            None => shown.push_str(", nothing came yet"),
            Some(last) => {
                let count = show::plural(channel.received, "notification", "notifications");
                shown.push_str(&format!(", {count}, the last {}", show::ago(last)));
            }
        }
        match channel.lag_seconds {
            Some(lag) if lag < 120.0 => shown.push_str(&format!(", {lag} s behind")),
            Some(lag) => shown.push_str(&format!(", {} behind", show::duration(lag as u64))),
            None => {}
        }
    }
    if channel.gaps > 0 {
        shown.push_str(&format!(", {} closed by lists", show::plural(channel.gaps, "gap", "gaps")));
    }
    if channel.refused.all() > 0 {
        shown.push_str(&format!(", {} refused", show::count(channel.refused.all())));
    }
    if let Some(reason) = &channel.reason {
        shown.push_str(&format!(": {reason}"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_lines_that_a_person_reads() {
        let report = json!({
            "source": "https://source.example/", "directory": "/mnt/mirror", "cache": "/var/cache/resourcesync/x", "pid": 1,
            "version": "0.1.0", "state": "held", "activity": "reading lists", "resources": 1234, "last_sync": null,
            "lag": null, "content": "lazy", "io": "kernel", "io_why": "asked for", "error_count": 1,
            "sets": [{
                "name": "all", "capability_list": "https://source.example/capabilitylist.xml", "state": "held",
                "resources": 1234, "left_out": 2, "at": null, "cursor": "2026-03-01T08:00:10Z", "last_sync": null,
                "held_deletions": 700, "changes": { "from": "changelist", "why": "the only offer" },
            }],
            "cached": { "resources": 10, "bytes": 2048 },
            "progress": {
                "documents": 1, "documents_known": 3, "document_bytes": 9, "entries": 5000, "fetched": 0, "to_fetch": 0,
                "fetched_bytes": 0, "failed": 0, "packages": 0, "packages_known": 1, "package_bytes": 1_048_576,
                "package_bytes_known": 2_097_152, "bytes_per_second": 524_288, "seconds_left": 2,
            },
            "seed": { "from": "dump", "why": "as new as the list" },
            "packages": { "known": 2, "whole": 1, "bytes": 4096, "members": 20, "verified": 19, "damaged": 1 },
            "archives": { "read": 7, "failed": 0, "left": 0, "looked": null, "since": "2025-01-01T00:00:00Z" },
            "errors": [{ "time": "2026-03-01T08:00:00Z", "error": "fetching a.pdf: HTTP 403" }],
            "warnings": ["first", "second"],
        });
        let report: Report = serde_json::from_value(report).unwrap();
        let mut text = String::new();
        person(&mut text, &report);
        for part in [
            "1,234, 10 cached",
            "leaves out 2 resources",
            "reading lists, 1 of 3 documents, 5,000 entries",
            "1 here of 2 packages",
            "19 of 20 members verified, 1 damaged",
            "/s, 2 s left",
            "7 documents, back to 2025-01-01T00:00:00Z",
            "dump: as new as the list",
            "changelist, up to 2026-03-01T08:00:10Z: the only offer",
            "700 deletions in all, until another complete list agrees",
            "1, the last at 2026-03-01T08:00:00Z:",
            "fetching a.pdf: HTTP 403",
            "second (and 1 more in .resourcesync/status.json)",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
