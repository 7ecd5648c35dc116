//! How channels stand, for whoever asks.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::document::Datetime;
use crate::sync::OfferedChannel;

/// What a channel is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It is being joined.
    #[default]
    Joining,
    /// What is sent on it comes here.
    Live,
    /// It could not be joined, or broke off, and is tried again.
    Failing(String),
    /// The hub does not want us.
    Denied(String),
    /// It is not joined, and why.
    Unused(String),
}

impl Phase {
    /// Why it is not live.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Joining | Self::Live => None,
            Self::Failing(why) | Self::Denied(why) | Self::Unused(why) => Some(why),
        }
    }
}

/// Deliveries that were not believed. They changed nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Not signed, or not with our secret.
    pub forged: u64,
    /// Of another topic.
    pub foreign: u64,
    /// Larger than is taken.
    pub too_large: u64,
}

/// Why a delivery is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is of another topic.
    Foreign,
    /// It is larger than is taken.
    TooLarge,
    /// It is not from a hub that knows our secret.
    Forged,
}

/// How a channel stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What it is doing.
    pub phase: Phase,
    /// Since when it is doing that, by our clock.
    pub since: Option<Datetime>,
    /// What is not as it should be meanwhile, or what is waited for.
    pub trouble: Option<String>,
    /// The hub that it was joined at.
    pub hub: Option<String>,
    /// When the lease ends, by our clock.
    pub expires: Option<Datetime>,
    /// What was not believed.
    pub refused: Refused,
    /// Deliveries in a row that were refused since the last good one, and why the last of them was.
    refusals: (u64, &'static str),
}

/// So many deliveries that are not believed in a row, and what the hub sends does not get here. Anybody who knows the path can
/// send one.
const MOST_REFUSALS: u64 = 3;

impl Standing {
    /// Whether what is sent on the channel gets here, and is believed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live && self.refusals.0 < MOST_REFUSALS
    }

    /// Counts a delivery that is refused; returns how many of its kind were.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> u64 {
        let (count, added, why) = match refusal {
            Refusal::Forged => (
                &mut self.refused.forged,
                1,
                "the hub does not sign its deliveries with the secret that it was given; they are refused, and the Source is polled",
            ),
            Refusal::Foreign => (
                &mut self.refused.foreign,
                1,
                "the deliveries are not signed, and name another topic; they are refused, and the Source is polled",
            ),
            Refusal::TooLarge => (
                &mut self.refused.too_large,
                MOST_REFUSALS,
                "a delivery was larger than limit_delivery allows, and refused; the Source is polled until one is taken again",
            ),
        };
        *count += 1;
        self.refusals = (self.refusals.0.saturating_add(added), why);
        *count
    }

    /// A delivery was believed.
    pub(super) fn believe(&mut self) {
        self.refusals = (0, "");
    }

    /// `joining`, `live`, `failing`, `denied` or `unused`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self.phase {
            Phase::Joining => "joining",
            Phase::Live if self.is_live() => "live",
            Phase::Live | Phase::Failing(_) => "failing",
            Phase::Denied(_) => "denied",
            Phase::Unused(_) => "unused",
        }
    }

    /// Why what is sent on it does not get here.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self.phase {
            Phase::Live if !self.is_live() => Some(self.refusals.1),
            _ => self.phase.reason().or(self.trouble.as_deref()),
        }
    }
}

/// Where all channels are noted. Locks are held for a look or an assignment.
#[derive(Debug, Default)]
pub(super) struct Board {
    standings: Mutex<HashMap<i64, Standing>>,
    offered: Mutex<Vec<OfferedChannel>>,
    changed: watch::Sender<()>,
    offers: watch::Sender<()>,
}

impl Board {
    pub(super) fn note(&self, channel: i64, change: impl FnOnce(&mut Standing)) {
        let mut standings = self.standings.lock();
        let standing = standings.entry(channel).or_default();
        let (phase, state) = (standing.phase.clone(), standing.state());
        change(standing);
        if state != standing.state() || standing.since.is_none() {
            standing.since = Some(Datetime::now());
        }
        if (phase, state) != (standing.phase.clone(), standing.state()) {
            self.changed.send_replace(());
        }
    }

    pub(super) fn set(&self, channel: i64, phase: Phase) {
        self.note(channel, |standing| {
            standing.phase = phase;
            standing.trouble = None;
        });
    }

    pub(super) fn standing(&self, channel: i64) -> Standing {
        self.standings.lock().get(&channel).cloned().unwrap_or_default()
    }

    pub(super) fn offer(&self, offered: &[OfferedChannel]) {
        let mut known = self.offered.lock();
        let hubs = |all: &[OfferedChannel]| -> Vec<(i64, Vec<String>)> {
            all.iter().map(|one| (one.channel.id, one.hubs.clone())).collect()
        };
        if hubs(&known) != hubs(offered) {
            self.offers.send_replace(());
        }
        offered.clone_into(&mut known);
    }

    /// A receiver that is told when other channels or hubs are offered than before.
    pub(super) fn offers(&self) -> watch::Receiver<()> {
        self.offers.subscribe()
    }

    /// Deliveries that were refused since the mount, on all channels that ever were.
    pub(super) fn refused(&self) -> u64 {
        let standings = self.standings.lock();
        standings.values().map(|one| one.refused.forged + one.refused.foreign + one.refused.too_large).sum()
    }

    pub(super) fn offered(&self) -> Vec<OfferedChannel> {
        self.offered.lock().clone()
    }

    /// A receiver that is told when a channel does something else than before.
    pub(super) fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
