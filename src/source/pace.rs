//! How much at once, and how fast.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of connections per host and of bytes per second in all.
#[derive(Debug)]
pub(super) struct Pace {
    connections: usize,
    hosts: Mutex<HashMap<String, Host>>,
    rate: Option<u64>,
    next_byte: Mutex<Instant>,
}

#[derive(Debug)]
struct Host {
    slots: Arc<Semaphore>,
    not_before: Option<Instant>,
}

/// Hosts beyond this number share nothing that is worth keeping.
const MOST_HOSTS: usize = 10_000;

impl Pace {
    pub(super) fn new(connections: usize, rate: Option<u64>) -> Self {
        Self {
            connections: connections.max(1),
            hosts: Mutex::new(HashMap::new()),
            rate: rate.filter(|rate| *rate > 0),
            next_byte: Mutex::new(Instant::now()),
        }
    }

    /// Waits for a connection to this host to be free.
    pub(super) async fn enter(&self, host: &str) -> Option<OwnedSemaphorePermit> {
        let slots = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            if hosts.len() > MOST_HOSTS {
                hosts.retain(|_, host| host.slots.available_permits() < self.connections);
            }
            let host = hosts.entry(host.to_owned()).or_insert_with(|| Host {
                slots: Arc::new(Semaphore::new(self.connections)),
                not_before: None,
            });
            Arc::clone(&host.slots)
        };
        slots.acquire_owned().await.ok()
    }

    /// The host asked to be left alone for so long.
    pub(super) fn hold(&self, host: &str, wait: Duration) {
        let until = Instant::now() + wait.min(Duration::from_secs(3600));
        if let Some(host) = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).get_mut(host) {
            host.not_before = host.not_before.max(Some(until));
        }
    }

    /// How long the host still wants to be left alone.
    pub(super) fn held(&self, host: &str) -> Option<Duration> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let until = hosts.get(host)?.not_before?;
        until.checked_duration_since(Instant::now())
    }

    /// Waits until so many bytes more may have come.
    pub(super) async fn spend(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let wait = {
            let mut next = self.next_byte.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let begin = (*next).max(now);
            *next = begin + Duration::from_secs_f64(bytes as f64 / rate as f64);
            begin.saturating_duration_since(now)
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}
