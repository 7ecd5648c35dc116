//! A channel that is a node of an XMPP PubSub service (ResourceSync 0.1, 5.2.1; XEP-0060): the Source publishes Change Sets, and
//! the service sends them to an account of ours.
//!
//! The account is subscribed by its bare address, so that a restart finds the subscription that was there; it is not given up at
//! the end, for other mounts may share it. Only the service that the Source named is believed.

mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_xmpp::jid::Jid;
use tokio_xmpp::minidom::Element;
use tokio_xmpp::parsers::message::Message;
use tokio_xmpp::parsers::ns;
use tokio_xmpp::parsers::pubsub::NodeName;
use tokio_xmpp::parsers::pubsub::pubsub::{PubSub, Subscribe};

use super::{Context, Phase, backoff};
use crate::bounds;
use crate::source::Account;
use crate::sync::OfferedChannel;

use session::Session;

/// The longest wait before a session is tried again.
const LONGEST: Duration = Duration::from_secs(60);
/// How long somebody is left alone who does not want us.
const DENIED: Duration = Duration::from_secs(600);
/// So many tries in a row that failed are an error, and not the way of the world.
const LASTING: u32 = 3;
/// A session that held so long was a good one.
const GOOD: Duration = Duration::from_secs(10);

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
        let began = Instant::now();
        match once(&context, &offered).await {
            Ended::Broken(why) => {
                tries = if began.elapsed() >= GOOD { 0 } else { tries };
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

/// Joins once, and listens until it ends.
async fn once(context: &Context, offered: &OfferedChannel) -> Ended {
    let Some(node) = Node::of(&offered.channel.url) else {
        return Ended::Denied("its URL names no node of a PubSub service".to_owned());
    };
    let Some(account) = context.client.account(&node.service) else {
        return Ended::Denied(super::no_account(&node.service));
    };
    match listen(context, offered, &node, account).await {
        Err(ended) => ended,
        Ok(never) => match never {},
    }
}

async fn listen(
    context: &Context,
    offered: &OfferedChannel,
    node: &Node,
    account: &Account,
) -> Result<std::convert::Infallible, Ended> {
    let id = offered.channel.id;
    let broken = |error: String| Ended::Broken(error);
    let service: Jid = node.service.parse().map_err(|error| Ended::Denied(format!("{}: {error}", node.service)))?;
    let mut session = Session::begin(&context.client, account, context.bounds.delivery).await?;
    let own: Jid = account.jid.parse().map_err(|error| Ended::Denied(format!("{}: {error}", account.jid)))?;
    let subscribe = Subscribe { jid: own, node: Some(NodeName(node.name.clone())) };
    let asked = PubSub::Subscribe { subscribe: Some(subscribe), options: None };
    let answered = session.ask(Some(service.clone()), asked.into()).await?;
    let state = answered.as_ref().and_then(|answer| answer.get_child("subscription", ns::PUBSUB));
    match state.and_then(|subscription| subscription.attr("subscription")) {
        None | Some("subscribed") => {}
        Some(other) => {
            return Err(Ended::Denied(format!("the subscription is {other:?}; its owner has to confirm it")));
        }
    }
    // What was published before this moment is lost to us: from here on, nothing is.
    context.engine.joined(id).await.map_err(|error| broken(error.to_string()))?;
    context.board.set(id, Phase::Live);
    tracing::info!(url = offered.channel.url, "a channel is joined");
    loop {
        let message = session.message().await?;
        let Some(items) = items_of(&message, &node.name) else { continue };
        if message.from.as_ref().is_none_or(|from| from.to_bare() != service.to_bare()) {
            context.board.note(id, |standing| standing.refused.foreign += 1);
            continue;
        }
        for item in items.children().filter(|child| child.is("item", ns::PUBSUB_EVENT)) {
            match item.children().next() {
                Some(payload) => {
                    let body = String::from(payload);
                    if body.len() as u64 > context.bounds.delivery {
                        context.board.note(id, |standing| standing.refused.too_large += 1);
                        let beyond = bounds::DELIVERY.passed("the size of a notification", &context.bounds);
                        return Err(broken(beyond.to_string()));
                    }
                    // What cannot be kept is missed, and is looked for when the channel is joined again.
                    let kept = context.engine.deliver(&offered.channel, Bytes::from(body)).await;
                    kept.map_err(|error| broken(error.to_string()))?;
                }
                // It only says that there is something.
                None => context.engine.joined(id).await.map_err(|error| broken(error.to_string()))?,
            }
        }
    }
}

/// What a message says was published on a node, if it says that at all.
fn items_of<'m>(message: &'m Message, node: &str) -> Option<&'m Element> {
    let event = message.payloads.iter().find(|payload| payload.is("event", ns::PUBSUB_EVENT))?;
    event.get_child("items", ns::PUBSUB_EVENT).filter(|items| items.attr("node") == Some(node))
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
}
