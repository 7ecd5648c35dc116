//! What the engine is doing, for whoever asks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::document::Datetime;
use crate::printable;

/// The errors that are kept for the status.
const MOST_ERRORS: usize = 50;
/// The most characters of each that are kept: a URI of the greatest length that is taken, and the rest of a message.
const MOST_CHARACTERS: usize = 2000;

/// What the engine is doing. Shared; a lock is held only to copy.
#[derive(Debug, Default)]
pub struct Status(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    progress: Progress,
    errors: VecDeque<Trouble>,
    error_count: u64,
    warnings: VecDeque<String>,
    /// Those of the sync before the one that is under way: what they were about may not be read anew.
    before: VecDeque<String>,
    away: bool,
    /// Why the last sync failed, if it did.
    failure: Option<String>,
    synced: Option<Datetime>,
    began: Option<Instant>,
    rate: Rate,
    archives: Archives,
}

/// How far the reading of archives has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Archives {
    /// Documents that are still to be read.
    pub left: u64,
    /// When all that archives have was read, or found to be known.
    pub looked: Option<Datetime>,
}

impl Inner {
    /// What was odd before is said no more if documents were read anew.
    fn settle_warnings(&mut self) {
        let before = std::mem::take(&mut self.before);
        if self.progress.document_bytes == 0 {
            let new: Vec<String> = self.warnings.drain(..).filter(|warning| !before.contains(warning)).collect();
            self.warnings = before;
            self.warnings.extend(new);
            let more = self.warnings.len().saturating_sub(MOST_ERRORS);
            self.warnings.drain(..more);
        }
    }
}

/// How fast packages come.
#[derive(Debug, Default)]
struct Rate {
    /// Moments, and how much had come by then, the oldest first.
    marks: VecDeque<(Instant, u64)>,
}

/// How far back the rate looks.
const RATE_OVER: Duration = Duration::from_secs(10);
/// How far its marks are apart.
const RATE_STEP: Duration = Duration::from_millis(250);

impl Rate {
    fn add(&mut self, total: u64) {
        let now = Instant::now();
        if self.marks.back().is_none_or(|(last, _)| now.duration_since(*last) >= RATE_STEP) {
            self.marks.push_back((now, total));
        }
        while self.marks.front().is_some_and(|(first, _)| now.duration_since(*first) > RATE_OVER) {
            self.marks.pop_front();
        }
    }

    /// Bytes a second; 0 if nothing came lately.
    fn per_second(&self, total: u64) -> u64 {
        match (self.marks.front(), self.marks.back()) {
            (Some((first, before)), Some((last, _))) if last.elapsed() < RATE_OVER / 2 => {
                let seconds = first.elapsed().as_secs_f64().max(0.05);
                (total.saturating_sub(*before) as f64 / seconds) as u64
            }
            _ => 0,
        }
    }
}

/// How far a sync, or fetching ahead, has come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// What is being done: `idle`, `discovering`, `reading lists`, `reading packages`, `applying`, `fetching
    /// packages`, `verifying`, `fetching content`, `comparing`, `checking content`.
    #[serde(skip)]
    pub phase: &'static str,
    /// Documents read.
    pub documents: u64,
    /// Documents known so far.
    pub documents_known: u64,
    /// Bytes of documents.
    pub document_bytes: u64,
    /// Entries applied.
    pub entries: u64,
    /// Resources fetched ahead.
    pub fetched: u64,
    /// Resources to fetch ahead.
    pub to_fetch: u64,
    /// Bytes fetched, ahead or because somebody read them.
    pub fetched_bytes: u64,
    /// Resources that could not be fetched ahead in this pass.
    pub failed: u64,
    /// Packages whose directory and manifest were read.
    pub packages: u64,
    /// Packages known so far.
    pub packages_known: u64,
    /// Bytes of packages that came since the sync began.
    pub package_bytes: u64,
    /// Bytes of packages that are to come, those that came counted.
    pub package_bytes_known: u64,
    /// Bytes of packages that came a second, over the last few seconds; 0 where none come.
    pub bytes_per_second: u64,
    /// Seconds until all packages are here, at that rate.
    pub seconds_left: Option<u64>,
    /// Members that were looked at by the background's pass since the sync began.
    #[serde(skip)]
    pub verified: u64,
}

/// Something that went wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Trouble {
    /// When.
    pub time: String,
    /// What, where, and what to do.
    pub error: String,
}

impl Status {
    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.0.lock())
    }

    /// Something went wrong: into the status and the log.
    pub fn error(&self, error: &str) {
        tracing::error!("{error}");
        let error = printable::short_line(error, MOST_CHARACTERS);
        self.with(|inner| {
            inner.error_count += 1;
            inner.errors.push_back(Trouble { time: Datetime::now().to_string(), error });
            if inner.errors.len() > MOST_ERRORS {
                inner.errors.pop_front();
            }
        });
    }

    /// Something was odd: into the status and the log.
    pub fn warning(&self, warning: &str) {
        tracing::warn!("{warning}");
        let warning = printable::short_line(warning, MOST_CHARACTERS);
        self.with(|inner| {
            if !inner.warnings.contains(&warning) {
                inner.warnings.push_back(warning);
                if inner.warnings.len() > MOST_ERRORS {
                    inner.warnings.pop_front();
                }
            }
        });
    }

    pub(super) fn phase(&self, phase: &'static str) {
        self.with(|inner| inner.progress.phase = phase);
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Progress)) {
        self.with(|inner| change(&mut inner.progress));
    }

    pub(super) fn began(&self) {
        self.with(|inner| {
            // What goes on behind goes on.
            let Progress { fetched_bytes, package_bytes, package_bytes_known, verified, .. } = inner.progress;
            inner.progress = Progress {
                phase: "discovering",
                fetched_bytes,
                package_bytes,
                package_bytes_known,
                verified,
                ..Progress::default()
            };
            inner.began = Some(Instant::now());
            let last = std::mem::take(&mut inner.warnings);
            inner.before.extend(last);
        });
    }

    /// A sync has ended, with this failure if it did not succeed.
    pub(super) fn ended(&self, failure: Option<String>, away: bool) {
        self.with(|inner| {
            inner.settle_warnings();
            if failure.is_none() {
                inner.synced = Some(Datetime::now());
            }
            inner.failure = failure.map(|failure| printable::short_line(&failure, MOST_CHARACTERS));
            inner.progress.phase = "idle";
            inner.began = None;
            inner.away = away;
        });
    }

    /// Bytes of a package came.
    pub(super) fn came(&self, bytes: u64) {
        self.with(|inner| {
            inner.progress.package_bytes += bytes;
            inner.rate.add(inner.progress.package_bytes);
        });
    }

    /// How far the reading of archives has come.
    #[must_use]
    pub fn archives(&self) -> Archives {
        self.with(|inner| inner.archives)
    }

    pub(super) fn read_archives(&self, change: impl FnOnce(&mut Archives)) {
        self.with(|inner| change(&mut inner.archives));
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.with(|inner| {
            let mut progress = inner.progress.clone();
            let left = progress.package_bytes_known.saturating_sub(progress.package_bytes);
            if left > 0 {
                progress.bytes_per_second = inner.rate.per_second(progress.package_bytes);
                progress.seconds_left = left.checked_div(progress.bytes_per_second);
            }
            progress
        })
    }

    /// Whether a sync is under way.
    #[must_use]
    pub fn syncing(&self) -> bool {
        self.with(|inner| inner.began.is_some())
    }

    /// Whether the Source could not be reached by the last sync.
    #[must_use]
    pub fn away(&self) -> bool {
        self.with(|inner| inner.away)
    }

    /// Why the last sync failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.with(|inner| inner.failure.clone())
    }

    /// When the last sync that went well ended, if one has since the mount.
    #[must_use]
    pub fn synced(&self) -> Option<Datetime> {
        self.with(|inner| inner.synced)
    }

    /// The last errors, oldest first, and how many there were in all.
    #[must_use]
    pub fn errors(&self) -> (Vec<Trouble>, u64) {
        self.with(|inner| (inner.errors.iter().cloned().collect(), inner.error_count))
    }

    /// What was odd in the last sync that read documents, and since.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.with(|inner| inner.before.iter().chain(&inner.warnings).cloned().collect())
    }
}
