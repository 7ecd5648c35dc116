//! What was delivered on channels of notifications, and how it gets into the tree (Change Notification 3).
//!
//! A delivery is kept on the disk before anybody is told that it came. Those that tell all changes of an interval are
//! applied as a Change List is, each once its interval joins those before it. What does not join soon, or tells no
//! more than that something has changed, makes the lists be read; so nothing that went astray is missed. Where the
//! lists are followed from is not moved by notifications: what is told in both ways counts once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::coverage::{GRACE, Plan, Standing, plan};
use crate::catalog::{Channel, NewDelivery, Offer, Reading, SetId, SetRow, SetState, Subscription};
use crate::document::{Capability, Datetime};
use crate::sync::apply::notified::{self, Delivered, Told};
use crate::sync::apply::step_context::StepContext;
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::notification_body;
use crate::sync::notification_body::Announced;
use crate::sync::summary::Summary;
use crate::sync::waits::until;

/// Over so long a fleet of mirrors spreads its requests after all of them heard the same.
const SPREAD: Duration = Duration::from_secs(1);
/// When lists are looked at again that a notification led to: they may be written after it is sent.
const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];
/// The first and the longest wait after lists could not be read.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// So many syncs in a row may leave a part unread before what they did read has to do.
const MOST_PARTIAL: u32 = 3;
/// While changes are delivered, polls are so many times further apart at most.
const MOST_SLOWER: u32 = 16;
/// How often the log is told of notifications at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// The most deliveries in one step, and bytes of them if they are more than one.
const BATCH: (usize, u64) = (256, 16 << 20);
/// What may wait on one channel, in deliveries and in bytes. Of more it is only kept that something came.
const MOST_WAITING: (u64, u64) = (20_000, 256 << 20);

/// A channel that a set offers.
#[derive(Clone, Debug)]
pub struct OfferedChannel {
    /// What is known of it.
    pub channel: Channel,
    /// The name of its set.
    pub set: String,
    /// The hubs that the Capability List names.
    pub hubs: Vec<String>,
}

/// What came on a channel since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Deliveries that were kept.
    pub received: u64,
    /// Those that had come before.
    pub repeated: u64,
    /// Those that told no more than that something has changed.
    pub pings: u64,
    /// How often an interval did not join those before it, and the lists were read.
    pub gaps: u64,
    /// When the last one came, by our clock.
    pub last: Option<Datetime>,
    /// Up to when the notifications are in the tree without a gap, by the Source's clock.
    pub until: Option<Datetime>,
    /// From the end of the interval that was applied last, by the Source's clock, to when it was in the tree, by ours.
    pub lag: Option<Duration>,
}

/// What the engine keeps in mind of channels.
#[derive(Debug)]
pub struct Inbox {
    context: Arc<Context>,
    wake: Notify,
    /// The number of the last delivery that had come before the lists were read.
    caught_up: AtomicI64,
    /// The number of the last one of which all documents were read that it names.
    named: AtomicI64,
    /// Whether a channel was joined since then, or told something that only lists make clear.
    joined: AtomicBool,
    /// Syncs in a row of which a part could not be read.
    partial: AtomicU32,
    /// How much further apart polls are than they would be without channels.
    pub(in crate::sync) slower: AtomicU32,
    /// Changes that polls found while everything was to be delivered.
    missed: AtomicU64,
    heard: Mutex<HashMap<i64, Heard>>,
    /// When a ping was written down last, by channel.
    pinged: Mutex<HashMap<i64, Instant>>,
    /// Whether everything that changes is delivered.
    pub(in crate::sync) live: watch::Sender<bool>,
}

impl Inbox {
    pub(in crate::sync) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            wake: Notify::new(),
            caught_up: AtomicI64::new(0),
            named: AtomicI64::new(0),
            joined: AtomicBool::new(false),
            partial: AtomicU32::new(0),
            slower: AtomicU32::new(1),
            missed: AtomicU64::new(0),
            heard: Mutex::new(HashMap::new()),
            pinged: Mutex::new(HashMap::new()),
            live: watch::Sender::new(false),
        }
    }

    /// Whether a ping of a channel was written down within the last second; if not, this one is to be.
    fn pinged_lately(&self, channel: i64) -> bool {
        let mut pinged = self.pinged.lock();
        let now = Instant::now();
        let lately = pinged.get(&channel).is_some_and(|last| now.duration_since(*last) < SPREAD);
        if !lately {
            pinged.insert(channel, now);
        }
        lately
    }

    fn note(&self, channel: i64, change: impl FnOnce(&mut Heard)) {
        change(self.heard.lock().entry(channel).or_default());
    }

    /// What there is when the lists are begun to be read.
    pub(in crate::sync) fn mark(&self) -> Result<Mark, SyncError> {
        let last = self.context.readers.ask(|reader| reader.last_delivery())?;
        Ok(Mark { last, joined: self.joined.swap(false, Ordering::AcqRel) })
    }

    /// The lists were read, from that mark on; or they could not be. What cannot be read again and again is not waited for.
    pub(in crate::sync) fn caught_up(&self, mark: &Mark, found: Result<&Summary, &SyncError>) {
        let well = match found {
            Ok(Summary { partial: true, .. }) => self.partial.fetch_add(1, Ordering::AcqRel) + 1 >= MOST_PARTIAL,
            Ok(_) => {
                self.partial.store(0, Ordering::Release);
                true
            }
            Err(_) => false,
        };
        match well {
            true => drop(self.caught_up.fetch_max(mark.last, Ordering::AcqRel)),
            false => drop(self.joined.fetch_or(mark.joined, Ordering::AcqRel)),
        }
        self.wake.notify_one();
    }

    /// A poll ended. While all that changes is delivered, the next is later if it found nothing.
    pub(in crate::sync) fn polled(&self, found: &Result<Summary, SyncError>) {
        let live = *self.live.borrow();
        let slower = self.slower.load(Ordering::Acquire);
        let next = match found {
            Ok(summary) if live && !summary.changed() && !summary.partial => (slower * 2).min(MOST_SLOWER),
            _ => 1,
        };
        self.slower.store(next, Ordering::Release);
        if let Ok(Summary { added, updated, deleted, .. }) = found
            && live
        {
            let missed = added + updated + deleted;
            self.missed.fetch_add(missed, Ordering::AcqRel);
            if missed > 0 {
                tracing::warn!(
                    changes = missed,
                    "a poll found what no notification had told of; is a channel dead that looks live?"
                );
            }
        }
    }
}

/// What there was when the lists were begun to be read.
#[derive(Debug)]
pub(in crate::sync) struct Mark {
    /// The number of the delivery that had come last.
    last: i64,
    /// Whether a channel had been joined.
    joined: bool,
}

/// A random part of a duration.
pub(in crate::sync) fn part_of(duration: Duration) -> Duration {
    duration.mul_f64(fastrand::f64())
}

impl Inbox {
    /// The channels that the sets offer now.
    ///
    /// # Errors
    /// If the catalog fails.
    pub async fn channels(&self) -> Result<Vec<OfferedChannel>, SyncError> {
        let mut offered: Vec<(SetRow, Offer)> = Vec::new();
        for set in self.context.sets()? {
            let offers = self.context.readers.ask(|reader| reader.offers(set.id))?;
            let channels = offers.into_iter().filter(|offer| offer.capability.is_channel());
            offered.extend(channels.map(|offer| (set.clone(), offer)));
        }
        let known = self.context.readers.ask(|reader| reader.channels())?;
        let is = |one: &Channel, set: &SetRow, offer: &Offer| {
            one.rset == set.id && one.url == offer.url && one.capability == offer.capability
        };
        let new: Vec<(SetId, Offer)> = offered
            .iter()
            .filter(|(set, offer)| !known.iter().any(|one| is(one, set, offer)))
            .map(|(set, offer)| (set.id, offer.clone()))
            .collect();
        if !new.is_empty() {
            self.context
                .write_queue
                .write(move |transaction| {
                    new.iter()
                        .try_for_each(|(set, offer)| transaction.channel(*set, &offer.url, offer.capability).map(drop))
                })
                .await?;
        }
        let known = self.context.readers.ask(|reader| reader.channels())?;
        Ok(offered
            .into_iter()
            .filter_map(|(set, offer)| {
                let channel = known.iter().find(|one| is(one, &set, &offer))?.clone();
                Some(OfferedChannel { channel, set: set.label, hubs: offer.hubs })
            })
            .collect())
    }

    /// Keeps the subscription of a channel, or that there is none.
    ///
    /// # Errors
    /// If the catalog fails.
    pub async fn keep_subscription(&self, channel: i64, subscription: Option<Subscription>) -> Result<(), SyncError> {
        self.context
            .write_queue
            .write(move |transaction| transaction.put_subscription(channel, subscription.as_ref()))
            .await
    }

    /// Forgets all subscriptions: their paths and secrets are not used again.
    ///
    /// # Errors
    /// If the catalog fails.
    pub async fn forget_subscriptions(&self) -> Result<(), SyncError> {
        let known = self.context.readers.ask(|reader| reader.channels())?;
        self.context
            .write_queue
            .write(move |transaction| {
                known.iter().try_for_each(|channel| transaction.put_subscription(channel.id, None))
            })
            .await
    }

    /// A channel was joined, and may have missed what came before: the lists will be read.
    ///
    /// # Errors
    /// If the catalog fails.
    pub async fn joined(&self, channel: i64) -> Result<(), SyncError> {
        self.context.write_queue.write(move |transaction| transaction.channel_joins(channel, None)).await?;
        self.missed();
        Ok(())
    }

    /// Something was sent and could not be kept: the lists will be read.
    pub fn missed(&self) {
        self.joined.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether everything that changes is delivered on channels: then the Source is polled more rarely.
    pub fn live(&self, live: bool) {
        self.live.send_if_modified(|known| std::mem::replace(known, live) != live);
    }

    /// What came on a channel since the mount.
    #[must_use]
    pub fn heard(&self, channel: i64) -> Heard {
        self.heard.lock().get(&channel).copied().unwrap_or_default()
    }

    /// Changes that polls found while everything was to be delivered.
    #[must_use]
    pub fn not_notified(&self) -> u64 {
        self.missed.load(Ordering::Acquire)
    }

    /// Deliveries that were kept, and gaps, since the mount, on all channels that ever were.
    #[must_use]
    pub fn heard_in_all(&self) -> (u64, u64) {
        let heard = self.heard.lock();
        heard.values().fold((0, 0), |(received, gaps), one| (received + one.received, gaps + one.gaps))
    }

    /// Takes a delivery in. When this returns, it is on the disk, and will be in the tree. Returns whether it tells more
    /// than that something has changed.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub async fn deliver(self: &Arc<Self>, channel: &Channel, body: bytes::Bytes) -> Result<bool, SyncError> {
        let came = Datetime::now();
        let (id, capability) = (channel.id, channel.capability);
        let (readers, bounds) = (Arc::clone(&self.context.readers), self.context.config.bounds);
        let look = tokio::task::spawn_blocking(move || {
            let digest: [u8; 32] = Sha256::digest(&body).into();
            (notification_body::read(capability, &body, came, &bounds), digest, body)
        });
        let (mut reading, digest, body) = look.await?;
        self.context.store.check_room(0)?;
        let framework = capability == Capability::FrameworkNotification;
        if reading == Reading::Ping && !framework && self.pinged_lately(id) {
            // Another row would add nothing: the lists are read after this.
            self.note(id, |heard| {
                heard.last = Some(came);
                (heard.received, heard.pings) = (heard.received + 1, heard.pings + 1);
            });
            self.missed();
            return Ok(false);
        }
        let inbox = Arc::clone(self);
        self.context
            .write_queue
            .step(move |writer| {
                let backlog = readers.ask(|reader| reader.backlog(id))?;
                if backlog.deliveries >= MOST_WAITING.0 || backlog.bytes + body.len() as u64 > MOST_WAITING.1 {
                    reading = Reading::Ping;
                }
                let body: &[u8] = if reading == Reading::Ping && !framework { &[] } else { &body };
                let transaction = writer.begin(true)?;
                let number = transaction.deliver(id, &NewDelivery { came, reading, digest: &digest, body })?;
                let changes = transaction.commit()?;
                // Here, for whoever waits for this may be gone by now.
                inbox.note(id, |heard| {
                    heard.last = Some(came);
                    match number {
                        None => heard.repeated += 1,
                        Some(_) => heard.received += 1,
                    }
                    if number.is_some() && reading == Reading::Ping {
                        heard.pings += 1;
                    }
                });
                inbox.wake.notify_one();
                Ok((reading != Reading::Ping, changes))
            })
            .await
    }

    /// Brings what is delivered into the tree, as it comes, and has the lists read for what they alone can tell. Runs until
    /// it is dropped.
    pub(in crate::sync) async fn attend(
        self: &Arc<Self>,
        wanted: &watch::Sender<()>,
        read_lists: impl Fn(Announced) -> JoinHandle<Option<Summary>>,
    ) {
        let mut said = Said::default();
        let mut next = Next::default();
        // The lists may take long: what joins does not wait for them.
        let mut errand: Option<Errand> = None;
        loop {
            let taken = match self.take().await {
                Ok(taken) => taken,
                Err(error) => {
                    self.context
                        .status
                        .error(&format!("what was delivered cannot be brought into the tree yet: {error}"));
                    next.tries += 1;
                    tokio::time::sleep(backoff(next.tries)).await;
                    continue;
                }
            };
            said.add(taken.deliveries, taken.changes);
            self.plan(&mut next, &taken);
            let look = next.looks.first().copied();
            let idle = errand.is_none();
            tokio::select! {
                () = self.wake.notified() => {}
                () = until(next.lists), if idle => {
                    next.lists = None;
                    // Something is not as it should be: the safety net is drawn in.
                    self.slower.store(1, Ordering::Release);
                    let (announced, last) = self.announced();
                    let wanted = Some((last, taken.gaps));
                    errand = Some(Errand { sync: Leashed(read_lists(announced)), wanted });
                }
                () = until(look), if idle => {
                    next.looks.remove(0);
                    errand = Some(Errand { sync: Leashed(read_lists(Announced::default())), wanted: None });
                }
                (found, wanted) = finished(&mut errand) => {
                    let Some((last, gaps)) = wanted else { continue };
                    // The error is in the status.
                    let Some(summary) = found else {
                        next.tries += 1;
                        continue;
                    };
                    next.tries = if summary.partial { next.tries + 1 } else { 0 };
                    self.named.fetch_max(last, Ordering::AcqRel);
                    gaps.into_iter().for_each(|channel| self.note(channel, |heard| heard.gaps += 1));
                    next.looks = AGAIN.map(|wait| Instant::now() + wait + part_of(SPREAD)).into();
                }
                () = until(next.content) => {
                    next.content = None;
                    wanted.send_replace(());
                }
            }
        }
    }

    /// Decides what is to be done after deliveries were taken.
    fn plan(&self, next: &mut Next, taken: &Taken) {
        if taken.changes > 0 && self.context.config.content_all {
            next.content = next.content.or_else(|| Some(Instant::now() + part_of(SPREAD)));
        }
        let joined = self.joined.load(Ordering::Acquire).then(Datetime::now);
        match joined.or(taken.lists) {
            Some(moment) if !self.context.config.offline => {
                let wait = part_of(SPREAD) + backoff(next.tries);
                next.lists = next.lists.or_else(|| Some(instant(moment) + wait));
            }
            _ => (next.lists, next.tries) = (None, 0),
        }
    }

    /// What the framework notifications that wait say has changed, and the number of the last one of them.
    fn announced(&self) -> (Announced, i64) {
        let look = |reader: &crate::catalog::Reader| {
            let (mut announced, mut last) = (Announced::default(), 0);
            for channel in reader.channels()?.iter().filter(|one| one.capability == Capability::FrameworkNotification) {
                for one in reader.waiting(channel.id, BATCH)? {
                    announced = announced.and(Announced::of(&reader.delivery(one.id)?, &self.context.config.bounds));
                    last = last.max(one.id);
                }
            }
            Ok((announced, last))
        };
        // What cannot be read now stays, and is read another time.
        self.context.readers.ask(look).unwrap_or_default()
    }

    /// Applies what joins, also while a sync reads lists: it may take long, and what it applies then knows of this.
    async fn take(&self) -> Result<Taken, SyncError> {
        let mut taken = Taken::default();
        for channel in self.context.readers.ask(|reader| reader.channels())? {
            let mut cursor = channel.cursor;
            loop {
                let waiting = self.context.readers.ask(|reader| reader.waiting(channel.id, BATCH))?;
                let Some(set) = self.context.sets()?.into_iter().find(|set| set.id == channel.rset) else { break };
                if waiting.is_empty() || set.state == SetState::Empty {
                    break;
                }
                let standing = self.standing(&set, &channel, cursor)?;
                let plan = plan(&waiting, standing);
                if plan.take.is_empty() && plan.settled.is_empty() {
                    if let Some((moment, missing)) = plan.lists {
                        taken.lists = Some(taken.lists.map_or(moment, |known| known.min(moment)));
                        taken.gaps.extend(missing.then_some(channel.id));
                    }
                    break;
                }
                cursor = plan.cursor;
                taken.deliveries += plan.take.len() as u64;
                let summary = self.apply(&channel, plan, standing.covered).await?;
                taken.changes += summary.added + summary.updated + summary.deleted;
            }
        }
        Ok(taken)
    }

    fn standing(&self, set: &SetRow, channel: &Channel, cursor: Option<Datetime>) -> Result<Standing, SyncError> {
        let feeds = self.context.readers.ask(|reader| reader.feeds(set.id))?;
        let offers = self.context.readers.ask(|reader| reader.offers(set.id))?;
        let follows = offers.iter().any(|offer| offer.capability.tells_changes());
        // That lists were read is no answer to what names a document.
        let caught_up = match channel.capability {
            Capability::FrameworkNotification => &self.named,
            _ => &self.caught_up,
        };
        let fed = feeds.iter().map(|feed| feed.cursor).min().flatten();
        Ok(Standing {
            cursor,
            covered: set.cursor.max(set.at).max(fed.filter(|_| follows)),
            listed: set.at,
            follows,
            caught_up: caught_up.load(Ordering::Acquire),
        })
    }

    /// Applies deliveries in one step. What is told without any time happened after
    /// all that is `covered` by lists, by the Source's clock.
    async fn apply(&self, channel: &Channel, plan: Plan, covered: Option<Datetime>) -> Result<Summary, SyncError> {
        let mut deliveries = Vec::new();
        let mut last = None;
        for (one, caught) in &plan.take {
            let (from, until) = match one.reading {
                Reading::Loose { from, until, dated: false } => (covered.unwrap_or(from), until),
                Reading::Whole { from, until, .. } | Reading::Loose { from, until, .. } => (from, until),
                Reading::Ping => continue,
            };
            let sure = *caught || matches!(one.reading, Reading::Whole { dated: true, .. });
            last = last.max(Some(until));
            let body = self.context.readers.ask(|reader| reader.delivery(one.id))?;
            deliveries.push(Delivered { body, from, until, sure });
        }
        let cursor = plan.cursor;
        let told = Told {
            set: channel.rset,
            channel: channel.id,
            url: channel.url.clone(),
            cursor,
            done: plan.take.iter().map(|(one, _)| one.id).chain(plan.settled).collect(),
            deliveries,
            bounds: self.context.config.bounds,
            prefer: self.context.config.prefer.clone(),
        };
        let step = StepContext::of(&self.context);
        let (summary, doubtful) =
            self.context.write_queue.step(move |writer| notified::tell(writer, &step, told)).await?;
        if doubtful {
            self.joined.store(true, Ordering::Release);
        }
        if let Some(until) = last {
            let late = Datetime::now().nanos().saturating_sub(until.nanos()).max(0).unsigned_abs();
            self.note(channel.id, |heard| {
                heard.lag = Some(Duration::from_nanos(late));
                heard.until = cursor;
            });
            tracing::debug!(url = channel.url, ?summary, %until, "notified");
        }
        Ok(summary)
    }
}

/// What the inbox does next by itself.
#[derive(Default)]
struct Next {
    /// When the lists are read.
    lists: Option<Instant>,
    /// How often that has failed.
    tries: u32,
    /// When they are looked at again after that.
    looks: Vec<Instant>,
    /// When what came is fetched ahead of use.
    content: Option<Instant>,
}

/// What bringing deliveries into the tree came to.
#[derive(Debug, Default)]
struct Taken {
    /// Deliveries that were applied, and the changes that they brought.
    deliveries: u64,
    changes: u64,
    /// When the lists are to be read for what is left.
    lists: Option<Datetime>,
    /// The channels on which something is missing.
    gaps: Vec<i64>,
}

/// The lists are being read.
struct Errand {
    sync: Leashed<Option<Summary>>,
    /// If that is for deliveries: the last one that names documents, and the channels on which something is missing.
    wanted: Option<(i64, Vec<i64>)>,
}

/// A task that goes no further than whoever waits for it.
struct Leashed<T>(JoinHandle<T>);

impl<T> Drop for Leashed<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the lists to be read, if they are; what that came to, unless it failed, and what it was for.
async fn finished(errand: &mut Option<Errand>) -> (Option<Summary>, Option<(i64, Vec<i64>)>) {
    let Some(under_way) = errand else { return std::future::pending().await };
    let found = (&mut under_way.sync.0).await.ok().flatten();
    (found, errand.take().and_then(|errand| errand.wanted))
}

/// What the log is told of notifications: now and then, how many there were.
#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    deliveries: u64,
    changes: u64,
}

impl Said {
    fn add(&mut self, deliveries: u64, changes: u64) {
        self.deliveries += deliveries;
        self.changes += changes;
        if self.deliveries > 0 && self.last.is_none_or(|last| last.elapsed() >= TOLD_EVERY) {
            tracing::info!(notifications = self.deliveries, changes = self.changes, "notified");
            *self = Self { last: Some(Instant::now()), ..Self::default() };
        }
    }
}

/// A moment of our clock that is now or soon.
fn instant(moment: Datetime) -> Instant {
    let wait = moment.nanos().saturating_sub(Datetime::now().nanos()).max(0).unsigned_abs();
    // A clock that is set back must not make anybody wait for it.
    Instant::now() + Duration::from_nanos(wait).min(GRACE)
}

fn backoff(tries: u32) -> Duration {
    let (first, longest) = RETRY;
    if tries == 0 { Duration::ZERO } else { (first * (1 << (tries - 1).min(10))).min(longest) }
}
