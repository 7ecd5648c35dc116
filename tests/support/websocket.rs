//! A WebSocket server in this process, on a free port.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use base64::Engine as _;
use sha1::{Digest as _, Sha1};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use tokio_tungstenite::tungstenite::{Error, Message};

/// What is appended to the key of a client (RFC 6455, 1.3).
const ACCEPTS: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long a client may take to come.
const WITHIN: Duration = Duration::from_secs(30);

/// The server. Dropping it closes the port and all connections.
pub struct WebSocketServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    clients: Mutex<Vec<Client>>,
    arrived: Condvar,
    stop: AtomicBool,
}

/// Whoever listens.
struct Client {
    number: usize,
    stream: TcpStream,
    socket: Arc<Mutex<WebSocket<TcpStream>>>,
}

impl WebSocketServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for (number, stream) in listener.incoming().flatten().enumerate() {
                    if shared.stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.serve(number, stream));
                }
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    /// Sends a text frame to all clients connected now.
    pub fn send(&self, text: &str) {
        let sockets: Vec<_> = self.shared.clients().iter().map(|client| Arc::clone(&client.socket)).collect();
        for socket in sockets {
            // Whoever goes away meanwhile does not hear it.
            let _ = socket.lock().expect("no panic").send(Message::text(text));
        }
    }

    /// Waits until there is a client.
    pub fn wait_for_client(&self) {
        let clients = self.shared.clients();
        let waited = self.shared.arrived.wait_timeout_while(clients, WITHIN, |clients| clients.is_empty());
        assert!(!waited.expect("no panic").1.timed_out(), "no client comes");
    }
}

impl Drop for WebSocketServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for client in self.shared.clients().iter() {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn clients(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.clients.lock().expect("no panic")
    }

    fn serve(&self, number: usize, stream: TcpStream) {
        let Some(stream) = accept(stream) else { return };
        let own = stream.try_clone().expect("a second handle");
        let socket = Arc::new(Mutex::new(WebSocket::from_raw_socket(stream, Role::Server, None)));
        self.clients().push(Client { number, stream: own.try_clone().expect("a third"), socket: Arc::clone(&socket) });
        self.arrived.notify_all();
        // What a client says is not for anyone, but a ping is answered, and an end is seen.
        while !self.stop.load(Ordering::SeqCst) {
            // Without the lock, or nobody could send meanwhile.
            match own.peek(&mut [0]) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Ok(1..) => {}
                _ => break,
            }
            match socket.lock().expect("no panic").read() {
                Err(Error::Io(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
                Ok(_) => {}
            }
        }
        self.clients().retain(|client| client.number != number);
    }
}

/// Takes a client's handshake (RFC 6455, 4.2).
fn accept(mut stream: TcpStream) -> Option<TcpStream> {
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut key = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let header = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"));
        key = key.or_else(|| header.map(|(_, value)| value.trim().to_owned()));
    }
    let accepts = base64::engine::general_purpose::STANDARD.encode(Sha1::digest(key? + ACCEPTS));
    write!(
        stream,
        "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accepts}\r\n\r\n"
    )
    .ok()?;
    Some(stream)
}
