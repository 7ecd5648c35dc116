//! The callback server: what hubs send (WebSub 5.3, 7).
//!
//! It faces the world. Whoever does not know a path is answered without being read; whoever does may send no more than
//! is bounded here, and is believed only with our secret's signature, but for Sources of 2012, which know none.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use url::{Url, form_urlencoded};

use super::board::{Refusal, Standing};
use super::{Context, signature};
use crate::source::parse_link_header;
use crate::sync::{Channel, Subscription};
use crate::{bounds, printable};

/// The lease that is asked for, in seconds: ten days, as the Recommendation suggests.
pub(super) const LEASE: u64 = 864_000;
/// The most bodies that are in memory at once.
const MOST_BODIES: usize = 2;
/// How long a hub may take for a header, and for a body.
const HEADER: Duration = Duration::from_secs(5);
const BODY: Duration = Duration::from_secs(30);
/// The most events of a hub that wait to be handled.
pub(super) const MOST_EVENTS: usize = 16;
/// How long the answer to a delivery waits that is refused: a sender that does not stop makes less work.
const REFUSED: Duration = Duration::from_millis(250);
/// How long a lease is taken for whose length makes no sense, and the longest that is believed, in seconds.
const SENSELESS: Duration = Duration::from_secs(3600);
const LONGEST_LEASE: f64 = 366.0 * 86_400.0;
/// The most characters of what somebody says that are shown.
pub(super) const MOST_SHOWN: usize = 200;
/// The longest challenge that is repeated, in bytes.
const MOST_CHALLENGE: usize = 4096;

/// What a hub reports about a subscription.
#[derive(Debug)]
pub(super) struct HubEvent {
    pub(super) token: String,
    pub(super) kind: HubEventKind,
}

/// The kinds of [`HubEvent`].
#[derive(Debug)]
pub(super) enum HubEventKind {
    /// The hub has verified our intent and grants a lease of this length.
    Verified(Duration),
    /// The hub refuses the request that it was just sent.
    Denied(String),
    /// A peer that knows the callback's path reports the end of a subscription that nothing was requested for. Whether
    /// it is the hub, only a renewal shows.
    Doubted,
    /// The subscription has ended as requested.
    Unsubscribed,
}

/// Whether a verification of intent is expected (WebSub 5.3). A callback has no other authentication: a GET request
/// that nothing was requested for has no effect.
#[derive(Debug, Default)]
pub(super) enum Verification {
    /// No request to the hub is waiting for one.
    #[default]
    NotExpected,
    /// A request was sent, or is about to be.
    Expected,
    /// It was answered. Hubs verify again, because the answer was lost or by themselves: that is answered, too, and has no
    /// effect.
    Answered,
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
    /// Held for an assignment.
    pub(super) verification: Mutex<Verification>,
    pub(super) tell: mpsc::Sender<HubEvent>,
}

impl Subscriber {
    /// Whether this is the verification that is waited for: the first one after a request.
    fn accepts(&self) -> bool {
        let mut verification = self.verification.lock();
        let is_expected = matches!(*verification, Verification::Expected);
        if is_expected {
            *verification = Verification::Answered;
        }
        is_expected
    }

    /// Whether the hub owes an answer to a request.
    fn is_pending(&self) -> bool {
        matches!(*self.verification.lock(), Verification::Expected)
    }
}

/// Subscriptions by the last segment of their callback's path.
#[derive(Debug, Default)]
pub(super) struct Registry {
    known: Mutex<HashMap<String, Arc<Subscriber>>>,
    /// The last ones that ended, oldest first.
    ended: Mutex<VecDeque<String>>,
}

/// The most subscriptions that ended which are remembered.
const MOST_ENDED: usize = 256;

impl Registry {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Subscriber>>> {
        self.known.lock()
    }

    fn ended(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.ended.lock()
    }

    /// Whether this was a subscription, and has ended.
    pub(super) fn has_ended(&self, token: &str) -> bool {
        self.ended().iter().any(|ended| ended == token)
    }

    pub(super) fn put(&self, subscriber: Subscriber) {
        let token = subscriber.subscription.token.clone();
        [&token, &subscriber.subscription.secret].into_iter().for_each(|secret| printable::register_secret(secret));
        self.ended().retain(|ended| *ended != token);
        self.known().insert(token, Arc::new(subscriber));
    }

    pub(super) fn remove(&self, token: &str) {
        let gone = self.known().remove(token);
        if let Some(gone) = gone {
            let mut ended = self.ended();
            ended.push_back(token.to_owned());
            let more = ended.len().saturating_sub(MOST_ENDED);
            ended.drain(..more);
            drop(ended);
            [&gone.subscription.token, &gone.subscription.secret]
                .into_iter()
                .for_each(|one| printable::forget_secret(one));
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Subscriber>> {
        self.known().values().cloned().collect()
    }

    pub(super) fn get(&self, token: &str) -> Option<Arc<Subscriber>> {
        self.known().get(token).cloned()
    }
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
        return match context.registry.has_ended(token) {
            // A hub ends it then (WebSub 7).
            true => say(StatusCode::GONE, "this subscription has ended\n"),
            false => say(StatusCode::NOT_FOUND, "there is no subscription here\n"),
        };
    };
    match *request.method() {
        Method::GET if subscriber.signed => intent(&subscriber, request.uri().query().unwrap_or_default()),
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

/// A hub verifies our intent (WebSub 5.3), or denies the subscription (5.2).
fn intent(subscriber: &Subscriber, query: &str) -> Response<Body> {
    let fields: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let field = |name: &str| fields.get(name).map(String::as_str);
    let about_us = field("hub.topic").is_some_and(|topic| same(topic, &subscriber.subscription.topic));
    if !about_us {
        return say(StatusCode::NOT_FOUND, "this is a subscription to another topic\n");
    }
    let challenge = field("hub.challenge").filter(|text| !text.is_empty() && text.len() <= MOST_CHALLENGE);
    let kind = match (field("hub.mode"), challenge) {
        (Some("denied"), _) if subscriber.is_pending() => {
            let reason = field("hub.reason").unwrap_or("the hub gives no reason");
            HubEventKind::Denied(printable::short_line(reason, MOST_SHOWN))
        }
        (Some("denied"), _) => HubEventKind::Doubted,
        (Some("subscribe" | "unsubscribe"), None) => {
            return say(StatusCode::BAD_REQUEST, "hub.challenge is missing, or too long\n");
        }
        (Some(mode @ ("subscribe" | "unsubscribe")), Some(challenge))
            if (mode == "unsubscribe") == subscriber.leaving =>
        {
            match subscriber.accepts() {
                true if subscriber.leaving => HubEventKind::Unsubscribed,
                // A lease longer than requested may not come from the hub.
                true => HubEventKind::Verified(lease(field("hub.lease_seconds")).min(Duration::from_secs(LEASE))),
                // It is wanted all the same: a hub that hears otherwise ends it.
                false => return say(StatusCode::OK, challenge.to_owned()),
            }
        }
        _ => return say(StatusCode::NOT_FOUND, "that was not asked for\n"),
    };
    // The receiver is gone where a subscription just ended; events beyond the channel's capacity are dropped.
    let _ = subscriber.tell.try_send(HubEvent { token: subscriber.subscription.token.clone(), kind });
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
    let (head, body) = request.into_parts();
    // Of what is signed, the signature says whose it is, however the topic is spelled.
    let unbelieved = match names_another_topic(&head.headers, subscriber) {
        true => Refusal::Foreign,
        false => Refusal::Forged,
    };
    if !subscriber.signed && unbelieved == Refusal::Foreign {
        return refuse(context, subscriber, unbelieved).await;
    }
    let most = context.bounds.delivery;
    // What announces that it is too large, or is not signed, need not be sent.
    if body.size_hint().lower() > most {
        return refuse(context, subscriber, Refusal::TooLarge).await;
    }
    let signature = only_signature(&head.headers);
    if subscriber.signed && signature.is_none() {
        return refuse(context, subscriber, unbelieved).await;
    }
    let Ok(turn) = tokio::time::timeout(BODY, bodies.acquire()).await else {
        return say(StatusCode::SERVICE_UNAVAILABLE, "there is too much at once; try again\n");
    };
    let body = match tokio::time::timeout(BODY, whole(body, most)).await {
        Err(_) => return say(StatusCode::REQUEST_TIMEOUT, "the body does not come\n"),
        Ok(Ok(body)) => body,
        Ok(Err(Unread::TooLarge)) => {
            drop(turn);
            return refuse(context, subscriber, Refusal::TooLarge).await;
        }
        Ok(Err(Unread::Broken)) => return say(StatusCode::BAD_REQUEST, "the body broke off\n"),
    };
    if subscriber.signed
        && !is_signed(&context.verifying, signature.as_deref(), &subscriber.subscription.secret, &body).await
    {
        drop((body, turn));
        return refuse(context, subscriber, unbelieved).await;
    }
    keep(context, subscriber, body).await
}

/// Keeps what was delivered, and answers for it.
async fn keep(context: &Context, subscriber: &Subscriber, body: Bytes) -> Response<Body> {
    match tokio::time::timeout(BODY, context.engine.inbox().deliver(&subscriber.channel, body)).await {
        Ok(Ok(_)) => {
            context.board.note(subscriber.channel.id, Standing::believe);
            say(StatusCode::ACCEPTED, Body::empty())
        }
        // If it is kept after all, the hub's next try is the same again.
        Err(_) => {
            context.engine.inbox().missed();
            say(StatusCode::SERVICE_UNAVAILABLE, "there is much to do; try again\n")
        }
        Ok(Err(error)) => {
            // The hub may give up.
            context.engine.inbox().missed();
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
    // What is announced is not made room for twice.
    let announced = body.size_hint().exact().unwrap_or(0);
    let mut bytes = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
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

/// Counts a delivery that is refused, and answers it.
async fn refuse(context: &Context, subscriber: &Subscriber, refusal: Refusal) -> Response<Body> {
    let (mut so_far, mut was_live, mut is_live) = (0, false, false);
    context.board.note(subscriber.channel.id, |standing| {
        was_live = standing.is_live();
        so_far = standing.refuse(refusal);
        is_live = standing.is_live();
    });
    if was_live && !is_live {
        // What it was, the lists tell; until something is believed again, the Source is polled.
        context.engine.inbox().missed();
    }
    let most = context.bounds.delivery;
    let (why, response) = match refusal {
        Refusal::Foreign => {
            ("another topic".to_owned(), say(StatusCode::FORBIDDEN, "this is a subscription to another topic\n"))
        }
        Refusal::TooLarge => (
            bounds::DELIVERY.passed("the size of a delivery", &context.bounds).to_string(),
            say(StatusCode::PAYLOAD_TOO_LARGE, format!("no more than {most} bytes are taken\n")),
        ),
        Refusal::Forged => (
            "no valid X-Hub-Signature, or more than one".to_owned(),
            say(StatusCode::FORBIDDEN, "X-Hub-Signature does not verify\n"),
        ),
    };
    // The log would be as long as the sender likes.
    if so_far.is_power_of_two() {
        tracing::warn!(topic = subscriber.subscription.topic, so_far, why, "refused a delivery");
    }
    tokio::time::sleep(REFUSED).await;
    response
}

/// The signature of a delivery, if it has one and no other (WebSub 7.1).
fn only_signature(headers: &HeaderMap) -> Option<String> {
    let mut signatures = headers.get_all("x-hub-signature").iter();
    let only = signatures.next().filter(|_| signatures.next().is_none())?;
    only.to_str().ok().map(str::to_owned)
}

/// Whether a signature is that of a body. To hash a large body takes long: it is done for one at a time, and not on a thread
/// that others wait for.
async fn is_signed(turn: &Semaphore, signature: Option<&str>, secret: &str, body: &Bytes) -> bool {
    let (Some(signature), Ok(_turn)) = (signature.map(str::to_owned), turn.acquire().await) else { return false };
    let (secret, body) = (secret.to_owned(), body.clone());
    tokio::task::spawn_blocking(move || signature::verifies(&signature, &secret, &body)).await.unwrap_or(false)
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
