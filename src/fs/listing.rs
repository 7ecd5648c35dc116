//! Directory listings. A cookie is the number of a name, so that a listing continues at the right place whatever was
//! inserted or deleted since; numbers below 8 are for the names that are not rows.

use std::time::Duration;

use super::attributes::{Attributes, UNCACHED};
use super::error::FsError;

/// Receives the entries of a directory.
pub trait Sink: Send + 'static {
    /// Adds an entry; false if there is no room for it. Its name holds, and its attributes hold for `ttl`.
    fn add(&mut self, cookie: u64, name: &str, attributes: &Attributes, ttl: Duration) -> bool;

    /// Whether an entry that was added counts as looked up.
    fn looks_up(&self) -> bool;

    /// Ends the listing, with the error that cut it short.
    fn end(self, result: Result<(), FsError>);
}

/// The cookies of `.` and `..`.
pub(super) const DOT: u64 = 1;
pub(super) const DOT_DOT: u64 = 2;

/// Lists `.` and `..`; false if there was no room for them. The parent is asked for only where it is listed.
pub(super) fn add_dots<S: Sink>(
    sink: &mut S,
    offset: u64,
    own: &Attributes,
    parent: impl FnOnce() -> Result<Attributes, FsError>,
) -> Result<bool, FsError> {
    Ok((offset >= DOT || sink.add(DOT, ".", own, UNCACHED))
        && (offset >= DOT_DOT || sink.add(DOT_DOT, "..", &parent()?, UNCACHED)))
}

/// The number of the name after which a listing of rows continues.
pub(super) fn after(offset: u64) -> Option<i64> {
    i64::try_from(offset).ok().filter(|after| *after > 7)
}
