//! The channels of the demo Source as WebSockets (RFC 6455), as the Notification draft 0.8 had them: each
//! notification is a text frame. A client that does not take them in time is dropped, and may come again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use sha1::{Digest as _, Sha1};
use tokio::sync::{Semaphore, broadcast};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::Content;
use super::answers::{plain, with};
use super::life::Life;
use super::notifications::Channel;

/// How many clients there may be.
pub(super) const CLIENTS: usize = 64;
/// The largest message a client may send; none is of interest.
const LARGEST: usize = 64 << 10;
/// How much is read at once, for which each client has a buffer.
const READ: usize = 4 << 10;
/// The most that waits to be written to a client.
const UNWRITTEN: usize = 1 << 20;
/// How long a client may take to receive a notification.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What follows the key of a client when it is hashed for the answer (RFC 6455, 1.3).
const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What gives clients their channel.
pub(super) struct Sockets {
    content: Arc<RwLock<Content>>,
    life: Life,
    room: Arc<Semaphore>,
}

impl Sockets {
    pub(super) fn new(content: Arc<RwLock<Content>>, life: Life) -> Self {
        Self { content, life, room: Arc::new(Semaphore::new(CLIENTS)) }
    }
}

/// Answers the handshake of a client. It misses nothing that is sent after the answer.
pub(super) async fn open(State(sockets): State<Arc<Sockets>>, mut request: Request) -> Response<Body> {
    let path = request.uri().path();
    let Some(channel) = Channel::ALL.into_iter().find(|channel| channel.socket() == path) else {
        return plain(StatusCode::NOT_FOUND, "there is no such channel\n");
    };
    let protocol = [(header::UPGRADE, "websocket".to_owned()), (header::CONNECTION, "upgrade".to_owned())];
    let accept = (request.method() == Method::GET).then(|| accept(request.headers())).flatten();
    let Some(accept) = accept else {
        let version = (header::SEC_WEBSOCKET_VERSION, "13".to_owned());
        let response = plain(StatusCode::UPGRADE_REQUIRED, "this is a WebSocket channel, version 13\n");
        return with(response, protocol.into_iter().chain([version]));
    };
    let Ok(place) = Arc::clone(&sockets.room).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "there is no room for more clients\n");
    };
    let notifications = sockets.content.read().listen(channel);
    let upgrade = hyper::upgrade::on(&mut request);
    sockets.life.spawn(async move {
        serve(upgrade, notifications).await;
        drop(place);
    });
    let accept = (header::SEC_WEBSOCKET_ACCEPT, accept);
    with(plain(StatusCode::SWITCHING_PROTOCOLS, ""), protocol.into_iter().chain([accept]))
}

/// The value of `Sec-WebSocket-Accept`; none if the header is no handshake (RFC 6455, 4.2.1).
fn accept(headers: &HeaderMap) -> Option<String> {
    let field = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let names = |name, token: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(token)))
    };
    let asked = names(header::UPGRADE, "websocket")
        && names(header::CONNECTION, "upgrade")
        && field(header::SEC_WEBSOCKET_VERSION) == Some("13");
    let key = field(header::SEC_WEBSOCKET_KEY).filter(|_| asked)?;
    let nonce = STANDARD.decode(key).ok()?;
    (nonce.len() == 16).then(|| STANDARD.encode(Sha1::digest(format!("{key}{SUFFIX}"))))
}

async fn serve(upgrade: OnUpgrade, notifications: broadcast::Receiver<Utf8Bytes>) {
    match upgrade.await {
        Ok(upgraded) => pass_on(upgraded, notifications).await,
        Err(error) => tracing::debug!(%error, "a WebSocket client left before it was answered"),
    }
}

/// Sends what there is until the client leaves or falls too far behind. What it says is read, so that its pings
/// are answered, and passed over.
async fn pass_on(upgraded: Upgraded, mut notifications: broadcast::Receiver<Utf8Bytes>) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST))
        .read_buffer_size(READ)
        .write_buffer_size(0)
        .max_write_buffer_size(UNWRITTEN);
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    loop {
        tokio::select! {
            said = socket.next() => match said {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            next = notifications.recv() => {
                let Ok(text) = next else {
                    tracing::debug!("a WebSocket client was too slow");
                    return;
                };
                match tokio::time::timeout(TIMEOUT, socket.send(Message::Text(text))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return,
                }
            }
        }
    }
}
