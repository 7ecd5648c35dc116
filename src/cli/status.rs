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

fn person(text: &mut String, report: &Report) {
    let line = |text: &mut String, name: &str, value: &str| {
        text.push_str(&format!("  {} {}\n", show::dim(&format!("{name:<10}")), line_of(value)));
    };
    text.push_str(&format!(
        "{}  {}\n",
        show::bold(&report.directory.display().to_string()),
        show::state(&report.state)
    ));
    line(text, "source", &report.source);
    line(
        text,
        "resources",
        &format!(
            "{}, {} cached ({})",
            show::count(report.resources),
            show::count(report.cached.resources),
            show::size(report.cached.bytes)
        ),
    );
    if report.sets.len() > 1 {
        for set in &report.sets {
            line(
                text,
                "set",
                &format!("{}: {}, {}", set.name, show::plural(set.resources, "resource", "resources"), set.state),
            );
        }
    }
    let left_out: u64 = report.sets.iter().map(|set| set.left_out).sum();
    if left_out > 0 {
        line(text, "filter", &format!("leaves out {}", show::plural(left_out, "resource", "resources")));
    }
    let last = report.last_sync.as_deref().and_then(|time| Datetime::parse(time).ok());
    line(text, "last sync", &last.map_or_else(|| "never".to_owned(), |(time, _)| show::ago(time)));
    let progress = &report.progress;
    if report.activity != "idle" {
        let mut doing = report.activity.clone();
        if report.activity == "fetching content" {
            doing.push_str(&format!(", {} of {} files", show::count(progress.fetched), show::count(progress.to_fetch)));
            if progress.failed > 0 {
                doing.push_str(&format!(", {} failed", show::count(progress.failed)));
            }
        } else if progress.documents_known > 0 {
            doing.push_str(&format!(", {} of {} documents", progress.documents, progress.documents_known));
            if progress.entries > 0 {
                doing.push_str(&format!(", {} entries", show::count(progress.entries)));
            }
        }
        line(text, "now", &doing);
    }
    line(text, "io", &format!("{}: {}", report.io, report.io_why));
    let packages = &report.packages;
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
        line(text, "packages", &shown);
    }
    if progress.package_bytes < progress.package_bytes_known && progress.bytes_per_second > 0 {
        line(
            text,
            "download",
            &format!(
                "{} {} of {}, {}/s, {} left",
                show::gauge(progress.package_bytes, progress.package_bytes_known),
                show::size(progress.package_bytes),
                show::size(progress.package_bytes_known),
                show::size(progress.bytes_per_second),
                progress.seconds_left.map_or_else(|| "?".to_owned(), show::duration)
            ),
        );
    }
    if let Some(archives) = &report.archives {
        let since = archives.since.as_deref().map(|since| format!(", back to {}", show::moment(since)));
        let mut shown = show::plural(archives.read, "document", "documents");
        for (count, what) in [(archives.left, "to be read"), (archives.failed, "failed")] {
            if count > 0 {
                shown.push_str(&format!(", {} {what}", show::count(count)));
            }
        }
        shown.push_str(&since.unwrap_or_default());
        line(text, "archives", &shown);
    }
    line(text, "seed", &format!("{}: {}", report.seed.from, report.seed.why));
    for set in &report.sets {
        if let Some(changes) = &set.changes {
            let whose = if report.sets.len() > 1 { format!("{}, ", set.name) } else { String::new() };
            let upto = set.cursor.as_deref().map(|cursor| format!(", up to {}", show::moment(cursor)));
            let upto = upto.unwrap_or_default();
            line(text, "changes", &format!("{whose}{}{upto}: {}", changes.from, changes.why));
        }
    }
    for channel in &report.channels {
        line(text, "channel", &channel_text(channel, report.sets.len() > 1));
    }
    if report.notifications.missed > 0 {
        let missed = show::plural(report.notifications.missed, "change was", "changes were");
        line(text, "missed", &format!("{missed} found by polls, and not notified: is a channel dead that looks live?"));
    }
    line(text, "cache", &report.cache.display().to_string());
    for set in report.sets.iter().filter(|set| set.held_deletions.is_some()) {
        let held = set.held_deletions.unwrap_or_default();
        line(
            text,
            "held",
            &format!(
                "{} in {}, until another complete list agrees",
                show::plural(held, "deletion", "deletions"),
                set.name
            ),
        );
    }
    if let Some(last) = report.errors.last() {
        line(text, "errors", &format!("{}, the last at {}:", show::count(report.error_count), last.time));
        text.push_str(&format!("             {}\n", line_of(&last.error)));
    }
    if let Some(last) = report.warnings.last() {
        let more = report.warnings.len() - 1;
        let more = if more > 0 { format!(" (and {more} more in .resourcesync/status.json)") } else { String::new() };
        line(text, "warning", &format!("{last}{more}"));
    }
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
