//! The callback server: what hubs send (WebSub 5.3, 7).
//!
//! It faces the world. Whoever does not know a path is answered without being read; whoever does may send no more than
//! is bounded here, and is believed only with our secret's signature, but for Sources of 2012, which know none.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use url::{Url, form_urlencoded};

use super::websub::LEASE;
use super::{Context, signature};
use crate::bounds;
use crate::source::parse_link_header;
use crate::sync::{Channel, Subscription};

/// The most bodies that are read at once.
const MOST_BODIES: usize = 4;
/// How long a hub may take for a header, and for a body.
const HEADER: Duration = Duration::from_secs(5);
const BODY: Duration = Duration::from_secs(30);
/// So much may a hub say before it is listened to.
pub(super) const MOST_SAID: usize = 16;
/// How long a lease is taken for whose length makes no sense, and the longest that is believed, in seconds.
const SENSELESS: Duration = Duration::from_secs(3600);
const LONGEST_LEASE: f64 = 366.0 * 86_400.0;
/// The most characters of what somebody says that are shown.
pub(super) const MOST_SHOWN: usize = 200;
/// The longest challenge that is repeated, in bytes.
const MOST_CHALLENGE: usize = 4096;

/// What a hub says, and of which subscription.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) token: String,
    pub(super) what: What,
}

/// What a hub says of a subscription.
#[derive(Debug)]
pub(super) enum What {
    /// It is in force for so long.
    Verified(Duration),
    /// It is not wanted, or not any more.
    Denied(String),
    /// It has ended as we asked.
    Unsubscribed,
}

/// A subscription that hubs may speak of.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) channel: Channel,
    pub(super) subscription: Subscription,
    /// Whether we want it to end.
    pub(super) leaving: bool,
    /// Whether deliveries are signed.
    pub(super) signed: bool,
    pub(super) tell: mpsc::Sender<Said>,
}

/// Subscriptions by the last segment of their callback's path.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<HashMap<String, Arc<Subscriber>>>);

impl Registry {
    pub(super) fn put(&self, subscriber: Subscriber) {
        let token = subscriber.subscription.token.clone();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token, Arc::new(subscriber));
    }

    pub(super) fn remove(&self, token: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
    }

    pub(super) fn all(&self) -> Vec<Arc<Subscriber>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) fn get(&self, token: &str) -> Option<Arc<Subscriber>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    /// What somebody says, as one short line that can be shown: without what nobody is to know.
    pub(super) fn shown(&self, text: &str) -> String {
        let mut text = in_one_line(text);
        for subscriber in self.all() {
            let secrets = [&subscriber.subscription.token, &subscriber.subscription.secret];
            for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
                text = text.replace(secret.as_str(), "...");
            }
        }
        text.chars().take(MOST_SHOWN).collect()
    }
}

/// What somebody else says, without what makes it more than one line, or another one to the eye.
pub(super) fn in_one_line(text: &str) -> String {
    let odd = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if odd(c) { ' ' } else { c }).collect()
}

/// Answers hubs. Runs until it is dropped.
pub(super) async fn serve(context: Arc<Context>, listener: TcpListener) {
    let connections = Arc::new(Semaphore::new(bounds::count(context.bounds.callers)));
    let bodies = Arc::new(Semaphore::new(MOST_BODIES));
    loop {
        // Neither is ever closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a hub could not be heard");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (context, bodies) = (Arc::clone(&context), Arc::clone(&bodies));
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let (context, bodies) = (Arc::clone(&context), Arc::clone(&bodies));
                async move { Ok::<_, Infallible>(answer(&context, &bodies, request).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER).keep_alive(false).max_buf_size(64 << 10);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
                tracing::debug!(%error, "a connection of a hub");
            }
            drop(permit);
        });
    }
}

async fn answer(context: &Context, bodies: &Semaphore, request: Request<Incoming>) -> Response<Body> {
    let token = request.uri().path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let Some(subscriber) = context.registry.get(token) else {
        return say(StatusCode::NOT_FOUND, "there is no subscription here\n");
    };
    match *request.method() {
        Method::GET if subscriber.signed => intent(context, &subscriber, request.uri().query().unwrap_or_default()),
        Method::POST => delivery(context, bodies, &subscriber, request).await,
        _ => say(StatusCode::METHOD_NOT_ALLOWED, "GET verifies intent, POST delivers\n"),
    }
}

fn say(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // A challenge is whatever the asker likes: no browser may take it for a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Whether two spellings are of the same topic.
fn same(one: &str, other: &str) -> bool {
    one == other || Url::parse(one).is_ok_and(|one| Url::parse(other).is_ok_and(|other| one == other))
}

/// A hub asks whether we meant it (WebSub 5.3), or denies (5.2).
fn intent(context: &Context, subscriber: &Subscriber, query: &str) -> Response<Body> {
    let fields: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let field = |name: &str| fields.get(name).map(String::as_str);
    let about_us = field("hub.topic").is_some_and(|topic| same(topic, &subscriber.subscription.topic));
    if !about_us {
        return say(StatusCode::NOT_FOUND, "this is a subscription to another topic\n");
    }
    let challenge = field("hub.challenge").filter(|text| !text.is_empty() && text.len() <= MOST_CHALLENGE);
    let what = match (field("hub.mode"), challenge) {
        (Some("denied"), _) => {
            What::Denied(context.registry.shown(field("hub.reason").unwrap_or("the hub gives no reason")))
        }
        (Some("subscribe" | "unsubscribe"), None) => {
            return say(StatusCode::BAD_REQUEST, "hub.challenge is missing, or too long\n");
        }
        (Some("subscribe"), Some(_)) if !subscriber.leaving => What::Verified(lease(field("hub.lease_seconds"))),
        (Some("unsubscribe"), Some(_)) if subscriber.leaving => What::Unsubscribed,
        _ => return say(StatusCode::NOT_FOUND, "that was not asked for\n"),
    };
    // Nobody listens any more where a subscription just ended; and who says too much at once is not heard out.
    let _ = subscriber.tell.try_send(Said { token: subscriber.subscription.token.clone(), what });
    say(StatusCode::OK, challenge.map(str::to_owned).unwrap_or_default())
}

/// How long a subscription is granted for. A hub that does not say grants what was asked for; one that says what makes no
/// sense is asked again soon.
fn lease(seconds: Option<&str>) -> Duration {
    let Some(text) = seconds else { return Duration::from_secs(LEASE) };
    let seconds: Option<f64> = text.trim().parse().ok().filter(|seconds| *seconds >= 1.0);
    seconds.map_or(SENSELESS, |seconds| Duration::from_secs_f64(seconds.min(LONGEST_LEASE)))
}

/// A hub delivers (WebSub 7).
async fn delivery(
    context: &Context,
    bodies: &Semaphore,
    subscriber: &Subscriber,
    request: Request<Incoming>,
) -> Response<Body> {
    let channel = subscriber.channel.id;
    let (head, body) = request.into_parts();
    if names_another_topic(&head.headers, subscriber) {
        context.board.note(channel, |standing| standing.refused.foreign += 1);
        tracing::warn!(topic = subscriber.subscription.topic, "a delivery of another topic; refused");
        return say(StatusCode::FORBIDDEN, "this is a subscription to another topic\n");
    }
    let Ok(_turn) = tokio::time::timeout(BODY, bodies.acquire()).await else {
        return say(StatusCode::SERVICE_UNAVAILABLE, "there is too much at once; try again\n");
    };
    let most = context.bounds.delivery;
    let body = match tokio::time::timeout(BODY, whole(body, most)).await {
        Err(_) => return say(StatusCode::REQUEST_TIMEOUT, "the body does not come\n"),
        Ok(Ok(body)) => body,
        Ok(Err(Unread::TooLarge)) => {
            context.board.note(channel, |standing| standing.refused.too_large += 1);
            let beyond = bounds::DELIVERY.passed("the size of a delivery", &context.bounds);
            tracing::warn!(topic = subscriber.subscription.topic, %beyond, "refused");
            return say(StatusCode::PAYLOAD_TOO_LARGE, format!("no more than {most} bytes are taken\n"));
        }
        Ok(Err(Unread::Broken)) => return say(StatusCode::BAD_REQUEST, "the body broke off\n"),
    };
    if subscriber.signed && !is_signed(&head.headers, &subscriber.subscription.secret, &body) {
        context.board.note(channel, |standing| {
            standing.refused.forged += 1;
            standing.unsigned += 1;
        });
        tracing::warn!(
            topic = subscriber.subscription.topic,
            "a delivery without the signature of our secret (X-Hub-Signature); refused"
        );
        return say(StatusCode::FORBIDDEN, "X-Hub-Signature does not verify\n");
    }
    match tokio::time::timeout(BODY, context.engine.deliver(&subscriber.channel, body)).await {
        Ok(Ok(_)) => {
            context.board.note(channel, |standing| standing.unsigned = 0);
            say(StatusCode::ACCEPTED, Body::empty())
        }
        // If it is kept after all, the hub's next try is the same again.
        Err(_) => {
            context.engine.missed();
            say(StatusCode::SERVICE_UNAVAILABLE, "there is much to do; try again\n")
        }
        Ok(Err(error)) => {
            // The hub may give up.
            context.engine.missed();
            context.engine.status().error(&format!("a delivery could not be kept, and the hub was told so: {error}"));
            say(StatusCode::SERVICE_UNAVAILABLE, "it cannot be kept now; try again\n")
        }
    }
}

/// Why a body could not be had.
enum Unread {
    TooLarge,
    Broken,
}

async fn whole(body: Incoming, most: u64) -> Result<Bytes, Unread> {
    // What says that it is too large need not be sent.
    if body.size_hint().lower() > most {
        return Err(Unread::TooLarge);
    }
    let mut bytes = BytesMut::new();
    let mut stream = Body::new(body).into_data_stream();
    while let Some(part) = stream.next().await {
        let part = part.map_err(|_| Unread::Broken)?;
        if (bytes.len() + part.len()) as u64 > most {
            return Err(Unread::TooLarge);
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes.freeze())
}

fn values<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

/// Whether a delivery says that it is of a topic, and not of ours.
fn names_another_topic(headers: &HeaderMap, subscriber: &Subscriber) -> bool {
    let mut named = values(headers, "link").flat_map(parse_link_header).filter(|link| link.is("self")).peekable();
    let known = [&subscriber.subscription.topic, &subscriber.channel.url];
    named.peek().is_some() && !named.any(|link| known.iter().any(|known| same(&link.href, known)))
}

fn is_signed(headers: &HeaderMap, secret: &str, body: &Bytes) -> bool {
    values(headers, "x-hub-signature").any(|value| signature::verifies(value, secret, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_what_the_hub_says_within_reason() {
        for (said, seconds) in [
            (None, LEASE),
            (Some("300"), 300),
            (Some(" 300 "), 300),
            (Some("3600.5"), 3600),
            (Some("99999999999999999999"), 366 * 86_400),
            (Some("inf"), 366 * 86_400),
            (Some("0"), 3600),
            (Some("-1"), 3600),
            (Some("NaN"), 3600),
            (Some("soon"), 3600),
            (Some(""), 3600),
        ] {
            assert_eq!(lease(said).as_secs(), seconds, "{said:?}");
        }
    }

    #[test]
    fn a_topic_is_the_same_however_its_url_is_spelled() {
        assert!(same("http://Example.com:80/a", "http://example.com/a"));
        assert!(same("urn:x", "urn:x") && same("no url", "no url"));
        assert!(!same("http://example.com/a", "http://example.com/b") && !same("http://example.com/a", "a"));
    }
}
