//! Validators of content.

use crate::document::Datetime;

/// What the server said of the content of a version, as it sent it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownContent {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// `Content-Type`, without parameters.
    pub media: Option<String>,
    /// When it came, or was last found unchanged, by our clock.
    pub checked: Datetime,
}
