//! The fetching of one version, which all share who want it.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use thiserror::Error;
use tokio::sync::watch;

use crate::sync::transfer::ranges::Ranges;
use crate::sync::transfer::sparse::Parts;
use crate::sync::writer::open_files::Ready;

/// Why a version cannot be had. For a reader it is EIO; the reason is in the log and in the status.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct Failure(Arc<str>);

impl Failure {
    pub(in crate::sync) fn new(reason: impl Into<Arc<str>>) -> Self {
        Self(reason.into())
    }
}

/// The fetching of one version.
#[derive(Debug)]
pub(in crate::sync) struct Flight {
    pub(in crate::sync) done: watch::Sender<Option<Result<Ready, Failure>>>,
    /// Set once bytes may be served before the whole is there.
    pub(in crate::sync) stream: OnceLock<(Arc<File>, u64)>,
    /// What of it is there.
    pub(in crate::sync) parts: Arc<Parts>,
}

/// Whether content that has come is a version's now.
pub(in crate::sync) enum Kept {
    Yes,
    /// Readers were shown this size, in bytes.
    OtherSize(u64),
    /// Readers were given other bytes.
    OtherBytes,
}

impl Flight {
    pub(in crate::sync) fn new() -> Self {
        Self { done: watch::Sender::new(None), stream: OnceLock::new(), parts: Arc::new(Parts::new(Ranges::default())) }
    }
}
