//! A Source that tells of its changes as they happen: on a channel of notifications, and in a Change List if it has one.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use super::changes::{Source, at, change, interval};
use super::server::Reply;
use super::{Mirrored, capability, document, entry, facts_of, scramble, sha256};

/// A port that nobody uses now, and that no outgoing connection is given.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(std::process::id() % 200).expect("it fits") * 100;
    (0..100)
        .map(|_| first + NEXT.fetch_add(1, Ordering::SeqCst) % 100)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Options that let a hub reach the mirror, and nothing else start a sync.
pub fn listening() -> String {
    format!("poll=0,listen=127.0.0.1:{}", free_port())
}

/// An entry of a Capability List that offers a channel.
pub fn channel(url: &str, capability: &str, hubs: &[&str]) -> String {
    let hubs: String = hubs.iter().map(|hub| format!("<rs:ln rel=\"hub\" href=\"{hub}\"/>")).collect();
    entry(url, &format!("capability=\"{capability}\"")).replace("</url>", &format!("{hubs}</url>"))
}

/// A change notification of an interval (Change Notification 3).
pub fn notification(from: u64, until: u64, entries: &str) -> String {
    document("change-notification", &interval(Some(from), Some(until)), "", entries)
}

/// What a Source says of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Its time, hash and length.
    Full,
    /// Its time alone.
    Dated,
    /// Hash and length, and no time.
    Hashed,
}

/// A Source that changes at random, one change at a time; the same seed makes the same history.
pub struct Telling {
    pub source: Source,
    /// The second of the last change.
    pub second: u64,
    random: u64,
    made: u64,
    entries: String,
    lists: bool,
    away: bool,
    /// Whether its Change List is written only when [`Telling::publish`] is called.
    pub late: bool,
    /// What it says of a change.
    pub manner: Manner,
    /// The digests of all versions that a path ever had, in order.
    pub versions: BTreeMap<String, Vec<String>>,
}

impl Telling {
    /// With so many resources to begin with; with a Change List if it `lists` what it tells.
    pub fn start(seed: u64, count: u64, lists: bool) -> Self {
        let texts: Vec<(String, String)> =
            (0..count).map(|n| (format!("/data/{n}.txt"), format!("first {n}"))).collect();
        let resources: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let source = Source::start(&resources, if lists { &["changelist"] } else { &[] });
        let first = |text: &String| vec![sha256(text.as_bytes())];
        let versions = texts.iter().map(|(path, text)| (path.clone(), first(text))).collect();
        let telling = Self {
            source,
            second: 0,
            random: seed,
            made: 0,
            entries: String::new(),
            lists,
            away: false,
            late: false,
            manner: Manner::Full,
            versions,
        };
        if lists {
            telling.publish();
        }
        telling
    }

    /// Offers channels beside its lists.
    pub fn offers(&self, channels: &str) {
        let lists = if self.lists { &["resourcelist", "changelist"][..] } else { &["resourcelist"] };
        let lists: String =
            lists.iter().map(|name| capability(&self.source.url(&format!("/{name}.xml")), name)).collect();
        self.source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &(lists + channels)));
    }

    /// A topic without content, with these `Link` values.
    pub fn silent_topic(&self, links: &str) -> String {
        let links = links.to_owned();
        self.source
            .server
            .on("/topic", move |_| Reply::ok("").with("Content-Type", "application/xml").with("Link", &links));
        self.source.url("/topic")
    }

    /// Has a topic, which this hub delivers, and offers it. Returns its URL.
    pub fn topic(&self, hub: &str) -> String {
        let topic = self.source.url("/topic");
        let link = format!("<{topic}>; rel=\"self\", <{hub}>; rel=\"hub\"");
        self.source.server.on("/topic", move |_| {
            // As the specification wants it where nothing is served there.
            Reply::ok("").with("Content-Type", "application/xml").with("Link", &link)
        });
        self.offers(&channel(&topic, "change-notification", &[hub]));
        topic
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % below
    }

    /// One change happens. Returns its entry, and the interval in which nothing else did.
    pub fn happens(&mut self) -> (String, u64, u64) {
        let from = self.second;
        // Some within the same second.
        self.second += u64::from(self.next(4) > 0);
        let paths: Vec<String> = self.source.now.keys().cloned().collect();
        let gone: Vec<String> =
            self.versions.keys().filter(|path| !self.source.now.contains_key(*path)).cloned().collect();
        let pick = |from: &[String], at: u64| from[usize::try_from(at % from.len() as u64).expect("it fits")].clone();
        self.made += 1;
        let (choice, place) = (self.next(10), self.next(1 << 30));
        let (kind, path) = match choice {
            0 => ("created", format!("/data/new-{}.txt", self.made)),
            1 if !gone.is_empty() => ("created", pick(&gone, place)),
            2 if paths.len() > 5 => ("deleted", pick(&paths, place)),
            _ => ("updated", pick(&paths, place)),
        };
        let text = format!("{path} as of change {}", self.made);
        let mut told = self.source.does(kind, &path, self.second, &text);
        let (time, facts) = (format!("datetime=\"{}\"", at(self.second)), facts_of(text.as_bytes()));
        match self.manner {
            Manner::Full => {}
            Manner::Dated => told = change(&self.source.url(&path), kind, &time),
            Manner::Hashed if kind == "deleted" => told = change(&self.source.url(&path), kind, ""),
            Manner::Hashed => told = change(&self.source.url(&path), kind, &facts),
        }
        if kind != "deleted" {
            self.versions.entry(path).or_default().push(sha256(text.as_bytes()));
        }
        self.entries += &told;
        if self.lists && !self.late {
            self.publish();
        }
        (told, from, self.second)
    }

    /// One change happens, and this is its notification.
    pub fn tells(&mut self) -> String {
        let (entry, from, until) = self.happens();
        notification(from, until, &entry)
    }

    /// Writes its Change List, or, without one, its Resource List.
    pub fn publish(&self) {
        match self.lists {
            _ if self.away => {}
            true => self.source.changes(&self.entries),
            false => self.source.list(self.second),
        }
    }

    /// Its documents cannot be had, though it goes on to change.
    pub fn goes_away(&mut self) {
        self.away = true;
        self.source.server.on("/changelist.xml", |_| Reply::status(503));
    }

    pub fn comes_back(&mut self) {
        self.away = false;
        self.publish();
    }

    /// How many versions there ever were.
    pub fn count(&self) -> usize {
        self.versions.values().map(Vec::len).sum()
    }
}

/// The mirror has these versions of each resource, each once, in this order; or has them soon, when it has looked at the list
/// that tells of those that were superseded before they came.
pub fn has_all_versions(mirror: &impl Mirrored, telling: &Telling) {
    let began = std::time::Instant::now();
    while let Some(difference) = differs(mirror, telling) {
        assert!(began.elapsed() < std::time::Duration::from_secs(100), "{difference}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

fn differs(mirror: &impl Mirrored, telling: &Telling) -> Option<String> {
    let histories = mirror.ask(super::catalog::histories);
    let known: Vec<String> = histories.keys().map(|path| format!("/{path}")).collect();
    if !known.iter().eq(telling.versions.keys()) {
        return Some(format!("{known:?} are known, of {:?}", telling.versions.keys()));
    }
    if mirror.versions() != telling.count() {
        return Some(format!("{} versions, of {}", mirror.versions(), telling.count()));
    }
    histories.iter().find_map(|(path, history)| {
        let expected = &telling.versions[&format!("/{path}")];
        let found: Vec<String> = history.iter().rev().map(|version| version.hashes.to_string()).collect();
        let is_equal = found.len() == expected.len()
            && found.iter().zip(expected).all(|(hashes, digest)| hashes.contains(digest.as_str()));
        (!is_equal).then(|| format!("{path}: {found:?}, not {expected:?}"))
    })
}

/// The state of the mount's only channel.
pub fn only_channel(mirror: &impl Mirrored) -> serde_json::Value {
    mirror.status()["channels"][0].clone()
}

/// Waits until the first channel is live.
pub fn live(mirror: &impl Mirrored) {
    mirror.wait("a live channel", |status| status["channels"][0]["state"] == "live");
}

/// Waits until the mount shows what the Source has. That all of it is equal is for the test to say.
pub fn settles(mirror: &impl Mirrored, source: &Source) {
    let began = std::time::Instant::now();
    // Bytes that are not what is listed would make the mount look at the lists: what is listed is compared first.
    let listed = |path: &str, bytes: &[u8]| match mirror.xattr(path, "user.resourcesync.hash") {
        Some(hash) => hash.contains(&sha256(bytes)),
        None => mirror.read(path).is_ok_and(|read| read == *bytes),
    };
    let same = || {
        let paths: Vec<String> = source.now.keys().map(|path| path.trim_start_matches('/').to_owned()).collect();
        mirror.files() == paths
            && source.now.iter().all(|(path, bytes)| listed(path.trim_start_matches('/'), bytes))
            && source
                .now
                .iter()
                .all(|(path, bytes)| mirror.read(path.trim_start_matches('/')).is_ok_and(|read| read == *bytes))
    };
    while !same() {
        if began.elapsed() > std::time::Duration::from_secs(180) {
            super::changes::agrees(mirror, source);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
