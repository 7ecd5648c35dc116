//! A channel that is a node of an XMPP PubSub service (ResourceSync 0.1, 5.2.1; XEP-0060): the Source publishes Change Sets, and
//! the service sends them to an account of ours.
//!
//! The account is subscribed by its bare address, so that a restart finds the subscription that was there; it is not given up at
//! the end, for other mounts may share it. Only the service that the Source named is believed.

mod guarded;
mod login;
mod session;
mod stream;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use session::{Came, Session};
use tokio::time::Instant;
use tokio_xmpp::jid::Jid;
use tokio_xmpp::minidom::Element;
use tokio_xmpp::parsers::message::Message;
use tokio_xmpp::parsers::ns;
use tokio_xmpp::parsers::pubsub::NodeName;
use tokio_xmpp::parsers::pubsub::pubsub::{PubSub, Subscribe};

use super::listener::MOST_SHOWN;
use super::{Context, Phase, backoff};
use crate::source::Account;
use crate::sync::OfferedChannel;

/// The longest wait before a session is tried again.
const LONGEST: Duration = Duration::from_secs(60);
/// How long somebody is left alone who does not want us.
const DENIED: Duration = Duration::from_secs(600);
/// So many tries in a row that failed are an error, and not the way of the world.
const LASTING: u32 = 3;
/// A channel that was live so long was a good one.
const GOOD: Duration = Duration::from_secs(10);
/// How often the service is asked again to send: it may have forgotten.
const AGAIN: Duration = Duration::from_secs(3600);
/// What cannot be read is a reason to look for changes no more often than that.
const LOOK: Duration = Duration::from_secs(60);

/// What somebody else says, as one short line that can be shown.
fn told(text: &str) -> String {
    crate::printable::short_line(text.trim(), MOST_SHOWN)
}

/// Why a session ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// It broke off, or was not begun.
    Broken(String),
    /// Somebody does not want us.
    Denied(String),
}

/// Where a channel's node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The address of the service.
    pub(super) service: String,
    name: String,
}

impl Node {
    /// Reads it off the URL of a channel: `xmpp:SERVICE?pubsub;node=NODE`.
    pub(super) fn of(url: &str) -> Option<Self> {
        let (service, query) = url.strip_prefix("xmpp:")?.split_once('?')?;
        let node = query.split(';').find_map(|part| part.strip_prefix("node="))?;
        let name = url::form_urlencoded::parse(format!("n={node}").as_bytes()).next()?.1.into_owned();
        Some(Self { service: service.to_owned(), name })
    }
}

/// Stays with a channel, for ever.
pub(super) async fn stay(context: Arc<Context>, offered: OfferedChannel) {
    let (id, url) = (offered.channel.id, &offered.channel.url);
    let mut tries = 0;
    loop {
        let mut since = None;
        match once(&context, &offered, &mut since).await {
            Ended::Broken(why) => {
                let good = since.is_some_and(|since: Instant| since.elapsed() >= GOOD);
                tries = if good { 0 } else { tries };
                match tries {
                    LASTING => {
                        let error = format!("{url}: a channel cannot be joined, trying again: {why}");
                        context.engine.status().error(&error);
                    }
                    _ => tracing::info!(url, why, "a channel ended; it will be joined again"),
                }
                context.board.set(id, Phase::Failing(why));
                tokio::time::sleep(backoff(tries, LONGEST)).await;
                tries += 1;
            }
            Ended::Denied(why) => {
                let before = context.board.standing(id).phase;
                if before != Phase::Denied(why.clone()) {
                    context.engine.status().error(&format!("{url}: {why}"));
                }
                context.board.set(id, Phase::Denied(why));
                tokio::time::sleep(DENIED.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
            }
        }
    }
}

/// Joins once, and listens until it ends. `since` is when it was live.
async fn once(context: &Context, offered: &OfferedChannel, since: &mut Option<Instant>) -> Ended {
    let Some(node) = Node::of(&offered.channel.url) else {
        return Ended::Denied("its URL names no node of a PubSub service".to_owned());
    };
    let Some(account) = context.client.account(&node.service) else {
        return Ended::Denied(super::no_account(&node.service));
    };
    match listen(context, offered, &node, account, since).await {
        Err(ended) => ended,
        Ok(never) => match never {},
    }
}

/// Has the service send to the account, be it for the first time or not.
async fn subscribe(session: &mut Session, service: &Jid, node: &Node, account: &Account) -> Result<(), Ended> {
    let own: Jid = account.jid.parse().map_err(|error| Ended::Denied(format!("{}: {error}", account.jid)))?;
    let subscribe = Subscribe { jid: own, node: Some(NodeName(node.name.clone())) };
    let asked = PubSub::Subscribe { subscribe: Some(subscribe), options: None };
    let answered = session.ask(Some(service.clone()), asked.into()).await?;
    let state = answered.as_ref().and_then(|answer| answer.get_child("subscription", ns::PUBSUB));
    match state.and_then(|subscription| subscription.attr("subscription")) {
        None | Some("subscribed") => Ok(()),
        Some(other) => {
            Err(Ended::Denied(format!("the subscription is {:?}; its owner has to confirm it", told(other))))
        }
    }
}

async fn listen(
    context: &Context,
    offered: &OfferedChannel,
    node: &Node,
    account: &Account,
    since: &mut Option<Instant>,
) -> Result<std::convert::Infallible, Ended> {
    let id = offered.channel.id;
    let failed = |error: crate::sync::SyncError| Ended::Broken(error.to_string());
    let service: Jid = node.service.parse().map_err(|error| Ended::Denied(format!("{}: {error}", node.service)))?;
    let mut session = Session::begin(&context.client, account, context.bounds.delivery).await?;
    subscribe(&mut session, &service, node, account).await?;
    // What was published before this moment is lost to us: from here on, nothing is.
    context.engine.inbox().joined(id).await.map_err(failed)?;
    context.board.set(id, Phase::Live);
    *since = Some(Instant::now());
    tracing::info!(url = offered.channel.url, "a channel is joined");
    let (mut again, mut looked) = (Instant::now() + AGAIN, None);
    loop {
        let came = tokio::select! {
            came = session.next() => came?,
            () = tokio::time::sleep_until(again) => {
                subscribe(&mut session, &service, node, account).await?;
                again = Instant::now() + AGAIN;
                continue;
            }
        };
        let message = match came {
            Came::Message(message) => message,
            Came::Unreadable => {
                if looked.is_none_or(|looked: Instant| looked.elapsed() >= LOOK) {
                    looked = Some(Instant::now());
                    context.engine.inbox().joined(id).await.map_err(failed)?;
                }
                continue;
            }
        };
        let Some(event) = message.payloads.iter().find(|payload| payload.is("event", ns::PUBSUB_EVENT)) else {
            continue;
        };
        let Some(about) = event.children().find(|child| child.attr("node") == Some(&node.name)) else { continue };
        if !is_from(&message, &service) {
            context.board.note(id, |standing| standing.refused.foreign += 1);
            continue;
        }
        match about.name() {
            "items" => deliver(context, offered, about).await.map_err(failed)?,
            "delete" => return Err(Ended::Broken("the node was deleted".to_owned())),
            "subscription" if about.attr("subscription") != Some("subscribed") => {
                return Err(Ended::Broken("the service ended the subscription".to_owned()));
            }
            _ => {}
        }
    }
}

/// Delivers the items of an event.
async fn deliver(context: &Context, offered: &OfferedChannel, items: &Element) -> Result<(), crate::sync::SyncError> {
    let (inbox, id) = (context.engine.inbox(), offered.channel.id);
    for item in items.children().filter(|child| child.is("item", ns::PUBSUB_EVENT)) {
        match item.children().next().map(|payload| bytes_of(payload, context.bounds.delivery)) {
            // What cannot be kept is missed, and is looked for when the channel is joined again.
            Some(Some(body)) => drop(inbox.deliver(&offered.channel, body).await?),
            Some(None) => {
                context.board.note(id, |standing| standing.refused.too_large += 1);
                inbox.joined(id).await?;
            }
            // It only says that there is something.
            None => inbox.joined(id).await?,
        }
    }
    Ok(())
}

/// Whether a message is of a service itself.
fn is_from(message: &Message, service: &Jid) -> bool {
    message.from.as_ref().is_some_and(|from| from.to_bare() == service.to_bare())
}

/// What takes no more than so many bytes.
struct Limited {
    bytes: Vec<u8>,
    most: u64,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.most {
            return Err(std::io::Error::other("too large"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What was published, as a document; none if it is larger than that.
fn bytes_of(payload: &Element, most: u64) -> Option<Bytes> {
    let mut limited = Limited { bytes: Vec::new(), most };
    payload.write_to(&mut limited).ok()?;
    Some(limited.bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_names_its_node() {
        let node = |service: &str, name: &str| Some(Node { service: service.to_owned(), name: name.to_owned() });
        for (url, expected) in [
            ("xmpp:pubsub.example.com?pubsub;node=changes", node("pubsub.example.com", "changes")),
            ("xmpp:pubsub.example.com?pubsub;node=a%2Fb%3Bc+d", node("pubsub.example.com", "a/b;c d")),
            ("xmpp:pubsub.example.com", None),
            ("xmpp:pubsub.example.com?pubsub", None),
            ("ws://pubsub.example.com?pubsub;node=x", None),
        ] {
            assert_eq!(Node::of(url), expected, "{url}");
        }
    }

    #[test]
    fn what_others_say_is_shown_in_one_short_line() {
        assert_eq!(told(" a\nb\u{9b}31m\u{202e}c "), "a\\nb\\u{9b}31m\\u{202e}c");
        assert_eq!(told(&"x".repeat(10_000)).chars().count(), MOST_SHOWN + 1);
    }

    #[test]
    fn what_is_published_is_written_as_far_as_it_is_taken() {
        let text = "<a xmlns='n' xmlns:p='m' p:b='1'><p:c>x &amp; y</p:c></a>";
        let element: Element = text.parse().unwrap();
        let bytes = bytes_of(&element, 1000).unwrap();
        let again: Element = std::str::from_utf8(&bytes).unwrap().parse().unwrap();
        assert_eq!(again, element);
        assert_eq!(bytes_of(&element, bytes.len() as u64 - 1), None);
    }
}
