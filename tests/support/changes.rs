//! A Source that changes: its resources, what it says of each change, and the documents that say it.

use std::collections::BTreeMap;

use super::server::Server;
use super::{Mirror, Mirrored, capability, document, entry, facts_of, resource_list};

/// A certain morning, in seconds of Unix: that of 2026-03-01, at eight.
const MORNING: i64 = 1_772_352_000;

/// A moment: so many seconds after a certain morning.
pub fn at(second: u64) -> String {
    let second = MORNING + i64::try_from(second).expect("it fits");
    jiff::Timestamp::from_second(second).expect("a time").to_string()
}

/// How many seconds after that morning it is now.
pub fn clock() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second() - MORNING).expect("a clock that is right")
}

/// The second that begins next.
pub fn next_second() -> u64 {
    let now = clock();
    while clock() == now {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    now + 1
}

/// The interval of a Change List that moves with the time of each request, in place of which a server says what it is then.
pub const MOVING: &str = "from=\"a while ago\" until=\"now\"";

/// An entry of a Change List.
pub fn change(url: &str, kind: &str, more: &str) -> String {
    entry(url, &format!("change=\"{kind}\" {more}"))
}

/// An entry of a Change List with time, hash and length.
pub fn told(url: &str, kind: &str, second: u64, bytes: &[u8]) -> String {
    match kind {
        "deleted" => change(url, kind, &format!("datetime=\"{}\"", at(second))),
        _ => change(url, kind, &format!("datetime=\"{}\" {}", at(second), facts_of(bytes))),
    }
}

/// A Change List. Without `until` it is open.
pub fn change_list(from: Option<u64>, until: Option<u64>, links: &str, entries: &str) -> String {
    document("changelist", &interval(from, until), links, entries)
}

pub fn interval(from: Option<u64>, until: Option<u64>) -> String {
    let from = from.map(|from| format!("from=\"{}\" ", at(from))).unwrap_or_default();
    format!("{from}{}", until.map(|until| format!("until=\"{}\"", at(until))).unwrap_or_default())
}

pub fn link(rel: &str, href: &str) -> String {
    format!("<rs:ln rel=\"{rel}\" href=\"{href}\"/>")
}

/// A Change List Index, of lists with their intervals.
pub fn change_index(from: u64, lists: &[(String, Option<u64>, Option<u64>)]) -> String {
    let entries: String = lists
        .iter()
        .map(|(url, from, until)| entry(url, &interval(*from, *until)).replace("url>", "sitemap>"))
        .collect();
    document("changelist", &interval(Some(from), None), "", &entries).replace("urlset", "sitemapindex")
}

/// A Source as it is now: what lies at its paths.
pub struct Source {
    pub server: Server,
    pub now: BTreeMap<String, Vec<u8>>,
}

impl Source {
    /// With a Resource List, at second 0, of these resources, and these other capabilities.
    pub fn start(resources: &[(&str, &str)], capabilities: &[&str]) -> Self {
        Self::on(Server::start(), resources, capabilities)
    }

    /// As [`Source::start`], on this server.
    pub fn on(server: Server, resources: &[(&str, &str)], capabilities: &[&str]) -> Self {
        let mut source = Self { server, now: BTreeMap::new() };
        for (path, text) in resources {
            source.put(path, text.as_bytes());
        }
        source.list(0);
        let entries: String = ["resourcelist"]
            .iter()
            .chain(capabilities)
            .map(|name| capability(&source.server.url(&format!("/{name}.xml")), name))
            .collect();
        source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
        let sets = capability(&source.server.url("/capabilitylist.xml"), "capabilitylist");
        source.server.file("/.well-known/resourcesync", document("description", "", "", &sets));
        source
    }

    pub fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// Publishes its Resource List as of a second.
    pub fn list(&self, second: u64) {
        let entries: String = self.now.iter().map(|(path, bytes)| entry(&self.url(path), &facts_of(bytes))).collect();
        self.server.file("/resourcelist.xml", resource_list(&at(second), &entries));
    }

    /// A resource has these bytes now.
    pub fn put(&mut self, path: &str, bytes: &[u8]) {
        self.server.file(path, bytes);
        self.now.insert(path.to_owned(), bytes.to_vec());
    }

    pub fn remove(&mut self, path: &str) {
        self.server.remove(path);
        self.now.remove(path);
    }

    /// Creates, updates or deletes, and returns what a Change List says of it.
    pub fn does(&mut self, kind: &str, path: &str, second: u64, text: &str) -> String {
        match kind {
            "deleted" => self.remove(path),
            _ => self.put(path, text.as_bytes()),
        }
        told(&self.url(path), kind, second, text.as_bytes())
    }

    /// Publishes `/changelist.xml`, open, from second 0.
    pub fn changes(&self, entries: &str) {
        self.server.file("/changelist.xml", change_list(Some(0), None, "", entries));
    }
}

/// What the mount shows is what the Source has.
pub fn agrees(mirror: &impl Mirrored, source: &Source) {
    let paths: Vec<String> = source.now.keys().map(|path| path.trim_start_matches('/').to_owned()).collect();
    assert_eq!(mirror.files(), paths);
    for (path, bytes) in &source.now {
        assert_eq!(mirror.read(path.trim_start_matches('/')).expect("its content"), *bytes, "{path}");
    }
}

/// A mount that is only synced when it is asked to.
pub fn mounted(source: &Source) -> Mirror {
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    agrees(&mirror, source);
    mirror
}

/// A mirror in this process that is only synced when it is asked to.
pub fn opened(source: &Source) -> super::opened::Mirror {
    let mirror = super::opened::Mirror::mount(&source.url("/"), "poll=0");
    agrees(&mirror, source);
    mirror
}
