//! A model: a random history of a Source, played to files that nginx serves and kept in memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::changes::{MOVING, change_index, change_list, clock, interval, link, told};
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
    /// The digest of what a reader may get.
    pub digest: String,
    /// Its entry in a list of changes.
    entry: String,
    /// Whether its entry has the digest of something else.
    pub lie: bool,
}

impl Happened {
    /// What there is becomes what there is after this.
    pub fn happen(&self, there: &mut BTreeMap<String, String>) {
        match self.kind {
            "deleted" => there.remove(&self.path),
            _ => there.insert(self.path.clone(), self.digest.clone()),
        };
    }
}

/// What an entry has the digest of.
fn claimed(bytes: &[u8], lie: bool) -> Vec<u8> {
    if lie { bytes.iter().map(|byte| !byte).collect() } else { bytes.to_vec() }
}

/// What else a Source does than others.
#[derive(Clone, Copy, Default)]
pub struct Style {
    /// One body in so many is large: between these two lengths.
    pub large: Option<(u64, u64, u64)>,
    /// Some documents change by patches.
    pub patches: bool,
    /// Each version is kept at a URL of its own.
    pub mementos: bool,
    /// Now and then, an entry has another hash than the resource.
    pub lies: bool,
    /// Its Change Lists are in no order.
    pub disorder: bool,
    /// No list is open: each has ended when it is published.
    pub closed: bool,
    /// Its lists go on on further pages.
    pub pages: bool,
    /// Its Resource List is an index of parts.
    pub parts: bool,
    /// Its time is that of the clock, and its Change List tells of the last seconds alone, whenever it is asked for.
    pub slides: bool,
    /// Of some resources it lists a length or a type, and no hash.
    pub bare: bool,
}

/// So many entries are on a page, or in a part.
const PAGE: usize = 20;

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
    /// The number of changes that are in packages.
    packed: usize,
    style: Style,
    /// More entries of its Capability List.
    offers: String,
    /// Links of what there is.
    links: HashMap<String, String>,
    /// So many changes were told of by notifications.
    notified: usize,
    /// Digests of what there was at first.
    first: BTreeMap<String, String>,
    /// Pages, but the first, or parts of the Resource List.
    parts: Vec<String>,
    /// Pages, but the first, of the newest Change List.
    pages: Vec<String>,
}

impl History {
    /// With so many resources, in directories of five hundred.
    pub fn new(nginx: &Nginx, seed: u64, count: u64) -> Self {
        Self::at(nginx.root().to_owned(), nginx.url(""), seed, count)
    }

    /// As [`History::new`], in a folder that is served at this URL.
    pub fn at(root: PathBuf, base: String, seed: u64, count: u64) -> Self {
        Self::styled(root, base, seed, count, Style::default())
    }

    /// As [`History::at`], of a Source that does more.
    pub fn styled(root: PathBuf, base: String, seed: u64, count: u64, style: Style) -> Self {
        let mut history = Self {
            root,
            base,
            random: seed,
            second: if style.slides { clock() } else { 10 },
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
            packed: 0,
            style,
            offers: String::new(),
            links: HashMap::new(),
            notified: 0,
            first: BTreeMap::new(),
            parts: Vec::new(),
            pages: Vec::new(),
        };
        for number in 0..count {
            let kind = if style.patches && number % 4 == 0 { "json" } else { "bin" };
            let path = format!("/data/{:03}/{number:05}.{kind}", number / 500);
            let body = history.body(&path);
            history.put(&path, body, false);
        }
        history.first = history.now.iter().map(|(path, body)| (path.clone(), sha256(body))).collect();
        history
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % below.max(1)
    }

    fn body(&mut self, path: &str) -> Vec<u8> {
        self.made += 1;
        let length = match self.style.large {
            Some((one_in, least, most)) if self.made.is_multiple_of(one_in) => least + self.next(most - least),
            _ => 100 + self.next(3000),
        };
        let length = usize::try_from(length).expect("it fits");
        if path.ends_with(".json") {
            let filler = super::hex(&bytes(scramble(path.len() as u64), length / 2));
            let made = self.made;
            return format!("{{\"made\":{made},\"was\":0,\"of\":\"{path}\",\"filler\":\"{filler}\"}}").into_bytes();
        }
        bytes(self.made, length)
    }

    /// What a document becomes by a patch, which makes something else of any other document; with the link to that.
    fn patched(&mut self, before: &[u8]) -> Option<(Vec<u8>, String)> {
        let rest = std::str::from_utf8(before).ok()?.strip_prefix("{\"made\":")?;
        let (was, rest) = rest.split_once(',')?;
        let (_, rest) = rest.split_once(',')?;
        self.made += 1;
        let made = self.made;
        let patch = format!(
            "[{{\"op\":\"copy\",\"from\":\"/made\",\"path\":\"/was\"}},\
             {{\"op\":\"replace\",\"path\":\"/made\",\"value\":{made}}}]"
        );
        let path = format!("/patch/{}", self.made);
        self.write(&path, patch.as_bytes());
        let link = format!(
            "<rs:ln rel=\"http://www.openarchives.org/rs/terms/patch\" href=\"{}\" type=\"application/json-patch+json\" length=\"{}\"/>",
            self.url(&path),
            patch.len()
        );
        Some((format!("{{\"made\":{made},\"was\":{was},{rest}").into_bytes(), link))
    }

    /// Whoever has the file open keeps what it was, as behind any server.
    fn write(&self, path: &str, body: &[u8]) {
        let target = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        let fresh = self.root.join(".fresh");
        fs::write(&fresh, body).expect("a file");
        fs::rename(fresh, target).expect("its name");
    }

    fn put(&mut self, path: &str, body: Vec<u8>, lie: bool) {
        self.write(path, &body);
        let ever = self.ever.entry(path.to_owned()).or_default();
        if !lie {
            ever.insert(sha256(&body));
        }
        self.links.remove(path);
        if self.is_bare(path) {
            self.links.insert(path.to_owned(), format!("<lastmod>{}</lastmod>", super::changes::at(self.second)));
        }
        if self.style.mementos {
            let kept = format!("/kept/{}", self.made);
            self.write(&kept, &body);
            let link = format!(
                "<rs:ln rel=\"memento\" href=\"{}\" modified=\"{}\" {}/>",
                self.url(&kept),
                super::changes::at(self.second),
                facts_of(&body)
            );
            self.links.insert(path.to_owned(), link);
        }
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
            // Two of three have a second of their own, where time is not that of the clock.
            self.second += u64::from(self.next(3) > 0 && !self.style.slides);
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
            last = Some(path.clone());
            // Nothing but the time tells two changes apart that have no hash.
            self.second += u64::from(self.is_bare(&path));
            let lie = self.style.lies && kind == "updated" && self.next(20) == 0;
            self.happens(path, kind, lie);
        }
    }

    fn happens(&mut self, path: String, kind: &'static str, lie: bool) {
        let (mut bytes, mut links) = (Vec::new(), String::new());
        if kind == "deleted" {
            self.remove(&path);
        } else {
            let before = self.now.get(&path).filter(|_| kind == "updated" && self.style.patches && !lie).cloned();
            (bytes, links) = match before.and_then(|before| self.patched(&before)) {
                Some(patched) => patched,
                None => (self.body(&path), String::new()),
            };
            self.put(&path, bytes.clone(), lie);
            links += self.links.get(&path).map_or("", String::as_str);
            self.versions += 1;
        }
        let digest = if lie { "none: its entry lies".to_owned() } else { sha256(&bytes) };
        let listed = claimed(&bytes, lie);
        let entry = told(&self.url(&path), kind, self.second, &listed);
        let entry = self.with_facts(entry, &path, &listed).replace("</url>", &format!("{links}</url>"));
        let happened = Happened { path, kind, second: self.second, bytes, digest, entry, lie };
        self.told.push(happened.clone());
        self.open.push(happened);
    }

    /// What has a lie for its newest entry changes once more.
    pub fn comes_clean(&mut self) {
        let mut lies: Vec<String> = self.lies().into_iter().map(str::to_owned).collect();
        lies.sort();
        for path in lies {
            self.second += 1;
            self.happens(path, "updated", false);
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Whether no hash of a resource is listed.
    pub fn is_bare(&self, path: &str) -> bool {
        self.style.bare && !path.bytes().map(u64::from).sum::<u64>().is_multiple_of(4)
    }

    /// An entry with what this Source lists of a resource, in place of all that can be said of these bytes.
    fn with_facts(&self, entry: String, path: &str, bytes: &[u8]) -> String {
        let listed = match path.bytes().map(u64::from).sum::<u64>() % 4 {
            _ if !self.is_bare(path) => return entry,
            1 => format!("type=\"image/png\" length=\"{}\"", bytes.len()),
            2 => "type=\"application/pdf\"".to_owned(),
            _ => "type=\"application/octet-stream\"".to_owned(),
        };
        entry.replace(&facts_of(bytes), &listed)
    }

    /// Pages, but the first, or parts of its Resource List.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// All that its Resource List or its newest Change List goes on with.
    pub fn pages(&self) -> Vec<String> {
        [self.parts.as_slice(), &self.pages].concat()
    }

    /// The second of the last change.
    pub fn second(&self) -> u64 {
        self.second
    }

    /// The paths whose newest entry is a lie.
    fn lies(&self) -> HashSet<&str> {
        let mut lies = HashSet::new();
        for one in &self.told {
            match one.lie {
                true => lies.insert(one.path.as_str()),
                false => lies.remove(one.path.as_str()),
            };
        }
        lies
    }

    /// The next change is in a second of its own, as are those after it from those before.
    pub fn later(&mut self) {
        while self.style.slides && clock() <= self.second {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.second = if self.style.slides { clock() } else { self.second + 1 };
    }

    /// A notification of what happened since the last one.
    pub fn notification(&mut self) -> String {
        let fresh = &self.told[self.notified..];
        let from = self.notified.checked_sub(1).map_or(10, |last| self.told[last].second);
        let entries: String = fresh.iter().map(|one| one.entry.as_str()).collect();
        self.notified = self.told.len();
        super::telling::notification(from, self.second, &entries)
    }

    /// Its Capability List has more from now on.
    pub fn offers(&mut self, entries: &str) {
        entries.clone_into(&mut self.offers);
    }

    /// What there was after so many of all changes, and before the next.
    pub fn after(&self, changes: usize) -> BTreeMap<String, String> {
        let mut there = self.first.clone();
        self.told[..changes].iter().for_each(|one| one.happen(&mut there));
        there
    }

    /// Publishes a Resource List, and documents that lead to these capabilities.
    pub fn publish(&mut self, capabilities: &[&str]) {
        self.relist();
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
        let all = all + &self.offers;
        self.write("/capabilitylist.xml", document("capabilitylist", "", "", &all).as_bytes());
        let sets = capability(&self.url("/capabilitylist.xml"), "capabilitylist");
        self.write("/.well-known/resourcesync", document("description", "", "", &sets).as_bytes());
    }

    /// Publishes a Resource List of what there is.
    pub fn relist(&mut self) {
        if (self.style.pages || self.style.parts) && self.since > 0 {
            // What was made within ten minutes may be of one edition.
            self.second += 3600;
        }
        let at = super::changes::at(self.second);
        let none = String::new();
        let lies = self.lies();
        let entries = self.now.iter().map(|(path, body)| {
            let links = self.links.get(path).unwrap_or(&none);
            let listed = claimed(body, lies.contains(path.as_str()));
            let entry = self.with_facts(entry_of(&self.url(path), &listed), path, &listed);
            entry.replace("</url>", &format!("{links}</url>"))
        });
        let entries: Vec<String> = entries.collect();
        let md = format!("at=\"{at}\"");
        if !self.style.parts {
            let page = |links: &str, entries: &str| document("resourcelist", &md, links, entries);
            self.parts = self.write_pages("/resourcelist.xml", &entries, page);
            return;
        }
        let (mut named, mut parts) = (String::new(), Vec::new());
        for (number, part) in entries.chunks(PAGE).enumerate() {
            let path = format!("/resourcelist-{number}.xml");
            self.write(&path, resource_list(&at, &part.concat()).as_bytes());
            named += &entry(&self.url(&path), &md).replace("url>", "sitemap>");
            parts.push(path);
        }
        self.parts = parts;
        let index = document("resourcelist", &md, "", &named).replace("urlset", "sitemapindex");
        self.write("/resourcelist.xml", index.as_bytes());
    }

    /// Writes a list, made of links and entries; in pages, if this Source does that. Returns the paths of all but the first.
    fn write_pages(&self, path: &str, entries: &[String], made: impl Fn(&str, &str) -> String) -> Vec<String> {
        let most = if self.style.pages { PAGE } else { usize::MAX };
        let count = entries.len().div_ceil(most).max(1);
        let paths: Vec<String> = (1..count).map(|number| path.replace(".xml", &format!("-{number}.xml"))).collect();
        let all = std::iter::once(path).chain(paths.iter().map(String::as_str));
        let pages = entries.chunks(most).chain(std::iter::repeat(&[][..]));
        for (number, (path, page)) in all.zip(pages).enumerate() {
            let next = paths.get(number).map_or(String::new(), |next| link("next", &self.url(next)));
            self.write(path, made(&next, &page.concat()).as_bytes());
        }
        paths
    }

    /// The entries of the open Change List.
    fn open_entries(&self) -> Vec<String> {
        let mut open: Vec<&Happened> = self.open.iter().collect();
        if self.style.disorder {
            // What happened in one second has no other order than that of its entries; nor has it in a list that runs backwards.
            open.sort_by_key(|one| scramble(one.second));
            if open.is_sorted_by(|one, next| one.second >= next.second) {
                open.sort_by_key(|one| one.second);
            }
        }
        open.into_iter().map(|one| one.entry.clone()).collect()
    }

    /// Writes a Change List; returns the paths of its pages but the first.
    fn write_changes(&self, number: usize, (from, until): (u64, Option<u64>), entries: &[String]) -> Vec<String> {
        let beside = link("index", &self.url("/changelist.xml"));
        let list = |next: &str, entries: &str| change_list(Some(from), until, &(beside.clone() + next), entries);
        self.write_pages(&format!("/changes-{number}.xml"), entries, list)
    }

    /// Publishes the open Change List, and the index that it is in.
    pub fn publish_changes(&mut self) {
        if self.style.closed {
            if !self.open.is_empty() || self.closed.is_empty() {
                self.rotate();
            }
            return;
        }
        if self.style.slides {
            let list = document("changelist", MOVING, "", &self.open_entries().concat());
            return self.write("/changelist.xml", list.as_bytes());
        }
        self.pages = self.write_changes(self.closed.len(), (self.since, None), &self.open_entries());
        self.publish_index();
    }

    fn publish_index(&self) {
        let mut lists: Vec<(String, Option<u64>, Option<u64>)> = Vec::new();
        for (number, (from, until)) in self.closed.iter().enumerate() {
            lists.push((self.url(&format!("/changes-{number}.xml")), Some(*from), Some(*until)));
        }
        if !self.style.closed {
            lists.push((self.url(&format!("/changes-{}.xml", self.closed.len())), Some(self.since), None));
        }
        let first = lists[0].1.unwrap_or(0);
        self.write("/changelist.xml", change_index(first, &lists).as_bytes());
    }

    /// Closes the open list, and begins another.
    pub fn rotate(&mut self) {
        if self.style.slides {
            return self.publish_changes();
        }
        let (number, entries) = (self.closed.len(), self.open_entries());
        let (since, until) = (self.since, self.second);
        self.closed.push((since, until));
        self.since = until;
        self.open.clear();
        if !self.style.closed {
            // The next one is there before anything leads to it.
            self.write_changes(number + 1, (until, None), &[]);
            self.publish_index();
        }
        self.pages = self.write_changes(number, (since, Some(until)), &entries);
        if self.style.closed {
            self.publish_index();
        }
    }

    /// Packs what changed since the last package, and lists it in the Change Dump.
    pub fn pack(&mut self) {
        let from = self.packages.last().map_or(10, |(_, until)| *until);
        // Also those of Change Lists that were closed since.
        let happened: Vec<Happened> = self.told[self.packed..].to_vec();
        self.packed = self.told.len();
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
