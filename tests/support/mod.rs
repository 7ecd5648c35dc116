//! What the tests stand on: a Source on disk, servers, and mounts that go away by themselves.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod attacker;
pub mod catalog;
pub mod changes;
pub mod channel;
pub mod disk;
pub mod draft;
pub mod dump;
pub mod examples;
pub mod faulty;
pub mod history;
pub mod hub;
pub mod library;
pub mod memento;
pub mod network;
pub mod nginx;
pub mod opened;
pub mod peer;
pub mod pywb;
pub mod resources;
pub mod scripted_hub;
pub mod server;
pub mod telling;
pub mod websocket;
pub mod xmpp;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use md5::Md5;
use resourcesync::catalog::{CatalogError, Reader, Writer};
use resourcesync::path::Mapper;
use sha2::{Digest as _, Sha256};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_resourcesync");

/// Fails loudly where this machine cannot mount or lacks a program that tests need.
pub fn require(programs: &[&str]) {
    assert!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse: these tests mount; run scripts/test-deps");
    for program in programs {
        let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(program).exists());
        assert!(found, "{program} is missing; run scripts/test-deps");
    }
}

pub fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn md5(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

/// A ResourceSync document.
pub fn document(capability: &str, attributes: &str, links: &str, entries: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\n\
         {links}<rs:md capability=\"{capability}\" {attributes}/>\n{entries}</urlset>\n"
    )
}

/// An index of such documents.
pub fn index(capability: &str, attributes: &str, locations: &[String]) -> String {
    let entries: String = locations.iter().map(|loc| format!("<sitemap><loc>{loc}</loc></sitemap>\n")).collect();
    document(capability, attributes, "", &entries).replace("urlset", "sitemapindex")
}

/// An entry with attributes of its `rs:md` as given.
pub fn entry(loc: &str, md: &str) -> String {
    let loc = loc.replace('&', "&amp;").replace('<', "&lt;");
    format!("<url><loc>{loc}</loc><rs:md {md}/></url>\n")
}

/// Hash and length of bytes, as attributes.
pub fn facts_of(bytes: &[u8]) -> String {
    format!("hash=\"md5:{} sha-256:{}\" length=\"{}\"", md5(bytes), sha256(bytes), bytes.len())
}

/// An entry that says of these bytes what can be said.
pub fn entry_of(loc: &str, bytes: &[u8]) -> String {
    entry(loc, &facts_of(bytes))
}

/// An entry with links.
pub fn with_links(entry: &str, links: &str) -> String {
    entry.replace("</url>", &format!("{links}</url>"))
}

/// A link of an entry, with more attributes.
pub fn ln(rel: &str, href: &str, more: &str) -> String {
    format!("<rs:ln rel=\"{rel}\" href=\"{href}\" {more}/>")
}

/// An entry of a Source Description or Capability List.
pub fn capability(loc: &str, capability: &str) -> String {
    entry(loc, &format!("capability=\"{capability}\""))
}

pub fn resource_list(at: &str, entries: &str) -> String {
    document("resourcelist", &format!("at=\"{at}\""), "", entries)
}

/// The number of resources of a large Source: `RESOURCES`, at least 1,000; by default as many as are read within seconds.
pub fn many() -> u64 {
    let Ok(count) = std::env::var("RESOURCES") else { return 4000 };
    count.parse().ok().filter(|count| *count >= 1000).expect("RESOURCES is a number from 1000")
}

/// What a random test begins from, said so that it can be run again: `SEED`, or else another one each time.
pub fn seed() -> u64 {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    seed
}

/// Numbers that look random; the same for the same seed.
pub fn scramble(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Runs a test of each case, which wait for much, at the same time.
pub fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    std::thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(|| test(case)))));
}

pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..length as u64 / 8 + 1).flat_map(|at| scramble(seed << 32 | at).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut coder, bytes).expect("memory");
    coder.finish().expect("memory")
}

/// What is wrong with a cache that is not in use.
pub fn what_is_wrong_with(cache: &Path) -> Vec<String> {
    let mapper = Arc::new(Mapper::new("http://example.com/", false).expect("a base"));
    let writer = Writer::open(cache, mapper).expect("the catalog opens");
    let mut wrong = writer.readers().ask(|reader| reader.check()).expect("the catalog");
    let mut after = 0;
    loop {
        let page = writer.readers().ask(|reader| reader.objects(after, 1000)).expect("the catalog");
        let Some(last) = page.last() else { return wrong };
        after = last.id;
        for object in page {
            let name = hex(&object.sha256);
            let file = cache.join("objects").join(&name[..2]).join(&name[2..]);
            if fs::metadata(&file).map(|found| found.len()).ok() != Some(object.size) {
                wrong.push(format!("{} is not there, or not {} bytes", file.display(), object.size));
            }
        }
    }
}

/// What tests do with a mirror, whether it is mounted or opened in this process.
pub trait Mirrored {
    /// The content of a file.
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>>;
    /// The paths of all files, in order.
    fn files(&self) -> Vec<String>;
    /// The value of an extended attribute.
    fn xattr(&self, path: &str, name: &str) -> Option<String>;
    fn status(&self) -> serde_json::Value;
    /// Waits until the status says so.
    fn wait(&self, what: &str, said: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value;
    /// What `log --json` prints of a path.
    fn log(&self, path: &str) -> Vec<serde_json::Value>;
    /// Asks the catalog.
    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> T;
    /// The number of versions of all resources.
    fn versions(&self) -> usize;
}

impl Mirrored for Mirror {
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        self.read(path)
    }

    fn files(&self) -> Vec<String> {
        self.files()
    }

    fn xattr(&self, path: &str, name: &str) -> Option<String> {
        xattr(&self.path(path), name)
    }

    fn status(&self) -> serde_json::Value {
        self.status()
    }

    fn wait(&self, what: &str, said: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        self.wait(what, said)
    }

    fn log(&self, path: &str) -> Vec<serde_json::Value> {
        self.log(path)
    }

    fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> T {
        // In a copy of what it is now: only the daemon opens its own.
        let copy = tempfile::tempdir().expect("a temporary directory");
        let path = copy.path().join("catalog.db");
        catalog::open(&self.cache).execute("VACUUM INTO ?1", [path.to_string_lossy()]).expect("a copy");
        let mapper = Arc::new(Mapper::new("http://example.com/", false).expect("a base"));
        Writer::open(copy.path(), mapper).expect("the catalog opens").readers().ask(question).expect("the catalog")
    }

    fn versions(&self) -> usize {
        catalog::versions(&self.cache)
    }
}

/// A mount of the program under test. Dropping it unmounts, and looks whether what is left in its cache agrees with itself.
pub struct Mirror {
    pub directory: PathBuf,
    pub cache: PathBuf,
    folder: tempfile::TempDir,
    source: String,
    options: String,
    /// Whether the test damaged the cache.
    damaged: AtomicBool,
}

impl Mirror {
    /// Mounts a Source; panics with the program's own words where it does not.
    pub fn mount(source: &str, options: &str) -> Self {
        let mirror = Self::prepare(source, options);
        let output = mirror.try_mount();
        assert!(output.status.success(), "mount: {}", text(&output));
        mirror
    }

    /// A directory and a cache, not mounted yet.
    pub fn prepare(source: &str, options: &str) -> Self {
        require(&[]);
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (directory, cache) = (folder.path().join("mirror"), folder.path().join("cache"));
        fs::create_dir(&directory).expect("a directory");
        let directory = directory.canonicalize().expect("its path");
        Self { directory, cache, folder, source: source.to_owned(), options: options.to_owned(), damaged: false.into() }
    }

    pub fn try_mount(&self) -> Output {
        let options = match self.options.as_str() {
            "" => format!("cache={}", self.cache.display()),
            more => format!("cache={},{more}", self.cache.display()),
        };
        run(&["mount", &self.source, &self.directory.to_string_lossy(), "-o", &options])
    }

    /// What is in the cache is this test's own doing: nobody need look at it.
    pub fn damages(&self) {
        self.damaged.store(true, Ordering::SeqCst);
    }

    pub fn set_options(&mut self, options: &str) {
        options.clone_into(&mut self.options);
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.directory.join(below)
    }

    pub fn read(&self, below: &str) -> std::io::Result<Vec<u8>> {
        fs::read(self.path(below))
    }

    /// Unmounts, and waits until the daemon has let go of its cache.
    pub fn unmount(&self) {
        let began = Instant::now();
        loop {
            let output = Command::new("umount").arg(&self.directory).output().expect("umount");
            // What another thread is about to start has, until then, all files open that this process has.
            let busy = text(&output).contains("busy") && began.elapsed() < Duration::from_secs(20);
            assert!(output.status.success() || busy, "umount: {}", text(&output));
            if output.status.success() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.wait_for_end();
    }

    pub fn wait_for_end(&self) {
        let began = Instant::now();
        while let Some(daemon) = self.daemon() {
            // Cheaper than to search all processes each time.
            while fs::read(format!("/proc/{daemon}/cmdline")).is_ok_and(|line| !line.is_empty()) {
                assert!(began.elapsed() < Duration::from_secs(120), "the daemon does not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    pub fn remount(&self) {
        self.unmount();
        let output = self.try_mount();
        assert!(output.status.success(), "mount: {}", text(&output));
    }

    /// The daemon of this mount, found by its command line.
    pub fn daemon(&self) -> Option<u32> {
        self.process(b"resourcesync", b"--daemon")
    }

    /// What mounts and unmounts for it.
    pub fn guard(&self) -> Option<u32> {
        self.process(b"resourcesync-guard", b"--guard")
    }

    fn process(&self, name: &[u8], word: &[u8]) -> Option<u32> {
        let directory = self.directory.to_string_lossy().into_owned();
        fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
            let number: u32 = process.file_name().to_str()?.parse().ok()?;
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            let ours = words.first() == Some(&name) && words.contains(&word);
            (ours && words.contains(&directory.as_bytes())).then_some(number)
        })
    }

    pub fn kill(&self) {
        let daemon = self.daemon().expect("a daemon to kill");
        let output = Command::new("kill").args(["-9", &daemon.to_string()]).output().expect("kill");
        assert!(output.status.success(), "kill: {}", text(&output));
        self.wait_for_end();
    }

    pub fn status(&self) -> serde_json::Value {
        let text = fs::read(self.path(".resourcesync/status.json")).expect("the status");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Waits until the status says so.
    pub fn wait(&self, what: &str, said: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if said(&status) {
                return status;
            }
            assert!(began.elapsed() < Duration::from_secs(300), "{what} does not come: {status:#}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Refreshes, which must succeed.
    pub fn refreshed(&self) -> String {
        let output = self.refresh();
        assert!(output.status.success(), "{}", text(&output));
        text(&output)
    }

    /// What `log --json` prints of a path.
    pub fn log(&self, path: &str) -> Vec<serde_json::Value> {
        let output = run(&["log", "--json", &self.path(path).to_string_lossy()]);
        assert!(output.status.success(), "log: {}", text(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn refresh(&self) -> Output {
        run(&["refresh", &self.directory.to_string_lossy()])
    }

    /// All errors that the status knows, in one text.
    pub fn errors(&self) -> String {
        self.status()["errors"].to_string()
    }

    /// The names in a directory, in order.
    pub fn names(&self, below: &str) -> Vec<String> {
        let listed = fs::read_dir(self.path(below)).unwrap_or_else(|error| panic!("{below}: {error}"));
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> = listed.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The paths of all files below, in order.
    pub fn files(&self) -> Vec<String> {
        files(&self.directory)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // Whatever state it is in; errors say that it is gone already.
        let _ = Command::new("umount").arg("-l").arg(&self.directory).output();
        let began = Instant::now();
        while self.daemon().is_some() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(daemon) = self.daemon() {
            let _ = Command::new("kill").args(["-9", &daemon.to_string()]).output();
        }
        if !std::thread::panicking() && !self.damaged.load(Ordering::SeqCst) && self.cache.join("catalog.db").exists() {
            let wrong = what_is_wrong_with(&self.cache);
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
        if std::thread::panicking()
            && let Ok(log) = fs::read_to_string(self.cache.join("log"))
        {
            eprintln!("--- the daemon's log\n{log}---");
        }
    }
}

/// The paths of all files below a directory, in order.
pub fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        let items = match fs::read_dir(&folder) {
            Ok(items) => items,
            // It went while this walked: all that was in it did.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder != root => continue,
            Err(error) => panic!("{}: {error}", folder.display()),
        };
        for item in items {
            let item = item.expect("an entry");
            if item.file_type().expect("its type").is_dir() {
                left.push(item.path());
            } else {
                let path = item.path();
                found.push(path.strip_prefix(root).expect("below").to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// Runs the program under test.
pub fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).env("NO_COLOR", "1").output().expect("the program runs")
}

/// Runs the program under test, which must succeed, and returns what it prints.
pub fn output(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

pub fn text(output: &Output) -> String {
    format!("{} {}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a shell command, which must succeed, and returns what it prints.
pub fn shell(command: &str) -> String {
    let output = Command::new("bash").args(["-euo", "pipefail", "-c", command]).output().expect("bash");
    assert!(output.status.success(), "{command}\n{}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs a shell command, and says whether it succeeded.
pub fn run_shell(command: &str) -> bool {
    Command::new("bash").args(["-c", command]).output().expect("bash").status.success()
}

/// The value of an extended attribute.
pub fn xattr(path: &Path, name: &str) -> Option<String> {
    let mut buffer = vec![0; 65_536];
    let length = rustix::fs::getxattr(path, name, &mut buffer).ok()?;
    buffer.truncate(length);
    String::from_utf8(buffer).ok()
}
