//! Errors as the kernel gets them.

use fuser::Errno;

use super::error::FsError;

/// Logs why a request fails, and returns its errno.
pub(super) fn errno(error: &FsError) -> Errno {
    error.log();
    Errno::from_i32(error.errno())
}
