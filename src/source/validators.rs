//! Validators of a document or of content (RFC 9110, 8.8).

use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderName};

/// How long ago a modification must be for its time to be a strong validator.
const SETTLED: Duration = Duration::from_secs(60);

/// What a server said of a body, to ask later whether it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// Whether that was long enough ago to tell one content from the next (RFC 9110, 8.8.2.2).
    pub settled: bool,
}

impl Validators {
    /// Whether there is none, so that nothing can be asked conditionally.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    pub(super) fn of(headers: &HeaderMap) -> Self {
        let last_modified = text(headers, &header::LAST_MODIFIED);
        let time = |text: Option<&str>| text.and_then(|text| httpdate::parse_http_date(text.trim()).ok());
        let date = text(headers, &header::DATE);
        let age = time(date.as_deref()).zip(time(last_modified.as_deref()));
        let settled = age.is_some_and(|(now, then)| now.duration_since(then).is_ok_and(|age| age >= SETTLED));
        Self { etag: text(headers, &header::ETAG), last_modified, settled }
    }

    /// What can stand in `If-Range`: a strong validator.
    #[must_use]
    pub fn strong(&self) -> Option<&str> {
        self.etag
            .as_deref()
            .filter(|etag| !etag.starts_with("W/"))
            .or(self.last_modified.as_deref().filter(|_| self.settled))
    }
}

/// A field of a head, as text.
pub(super) fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
