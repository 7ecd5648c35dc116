//! Why a sync failed.

use std::io;
use std::sync::Arc;

use thiserror::Error;
use tokio::task::JoinError;

use crate::catalog::CatalogError;
use crate::source::SourceError;

/// Why a sync failed. Each of the parts that wait for it is told, so that what it comes from is shared.
#[derive(Clone, Debug, Error)]
pub enum SyncError {
    /// The Source did not play its part.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The catalog could not be read or written.
    #[error(transparent)]
    Catalog(Arc<CatalogError>),
    /// The cache directory could not be used.
    #[error("cache: {}{error}", named(.object))]
    Cache {
        /// What it was about, where that is known.
        object: Option<String>,
        /// What the file system says.
        #[source]
        error: Arc<io::Error>,
    },
    /// There is no thread for what writes the catalog.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] Arc<io::Error>),
    /// A task of ours panicked, or was ended with the process.
    #[error("a bug ended a task; see the log: {0}")]
    Task(#[source] Arc<JoinError>),
    /// A step panicked, or the writer has ended.
    #[error("{0}")]
    Step(&'static str),
    /// What the Source offers does not fit what was asked for.
    #[error("{0}")]
    Unfit(String),
}

fn named(object: &Option<String>) -> String {
    object.as_ref().map(|object| format!("{object}: ")).unwrap_or_default()
}

impl From<CatalogError> for SyncError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(Arc::new(error))
    }
}

/// In this room, files are those of the cache.
impl From<io::Error> for SyncError {
    fn from(error: io::Error) -> Self {
        Self::Cache { object: None, error: Arc::new(error) }
    }
}

impl From<JoinError> for SyncError {
    fn from(error: JoinError) -> Self {
        Self::Task(Arc::new(error))
    }
}

impl SyncError {
    /// That a file of the cache could not be used, which is of this object.
    pub(crate) fn cache(object: impl ToString, error: io::Error) -> Self {
        Self::Cache { object: Some(object.to_string()), error: Arc::new(error) }
    }

    /// Whether the Source is away, rather than wrong.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Source(error) if error.trouble.is_away() || error.trouble.passes())
    }
}
