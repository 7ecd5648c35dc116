//! A Source that changes at random, behind a server that does whatever servers do wrong; a mount of it that is killed, cut
//! off and starved of room, with readers on it; and a map in memory. Whatever happens, nobody reads what the Source never had,
//! the tree is one that the Source had, and when all is well again it is the Source's of now, with every version once.
//!
//! `SEED` repeats a run, `MODEL_KIND` plays some kinds of Source only (names, with commas between), and `MODEL_SECONDS` makes it longer than a short one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::channel::Channel;
use support::faulty::{Fault, Faulty, LARGE, Network, WINDOW};
use support::history::{History, Style};
use support::{Mirror, run, scramble, sha256, text};

/// The longest that a read may take, where each wait for the server is a second at most.
const READ: Duration = Duration::from_secs(15);
/// The same of a refresh, which asks for several documents and tries again.
const REFRESH: Duration = Duration::from_secs(120);

/// The longest that a read fails when all is well again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest until a mirror has noticed that it missed something, and found it.
const MISSED: Duration = Duration::from_secs(20);

/// From so many bytes on, `verify=stream` serves what is not verified yet.
const STREAMED: u64 = 8 << 20;

/// After so many steps another Source is played.
const EPISODE: u64 = 80;

/// A file system of its own for a cache, which can be full. Dropping it takes it away.
struct Room(PathBuf);

impl Room {
    fn of(mirror: &Mirror, megabytes: u32) -> Self {
        fs::create_dir(&mirror.cache).unwrap();
        let own = Self(mirror.cache.clone());
        support::shell(&format!("mount -t tmpfs -o size={megabytes}m,mode=700 cache {}", own.0.display()));
        own
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let ballast = File::create(self.0.join("ballast")).unwrap();
        let piece = vec![1; 1 << 16];
        let mut at = 0;
        while let Ok(written) = ballast.write_at(&piece, at) {
            at += written as u64;
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// What happened, for whoever wants to know that anything did.
#[derive(Default, Debug)]
struct Tally {
    steps: u64,
    kills: u64,
    cuts: u64,
    full: u64,
    reads: u64,
    errors: u64,
    unverified: u64,
    moments: u64,
    gaps: u64,
    failed_refreshes: u64,
    /// Refreshes after which the state was `complete`, and was held to that.
    complete: u64,
    lists: u64,
    notified: u64,
    heard: u64,
    patches: u64,
    mementos: u64,
}

/// A Source of one kind, and how it is mounted.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    capabilities: &'static [&'static str],
    options: &'static str,
    style: Style,
    /// Whether it sends notifications.
    tells: bool,
}

const PLAIN: Style = Style {
    large: None,
    patches: false,
    mementos: false,
    lies: false,
    disorder: false,
    closed: false,
    pages: false,
    parts: false,
    slides: false,
    bare: false,
};

const KINDS: [Kind; 14] = [
    Kind {
        name: "plain",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { lies: true, large: Some((20, 1_100_000, 1_600_000)), ..PLAIN },
        tells: false,
    },
    // What is large is gone on with where it broke off.
    Kind {
        name: "large",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { large: Some((3, 1_100_000, 1_500_000)), ..PLAIN },
        tells: false,
    },
    Kind {
        name: "packed",
        capabilities: &["changelist", "changedump"],
        options: "content=all",
        style: PLAIN,
        tells: false,
    },
    Kind {
        name: "streamed",
        capabilities: &["changelist"],
        options: "content=all,verify=stream",
        style: Style { large: Some((60, 8_500_000, 10_000_000)), ..PLAIN },
        tells: false,
    },
    Kind {
        name: "remembered",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { mementos: true, ..PLAIN },
        tells: false,
    },
    Kind {
        name: "telling",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { disorder: true, ..PLAIN },
        tells: true,
    },
    // It has a Resource List alone: what happened between two of its editions, nobody can know.
    Kind { name: "listed", capabilities: &[], options: "content=lazy", style: PLAIN, tells: false },
    // Each of its lists of changes has ended when it is published.
    Kind {
        name: "closed",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { closed: true, ..PLAIN },
        tells: false,
    },
    Kind {
        name: "patched",
        capabilities: &["changelist"],
        options: "content=all",
        style: Style { patches: true, lies: true, large: Some((20, 1_100_000, 1_600_000)), ..PLAIN },
        tells: false,
    },
    // Its lists of resources are compared with the tree each time, too.
    Kind {
        name: "paged",
        capabilities: &["changelist"],
        options: "content=lazy,relist=1s",
        style: Style { pages: true, ..PLAIN },
        tells: false,
    },
    // What it lists moves from one part to another.
    Kind {
        name: "parted",
        capabilities: &[],
        options: "content=lazy",
        style: Style { parts: true, ..PLAIN },
        tells: false,
    },
    Kind {
        name: "relisted",
        capabilities: &["changelist"],
        options: "content=lazy,relist=1s",
        style: Style { parts: true, ..PLAIN },
        tells: false,
    },
    // Of what it told a while ago, nobody can know who was not there.
    Kind {
        name: "sliding",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { slides: true, ..PLAIN },
        tells: false,
    },
    // Of most of what it has, no hash tells whether it came: its server makes no other mistake than those that last.
    Kind {
        name: "bare",
        capabilities: &["changelist"],
        options: "content=lazy",
        style: Style { bare: true, ..PLAIN },
        tells: false,
    },
];

struct Model {
    name: String,
    random: u64,
    server: Faulty,
    history: History,
    mirror: Mirror,
    room: Room,
    kind: Kind,
    channel: Option<Channel>,
    /// So many changes are known to be in the tree.
    applied: usize,
    held: Vec<(String, Vec<u8>, File)>,
    /// What was read whole, and is in the cache since: paths and digests.
    fetched: HashSet<(String, String)>,
    /// Seconds of the Source that were looked at, after which more has happened.
    looked_at: Vec<u64>,
    /// Those that were looked at before the mirror knew all of them.
    early: BTreeSet<u64>,
    tally: Tally,
    folder: tempfile::TempDir,
}

impl Drop for Model {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(self.name.replace(", ", "-"));
            let copy = format!(
                "rm -rf {0} && mkdir {0} && cp -r {1} {0}/source && cp {2}/catalog.db* {0}/",
                kept.display(),
                self.folder.path().display(),
                self.mirror.cache.display()
            );
            let _ = std::process::Command::new("bash").args(["-c", &copy]).output();
            eprintln!("{}: the Source and the catalog are kept in {}", self.name, kept.display());
        }
    }
}

impl Model {
    fn start(seed: u64, kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Faulty::serve(folder.path().to_owned(), seed);
        let mut history = History::styled(folder.path().to_owned(), server.url(""), seed, 60, kind.style);
        let channel = kind.tells.then(|| Channel::start(None));
        if let Some(channel) = &channel {
            history.offers(&support::telling::channel(&channel.url(), "change-notification", &[]));
        }
        history.publish(kind.capabilities);
        let mirror = Mirror::prepare(&server.url("/"), &format!("poll=0,timeout=1,{}", kind.options));
        let room = Room::of(&mirror, 512);
        let output = mirror.try_mount();
        let name = format!("SEED={seed}, {}", kind.name);
        assert!(output.status.success(), "{name}: {}", text(&output));
        Self {
            name,
            random: seed,
            server,
            history,
            mirror,
            room,
            kind,
            channel,
            applied: 0,
            held: Vec::new(),
            fetched: HashSet::new(),
            looked_at: Vec::new(),
            early: BTreeSet::new(),
            tally: Tally::default(),
            folder,
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % below
    }

    fn mounted_again(&self) {
        let output = self.mirror.try_mount();
        assert!(output.status.success(), "{}: {}", self.name, text(&output));
    }

    /// The Source changes, and says so in one of its ways.
    fn changes(&mut self) {
        let most = if self.next(4) == 0 { 2 } else { 25 };
        let count = 1 + self.next(most);
        if !self.knows_all() {
            // Of two lists of the same moment, nobody can say which is the newer one.
            self.history.later();
        }
        self.history.changes(count);
        let early = self.next(2) == 0;
        if early {
            self.tell();
        }
        if self.kind.capabilities.contains(&"changedump") && self.next(3) > 0 {
            self.history.pack();
        }
        match self.next(5) {
            0 => self.history.rotate(),
            _ => self.history.publish_changes(),
        }
        let seldom = if self.relists() { 2 } else { 6 };
        if !self.follows() || self.next(seldom) == 0 {
            self.tally.lists += 1;
            self.history.relist();
        }
        if !early {
            self.tell();
        }
    }

    /// Whether the Source tells of its changes.
    fn follows(&self) -> bool {
        !self.kind.capabilities.is_empty()
    }

    /// Whether each of them comes to be known: a list that is read before them tells the newest alone.
    fn knows_all(&self) -> bool {
        self.follows() && !self.kind.style.slides && !self.relists()
    }

    /// Whether what there was once is told, too: what was superseded before it came, and has no length, is nowhere.
    fn knows_moments(&self) -> bool {
        self.knows_all() && !self.kind.style.bare
    }

    /// Whether its lists of resources are read beside its changes.
    fn relists(&self) -> bool {
        self.kind.options.contains("relist")
    }

    /// Sends a notification, if it sends any; some are lost, and now and then the connection is.
    fn tell(&mut self) {
        let choice = self.next(8);
        let Some(channel) = &mut self.channel else { return };
        let told = self.history.notification();
        match choice {
            0 => {}
            1 => channel.cut(),
            _ => {
                self.tally.notified += 1;
                self.tally.heard += u64::from(channel.send(&told) > 0);
            }
        }
    }

    /// Reads a file as anybody would: it is something that the Source had, or an error, and soon.
    fn read(&mut self, path: &str) -> Option<Vec<u8>> {
        self.read_at_once(&[path.to_owned()]).pop().flatten()
    }

    /// Reads files, each in a thread of its own. What was streamed and is not what it should be counts as not read.
    fn read_at_once(&mut self, paths: &[String]) -> Vec<Option<Vec<u8>>> {
        let name = &self.name;
        let mirror = &self.mirror;
        let all: Vec<std::io::Result<(Vec<u8>, File)>> = std::thread::scope(|scope| {
            let read = |path: &String| {
                let path = path.clone();
                scope.spawn(move || {
                    let began = Instant::now();
                    let read = File::open(mirror.path(path.trim_start_matches('/'))).and_then(|mut file| {
                        let mut bytes = Vec::new();
                        file.read_to_end(&mut bytes)?;
                        Ok((bytes, file))
                    });
                    assert!(began.elapsed() < READ, "{name}: {path} takes {:?}", began.elapsed());
                    read
                })
            };
            let threads: Vec<_> = paths.iter().map(read).collect();
            threads.into_iter().map(|thread| thread.join().expect("a reader")).collect()
        });
        self.tally.reads += all.len() as u64;
        self.tally.errors += all.iter().filter(|read| read.is_err()).count() as u64;
        let mut read = Vec::new();
        for (path, one) in paths.iter().zip(all) {
            let Ok((bytes, file)) = one else {
                read.push(None);
                continue;
            };
            let digest = sha256(&bytes);
            if self.history.ever.get(path).is_some_and(|ever| ever.contains(&digest)) {
                self.fetched.insert((path.clone(), digest));
                read.push(Some(bytes));
            } else {
                let excused = self.is_unverified(&file);
                assert!(excused, "{}: {path} was never that, {} bytes", self.name, bytes.len());
                self.tally.unverified += 1;
                read.push(None);
            }
        }
        read
    }

    /// Whether a file is served in ranges before the whole is verified, and says so.
    fn is_unverified(&self, file: &File) -> bool {
        let mut verified = [0; 8];
        let said = rustix::fs::fgetxattr(file, "user.resourcesync.verified", &mut verified).unwrap_or(0);
        let large = file.metadata().is_ok_and(|file| file.len() >= STREAMED);
        self.kind.options.contains("verify=stream") && large && &verified[..said] != b"yes"
    }

    /// Who holds a file open goes on with what it was.
    fn held_files_stay(&mut self) {
        for number in 0..self.held.len() {
            let random = self.next(u64::MAX);
            let (path, bytes, file) = &self.held[number];
            let at = usize::try_from(random % bytes.len() as u64).unwrap();
            let mut piece = vec![0; (bytes.len() - at).min(500)];
            let began = Instant::now();
            // What was not fetched yet, the Source may not have any more.
            let unverified = self.is_unverified(file);
            if file.read_exact_at(&mut piece, at as u64).is_ok() && piece != bytes[at..at + piece.len()] {
                assert!(unverified, "{}: {path} at {at} is another", self.name);
                self.tally.unverified += 1;
            }
            assert!(began.elapsed() < READ, "{}: {path} takes {:?}", self.name, began.elapsed());
        }
        if self.held.len() > 30 {
            self.held.drain(..10);
        }
    }

    fn hold(&mut self) {
        let paths: Vec<String> = self.history.now.keys().cloned().collect();
        for _ in 0..3 {
            let path = &paths[usize::try_from(self.next(paths.len() as u64)).unwrap()];
            let Ok(file) = File::open(self.mirror.path(path.trim_start_matches('/'))) else { continue };
            // Whichever version that is, its digest says; it is one that the Source had.
            let Some(hash) = support::xattr(&self.mirror.path(path.trim_start_matches('/')), "user.resourcesync.hash")
            else {
                continue;
            };
            let digest = hash.split_whitespace().find_map(|one| one.strip_prefix("sha-256:")).unwrap_or_default();
            let bytes = self.history.told.iter().find(|one| one.digest == digest).map(|one| one.bytes.clone());
            if let Some(bytes) =
                bytes.filter(|bytes| !bytes.is_empty() && file.metadata().unwrap().len() == bytes.len() as u64)
            {
                // Between the two questions it may have become another.
                let mut first = vec![0; 1];
                if file.read_exact_at(&mut first, 0).is_ok() && first[0] == bytes[0] {
                    self.held.push((path.clone(), bytes, file));
                }
            }
        }
    }

    /// The tree is one that the Source had, no older than one that was seen before.
    fn tree_is_one_of_the_source_s(&mut self) {
        // What is pushed may come before what the lists have. Nobody knows what is missing of a list in no order, and what can be
        // read of a list of resources that is cut short is there, with what it does not come to.
        if self.kind.tells || self.kind.style.disorder || !self.knows_all() || self.is_partial() {
            let fresh = &self.history.told[self.applied..];
            let (gone, made): (Vec<_>, Vec<_>) = fresh.iter().partition(|one| one.kind == "deleted");
            let [gone, made] = [gone, made].map(|all| all.into_iter().map(|one| one.path.as_str()).collect());
            let (gone, made): (HashSet<&str>, HashSet<&str>) = (gone, made);
            let (files, before) = (self.there(), self.history.after(self.applied));
            for path in before.keys().filter(|path| !gone.contains(path.as_str())) {
                assert!(files.contains(path), "{}: {path} is missing, and nobody deleted it", self.name);
            }
            for path in files.iter().filter(|path| !made.contains(path.as_str())) {
                assert!(before.contains_key(path), "{}: {path} is there, and nobody made it", self.name);
            }
            return;
        }
        let stable = || {
            let mut last = BTreeSet::new();
            for _ in 0..100 {
                let files: BTreeSet<String> = self.mirror.files().into_iter().map(|path| format!("/{path}")).collect();
                if files == last {
                    break;
                }
                last = files;
            }
            last
        };
        let found_in = |files: &BTreeSet<String>| {
            let mut there = self.history.after(self.applied);
            let mut next = self.history.told[self.applied..].iter();
            let mut changes = self.applied;
            loop {
                if there.len() == files.len() && there.keys().all(|path| files.contains(path)) {
                    break Some(changes);
                }
                next.next()?.happen(&mut there);
                changes += 1;
            }
        };
        let mut files = stable();
        let mut found = found_in(&files);
        // The kernel is told of a step directory by directory, just after it was made.
        for _ in 0..20 {
            if found.is_none() {
                std::thread::sleep(Duration::from_millis(100));
                files = stable();
                found = found_in(&files);
            }
        }
        let now: BTreeSet<String> = self.history.now.keys().cloned().collect();
        assert!(
            found.is_some(),
            "{}: the Source never had this tree since change {} of {}; it differs from that of now: {}",
            self.name,
            self.applied,
            self.history.told.len(),
            self.differences(&files, &now)
        );
        self.applied = found.unwrap_or(self.applied);
    }

    /// What two trees differ in, and what happened to that.
    fn differences(&self, files: &BTreeSet<String>, wanted: &BTreeSet<String>) -> String {
        let mut all = String::new();
        for path in files.symmetric_difference(wanted) {
            let what = if files.contains(path) { "is there" } else { "is missing" };
            let told = self.history.told.iter().enumerate().filter(|(_, one)| one.path == *path);
            let told: Vec<String> = told
                .map(|(number, one)| format!("{number}: {} {}", one.kind, support::changes::at(one.second)))
                .collect();
            let log = run(&["log", &self.mirror.path(path.trim_start_matches('/')).to_string_lossy()]);
            all += &format!("\n{path} {what}; told: {told:?}; log: {}", text(&log));
        }
        all
    }

    fn refresh(&mut self) -> bool {
        let began = Instant::now();
        let untold = self.untold();
        let output = self.mirror.refresh();
        assert!(began.elapsed() < REFRESH, "{}: a refresh takes {:?}", self.name, began.elapsed());
        let good = output.status.success();
        self.tally.failed_refreshes += u64::from(!good);
        if good && self.is_complete() && self.untold() == untold {
            self.tally.complete += 1;
            self.complete_is_true();
        }
        good
    }

    /// How often its server said that what is old is new, or that there is no such thing: of a Source that takes its Change List
    /// back, its lists of resources are all there is.
    fn untold(&self) -> u64 {
        let counts = self.server.counts();
        [Fault::Stale, Fault::NotModified, Fault::Missing].iter().filter_map(|fault| counts.get(fault)).sum()
    }

    fn is_complete(&self) -> bool {
        self.mirror.status()["state"] == "complete"
    }

    /// Whether a list of resources was read in part, for want of one of changes: it adds, and deletes nothing.
    fn is_partial(&self) -> bool {
        self.mirror.status()["state"] == "partial"
    }

    /// What is said to be complete is what the Source has now.
    fn complete_is_true(&self) {
        let now: BTreeSet<String> = self.history.now.keys().cloned().collect();
        let hashes = |(path, bytes): (&String, &Vec<u8>)| {
            let hash = support::xattr(&self.mirror.path(path.trim_start_matches('/')), "user.resourcesync.hash");
            self.history.is_bare(path) || hash.is_some_and(|hash| hash.contains(&sha256(bytes)))
        };
        let began = Instant::now();
        while self.there() != now || !self.kind.style.lies && !self.history.now.iter().all(hashes) {
            // The kernel is told of a step directory by directory, just after it was made.
            assert!(
                began.elapsed() < Duration::from_secs(2),
                "{}: it is complete, and not what the Source is: {}; other hashes: {:?}; {:#}",
                self.name,
                self.differences(&self.there(), &now),
                self.history.now.iter().filter(|one| !hashes(*one)).map(|(path, _)| path).collect::<Vec<_>>(),
                self.mirror.status()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn some_are_read(&mut self, count: u64) {
        let paths: Vec<String> = self.history.now.keys().cloned().collect();
        for _ in 0..count / 5 {
            let some = [0; 5].map(|_| paths[usize::try_from(self.next(paths.len() as u64)).unwrap()].clone());
            self.read_at_once(&some);
        }
        // What is large is gone on with where it breaks off: of that, there is little, and much that can go wrong.
        let fresh = self.history.told.iter().rev().take(100);
        let large: BTreeSet<String> = fresh.filter(|one| one.bytes.len() > LARGE).map(|one| one.path.clone()).collect();
        let large: Vec<String> = large.into_iter().filter(|path| self.history.now.contains_key(path)).collect();
        self.read_at_once(&large);
    }

    /// Names are asked for, of what is there and of what is not: the kernel remembers the answers.
    fn some_are_looked_up(&mut self) {
        let paths: Vec<String> = self.history.ever.keys().cloned().collect();
        for _ in 0..20 {
            let at = usize::try_from(self.next(paths.len() as u64)).unwrap();
            let _ = fs::metadata(self.mirror.path(paths[at].trim_start_matches('/')));
        }
    }

    /// Each name that there ever was is there now, or is not; whatever was answered before.
    fn names_are_those_of_now(&self) {
        for path in self.history.ever.keys() {
            let there = fs::metadata(self.mirror.path(path.trim_start_matches('/'))).is_ok();
            let wanted = self.history.now.contains_key(path);
            assert!(there == wanted, "{}: {path} is there: {there}; in the Source: {wanted}", self.name);
        }
    }

    fn kill_while_it_works(&mut self) {
        self.tally.kills += 1;
        // What is in the cache, a moment later is known to be there.
        self.fetched.clear();
        let daemon = self.mirror.daemon().expect("a daemon");
        let directory = self.mirror.directory.to_string_lossy().into_owned();
        let refresh = std::thread::spawn(move || run(&["refresh", &directory]));
        std::thread::sleep(Duration::from_millis(self.next(200)));
        let daemon = rustix::process::Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
        rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
        self.mirror.wait_for_end();
        refresh.join().unwrap();
        self.held.clear();
        self.mounted_again();
    }

    /// A moment of which the mirror does not know all yet: the kernel remembers what it is told of it.
    fn moment_is_looked_at_early(&mut self) {
        if !self.knows_moments() {
            return;
        }
        let second = self.history.second();
        let root = self.mirror.path(&format!(".versions/@{}", support::changes::at(second)));
        // What is there yet does not matter.
        let _ = std::process::Command::new("find").arg(&root).output();
        for path in self.history.ever.keys().skip(usize::try_from(second % 5).unwrap()).step_by(5) {
            let _ = fs::metadata(root.join(path.trim_start_matches('/')));
        }
        self.early.insert(second);
    }

    /// What is wrong for a while from now on, if anything.
    fn something_lasts(&mut self) -> bool {
        self.server.ends();
        let (pages, parts) = (self.history.pages(), self.history.parts().to_vec());
        let often = !pages.is_empty() || self.kind.style.bare;
        if self.next(if often { 2 } else { 6 }) > 0 {
            return false;
        }
        let anything = vec![["/data/", "/data/", "/data/", "/"][usize::try_from(self.next(4)).unwrap()].to_owned()];
        let mut all = vec![(Fault::BotWall, anything.clone()), (Fault::Challenge, anything)];
        if !pages.is_empty() {
            all.extend([(Fault::PageMissing, pages.clone()), (Fault::PageFailed, pages)]);
        }
        if !parts.is_empty() {
            all.extend([(Fault::OldPart, parts), (Fault::OldIndex, vec!["/resourcelist.xml".to_owned()])]);
        }
        let (fault, paths) = all.swap_remove(usize::try_from(self.next(all.len() as u64)).unwrap());
        let at = usize::try_from(self.next(paths.len() as u64)).unwrap();
        self.server.lasts(fault, &paths[at]);
        true
    }

    /// Something bad happens while the mirror follows.
    fn storm(&mut self, lasts: bool) {
        self.moment_is_looked_at_early();
        if self.kind.style.slides && self.next(6) == 0 {
            // What has changed leaves the list before the mirror asks for it.
            std::thread::sleep(Duration::from_secs(WINDOW.unsigned_abs() + 1));
        }
        let rates = match lasts {
            _ if self.kind.style.bare => [0; 4],
            true => [0, 0, 100, 300],
            false => [20, 100, 300, 600],
        };
        let rate = rates[usize::try_from(self.next(4)).unwrap()];
        self.server.errs(rate);
        match self.next(12) {
            0 | 1 => self.kill_while_it_works(),
            2 => {
                self.tally.cuts += 1;
                let state = if self.next(2) == 0 { Network::Cut } else { Network::BlackHole };
                self.server.network(state);
                assert!(!self.refresh(), "{}: there is nobody to ask", self.name);
                self.some_are_read(10);
                self.server.network(Network::Up);
            }
            3 => {
                self.tally.full += 1;
                self.fetched.clear();
                if self.next(2) == 0 {
                    // What is new is still to be fetched when there is no room for it.
                    self.refresh();
                }
                self.room.fill();
                self.refresh();
                self.some_are_read(10);
                if self.next(2) == 0 {
                    self.kill_while_it_works();
                }
                self.room.free();
                self.fetched.clear();
            }
            4 => {
                self.held.clear();
                self.mirror.unmount();
                self.mounted_again();
            }
            _ => {
                self.refresh();
            }
        }
        self.some_are_looked_up();
        self.some_are_read(15);
        self.held_files_stay();
        self.hold();
        self.tree_is_one_of_the_source_s();
        if !self.looked_at.is_empty() {
            let at = usize::try_from(self.next(self.looked_at.len() as u64)).unwrap();
            self.moment_is_as_it_was(self.looked_at[at], 3);
        }
    }

    /// All is well again: the mount is what the Source is.
    fn calm(&mut self) {
        self.server.errs(0);
        self.server.ends();
        self.history.comes_clean();
        self.history.publish_changes();
        if !self.follows() && self.next(2) == 0 {
            self.history.later();
            self.history.relist();
        }
        self.refreshes();
        if self.kind.style.slides && !self.is_complete() {
            // A list of all makes up for the changes that nobody saw.
            self.tally.gaps += 1;
            self.history.later();
            self.history.relist();
            self.refreshes();
        }
        assert!(self.is_complete(), "{}: {:#}", self.name, self.mirror.status());
        self.what_is_missed_is_noticed();
        self.names_are_those_of_now();
        let files = self.there();
        let now: BTreeSet<String> = self.history.now.keys().cloned().collect();
        assert!(files == now, "{}: {}", self.name, self.differences(&files, &now));
        self.applied = self.history.told.len();
        for path in files {
            // A fetch that was begun while things were bad may still end badly.
            let asked = Instant::now();
            let read = loop {
                match self.read(&path) {
                    None if asked.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(100)),
                    read => break read,
                }
            };
            assert!(
                read.as_ref() == Some(&self.history.now[&path]),
                "{}: {path} is not what it is now: {:?}: {}",
                self.name,
                read.map(|bytes| bytes.len()),
                self.mirror.errors()
            );
        }
        // Of a Source that does not tell of its changes, versions and their times are those of its lists.
        if self.knows_all() {
            self.every_version_is_there_once();
        }
        if self.knows_moments() {
            self.moments_are_as_they_were();
        }
    }

    fn refreshes(&mut self) {
        let began = Instant::now();
        while !self.refresh() {
            assert!(began.elapsed() < REFRESH, "{}: {}", self.name, text(&self.mirror.refresh()));
        }
    }

    /// Whether what changed last has the hashes of now.
    fn said_to_be_those_of_now(&self) -> bool {
        let last: BTreeMap<&str, &str> =
            self.history.told.iter().rev().take(10).rev().map(|one| (one.path.as_str(), one.digest.as_str())).collect();
        last.into_iter().filter(|(path, _)| self.history.now.contains_key(*path)).all(|(path, digest)| {
            let hash = support::xattr(&self.mirror.path(path.trim_start_matches('/')), "user.resourcesync.hash");
            hash.is_some_and(|hash| hash.contains(digest))
        })
    }

    fn there(&self) -> BTreeSet<String> {
        self.mirror.files().into_iter().map(|path| format!("/{path}")).collect()
    }

    /// A notification is lost, and the next one comes: from that alone, the mirror finds what it missed.
    fn what_is_missed_is_noticed(&mut self) {
        let Some(channel) = &mut self.channel else { return };
        if channel.clients() == 0 {
            return;
        }
        self.tally.gaps += 1;
        // What was not told yet is told.
        channel.send(&self.history.notification());
        for lost in [true, false] {
            self.history.later();
            self.history.changes(3);
            self.history.later();
            self.history.publish_changes();
            let told = self.history.notification();
            if !lost {
                channel.send(&told);
            }
        }
        let now: BTreeSet<String> = self.history.now.keys().cloned().collect();
        let began = Instant::now();
        while self.there() != now || !self.said_to_be_those_of_now() {
            let waited = began.elapsed();
            assert!(waited < MISSED, "{}: after {waited:?}: {}", self.name, self.differences(&self.there(), &now));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// No version is missing, and none is there twice.
    fn every_version_is_there_once(&self) {
        let count = support::catalog::told_versions(&self.mirror.cache) as u64;
        if count == self.history.versions {
            return;
        }
        let mut all = String::new();
        for path in self.history.ever.keys() {
            let told: Vec<_> = self.history.told.iter().enumerate().filter(|(_, one)| one.path == *path).collect();
            let made = told.iter().filter(|(_, one)| one.kind != "deleted").count();
            let first = usize::from(told.first().is_none_or(|(_, one)| one.kind != "created"));
            let log = run(&["log", "--json", &self.mirror.path(path.trim_start_matches('/')).to_string_lossy()]);
            let known: serde_json::Value = serde_json::from_slice(&log.stdout).unwrap_or_default();
            let known = known.as_array().map_or(0, Vec::len);
            if known != made + first {
                let told = told.iter().map(|(number, one)| {
                    format!("{number}: {} {} {}", one.kind, support::changes::at(one.second), &one.digest[..8])
                });
                let told: Vec<String> = told.collect();
                let log = run(&["log", &self.mirror.path(path.trim_start_matches('/')).to_string_lossy()]);
                all += &format!("\n{path} has {known} of {}; told: {told:#?}; log: {}", made + first, text(&log));
            }
        }
        panic!("{}: {count} versions, where {} were: {all}", self.name, self.history.versions);
    }

    fn moments_are_as_they_were(&mut self) {
        for second in std::mem::take(&mut self.early) {
            self.moment_is_as_it_was(second, usize::MAX);
        }
        for _ in 0..2 {
            let second = 11 + self.next(self.history.second().saturating_sub(10).max(1));
            self.moment_is_as_it_was(second, usize::MAX);
            if second < self.history.second() {
                self.looked_at.push(second);
            }
        }
        if self.looked_at.len() > 40 {
            self.looked_at.drain(..20);
        }
    }

    /// What there was at a moment is there under it, by its names and in its directories; of some of it, the bytes are looked
    /// at. Of more than a few, the Source and its archive are up.
    fn moment_is_as_it_was(&mut self, second: u64, most: usize) {
        let changes = self.history.told.partition_point(|one| one.second <= second);
        let wanted = self.history.after(changes);
        let root = self.mirror.path(&format!(".versions/@{}", support::changes::at(second)));
        let told = || format!("{}: as of second {second}, {changes} changes", self.name);
        for path in self.history.ever.keys().skip(usize::try_from(second % 5).unwrap()).step_by(5) {
            let there = fs::metadata(root.join(path.trim_start_matches('/'))).is_ok();
            assert_eq!(there, wanted.contains_key(path), "{}: {path} is there", told());
        }
        let files: BTreeMap<String, PathBuf> =
            support::files(&root).into_iter().map(|path| (format!("/{path}"), root.join(path))).collect();
        assert_eq!(files.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{}", told());
        for (path, file) in files.iter().skip(usize::try_from(second % 5).unwrap()).step_by(5).take(most) {
            // What was superseded before anybody read it may be nowhere any more, but in an archive.
            let kept = self.kind.style.mementos && most > 3;
            let had = kept || self.fetched.contains(&(path.clone(), wanted[path].clone()));
            let unverified = File::open(file).is_ok_and(|file| self.is_unverified(&file));
            match fs::read(file) {
                Ok(bytes) => assert!(sha256(&bytes) == wanted[path] || unverified, "{}: {path} is another", told()),
                Err(error) if had => panic!("{}: {path} is lost: {error}: {}", told(), self.mirror.errors()),
                Err(_) => {}
            }
        }
        self.tally.moments += 1;
    }

    fn play(mut self, until: Instant) -> (Tally, BTreeMap<Fault, u64>) {
        while Instant::now() < until && self.tally.steps < EPISODE {
            for _ in 0..=self.next(3) {
                self.tally.steps += 1;
                let lasts = self.something_lasts();
                self.changes();
                self.storm(lasts);
            }
            self.calm();
            if self.tally.steps.is_multiple_of(5) {
                self.cache_is_sound();
            }
        }
        self.cache_is_sound();
        (self.tally.patches, self.tally.mementos) = (self.server.asked("/patch/"), self.server.asked("/kept/"));
        (std::mem::take(&mut self.tally), self.server.counts())
    }

    fn cache_is_sound(&self) {
        let output = run(&["audit", "--content", &self.mirror.directory.to_string_lossy()]);
        assert!(output.status.success(), "{}: {}", self.name, text(&output));
    }
}

#[test]
fn whatever_goes_wrong_the_mirror_is_true_and_comes_back_into_step() {
    let seed = support::seed();
    let seconds = std::env::var("MODEL_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(40);
    let until = Instant::now() + Duration::from_secs(seconds);
    let only = std::env::var("MODEL_KIND").ok();
    let kinds =
        KINDS.into_iter().filter(|kind| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == kind.name)));
    let played: Vec<(&str, Tally, BTreeMap<Fault, u64>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = kinds
            .map(|kind| {
                scope.spawn(move || {
                    let mut episodes = Vec::new();
                    for episode in 0.. {
                        // The first episode of each kind is played with the seed itself.
                        let (tally, faults) = Model::start(seed + episode, kind).play(until);
                        episodes.push((kind.name, tally, faults));
                        if Instant::now() >= until {
                            break;
                        }
                    }
                    episodes
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it held")).collect()
    });
    let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
    for (kind, tally, counts) in played {
        println!("{kind}: {tally:?}");
        counts.into_iter().for_each(|(fault, count)| *faults.entry(fault).or_insert(0) += count);
    }
    println!("{faults:?}");
    let rare: Vec<Fault> =
        Fault::ALL.into_iter().filter(|fault| faults.get(fault).copied().unwrap_or(0) * 36 < seconds).collect();
    // A short run, or one of a single kind of Source, has no occasion for some.
    assert!(
        only.is_some() || seconds < 1800 || rare.is_empty(),
        "a hundred an hour of each fault is the least: {rare:?}"
    );
}
