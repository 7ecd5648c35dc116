//! What the demo Source notifies of (Change Notification 1.0.1): its two channels, what is sent on them, and the
//! topics that show the last of it.
//!
//! The intervals of consecutive notifications join, so a Destination knows whether it has all of them.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Response, header};
use bytes::Bytes;
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::Content;
use super::answers::{send, tag_of, with};
use crate::document::{Capability, Datetime};

/// The path of the hub.
pub(super) const HUB: &str = "/hub";

/// The media type of a notification, and of its topic.
pub(super) const MEDIA: &str = "application/xml";

/// How many notifications may wait for one that takes them slowly.
pub(super) const WAITING: usize = 64;

/// What notifications are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Channel {
    /// The resources.
    Changes,
    /// The documents that describe them.
    Framework,
}

impl Channel {
    pub(super) const ALL: [Self; 2] = [Self::Changes, Self::Framework];

    fn capability(self) -> Capability {
        match self {
            Self::Changes => Capability::ChangeNotification,
            Self::Framework => Capability::FrameworkNotification,
        }
    }

    /// The path of its topic, which a hub is asked for.
    pub(super) fn topic(self) -> &'static str {
        match self {
            Self::Changes => "/notifications/changes",
            Self::Framework => "/notifications/framework",
        }
    }

    /// The path of its WebSocket.
    pub(super) fn socket(self) -> &'static str {
        match self {
            Self::Changes => "/channels/changes",
            Self::Framework => "/channels/framework",
        }
    }
}

/// What was sent on a channel so far, and those who listen.
struct Sent {
    /// The end of the last interval.
    until: Datetime,
    /// The last notification; empty before the first.
    last: Utf8Bytes,
    listeners: broadcast::Sender<Utf8Bytes>,
}

impl Sent {
    fn nothing(since: Datetime) -> Self {
        Self { until: since, last: Utf8Bytes::default(), listeners: broadcast::Sender::new(WAITING) }
    }
}

/// The channels.
pub(super) struct Notifications {
    changes: Sent,
    framework: Sent,
}

impl Notifications {
    /// Channels that tell of everything since a moment.
    pub(super) fn since(begun: Datetime) -> Self {
        Self { changes: Sent::nothing(begun), framework: Sent::nothing(begun) }
    }

    fn of(&self, channel: Channel) -> &Sent {
        match channel {
            Channel::Changes => &self.changes,
            Channel::Framework => &self.framework,
        }
    }

    fn of_mut(&mut self, channel: Channel) -> &mut Sent {
        match channel {
            Channel::Changes => &mut self.changes,
            Channel::Framework => &mut self.framework,
        }
    }
}

/// The fields that a topic and its notifications have in common.
pub(super) fn links(base: &str, channel: Channel) -> String {
    format!("<{base}{}>; rel=\"self\", <{base}{HUB}>; rel=\"hub\"", channel.topic())
}

impl Content {
    /// For the Capability List: the channels by WebSub, and by WebSocket.
    pub(super) fn channels(&self) -> String {
        let base = &self.base;
        let sockets = base.replacen("http", "ws", 1);
        let mut text = String::new();
        for channel in Channel::ALL {
            let (topic, capability) = (channel.topic(), channel.capability());
            let _ = writeln!(
                text,
                "  <url><loc>{base}{topic}</loc><rs:ln rel=\"hub\" href=\"{base}{HUB}\"/>\
                 <rs:md capability=\"{capability}\"/></url>"
            );
        }
        for channel in Channel::ALL {
            let (socket, capability) = (channel.socket(), channel.capability());
            let _ = writeln!(text, "  <url><loc>{sockets}{socket}</loc><rs:md capability=\"{capability}\"/></url>");
        }
        text
    }

    /// Sends entries to whoever listens. What they speak of must be there: nobody can ask before the lock is free.
    pub(super) fn notify(&mut self, channel: Channel, at: Datetime, entries: &str) {
        let from = self.notifications.of(channel).until;
        // The clock may have been set back meanwhile.
        let until = at.max(from);
        let interval = format!(" from=\"{from}\" until=\"{until}\"");
        let mut text = self.head(channel.capability(), &interval, Some("/capabilitylist.xml"));
        text.push_str(entries);
        text.push_str("</urlset>\n");
        let sent = self.notifications.of_mut(channel);
        sent.until = until;
        sent.last = text.into();
        // Fails only if nobody listens.
        let _ = sent.listeners.send(sent.last.clone());
    }

    /// What is sent on a channel from now on.
    pub(super) fn listen(&self, channel: Channel) -> broadcast::Receiver<Utf8Bytes> {
        self.notifications.of(channel).listeners.subscribe()
    }

    /// The answer of a topic: the last notification; none if the path is that of no topic.
    pub(super) fn topic(&self, method: &Method, headers: &HeaderMap, path: &str) -> Option<Response<Body>> {
        let channel = Channel::ALL.into_iter().find(|channel| channel.topic() == path)?;
        let last = Bytes::from(self.notifications.of(channel).last.clone());
        let links = (header::LINK, links(&self.base, channel));
        Some(with(send(method, headers, MEDIA, &tag_of(&last), last), [links]))
    }
}
