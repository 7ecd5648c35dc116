//! Staying in step at full size (`RESOURCES=20000`): thousands of resources that change while they are read, by Change List and by
//! Change Dump.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::history::History;
use crate::support::nginx::Nginx;
use crate::support::{Mirror, Mirrored as _, catalog, many, scramble, sha256, shell};
use resourcesync::catalog::{VersionLog, Whence};

/// What every path ever was, as readers check it.
type Ever = Arc<Mutex<HashMap<String, HashSet<String>>>>;

/// Readers that open files, read a little, and go on later.
struct Readers {
    stop: Arc<AtomicBool>,
    whole: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Readers {
    fn start(mount: &Path, ever: &Ever, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let whole = Arc::new(AtomicU64::new(0));
        let threads = (0..4_u64)
            .map(|number| {
                let (mount, ever, stop, whole) =
                    (mount.to_owned(), Arc::clone(ever), Arc::clone(&stop), Arc::clone(&whole));
                std::thread::spawn(move || {
                    let mut random = seed + number;
                    while !stop.load(Ordering::SeqCst) {
                        random = scramble(random);
                        let folder = mount.join(format!("data/{:03}", random % 8));
                        let Ok(names) = fs::read_dir(&folder) else { continue };
                        let names: Vec<PathBuf> = names.flatten().map(|name| name.path()).collect();
                        let Some(path) = names.get(usize::try_from(random >> 20).unwrap() % names.len().max(1)) else {
                            continue;
                        };
                        read_slowly(&mount, path, random, &ever, &whole);
                    }
                })
            })
            .collect();
        Self { stop, whole, threads }
    }

    /// How many files were read whole.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no reader saw anything wrong"));
        self.whole.load(Ordering::SeqCst)
    }
}

/// Reads a file in two parts, with some time between them: whoever has the first has the rest.
fn read_slowly(mount: &Path, path: &Path, random: u64, ever: &Ever, whole: &AtomicU64) {
    // What was deleted before it was opened, or superseded before its first byte, is an error.
    let Ok(mut file) = File::open(path) else { return };
    let size = file.metadata().unwrap().len();
    let mut first = [0; 50];
    if file.read_exact(&mut first).is_err() {
        return;
    }
    std::thread::sleep(std::time::Duration::from_millis(random % 80));
    let mut content = first.to_vec();
    file.read_to_end(&mut content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(content.len() as u64, size, "{}", path.display());
    let name = format!("/{}", path.strip_prefix(mount).unwrap().display());
    let digest = sha256(&content);
    assert!(ever.lock().unwrap()[&name].contains(&digest), "{name} was never that");
    whole.fetch_add(1, Ordering::SeqCst);
}

/// Six batches of five hundred changes; after each, the mount is what the Source is.
fn six_batches(count: u64, capabilities: &[&str], by: &str) {
    crate::support::require(&["nginx"]);
    let seed = crate::support::seed();
    let mut nginx = Nginx::prepare();
    let mut history = History::new(&nginx, seed, count);
    history.publish(capabilities);
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "poll=0");
    let ever: Ever = Arc::new(Mutex::new(history.ever.clone()));
    let readers = Readers::start(&mirror.directory, &ever, seed);
    let compare = || shell(&format!("diff -r {}/data {}/data", mirror.directory.display(), nginx.root().display()));
    assert_eq!(compare(), "");
    let mut held = Vec::new();
    for batch in 0..6 {
        // Some are open over it, their first byte read.
        for path in history.now.keys().step_by(397) {
            let mut file = File::open(mirror.path(path.trim_start_matches('/'))).unwrap();
            let mut first = [0; 1];
            file.read_exact(&mut first).unwrap();
            held.push((path.clone(), history.now[path].clone(), file));
        }
        history.changes(500);
        *ever.lock().unwrap() = history.ever.clone();
        if capabilities.contains(&"changedump") {
            history.pack();
        }
        match batch {
            2 | 4 => history.rotate(),
            _ if capabilities.contains(&"changedump") => history.rotate(),
            _ => history.publish_changes(),
        }
        let said = mirror.refreshed();
        assert_eq!(compare(), "", "SEED={seed}, batch {batch}: {said}");
        let status = mirror.status();
        assert_eq!(status["sets"][0]["changes"]["from"], by, "{status:#}");
        assert_eq!((&status["state"], &status["resources"]), (&"complete".into(), &history.now.len().into()));
        let versions = catalog::versions(&mirror.cache) as u64;
        assert_eq!(versions, history.versions, "SEED={seed}, batch {batch}: no change missed, none twice");
    }
    for (path, was, mut file) in held {
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap_or_else(|error| panic!("SEED={seed}, {path}: {error}"));
        assert_eq!(rest, was[1..], "SEED={seed}, {path}: an open file keeps its version");
    }
    let whole = readers.end();
    println!("{whole} files were read whole by readers beside");
    assert!(whole > 100, "{whole}");
    // And it is all the same for whoever has not looked before.
    mirror.remount();
    assert_eq!(compare(), "");
    if by == "changedump" {
        let asked = nginx.log().iter().filter(|path| path.contains("new-")).count();
        assert_eq!(asked, 0, "what was created came in packages");
        // Each bitstream is kept, and was taken from a package.
        let is_kept = |version: &&VersionLog| {
            version.places.iter().any(|place| matches!(place, Whence::Cache | Whence::Package(_)))
        };
        for (path, history) in mirror.ask(catalog::histories) {
            let mut changed = history.iter().filter(|version| version.how.is_some());
            assert!(changed.all(|version| is_kept(&version)), "{path}: {history:#?}");
        }
    }
}

#[test]
fn thousands_of_resources_stay_in_step_by_change_list() {
    six_batches(many(), &["changelist"], "changelist");
}

#[test]
fn thousands_of_resources_stay_in_step_by_change_dump() {
    six_batches(many(), &["changelist", "changedump"], "changedump");
}

#[test]
fn a_source_is_followed_by_its_change_dump_alone() {
    six_batches(4000, &["changedump"], "changedump");
}
