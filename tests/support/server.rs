//! A real HTTP server on loopback that can be told to misbehave, path by path.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{network, sha256};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered, and how badly.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// After so many bytes of the body, be silent for ever.
    pub stall_after: Option<usize>,
    /// After so many bytes of the body, close the connection.
    pub close_after: Option<usize>,
    /// Before anything, wait.
    pub delay: Duration,
    /// Between stretches of 16 KiB of the body, wait.
    pub drip: Duration,
    /// Send the body over and over, for ever, in chunks, and without a length.
    pub endless: bool,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }

    /// These bytes over and over, for ever.
    pub fn endless(body: impl Into<Vec<u8>>) -> Self {
        Self { endless: true, ..Self::ok(body) }
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A body with validators, answering conditions and ranges as a good server does.
    pub fn good(request: &Request, body: &[u8]) -> Self {
        let tag = format!("\"{}\"", &sha256(body)[..16]);
        if request.header("if-none-match") == Some(tag.as_str()) {
            return Self::status(304).with("ETag", &tag);
        }
        let range = request.header("range").and_then(|range| {
            let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            let begin: usize = first.parse().ok()?;
            let end = if last.is_empty() { body.len() } else { last.parse::<usize>().ok()? + 1 }.min(body.len());
            (begin < end).then_some((begin, end))
        });
        match range.filter(|_| request.header("if-range").is_none_or(|known| known == tag)) {
            Some((begin, end)) => Self { status: 206, body: body[begin..end].to_vec(), ..Self::default() }
                .with("Content-Range", &format!("bytes {begin}-{}/{}", end - 1, body.len())),
            None => Self::ok(body),
        }
        .with("ETag", &tag)
        .with("Accept-Ranges", "bytes")
    }
}

type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// The server. Dropping it closes the port.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    paths: Arc<Mutex<HashMap<String, Handler>>>,
    log: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts on https, with the certificate and the key in these files.
    pub fn start_tls(certificate: &Path, key: &Path) -> Self {
        let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("the key of the certificate");
        Self::launch("127.0.0.1:0".parse().expect("an address"), Some(Arc::new(config)))
    }

    /// Starts at an address that was free before, with nothing to answer yet.
    pub fn at(address: SocketAddr) -> Self {
        Self::launch(address, None)
    }

    fn launch(address: SocketAddr, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = network::listener(address);
        let address = listener.local_addr().expect("its address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let paths: Arc<Mutex<HashMap<String, Handler>>> = Arc::default();
        let log: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (stop, connections) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default());
        let thread = std::thread::spawn({
            let (paths, log, stop) = (Arc::clone(&paths), Arc::clone(&log), Arc::clone(&stop));
            let connections = Arc::clone(&connections);
            move || {
                for stream in listener.incoming().flatten() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    connections.fetch_add(1, Ordering::SeqCst);
                    let (paths, log, stop) = (Arc::clone(&paths), Arc::clone(&log), Arc::clone(&stop));
                    let session = tls.as_ref().map(|tls| ServerConnection::new(Arc::clone(tls)).expect("a session"));
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
                    // Head and body are two writes: without this, the second waits 40 ms for the first to be acknowledged.
                    let _ = stream.set_nodelay(true);
                    std::thread::spawn(move || match session {
                        Some(session) => answer(StreamOwned::new(session, stream), &paths, &log, &stop),
                        None => answer(stream, &paths, &log, &stop),
                    });
                }
            }
        });
        Self { address, scheme, paths, log, connections, stop, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path that begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    pub fn on(&self, path: &str, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        self.paths.lock().expect("no panic").insert(path.to_owned(), Arc::new(handler));
    }

    /// Serves bytes at a path as a good server does.
    pub fn file(&self, path: &str, body: impl Into<Vec<u8>>) {
        let body = body.into();
        self.on(path, move |request| Reply::good(request, &body));
    }

    pub fn remove(&self, path: &str) {
        self.paths.lock().expect("no panic").remove(path);
    }

    /// A Source with one set, whose Resource List has these entries, at the usual places.
    pub fn source(&self, at: &str, entries: &str) {
        self.file(
            "/.well-known/resourcesync",
            super::document(
                "description",
                "",
                "",
                &super::capability(&self.url("/capabilitylist.xml"), "capabilitylist"),
            ),
        );
        self.file(
            "/capabilitylist.xml",
            super::document(
                "capabilitylist",
                "",
                "",
                &super::capability(&self.url("/resourcelist.xml"), "resourcelist"),
            ),
        );
        self.file("/resourcelist.xml", super::resource_list(at, entries));
    }

    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().expect("no panic").clone()
    }

    /// How many connections were made, whatever came of them.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How often a path was asked for.
    pub fn count(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.path == path).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(
    stream: impl Read + Write,
    paths: &Mutex<HashMap<String, Handler>>,
    log: &Mutex<Vec<Request>>,
    stop: &AtomicBool,
) {
    let mut input = BufReader::new(stream);
    loop {
        let mut lines = input.by_ref().lines();
        let Some(Ok(first)) = lines.next() else { return };
        let mut words = first.split(' ').map(str::to_owned);
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
        let headers: Vec<(String, String)> = lines
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.split_once(':').map(|(k, v)| (k.to_ascii_lowercase(), v.trim().to_owned())))
            .collect();
        let length =
            headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if input.read_exact(&mut body).is_err() {
            return;
        }
        let request = Request { method, path, headers, body };
        if stop.load(Ordering::SeqCst) {
            return;
        }
        log.lock().expect("no panic").push(request.clone());
        let handler = paths.lock().expect("no panic").get(&request.path).cloned();
        let reply = handler.map_or_else(|| Reply::status(404), |handler| handler(&request));
        if !send(input.get_mut(), &request, &reply, stop) {
            return;
        }
    }
}

fn sleep(time: Duration, stop: &AtomicBool) {
    let began = std::time::Instant::now();
    while began.elapsed() < time && !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(10).min(time));
    }
}

/// Sends a reply; says whether the connection goes on.
fn send(out: &mut impl Write, request: &Request, reply: &Reply, stop: &AtomicBool) -> bool {
    sleep(reply.delay, stop);
    let mut head = format!("HTTP/1.1 {} x\r\n", reply.status);
    let says_length = reply.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if reply.endless {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if !says_length && reply.status != 304 {
        head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    if out.write_all(head.as_bytes()).is_err() {
        return false;
    }
    if request.method == "HEAD" || reply.status == 304 {
        return true;
    }
    if reply.endless {
        let chunk = [format!("{:x}\r\n", reply.body.len()).as_bytes(), &reply.body, b"\r\n"].concat();
        while !stop.load(Ordering::SeqCst) && out.write_all(&chunk).is_ok() {}
        return false;
    }
    let end = [reply.stall_after, reply.close_after].into_iter().flatten().min().unwrap_or(reply.body.len());
    for part in reply.body[..end.min(reply.body.len())].chunks(16 << 10) {
        if out.write_all(part).is_err() {
            return false;
        }
        sleep(reply.drip, stop);
    }
    let _ = out.flush();
    if reply.stall_after.is_some() {
        sleep(Duration::from_secs(120), stop);
        return false;
    }
    reply.close_after.is_none()
}
