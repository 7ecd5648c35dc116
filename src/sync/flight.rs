//! The fetching of one version, which all share who want it.

use std::fmt;
use std::fs::File;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::fill::Parts;
use super::open_files::Ready;
use super::ranges::Ranges;

/// Why a version cannot be had. For a reader it is EIO; the reason is in the log and in the status.
#[derive(Clone, Debug)]
pub struct Failure(Arc<str>);

impl Failure {
    pub(super) fn new(reason: impl Into<Arc<str>>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fetching of one version.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) done: watch::Sender<Option<Result<Ready, Failure>>>,
    /// Set once bytes may be served before the whole is there.
    pub(super) stream: OnceLock<(Arc<File>, u64)>,
    /// What of it is there.
    pub(super) parts: Arc<Parts>,
}

/// Whether content that has come is a version's now.
pub(super) enum Kept {
    Yes,
    /// Readers were shown this size, in bytes.
    OtherSize(u64),
    /// Readers were given other bytes.
    OtherBytes,
}

impl Flight {
    pub(super) fn new() -> Self {
        Self { done: watch::Sender::new(None), stream: OnceLock::new(), parts: Arc::new(Parts::new(Ranges::default())) }
    }
}
