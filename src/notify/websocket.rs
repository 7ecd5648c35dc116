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
/// What is read of the socket at once, in bytes, and what waits there to be sent: pongs, and the frame that closes it.
const BUFFER: usize = 16 << 10;
/// What messages that have not come to their end may take in memory, of all channels together, in bytes.
const UNFINISHED: u64 = 32 << 20;
/// A channel that was closed because of a flood is joined again after the longest wait.
const AFTER_FLOOD: u32 = 16;
/// So long a channel may send more than [`bounds::MESSAGES`] before it is closed.
const FLOOD: Duration = Duration::from_secs(30);

/// How many frames may be read now: as many as come in a second at the rate of the bound, at most.
struct Allowance {
    per_second: f64,
    left: f64,
    last: Instant,
    /// Since when frames have come faster.
    exceeded: Option<Instant>,
}

impl Allowance {
    fn new(per_second: u64) -> Self {
        let per_second = per_second as f64;
        Self { per_second, left: per_second, last: Instant::now(), exceeded: None }
    }

    /// Takes one frame. Returns how long nothing more should be read, or `None` if frames have come too fast for too long.
    fn take(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let came = now.duration_since(self.last).as_secs_f64() * self.per_second;
        self.last = now;
        self.left = (self.left + came).min(self.per_second) - 1.0;
        if self.left >= 0.0 {
            // As long as half of it is left, the rate is kept.
            self.exceeded = self.exceeded.filter(|_| self.left < self.per_second / 2.0);
            return Some(Duration::ZERO);
        }
        let since = *self.exceeded.get_or_insert(now);
        (now.duration_since(since) < FLOOD).then(|| Duration::from_secs_f64(-self.left / self.per_second))
    }
}

/// Stays with a channel, for ever.
pub(super) async fn stay(context: Arc<Context>, offered: OfferedChannel) {
    let id = offered.channel.id;
    let url = &offered.channel.url;
    let mut tries = 0;
    loop {
        let began = Instant::now();
        let mut heard = false;
        let (why, flooded) = match once(&context, &offered, &mut heard).await {
            Ok(()) => (format!("{url}: the Source closed the channel"), false),
            Err(Ended::Flooded(why)) => (why, true),
            Err(Ended::Failed(why)) => (why, false),
        };
        tries = match began.elapsed() >= GOOD {
            _ if flooded => AFTER_FLOOD,
            true => 0,
            // One that tells something, and always breaks off, is tried again soon, but not at once.
            false if heard => tries.min(MOST_SOON),
            false => tries,
        };
        match tries {
            LASTING | AFTER_FLOOD => {
                context.engine.status().error(&format!("a channel cannot be joined, trying again: {why}"))
            }
            _ => tracing::info!(url, why, "a channel ended; it will be joined again"),
        }
        context.board.set(id, Phase::Failing(why));
        tokio::time::sleep(backoff(tries, LONGEST)).await;
        tries += 1;
    }
}

/// Why a connection ended.
enum Ended {
    /// More came than is read.
    Flooded(String),
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// A peer that sends pings and does not read gets as many pongs as the buffer holds.
fn config(most: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(most))
        .max_frame_size(Some(most))
        .read_buffer_size(BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(BUFFER)
}

/// Joins once, and listens until it ends. `heard` is set when something came that told
/// more than that something has changed.
async fn once(context: &Context, offered: &OfferedChannel, heard: &mut bool) -> Result<(), Ended> {
    let (id, url) = (offered.channel.id, &offered.channel.url);
    let (connection, _permit) = context.client.upgrade(url).await.map_err(|error| error.to_string())?;
    let most = bounds::count(context.bounds.delivery.min(UNFINISHED / context.sockets().max(1)));
    let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config(most))).await;
    // What was sent before this moment is lost to us: from here on, nothing is.
    context.engine.inbox().joined(id).await.map_err(|error| error.to_string())?;
    context.board.set(id, Phase::Live);
    tracing::info!(url, "a channel is joined");
    let failed = |error: tokio_tungstenite::tungstenite::Error| format!("{url}: {error}");
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    let mut last = Instant::now();
    let mut allowance = Allowance::new(context.bounds.messages);
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            _ = ping.tick() => {
                if last.elapsed() > PING + context.client.timeout() {
                    return Err(format!("{url}: nothing was heard for {} s", last.elapsed().as_secs()).into());
                }
                let sent = tokio::time::timeout(context.client.timeout(), socket.send(Message::Ping(Bytes::new()))).await;
                sent.map_err(|_| format!("{url}: it does not take a ping"))?.map_err(failed)?;
                continue;
            }
        };
        last = Instant::now();
        match allowance.take() {
            Some(wait) if wait.is_zero() => {}
            Some(wait) => tokio::time::sleep(wait).await,
            None => {
                let beyond = bounds::MESSAGES.passed("the number of messages and pings a second", &context.bounds);
                let why = format!("{url}: {beyond}; the channel is closed for a while, and the Source is polled");
                return Err(Ended::Flooded(why));
            }
        }
        let body = match message {
            None | Some(Ok(Message::Close(_))) => return Ok(()),
            Some(Err(tokio_tungstenite::tungstenite::Error::Capacity(_))) => {
                context.board.note(id, |standing| standing.refused.too_large += 1);
                let beyond = bounds::DELIVERY.passed("the size of a notification", &context.bounds);
                return Err(format!(
                    "{url}: {beyond}, or than the {most} bytes that each of so many channels may take"
                )
                .into());
            }
            Some(Err(error)) => return Err(failed(error).into()),
            Some(Ok(Message::Text(text))) => Bytes::from(text),
            Some(Ok(Message::Binary(bytes))) => bytes,
            Some(Ok(_)) => continue,
        };
        // What cannot be kept is missed, and is looked for when the channel is joined again.
        *heard |= context.engine.inbox().deliver(&offered.channel, body).await.map_err(|error| error.to_string())?;
    }
}
