//! How the demo Source answers a request.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use bytes::Bytes;
use parking_lot::RwLock;

use super::{Content, Resource, hexadecimal};

pub(super) async fn answer(
    State(content): State<Arc<RwLock<Content>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n");
    }
    let path = uri.path();
    let content = content.read();
    if let Some(document) = content.documents.get(path) {
        return send(&method, &headers, "application/xml", &tag_of(document.as_bytes()), document.clone().into());
    }
    if let Some(package) = content.packages.get(path) {
        return send(&method, &headers, "application/zip", &tag(&package.sha256), package.bytes.clone());
    }
    if let Some((media, patch)) = content.patches.get(path) {
        return send(&method, &headers, media, &tag_of(patch), patch.clone());
    }
    if let Some(response) = content.topic(&method, &headers, path) {
        return response;
    }
    if let Some(response) = content.remember(&method, &headers, path) {
        return response;
    }
    match content.resources.get(path).cloned() {
        Some(Resource { media, make, sha256, .. }) => {
            let links = content.original_fields(path);
            // Large ones take a moment to make.
            drop(content);
            with(send(&method, &headers, media, &tag(&sha256), make.bytes()), links)
        }
        None => plain(StatusCode::NOT_FOUND, "there is no such resource\n"),
    }
}

/// The validator of what has this hash.
pub(super) fn tag(sha256: &str) -> String {
    format!("\"{}\"", &sha256[..16])
}

/// The validator of these bytes.
pub(super) fn tag_of(bytes: &[u8]) -> String {
    tag(&hexadecimal(bytes))
}

/// A response with fields added to its header.
pub(super) fn with(
    mut response: Response<Body>,
    fields: impl IntoIterator<Item = (HeaderName, String)>,
) -> Response<Body> {
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// A body with its validator: whole, a part of it, or the word that it did not change.
pub(super) fn send(method: &Method, headers: &HeaderMap, media: &str, tag: &str, bytes: Bytes) -> Response<Body> {
    let field = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let mut builder = Response::builder()
        .header(header::CONTENT_TYPE, media)
        .header(header::ETAG, tag)
        .header(header::ACCEPT_RANGES, "bytes");
    if field(header::IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag)) {
        builder = builder.status(StatusCode::NOT_MODIFIED);
        return builder.body(Body::empty()).unwrap_or_default();
    }
    let total = bytes.len();
    let same = field(header::IF_RANGE).is_none_or(|known| known == tag);
    let range = field(header::RANGE).filter(|_| same).and_then(|range| parse_range(range, total));
    let part = match range {
        Some((begin, end)) => {
            builder = builder
                .status(StatusCode::PARTIAL_CONTENT)
                .header(header::CONTENT_RANGE, format!("bytes {begin}-{}/{total}", end - 1));
            bytes.slice(begin..end)
        }
        None => bytes,
    };
    builder = builder.header(header::CONTENT_LENGTH, part.len());
    let body = if *method == Method::HEAD { Body::empty() } else { Body::from(part) };
    builder.body(body).unwrap_or_default()
}

/// `bytes=first-last`, as a range without its end; none where it cannot be satisfied.
fn parse_range(text: &str, total: usize) -> Option<(usize, usize)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let begin: usize = first.parse().ok()?;
    let end = if last.is_empty() { total } else { last.parse::<usize>().ok()?.checked_add(1)?.min(total) };
    (begin < end).then_some((begin, end))
}
