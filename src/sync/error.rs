//! Why a sync failed.

use thiserror::Error;

use crate::catalog::CatalogError;
use crate::source::SourceError;

/// Why a sync failed.
#[derive(Clone, Debug, Error)]
pub enum SyncError {
    /// The Source did not play its part.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The catalog could not be read or written.
    #[error("{0}")]
    Catalog(String),
    /// The cache directory could not be used.
    #[error("cache: {0}")]
    Cache(String),
    /// What the Source offers does not fit what was asked for.
    #[error("{0}")]
    Unfit(String),
}

impl From<CatalogError> for SyncError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error.to_string())
    }
}

impl SyncError {
    /// Whether the Source is away, rather than wrong.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Source(error) if error.trouble.is_away() || error.trouble.passes())
    }
}
