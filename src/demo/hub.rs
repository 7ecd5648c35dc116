//! The hub of the demo Source (WebSub): it takes subscriptions to the topics, and delivers what is sent on them.
//!
//! A subscription is what its subscriber confirmed, and ends with its lease. Each has a task that delivers one
//! notification after the other, so a slow subscriber delays nobody else; one that falls too far behind misses
//! some. Nothing but loopback is ever contacted.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use hmac::{Hmac, Mac as _};
use parking_lot::{Mutex, MutexGuard, RwLock};
use sha2::Sha256;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use url::Url;

use super::Content;
use super::answers::plain;
use super::intent::{Intent, Mode};
use super::life::Life;
use super::notifications::{Channel, MEDIA, links};

/// How many subscriptions there may be.
pub(super) const SUBSCRIPTIONS: usize = 64;
/// How many requests may wait for their verification.
const VERIFIED_AT_ONCE: usize = 64;
/// How long a callback may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often delivery of a notification is tried, and the pause before it is tried again.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(250);

/// A subscription is known by its callback and what it is about.
type Key = (Url, Channel);

/// What was agreed with a subscriber.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) expires: Instant,
    /// With the secret as its key.
    pub(super) signer: Option<Hmac<Sha256>>,
}

/// The hub.
pub(super) struct Hub {
    content: Arc<RwLock<Content>>,
    base: String,
    life: Life,
    client: reqwest::Client,
    verifications: Arc<Semaphore>,
    /// Changed only under this lock, as are the terms of each. A task goes on while its terms are here.
    subscriptions: Mutex<HashMap<Key, watch::Sender<Terms>>>,
}

/// Answers a request to subscribe or unsubscribe, before it is verified.
pub(super) async fn request(State(hub): State<Arc<Hub>>, headers: HeaderMap, form: Bytes) -> Response<Body> {
    let intent = match Intent::read(&headers, &form) {
        Ok(intent) => intent,
        Err((status, reason)) => return plain(status, reason),
    };
    // Nobody is contacted for the sake of nothing.
    if hub.channel(&intent).is_none() {
        return plain(StatusCode::NOT_FOUND, "this hub has no such topic\n");
    }
    let Ok(place) = Arc::clone(&hub.verifications).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many requests wait to be verified\n");
    };
    hub.life.clone().spawn(async move {
        hub.decide(intent).await;
        drop(place);
    });
    plain(StatusCode::ACCEPTED, "")
}

/// The callback with parameters added to its query.
fn ask(callback: &Url, parameters: &[(&str, &str)]) -> Url {
    let mut url = callback.clone();
    url.query_pairs_mut().extend_pairs(parameters);
    url
}

impl Hub {
    /// # Errors
    /// If no client can be made.
    pub(super) fn new(content: Arc<RwLock<Content>>, life: Life) -> reqwest::Result<Self> {
        // Fails only if it was set before, to the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let loopback = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .resolve_to_addrs("localhost", &loopback)
            .tls_certs_only([])
            .timeout(TIMEOUT)
            .build()?;
        let base = content.read().base.clone();
        let verifications = Arc::new(Semaphore::new(VERIFIED_AT_ONCE));
        Ok(Self { content, base, life, client, verifications, subscriptions: Mutex::default() })
    }

    fn subscriptions(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<Terms>>> {
        self.subscriptions.lock()
    }

    /// The channel that a request is about.
    fn channel(&self, intent: &Intent) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| format!("{}{}", self.base, channel.topic()) == intent.topic)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.subscriptions().len()
    }

    pub(super) async fn decide(self: &Arc<Self>, intent: Intent) {
        let Some(channel) = self.channel(&intent) else { return };
        if !self.verify(&intent).await {
            tracing::debug!(callback = %intent.callback, "the intent was not confirmed");
            return;
        }
        match intent.mode {
            Mode::Unsubscribe => {
                self.subscriptions().remove(&(intent.callback, channel));
            }
            Mode::Subscribe => {
                let terms = Terms { expires: Instant::now() + intent.lease, signer: intent.signer.clone() };
                if !self.grant(intent.callback.clone(), channel, terms) {
                    self.deny(&intent, "there is no room for more subscriptions").await;
                }
            }
        }
    }

    /// Asks the callback whether it was meant: only the challenge itself says so.
    async fn verify(&self, intent: &Intent) -> bool {
        let mut random = [0; 24];
        if let Err(error) = getrandom::fill(&mut random) {
            tracing::warn!(%error, "no challenge can be made");
            return false;
        }
        let challenge = URL_SAFE_NO_PAD.encode(random);
        let lease = intent.lease.as_secs().to_string();
        let mut parameters =
            vec![("hub.mode", intent.mode.name()), ("hub.topic", &intent.topic), ("hub.challenge", &challenge)];
        if intent.mode == Mode::Subscribe {
            parameters.push(("hub.lease_seconds", &lease));
        }
        let asked = self.client.get(ask(&intent.callback, &parameters)).send().await;
        let Ok(mut answer) = asked else { return false };
        let mut body = Vec::new();
        while let Ok(Some(part)) = answer.chunk().await {
            body.extend_from_slice(&part);
            if body.len() > challenge.len() {
                return false;
            }
        }
        answer.status().is_success() && body == challenge.as_bytes()
    }

    async fn deny(&self, intent: &Intent, reason: &str) {
        let parameters = [("hub.mode", "denied"), ("hub.topic", &intent.topic), ("hub.reason", reason)];
        if let Err(error) = self.client.get(ask(&intent.callback, &parameters)).send().await {
            tracing::debug!(%error, callback = %intent.callback, "the callback does not know that it was denied");
        }
    }

    /// Begins a subscription, or gives it other terms; false if there is no room for it.
    pub(super) fn grant(self: &Arc<Self>, callback: Url, channel: Channel, terms: Terms) -> bool {
        let notifications = self.content.read().listen(channel);
        let key = (callback, channel);
        let mut subscriptions = self.subscriptions();
        if let Some(known) = subscriptions.get(&key) {
            known.send_replace(terms);
            return true;
        }
        if subscriptions.len() >= SUBSCRIPTIONS {
            return false;
        }
        let (sender, terms) = watch::channel(terms);
        subscriptions.insert(key.clone(), sender);
        let hub = Arc::clone(self);
        let mut watched = terms.clone();
        self.life.spawn(async move {
            let unsubscribed = async { while watched.changed().await.is_ok() {} };
            tokio::select! {
                () = unsubscribed => {}
                () = hub.serve(&key, terms, notifications) => {}
            }
        });
        true
    }

    /// Delivers to a subscriber until the subscription ends.
    async fn serve(
        &self,
        key: &Key,
        mut terms: watch::Receiver<Terms>,
        mut notifications: broadcast::Receiver<Utf8Bytes>,
    ) {
        loop {
            let expires = terms.borrow_and_update().expires;
            let ends = tokio::select! {
                biased;
                changed = terms.changed() => changed.is_err(),
                () = tokio::time::sleep_until(expires) => self.end(key, &terms),
                next = notifications.recv() => match next {
                    Ok(text) => self.deliver(key, &terms, text.into()).await && self.end(key, &terms),
                    Err(RecvError::Lagged(skipped)) => {
                        tracing::warn!(callback = %key.0, skipped, "a subscriber is too slow for its notifications");
                        false
                    }
                    Err(RecvError::Closed) => true,
                },
            };
            if ends {
                return;
            }
        }
    }

    /// Ends a subscription, unless it has got other terms than those that were seen last.
    fn end(&self, key: &Key, terms: &watch::Receiver<Terms>) -> bool {
        let mut subscriptions = self.subscriptions();
        match terms.has_changed() {
            Ok(true) => false,
            Ok(false) => subscriptions.remove(key).is_some(),
            // Another may have begun in its place.
            Err(_) => true,
        }
    }

    /// Delivers a notification, or gives it up; true if the subscriber is gone for good.
    async fn deliver(&self, key: &Key, terms: &watch::Receiver<Terms>, body: Bytes) -> bool {
        let (callback, channel) = key;
        for tried in 0..TRIES {
            if tried > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let Terms { expires, signer } = terms.borrow().clone();
            if expires <= Instant::now() {
                return false;
            }
            let mut request = self
                .client
                .post(callback.clone())
                .header(header::CONTENT_TYPE, MEDIA)
                .header(header::LINK, links(&self.base, *channel))
                .body(body.clone());
            if let Some(signer) = signer {
                let signature = signer.chain_update(&body).finalize().into_bytes();
                request = request.header("x-hub-signature", format!("sha256={}", HEXLOWER.encode(&signature)));
            }
            match request.send().await {
                Ok(answer) if answer.status().is_success() => return false,
                Ok(answer) if answer.status() == StatusCode::GONE => return true,
                Ok(answer) => tracing::debug!(%callback, status = %answer.status(), "a notification was refused"),
                Err(error) => tracing::debug!(%callback, %error, "a notification did not arrive"),
            }
        }
        tracing::warn!(%callback, "a notification was given up");
        false
    }
}
