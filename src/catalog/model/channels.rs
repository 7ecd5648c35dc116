//! Channels of Change Notifications, and what waits on them.

use crate::catalog::model::ids::SetId;
use crate::document::{Capability, Datetime};

/// A channel of notifications of a set (Change Notification 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its number.
    pub id: i64,
    /// The set that it tells of.
    pub rset: SetId,
    /// The topic of WebSub, or the URL of a WebSocket.
    pub url: String,
    /// `change-notification` or `framework-notification`.
    pub capability: Capability,
    /// Its notifications are in the tree up to then, without a gap; none where nothing is known to join.
    pub cursor: Option<Datetime>,
    /// The subscription at a hub, where one was asked for.
    pub subscription: Option<Subscription>,
}

/// A subscription at a hub (WebSub 5).
#[derive(Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The URL that the hub delivers to.
    pub callback: String,
    /// The last segment of its path: what nobody can guess.
    pub token: String,
    /// What the hub signs deliveries with.
    pub secret: String,
    /// The hub.
    pub hub: String,
    /// The topic, as the hub knows it.
    pub topic: String,
    /// When the lease ends, by our clock; none before the hub granted one.
    pub expires: Option<Datetime>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subscription at {} until {:?}", self.hub, self.expires)
    }
}

/// What can be made of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nothing but that something has changed.
    Ping,
    /// It tells all changes of an interval (Change Notification 3).
    Whole {
        /// Where the interval begins.
        from: Datetime,
        /// Where it ends.
        until: Datetime,
        /// Whether each change has a time of its own: then it does not matter when it comes.
        dated: bool,
    },
    /// It tells changes, but not of which interval: the drafts have none.
    Loose {
        /// No change of it happened before that.
        from: Datetime,
        /// Or after that.
        until: Datetime,
        /// Whether each change has a time of some kind: said again, it has not happened again.
        dated: bool,
    },
}

impl Reading {
    /// Whether the same body, once more, tells nothing new.
    pub(in crate::catalog) fn counts_once(self) -> bool {
        matches!(self, Self::Whole { .. } | Self::Loose { dated: true, .. })
    }
}

/// A delivery that is not in the tree yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number: deliveries are numbered as they come.
    pub id: i64,
    /// When it came, by our clock.
    pub came: Datetime,
    /// What can be made of it.
    pub reading: Reading,
}

/// What waits on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries.
    pub deliveries: u64,
    /// Bytes of them.
    pub bytes: u64,
}

pub(in crate::catalog) const PING: i64 = 0;

pub(in crate::catalog) const WHOLE: i64 = 1;

pub(in crate::catalog) const LOOSE: i64 = 2;
