//! A subscription at a hub, from asking for it to taking leave (WebSub 4, 5).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tokio::sync::mpsc;

use super::listener::{MOST_SAID, Said, Subscriber};
use super::{Context, Phase, backoff};
use crate::document::Datetime;
use crate::source::{Asked, SourceError, parse_link_header};
use crate::sync::{Channel, OfferedChannel, Subscription};

/// The lease that is asked for, in seconds: ten days, as the Recommendation suggests.
const LEASE: u64 = 864_000;
/// The longest lease that is believed.
const LONGEST_LEASE: Duration = Duration::from_secs(366 * 86_400);
/// How long a hub may take to verify that we meant it.
const VERIFIED: Duration = Duration::from_secs(60);
/// The shortest wait before a lease is renewed, or that is tried again.
const SOONEST: Duration = Duration::from_millis(400);
/// The longest wait between tries to subscribe, and the wait after a hub said no.
const LONGEST: Duration = Duration::from_secs(600);
const DENIED: Duration = Duration::from_secs(3600);

/// Why there is no subscription.
enum Failure {
    Denied(String),
    Other(String),
}

/// What a subscription of ours needs while it lasts.
struct Stay<'c> {
    context: &'c Arc<Context>,
    offered: &'c OfferedChannel,
    tell: mpsc::Sender<Said>,
    said: mpsc::Receiver<Said>,
}

/// Stays subscribed to a channel, for ever.
pub(super) async fn stay(context: Arc<Context>, offered: OfferedChannel) {
    let id = offered.channel.id;
    let (tell, said) = mpsc::channel(MOST_SAID);
    let mut stay = Stay { context: &context, offered: &offered, tell, said };
    // One whose path leads elsewhere by now is none.
    let mut subscription = offered
        .channel
        .subscription
        .clone()
        .filter(|known| callback(&context, &known.token).as_ref() == Some(&known.callback));
    // A lease survives the process: hubs deliver to the same path.
    let mut live = match &subscription {
        Some(known) if known.expires.is_some_and(|expires| expires > Datetime::now()) => {
            stay.register(known);
            stay.joined(known).await;
            true
        }
        _ => false,
    };
    let mut tries = 0;
    loop {
        if live && let Some(known) = &mut subscription {
            live = stay.until_renewal(known, tries).await;
            if !live {
                tries = 0;
            }
        }
        match stay.subscribe(subscription.clone(), live).await {
            Ok(granted) => {
                tries = 0;
                if live {
                    stay.note(&granted);
                } else {
                    stay.joined(&granted).await;
                }
                (subscription, live) = (Some(granted), true);
            }
            Err(failure) => {
                live &= subscription.as_ref().and_then(|one| one.expires).is_some_and(|end| end > Datetime::now());
                let (phase, wait) = match failure {
                    Failure::Denied(why) => {
                        live = false;
                        (Phase::Denied(why), DENIED.mul_f64(0.9 + 0.2 * fastrand::f64()))
                    }
                    Failure::Other(why) => (Phase::Failing(why), backoff(tries, LONGEST)),
                };
                if tries == 0 {
                    tracing::warn!(topic = offered.channel.url, why = phase.reason(), "cannot subscribe; trying again");
                }
                if !live {
                    context.board.set(id, phase);
                    tokio::time::sleep(wait).await;
                }
                tries += 1;
            }
        }
    }
}

impl Stay<'_> {
    fn channel(&self) -> &Channel {
        &self.offered.channel
    }

    fn register(&self, subscription: &Subscription) {
        self.context.registry.put(Subscriber {
            channel: self.channel().clone(),
            subscription: subscription.clone(),
            leaving: false,
            tell: self.tell.clone(),
        });
    }

    fn note(&self, subscription: &Subscription) {
        self.context.board.note(self.channel().id, |standing| {
            standing.phase = Phase::Live;
            standing.hub = Some(subscription.hub.clone());
            standing.expires = subscription.expires;
        });
    }

    /// What comes from now on is heard; what came before may have been missed.
    async fn joined(&self, subscription: &Subscription) {
        if let Err(error) = self.context.engine.joined(self.channel().id).await {
            self.context.engine.status().error(&error.to_string());
        }
        self.note(subscription);
        tracing::info!(topic = subscription.topic, hub = subscription.hub, "subscribed");
    }

    async fn keep(&self, subscription: &Subscription) -> Result<(), Failure> {
        let kept = self.context.engine.keep_subscription(self.channel().id, Some(subscription.clone())).await;
        kept.map_err(|error| Failure::Other(error.to_string()))
    }

    /// Waits until it is time to renew. False if the subscription has ended by then.
    async fn until_renewal(&mut self, subscription: &mut Subscription, tries: u32) -> bool {
        // Half of what is left, more or less: there is time to try again, and mirrors do not renew all at once.
        let part = if tries == 0 { 0.5 + 0.2 * fastrand::f64() } else { 0.25 };
        let wake = tokio::time::sleep(left(subscription).mul_f64(part).max(SOONEST));
        tokio::pin!(wake);
        loop {
            tokio::select! {
                () = &mut wake => return left(subscription) > Duration::ZERO,
                Some(said) = self.said.recv() => match said {
                    Said::Verified(lease) => {
                        // A hub may renew by itself.
                        subscription.expires = Some(end_of(lease));
                        if self.keep(subscription).await.is_ok() {
                            self.note(subscription);
                        }
                        return true;
                    }
                    Said::Denied(why) => {
                        self.context.board.set(self.channel().id, Phase::Denied(why));
                        return false;
                    }
                    Said::Unsubscribed => {}
                },
            }
        }
    }

    /// Subscribes at the first hub that takes us. What is known already is renewed with the same path and secret.
    async fn subscribe(&mut self, known: Option<Subscription>, live: bool) -> Result<Subscription, Failure> {
        let mut failure = None;
        let named: Vec<(String, String)> =
            self.offered.hubs.iter().map(|hub| (hub.clone(), self.channel().url.clone())).collect();
        for (hub, topic) in named {
            match self.subscribe_at(known.as_ref(), hub, topic, live).await {
                Ok(granted) => return Ok(granted),
                Err(error) => failure = Some(error),
            }
        }
        // The topic itself knows its hubs, too (WebSub 4).
        match (discover(self.context, &self.channel().url).await, failure) {
            (Ok((hubs, topic)), mut failure) => {
                for hub in hubs.into_iter().filter(|hub| !self.offered.hubs.contains(hub)) {
                    match self.subscribe_at(known.as_ref(), hub, topic.clone(), live).await {
                        Ok(granted) => return Ok(granted),
                        Err(error) => failure = Some(error),
                    }
                }
                Err(failure.unwrap_or_else(|| {
                    let url = &self.channel().url;
                    Failure::Other(format!("{url}: neither the Capability List nor the topic's own Link names a hub"))
                }))
            }
            (Err(_), Some(failure)) => Err(failure),
            (Err(error), None) => Err(Failure::Other(error.to_string())),
        }
    }

    async fn subscribe_at(
        &mut self,
        known: Option<&Subscription>,
        hub: String,
        topic: String,
        live: bool,
    ) -> Result<Subscription, Failure> {
        let context = self.context;
        let mut subscription = match known.filter(|known| known.hub == hub && known.topic == topic) {
            Some(known) => known.clone(),
            None => {
                let token = unguessable::<24>()?;
                let callback = callback(context, &token);
                Subscription {
                    callback: callback.ok_or_else(|| Failure::Other("there is no callback".to_owned()))?,
                    token,
                    secret: unguessable::<32>()?,
                    hub,
                    topic,
                    expires: None,
                }
            }
        };
        if !live {
            // Whatever becomes of us, the hub's answer will be understood.
            subscription.expires = None;
            self.keep(&subscription).await?;
        }
        self.register(&subscription);
        // Of an earlier try.
        while self.said.try_recv().is_ok() {}
        self.post("subscribe", &subscription).await?;
        let lease = match tokio::time::timeout(VERIFIED, self.said.recv()).await {
            Ok(Some(Said::Verified(lease))) => lease,
            Ok(Some(Said::Denied(why))) => {
                context.registry.remove(&subscription.token);
                return Err(Failure::Denied(format!("{}: it denies: {why}", subscription.hub)));
            }
            Ok(Some(Said::Unsubscribed) | None) | Err(_) => {
                let (hub, seconds) = (&subscription.hub, VERIFIED.as_secs());
                return Err(Failure::Other(format!(
                    "{hub}: it took the subscription, but did not verify it within {seconds} s; can it reach callback=?"
                )));
            }
        };
        subscription.expires = Some(end_of(lease));
        self.keep(&subscription).await?;
        self.register(&subscription);
        Ok(subscription)
    }

    async fn post(&self, mode: &str, subscription: &Subscription) -> Result<(), Failure> {
        post(self.context, mode, subscription).await.map_err(Failure::Other)
    }
}

/// Asks a hub for something (WebSub 5.1).
async fn post(context: &Context, mode: &str, subscription: &Subscription) -> Result<(), String> {
    let hub = &subscription.hub;
    let lease = LEASE.to_string();
    let form = [
        ("hub.mode", mode),
        ("hub.topic", subscription.topic.as_str()),
        ("hub.callback", subscription.callback.as_str()),
        ("hub.lease_seconds", lease.as_str()),
        ("hub.secret", subscription.secret.as_str()),
    ];
    let posted = context.client.post_form(hub, &form).await.map_err(|error| error.to_string())?;
    match posted.is_good() {
        true => Ok(()),
        // It may repeat what it was sent.
        false if [&subscription.token, &subscription.secret].iter().any(|secret| posted.text.contains(*secret)) => {
            Err(format!("{hub}: the hub answers {}", posted.status))
        }
        false => Err(format!("{hub}: the hub answers {} {}", posted.status, posted.text)),
    }
}

/// Where a hub finds us.
fn callback(context: &Context, token: &str) -> Option<String> {
    let mut url = context.callback.clone()?;
    url.path_segments_mut().ok()?.pop_if_empty().push(token);
    Some(url.into())
}

/// The hubs of a topic, and its own name for itself (WebSub 4).
async fn discover(context: &Context, topic: &str) -> Result<(Vec<String>, String), SourceError> {
    let patience = Some(context.client.timeout());
    let head = Asked { head: true, patience, ..Asked::default() };
    let answer = match context.client.ask(topic, &head).await {
        Ok(answer) => answer,
        // Some know GET alone.
        Err(_) => context.client.ask(topic, &Asked { patience, ..Asked::default() }).await?,
    };
    let links: Vec<_> = answer.header_values("link").flat_map(parse_link_header).collect();
    let targets = |rel: &str| -> Vec<String> {
        let named = links.iter().filter(|link| link.is(rel)).filter_map(|link| answer.url.join(&link.href).ok());
        named.map(String::from).collect()
    };
    let own = targets("self").into_iter().next().unwrap_or_else(|| topic.to_owned());
    Ok((targets("hub"), own))
}

/// How much is left of a lease.
fn left(subscription: &Subscription) -> Duration {
    let left = subscription.expires.map_or(0, |expires| expires.nanos().saturating_sub(Datetime::now().nanos()));
    Duration::from_nanos(left.max(0).unsigned_abs())
}

/// When a lease ends that is granted now. A hub that does not say grants what was asked for.
fn end_of(lease: Option<Duration>) -> Datetime {
    let lease = lease.unwrap_or(Duration::from_secs(LEASE)).min(LONGEST_LEASE);
    Datetime::from_nanos(Datetime::now().nanos().saturating_add(i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX)))
}

/// Random text, of so many random bytes.
fn unguessable<const N: usize>() -> Result<String, Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Failure::Other(format!("no random numbers: {error}")))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Takes leave of the hub of a channel, if it has one.
pub(super) async fn leave(context: &Context, channel: i64) {
    let known = context.registry.all().into_iter().filter(|one| one.channel.id == channel);
    for subscriber in known {
        let subscription = subscriber.subscription.clone();
        let (tell, mut said) = mpsc::channel(MOST_SAID);
        let own = subscriber.channel.clone();
        let leaving = Subscriber { channel: own, subscription: subscription.clone(), leaving: true, tell };
        context.registry.put(leaving);
        let left = match post(context, "unsubscribe", &subscription).await {
            Ok(()) => said.recv().await.is_some(),
            Err(error) => {
                tracing::info!(error, "the hub could not be told that the mount ends; its lease ends by itself");
                false
            }
        };
        context.registry.remove(&subscription.token);
        if left && let Err(error) = context.engine.keep_subscription(channel, None).await {
            context.engine.status().error(&error.to_string());
        }
    }
}

/// Takes leave of all hubs.
pub(super) async fn leave_all(context: &Context) {
    let channels: std::collections::HashSet<i64> =
        context.registry.all().iter().map(|subscriber| subscriber.channel.id).collect();
    futures_util::future::join_all(channels.into_iter().map(|channel| leave(context, channel))).await;
}
