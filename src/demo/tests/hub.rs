//! The hub of the demo Source, and a subscriber on loopback.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use tokio::sync::mpsc;
use tokio::time::Instant;
use url::Url;

use super::notifications::{Read, assert_joined};
use super::*;
use crate::demo::hub::{SUBSCRIPTIONS, Terms};
use crate::demo::intent::Intent;
use crate::demo::notifications::{Channel, WAITING};

/// How long anything may take that will come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request that came to a callback.
struct Called {
    method: Method,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
}

impl Called {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What a callback does.
struct Callback {
    /// What stands before the challenge in its answer.
    before: &'static str,
    /// The answers to its first notifications; those to others are good.
    answers: Mutex<VecDeque<StatusCode>>,
    calls: mpsc::UnboundedSender<Called>,
}

struct Subscriber {
    callback: Url,
    calls: mpsc::UnboundedReceiver<Called>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn called(State(callback): State<Arc<Callback>>, request: Request) -> axum::http::Response<Body> {
    let (parts, body) = request.into_parts();
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let called = Called { method: parts.method, query, headers: parts.headers, body };
    let challenge = called.parameter("hub.challenge").map(|challenge| format!("{}{challenge}", callback.before));
    let mut response = axum::http::Response::new(Body::from(challenge.unwrap_or_default()));
    if called.method == Method::POST {
        *response.status_mut() = callback.answers.lock().pop_front().unwrap_or(StatusCode::NO_CONTENT);
    }
    callback.calls.send(called).unwrap();
    response
}

impl Subscriber {
    async fn start() -> Self {
        Self::that("", &[]).await
    }

    async fn that(before: &'static str, answers: &[StatusCode]) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let callback = Url::parse(&format!("http://{}/called?by=hub", listener.local_addr().unwrap())).unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let state = Callback { before, answers: Mutex::new(answers.iter().copied().collect()), calls: sender };
        let router = Router::new().fallback(called).with_state(Arc::new(state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { callback, calls, server }
    }

    async fn next(&mut self) -> Called {
        tokio::time::timeout(PATIENCE, self.calls.recv()).await.unwrap().unwrap()
    }

    async fn notification(&mut self) -> Read {
        let called = self.next().await;
        assert_eq!(called.method, Method::POST);
        Read::of(&called.body)
    }

    fn assert_left_alone(&mut self) {
        assert!(self.calls.try_recv().is_err());
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

fn intent(fields: &[(&str, &str)]) -> Intent {
    let headers = [(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded".parse().unwrap())];
    Intent::read(&HeaderMap::from_iter(headers), form(fields).as_bytes()).ok().unwrap()
}

/// Terms for as long as any test goes on.
fn terms(secret: Option<&str>) -> Terms {
    let signer = secret.map(|secret| Hmac::new_from_slice(secret.as_bytes()).unwrap());
    Terms { expires: Instant::now() + 2 * PATIENCE, signer }
}

fn signature(secret: &str, body: &[u8]) -> String {
    let signer = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    format!("sha256={}", HEXLOWER.encode(&signer.chain_update(body).finalize().into_bytes()))
}

impl Running {
    async fn submit(&self, fields: &[(&str, &str)]) -> Response {
        let request = self.client.post(format!("{}/hub", self.base));
        let request = request.header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        request.body(form(fields)).send().await.unwrap()
    }

    fn topic(&self, channel: Channel) -> String {
        format!("{}{}", self.base, channel.topic())
    }

    async fn until_subscriptions_are(&self, count: usize) {
        let begun = Instant::now();
        while self.hub.count() != count {
            assert!(begun.elapsed() < PATIENCE, "there are {}", self.hub.count());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_subscriber_is_asked_and_then_notified_until_it_ends_that() {
    let running = Running::start().await;
    let (mut one, mut other) = (Subscriber::start().await, Subscriber::start().await);
    let (callback, topic) = (one.callback.to_string(), running.topic(Channel::Changes));
    let mut fields = [
        ("hub.mode", "subscribe"),
        ("hub.callback", &callback),
        ("hub.topic", &topic),
        ("hub.lease_seconds", "3600"),
        ("hub.secret", "between us"),
    ];
    assert_eq!(running.submit(&fields).await.status(), StatusCode::ACCEPTED);
    assert!(running.hub.grant(other.callback.clone(), Channel::Changes, terms(None)));
    let asked = one.next().await;
    assert_eq!((asked.method.clone(), asked.parameter("by")), (Method::GET, Some("hub")));
    assert_eq!(asked.parameter("hub.mode"), Some("subscribe"));
    assert_eq!(asked.parameter("hub.topic"), Some(topic.as_str()));
    assert_eq!(asked.parameter("hub.lease_seconds"), Some("3600"));
    running.until_subscriptions_are(2).await;

    let mut told = Vec::new();
    for _ in 0..3 {
        running.change(1);
        let called = one.next().await;
        assert_eq!((called.method.clone(), called.parameter("by")), (Method::POST, Some("hub")));
        assert_eq!(called.field("content-type"), Some("application/xml"));
        assert_eq!(called.field("x-hub-signature"), Some(signature("between us", &called.body).as_str()));
        let links = parse_link_header(called.field("link").unwrap());
        assert_eq!(link(&links, "self"), [topic.as_str()]);
        assert_eq!(link(&links, "hub"), [format!("{}/hub", running.base)]);
        assert_eq!(running.text(Channel::Changes.topic()).await.as_bytes(), called.body);
        told.push(Read::of(&called.body));
        assert_eq!(other.next().await.field("x-hub-signature"), None);
    }
    assert_joined(&told);

    fields[0].1 = "unsubscribe";
    assert_eq!(running.submit(&fields).await.status(), StatusCode::ACCEPTED);
    let asked = one.next().await;
    assert_eq!((asked.parameter("hub.mode"), asked.parameter("hub.lease_seconds")), (Some("unsubscribe"), None));
    assert_ne!(asked.parameter("hub.challenge"), None);
    running.until_subscriptions_are(1).await;
    running.change(1);
    other.next().await;
    one.assert_left_alone();
}

#[tokio::test]
async fn what_is_not_confirmed_does_not_happen() {
    let running = Running::start().await;
    let topic = running.topic(Channel::Framework);
    let form = |subscriber: &Subscriber, mode| {
        let callback = subscriber.callback.as_str();
        intent(&[("hub.mode", mode), ("hub.callback", callback), ("hub.topic", &topic)])
    };
    let (mut one, mut wrong) = (Subscriber::start().await, Subscriber::that("not ", &[]).await);
    running.hub.decide(form(&wrong, "subscribe")).await;
    assert_eq!(running.hub.count(), 0);
    assert_eq!(wrong.next().await.parameter("hub.lease_seconds"), Some("86400"));
    for (mode, count) in [("subscribe", 1), ("unsubscribe", 0)] {
        running.hub.decide(form(&one, mode)).await;
        assert_eq!(running.hub.count(), count);
        assert_eq!(one.next().await.parameter("hub.mode"), Some(mode));
    }
    assert!(running.hub.grant(wrong.callback.clone(), Channel::Framework, terms(None)));
    running.hub.decide(form(&wrong, "unsubscribe")).await;
    assert_eq!(running.hub.count(), 1);
}

#[tokio::test]
async fn an_unknown_topic_is_refused_and_nobody_is_contacted() {
    let running = Running::start().await;
    let mut subscriber = Subscriber::start().await;
    let topic = format!("{}/notifications/weather", running.base);
    let callback = subscriber.callback.to_string();
    let fields = [("hub.mode", "subscribe"), ("hub.callback", &callback), ("hub.topic", &topic)];
    assert_eq!(running.submit(&fields).await.status(), StatusCode::NOT_FOUND);
    running.hub.decide(intent(&fields)).await;
    // The first that it hears of is what is asked for now.
    let known = running.topic(Channel::Changes);
    let fields = [("hub.mode", "subscribe"), ("hub.callback", &callback), ("hub.topic", &known)];
    assert_eq!(running.submit(&fields).await.status(), StatusCode::ACCEPTED);
    assert_eq!(subscriber.next().await.parameter("hub.topic"), Some(known.as_str()));
}

/// The fields with another value of one, or without it.
fn with<'a>(fields: [(&'a str, &'a str); 3], name: &'a str, value: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let others = fields.into_iter().filter(|(key, _)| *key != name);
    others.chain(value.map(|value| (name, value))).collect()
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_reason() {
    let running = Running::start().await;
    let topic = running.topic(Channel::Changes);
    let long = "s".repeat(200);
    let good = [("hub.mode", "subscribe"), ("hub.callback", "http://127.0.0.1:9/"), ("hub.topic", topic.as_str())];
    for (fields, status) in [
        (with(good, "hub.mode", None), StatusCode::BAD_REQUEST),
        (with(good, "hub.mode", Some("publish")), StatusCode::BAD_REQUEST),
        (with(good, "hub.topic", None), StatusCode::BAD_REQUEST),
        (with(good, "hub.callback", None), StatusCode::BAD_REQUEST),
        (with(good, "hub.callback", Some("called")), StatusCode::BAD_REQUEST),
        (with(good, "hub.callback", Some("http://example.com/called")), StatusCode::FORBIDDEN),
        (with(good, "hub.callback", Some("http://127.0.0.1.example.com/")), StatusCode::FORBIDDEN),
        (with(good, "hub.callback", Some("http://192.0.2.1/")), StatusCode::FORBIDDEN),
        (with(good, "hub.callback", Some("http://[2001:db8::1]/")), StatusCode::FORBIDDEN),
        (with(good, "hub.callback", Some("https://127.0.0.1/")), StatusCode::FORBIDDEN),
        (with(good, "hub.lease_seconds", Some("-1")), StatusCode::BAD_REQUEST),
        (with(good, "hub.lease_seconds", Some("a day")), StatusCode::BAD_REQUEST),
        (with(good, "hub.secret", Some(&long)), StatusCode::BAD_REQUEST),
    ] {
        let response = running.submit(&fields).await;
        assert_eq!(response.status(), status, "{fields:?}");
        assert!(!response.text().await.unwrap().is_empty(), "{fields:?}");
    }
    let other = running.client.post(format!("{}/hub", running.base)).body(form(&good)).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let huge = running.submit(&[("hub.secret", &"s".repeat(1 << 20))]).await;
    assert_eq!(huge.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(running.get("/hub").await.status(), StatusCode::METHOD_NOT_ALLOWED);
    for host in ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "[::1]"] {
        let callback = format!("http://{host}:9/");
        assert_eq!(intent(&with(good, "hub.callback", Some(&callback))).callback.port(), Some(9));
    }
    for (asked, granted) in [("0", 10), ("11", 11), ("99999999", 864_000)] {
        assert_eq!(intent(&with(good, "hub.lease_seconds", Some(asked))).lease.as_secs(), granted);
    }
}

#[tokio::test]
async fn a_subscription_ends_with_its_lease() {
    let running = Running::start().await;
    let (mut one, mut other) = (Subscriber::start().await, Subscriber::start().await);
    let past = Terms { expires: Instant::now(), ..terms(None) };
    assert!(running.hub.grant(one.callback.clone(), Channel::Changes, past.clone()));
    assert!(running.hub.grant(other.callback.clone(), Channel::Changes, terms(None)));
    running.change(1);
    running.until_subscriptions_are(1).await;
    other.notification().await;
    one.assert_left_alone();
    assert!(running.hub.grant(one.callback.clone(), Channel::Changes, terms(None)));
    running.change(1);
    one.notification().await;
    assert!(running.hub.grant(one.callback.clone(), Channel::Changes, past));
    running.until_subscriptions_are(1).await;
}

#[tokio::test]
async fn a_second_subscription_takes_the_place_of_the_first() {
    let running = Running::start().await;
    let mut subscriber = Subscriber::start().await;
    let mut told = Vec::new();
    for secret in ["one", "two"] {
        assert!(running.hub.grant(subscriber.callback.clone(), Channel::Changes, terms(Some(secret))));
        assert_eq!(running.hub.count(), 1);
        for _ in 0..2 {
            running.change(1);
            let called = subscriber.next().await;
            assert_eq!(called.field("x-hub-signature"), Some(signature(secret, &called.body).as_str()));
            told.push(Read::of(&called.body));
        }
    }
    assert_joined(&told);
}

#[tokio::test]
async fn a_delivery_is_tried_again_unless_the_subscriber_is_gone() {
    let running = Running::start().await;
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let answers = [failed, failed, StatusCode::OK, StatusCode::FOUND, failed, failed, StatusCode::GONE];
    let mut subscriber = Subscriber::that("", &answers).await;
    assert!(running.hub.grant(subscriber.callback.clone(), Channel::Changes, terms(None)));
    running.change(3);
    let mut bodies = Vec::new();
    for _ in answers {
        bodies.push(subscriber.next().await.body);
    }
    assert!(bodies[..3].iter().all(|body| *body == bodies[0]));
    assert!(bodies[3..6].iter().all(|body| *body == bodies[3]));
    assert_joined(&[Read::of(&bodies[0]), Read::of(&bodies[3]), Read::of(&bodies[6])]);
    running.until_subscriptions_are(0).await;
    subscriber.assert_left_alone();
}

#[tokio::test]
async fn a_subscriber_that_falls_behind_goes_on_with_what_is_left() {
    let running = Running::start().await;
    let mut subscriber = Subscriber::start().await;
    assert!(running.hub.grant(subscriber.callback.clone(), Channel::Changes, terms(None)));
    running.change(1);
    let first = subscriber.notification().await;
    running.change(WAITING + 10);
    let mut told = Vec::new();
    for _ in 0..WAITING {
        told.push(subscriber.notification().await);
    }
    assert_ne!(first.interval().1, told[0].interval().0);
    assert_joined(&told);
    assert_eq!(told[WAITING - 1].entries, Read::of(running.text(Channel::Changes.topic()).await.as_bytes()).entries);
}

#[tokio::test]
async fn there_is_room_for_so_many_subscriptions() {
    let running = Running::start().await;
    for number in 0..SUBSCRIPTIONS {
        let callback = Url::parse(&format!("http://127.0.0.1:9/{number}")).unwrap();
        assert!(running.hub.grant(callback, Channel::Changes, terms(None)));
    }
    let mut subscriber = Subscriber::start().await;
    let (callback, topic) = (subscriber.callback.to_string(), running.topic(Channel::Changes));
    let fields = [("hub.mode", "subscribe"), ("hub.callback", callback.as_str()), ("hub.topic", &topic)];
    running.hub.decide(intent(&fields)).await;
    assert_eq!(subscriber.next().await.parameter("hub.mode"), Some("subscribe"));
    assert_eq!(subscriber.next().await.parameter("hub.mode"), Some("denied"));
    assert_eq!(running.hub.count(), SUBSCRIPTIONS);
    let known = Url::parse("http://127.0.0.1:9/0").unwrap();
    assert!(running.hub.grant(known, Channel::Changes, terms(None)));
}
