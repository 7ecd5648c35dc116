//! pywb, a web archive, on a free port.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;

use super::peer::end;

/// A running pywb. Dropping it stops it.
pub struct Pywb {
    pub port: u16,
    collection: String,
    folder: tempfile::TempDir,
    process: Child,
}

/// A capture: URL, media type, datetime, bytes.
pub type Capture<'a> = (&'a str, &'a str, &'a str, &'a [u8]);

impl Pywb {
    /// Starts it with these captures. Its TimeGate redirects to mementos, or sends them itself.
    pub fn start(captures: &[Capture<'_>], redirect: bool) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let collection = format!("c{}x{}", std::process::id(), STARTED.fetch_add(1, Ordering::SeqCst));
        let folder = tempfile::tempdir().expect("a temporary directory");
        fill(folder.path(), &collection, captures, redirect);
        // Another may take the port before it does: then it ends, and another port is tried.
        for _ in 0..5 {
            let (port, mut process) = launch(folder.path());
            if answers(port, &collection, &mut process) {
                return Self { port, collection, folder, process };
            }
            end(&mut process);
        }
        panic!("pywb does not answer: {}", fs::read_to_string(folder.path().join("log")).unwrap_or_default());
    }

    /// Where to ask for a URL at a moment.
    pub fn timegate(&self, url: &str) -> String {
        format!("http://127.0.0.1:{}/{}/{url}", self.port, self.collection)
    }

    /// Where the mementos of a URL are listed.
    pub fn timemap(&self, url: &str) -> String {
        self.timegate(&format!("timemap/link/{url}"))
    }
}

impl Drop for Pywb {
    fn drop(&mut self) {
        end(&mut self.process);
        if std::thread::panicking()
            && let Ok(log) = fs::read_to_string(self.folder.path().join("log"))
        {
            eprintln!("--- the log of pywb\n{log}---");
        }
    }
}

/// A program of its virtual environment.
pub fn program(name: &str) -> PathBuf {
    super::peer::program("pywb", name)
}

/// Makes a collection of captures.
fn fill(folder: &Path, collection: &str, captures: &[Capture<'_>], redirect: bool) {
    let collections = folder.join("collections").join(collection);
    let archive = collections.join("archive");
    for folder in [&archive, &collections.join("indexes")] {
        fs::create_dir_all(folder).expect("a folder");
    }
    // Without its frames: what is asked for is what comes.
    let config = format!("enable_memento: true\nframed_replay: false\nredirect_to_exact: {redirect}\n");
    fs::write(folder.join("config.yaml"), config).expect("the configuration");
    let list: Vec<_> = captures
        .iter()
        .map(|(url, mime, when, bytes)| {
            serde_json::json!([url, mime, when, base64::prelude::BASE64_STANDARD.encode(bytes)])
        })
        .collect();
    let mut warc = Command::new(program("python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/make_warc.py"))
        .arg(archive.join("captures.warc.gz"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("Python");
    let text = serde_json::Value::from(list).to_string();
    warc.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    assert!(warc.wait().expect("it ends").success(), "no WARC was written");
    let index = Command::new(program("wb-manager")).args(["reindex", collection]).current_dir(folder).output();
    let index = index.expect("wb-manager");
    assert!(index.status.success(), "{}", super::text(&index));
}

fn launch(folder: &Path) -> (u16, Child) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let log = fs::File::create(folder.join("log")).expect("a log");
    let process = Command::new(program("wayback"))
        .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-d"])
        .arg(folder)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .process_group(0)
        .spawn()
        .expect("pywb starts");
    (port, process)
}

/// Waits until it serves its collection, whose name no other server on that port knows.
fn answers(port: u16, collection: &str, process: &mut Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if process.try_wait().is_ok_and(|ended| ended.is_some()) {
            return false;
        }
        if status(port, &format!("/{collection}/")).is_some_and(|line| line.contains(" 200 ")) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

/// The first line of an answer.
fn status(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n").ok()?;
    let mut begin = [0; 64];
    let length = stream.read(&mut begin).ok()?;
    String::from_utf8_lossy(&begin[..length]).lines().next().map(str::to_owned)
}
