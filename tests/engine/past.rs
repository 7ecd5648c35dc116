//! Archives of lists, dumps and changes become history: `.versions` reaches back as far as the Source does.

use std::collections::BTreeMap;

use crate::support::changes::{at, change_list, told};
use crate::support::dump::{Item, offer, package, package_with};
use crate::support::opened::{Mirror, said};
use crate::support::server::Server;
use crate::support::{document, entry, facts_of, resource_list, scramble, seed};

/// What there was of a Source at each second, and what it tells of that.
struct Chronicle {
    server: Server,
    random: u64,
    /// By second: path, and its content, or nothing if it went.
    events: BTreeMap<u64, (String, Option<Vec<u8>>)>,
    /// Whether its archives are indexes of archives.
    in_parts: bool,
}

/// When its lists were made.
const LISTS: [u64; 3] = [600, 1800, 3000];

/// When the list was made that is there today.
const TODAY: u64 = 3600;

impl Chronicle {
    /// Something happens to one of some resources every few seconds; of two, one's path is the beginning of the other's.
    fn new(random: u64) -> Self {
        let mut chronicle = Self { server: Server::start(), random, events: BTreeMap::new(), in_parts: false };
        let mut paths: Vec<String> = (0..24).map(|n| format!("/d{}/r{n}.txt", n % 3)).collect();
        paths.extend(["/d0", "/e", "/e/below", "/d1/r1.txt/inner"].map(str::to_owned));
        let mut second = 1;
        while second < TODAY {
            let path = paths[chronicle.below(paths.len() as u64) as usize].clone();
            let was_there = chronicle.truth(second).contains_key(&path);
            let body = (!was_there || chronicle.below(4) > 0).then(|| format!("{path} since {second}\n").into_bytes());
            if let Some(body) = &body {
                chronicle.server.file(&format!("/kept/{second}"), body.clone());
            }
            chronicle.events.insert(second, (path, body));
            // Early on, much happens at once.
            second += 1 + chronicle.below(if second < 600 { 20 } else { 60 });
        }
        chronicle.now();
        chronicle
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random = scramble(self.random);
        self.random % most
    }

    /// What there was at a moment, and since when.
    fn truth(&self, second: u64) -> BTreeMap<String, (u64, Vec<u8>)> {
        let mut there = BTreeMap::new();
        for (since, (path, body)) in self.events.range(..=second) {
            match body {
                Some(body) => drop(there.insert(path.clone(), (*since, body.clone()))),
                None => drop(there.remove(path)),
            }
        }
        there
    }

    /// Serves what there is today.
    fn now(&self) {
        for (path, (_, body)) in self.truth(TODAY) {
            self.server.file(&path, body);
        }
    }

    /// An entry, with a link to where the version is kept.
    fn linked(&self, entry: &str, since: u64) -> String {
        let link = format!("<rs:ln rel=\"memento\" href=\"{}\"/>", self.server.url(&format!("/kept/{since}")));
        entry.replace("</url>", &format!("{link}</url>"))
    }

    fn entries(&self, second: u64) -> String {
        let one = |(path, (since, body)): (&String, &(u64, Vec<u8>))| {
            let entry = entry(&self.server.url(path), &facts_of(body));
            // Some say when they were modified.
            let lastmod = if since % 2 == 0 { format!("<lastmod>{}</lastmod>", at(*since)) } else { String::new() };
            self.linked(&entry.replace("</loc>", &format!("</loc>{lastmod}")), *since)
        };
        self.truth(second).iter().map(one).collect()
    }

    fn list(&self, path: &str, second: u64) {
        self.server.file(path, resource_list(&at(second), &self.entries(second)));
    }

    /// What happened from one second until another.
    fn changes(&self, from: u64, until: u64) -> String {
        let one = |(second, (path, body)): (&u64, &(String, Option<Vec<u8>>))| {
            let was_there = self.truth(second - 1).contains_key(path);
            let kind = match body {
                None => "deleted",
                Some(_) if was_there => "updated",
                Some(_) => "created",
            };
            let told = told(&self.server.url(path), kind, *second, body.as_deref().unwrap_or_default());
            if body.is_some() { self.linked(&told, *second) } else { told }
        };
        self.events.range(from..until).map(one).collect()
    }

    /// An archive of documents, each with attributes.
    fn archive(&self, capability: &str, parts: &[(String, String)]) {
        let one = |(path, md): &(String, String)| {
            entry(&self.server.url(path), &format!("capability=\"{}\" {md}", capability.trim_end_matches("-archive")))
        };
        let parts: String = parts.iter().map(one).collect();
        let begin = format!("from=\"{}\"", at(0));
        let (whole, mut place) = (format!("/{capability}.xml"), format!("/{capability}.xml"));
        if self.in_parts {
            place = format!("/archive/{capability}-1.xml");
            self.server.file(&whole, crate::support::index(capability, &begin, &[self.server.url(&place)]));
        }
        self.server.file(&place, document(capability, &begin, "", &parts));
    }

    fn archive_lists(&self, seconds: &[u64]) {
        let parts: Vec<(String, String)> = seconds
            .iter()
            .map(|second| {
                self.list(&format!("/archive/list-{second}.xml"), *second);
                (format!("/archive/list-{second}.xml"), format!("at=\"{}\"", at(*second)))
            })
            .collect();
        self.archive("resourcelist-archive", &parts);
    }

    fn archive_changes(&self, intervals: &[(u64, u64)]) {
        let parts: Vec<(String, String)> = intervals
            .iter()
            .map(|(from, until)| {
                let path = format!("/archive/changes-{from}.xml");
                self.server.file(&path, change_list(Some(*from), Some(*until), "", &self.changes(*from, *until)));
                (path, format!("from=\"{}\" until=\"{}\"", at(*from), at(*until)))
            })
            .collect();
        self.archive("changelist-archive", &parts);
    }

    /// Dumps of these moments, each with a package that is the only place of what has changed since.
    fn archive_dumps(&self, seconds: &[u64]) {
        let parts: Vec<(String, String)> = seconds
            .iter()
            .map(|second| {
                let item = |(path, (since, body)): (&String, &(u64, Vec<u8>))| {
                    Item::new(&self.server.url(path), body).at(&format!("/{since}"))
                };
                let items: Vec<Item> = self.truth(*second).iter().map(item).collect();
                let (dump, packed) = (format!("/archive/dump-{second}.xml"), format!("/archive/dump-{second}.zip"));
                self.server.file(&packed, package(&at(*second), &items));
                let packages = [(self.server.url(&packed), "type=\"application/zip\"".to_owned(), String::new())];
                let md = format!("at=\"{}\"", at(*second));
                self.server.file(&dump, crate::support::dump::dump(&md, &packages));
                (dump, md)
            })
            .collect();
        self.archive("resourcedump-archive", &parts);
    }

    fn archive_change_dumps(&self, intervals: &[(u64, u64)]) {
        let parts: Vec<(String, String)> = intervals
            .iter()
            .map(|(from, until)| {
                let (mut items, mut entries) = (Vec::new(), String::new());
                for (second, (path, body)) in self.events.range(from..until) {
                    let url = self.server.url(path);
                    let was_there = self.truth(second - 1).contains_key(path);
                    let kind = if was_there { "updated" } else { "created" };
                    let Some(body) = body else {
                        entries += &told(&url, "deleted", *second, b"");
                        continue;
                    };
                    let told = told(&url, kind, *second, body);
                    entries += &told.replace("<rs:md ", &format!("<rs:md path=\"/{second}\" "));
                    items.push(Item::new(&url, body).at(&format!("/{second}")));
                }
                let interval = crate::support::changes::interval(Some(*from), Some(*until));
                let manifest = document("changedump-manifest", &interval, "", &entries);
                let (dump, packed) =
                    (format!("/archive/changedump-{from}.xml"), format!("/archive/changes-{from}.zip"));
                self.server.file(&packed, package_with(&manifest, &items));
                let listed = entry(&self.server.url(&packed), &format!("type=\"application/zip\" {interval}"));
                self.server.file(&dump, document("changedump", &interval, "", &listed));
                (dump, interval)
            })
            .collect();
        self.archive("changedump-archive", &parts);
    }

    fn today(&self) {
        self.list("/resourcelist.xml", TODAY);
    }

    /// Holds the mirror to what there was at a moment: names, and all content if that can be had.
    #[track_caller]
    fn agrees(&self, mirror: &Mirror, second: u64, content: bool) {
        let there = self.truth(second);
        let is_prefix = |path: &str| there.keys().any(|other| other.starts_with(&format!("{path}/")));
        let shown = |path: &String| {
            let path = path.trim_start_matches('/');
            if is_prefix(&format!("/{path}")) { format!("{path}/@self") } else { path.to_owned() }
        };
        let mut expected: Vec<String> = there.keys().map(shown).collect();
        expected.sort();
        let then = format!(".versions/@{}", at(second));
        assert_eq!(mirror.files_below(&then), expected, "second {second}: {:#}", mirror.status());
        for (path, (since, body)) in there.iter().filter(|_| content) {
            let below = format!("{then}/{}", shown(path));
            let read = mirror.read(&below).unwrap_or_else(|error| panic!("{below}: {error}: {}", mirror.errors()));
            let (read, body) = (String::from_utf8_lossy(&read), String::from_utf8_lossy(body));
            assert_eq!(read, body, "second {second}, {path} since {since}");
        }
    }

    fn agrees_at_random(&mut self, mirror: &Mirror, count: u64, from: u64, content: bool) {
        for _ in 0..count {
            let second = from + self.below(TODAY - from);
            self.agrees(mirror, second, content);
        }
    }
}

/// A mount that keeps all history, when archives have been gone through.
fn keeping_all(source: &str, more: &str) -> Mirror {
    let mirror = Mirror::mount(source, &format!("poll=0,keep=all{more}"));
    gone_through(&mirror);
    mirror
}

fn gone_through(mirror: &Mirror) -> serde_json::Value {
    let done = |archives: &serde_json::Value| archives["looked"].is_string() && archives["left"] == 0;
    mirror.wait("archives are gone through", |status| done(&status["archives"]))["archives"].clone()
}

#[test]
fn lists_and_changes_of_archives_become_history() {
    let mut source = Chronicle::new(seed());
    source.archive_lists(&LISTS);
    source.archive_changes(&[(600, 1800), (1800, 3000)]);
    source.server.file("/changelist.xml", change_list(Some(3000), None, "", &source.changes(3000, TODAY)));
    source.today();
    offer(&source.server, &["resourcelist", "changelist", "resourcelist-archive", "changelist-archive"]);
    let mirror = keeping_all(&source.server.url("/"), "");
    let archives = gone_through(&mirror);
    assert_eq!(archives["failed"], 0, "{archives:#}: {}", mirror.errors());
    // Three lists, two of changes, and that of today.
    assert_eq!((&archives["read"], archives["since"].as_str()), (&6.into(), Some(at(600).as_str())), "{archives:#}");
    source.agrees_at_random(&mirror, 50, 600, true);
    for second in LISTS.into_iter().chain([TODAY]) {
        source.agrees(&mirror, second, true);
    }
    assert_eq!(mirror.status()["state"], "complete");
    // What was read is not read again.
    let read = source.server.count("/archive/list-600.xml");
    mirror.remount();
    gone_through(&mirror);
    mirror.refreshed();
    gone_through(&mirror);
    assert_eq!(source.server.count("/archive/list-600.xml"), read);
    source.agrees_at_random(&mirror, 10, 600, true);
}

#[test]
fn packages_of_archives_have_what_was() {
    let mut source = Chronicle::new(seed());
    source.archive_dumps(&LISTS);
    source.archive_change_dumps(&[(600, 1800), (1800, TODAY)]);
    source.today();
    offer(&source.server, &["resourcelist", "resourcedump-archive", "changedump-archive"]);
    // Nothing is kept anywhere else.
    (0..TODAY).for_each(|second| source.server.remove(&format!("/kept/{second}")));
    let mirror = keeping_all(&source.server.url("/"), "");
    let archives = gone_through(&mirror);
    assert_eq!((&archives["read"], &archives["failed"]), (&5.into(), &0.into()), "{archives:#}: {}", mirror.errors());
    source.agrees_at_random(&mirror, 25, 600, true);
    // What is packed together with it came with what was read, and reads on without the Source.
    mirror.refreshed();
    source.agrees_at_random(&mirror, 10, 600, true);
}

#[test]
fn without_changes_each_list_is_right_of_its_moment() {
    let source = Chronicle::new(seed());
    source.archive_lists(&[200, 400, 600, 1800, 3000]);
    source.today();
    offer(&source.server, &["resourcelist", "resourcelist-archive"]);
    let mirror = keeping_all(&source.server.url("/"), "");
    for second in [200, 400, 600, 1800, 3000, TODAY] {
        source.agrees(&mirror, second, true);
    }
    // Nothing is told of before the first of them, but for what says itself that it was there.
    let before = mirror.files_below(&format!(".versions/@{}", at(199)));
    let there = source.truth(199);
    let is_there = |path: &String| there.contains_key(&format!("/{}", path.trim_end_matches("/@self")));
    assert!(before.iter().all(is_there), "{before:?}");
}

#[test]
fn what_cannot_be_read_keeps_nothing_else_and_is_tried_again() {
    let mut source = Chronicle::new(seed());
    source.archive_lists(&LISTS);
    source.archive_changes(&[(600, 1800), (1800, 3000)]);
    source.today();
    source.server.file("/changelist.xml", change_list(Some(3000), None, "", &source.changes(3000, TODAY)));
    offer(&source.server, &["resourcelist", "changelist", "resourcelist-archive", "changelist-archive"]);
    let whole = resource_list(&at(1800), &source.entries(1800));
    let cut = &whole[..whole.len() / 2];
    source.server.file("/archive/list-1800.xml", cut.as_bytes());
    source.server.remove("/archive/changes-1800.xml");
    let mirror = keeping_all(&source.server.url("/"), "");
    let archives = gone_through(&mirror);
    assert_eq!((&archives["read"], &archives["failed"]), (&4.into(), &2.into()), "{archives:#}");
    let errors = mirror.errors();
    assert!(errors.contains("list-1800.xml") && errors.contains("changes-1800.xml"), "{errors}");
    for second in [600, 1000, 1799, 3000, 3300, TODAY] {
        source.agrees(&mirror, second, true);
    }
    assert_eq!(mirror.status()["state"], "complete", "the mirror is what it was");
    // Once they are there, the next look finds them.
    source.archive_lists(&LISTS);
    source.archive_changes(&[(600, 1800), (1800, 3000)]);
    mirror.refreshed();
    mirror.wait("they are read", |status| status["archives"]["failed"] == 0 && status["archives"]["read"] == 6);
    source.agrees_at_random(&mirror, 25, 600, true);
}

#[test]
fn between_two_looks_at_lists_their_archive_tells_and_what_is_no_list_of_the_past_harms_nothing() {
    let source = Chronicle::new(seed());
    offer(&source.server, &["resourcelist", "resourcelist-archive"]);
    source.archive_lists(&[600]);
    source.list("/resourcelist.xml", 1000);
    let mirror = Mirror::mount(&source.server.url("/"), "poll=0,keep=all");
    mirror.wait("the first is read", |status| status["archives"]["read"] == 1);
    mirror.unmount();
    let part = |path: &str, at: &str| (path.to_owned(), format!("at=\"{at}\""));
    source.archive_lists(&[600, 1800, 3000]);
    // One of the future, one that is no list, one that is not there, and one that goes round in a circle.
    source.server.file("/archive/future.xml", resource_list("2036-01-01T00:00:00Z", ""));
    source.server.file("/archive/other.xml", document("changelist", "from=\"2013-01-01T00:00:00Z\"", "", ""));
    let circle = crate::support::index("resourcelist-archive", "", &[source.server.url("/archive/circle.xml")]);
    source.server.file("/archive/circle.xml", circle);
    let mut parts: Vec<(String, String)> =
        [600, 1800, 3000].map(|second| part(&format!("/archive/list-{second}.xml"), &at(second))).to_vec();
    parts.push(part("/archive/future.xml", "2036-01-01T00:00:00Z"));
    parts.push(part("/archive/other.xml", &at(700)));
    parts.push(part("/archive/nothing.xml", &at(800)));
    parts.push(("/archive/circle.xml".to_owned(), String::new()));
    source.archive("resourcelist-archive", &parts);
    source.today();
    mirror.try_mount().unwrap();
    let refreshed = mirror.refresh();
    assert!(refreshed.is_ok(), "{}", said(&refreshed));
    mirror.wait("all is read", |status| status["archives"]["read"] == 3 && status["archives"]["left"] == 0);
    for second in [600, 1000, 1800, 3000, TODAY] {
        source.agrees(&mirror, second, true);
    }
    assert_eq!(mirror.status()["archives"]["failed"], 2, "{:#}", mirror.status());
    assert_eq!(mirror.status()["state"], "complete");
    let errors = mirror.errors();
    assert!(errors.contains("other.xml") && errors.contains("nothing.xml"), "{errors}");
    // The tree of today is that of the list of today.
    let there = source.truth(TODAY);
    let names = mirror.files().into_iter().map(|path| format!("/{}", path.trim_end_matches("/@self")));
    assert!(names.eq(there.keys().cloned()), "{:?}", mirror.files());
}

/// A Source whose list of today, at second [`TODAY`], has these entries, and which offers these archives with their parts.
fn small(entries: &str, archives: &[(&str, &[(&str, String)])]) -> Server {
    let server = Server::start();
    server.file("/resourcelist.xml", resource_list(&at(TODAY), &entries.replace("@", &server.url(""))));
    let mut offers = vec!["resourcelist"];
    for (capability, parts) in archives {
        let of = capability.trim_end_matches("-archive");
        let parts: String =
            parts.iter().map(|(path, md)| entry(&server.url(path), &format!("capability=\"{of}\" {md}"))).collect();
        server.file(&format!("/{capability}.xml"), document(capability, "", "", &parts));
        offers.push(capability);
    }
    offer(&server, &offers);
    server
}

/// What a mirror shows as of a second.
fn shown(mirror: &Mirror, second: u64) -> Vec<String> {
    mirror.files_below(&format!(".versions/@{}", at(second)))
}

fn read_at(mirror: &Mirror, second: u64, path: &str) -> Result<String, i32> {
    let read = mirror.read(&format!(".versions/@{}/{path}", at(second)));
    read.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|error| error.raw_os_error().unwrap_or(0))
}

#[test]
fn what_is_not_known_to_be_the_same_is_not_served_in_its_place() {
    const EIO: i32 = 5;
    // Of today, the list says little or nothing; an archived package has older bytes of the same length.
    let parts = [("/dump.xml", crate::support::changes::interval(Some(100), Some(200)))];
    let server = small(
        "<url><loc>@/silent</loc></url><url><loc>@/sized</loc><rs:md length=\"4\"/></url>",
        &[
            ("changedump-archive", &parts),
            (
                "resourcelist-archive",
                &[("/one.xml", format!("at=\"{}\"", at(1000))), ("/two.xml", format!("at=\"{}\"", at(2000)))],
            ),
        ],
    );
    let urls = ["/silent", "/sized", "/kept"].map(|path| server.url(path));
    urls.iter().for_each(|url| server.file(&url[server.url("").len()..], "now!"));
    let items = [Item::new(&urls[0], b"then").at("/0"), Item::new(&urls[1], b"then").at("/1")];
    let entries: String = items
        .iter()
        .map(|item| {
            told(&item.uri, "updated", 150, b"then").replace("<rs:md ", &format!("<rs:md path=\"{}\" ", item.path))
        })
        .collect();
    server.file("/changes.zip", package_with(&document("changedump-manifest", "", "", &entries), &items));
    let listed = entry(&server.url("/changes.zip"), &crate::support::changes::interval(Some(100), Some(200)));
    server.file("/dump.xml", document("changedump", "", "", &listed));
    // A list of long ago says as little; where its version is, it says of one of them.
    let memento = format!("<rs:ln rel=\"memento\" href=\"{}\"/>", urls[2]);
    server.file("/kept", "when");
    let one =
        format!("<url><loc>{}</loc>{memento}</url><url><loc>{}</loc><rs:md length=\"4\"/></url>", urls[0], urls[1]);
    server.file("/one.xml", resource_list(&at(1000), &one));
    server.file("/two.xml", resource_list(&at(2000), ""));
    let mirror = keeping_all(&server.url("/"), "");
    for path in ["silent", "sized"] {
        assert_eq!(mirror.read(path).unwrap(), b"now!", "{path}");
        assert_eq!(read_at(&mirror, 160, path).as_deref(), Ok("then"), "{path}");
        assert_eq!(read_at(&mirror, TODAY, path).as_deref(), Ok("now!"), "{path}");
    }
    assert_eq!(read_at(&mirror, 1000, "silent").as_deref(), Ok("when"));
    assert_eq!(read_at(&mirror, 1000, "sized"), Err(EIO));
    assert!(shown(&mirror, 2000).is_empty());
}

#[test]
fn changes_are_gone_through_in_the_order_of_time_whichever_document_tells_of_them_and_when() {
    let interval = |from, until| crate::support::changes::interval(Some(from), Some(until));
    let parts = [("/a.xml", interval(0, 4000)), ("/b.xml", interval(100, 3800)), ("/late.xml", interval(0, 50))];
    let server = small("<url><loc>@/now</loc></url>", &[("changelist-archive", &parts)]);
    server.file("/now", "now");
    let url = |path: &str| server.url(path);
    let list = |path: &str, entries: String| {
        server.file(path, change_list(Some(0), None, "", &entries));
    };
    // One is created where it is deleted by another that begins before it; one comes and goes within a second.
    list(
        "/a.xml",
        told(&url("/x"), "deleted", 3500, b"")
            + &told(&url("/y"), "created", 500, b"y")
            + &told(&url("/y"), "deleted", 500, b"")
            + &told(&url("/z"), "deleted", 1000, b"")
            + &crate::support::changes::change(&url("/now"), "updated", "datetime=\"2099-01-01T00:00:00Z\""),
    );
    list("/b.xml", told(&url("/x"), "created", 1150, b"x"));
    server.on("/late.xml", |_| crate::support::server::Reply::status(404));
    let mirror = keeping_all(&server.url("/"), "");
    let names = |second| shown(&mirror, second);
    assert_eq!(gone_through(&mirror)["failed"], 1);
    assert_eq!((names(1200), names(3499), names(3500)), (vec!["x".to_owned()], vec!["x".to_owned()], Vec::new()));
    assert!(names(600).is_empty() && names(1000).is_empty(), "{:?} {:?}", names(600), names(1000));
    // What comes late is ended by what was read long before.
    list("/late.xml", told(&url("/z"), "created", 20, b"z"));
    mirror.refreshed();
    mirror.wait("it is read", |status| status["archives"]["failed"] == 0 && status["archives"]["left"] == 0);
    mirror.wait("and what came after it", |_| names(1001).is_empty());
    assert_eq!((names(21), names(999)), (vec!["z".to_owned()], vec!["z".to_owned()]));
    assert_eq!(names(1200), ["x"]);
    assert!(names(600) == ["z"] && names(3500).is_empty());
    // What has not happened yet is no reason to believe that today is to come.
    assert_eq!(mirror.files(), ["now"]);
    assert_eq!(read_at(&mirror, TODAY, "now").as_deref(), Ok("now"));
}

#[test]
fn an_archive_of_very_many_documents_of_the_same_time_keeps_nobody_waiting() {
    let parts: Vec<(String, String)> =
        (0..560).map(|n| (format!("/{n}.xml"), crate::support::changes::interval(Some(100), Some(2000)))).collect();
    let parts: Vec<(&str, String)> = parts.iter().map(|(path, md)| (path.as_str(), md.clone())).collect();
    let server = small("<url><loc>@/now</loc></url>", &[("changelist-archive", &parts)]);
    server.file("/now", "now");
    for n in 0..560 {
        let entries: String =
            (0..2).map(|m| told(&server.url(&format!("/{m}/{n}")), "created", 200 + n + 700 * m, b"x")).collect();
        server.file(&format!("/{n}.xml"), change_list(Some(100), Some(3000), "", &entries));
    }
    let mirror = Mirror::mount(&server.url("/"), "poll=0,keep=all");
    let done =
        mirror.wait("all is read", |status| status["archives"]["read"] == 560 && status["archives"]["left"] == 0);
    assert_eq!(done["archives"]["failed"], 0);
    assert_eq!((shown(&mirror, 199).len(), shown(&mirror, 300).len(), shown(&mirror, 3000).len()), (0, 101, 1120));
    assert_eq!(mirror.read("now").unwrap(), b"now");
}

#[test]
fn an_archive_in_parts_and_a_mirror_that_was_there_before() {
    let mut source = Chronicle::new(seed());
    source.today();
    offer(&source.server, &["resourcelist", "changelist", "resourcelist-archive", "changelist-archive"]);
    source.server.file("/changelist.xml", change_list(Some(3000), None, "", &source.changes(3000, TODAY)));
    let mirror = Mirror::mount(&source.server.url("/"), "poll=0,exclude=/d2");
    // An index of archives, as there may be too many documents for one.
    source.in_parts = true;
    source.archive_lists(&LISTS);
    source.archive_changes(&[(0, 600), (600, 1800), (1800, 3000)]);
    assert_eq!(mirror.status()["archives"], serde_json::Value::Null);
    mirror.set_options("poll=0,keep=all,exclude=/d2");
    mirror.remount();
    mirror.refreshed();
    mirror.wait("archives are read", |status| status["archives"]["read"] == 7);
    gone_through(&mirror);
    // The filter is of all times.
    let left_out = mirror.files_below(&format!(".versions/@{}/d2", at(TODAY))).len();
    assert_eq!(left_out, 0);
    mirror.set_options("poll=0,keep=all");
    mirror.remount();
    source.agrees_at_random(&mirror, 25, 1, true);
}
