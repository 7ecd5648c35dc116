//! An HTTP server over the files of a folder that does, now and then, what servers do wrong.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::changes::MOVING;
use super::{scramble, sha256};

/// What a server does wrong, or at least otherwise than most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The head comes byte by byte.
    SlowHead,
    /// The body comes in small pieces.
    SlowBody,
    /// Silence within the head.
    StallHead,
    /// Silence within the body.
    StallBody,
    /// The connection is reset within the head.
    ResetHead,
    /// The connection is reset within the body.
    ResetBody,
    /// The connection ends within the body.
    Truncated,
    /// Half of it, as if that were all.
    CutShort,
    /// The announced length is smaller than the body.
    SaysLess,
    /// The announced length is larger than the body.
    SaysMore,
    /// Two announced lengths.
    SaysTwo,
    /// The whole in answer to a range.
    RangeIgnored,
    /// Another range than was asked for, and it says so.
    RangeOther,
    /// Other bytes than those of the range, and it does not say so.
    RangeShifted,
    /// What changed between two ranges, under the validator of before.
    RangeChanged,
    /// "Not modified" in answer to whatever.
    NotModified,
    /// A redirect to itself.
    RedirectLoop,
    /// A redirect to somewhere else each time.
    RedirectsForever,
    /// A body without end.
    Endless,
    /// A small body that becomes a gigabyte.
    Bomb,
    /// A clock that is years off.
    Skewed,
    /// Not HTTP.
    Garbage,
    /// A head of a megabyte.
    HugeHead,
    /// 503, with a time to wait.
    Busy,
    /// 429.
    TooMany,
    /// 500.
    Failed,
    /// 404, for something that is there.
    Missing,
    /// 403.
    Forbidden,
    /// 200, with a page for people.
    LandingPage,
    /// One bit is another.
    WrongBytes,
    /// What it was before it changed.
    Stale,
    /// 200, with nothing.
    Empty,
    /// No length, and an end by closing the connection.
    NoLength,
    /// For a while, 404 for a page or a part of a list.
    PageMissing,
    /// For a while, 503 for a page or a part of a list.
    PageFailed,
    /// For a while, a part of a list is of an edition before that of the others.
    OldPart,
    /// For a while, what names the parts of a list is of an edition before theirs.
    OldIndex,
    /// A window of changes has moved past some that were in none of its answers.
    Slid,
    /// For a while, 200 with a page that looks for robots, whatever is asked for.
    BotWall,
    /// For a while, 403 with the same page and the mark of Cloudflare's challenges.
    Challenge,
}

impl Fault {
    pub const ALL: [Self; 40] = [
        Self::SlowHead,
        Self::SlowBody,
        Self::StallHead,
        Self::StallBody,
        Self::ResetHead,
        Self::ResetBody,
        Self::Truncated,
        Self::CutShort,
        Self::SaysLess,
        Self::SaysMore,
        Self::SaysTwo,
        Self::RangeIgnored,
        Self::RangeOther,
        Self::RangeShifted,
        Self::RangeChanged,
        Self::NotModified,
        Self::RedirectLoop,
        Self::RedirectsForever,
        Self::Endless,
        Self::Bomb,
        Self::Skewed,
        Self::Garbage,
        Self::HugeHead,
        Self::Busy,
        Self::TooMany,
        Self::Failed,
        Self::Missing,
        Self::Forbidden,
        Self::LandingPage,
        Self::WrongBytes,
        Self::Stale,
        Self::Empty,
        Self::NoLength,
        Self::PageMissing,
        Self::PageFailed,
        Self::OldPart,
        Self::OldIndex,
        Self::Slid,
        Self::BotWall,
        Self::Challenge,
    ];

    /// Whether it is one of answers to ranges only.
    fn needs_range(self) -> bool {
        matches!(self, Self::RangeIgnored | Self::RangeOther | Self::RangeShifted | Self::RangeChanged)
    }

    /// Whether it is not that of a single answer.
    fn is_lasting(self) -> bool {
        use Fault::{BotWall, Challenge, OldIndex, OldPart, PageFailed, PageMissing, Slid};
        matches!(self, PageMissing | PageFailed | OldPart | OldIndex | Slid | BotWall | Challenge)
    }
}

/// How many seconds a window of changes reaches back.
pub const WINDOW: i64 = 2;

/// A page for people, where something else is listed.
const PAGE: &str = "<!DOCTYPE html><html><body>Please accept our cookies</body></html>";

/// Whether there is a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Up,
    /// Connections are made, and nothing comes of them.
    BlackHole,
    /// Connections are refused.
    Cut,
}

/// How long a server that stalls waits for whoever asked to go away.
const STALL: Duration = Duration::from_secs(40);

/// A body that is worth going on with where it broke off, in bytes.
pub const LARGE: usize = 1 << 20;

/// The server. Dropping it closes the port.
pub struct Faulty {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    root: PathBuf,
    seed: u64,
    /// So many of a thousand answers are wrong.
    rate: AtomicU64,
    network: AtomicU8,
    /// How often each path was asked for.
    asked: Mutex<HashMap<String, u64>>,
    counts: Mutex<BTreeMap<Fault, u64>>,
    /// What paths had, and what they had before that.
    had: Mutex<HashMap<String, Had>>,
    /// What is wrong for a while.
    lasting: Mutex<Option<Lasting>>,
    /// So many changes were in answers of the window of changes, or before it.
    told: AtomicUsize,
    stop: AtomicBool,
}

/// What is wrong for a while.
struct Lasting {
    fault: Fault,
    /// How the paths begin of which it is.
    prefix: String,
    /// What was there when it began, if that is a single path.
    kept: Option<Vec<u8>>,
}

/// What a path has, and what it had before that.
type Had = (Vec<u8>, Vec<u8>);

struct Request {
    head_only: bool,
    path: String,
    range: Option<(usize, Option<usize>)>,
    if_range: Option<String>,
    if_none_match: Option<String>,
    /// Whether caches are to ask the server itself.
    fresh: bool,
}

impl Faulty {
    /// Serves a folder, without a fault at first. Which answers are wrong, and how, follows from the seed, the path, and how
    /// often it was asked for.
    pub fn serve(root: PathBuf, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            root,
            seed,
            rate: AtomicU64::new(0),
            network: AtomicU8::new(0),
            asked: Mutex::default(),
            counts: Mutex::default(),
            had: Mutex::default(),
            lasting: Mutex::default(),
            told: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming().flatten() {
                    if shared.stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || shared.serve(&stream));
                }
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// So many of a thousand answers are wrong from now on.
    pub fn errs(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::SeqCst);
    }

    /// What begins so has this fault in each answer from now on, and until [`Faulty::ends`]; what is old then is what is there now.
    pub fn lasts(&self, fault: Fault, prefix: &str) {
        let kept = std::fs::read(self.shared.file(prefix)).ok();
        *self.shared.lasting.lock().expect("no panic") = Some(Lasting { fault, prefix: prefix.to_owned(), kept });
    }

    /// Nothing lasts any more.
    pub fn ends(&self) {
        *self.shared.lasting.lock().expect("no panic") = None;
    }

    pub fn network(&self, state: Network) {
        self.shared.network.store(state as u8, Ordering::SeqCst);
    }

    /// How often what begins so was asked for.
    pub fn asked(&self, prefix: &str) -> u64 {
        let asked = self.shared.asked.lock().expect("no panic");
        asked.iter().filter(|(path, _)| path.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    /// How often each fault was committed.
    pub fn counts(&self) -> BTreeMap<Fault, u64> {
        self.shared.counts.lock().expect("no panic").clone()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection ends, and whoever is at its other end is told that it broke.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
        let _ = stream.set_nodelay(true);
        let mut input = BufReader::new(stream);
        while let Some(request) = read_request(&mut input) {
            match self.network.load(Ordering::SeqCst) {
                0 => {}
                1 => return self.stall(stream),
                _ => return reset(stream),
            }
            if self.stop.load(Ordering::SeqCst) || !self.answer(stream, &request) {
                return;
            }
        }
    }

    /// Says nothing any more, until the other side goes.
    fn stall(&self, mut stream: &TcpStream) {
        let began = Instant::now();
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        while began.elapsed() < STALL && !self.stop.load(Ordering::SeqCst) {
            match stream.read(&mut [0; 64]) {
                Ok(0) => return,
                Err(error)
                    if !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
                {
                    return;
                }
                _ => {}
            }
        }
    }

    fn fault(&self, request: &Request, length: usize) -> Option<Fault> {
        let rate = self.rate.load(Ordering::SeqCst);
        let count = {
            let mut asked = self.asked.lock().expect("no panic");
            let count = asked.entry(request.path.clone()).or_insert(0);
            *count += 1;
            *count
        };
        let path = request.path.bytes().fold(self.seed, |sum, byte| scramble(sum ^ u64::from(byte)));
        let random = scramble(path.wrapping_add(count));
        // Of what is large, few are asked for; and only what breaks off is asked for in part.
        let rate = if request.range.is_some() || length > LARGE { rate * 5 } else { rate };
        if random % 1000 >= rate {
            return None;
        }
        let candidates: Vec<Fault> = Fault::ALL
            .into_iter()
            .filter(|fault| !fault.is_lasting() && (request.range.is_some() || !fault.needs_range()))
            .filter(|fault| length > 0 || !matches!(fault, Fault::WrongBytes | Fault::Stale))
            .filter(|fault| *fault != Fault::Stale || !request.fresh)
            // Nothing tells of a wrong letter in a document but TLS.
            .filter(|fault| *fault != Fault::WrongBytes || !request.path.contains(".xml"))
            // A memento that is said not to be there is not asked for again.
            .filter(|fault| *fault != Fault::Missing || !request.path.starts_with("/kept/"))
            .collect();
        // Half of them are of the kind that was rarest so far: some have few occasions.
        let among = scramble(random);
        let mut counts = self.counts.lock().expect("no panic");
        let rarest = candidates.iter().min_by_key(|fault| counts.get(fault).copied().unwrap_or(0));
        let fault = match rarest.filter(|_| !among.is_multiple_of(3)) {
            Some(_) if length > LARGE && request.range.is_none() => Fault::ResetBody,
            Some(rarest) => *rarest,
            None => candidates[usize::try_from(scramble(among) % candidates.len() as u64).expect("it fits")],
        };
        *counts.entry(fault).or_insert(0) += 1;
        Some(fault)
    }

    /// What is wrong with this path for a while, and what it has instead where that is what it had.
    fn lasting(&self, path: &str, body: Option<&[u8]>) -> Option<(Fault, Option<Vec<u8>>)> {
        let lasting = self.lasting.lock().expect("no panic");
        let Lasting { fault, kept, .. } = lasting.as_ref().filter(|lasting| path.starts_with(&lasting.prefix))?;
        let kept = kept.clone().filter(|_| matches!(fault, Fault::OldPart | Fault::OldIndex));
        if kept.is_some() && kept.as_deref() == body {
            // It has not changed since.
            return None;
        }
        *self.counts.lock().expect("no panic").entry(*fault).or_insert(0) += 1;
        Some((*fault, kept))
    }

    fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A list of changes as it is at this moment, of those alone that happened a short while ago.
    fn window(&self, list: &str) -> String {
        let now = jiff::Timestamp::now();
        let from = now - jiff::SignedDuration::from_secs(WINDOW);
        let is_in = |line: &str| {
            let (_, time) = line.split_once("datetime=\"")?;
            Some(time.split_once('"')?.0.parse::<jiff::Timestamp>().expect("a time") >= from)
        };
        let all: Vec<Option<bool>> = list.lines().map(is_in).collect();
        let gone = all.iter().filter(|one| **one == Some(false)).count();
        if gone > self.told.swap(all.iter().flatten().count(), Ordering::SeqCst) {
            *self.counts.lock().expect("no panic").entry(Fault::Slid).or_insert(0) += 1;
        }
        let kept = list.lines().zip(all).filter(|(_, is_in)| *is_in != Some(false));
        let kept: String = kept.map(|(line, _)| format!("{line}\n")).collect();
        kept.replace(MOVING, &format!("from=\"{from}\" until=\"{now}\""))
    }

    /// What a path has, and what it had before.
    fn body(&self, path: &str) -> Option<(Vec<u8>, Vec<u8>)> {
        let file = path.split('?').next().unwrap_or(path);
        let mut body = std::fs::read(self.file(file)).ok()?;
        if let Some(list) = std::str::from_utf8(&body).ok().filter(|body| body.contains(MOVING)) {
            body = self.window(list).into_bytes();
        }
        let mut had = self.had.lock().expect("no panic");
        let had = had.entry(file.to_owned()).or_insert_with(|| (body.clone(), body.clone()));
        if had.0 != body {
            *had = (body.clone(), std::mem::take(&mut had.0));
        }
        Some((body, had.1.clone()))
    }

    /// Answers a request; says whether the connection goes on.
    fn answer(&self, mut stream: &TcpStream, request: &Request) -> bool {
        let found = self.body(&request.path);
        let lasting = self.lasting(&request.path, found.as_ref().map(|(body, _)| body.as_slice()));
        if let Some((fault @ (Fault::BotWall | Fault::Challenge), _)) = lasting {
            let status = if fault == Fault::BotWall { "200 x" } else { "403 x\r\ncf-mitigated: challenge" };
            let page = if request.head_only { "" } else { PAGE };
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}", PAGE.len());
            return stream_out(stream, &format!("{head}\r\n\r\n{page}"));
        }
        let Some((body, before)) = found else {
            return stream.write_all(b"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n").is_ok();
        };
        let (fault, body) = match lasting {
            Some((fault, kept)) => (Some(fault), kept.unwrap_or(body)),
            None => match self.fault(request, body.len()) {
                Some(Fault::Stale) => (Some(Fault::Stale), before),
                fault => (fault, body),
            },
        };
        let tag = format!("\"{}\"", &sha256(&body)[..16]);
        let not_modified = request.if_none_match.as_deref() == Some(&tag);
        let plain = |status: &str| stream_out(stream, &format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        match fault {
            Some(Fault::Garbage) => {
                let _ = stream.write_all(&super::bytes(self.seed, 500));
                return false;
            }
            Some(Fault::HugeHead) => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\n");
                for number in 0..1000 {
                    if stream.write_all(format!("X-{number}: {}\r\n", "x".repeat(1000)).as_bytes()).is_err() {
                        return false;
                    }
                }
                let _ = stream.write_all(b"Content-Length: 0\r\n\r\n");
                return false;
            }
            Some(Fault::StallHead) => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\nContent-Le");
                self.stall(stream);
                return false;
            }
            Some(Fault::ResetHead) => {
                let _ = stream.write_all(b"HTTP/1.1 200 x\r\nContent-Le");
                reset(stream);
                return false;
            }
            Some(Fault::Busy) => {
                return stream_out(stream, "HTTP/1.1 503 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
            }
            Some(Fault::TooMany) => return plain("429 x"),
            Some(Fault::Failed) => return plain("500 x"),
            Some(Fault::PageFailed) => return plain("503 x"),
            Some(Fault::Missing | Fault::PageMissing) => return plain("404 x"),
            Some(Fault::Forbidden) => return plain("403 x"),
            Some(Fault::Empty) => return plain("200 x"),
            Some(Fault::NotModified) => return stream_out(stream, "HTTP/1.1 304 x\r\n\r\n"),
            Some(Fault::RedirectLoop) => {
                let head = format!("HTTP/1.1 302 x\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", request.path);
                return stream_out(stream, &head);
            }
            Some(Fault::RedirectsForever) => {
                // Each of them is asked once, and each answers so.
                let path = request.path.split('?').next().unwrap_or_default();
                let next = scramble(request.path.len() as u64 ^ self.seed) % 1_000_000;
                let more = request.path.split_once('?').map_or("", |(_, query)| query);
                let head = format!("HTTP/1.1 302 x\r\nLocation: {path}?{more}r{next}\r\nContent-Length: 0\r\n\r\n");
                return stream_out(stream, &head);
            }
            None | Some(Fault::OldPart | Fault::OldIndex) if not_modified => {
                return stream_out(stream, &format!("HTTP/1.1 304 x\r\nETag: {tag}\r\n\r\n"));
            }
            _ => {}
        }
        if request.path.contains("?") && self.rate.load(Ordering::SeqCst) > 0 {
            let head = format!("HTTP/1.1 302 x\r\nLocation: {}r\r\nContent-Length: 0\r\n\r\n", request.path);
            return stream_out(stream, &head);
        }
        self.send(stream, request, &body, &tag, fault)
    }

    /// Sends a body, and what is wrong with it.
    fn send(&self, mut stream: &TcpStream, request: &Request, whole: &[u8], tag: &str, fault: Option<Fault>) -> bool {
        let range = request.range.filter(|_| request.if_range.as_deref().is_none_or(|known| known == tag));
        let range = range.map(|(first, last)| (first, last.map_or(whole.len(), |last| last + 1).min(whole.len())));
        let range = range.filter(|(first, end)| first < end && fault != Some(Fault::RangeIgnored));
        let mut lines = vec![format!("ETag: {tag}"), "Accept-Ranges: bytes".to_owned()];
        let (mut body, mut status) = (whole.to_vec(), 200);
        if let Some((first, end)) = range {
            let told = if fault == Some(Fault::RangeOther) { first / 2 } else { first };
            let from = match fault {
                Some(Fault::RangeOther | Fault::RangeShifted) => first / 2,
                _ => first,
            };
            body = whole[from..(from + end - first).min(whole.len())].to_vec();
            if fault == Some(Fault::RangeChanged) {
                body.iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            lines.push(format!("Content-Range: bytes {told}-{}/{}", told + body.len() - 1, whole.len()));
            status = 206;
        }
        match fault {
            Some(Fault::WrongBytes) if !body.is_empty() => {
                let at = usize::try_from(scramble(self.seed) % body.len() as u64).expect("it fits");
                body[at] ^= 4;
            }
            Some(Fault::CutShort) => body.truncate(body.len() / 2),
            Some(Fault::LandingPage) => {
                body = PAGE.as_bytes().to_vec();
                lines.push("Content-Type: text/html".to_owned());
            }
            Some(Fault::Bomb) => {
                body = bomb().to_vec();
                lines.push("Content-Encoding: gzip".to_owned());
            }
            Some(Fault::Skewed) => {
                lines.push("Date: Fri, 01 Jan 2100 00:00:00 GMT".to_owned());
                lines.push("Last-Modified: Thu, 31 Dec 2099 23:59:59 GMT".to_owned());
            }
            _ => {}
        }
        match fault {
            Some(Fault::Endless) => lines.push("Transfer-Encoding: chunked".to_owned()),
            Some(Fault::NoLength) => lines.push("Connection: close".to_owned()),
            Some(Fault::SaysLess) => lines.push(format!("Content-Length: {}", body.len() / 2)),
            Some(Fault::SaysMore) => lines.push(format!("Content-Length: {}", body.len() * 2 + 10)),
            Some(Fault::SaysTwo) => {
                lines.push(format!("Content-Length: {}", body.len()));
                lines.push(format!("Content-Length: {}", body.len() + 7));
            }
            _ => lines.push(format!("Content-Length: {}", body.len())),
        }
        let head = format!("HTTP/1.1 {status} x\r\n{}\r\n\r\n", lines.join("\r\n"));
        if fault == Some(Fault::SlowHead) {
            for byte in head.bytes() {
                std::thread::sleep(Duration::from_millis(2));
                if stream.write_all(&[byte]).is_err() {
                    return false;
                }
            }
        } else if stream.write_all(head.as_bytes()).is_err() {
            return false;
        }
        if request.head_only {
            return fault.is_none();
        }
        let half = body.len() / 2;
        match fault {
            Some(Fault::SlowBody) => {
                for piece in body.chunks((body.len() / 40).max(1)) {
                    std::thread::sleep(Duration::from_millis(10));
                    if stream.write_all(piece).is_err() {
                        return false;
                    }
                }
                true
            }
            Some(Fault::StallBody) => {
                let _ = stream.write_all(&body[..half]);
                self.stall(stream);
                false
            }
            Some(Fault::ResetBody) => {
                let _ = stream.write_all(&body[..half]);
                // What was sent before is to arrive.
                std::thread::sleep(Duration::from_millis(20));
                reset(stream);
                false
            }
            Some(Fault::Truncated) => {
                let _ = stream.write_all(&body[..half]);
                false
            }
            Some(Fault::Endless) => {
                let piece = [&b"1000\r\n"[..], &[b' '; 4096], b"\r\n"].concat();
                for number in 0.. {
                    // No more than a disk has, and not at full speed for ever.
                    if number > 2000 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    if self.stop.load(Ordering::SeqCst) || number > 4000 || stream.write_all(&piece).is_err() {
                        break;
                    }
                }
                false
            }
            Some(Fault::NoLength | Fault::SaysLess | Fault::SaysMore | Fault::SaysTwo) => {
                let _ = stream.write_all(&body);
                false
            }
            _ => stream.write_all(&body).is_ok(),
        }
    }
}

fn stream_out(mut stream: &TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

/// A gigabyte of nothing, in a megabyte.
fn bomb() -> &'static [u8] {
    static BOMB: OnceLock<Vec<u8>> = OnceLock::new();
    BOMB.get_or_init(|| {
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let nothing = vec![0; 1 << 20];
        (0..1024).for_each(|_| coder.write_all(&nothing).expect("memory"));
        coder.finish().expect("memory")
    })
}

fn read_request(input: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut lines = input.by_ref().lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let range = header("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, if last.is_empty() { None } else { Some(last.parse().ok()?) }))
    });
    Some(Request {
        head_only: method == "HEAD",
        path,
        range,
        if_range: header("if-range"),
        if_none_match: header("if-none-match"),
        fresh: header("cache-control").is_some_and(|control| control.contains("no-cache")),
    })
}
