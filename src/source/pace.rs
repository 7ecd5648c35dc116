//! How much at once, and how fast.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::Trouble;

/// Limits of connections per host and in all, and of bytes per second in all.
#[derive(Debug)]
pub(super) struct Pace {
    connections: AtomicUsize,
    /// The most connections to all hosts.
    most: usize,
    all: Gate,
    hosts: Mutex<HashMap<String, Host>>,
    /// Bytes a second; 0: no limit.
    rate: AtomicU64,
    next_byte: Mutex<Instant>,
}

#[derive(Debug)]
struct Host {
    gate: Gate,
    /// Until when it wants to be left alone.
    not_before: Option<Instant>,
    /// The same for archives on this host: a busy archive does not hold back requests for the Source's own resources.
    not_before_aside: Option<Instant>,
    /// When it answered last.
    answered: Option<Instant>,
    /// How many requests it has not answered since.
    unanswered: u32,
    /// Until when it is taken to be down, and why.
    down: Option<(Instant, Trouble)>,
}

impl Host {
    fn new(connections: usize) -> Self {
        Self {
            gate: Gate::new(connections),
            not_before: None,
            not_before_aside: None,
            answered: None,
            unanswered: 0,
            down: None,
        }
    }
}

/// So many requests in a row that are not answered are no slow resources.
const MOST_UNANSWERED: u32 = 3;
/// How long a host that does not answer is remembered to be down.
const DOWN_FOR: Duration = Duration::from_secs(30);

/// Lets in so many at once, those who are urgent before all others. Cheap to clone.
#[derive(Clone, Debug)]
struct Gate {
    slots: Arc<Semaphore>,
    urgent: Arc<AtomicUsize>,
}

impl Gate {
    fn new(most: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(most)), urgent: Arc::default() }
    }

    async fn enter(self, urgent: bool) -> Option<OwnedSemaphorePermit> {
        if urgent {
            let _waits = Waits::new(self.urgent);
            return self.slots.acquire_owned().await.ok();
        }
        loop {
            let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
            if self.urgent.load(Ordering::Acquire) == 0 {
                return Some(permit);
            }
            // Those who wait are served in turn: this one goes on to the next, and we come after all of them.
            drop(permit);
            tokio::task::yield_now().await;
        }
    }
}

/// A connection that may be made, until this is dropped.
#[derive(Debug)]
pub struct Permit {
    _host: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

/// Somebody waits, until this is dropped.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn new(waiting: Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(1, Ordering::AcqRel);
        Self(waiting)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Hosts beyond this number share nothing that is worth keeping.
const MOST_HOSTS: usize = 10_000;

impl Pace {
    /// `connections` to one host, and `most` in all.
    pub(super) fn new(connections: usize, most: usize, rate: Option<u64>) -> Self {
        Self {
            connections: AtomicUsize::new(connections.max(1)),
            most,
            all: Gate::new(most),
            hosts: Mutex::new(HashMap::new()),
            rate: AtomicU64::new(rate.unwrap_or(0)),
            next_byte: Mutex::new(Instant::now()),
        }
    }

    /// The most connections to one host.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed).min(self.most)
    }

    /// From now on, no more than so many. Requests that are under way count by the old number.
    pub(super) fn set_connections(&self, connections: usize) {
        self.connections.store(connections.max(1), Ordering::Relaxed);
        self.hosts.lock().clear();
    }

    /// The most bytes a second.
    pub(super) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// From now on, no faster than this.
    pub(super) fn set_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    /// Waits for a connection to this host to be free, and then for one of all: one host that is slow keeps nobody from
    /// others, as long as all have more than each. Who is `urgent` is served before all who are not.
    pub(super) async fn enter(&self, host: &str, urgent: bool) -> Option<Permit> {
        let connections = self.connections();
        let gate = {
            let mut hosts = self.hosts.lock();
            if hosts.len() > MOST_HOSTS {
                hosts.retain(|_, host| host.gate.slots.available_permits() < connections);
            }
            hosts.entry(host.to_owned()).or_insert_with(|| Host::new(connections)).gate.clone()
        };
        let host = gate.enter(urgent).await?;
        Some(Permit { _host: Some(host), _all: self.all.clone().enter(urgent).await? })
    }

    /// Waits for a connection that stays open to be free. It counts among all connections, and not among those of its host,
    /// which content and documents would otherwise have to wait for.
    pub(super) async fn enter_to_stay(&self) -> Option<Permit> {
        Some(Permit { _host: None, _all: self.all.clone().enter(false).await? })
    }

    /// The host sent `Retry-After`, in the answer to a request for the Source's own resources, or for an archive's (`aside`).
    pub(super) fn hold(&self, host: &str, aside: bool, wait: Duration) {
        let until = Instant::now() + wait.min(Duration::from_secs(3600));
        if let Some(host) = self.hosts.lock().get_mut(host) {
            let moment = if aside { &mut host.not_before_aside } else { &mut host.not_before };
            *moment = (*moment).max(Some(until));
        }
    }

    /// The host has answered, whatever it said, or sends more of an answer.
    pub(super) fn answered(&self, host: &str) {
        if let Some(host) = self.hosts.lock().get_mut(host) {
            (host.answered, host.unanswered, host.down) = (Some(Instant::now()), 0, None);
        }
    }

    /// The host could not be reached, or did not answer, when a request began then. It is down if no connection came about, or if
    /// several requests were not answered, and no other was meanwhile: one resource may be slow.
    pub(super) fn failed(&self, host: &str, began: Instant, trouble: &Trouble) {
        if let Some(host) = self.hosts.lock().get_mut(host)
            && host.answered.is_none_or(|answered| answered < began)
        {
            host.unanswered += 1;
            let is_slow = matches!(trouble, Trouble::Stalled { what, .. } if *what != "connection");
            if !is_slow || host.unanswered >= MOST_UNANSWERED {
                host.down = Some((Instant::now() + DOWN_FOR, trouble.clone()));
            }
        }
    }

    /// Why the host is taken to be down, if it is.
    pub(super) fn down(&self, host: &str) -> Option<Trouble> {
        let hosts = self.hosts.lock();
        let (until, trouble) = hosts.get(host)?.down.as_ref()?;
        (*until > Instant::now()).then(|| trouble.clone())
    }

    /// The time that remains of `Retry-After`; for archives (`aside`), the longer of the two.
    pub(super) fn held(&self, host: &str, aside: bool) -> Option<Duration> {
        let hosts = self.hosts.lock();
        let host = hosts.get(host)?;
        let until = host.not_before.max(host.not_before_aside.filter(|_| aside))?;
        until.checked_duration_since(Instant::now())
    }

    /// How long it takes until all bytes that came may have come.
    pub(super) fn backlog(&self) -> Duration {
        let next = *self.next_byte.lock();
        next.saturating_duration_since(Instant::now())
    }

    /// Waits until so many bytes more may have come.
    pub(super) async fn spend(&self, bytes: usize) {
        let wait = self.book(bytes);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts bytes that came; returns how long whoever brings more should wait.
    pub(super) fn book(&self, bytes: usize) -> Duration {
        let Some(rate) = self.rate() else { return Duration::ZERO };
        let mut next = self.next_byte.lock();
        let now = Instant::now();
        let begin = (*next).max(now);
        *next = begin + Duration::from_secs_f64(bytes as f64 / rate as f64);
        begin.saturating_duration_since(now)
    }
}
