//! A mirror in this process: no mount, no daemon, no root. What a user sees in the tree is read through
//! [`resourcesync::fs::Tree`], as the kernel would ask it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use resourcesync::catalog::{CacheLock, CatalogError, News, Pool, ROOT_INO, Reader};
use resourcesync::fs::{Attributes, Content, Contents, FileType, FsError, Io, Requests, Sink, Tree};
use resourcesync::mirror::log::{self, LogEntry};
use resourcesync::mirror::{self, FirstSync, MirrorConfig};
use resourcesync::options::Options;
use resourcesync::sync::{Audit, AuditScope, Engine, Trigger, Wanted};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::catalog;

/// What one read asks for, as the kernel does.
const READ: u32 = 128 << 10;
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(300);

/// A mirror that is open, or was.
pub struct Mirror {
    pub cache: PathBuf,
    folder: tempfile::TempDir,
    source: String,
    options: Mutex<String>,
    opened: Mutex<Option<Arc<Opened>>>,
    /// Whether the test damaged the cache.
    damaged: AtomicBool,
}

struct Opened {
    mirror: mirror::Mirror,
    tree: Tree,
    contents: Arc<dyn Contents>,
    background: Mutex<JoinSet<()>>,
    runtime: Runtime,
    lock: CacheLock,
    /// What the mount command would print.
    notes: Vec<String>,
}

/// What `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub ino: u64,
    pub kind: FileType,
    pub size: u64,
    /// When it was modified, in nanoseconds since 1970.
    pub nanos: i64,
}

impl Stat {
    /// Seconds since 1970.
    pub fn mtime(&self) -> i64 {
        self.nanos.div_euclid(1_000_000_000)
    }

    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub fn is_symlink(&self) -> bool {
        self.kind == FileType::Symlink
    }
}

/// What a command would print.
pub fn said(result: &Result<String, String>) -> &str {
    let (Ok(text) | Err(text)) = result;
    text
}

/// A file that is open.
pub struct OpenFile {
    opened: Weak<Opened>,
    ino: u64,
}

impl OpenFile {
    /// Reads from an offset on, as pread(2) does.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let opened = self.opened.upgrade().expect("an open mirror");
        let len = u32::try_from(buffer.len()).expect("a read of the kernel");
        let mut bytes = Vec::new();
        let content = opened.tree.read(self.ino, offset, len).wait();
        content.and_then(|content| append(&content, offset, len, &mut bytes)).map_err(|error| io(&error))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// The same, for all of the buffer.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        let count = self.read_at(buffer, offset)?;
        if count == buffer.len() { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }

    /// All of its content.
    pub fn read(&self) -> std::io::Result<Vec<u8>> {
        self.opened.upgrade().expect("an open mirror").read_inode(self.ino).map_err(|error| io(&error))
    }
}

/// Copies a cache as a crash would leave it. Meanwhile the catalog stays as it is, and files are written and removed, as they are
/// before it tells of them, and after it tells of them no more. Another process copies: in this one, to close a file of SQLite's
/// would give up the locks on it.
fn copy(from: &Path, to: &Path) {
    let catalog = rusqlite::Connection::open(from.join("catalog.db")).expect("the catalog");
    catalog.busy_timeout(Duration::from_secs(60)).expect("a timeout");
    catalog.execute_batch("BEGIN IMMEDIATE").expect("the turn of writing");
    let output = Command::new("cp").arg("-a").args([from, to]).output().expect("cp");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().all(|line| line.contains("No such file")), "cp: {said}");
}

/// Whether this process has a file open below a directory.
fn is_open(directory: &Path) -> bool {
    let files = fs::read_dir("/proc/self/fd").expect("the open files").flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.starts_with(directory))
}

/// The names of a directory.
struct Names(Vec<(String, FileType)>, Sender<Result<Vec<(String, FileType)>, FsError>>);

impl Sink for Names {
    fn add(&mut self, _: u64, name: &str, attributes: &Attributes, _: Duration) -> bool {
        if name != "." && name != ".." {
            self.0.push((name.to_owned(), attributes.kind));
        }
        true
    }

    fn looks_up(&self) -> bool {
        false
    }

    fn end(self, result: Result<(), FsError>) {
        drop(self.1.send(result.map(|()| self.0)));
    }
}

/// Appends what a read gives.
fn append(content: &Content, offset: u64, len: u32, to: &mut Vec<u8>) -> Result<(), FsError> {
    match content {
        Content::Control(all) => {
            let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
            to.extend_from_slice(&all[begin..begin.saturating_add(len as usize).min(all.len())]);
            Ok(())
        }
        Content::Version(body) => {
            body.read_at(offset, len, |part| part.map(|part| to.extend_from_slice(part))).map_err(FsError::Cache)
        }
    }
}

fn io(error: &FsError) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.errno())
}

impl Opened {
    fn new(source: &str, options: &str, cache: &Path) -> Result<Self, String> {
        let options = Options::parse(&[options.to_owned()], false)?;
        fs::create_dir_all(cache).map_err(|error| error.to_string())?;
        fs::set_permissions(cache, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .map_err(|error| error.to_string())?;
        let lock = CacheLock::take(cache, "a test", Duration::from_secs(5)).map_err(|error| error.to_string())?;
        let client = mirror::open_client(source, &options)?;
        let listener = mirror::bind(&options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let config = MirrorConfig {
            source: source.to_owned(),
            directory: PathBuf::from("/mnt/mirror"),
            cache: cache.to_owned(),
            options,
        };
        let (announce, mut news) = tokio::sync::mpsc::unbounded_channel();
        let opened = runtime.block_on(async {
            let mirror = mirror::Mirror::open(config, client, listener, announce)?;
            let found = mirror.discover(|_| ()).await?;
            let io = Arc::new(Io::new(mirror.config().options.io, None, 0));
            let contents = mirror.contents(&io, &Arc::<Requests>::default())?;
            let readers = Arc::clone(mirror.engine().readers());
            let tree = Tree::new(readers, Arc::clone(&contents), mirror.config().options.visible);
            let changed = tree.collections();
            // In place of the kernel, which is told what changed.
            tokio::spawn(async move {
                while let Some(news) = news.recv().await {
                    match news {
                        News::Changed(_) => changed.forget(),
                        News::Told(done) => done(),
                    }
                }
            });
            mirror.notifier().start();
            let first = mirror.first_sync(found, |_| ()).await?;
            let background = Mutex::new(mirror.engine().spawn_background_tasks());
            Ok::<_, String>((mirror, tree, contents, background, notes(first)))
        });
        let (mirror, tree, contents, background, notes) = opened?;
        Ok(Self { mirror, tree, contents, background, runtime, lock, notes })
    }

    fn engine(&self) -> &Arc<Engine> {
        self.mirror.engine()
    }

    /// Ends it; without `orderly`, nobody is told, as when a process is killed.
    fn close(self, orderly: bool) {
        let Self { mirror, tree, contents, background, runtime, lock, .. } = self;
        runtime.block_on(async {
            background.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
            if orderly {
                mirror.notifier().close().await;
                mirror.engine().close().await.expect("the engine closes");
            }
        });
        drop((tree, contents, mirror));
        runtime.shutdown_timeout(Duration::from_secs(5));
        drop(lock);
    }

    /// The inode of a path, and its attributes.
    fn find(&self, path: &str, follow: bool) -> Result<Attributes, FsError> {
        self.walk(path, follow, 0)
    }

    fn walk(&self, path: &str, follow: bool, hops: u32) -> Result<Attributes, FsError> {
        let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
        let mut at = self.tree.getattr(ROOT_INO).wait()?.0;
        for (index, step) in steps.iter().enumerate() {
            let found = self.tree.lookup(at.ino, step).wait()?.ok_or(FsError::NotFound)?.attributes;
            let is_last = index + 1 == steps.len();
            if found.kind == FileType::Symlink && (follow || !is_last) {
                assert!(hops < 16, "{path}: a circle of links");
                let target = self.tree.readlink(found.ino)?;
                let target = String::from_utf8(target.to_vec()).expect("UTF-8");
                let mut whole: Vec<&str> = steps[..index].to_vec();
                for step in target.split('/').chain(steps[index + 1..].iter().copied()) {
                    match step {
                        "" | "." => {}
                        ".." => drop(whole.pop()),
                        step => whole.push(step),
                    }
                }
                return self.walk(&whole.join("/"), follow, hops + 1);
            }
            at = found;
        }
        Ok(at)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, FsError> {
        let mut tries = 0;
        loop {
            let ino = self.find(path, true)?.ino;
            // As the kernel does, once more where the file has a newer version.
            match self.tree.open(ino).wait() {
                Err(FsError::Stale) if tries < 3 => tries += 1,
                Err(error) => return Err(error),
                Ok(()) => return self.read_inode(ino),
            }
        }
    }

    fn read_inode(&self, ino: u64) -> Result<Vec<u8>, FsError> {
        let size = self.tree.getattr(ino).wait()?.0.size;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let before = bytes.len();
            append(&self.tree.read(ino, before as u64, READ).wait()?, before as u64, READ, &mut bytes)?;
            if bytes.len() == before {
                break;
            }
        }
        Ok(bytes)
    }

    fn list(&self, path: &str) -> Result<Vec<(String, FileType)>, FsError> {
        let ino = self.find(path, true)?.ino;
        let (sender, receiver) = channel();
        self.tree.list(ino, 0, Names(Vec::new(), sender));
        receiver.recv().unwrap_or(Err(FsError::Dropped))
    }
}

/// What the mount command prints of the first sync.
fn notes(first: FirstSync) -> Vec<String> {
    match first.result {
        Some(Ok(summary)) if summary.partial || summary.held > 0 => vec![summary.to_string()],
        Some(Err(error)) => vec![error],
        _ => Vec::new(),
    }
}

impl Mirror {
    /// Opens a mirror of a Source with options as `-o` has them; panics with the reason where that fails.
    pub fn mount(source: &str, options: &str) -> Self {
        let mirror = Self::prepare(source, options);
        mirror.try_mount().unwrap_or_else(|error| panic!("open: {error}"));
        mirror
    }

    /// A cache, not opened yet.
    pub fn prepare(source: &str, options: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        Self {
            cache: folder.path().join("cache"),
            folder,
            source: source.to_owned(),
            options: Mutex::new(options.to_owned()),
            opened: Mutex::default(),
            damaged: false.into(),
        }
    }

    /// Opens it, and returns what the mount command would print.
    pub fn try_mount(&self) -> Result<String, String> {
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let opened = Opened::new(&self.source, &options, &self.cache)?;
        let notes = opened.notes.join("\n");
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(opened));
        Ok(notes)
    }

    pub fn set_options(&self, options: &str) {
        options.clone_into(&mut self.options.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The test damages the cache: it need not agree with itself in the end.
    pub fn damages(&self) {
        self.damaged.store(true, Ordering::SeqCst);
    }

    fn opened(&self) -> Arc<Opened> {
        Arc::clone(self.opened.lock().unwrap_or_else(PoisonError::into_inner).as_ref().expect("an open mirror"))
    }

    /// The engine of the open mirror.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(self.opened().engine())
    }

    /// Runs something on the runtime of the mirror.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.opened().runtime.block_on(work)
    }

    /// The readers of its catalog.
    pub fn readers(&self) -> Arc<Pool> {
        Arc::clone(self.opened().engine().readers())
    }

    /// Closes it as an unmount does.
    pub fn unmount(&self) {
        self.end(true);
    }

    fn end(&self, orderly: bool) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut opened) = opened else { return };
        let began = Instant::now();
        // Another thread of the test may be about to end a read.
        let opened = loop {
            match Arc::try_unwrap(opened) {
                Ok(opened) => break opened,
                Err(shared) => opened = shared,
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the mirror is in use");
            std::thread::sleep(Duration::from_millis(5));
        };
        opened.close(orderly);
    }

    pub fn remount(&self) {
        self.unmount();
        self.try_mount().unwrap_or_else(|error| panic!("open: {error}"));
    }

    pub fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        self.opened().read(path).map_err(|error| io(&error))
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> String {
        let bytes = self.read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        String::from_utf8(bytes).expect("UTF-8")
    }

    pub fn exists(&self, path: &str) -> bool {
        self.stat(path).is_ok()
    }

    /// Attributes; of what a symbolic link leads to.
    pub fn stat(&self, path: &str) -> std::io::Result<Stat> {
        let opened = self.opened();
        let found = opened.find(path, true).and_then(|found| Ok(opened.tree.getattr(found.ino).wait()?.0));
        let Attributes { ino, kind, size, mtime } = found.map_err(|error| io(&error))?;
        Ok(Stat { ino, kind, size, nanos: mtime.nanos() })
    }

    /// Opens a file, which keeps its version.
    pub fn open(&self, path: &str) -> std::io::Result<OpenFile> {
        let opened = self.opened();
        let found = opened.find(path, true).and_then(|found| opened.tree.open(found.ino).wait().map(|()| found.ino));
        Ok(OpenFile { opened: Arc::downgrade(&opened), ino: found.map_err(|error| io(&error))? })
    }

    /// What `log --json` prints of a path.
    pub fn log(&self, path: &str) -> Vec<serde_json::Value> {
        let opened = self.opened();
        let (sender, mut found) = tokio::sync::mpsc::channel(100_000);
        let entries = opened.runtime.block_on(log::entries(opened.engine(), path, None, sender));
        entries.unwrap_or_else(|error| panic!("log: {error}"));
        let mut all = Vec::new();
        while let Ok(entry) = found.try_recv() {
            all.push(match entry {
                LogEntry::Sync(sync) => serde_json::to_value(sync).expect("JSON"),
                LogEntry::Version(version) => serde_json::to_value(version).expect("JSON"),
                LogEntry::Note(_) => continue,
            });
        }
        all
    }

    /// Fetches the content of what is at or below a path, and keeps it if `pin` is set; all of it must come.
    pub fn fetch(&self, path: &str, pin: bool) {
        let opened = self.opened();
        let name = opened.engine().readers().ask(|reader| reader.find(path)).expect("the catalog").expect("a name");
        let mut failures = 0;
        let fetched = opened.engine().fetch(Wanted::Below(name), pin, |_, _, failed| failures = failed);
        opened.runtime.block_on(fetched).expect("the catalog");
        assert_eq!(failures, 0, "{}", self.errors());
    }

    /// Compares the mirror with its Source's lists.
    pub fn audit(&self, scope: AuditScope) -> Result<Audit, String> {
        let opened = self.opened();
        opened.runtime.block_on(opened.engine().audit(scope)).map_err(|error| error.to_string())
    }

    /// Ends it as a crash does: what is on disk stays, and nothing is done about it.
    pub fn kill(&self) {
        let aside = self.folder.path().join("crashed");
        copy(&self.cache, &aside);
        self.end(false);
        // SQLite deletes the log beside a database by its path when the last connection closes: not that of the copy.
        let began = Instant::now();
        while is_open(&self.cache) {
            assert!(began.elapsed() < PATIENCE, "files of the cache stay open");
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::remove_dir_all(&self.cache).expect("the cache");
        fs::rename(&aside, &self.cache).expect("the cache");
    }

    /// The target of a symbolic link.
    pub fn link(&self, path: &str) -> std::io::Result<String> {
        let opened = self.opened();
        let target = opened.find(path, false).and_then(|found| opened.tree.readlink(found.ino));
        let target = target.map_err(|error| io(&error))?;
        Ok(String::from_utf8(target.to_vec()).expect("UTF-8"))
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, path: &str, name: &str) -> Option<String> {
        let opened = self.opened();
        let all = opened.find(path, true).and_then(|found| opened.tree.xattrs(found.ino)).ok()?;
        Some(String::from_utf8(all.get(name)?.clone()).expect("UTF-8"))
    }

    /// The names in a directory, in order.
    pub fn names(&self, path: &str) -> Vec<String> {
        let listed = self.opened().list(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut names: Vec<String> = listed.into_iter().map(|(name, _)| name).collect();
        names.sort();
        names
    }

    /// The paths of all files, in order.
    pub fn files(&self) -> Vec<String> {
        self.files_below("")
    }

    /// The paths of all files below a directory, as seen from there, in order.
    pub fn files_below(&self, root: &str) -> Vec<String> {
        let opened = self.opened();
        let (mut found, mut left) = (Vec::new(), vec![String::new()]);
        while let Some(folder) = left.pop() {
            let listed = match opened.list(&format!("{root}/{folder}")) {
                Ok(listed) => listed,
                // It was deleted during the walk, and all in it.
                Err(FsError::NotFound) if !folder.is_empty() => continue,
                Err(error) => panic!("{root}/{folder}: {error}"),
            };
            for (name, kind) in listed {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                if kind == FileType::Directory { left.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }

    pub fn status(&self) -> serde_json::Value {
        let text = self.opened().contents.control("status.json").expect("the status");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// All errors that the status knows, in one text.
    pub fn errors(&self) -> String {
        self.status()["errors"].to_string()
    }

    /// Waits until the status says so.
    pub fn wait(&self, what: &str, said: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let began = Instant::now();
        loop {
            let status = self.status();
            if said(&status) {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "{what} does not come: {status:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Syncs as `refresh` does, and returns what that prints.
    pub fn refresh(&self) -> Result<String, String> {
        self.refresh_with(false)
    }

    /// Syncs as `refresh --accept-deletions` does.
    pub fn refresh_accepting_deletions(&self) -> Result<String, String> {
        self.refresh_with(true)
    }

    fn refresh_with(&self, accept_deletions: bool) -> Result<String, String> {
        let opened = self.opened();
        let synced = opened.runtime.block_on(opened.engine().sync(Trigger::Refresh { accept_deletions }));
        synced.map(|summary| mirror::describe(opened.engine(), &summary)).map_err(|error| error.to_string())
    }

    /// Refreshes, which must succeed.
    pub fn refreshed(&self) -> String {
        self.refresh().unwrap_or_else(|error| panic!("refresh: {error}"))
    }

    /// Asks the catalog.
    pub fn ask<T>(&self, question: impl FnOnce(&Reader) -> Result<T, CatalogError>) -> T {
        self.opened().engine().readers().ask(question).expect("the catalog")
    }

    /// The number of versions of all resources.
    pub fn versions(&self) -> usize {
        catalog::versions(&self.cache)
    }

    /// The paths of all resources that there are, or were.
    pub fn ever(&self) -> Vec<String> {
        self.ask(catalog::resources).into_keys().collect()
    }

    /// Waits until all deliveries are dealt with.
    pub fn deals_with_deliveries(&self) {
        self.wait("all deliveries", |_| self.ask(catalog::deliveries_left) == 0);
    }
}

impl super::Mirrored for Mirror {
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        self.read(path)
    }

    fn files(&self) -> Vec<String> {
        self.files()
    }

    fn xattr(&self, path: &str, name: &str) -> Option<String> {
        self.xattr(path, name)
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
        self.ask(question)
    }

    fn versions(&self) -> usize {
        self.versions()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.unmount();
        if !self.damaged.load(Ordering::SeqCst) && self.cache.join("catalog.db").exists() {
            let wrong = super::what_is_wrong_with(&self.cache);
            assert!(wrong.is_empty(), "{wrong:#?}");
        }
    }
}
