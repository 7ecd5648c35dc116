//! What attackers have: another user's rights, and a WebSocket server that keeps to no rules.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest as _, Sha1};

/// The user that attackers are.
pub const NOBODY: u32 = 65_534;

/// A command that runs as the user nobody, without any group or environment of root's but `PATH`.
pub fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let user = NOBODY.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(program);
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env("NO_COLOR", "1").current_dir("/");
    command
}

/// Runs a shell command as the user nobody.
pub fn shell_as_nobody(script: &str) -> Output {
    as_nobody(Path::new("/bin/sh")).args(["-c", script]).output().expect("setpriv and sh run")
}

/// What a process has of a kind of memory, in MiB: a line of /proc/PID/status, such as `VmHWM`.
pub fn mebibytes(process: u32, line: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("its status");
    let line = text.lines().find_map(|found| found.strip_prefix(line)).expect("its line");
    line.trim_start_matches(':').split_whitespace().next().and_then(|size| size.parse::<u64>().ok()).expect("a size")
        / 1024
}

/// The processor time of a process, in steps of 10 ms: fields 14 and 15 of /proc/PID/stat (proc(5)).
pub fn processor_time(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("its times");
    let (_, after_name) = text.rsplit_once(')').expect("its name");
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// What a WebSocket server sends on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Nothing.
    Silence,
    /// Pings of the greatest size, one after the other.
    Pings,
    /// Text messages of 25 bytes, one after the other.
    Messages,
}

/// A WebSocket server that accepts every connection, and reads nothing from it. Dropping it closes the port.
pub struct Flooder {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    frames: Arc<AtomicU64>,
}

impl Flooder {
    pub fn start(flood: Flood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (stop, accepted, frames) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let flooder = Self { address, stop: Arc::clone(&stop), accepted: Arc::clone(&accepted), frames };
        let frames = Arc::clone(&flooder.frames);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                accepted.fetch_add(1, Ordering::SeqCst);
                let (stop, frames) = (Arc::clone(&stop), Arc::clone(&frames));
                std::thread::spawn(move || serve(stream, flood, &stop, &frames));
            }
        });
        flooder
    }

    pub fn url(&self, path: &str) -> String {
        format!("ws://{}{path}", self.address)
    }

    /// How many connections were made.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// How many frames were sent.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::SeqCst)
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, flood: Flood, stop: &AtomicBool, frames: &AtomicU64) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim().to_owned())
    });
    let Some(key) = key else { return };
    let accept = BASE64_STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
    let answer = format!(
        "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    // RFC 6455, 5.2: the last fragment, its kind, and a length below 126.
    let frame = match flood {
        Flood::Silence => Vec::new(),
        Flood::Pings => [&[0x89, 125][..], &[b'x'; 125]].concat(),
        Flood::Messages => [&[0x81, 25][..], &[b'x'; 25]].concat(),
    };
    if stream.write_all(answer.as_bytes()).is_err() {
        return;
    }
    while !stop.load(Ordering::SeqCst) {
        if frame.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        } else if stream.write_all(&frame).is_err() {
            return;
        } else {
            frames.fetch_add(1, Ordering::SeqCst);
        }
    }
}
