//! The WebSub hub and the WebSocket server that other tests talk to do what these tests count on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::channel::Channel;
use crate::support::hub::{Hub, HubOptions};
use crate::support::server::{Reply, Server};
use futures_util::StreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

const WITHIN: Duration = Duration::from_secs(120);

/// What came to a callback.
#[derive(Clone, Debug)]
struct Received {
    method: String,
    /// The parameters of a verification.
    query: Vec<(String, String)>,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    at: Instant,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A subscriber that says yes to all. Dropping it closes its port.
struct Callback {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    changed: Condvar,
    /// So many deliveries are answered with 500.
    fails: AtomicU32,
    stop: AtomicBool,
}

impl Callback {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared: Arc<Shared> = Arc::default();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming().flatten() {
                    if shared.stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || serve(stream, &shared));
                }
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// Asks a hub, which must say that it has taken the request.
    fn asks(&self, hub: &Hub, mode: &str, topic: &str, lease: Option<u32>, secret: Option<&str>) {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("hub.mode", mode).append_pair("hub.topic", topic).append_pair("hub.callback", &self.url());
        if let Some(lease) = lease {
            form.append_pair("hub.lease_seconds", &lease.to_string());
        }
        if let Some(secret) = secret {
            form.append_pair("hub.secret", secret);
        }
        let form = form.finish();
        let mut stream = TcpStream::connect(("127.0.0.1", hub.port)).unwrap();
        write!(
            stream,
            "POST /hub HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{form}",
            hub.port,
            form.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 202 ") || answer.starts_with("HTTP/1.0 202 "), "{answer}");
    }

    /// Subscribes to a topic, and waits until the hub has it.
    fn subscribe(&self, hub: &Hub, topic: &str, lease: Option<u32>, secret: Option<&str>) {
        let subscribed = hub.subscriptions().len();
        self.asks(hub, "subscribe", topic, lease, secret);
        hub.wait_for_subscriptions(subscribed + 1);
    }

    /// Waits until so many requests of a method have come.
    fn wait(&self, method: &str, count: usize) -> Vec<Received> {
        let all = self.shared.received.lock().unwrap();
        let of = |all: &[Received]| all.iter().filter(|one| one.method == method).cloned().collect::<Vec<_>>();
        let (all, late) = self.shared.changed.wait_timeout_while(all, WITHIN, |all| of(all).len() < count).unwrap();
        assert!(!late.timed_out(), "{count} {method} do not come: {all:?}");
        of(&all)
    }

    fn bodies(&self, count: usize) -> Vec<String> {
        self.wait("POST", count).into_iter().map(|one| String::from_utf8(one.body).unwrap()).collect()
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers the requests of a connection. The hub keeps none.
fn serve(stream: TcpStream, shared: &Shared) {
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let mut out = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    let mut lines = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let Some(first) = lines.next() else { return };
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':').map(|(k, v)| (k.to_ascii_lowercase(), v.trim().to_owned())))
        .collect();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap());
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let query = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let received = Received { method, query, headers, body, at: Instant::now() };
    let says = received.parameter("hub.challenge").unwrap_or("").to_owned();
    let fails = received.method == "POST"
        && shared.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    let status = if fails { "500 x" } else { "200 x" };
    shared.received.lock().unwrap().push(received);
    let _ = write!(out, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{says}", says.len());
    shared.changed.notify_all();
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

/// The HMAC of a body, with the name of the algorithm before it.
fn signature(algorithm: &str, secret: &str, body: &[u8]) -> String {
    macro_rules! sign {
        ($digest:ty) => {{
            let mut mac = Hmac::<$digest>::new_from_slice(secret.as_bytes()).unwrap();
            mac.update(body);
            crate::support::hex(&mac.finalize().into_bytes())
        }};
    }
    let hex = match algorithm {
        "sha1" => sign!(sha1::Sha1),
        "sha256" => sign!(sha2::Sha256),
        "sha384" => sign!(sha2::Sha384),
        "sha512" => sign!(sha2::Sha512),
        _ => panic!("{algorithm}"),
    };
    format!("{algorithm}={hex}")
}

#[test]
fn a_subscription_is_verified_and_what_is_pushed_is_delivered_with_a_signature() {
    let topic = "http://127.0.0.1:9/topic?a=b&c=d";
    std::thread::scope(|scope| {
        for algorithm in ["sha1", "sha256", "sha384", "sha512"] {
            scope.spawn(move || {
                let hub = Hub::start(&HubOptions { algorithm, ..HubOptions::default() });
                let callback = Callback::start();
                callback.subscribe(&hub, topic, Some(100), Some("s3cret"));
                let asked = callback.wait("GET", 1).remove(0);
                assert_eq!(asked.parameter("hub.mode"), Some("subscribe"));
                assert_eq!(asked.parameter("hub.topic"), Some(topic));
                assert_eq!(asked.parameter("hub.lease_seconds"), Some("100"));
                let known = hub.subscriptions().remove(0);
                assert_eq!((known.callback, known.topic.as_str()), (callback.url(), topic));
                assert_eq!(known.secret.as_deref(), Some("s3cret"));
                assert!((now() + 90..=now() + 100).contains(&known.expires), "{}", known.expires);

                let body = b"<changes>\r\n\xff\0</changes>";
                hub.push(topic, body);
                let delivered = callback.wait("POST", 1).remove(0);
                assert_eq!(delivered.body, body);
                assert_eq!(delivered.header("x-hub-signature"), Some(&*signature(algorithm, "s3cret", body)));
                assert_eq!(delivered.header("content-type"), Some("application/xml"));
                let link = delivered.header("link").unwrap();
                assert_eq!(link, format!("<{topic}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url()));
            });
        }
    });
}

#[test]
fn a_pinged_topic_is_fetched_and_delivered() {
    let hub = Hub::start(&HubOptions::default());
    let server = Server::start();
    let topic = server.url("/topic");
    let link = format!("<{}>; rel=\"hub\", <{topic}>; rel=\"self\"", hub.url());
    server.on("/topic", {
        let link = link.clone();
        move |_| Reply::ok("thin").with("Link", &link).with("Content-Type", "text/plain").with("X-Other", "also this")
    });
    let callback = Callback::start();
    // Without a secret, nothing is signed.
    callback.subscribe(&hub, &topic, None, None);
    hub.ping(&topic);
    let delivered = callback.wait("POST", 1).remove(0);
    assert_eq!((delivered.body.as_slice(), server.count("/topic")), (&b"thin"[..], 1));
    assert_eq!(delivered.header("link"), Some(&*link));
    assert_eq!(delivered.header("content-type"), Some("text/plain"));
    assert_eq!(delivered.header("x-other"), Some("also this"));
    assert_eq!(delivered.header("x-hub-signature"), None);
}

#[test]
fn a_lease_is_as_short_as_the_hub_wants_and_ends() {
    let hub = Hub::start(&HubOptions::with_lease(8));
    let callback = Callback::start();
    callback.subscribe(&hub, "http://127.0.0.1:9/long", Some(1_000_000), None);
    callback.subscribe(&hub, "http://127.0.0.1:9/short", Some(1), None);
    callback.subscribe(&hub, "http://127.0.0.1:9/whatever", None, None);
    for asked in callback.wait("GET", 3) {
        assert_eq!(asked.parameter("hub.lease_seconds"), Some("8"));
    }
    hub.push("http://127.0.0.1:9/whatever", b"in time");
    assert_eq!(callback.bodies(1), ["in time"]);
    let ends = hub.subscriptions().iter().map(|one| one.expires).max().unwrap();
    while now() <= ends {
        std::thread::sleep(Duration::from_millis(50));
    }
    hub.push("http://127.0.0.1:9/whatever", b"too late");
    // Once what was pushed after it has come, it has been seen to.
    callback.subscribe(&hub, "http://127.0.0.1:9/other", None, None);
    hub.push("http://127.0.0.1:9/other", b"other");
    assert_eq!(callback.bodies(2), ["in time", "other"]);
    // Renewed, it delivers again; what came between does not come.
    callback.asks(&hub, "subscribe", "http://127.0.0.1:9/whatever", None, None);
    let began = Instant::now();
    while !hub.subscriptions().iter().any(|one| one.topic.ends_with("/whatever") && one.expires > ends) {
        assert!(began.elapsed() < WITHIN, "{:?}", hub.subscriptions());
        std::thread::sleep(Duration::from_millis(20));
    }
    hub.push("http://127.0.0.1:9/whatever", b"renewed");
    assert_eq!(callback.bodies(3), ["in time", "other", "renewed"]);
}

#[test]
fn one_worker_keeps_the_order_even_where_deliveries_fail() {
    let hub = Hub::start(&HubOptions { backoff: Duration::from_millis(20), ..HubOptions::default() });
    let (callback, other) = (Callback::start(), Callback::start());
    callback.subscribe(&hub, "http://127.0.0.1:9/topic", None, Some("s"));
    other.subscribe(&hub, "http://127.0.0.1:9/topic", None, None);
    callback.shared.fails.store(3, Ordering::SeqCst);
    let wanted: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    for body in &wanted {
        hub.push("http://127.0.0.1:9/topic", body.as_bytes());
    }
    assert_eq!(other.bodies(300), wanted);
    let mut delivered = callback.bodies(303);
    delivered.drain(..3).for_each(|failed| assert_eq!(failed, "0"));
    assert_eq!(delivered, wanted);
}

#[test]
fn many_workers_deliver_all_and_give_up_what_always_fails() {
    let backoff = Duration::from_millis(1);
    let hub = Hub::start(&HubOptions { workers: 4, retries: 2, backoff, ..HubOptions::default() });
    let callback = Callback::start();
    callback.subscribe(&hub, "http://127.0.0.1:9/topic", None, None);
    callback.shared.fails.store(3, Ordering::SeqCst);
    hub.push("http://127.0.0.1:9/topic", b"never");
    assert_eq!(callback.bodies(3), ["never"; 3]);
    let began = Instant::now();
    while !hub.log().contains("given up") {
        assert!(began.elapsed() < WITHIN, "{}", hub.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    for number in 0..100 {
        hub.push("http://127.0.0.1:9/topic", format!("{number:02}").as_bytes());
    }
    let mut delivered = callback.bodies(103).split_off(3);
    delivered.sort();
    assert_eq!(delivered, (0..100).map(|number| format!("{number:02}")).collect::<Vec<_>>());
}

#[test]
fn a_thousand_at_once_are_taken_and_delivered() {
    let hub = Hub::start(&HubOptions::default());
    let callback = Callback::start();
    callback.subscribe(&hub, "http://127.0.0.1:9/topic", None, Some("s"));
    let mut took: Vec<Duration> = (0..50)
        .map(|number| {
            let began = Instant::now();
            hub.push("http://127.0.0.1:9/topic", b"<one/>");
            callback.wait("POST", number + 1)[number].at - began
        })
        .collect();
    took.sort();
    println!("one delivery took {:?} (half of them), {:?} (most)", took[25], took[49]);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..125).for_each(|_| hub.push("http://127.0.0.1:9/topic", b"<many/>")));
        }
    });
    let taken = began.elapsed();
    callback.wait("POST", 1050);
    println!("1000 were taken in {taken:?}, delivered in {:?}", began.elapsed());
}

#[test]
fn subscriptions_outlive_the_hub_and_end_when_told() {
    let mut hub = Hub::start(&HubOptions::default());
    let callback = Callback::start();
    callback.subscribe(&hub, "http://127.0.0.1:9/a", None, Some("s"));
    callback.subscribe(&hub, "http://127.0.0.1:9/b", None, None);
    let (known, url) = (hub.subscriptions(), hub.url());
    hub.stop();
    assert!(TcpStream::connect(("127.0.0.1", hub.port)).is_err());
    assert_eq!(hub.subscriptions(), known);
    hub.start_again();
    assert_eq!((hub.subscriptions(), hub.url()), (known, url));
    hub.push("http://127.0.0.1:9/a", b"still");
    let delivered = callback.wait("POST", 1).remove(0);
    assert_eq!(delivered.header("x-hub-signature"), Some(&*signature("sha256", "s", b"still")));

    callback.asks(&hub, "unsubscribe", "http://127.0.0.1:9/a", None, None);
    let left = hub.wait_for_subscriptions(1);
    assert_eq!(left[0].topic, "http://127.0.0.1:9/b");
    assert_eq!(callback.wait("GET", 3)[2].parameter("hub.mode"), Some("unsubscribe"));
}

#[test]
fn a_denied_topic_is_denied() {
    let denied = vec!["http://127.0.0.1:9/no".to_owned()];
    let hub = Hub::start(&HubOptions { denied, ..HubOptions::default() });
    let callback = Callback::start();
    callback.asks(&hub, "subscribe", "http://127.0.0.1:9/no", None, None);
    let told = callback.wait("GET", 1).remove(0);
    assert_eq!(told.parameter("hub.mode"), Some("denied"));
    assert_eq!(told.parameter("hub.topic"), Some("http://127.0.0.1:9/no"));
    assert_eq!((told.parameter("hub.challenge"), hub.subscriptions()), (None, vec![]));
    callback.subscribe(&hub, "http://127.0.0.1:9/not", None, None);
}

/// Asks for a WebSocket on a connection, and reads the answer.
fn upgrade(stream: &mut (impl std::io::Read + std::io::Write)) {
    stream
        .write_all(
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
}

fn connection(channel: &Channel) -> TcpStream {
    let address = channel.url().split('/').nth(2).unwrap().to_owned();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream
}

async fn client(channel: &Channel) -> WebSocketStream<tokio::net::TcpStream> {
    let mut stream = connection(channel);
    upgrade(&mut stream);
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    WebSocketStream::from_raw_socket(stream, Role::Client, None).await
}

/// The next text, or nothing where the connection ends without a close frame.
async fn next(client: &mut WebSocketStream<tokio::net::TcpStream>) -> Option<String> {
    match tokio::time::timeout(WITHIN, client.next()).await.expect("a frame, or an end").unwrap() {
        Ok(Message::Text(text)) => Some(text.as_str().to_owned()),
        Ok(other) => panic!("{other:?}"),
        Err(Error::Protocol(_) | Error::Io(_)) => None,
        Err(other) => panic!("{other:?}"),
    }
}

async fn wait_for_clients(channel: &mut Channel, count: usize) {
    let began = Instant::now();
    while channel.clients() != count {
        assert!(began.elapsed() < WITHIN, "there are {} clients", channel.clients());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn frames_go_to_all_clients_until_they_are_cut() {
    let mut channel = Channel::start(None);
    assert_eq!((channel.clients(), channel.send("to nobody")), (0, 0));
    let mut first = client(&channel).await;
    channel.wait_for_client();
    assert_eq!(channel.send("<é/>\n\"1\""), 1);
    let mut second = client(&channel).await;
    wait_for_clients(&mut channel, 2).await;
    let long = "long ".repeat(1 << 20);
    // The clients read as it is sent.
    let sent = std::thread::spawn(move || (channel.send(&long), channel, long));
    assert_eq!(next(&mut first).await.as_deref(), Some("<é/>\n\"1\""));
    let (one, other) = tokio::join!(next(&mut first), next(&mut second));
    let (count, mut channel, long) = sent.join().unwrap();
    assert!(count == 2 && one.as_deref() == Some(&long) && other == one);
    channel.cut();
    assert_eq!((next(&mut first).await, next(&mut second).await, channel.clients()), (None, None, 0));
    // It goes on.
    let mut third = client(&channel).await;
    channel.wait_for_client();
    assert_eq!((channel.send("again"), next(&mut third).await.as_deref()), (1, Some("again")));
    drop(third);
    wait_for_clients(&mut channel, 0).await;
}

#[tokio::test]
async fn a_connection_is_cut_after_its_frames() {
    let mut channel = Channel::start(Some(2));
    for _ in 0..3 {
        let mut client = client(&channel).await;
        channel.wait_for_client();
        assert_eq!((channel.send("1"), channel.send("2"), channel.send("lost")), (1, 1, 0));
        assert_eq!(next(&mut client).await.as_deref(), Some("1"));
        assert_eq!(next(&mut client).await.as_deref(), Some("2"));
        assert_eq!(next(&mut client).await, None);
    }
}

#[test]
fn with_tls_the_certificate_is_the_one_given() {
    crate::support::require(&["openssl"]);
    let folder = tempfile::tempdir().unwrap();
    crate::support::shell(&format!(
        "cd {} && exec 2>/dev/null
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3 -subj '/CN=127.0.0.1' \
             -addext 'subjectAltName=IP:127.0.0.1' -addext 'basicConstraints=critical,CA:FALSE' -keyout key -out cert
         openssl x509 -in cert -outform DER -out cert.der",
        folder.path().display()
    ));
    let mut channel = Channel::start_tls(Some(1), &folder.path().join("cert"), &folder.path().join("key"));
    assert!(channel.url().starts_with("wss://127.0.0.1:"), "{}", channel.url());
    let certificate = std::fs::read(folder.path().join("cert.der")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.into()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = rustls::ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    let mut stream = rustls::StreamOwned::new(tls, connection(&channel));
    upgrade(&mut stream);
    channel.wait_for_client();
    assert_eq!(channel.send("frame"), 1);
    let mut frame = [0; 7];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x05frame");
    let mut more = [0; 1];
    assert!(stream.read_exact(&mut more).is_err(), "{more:?}");
}
