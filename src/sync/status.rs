//! What the engine is doing, for whoever asks.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use crate::document::Datetime;

/// The errors that are kept for the status.
const MOST_ERRORS: usize = 50;

/// What the engine is doing. Shared; a lock is held only to copy.
#[derive(Debug, Default)]
pub struct Status(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    progress: Progress,
    errors: VecDeque<Trouble>,
    error_count: u64,
    warnings: VecDeque<String>,
    away: bool,
    began: Option<Instant>,
}

/// How far a sync, or fetching ahead, has come.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    /// What is being done: `idle`, `discovering`, `reading lists`, `applying`, `fetching content`.
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
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something went wrong: into the status and the log.
    pub fn error(&self, error: &str) {
        tracing::error!("{error}");
        self.with(|inner| {
            inner.error_count += 1;
            inner.errors.push_back(Trouble { time: Datetime::now().to_string(), error: error.to_owned() });
            if inner.errors.len() > MOST_ERRORS {
                inner.errors.pop_front();
            }
        });
    }

    /// Something was odd: into the status and the log.
    pub fn warning(&self, warning: &str) {
        tracing::warn!("{warning}");
        self.with(|inner| {
            if !inner.warnings.iter().any(|known| known == warning) {
                inner.warnings.push_back(warning.to_owned());
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
            let fetched_bytes = inner.progress.fetched_bytes;
            inner.progress = Progress { phase: "discovering", fetched_bytes, ..Progress::default() };
            inner.began = Some(Instant::now());
            inner.warnings.clear();
        });
    }

    pub(super) fn ended(&self, away: bool) {
        self.with(|inner| {
            inner.progress.phase = "idle";
            inner.began = None;
            inner.away = away;
        });
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.with(|inner| inner.progress.clone())
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

    /// The last errors, oldest first, and how many there were in all.
    #[must_use]
    pub fn errors(&self) -> (Vec<Trouble>, u64) {
        self.with(|inner| (inner.errors.iter().cloned().collect(), inner.error_count))
    }

    /// What was odd in the last sync.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.with(|inner| inner.warnings.iter().cloned().collect())
    }
}
