//! Why the catalog could not answer or be changed.

use std::path::Path;

use thiserror::Error;

/// Why the catalog could not answer or be changed.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// SQLite said no: the disk is full, the file is damaged, and so on.
    #[error("catalog: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The database is damaged.
    #[error("{path} is damaged ({error}); remove the cache directory, and it will be made anew from the Source")]
    Damaged {
        /// The database.
        path: String,
        /// What SQLite says.
        error: String,
    },
    /// SQLite gave a row another number than it was to have.
    #[error("catalog: a row was given the number {given}, not {wanted}; this is a bug, and the step was undone")]
    Numbers {
        /// What it was given.
        given: i64,
        /// What it was to have.
        wanted: i64,
    },
    /// A filter has a pattern that is none.
    #[error("{0}")]
    Pattern(String),
    /// The file system said no.
    #[error("{path}: {error}")]
    Io {
        /// What was opened.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The database was made by a later version of this program.
    #[error(
        "{path} has schema {found}, newer than the {known} this version knows; use the newer resourcesync, or another cache="
    )]
    Newer {
        /// The database.
        path: String,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// What is to be written is more than a bound allows.
    #[error(transparent)]
    Beyond(#[from] crate::bounds::Beyond),
    /// A question that any user may ask took too long.
    #[error("this question took the catalog more than {} ms; ask for less at once", .0.as_millis())]
    Slow(std::time::Duration),
    /// Another process works with this cache.
    #[error("the cache {path} is in use by {holder}; unmount that first, or give this mount another cache=DIR")]
    InUse {
        /// The cache directory.
        path: String,
        /// As far as it is known.
        holder: String,
    },
    /// The cache belongs to another Source.
    #[error("the cache {path} holds {found}, not {wanted}; give this mount another cache=DIR")]
    OtherSource {
        /// The cache directory.
        path: String,
        /// What it was made for.
        found: String,
        /// What was asked for.
        wanted: String,
    },
}

impl CatalogError {
    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), error }
    }
}
