//! A model: a random history of a Source, played to files that nginx serves and kept in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use super::changes::{change_index, change_list, interval, link, told};
use super::dump::{Item, package_with};
use super::nginx::Nginx;
use super::{bytes, capability, document, entry, entry_of, facts_of, resource_list, scramble, sha256};

/// A change as the Source made it.
#[derive(Clone)]
pub struct Happened {
    pub path: String,
    pub kind: &'static str,
    pub second: u64,
    pub bytes: Vec<u8>,
}

impl Happened {
    /// What there is becomes what there is after this.
    pub fn happen(&self, there: &mut BTreeMap<String, String>) {
        match self.kind {
            "deleted" => there.remove(&self.path),
            _ => there.insert(self.path.clone(), sha256(&self.bytes)),
        };
    }
}

/// A Source that changes at random; the same seed makes the same history.
pub struct History {
    root: PathBuf,
    base: String,
    random: u64,
    second: u64,
    made: u64,
    /// What there is.
    pub now: BTreeMap<String, Vec<u8>>,
    paths: Vec<String>,
    gone: Vec<String>,
    /// Digests of all that a path ever was.
    pub ever: HashMap<String, HashSet<String>>,
    /// Versions that there were, as far as a mirror from the baseline on can know.
    pub versions: u64,
    /// Closed lists of changes: their interval.
    closed: Vec<(u64, u64)>,
    open: Vec<Happened>,
    /// All that ever happened, in order.
    pub told: Vec<Happened>,
    since: u64,
    packages: Vec<(u64, u64)>,
    /// Digests of what there was at first.
    first: BTreeMap<String, String>,
}

impl History {
    /// With so many resources, in directories of five hundred.
    pub fn new(nginx: &Nginx, seed: u64, count: u64) -> Self {
        Self::at(nginx.root().to_owned(), nginx.url(""), seed, count)
    }

    /// As [`History::new`], in a folder that is served at this URL.
    pub fn at(root: PathBuf, base: String, seed: u64, count: u64) -> Self {
        let mut history = Self {
            root,
            base,
            random: seed,
            second: 10,
            made: 0,
            now: BTreeMap::new(),
            paths: Vec::new(),
            gone: Vec::new(),
            ever: HashMap::new(),
            versions: count,
            closed: Vec::new(),
            open: Vec::new(),
            told: Vec::new(),
            since: 0,
            packages: Vec::new(),
            first: BTreeMap::new(),
        };
        for number in 0..count {
            let path = format!("/data/{:03}/{number:05}.bin", number / 500);
            let body = history.body();
            history.put(&path, body);
        }
        history.first = history.now.iter().map(|(path, body)| (path.clone(), sha256(body))).collect();
        history
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % below.max(1)
    }

    fn body(&mut self) -> Vec<u8> {
        self.made += 1;
        let length = 100 + usize::try_from(self.next(3000)).expect("it fits");
        bytes(self.made, length)
    }

    /// Whoever has the file open keeps what it was, as behind any server.
    fn write(&self, path: &str, body: &[u8]) {
        let target = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        let fresh = self.root.join(".fresh");
        fs::write(&fresh, body).expect("a file");
        fs::rename(fresh, target).expect("its name");
    }

    fn put(&mut self, path: &str, body: Vec<u8>) {
        self.write(path, &body);
        self.ever.entry(path.to_owned()).or_default().insert(sha256(&body));
        if self.now.insert(path.to_owned(), body).is_none() {
            self.paths.push(path.to_owned());
        }
    }

    fn remove(&mut self, path: &str) {
        let target = self.root.join(path.trim_start_matches('/'));
        fs::remove_file(&target).expect("it was there");
        // A directory with nothing in it is no resource.
        let _ = fs::remove_dir(target.parent().expect("a folder"));
        self.now.remove(path);
        self.paths.retain(|known| known != path);
        self.gone.push(path.to_owned());
    }

    /// So many changes: creations, updates, deletions, recreations, some of the same resource.
    pub fn changes(&mut self, count: u64) {
        let mut last: Option<String> = None;
        for _ in 0..count {
            // Two of three have a second of their own.
            self.second += u64::from(self.next(3) > 0);
            let choice = self.next(100);
            let again = last.clone().filter(|path| self.now.contains_key(path));
            let (kind, path) = match (choice, again) {
                (0..20, _) => ("created", format!("/data/{:03}/new-{}.bin", self.next(60), self.made)),
                (20..35, Some(path)) => ("updated", path),
                (20..75, _) | (75..90, None) if !self.paths.is_empty() => {
                    let place = usize::try_from(self.next(self.paths.len() as u64)).expect("it fits");
                    (if choice < 70 { "updated" } else { "deleted" }, self.paths[place].clone())
                }
                (75..90, Some(path)) => ("deleted", path),
                _ if !self.gone.is_empty() => {
                    let place = usize::try_from(self.next(self.gone.len() as u64)).expect("it fits");
                    ("created", self.gone.swap_remove(place))
                }
                _ => ("created", format!("/data/{:03}/new-{}.bin", self.next(60), self.made)),
            };
            let bytes = match kind {
                "deleted" => {
                    self.remove(&path);
                    Vec::new()
                }
                _ => {
                    let body = self.body();
                    self.put(&path, body.clone());
                    self.versions += 1;
                    body
                }
            };
            last = Some(path.clone());
            let happened = Happened { path, kind, second: self.second, bytes };
            self.told.push(happened.clone());
            self.open.push(happened);
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The second of the last change.
    pub fn second(&self) -> u64 {
        self.second
    }

    /// What there was after so many of all changes, and before the next.
    pub fn after(&self, changes: usize) -> BTreeMap<String, String> {
        let mut there = self.first.clone();
        self.told[..changes].iter().for_each(|one| one.happen(&mut there));
        there
    }

    /// Publishes a Resource List, and documents that lead to these capabilities.
    pub fn publish(&mut self, capabilities: &[&str]) {
        let entries: String = self.now.iter().map(|(path, body)| entry_of(&self.url(path), body)).collect();
        self.write("/resourcelist.xml", resource_list(&super::changes::at(self.second), &entries).as_bytes());
        self.since = self.second;
        self.publish_changes();
        if capabilities.contains(&"changedump") {
            self.publish_dump();
        }
        let all: String = ["resourcelist"]
            .iter()
            .chain(capabilities)
            .map(|name| capability(&self.url(&format!("/{name}.xml")), name))
            .collect();
        self.write("/capabilitylist.xml", document("capabilitylist", "", "", &all).as_bytes());
        let sets = capability(&self.url("/capabilitylist.xml"), "capabilitylist");
        self.write("/.well-known/resourcesync", document("description", "", "", &sets).as_bytes());
    }

    /// Publishes the open Change List, and the index that it is in.
    pub fn publish_changes(&mut self) {
        let entries: String =
            self.open.iter().map(|one| told(&self.url(&one.path), one.kind, one.second, &one.bytes)).collect();
        let links = link("index", &self.url("/changelist.xml"));
        let number = self.closed.len();
        self.write(&format!("/changes-{number}.xml"), change_list(Some(self.since), None, &links, &entries).as_bytes());
        self.publish_index();
    }

    fn publish_index(&self) {
        let mut lists: Vec<(String, Option<u64>, Option<u64>)> = Vec::new();
        for (number, (from, until)) in self.closed.iter().enumerate() {
            lists.push((self.url(&format!("/changes-{number}.xml")), Some(*from), Some(*until)));
        }
        lists.push((self.url(&format!("/changes-{}.xml", self.closed.len())), Some(self.since), None));
        let first = lists[0].1.unwrap_or(0);
        self.write("/changelist.xml", change_index(first, &lists).as_bytes());
    }

    /// Closes the open list, and begins another.
    pub fn rotate(&mut self) {
        let number = self.closed.len();
        let links = link("index", &self.url("/changelist.xml"));
        let entries: String =
            self.open.iter().map(|one| told(&self.url(&one.path), one.kind, one.second, &one.bytes)).collect();
        let list = change_list(Some(self.since), Some(self.second), &links, &entries);
        self.closed.push((self.since, self.second));
        self.since = self.second;
        self.open.clear();
        // The next one is there before anything leads to it.
        self.write(&format!("/changes-{}.xml", number + 1), change_list(Some(self.since), None, &links, "").as_bytes());
        self.publish_index();
        self.write(&format!("/changes-{number}.xml"), list.as_bytes());
    }

    /// Packs what changed since the last package, and lists it in the Change Dump.
    pub fn pack(&mut self) {
        let from = self.packages.last().map_or(self.since, |(_, until)| *until);
        let happened: Vec<Happened> = self.open.clone();
        let mut items = Vec::new();
        let mut entries = String::new();
        for (number, one) in happened.iter().enumerate() {
            let url = self.url(&one.path);
            let time = format!("change=\"{}\" datetime=\"{}\"", one.kind, super::changes::at(one.second));
            if one.kind == "deleted" {
                entries += &entry(&url, &time);
            } else {
                let path = format!("/changes/{number}");
                entries += &entry(&url, &format!("{time} {} path=\"{path}\"", facts_of(&one.bytes)));
                items.push(Item::new(&url, &one.bytes).at(&path));
            }
        }
        let manifest = document("changedump-manifest", &interval(Some(from), Some(self.second)), "", &entries);
        let number = self.packages.len();
        self.packages.push((from, self.second));
        self.write(&format!("/package-{number}.zip"), &package_with(&manifest, &items));
        self.publish_dump();
    }

    fn publish_dump(&mut self) {
        let first = self.packages.first().map_or(self.since, |(from, _)| *from);
        let entries: String = self
            .packages
            .iter()
            .enumerate()
            .map(|(number, (from, until))| {
                let path = format!("package-{number}.zip");
                let length = fs::metadata(self.root.join(&path)).expect("the package").len();
                let md =
                    format!("type=\"application/zip\" length=\"{length}\" {}", interval(Some(*from), Some(*until)));
                entry(&self.url(&format!("/{path}")), &md)
            })
            .collect();
        let dump = document("changedump", &interval(Some(first), None), "", &entries);
        self.write("/changedump.xml", dump.as_bytes());
    }

    /// Writes a file for `sha256sum -c`.
    pub fn sums(&self) -> PathBuf {
        let path = self.root.join("SHA256SUMS");
        let mut file = std::io::BufWriter::new(fs::File::create(&path).expect("a file"));
        for (name, body) in &self.now {
            writeln!(file, "{}  {}", sha256(body), name.trim_start_matches('/')).expect("a line");
        }
        path
    }
}
