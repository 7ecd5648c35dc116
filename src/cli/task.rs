//! What a daemon is started with.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::options::Options;

/// What a daemon needs to know.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) source: String,
    pub(super) directory: PathBuf,
    /// The same directory, as it was when the mount was asked for: the owner of one above it can replace it.
    pub(super) mount_point: Arc<OwnedFd>,
    pub(super) options: Options,
    /// As they were given.
    pub(super) texts: Vec<String>,
}
