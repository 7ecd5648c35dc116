//! Errors of file system requests. Their errno and the level at which they are logged are decided here alone.

use thiserror::Error;
use tracing::Level;

use crate::catalog::CatalogError;

/// Why content is not available. The engine has logged the reason, and shows it in its status.
pub type ContentError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request of the kernel fails.
#[derive(Debug, Error)]
pub enum FsError {
    /// The directory has no such name, or no inode has this number.
    #[error("no such file or directory")]
    NotFound,
    /// A request for a directory, about something else.
    #[error("not a directory")]
    NotADirectory,
    /// A request for a file, about a directory.
    #[error("is a directory")]
    IsADirectory,
    /// A request for a symbolic link, about something else.
    #[error("not a symbolic link")]
    NotALink,
    /// The file system is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The file is no longer kept, or a newer version has its name: the kernel looks the name up again.
    #[error("stale file handle")]
    Stale,
    /// The file has no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// No file has extended attributes of this namespace. Unlike after [`FsError::NoAttribute`], the kernel does not ask again.
    #[error("attributes of this namespace are not supported")]
    NoNamespace,
    /// The value is larger than the buffer of the caller.
    #[error("the buffer is too small")]
    BufferTooSmall,
    /// The kernel handles this request by itself from now on.
    #[error("not implemented")]
    NotImplemented,
    /// The trees of too many times are open.
    #[error("the trees of too many times are open below .versions; close some")]
    TooManySnapshots,
    /// The Source could not be asked whether there was a version at a time; its absence would be a guess.
    #[error("the Source could not be asked for the versions of this resource")]
    UnknownHistory,
    /// A query of the catalog failed.
    #[error("cannot read the catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// An object of the cache could not be read.
    #[error("cannot read from the cache: {0}")]
    Cache(#[source] std::io::Error),
    /// An answer could not be written to the kernel.
    #[error("cannot answer the kernel: {0}")]
    Reply(#[source] std::io::Error),
    /// Content or its size is not available.
    #[error("{0}")]
    Content(#[source] ContentError),
    /// Nobody answers the request: its thread ended, or too many requests wait.
    #[error("the request was dropped")]
    Dropped,
}

impl FsError {
    /// The errno that the caller gets.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => libc::ENOENT,
            Self::NotADirectory => libc::ENOTDIR,
            Self::IsADirectory => libc::EISDIR,
            Self::NotALink => libc::EINVAL,
            Self::ReadOnly => libc::EROFS,
            Self::Stale => libc::ESTALE,
            Self::NoAttribute => libc::ENODATA,
            Self::NoNamespace => libc::ENOTSUP,
            Self::BufferTooSmall => libc::ERANGE,
            Self::NotImplemented => libc::ENOSYS,
            Self::TooManySnapshots => libc::ENFILE,
            Self::UnknownHistory
            | Self::Catalog(_)
            | Self::Cache(_)
            | Self::Reply(_)
            | Self::Content(_)
            | Self::Dropped => libc::EIO,
        }
    }

    /// The level at which it is logged: none for what the kernel asks for in ordinary work, and for what has been logged
    /// where it happened.
    #[must_use]
    pub fn level(&self) -> Option<Level> {
        match self {
            Self::Catalog(_) | Self::Cache(_) | Self::Reply(_) | Self::TooManySnapshots => Some(Level::ERROR),
            Self::UnknownHistory | Self::Content(_) | Self::Dropped => Some(Level::DEBUG),
            _ => None,
        }
    }

    /// Logs it at its level.
    pub fn log(&self) {
        match self.level() {
            Some(Level::ERROR) => tracing::error!("{self}"),
            Some(_) => tracing::debug!("{self}"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_eio_is_logged_and_keeps_its_source() {
        use std::error::Error as _;
        let io = || std::io::Error::other("disk");
        let cases = [
            (FsError::NotFound, libc::ENOENT, None),
            (FsError::Stale, libc::ESTALE, None),
            (FsError::TooManySnapshots, libc::ENFILE, Some(Level::ERROR)),
            (FsError::Cache(io()), libc::EIO, Some(Level::ERROR)),
            (FsError::Content(Box::new(io())), libc::EIO, Some(Level::DEBUG)),
            (FsError::UnknownHistory, libc::EIO, Some(Level::DEBUG)),
            (FsError::Dropped, libc::EIO, Some(Level::DEBUG)),
        ];
        for (error, errno, level) in cases {
            assert_eq!((error.errno(), error.level()), (errno, level), "{error}");
            assert_eq!(errno == libc::EIO, error.level().is_some() && errno != libc::ENFILE, "{error}");
        }
        assert_eq!(FsError::Cache(io()).source().unwrap().to_string(), "disk");
    }
}
