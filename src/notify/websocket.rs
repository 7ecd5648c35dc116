//! A channel that is a WebSocket (the draft 0.8, 6; RFC 6455): the Source sends, we listen.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::{Context, Phase, backoff};
use crate::bounds;
use crate::sync::OfferedChannel;

/// How often the other side is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);
/// The longest wait before a connection is tried again.
const LONGEST: Duration = Duration::from_secs(60);
/// So many tries in a row that failed are an error, and not the way of the world.
const LASTING: u32 = 3;
/// So often the wait is doubled at most where something was heard.
const MOST_SOON: u32 = 2;
/// A connection that held so long was a good one.
const GOOD: Duration = Duration::from_secs(10);

/// Stays with a channel, for ever.
pub(super) async fn stay(context: Arc<Context>, offered: OfferedChannel) {
    let id = offered.channel.id;
    let url = &offered.channel.url;
    let mut tries = 0;
    loop {
        let began = Instant::now();
        let mut heard = false;
        let why = match once(&context, &offered, &mut heard).await {
            Ok(()) => format!("{url}: the Source closed the channel"),
            Err(why) => why,
        };
        tries = match began.elapsed() >= GOOD {
            true => 0,
            // One that tells something, and always breaks off, is tried again soon, but not at once.
            false if heard => tries.min(MOST_SOON),
            false => tries,
        };
        match tries {
            LASTING => context.engine.status().error(&format!("a channel cannot be joined, trying again: {why}")),
            _ => tracing::info!(url, why, "a channel ended; it will be joined again"),
        }
        context.board.set(id, Phase::Failing(why));
        tokio::time::sleep(backoff(tries, LONGEST)).await;
        tries += 1;
    }
}

/// Joins once, and listens until it ends. `heard` is set when something came that told
/// more than that something has changed.
async fn once(context: &Context, offered: &OfferedChannel, heard: &mut bool) -> Result<(), String> {
    let (id, url) = (offered.channel.id, &offered.channel.url);
    let connection = context.client.upgrade(url).await.map_err(|error| error.to_string())?;
    let most = Some(bounds::count(context.bounds.delivery));
    let config = WebSocketConfig::default().max_message_size(most).max_frame_size(most);
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config)).await;
    // What was sent before this moment is lost to us: from here on, nothing is.
    context.engine.joined(id).await.map_err(|error| error.to_string())?;
    context.board.set(id, Phase::Live);
    tracing::info!(url, "a channel is joined");
    let failed = |error: tokio_tungstenite::tungstenite::Error| format!("{url}: {error}");
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    let mut last = Instant::now();
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            _ = ping.tick() => {
                if last.elapsed() > PING + context.client.timeout() {
                    return Err(format!("{url}: nothing was heard for {} s", last.elapsed().as_secs()));
                }
                let sent = tokio::time::timeout(context.client.timeout(), socket.send(Message::Ping(Bytes::new()))).await;
                sent.map_err(|_| format!("{url}: it does not take a ping"))?.map_err(failed)?;
                continue;
            }
        };
        last = Instant::now();
        let body = match message {
            None | Some(Ok(Message::Close(_))) => return Ok(()),
            Some(Err(tokio_tungstenite::tungstenite::Error::Capacity(_))) => {
                context.board.note(id, |standing| standing.refused.too_large += 1);
                let beyond = bounds::DELIVERY.passed("the size of a notification", &context.bounds);
                return Err(format!("{url}: {beyond}"));
            }
            Some(Err(error)) => return Err(failed(error)),
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(_)) => continue,
        };
        // What cannot be kept is missed, and is looked for when the channel is joined again.
        *heard |= context.engine.deliver(&offered.channel, body).await.map_err(|error| error.to_string())?;
    }
}
