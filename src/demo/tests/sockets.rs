//! The WebSockets of the demo Source, and a client that does its handshake by hand.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::notifications::{Read, assert_joined};
use super::*;
use crate::demo::notifications::{Channel, WAITING};
use crate::demo::sockets::CLIENTS;

/// How long anything may take that will come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key of RFC 6455, 1.3, and the answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const HANDSHAKE: [(&str, &str); 4] = [
    ("Upgrade", "WebSocket"),
    ("Connection", "keep-alive, Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

struct Client(WebSocketStream<TcpStream>);

impl Client {
    /// What comes next; nothing if the other end is gone.
    async fn next(&mut self) -> Option<Message> {
        tokio::time::timeout(PATIENCE, self.0.next()).await.unwrap()?.ok()
    }

    async fn notification(&mut self) -> Read {
        Read::of(self.next().await.unwrap().into_text().unwrap().as_bytes())
    }
}

impl Running {
    /// Asks for a channel: the status, the header, and the connection.
    async fn handshake(&self, path: &str, fields: &[(&str, &str)]) -> (u16, String, TcpStream) {
        let host = self.base.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).await.unwrap();
        let fields = fields.iter().fold(String::new(), |text, (name, value)| format!("{text}{name}: {value}\r\n"));
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head, stream)
    }

    async fn connect(&self, channel: Channel) -> Client {
        let (status, head, stream) = self.handshake(channel.socket(), &HANDSHAKE).await;
        assert_eq!(status, 101, "{head}");
        let head = head.to_ascii_lowercase();
        let accept = format!("\r\nsec-websocket-accept: {}\r\n", ACCEPT.to_ascii_lowercase());
        for field in [accept.as_str(), "\r\nupgrade: websocket\r\n", "\r\nconnection: upgrade\r\n"] {
            assert!(head.contains(field), "{head}");
        }
        assert!(!head.contains("content-length"), "{head}");
        Client(WebSocketStream::from_raw_socket(stream, Role::Client, None).await)
    }
}

#[tokio::test]
async fn each_notification_is_a_frame() {
    let running = Running::start().await;
    let mut clients = [running.connect(Channel::Changes).await, running.connect(Channel::Changes).await];
    let mut framework = running.connect(Channel::Framework).await;
    let mut told = [Vec::new(), Vec::new()];
    for _ in 0..30 {
        running.change(1);
        for (client, told) in clients.iter_mut().zip(&mut told) {
            told.push(client.notification().await);
        }
    }
    told.iter().for_each(|told| assert_joined(told));
    let entries: Vec<_> = told[0].iter().flat_map(|told| told.entries.iter().map(|entry| &entry.loc)).collect();
    let list = Read::of(running.text("/changes/0001.xml").await.as_bytes());
    assert_eq!(entries, list.entries.iter().map(|entry| &entry.loc).collect::<Vec<_>>());
    assert_eq!(framework.notification().await.entries.len(), 4);
}

#[tokio::test]
async fn pings_are_answered_and_the_rest_is_passed_over() {
    let running = Running::start().await;
    let mut client = running.connect(Channel::Changes).await;
    client.0.send(Message::text("is anybody there?")).await.unwrap();
    client.0.send(Message::Ping("1".into())).await.unwrap();
    assert_eq!(client.next().await, Some(Message::Pong("1".into())));
    running.change(1);
    client.notification().await;
    client.0.send(Message::Close(None)).await.unwrap();
    assert!(matches!(client.next().await, Some(Message::Close(_))));
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn what_is_too_large_ends_the_connection() {
    let running = Running::start().await;
    let mut client = running.connect(Channel::Changes).await;
    // Its end may come before all of it is sent.
    let _ = client.0.send(Message::text("x".repeat((64 << 10) + 1))).await;
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn without_a_handshake_there_is_no_channel() {
    let running = Running::start().await;
    for (index, wrong) in [(0, "h2c"), (1, "close"), (2, "8"), (3, "c2hvcnQ="), (3, "!")] {
        let mut fields = HANDSHAKE;
        fields[index].1 = wrong;
        let (status, head, _stream) = running.handshake(Channel::Changes.socket(), &fields).await;
        assert_eq!(status, 426, "{fields:?}");
        assert!(head.to_ascii_lowercase().contains("\r\nsec-websocket-version: 13\r\n"), "{head}");
    }
    let plain = running.get(Channel::Framework.socket()).await;
    assert_eq!((plain.status(), field(&plain, "upgrade").as_str()), (StatusCode::UPGRADE_REQUIRED, "websocket"));
    assert!(!plain.text().await.unwrap().is_empty());
    assert_eq!(running.handshake("/channels/weather", &HANDSHAKE).await.0, 404);
}

#[tokio::test]
async fn a_client_that_falls_behind_is_dropped() {
    let running = Running::start().await;
    let mut client = running.connect(Channel::Changes).await;
    running.change(1);
    client.notification().await;
    running.change(WAITING + 1);
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn there_is_room_for_so_many_clients() {
    let running = Running::start().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(running.connect(Channel::Changes).await);
    }
    assert_eq!(running.handshake(Channel::Framework.socket(), &HANDSHAKE).await.0, 503);
    clients.pop();
    let begun = std::time::Instant::now();
    while running.handshake(Channel::Framework.socket(), &HANDSHAKE).await.0 != 101 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn all_ends_with_the_source() {
    let running = Running::start().await;
    let mut client = running.connect(Channel::Changes).await;
    let Running { content, hub, base, _end: end, .. } = running;
    drop(end);
    assert_eq!(client.next().await, None);
    let begun = std::time::Instant::now();
    while TcpStream::connect(base.strip_prefix("http://").unwrap()).await.is_ok()
        || Arc::strong_count(&content) > 2
        || Arc::strong_count(&hub) > 1
    {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
