//! Where a Source may make us connect. Each test has a network of its own, with a Source on a public address, and traps
//! that log each request, on private addresses and on public ones of the daemon's own machine. Whatever leads to a trap
//! is tried twice: with `allow_private` all of it arrives there, so that none of it is left out by mistake; without,
//! nothing does.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::changes::{Source, at, change_list, link, told};
use crate::support::dump;
use crate::support::network::{self, enters};
use crate::support::nginx::Nginx;
use crate::support::server::{Reply, Server};
use crate::support::telling::channel;
use crate::support::{Mirror, capability, document, entry, entry_of, index, resource_list, run, text};

const SOURCE: &str = "203.0.113.1:8080";
const OTHER: &str = "203.0.113.2:8080";
/// The last two are [`network::OWN`] and [`network::OWN_V6`].
const TRAPS: [&str; 6] = [
    "10.0.0.1:8080",
    "127.0.0.2:8080",
    "169.254.169.254:8080",
    "[::1]:8080",
    "203.0.113.200:8080",
    "[2001:db8::c8]:8080",
];
const ADDRESSES: [&str; 4] = ["203.0.113.1/32", "203.0.113.2/32", "10.0.0.1/32", "169.254.169.254/32"];
const HOSTS: &str = "203.0.113.1 source.example\n10.0.0.1 trap.example both.example\n203.0.113.2 both.example\n\
    203.0.113.200 own.example\n";
const PATCH: &str = "http://www.openarchives.org/rs/terms/patch";

/// Servers where a Source may not lead.
struct Traps(Vec<Server>);

impl Traps {
    fn set() -> Self {
        Self(TRAPS.iter().map(|address| Server::at(address.parse().unwrap())).collect())
    }

    /// What was asked of them.
    fn asked(&self) -> BTreeSet<String> {
        self.0.iter().flat_map(Server::requests).map(|request| request.path).collect()
    }

    fn connections(&self) -> usize {
        self.0.iter().map(Server::connections).sum()
    }

    /// Waits until all of this was asked.
    fn wait(&self, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|name| format!("/trap/{name}")).collect();
        let began = Instant::now();
        while !wanted.is_subset(&self.asked()) {
            let missing: Vec<_> = wanted.difference(&self.asked()).cloned().collect();
            assert!(began.elapsed() < Duration::from_secs(30), "these traps are led to by nothing: {missing:?}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

fn server() -> Server {
    Server::at(SOURCE.parse().unwrap())
}

fn moved(to: &str) -> Reply {
    Reply::status(302).with("Location", to)
}

fn with(entry: &str, more: &str) -> String {
    entry.replace("</url>", &format!("{more}</url>"))
}

/// Does all of it twice, with traps that are new.
fn twice(ways: &[&str], mut act: impl FnMut(&str, &Traps)) {
    let traps = Traps::set();
    act("poll=0,allow_private", &traps);
    traps.wait(ways);
    drop(traps);
    let traps = Traps::set();
    act("poll=0", &traps);
    assert_eq!((traps.asked(), traps.connections()), (BTreeSet::new(), 0), "a trap was contacted");
}

#[test]
fn content_mirrors_mementos_patches_and_redirects_lead_to_no_private_address() {
    const WAYS: [&str; 15] = [
        "literal",
        "spelled",
        "mapped",
        "six",
        "named",
        "redirected",
        "hop",
        "relative",
        "mirror",
        "memento",
        "timemap",
        "timegate",
        "mapped-memento",
        "gate-redirect",
        "patch",
    ];
    if !enters("reach::content_mirrors_mementos_patches_and_redirects_lead_to_no_private_address", &ADDRESSES, HOSTS) {
        return;
    }
    let old = "[\"a document that is long enough for a patch to be worth it\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let new = old.replace('1', "one");
    twice(&WAYS, |options, _| {
        let mut source = Source::on(server(), &[("/plain", "plain"), ("/patched", old)], &["changelist"]);
        source.changes("");
        let other = Server::at(OTHER.parse().unwrap());
        other.file("/both", "both");
        other.on("/hop", |_| moved("http://169.254.169.254:8080/trap/hop"));
        for (path, to) in [
            ("/redirected", "http://127.0.0.2:8080/trap/redirected"),
            ("/hop", "http://203.0.113.2:8080/hop"),
            ("/relative", "//10.0.0.1:8080/trap/relative"),
            ("/gate", "http://127.0.0.2:8080/trap/gate-redirect"),
        ] {
            source.server.on(path, move |_| moved(to));
        }
        source.server.file(
            "/map",
            "</dated>; rel=\"original\", <http://10.0.0.1:8080/trap/mapped-memento>; rel=\"memento\"; \
             datetime=\"Sun, 01 Mar 2015 08:00:00 GMT\"",
        );
        let own = |path: &str, more: &str| with(&entry(&source.url(path), "length=\"7\""), more);
        let earlier = "modified=\"2015-01-01T00:00:00Z\"";
        let memento = format!("<rs:ln rel=\"memento\" href=\"http://127.0.0.2:8080/trap/memento\" {earlier}/>");
        let entries = [
            entry_of(&source.url("/plain"), b"plain"),
            entry_of(&source.url("/patched"), old.as_bytes()),
            entry_of("http://both.example:8080/both", b"both"),
            entry("http://10.0.0.1:8080/trap/literal", ""),
            entry("http://2130706434:8080/trap/spelled", ""),
            entry("http://[::ffff:10.0.0.1]:8080/trap/mapped", ""),
            entry("http://[::1]:8080/trap/six", ""),
            entry("http://trap.example:8080/trap/named", ""),
            own("/redirected", ""),
            own("/hop", ""),
            own("/relative", ""),
            own("/mirrored", &link("duplicate", "http://10.0.0.1:8080/trap/mirror")),
            own("/remembered", &memento),
            own("/dated", &link("timemap", &source.url("/map"))),
            own("/listed", &link("timemap", "http://10.0.0.1:8080/trap/timemap")),
            own("/gated", &link("timegate", "http://169.254.169.254:8080/trap/timegate")),
            own("/moving", &link("timegate", &source.url("/gate"))),
        ];
        source.server.file("/resourcelist.xml", resource_list(&at(0), &entries.concat()));
        let mirror = Mirror::mount(&source.url("/"), options);
        let files = mirror.files();
        assert_eq!(files.len(), entries.len(), "{files:?}");
        for file in &files {
            // Most of it leads nowhere.
            let _ = mirror.read(file);
            for version in std::fs::read_dir(mirror.path(&format!(".versions/{file}"))).into_iter().flatten().flatten()
            {
                let _ = std::fs::read(version.path());
            }
            let _ = std::fs::read(mirror.path(&format!(".versions/{file}/2014-06-01")));
        }
        assert_eq!(mirror.read("plain").unwrap(), b"plain");
        if options == "poll=0" {
            let both = files.iter().find(|file| file.ends_with("/both")).unwrap();
            assert_eq!(mirror.read(both).unwrap(), b"both", "a name with a public address is asked there");
        }
        let way = format!(
            "<rs:ln rel=\"{PATCH}\" href=\"http://10.0.0.1:8080/trap/patch\" type=\"application/json-patch+json\" length=\"9\"/>"
        );
        source.put("/patched", new.as_bytes());
        source.changes(&with(&told(&source.url("/patched"), "updated", 10, new.as_bytes()), &way));
        mirror.refreshed();
        assert_eq!(mirror.read("patched").unwrap(), new.as_bytes());
        if options == "poll=0" {
            let errors = mirror.errors();
            assert!(errors.contains("10.0.0.1, a private address") && errors.contains("allow_private"), "{errors}");
        }
    });
}

#[test]
fn documents_packages_and_channels_lead_to_no_private_address() {
    const WAYS: [&str; 7] = ["set", "child", "changes", "package", "hub", "hub-redirect", "socket"];
    if !enters("reach::documents_packages_and_channels_lead_to_no_private_address", &ADDRESSES, HOSTS) {
        return;
    }
    twice(&WAYS, |options, traps| {
        let (source, other) = (server(), Server::at(OTHER.parse().unwrap()));
        other.on("/hub", |_| Reply::status(307).with("Location", "http://127.0.0.2:8080/trap/hub-redirect"));
        source.file("/plain", "plain");
        let lists = [source.url("/list1"), "http://10.0.0.1:8080/trap/child".to_owned()];
        source.file("/list1", resource_list(&at(0), &entry_of(&source.url("/plain"), b"plain")));
        source.file("/index", index("resourcelist", &format!("at=\"{}\"", at(0)), &lists));
        let package =
            ("http://trap.example:8080/trap/package".to_owned(), "type=\"application/zip\"".to_owned(), String::new());
        source.file("/dump", dump::dump(&format!("at=\"{}\"", at(0)), &[package]));
        for topic in ["/topic1", "/topic2"] {
            source.on(topic, |_| Reply::ok("").with("Content-Type", "application/xml"));
        }
        let changes = "change-notification";
        let offers = [
            vec![capability(&source.url("/index"), "resourcelist")],
            vec![capability(&source.url("/dump"), "resourcedump"), capability(&source.url("/list1"), "resourcelist")],
            vec![
                capability(&source.url("/list1"), "resourcelist"),
                capability("http://10.0.0.1:8080/trap/changes", "changelist"),
                channel(&source.url("/topic1"), changes, &["http://10.0.0.1:8080/trap/hub"]),
            ],
            // A set listens to one channel of a kind.
            vec![
                capability(&source.url("/list1"), "resourcelist"),
                channel(&source.url("/topic2"), changes, &["http://203.0.113.2:8080/hub"]),
            ],
            vec![
                capability(&source.url("/list1"), "resourcelist"),
                channel("ws://169.254.169.254:8080/trap/socket", changes, &[]),
            ],
        ];
        let mut sets = String::new();
        for (number, offers) in offers.iter().enumerate() {
            let path = format!("/capabilities{number}");
            sets += &capability(&source.url(&path), "capabilitylist");
            source.file(&path, document("capabilitylist", "", "", &offers.concat()));
        }
        source.file("/.well-known/resourcesync", document("description", "", "", &sets));
        let mirror = Mirror::mount(&source.url("/"), &format!("{options},listen=203.0.113.200:8088"));
        sets += &capability("http://[::1]:8080/trap/set", "capabilitylist");
        source.file("/.well-known/resourcesync", document("description", "", "", &sets));
        let _ = mirror.refresh();
        assert!(mirror.files().iter().any(|file| file.ends_with("plain")), "{:?}", mirror.files());
        if options == "poll=0" {
            mirror.wait("an answer of each channel", |status| {
                status["channels"].to_string().matches("a private address").count() == 3
            });
        } else {
            // Channels are joined behind.
            traps.wait(&WAYS);
        }
    });
}

#[test]
fn what_is_found_at_the_origin_leads_to_no_private_address() {
    const WAYS: [&str; 3] = ["well-known", "robots", "html"];
    if !enters("reach::what_is_found_at_the_origin_leads_to_no_private_address", &ADDRESSES, HOSTS) {
        return;
    }
    twice(&WAYS, |options, _| {
        let source = server();
        let well_known = "/.well-known/resourcesync";
        source.on(well_known, |_| moved("http://169.254.169.254:8080/trap/well-known"));
        source.on("/robots.txt", |_| Reply::ok("Sitemap: http://10.0.0.1:8080/trap/robots\n"));
        source.on("/", |_| {
            let link = "<link rel=\"resourcesync\" href=\"http://127.0.0.2:8080/trap/html\">";
            Reply::ok(format!("<html><head>{link}</head></html>")).with("Content-Type", "text/html")
        });
        let mirror = Mirror::prepare(&source.url("/"), options);
        let output = mirror.try_mount();
        assert!(!output.status.success(), "{}", text(&output));
        let inspected = run(&["inspect", &source.url("/"), "-o", options]);
        assert!(!inspected.status.success(), "{}", text(&inspected));
        if options == "poll=0" {
            for output in [output, inspected] {
                assert!(text(&output).contains("a private address"), "{}", text(&output));
            }
        }
        let asked = source.requests().iter().filter(|request| request.path == well_known).count();
        assert!(asked >= 2, "{asked}");
    });
}

#[test]
fn a_public_source_does_not_lead_to_this_machines_own_public_address() {
    const WAYS: [&str; 9] = ["literal", "six", "mapped", "named", "redirected", "mirror", "changes", "hub", "socket"];
    if !enters("reach::a_public_source_does_not_lead_to_this_machines_own_public_address", &ADDRESSES, HOSTS) {
        return;
    }
    twice(&WAYS, |options, traps| {
        let source = server();
        source.file("/plain", "plain");
        source.on("/redirected", |_| moved("http://203.0.113.200:8080/trap/redirected"));
        let mirrored = entry(&source.url("/mirrored"), "length=\"7\"");
        let entries = [
            entry_of(&source.url("/plain"), b"plain"),
            entry("http://203.0.113.200:8080/trap/literal", ""),
            entry("http://[2001:db8::c8]:8080/trap/six", ""),
            entry("http://[::ffff:203.0.113.200]:8080/trap/mapped", ""),
            entry("http://own.example:8080/trap/named", ""),
            entry(&source.url("/redirected"), "length=\"7\""),
            with(&mirrored, &link("duplicate", "http://203.0.113.200:8080/trap/mirror")),
        ];
        source.file("/list", resource_list(&at(0), &entries.concat()));
        source.file("/empty", resource_list(&at(0), ""));
        source.on("/topic", |_| Reply::ok("").with("Content-Type", "application/xml"));
        let changes = "change-notification";
        let sets = [
            vec![
                capability(&source.url("/list"), "resourcelist"),
                channel(&source.url("/topic"), changes, &["http://203.0.113.200:8080/trap/hub"]),
            ],
            vec![
                capability(&source.url("/empty"), "resourcelist"),
                capability("http://203.0.113.200:8080/trap/changes", "changelist"),
                channel("ws://own.example:8080/trap/socket", changes, &[]),
            ],
        ];
        let mut description = String::new();
        for (number, offers) in sets.iter().enumerate() {
            let path = format!("/capabilities{number}");
            description += &capability(&source.url(&path), "capabilitylist");
            source.file(&path, document("capabilitylist", "", "", &offers.concat()));
        }
        source.file("/.well-known/resourcesync", document("description", "", "", &description));
        let mirror = Mirror::mount(&source.url("/"), &format!("{options},listen=203.0.113.200:8088"));
        let files = mirror.files();
        assert_eq!(files.len(), entries.len(), "{files:?}");
        for file in &files {
            assert_eq!(mirror.read(file).is_ok(), file.ends_with("plain"), "{file}");
        }
        if options == "poll=0" {
            mirror.wait("an answer of each channel", |status| {
                status["channels"].to_string().matches("203.0.113.200, a private address").count() == 2
            });
            let errors = mirror.errors();
            for address in ["203.0.113.200", "2001:db8::c8", "::ffff:203.0.113.200"] {
                assert!(errors.contains(&format!("{address}, a private address")), "{address}: {errors}");
            }
        } else {
            // Channels are joined in the background.
            traps.wait(&WAYS);
        }
    });
}

#[test]
fn a_source_on_https_leads_to_http_only_if_asked_for() {
    // It is never started: only its certificate is used.
    let nginx = Nginx::prepare_tls();
    let file = |name: &str| nginx.authority().with_file_name(name);
    let other = Server::start();
    let tls = Server::start_tls(&file("server.crt"), &file("server.key"));
    let mut source = Source::on(tls, &[("/plain", "plain"), ("/moved", "moved"), ("/changed", "old")], &["changelist"]);
    let entries: Vec<_> = source
        .now
        .iter()
        .map(|(path, bytes)| entry_of(&source.url(path), bytes))
        .chain([entry_of(&other.url("/listed"), b"listed")])
        .collect();
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entries.concat()));
    other.file("/moved", "moved");
    other.file("/listed", "listed");
    let to = other.url("/moved");
    source.server.on("/moved", move |_| moved(&to));
    source.changes("");
    let options = format!("poll=0,ca={}", nginx.authority().display());
    let mirrors = ["", ",allow_http"].map(|more| Mirror::mount(&source.url("/"), &format!("{options}{more}")));
    mirrors.iter().for_each(|mirror| assert_eq!(mirror.read("changed").unwrap(), b"old"));
    source.put("/changed", b"new");
    other
        .file("/changelist.xml", change_list(Some(0), None, "", &told(&source.url("/changed"), "updated", 10, b"new")));
    let to = other.url("/changelist.xml");
    source.server.on("/changelist.xml", move |_| moved(&to));
    let [refused, allowed] = mirrors;
    for (mirror, is_allowed) in [(refused, false), (allowed, true)] {
        let refresh = mirror.refresh();
        assert_eq!(refresh.status.success(), is_allowed, "{}", text(&refresh));
        let files = mirror.files();
        assert_eq!(files.len(), 4, "{files:?}");
        for file in &files {
            let is_https = file.ends_with("plain") || file.ends_with("changed");
            assert_eq!(mirror.read(file).is_ok(), is_https || is_allowed, "{file}: {}", mirror.errors());
        }
        let errors = mirror.errors();
        for path in ["/moved", "/listed", "/changelist.xml"] {
            let error = format!("{}: it is http", other.url(path));
            assert_eq!(errors.contains(&error) && errors.contains("-o allow_http"), !is_allowed, "{path}: {errors}");
        }
        assert_eq!(other.connections() > 0, is_allowed);
    }
}

#[test]
fn a_source_whose_name_moves_to_a_private_address_is_not_followed_there() {
    if !enters("reach::a_source_whose_name_moves_to_a_private_address_is_not_followed_there", &ADDRESSES, HOSTS) {
        return;
    }
    let named = |path: &str| format!("http://source.example:8080{path}");
    let serve = |server: &Server| {
        let lists = capability(&named("/capabilitylist.xml"), "capabilitylist");
        server.file("/.well-known/resourcesync", document("description", "", "", &lists));
        let offers = capability(&named("/resourcelist.xml"), "resourcelist");
        server.file("/capabilitylist.xml", document("capabilitylist", "", "", &offers));
        let entries = entry_of(&named("/a"), b"one") + &entry_of(&named("/b"), b"two");
        server.file("/resourcelist.xml", resource_list(&at(0), &entries));
        server.file("/a", "one");
        server.file("/b", "two");
    };
    let source = server();
    serve(&source);
    let mut mirror = Mirror::mount(&named("/"), "poll=0,timeout=5");
    assert_eq!(mirror.read("a").unwrap(), b"one");
    let traps = Traps::set();
    traps.0.iter().for_each(serve);
    // No connection is kept over which all went well before.
    drop(source);
    network::names("10.0.0.1 source.example\n");
    std::thread::sleep(Duration::from_millis(100));
    assert!(mirror.read("b").is_err());
    let refused = mirror.refresh();
    assert!(!refused.status.success() && text(&refused).contains("at a public one before"), "{}", text(&refused));
    mirror.remount();
    assert!(mirror.read("b").is_err(), "the next life knows it too");
    assert_eq!(mirror.read("a").unwrap(), b"one", "what is here reads as ever");
    assert_eq!((traps.asked(), traps.connections()), (BTreeSet::new(), 0));
    // If that is meant, it can be said.
    mirror.unmount();
    mirror.set_options("poll=0,allow_private");
    assert!(mirror.try_mount().status.success());
    assert_eq!(mirror.read("b").unwrap(), b"two");
    assert!(traps.connections() > 0);
    // One that was never seen elsewhere may be where it is, and lead anywhere.
    let own = Mirror::mount(&named("/"), "poll=0");
    assert_eq!(own.read("b").unwrap(), b"two");
}
