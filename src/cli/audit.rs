//! `resourcesync audit`: the mirror beside what its Source lists.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::unix::OwnedWriteHalf;

use super::messages::{AuditReport, DifferenceEntry, FindingEntry, Request, Response, Syncing};
use super::{Done, Stop, control, exit, show};
use crate::printable::line;
use crate::sync::{Audit, AuditScope, Engine, Findings};

/// Findings of one kind that people are shown.
const MOST_SHOWN: usize = 20;

/// What `audit` is called with.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A mount, or a path in one
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Hash what is in the cache again, too
    #[arg(long)]
    content: bool,
    /// Repair what is found: re-read all lists, re-fetch damaged content; then compare again
    #[arg(long)]
    repair: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Done {
    let Arguments { directory, content, repair, json } = arguments;
    let (mounted, _) = control::place(directory)?;
    let bar = show::bar("{bar:30} {pos}/{len} documents, {msg}");
    let mut report = None;
    let request = Request::Audit { content: *content, repair: *repair };
    let said = control::ask(&mounted.directory, &request, |response| match response {
        Response::Syncing(progress) => show::progress(&bar, progress),
        Response::Audited(found) => report = Some(found.clone()),
        _ => {}
    });
    bar.finish_and_clear();
    said?;
    let report = report.ok_or_else(|| Stop::failed("the daemon did not say what it found"))?;
    let said = match json {
        true => serde_json::to_string_pretty(&report).unwrap_or_default() + "\n",
        false => text(&mounted.directory, &report, *repair),
    };
    let mut out = show::Output::stdout(*json);
    match out.write_all(said.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads us may have seen enough; the exit status is what was found all the same.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(Stop::failed(error)),
        _ => {}
    }
    match report.in_sync {
        true => Ok(()),
        false => Err(Stop::new(exit::FAILED, "")),
    }
}

/// A report for people.
fn text(directory: &Path, report: &AuditReport, repaired: bool) -> String {
    let mut text = format!("{}: {}\n", show::bold(&directory.display().to_string()), summary(report));
    let counts = &report.counts;
    let kinds = [
        (&report.missing, "missing", counts.missing),
        (&report.extra, "extra", counts.extra),
        (&report.stale, "stale", counts.stale),
        (&report.corrupt, "corrupt", counts.corrupt),
    ];
    for (findings, word, count) in kinds {
        for finding in findings.iter().take(MOST_SHOWN) {
            text.push_str(&format!("  {} {}\n", show::paint("33", &format!("{word:<8}")), line(&explain(finding))));
        }
        if count > MOST_SHOWN as u64 && !findings.is_empty() {
            text.push_str(&format!("  and {} more {word}\n", show::count(count - MOST_SHOWN as u64)));
        }
    }
    for unread in report.unread.iter().take(MOST_SHOWN) {
        text.push_str(&format!("  {} {}\n", show::paint("31", "unread  "), line(unread)));
    }
    for damage in &report.cache {
        text.push_str(&format!("  {} {damage}\n", show::paint("31", "damaged ")));
    }
    if let Some(why) = &report.not_compared {
        text.push_str(&format!("  not compared with what the Source lists: {why}\n"));
    }
    text + &next_step(directory, report, repaired)
}

/// What was found, on one line.
fn summary(report: &AuditReport) -> String {
    let counts = &report.counts;
    let mut text = if report.in_sync && report.not_compared.is_some() {
        show::paint("32", "the cache is sound")
    } else if report.in_sync {
        let listed = show::plural(report.listed, "resource", "resources");
        format!("{}, {listed} as listed", show::paint("32", "in sync"))
    } else {
        let found = [
            (counts.missing, "missing"),
            (counts.extra, "extra"),
            (counts.stale, "stale"),
            (counts.corrupt, "corrupt"),
        ];
        let found: Vec<String> = found
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{} {word}", show::count(*count)))
            .chain((!report.cache.is_empty()).then(|| "the cache is damaged".to_owned()))
            .chain((!report.unread.is_empty()).then(|| "not all could be read".to_owned()))
            .collect();
        let listed = show::count(report.listed);
        format!("{}: {}; {listed} listed", show::paint("33", "not in sync"), found.join(", "))
    };
    if report.newer > 0 {
        text.push_str(&format!(", {} changed since", show::count(report.newer)));
    }
    if report.checked_files > 0 {
        let files = show::plural(report.checked_files, "file", "files");
        text.push_str(&format!("; {files} of content ({}) hashed again", show::size(report.checked_bytes)));
    }
    text
}

/// Where something is, and what is wrong with it.
fn explain(finding: &FindingEntry) -> String {
    let differences = finding.differences.iter();
    let why: Vec<String> = differences
        .map(|one| format!("{} is {} here, and listed as {}", one.what, one.here, one.listed))
        .chain(finding.problem.clone())
        .collect();
    let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
    format!("{}{why}", finding.path)
}

/// What a user can do about it.
fn next_step(directory: &Path, report: &AuditReport, repaired: bool) -> String {
    let directory = directory.display();
    let mut text = String::new();
    if !report.cache.is_empty() {
        text.push_str("unmount it, remove its cache, and mount it again: all is fetched anew\n");
    }
    if report.counts.extra > 0 && repaired {
        text.push_str(&format!(
            "what a list leaves out stays while it is more than half; to let it go: resourcesync refresh --accept-deletions {directory}\n"
        ));
    }
    if !report.in_sync && report.cache.is_empty() && !repaired {
        let content = if report.counts.corrupt > 0 { "--content " } else { "" };
        text.push_str(&format!("to repair it: resourcesync audit {content}--repair {directory}\n"));
    }
    text
}

/// Answers for the daemon.
pub(super) async fn tell(engine: &Arc<Engine>, scope: AuditScope, to: &mut OwnedWriteHalf) -> Response {
    let own = Arc::clone(engine);
    let mut work = tokio::spawn(async move { own.audit(scope).await });
    let mut tick = tokio::time::interval(control::TICK);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = tick.tick() => control::say(to, &Response::Syncing(Syncing::of(engine.status().progress()))).await,
        }
    };
    match result {
        Ok(Ok(audit)) => {
            control::say(to, &Response::Audited(Box::new(report(audit)))).await;
            Response::Done { text: String::new() }
        }
        Ok(Err(error)) => Response::Failed { error: error.to_string() },
        Err(error) => Response::Failed { error: error.to_string() },
    }
}

fn report(audit: Audit) -> AuditReport {
    let entries = |findings: Findings| -> Vec<FindingEntry> {
        let entry = |finding: crate::sync::Finding| FindingEntry {
            path: finding.path,
            uri: finding.uri,
            differences: finding
                .differences
                .into_iter()
                .map(|one| DifferenceEntry { what: one.what.to_owned(), here: one.here, listed: one.listed })
                .collect(),
            problem: finding.problem,
        };
        findings.first.into_iter().map(entry).collect()
    };
    AuditReport {
        in_sync: audit.in_sync(),
        listed: audit.listed,
        newer: audit.newer,
        counts: super::messages::Counts {
            missing: audit.missing.count,
            extra: audit.extra.count,
            stale: audit.stale.count,
            corrupt: audit.corrupt.count,
        },
        checked_files: audit.checked.0,
        checked_bytes: audit.checked.1,
        missing: entries(audit.missing),
        extra: entries(audit.extra),
        stale: entries(audit.stale),
        corrupt: entries(audit.corrupt),
        unread: audit.unread,
        cache: audit.cache,
        not_compared: audit.not_compared,
    }
}
