//! A subscription at a hub, from asking for it to taking leave (WebSub 4, 5).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use url::Url;

use super::listener::{HubEvent, HubEventKind, LEASE, MOST_EVENTS, MOST_SHOWN, Subscriber, Verification};
use super::{Context, Phase, backoff};
use crate::document::Datetime;
use crate::printable;
use crate::source::{Asked, SourceError, parse_link_header};
use crate::sync::{Channel, OfferedChannel, Subscription};

/// How long a hub may take to verify that we meant it.
const VERIFIED: Duration = Duration::from_secs(60);
/// The shortest wait before a lease is renewed, or that is tried again.
const SOONEST: Duration = Duration::from_millis(400);
/// The longest time that is slept at once.
const STEP: Duration = Duration::from_secs(60);
/// The longest wait between tries to subscribe, and the wait after a hub said no.
const LONGEST: Duration = Duration::from_secs(600);
const DENIED: Duration = Duration::from_secs(3600);
/// How long a hub that has denied may still verify.
const DENIED_FOR_GOOD: Duration = Duration::from_secs(2);
/// How often a reported end of a subscription makes us ask its hub at most: anybody who knows the path can report it.
const DOUBTED_AGAIN: Duration = Duration::from_secs(60);

/// Why there is no subscription.
enum Failure {
    Denied(String),
    Other(String),
}

/// Of two failures, the one that says what to expect: as long as one hub has not denied, there is hope.
fn worse(before: Option<Failure>, now: Failure) -> Option<Failure> {
    match (before, now) {
        (Some(Failure::Other(before)), Failure::Denied(_)) => Some(Failure::Other(before)),
        (_, now) => Some(now),
    }
}

/// A channel that we are subscribed to, or want to be.
struct Stay<'c> {
    context: &'c Arc<Context>,
    offered: &'c OfferedChannel,
    /// What was asked for: whoever is asked again is asked with the same path and secret.
    asked: Vec<Subscription>,
    /// What a hub granted.
    granted: Option<Subscription>,
    /// The hubs that the Capability List named then: another may have, too.
    named: Vec<String>,
    /// Whether that was in this process, and goes on.
    live: bool,
    /// Whether the end of the granted subscription was reported without having been requested, and when last.
    doubted: Option<tokio::time::Instant>,
    tell: mpsc::Sender<HubEvent>,
    events: mpsc::Receiver<HubEvent>,
}

/// Stays subscribed to a channel, for ever.
pub(super) async fn stay(context: Arc<Context>, offered: OfferedChannel) {
    let (tell, events) = mpsc::channel(MOST_EVENTS);
    let mut stay = Stay {
        context: &context,
        offered: &offered,
        asked: Vec::new(),
        granted: None,
        named: Vec::new(),
        live: false,
        doubted: None,
        tell,
        events,
    };
    stay.resume();
    let mut tries = 0;
    loop {
        if stay.live {
            stay.until_renewal(tries).await;
        }
        let doubted = stay.is_doubted();
        let Err(failure) = stay.subscribe_before_it_lapses().await else {
            tries = 0;
            continue;
        };
        // The hub confirms what was reported.
        let ended_by_hub = doubted && matches!(failure, Failure::Denied(_));
        let (phase, wait) = match failure {
            // What one hub denies takes nothing from another's lease.
            Failure::Other(why) | Failure::Denied(why) if !ended_by_hub && stay.live && !stay.left().is_zero() => {
                let trouble = format!("the lease could not be renewed yet: {why}");
                context.board.note(offered.channel.id, |standing| standing.trouble = Some(trouble));
                tries += 1;
                continue;
            }
            Failure::Other(why) => {
                if stay.live {
                    tries = 0;
                }
                (Phase::Failing(why), backoff(tries, LONGEST))
            }
            Failure::Denied(why) => {
                stay.forget().await;
                (Phase::Denied(why), DENIED.mul_f64(0.9 + 0.2 * fastrand::f64()))
            }
        };
        stay.live = false;
        context.board.note(offered.channel.id, |standing| (standing.hub, standing.expires) = (None, None));
        if tries == 0 {
            let why = phase.reason().unwrap_or_default();
            context.engine.status().error(&format!("{}: not subscribed, trying again: {why}", offered.channel.url));
        }
        context.board.set(offered.channel.id, phase);
        // A hub may take its time, and verify after all.
        tries = if stay.verified_within(wait).await { 0 } else { tries + 1 };
    }
}

impl Stay<'_> {
    fn channel(&self) -> &Channel {
        &self.offered.channel
    }

    /// A lease survives the process: hubs deliver to the same path. Whether they still do, only asking tells.
    fn resume(&mut self) {
        let known = self.channel().subscription.clone();
        // One whose path leads elsewhere by now is none.
        let here = |known: &Subscription| callback(self.context, &known.token).as_ref() == Some(&known.callback);
        if let Some(known) = known.filter(here) {
            self.register(&known, Verification::NotExpected);
            self.asked.push(known);
        }
    }

    /// Whether the end of the subscription was reported a moment ago.
    fn is_doubted(&self) -> bool {
        self.doubted.is_some_and(|doubted| doubted.elapsed() < DOUBTED_AGAIN)
    }

    fn register(&self, subscription: &Subscription, verification: Verification) {
        self.context.registry.put(Subscriber {
            channel: self.channel().clone(),
            subscription: subscription.clone(),
            leaving: false,
            signed: true,
            verification: Mutex::new(verification),
            tell: self.tell.clone(),
        });
    }

    /// Where hubs find us, without what nobody is to know.
    fn shown_callback(&self) -> &str {
        self.context.callback.as_ref().map_or("this mount", Url::as_str)
    }

    /// The hubs that the Capability List names now.
    fn hubs(&self) -> Vec<String> {
        let id = self.channel().id;
        let offered = self.context.board.offered().into_iter().find(|one| one.channel.id == id);
        offered.map(|one| one.hubs).unwrap_or_default()
    }

    /// How much is left of the lease.
    fn left(&self) -> Duration {
        let expires = self.granted.as_ref().and_then(|granted| granted.expires);
        let left = expires.map_or(0, |expires| expires.nanos().saturating_sub(Datetime::now().nanos()));
        Duration::from_nanos(left.max(0).unsigned_abs())
    }

    async fn keep(&self, subscription: Option<&Subscription>) -> Result<(), Failure> {
        let kept = self.context.engine.inbox().keep_subscription(self.channel().id, subscription.cloned()).await;
        kept.map_err(|error| Failure::Other(error.to_string()))
    }

    /// A hub has granted a subscription, or its renewal.
    async fn grant(&mut self, token: &str, lease: Duration) -> Result<(), Failure> {
        let Some(subscription) = self.asked.iter_mut().find(|asked| asked.token == token) else { return Ok(()) };
        let lease = i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX);
        subscription.expires = Some(Datetime::from_nanos(Datetime::now().nanos().saturating_add(lease)));
        let subscription = subscription.clone();
        self.keep(Some(&subscription)).await?;
        if !self.live || self.left().is_zero() {
            // What comes from now on is heard; what came before may have been missed.
            let joined = self.context.engine.inbox().joined(self.channel().id).await;
            joined.map_err(|error| Failure::Other(error.to_string()))?;
            tracing::info!(topic = subscription.topic, hub = subscription.hub, "subscribed");
        }
        self.context.board.note(self.channel().id, |standing| {
            standing.phase = Phase::Live;
            standing.trouble = None;
            standing.hub = Some(subscription.hub.clone());
            standing.expires = subscription.expires;
        });
        self.live = true;
        self.named = self.hubs();
        let before = self.granted.replace(subscription);
        if let Some(before) = before.filter(|before| before.token != token) {
            self.asked.retain(|asked| asked.token != before.token);
            let context = Arc::clone(self.context);
            tokio::spawn(async move { leave_one(&context, &before.token).await });
        }
        Ok(())
    }

    /// A hub has denied, or ended, a subscription: it is not to be counted on, nor after a restart.
    async fn forget(&mut self) {
        self.granted = None;
        if let Err(Failure::Other(error) | Failure::Denied(error)) = self.keep(None).await {
            self.context.engine.status().error(&error);
        }
    }

    /// Waits until it is time to renew, or the hub ends it.
    async fn until_renewal(&mut self, tries: u32) {
        let mut offers = self.context.board.offers();
        offers.mark_unchanged();
        // Half of what is left, more or less: there is time to try again, and mirrors do not renew all at once.
        let part = if tries == 0 { 0.5 + 0.2 * fastrand::f64() } else { 0.25 };
        let mut wait = self.left().mul_f64(part).max(SOONEST);
        if self.moved() {
            // Another hub is to be asked, however long this one's lease is.
            wait = if tries == 0 { Duration::ZERO } else { wait.min(backoff(tries, LONGEST)) };
        }
        loop {
            if wait.is_zero() {
                return;
            }
            let began = Datetime::now();
            tokio::select! {
                // In short steps: a machine that slept has to notice.
                () = tokio::time::sleep(wait.min(STEP)) => {
                    let passed = Datetime::now().nanos().saturating_sub(began.nanos()).max(1).unsigned_abs();
                    wait = wait.saturating_sub(Duration::from_nanos(passed));
                }
                Some(event) = self.events.recv() => match event.kind {
                    HubEventKind::Verified(lease) => {
                        // The hub answers a request that was given up.
                        if self.grant(&event.token, lease).await.is_ok() {
                            wait = self.left().mul_f64(part).max(SOONEST);
                        }
                    }
                    // What nothing was requested for, or too long ago: only a renewal shows whether it is the hub's.
                    HubEventKind::Denied(_) | HubEventKind::Doubted
                        if self.is_granted(&event.token) && !self.is_doubted() =>
                    {
                        self.doubted = Some(tokio::time::Instant::now());
                        return;
                    }
                    HubEventKind::Denied(_) | HubEventKind::Doubted | HubEventKind::Unsubscribed => {}
                },
                _ = offers.changed() => {
                    if self.moved() {
                        return;
                    }
                }
            }
        }
    }

    /// Whether the Capability List names other hubs than it did, and not the one that we are subscribed at.
    fn moved(&self) -> bool {
        let hubs = self.hubs();
        !hubs.is_empty()
            && hubs != self.named
            && !self.granted.as_ref().is_some_and(|granted| hubs.contains(&granted.hub))
    }

    fn is_granted(&self, token: &str) -> bool {
        self.granted.as_ref().is_some_and(|granted| granted.token == token)
    }

    /// Waits, as long as no other hubs are offered, and hears whether one verifies meanwhile.
    async fn verified_within(&mut self, wait: Duration) -> bool {
        let mut offers = self.context.board.offers();
        offers.mark_unchanged();
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return false,
                _ = offers.changed() => return false,
                Some(event) = self.events.recv() => {
                    if let HubEventKind::Verified(lease) = event.kind
                        && self.grant(&event.token, lease).await.is_ok()
                        && self.live
                    {
                        return true;
                    }
                }
            }
        }
    }

    /// Subscribes, and does not look subscribed when the lease ends before a hub has answered.
    async fn subscribe_before_it_lapses(&mut self) -> Result<(), Failure> {
        let (context, id) = (Arc::clone(self.context), self.channel().id);
        let (live, left) = (self.live, self.left());
        let subscribing = self.subscribe();
        tokio::pin!(subscribing);
        tokio::select! {
            done = &mut subscribing => return done,
            () = tokio::time::sleep(left), if live => {}
        }
        context.board.set(id, Phase::Failing("the lease ended, and no hub has renewed it yet".to_owned()));
        subscribing.await
    }

    /// Subscribes at the first hub that takes us.
    async fn subscribe(&mut self) -> Result<(), Failure> {
        let hubs = self.hubs();
        let own = self.channel().url.clone();
        let mut asked: Vec<(String, String)> = Vec::new();
        let mut failure = None;
        // Who has taken us is asked first, for what it took us for.
        let granted = self.granted.iter().filter(|granted| hubs.contains(&granted.hub) || hubs.is_empty());
        let granted: Vec<_> = granted.map(|granted| (granted.hub.clone(), granted.topic.clone())).collect();
        let named = hubs.iter().map(|hub| (hub.clone(), own.clone()));
        for pair in granted.into_iter().chain(named) {
            if !asked.contains(&pair) {
                match self.subscribe_at(pair.0.clone(), pair.1.clone()).await {
                    Ok(()) => return Ok(()),
                    Err(error) => failure = worse(failure, error),
                }
                asked.push(pair);
            }
        }
        // The topic itself knows its hubs, too, and may have another name for itself (WebSub 4).
        match (discover(self.context, &own).await, failure) {
            (Ok((found, topic)), mut failure) => {
                for hub in found.into_iter().chain(hubs) {
                    let pair = (hub, topic.clone());
                    if asked.contains(&pair) {
                        continue;
                    }
                    match self.subscribe_at(pair.0.clone(), pair.1.clone()).await {
                        Ok(()) => return Ok(()),
                        Err(error) => failure = worse(failure, error),
                    }
                    asked.push(pair);
                }
                Err(failure.unwrap_or_else(|| {
                    Failure::Other(format!("{own}: neither the Capability List nor the topic's own Link names a hub"))
                }))
            }
            (Err(_), Some(failure)) => Err(failure),
            (Err(error), None) => Err(Failure::Other(error.to_string())),
        }
    }

    /// A subscription that was not asked for yet.
    async fn fresh(&mut self, hub: String, topic: String) -> Result<Subscription, Failure> {
        let token = unguessable::<24>().map_err(Failure::Other)?;
        let callback = callback(self.context, &token);
        let callback = callback.ok_or_else(|| Failure::Other("there is no callback".to_owned()))?;
        let secret = unguessable::<32>().map_err(Failure::Other)?;
        let fresh = Subscription { callback, token, secret, hub, topic, expires: None };
        if !self.live {
            // Whatever becomes of us, the hub's answer will be understood.
            self.keep(Some(&fresh)).await?;
        }
        self.asked.push(fresh.clone());
        Ok(fresh)
    }

    async fn subscribe_at(&mut self, hub: String, topic: String) -> Result<(), Failure> {
        let known = self.asked.iter().find(|asked| asked.hub == hub && asked.topic == topic);
        let subscription = match known {
            Some(known) => known.clone(),
            None => self.fresh(hub, topic).await?,
        };
        self.register(&subscription, Verification::Expected);
        // Of an earlier try.
        while self.events.try_recv().is_ok() {}
        let posted = post(self.context, "subscribe", &subscription).await;
        if posted.is_ok() && !self.live {
            let trouble =
                format!("the hub took it, and has not asked {} yet whether it is meant", self.shown_callback());
            self.context.board.note(self.channel().id, |standing| standing.trouble = Some(trouble));
        }
        // It may verify before it answers, and answer too late.
        let patience = if posted.is_ok() { VERIFIED } else { Duration::ZERO };
        let mut deadline = tokio::time::Instant::now() + patience;
        let mut denied = None;
        loop {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some(HubEvent { token, kind })) if token == subscription.token => match kind {
                    HubEventKind::Verified(lease) => return self.grant(&token, lease).await,
                    // Anybody who knows the path can report that: a hub that means it does not verify. While a lease runs, there
                    // is more time to wait for that.
                    HubEventKind::Denied(why) => {
                        denied = Some(format!("{}: it denies: {why}", subscription.hub));
                        let wait = if self.live { self.left() / 2 } else { DENIED_FOR_GOOD };
                        deadline = deadline.min(tokio::time::Instant::now() + wait.max(DENIED_FOR_GOOD));
                    }
                    HubEventKind::Doubted | HubEventKind::Unsubscribed => {}
                },
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        if let Some(denied) = denied {
            return Err(Failure::Denied(denied));
        }
        Err(Failure::Other(posted.err().unwrap_or_else(|| {
            let (hub, seconds, callback) = (&subscription.hub, VERIFIED.as_secs(), self.shown_callback());
            format!("{hub}: it took the subscription, and did not verify it for {seconds} s; can it reach {callback}?")
        })))
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
        false => {
            Err(format!("{hub}: the hub answers {} {}", posted.status, printable::short_line(&posted.text, MOST_SHOWN)))
        }
    }
}

/// Where a hub finds us.
pub(super) fn callback(context: &Context, token: &str) -> Option<String> {
    let mut url = context.callback.clone()?;
    url.path_segments_mut().ok()?.pop_if_empty().push(token);
    Some(url.into())
}

/// The hubs of a topic, and its own name for itself (WebSub 4).
async fn discover(context: &Context, topic: &str) -> Result<(Vec<String>, String), SourceError> {
    let patience = Some(context.client.timeout());
    let head = Asked { head: true, patience, ..Asked::default() };
    let answer = match context.client.ask(topic, &head).await {
        Ok(answer) if answer.header_values("link").next().is_some() => answer,
        // Some know GET alone.
        _ => context.client.ask(topic, &Asked { patience, ..Asked::default() }).await?,
    };
    let links: Vec<_> = answer.header_values("link").flat_map(parse_link_header).collect();
    let targets = |rel: &str| -> Vec<String> {
        let named = links.iter().filter(|link| link.is(rel)).filter_map(|link| answer.url.join(&link.href).ok());
        named.map(String::from).collect()
    };
    let own = targets("self").into_iter().next().unwrap_or_else(|| topic.to_owned());
    Ok((targets("hub"), own))
}

/// Random text, of so many random bytes.
pub(super) fn unguessable<const N: usize>() -> Result<String, String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Takes leave of the hubs of a channel, if it has any.
pub(super) async fn leave(context: &Context, channel: i64) {
    let known: Vec<_> = context.registry.all().into_iter().filter(|one| one.channel.id == channel).collect();
    if known.iter().any(|one| !one.signed) {
        // There is no way to say so: it goes on posting, and finds the same path if we come back.
        known.iter().for_each(|one| context.registry.remove(&one.subscription.token));
        return;
    }
    // Whatever they answer: nobody is to count on it any more.
    if let Err(error) = context.engine.inbox().keep_subscription(channel, None).await {
        context.engine.status().error(&error.to_string());
    }
    let tokens: Vec<String> = known.iter().map(|one| one.subscription.token.clone()).collect();
    futures_util::future::join_all(tokens.iter().map(|token| leave_one(context, token))).await;
}

/// Takes leave of one hub, and answers when it asks whether that is meant.
async fn leave_one(context: &Context, token: &str) {
    let Some(subscriber) = context.registry.get(token) else { return };
    let (tell, mut events) = mpsc::channel(MOST_EVENTS);
    let subscription = subscriber.subscription.clone();
    let channel = subscriber.channel.clone();
    context.registry.put(Subscriber {
        channel,
        subscription: subscription.clone(),
        leaving: true,
        signed: true,
        verification: Mutex::new(Verification::Expected),
        tell,
    });
    match post(context, "unsubscribe", &subscription).await {
        Ok(()) => drop(tokio::time::timeout(VERIFIED, events.recv()).await),
        Err(error) => tracing::info!(error, "a hub could not be told that nobody listens; its lease ends by itself"),
    }
    context.registry.remove(token);
}

/// Takes leave of all hubs.
pub(super) async fn leave_all(context: &Context) {
    let channels: std::collections::HashSet<i64> =
        context.registry.all().iter().map(|subscriber| subscriber.channel.id).collect();
    futures_util::future::join_all(channels.into_iter().map(|channel| leave(context, channel))).await;
}
