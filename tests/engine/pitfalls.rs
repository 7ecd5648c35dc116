//! The ten things over which mirrors of Sources fall, each in a test of its own. What is said here in short, other tests say at
//! length.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::changes::{Source, agrees, at, change, change_index, change_list, told};
use crate::support::dump::{self, Item};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Server};
use crate::support::{capability, document, entry, entry_of, facts_of, resource_list};

/// 1: traversal, queries, a resource that is a prefix of another, case, composed and decomposed letters, long names; and the URI
/// that is fetched is the one that is listed.
#[test]
fn pitfall_1_a_uri_becomes_a_path_and_stays_what_is_fetched() {
    let server = Server::start();
    let long = format!("/{}.txt", "l".repeat(300));
    let paths = [
        "/a",
        "/a/b",
        "/Case",
        "/case",
        "/%C3%A9",
        "/e%CC%81",
        "/q?id=1&up=../../etc/passwd",
        "/q?id=2",
        "/%2e%2e%2fetc%2fpasswd",
        "/blank%20and+plus",
        "/dir/",
        &long,
    ];
    let mut entries: String = paths.iter().map(|path| entry_of(&server.url(path), path.as_bytes())).collect();
    entries += &entry_of(&server.url("/x/../../../etc/passwd"), b"never");
    paths.iter().for_each(|path| server.file(path, path.as_bytes()));
    server.source(&at(0), &entries);
    let mirror = Mirror::mount(&server.url("/"), "");
    let files = mirror.files();
    let mut read: Vec<String> =
        files.iter().filter_map(|file| String::from_utf8(mirror.read(file).ok()?).ok()).collect();
    read.sort();
    let mut wanted = paths.map(str::to_owned);
    wanted.sort();
    assert_eq!(read, wanted, "each its own: {files:?}");
    assert!(files.iter().all(|file| file.split('/').all(|name| name.len() <= 255 && name != "..")));
    assert!(paths.iter().all(|path| server.count(path) == 1));
}

/// 2: times without a zone, with a false one, with an offset, of a day, of less than a second; `datetime` against `lastmod`; a
/// clock that is not ours.
#[test]
fn pitfall_2_times_are_the_source_s_and_applied_once_however_they_are_written() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d"), ("/e", "e")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let spelled = [
        ("/a", "2026-03-01T08:00:10"),
        ("/b", "2026-03-01T08:00:10.25Z"),
        ("/c", "2026-03-01T10:00:10+02:00"),
        ("/d", "2026-03-02"),
        ("/e", "2099-01-01T00:00:00Z"),
    ];
    let mut entries = String::new();
    for (path, time) in spelled {
        let body = format!("{path} at {time}");
        source.put(path, body.as_bytes());
        let md = format!("datetime=\"{time}\" {}", facts_of(body.as_bytes()));
        // Another time stands beside it: the change's own is the one that counts.
        entries += &change(&source.url(path), "updated", &md)
            .replace("</loc>", "</loc><lastmod>1999-12-31T23:59:59Z</lastmod>");
    }
    source.changes(&entries);
    for _ in 0..3 {
        mirror.refreshed();
        agrees(&mirror, &source);
        assert_eq!(mirror.versions(), 10, "each is applied once");
    }
    let begins: BTreeSet<String> = mirror.files().iter().map(|path| mirror.log(path)[0]["begin"].to_string()).collect();
    assert_eq!(begins.len(), 4, "two of them are the same moment");
}

/// 3: entries in any order.
#[test]
fn pitfall_3_changes_are_in_the_order_of_their_times_and_then_of_their_places() {
    let mut source = Source::start(&[("/a", "first")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let second = source.does("updated", "/a", 20, "second");
    let deleted = source.does("deleted", "/a", 30, "");
    let created = source.does("created", "/a", 40, "third");
    let same = source.does("updated", "/a", 40, "fourth");
    source.changes(&[created, deleted, same, second].concat());
    mirror.refreshed();
    assert_eq!(mirror.read("a").unwrap(), b"fourth");
    assert_eq!(mirror.versions(), 4);
    assert_eq!(mirror.log("a").iter().filter(|version| version["deleted"] == true).count(), 1);
}

/// 4: a cursor that goes past what could not be read.
#[test]
fn pitfall_4_what_could_not_be_read_is_not_passed_over() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/one"), Some(0), None)]));
    source.server.file("/one", change_list(Some(0), None, "", ""));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=2");
    let first = source.does("updated", "/a", 10, "a, anew");
    let second = source.does("updated", "/b", 60, "b, anew");
    let lists = [(source.url("/one"), Some(0), Some(50)), (source.url("/two"), Some(50), None)];
    source.server.file("/changelist.xml", change_index(0, &lists));
    source.server.on("/one", |_| Reply::status(404));
    source.server.file("/two", change_list(Some(50), None, "", &second));
    let _ = mirror.refresh();
    assert_ne!(mirror.status()["state"], "complete");
    source.server.file("/one", change_list(Some(0), Some(50), "", &first));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "complete");
}

/// 5: deletions that are none.
#[test]
fn pitfall_5_a_list_that_is_cut_short_or_empty_deletes_nothing() {
    let texts: Vec<(String, String)> = (0..20).map(|number| (format!("/{number}"), format!("text {number}"))).collect();
    let resources: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let source = Source::start(&resources, &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let whole = resource_list(
        &at(10),
        &texts.iter().map(|(path, text)| entry_of(&source.url(path), text.as_bytes())).collect::<String>(),
    );
    for list in [
        whole[..whole.len() / 2].to_owned(),
        resource_list(&at(20), ""),
        "<html><body>Down for maintenance</body></html>".to_owned(),
    ] {
        source.server.file("/resourcelist.xml", list.as_bytes());
        let _ = mirror.refresh();
        assert_eq!(mirror.files().len(), 20, "{list}");
    }
    source.server.file("/resourcelist.xml", whole.replace(&at(10), &at(30)));
    mirror.refreshed();
    assert_eq!((mirror.files().len(), mirror.status()["state"].clone()), (20, "complete".into()));
}

/// 6: one bad item.
#[test]
fn pitfall_6_one_bad_item_does_not_end_a_sync() {
    let server = Server::start();
    for path in ["/good", "/bad-hash", "/bad-length"] {
        server.file(path, path.as_bytes());
    }
    let good = entry_of(&server.url("/good"), b"/good");
    let entries = [
        entry("not a uri at all", ""),
        entry("", ""),
        entry("http://[::bad/", ""),
        entry("javascript:alert(1)", ""),
        entry(&server.url("/bad-hash"), "hash=\"md5:xyz sha-256: what:ever\""),
        entry(&server.url("/bad-length"), "length=\"many\""),
        entry(&server.url("/bad-time"), "").replace("</loc>", "</loc><lastmod>yesterday</lastmod>"),
        "<url><lastmod>2026-01-01</lastmod></url>".to_owned(),
        entry(&format!("{}/{}", server.url(""), "x".repeat(100_000)), ""),
        good,
    ];
    server.source(&at(0), &entries.concat());
    let mirror = Mirror::mount(&server.url("/"), "");
    for path in ["good", "bad-hash", "bad-length"] {
        assert_eq!(mirror.read(path).unwrap(), format!("/{path}").as_bytes());
    }
    assert_eq!(mirror.status()["state"], "complete");
}

/// 7: lengths and hashes that lie.
#[test]
fn pitfall_7_what_is_not_what_was_listed_is_not_served() {
    let server = Server::start();
    let text = "what is listed, ".repeat(50);
    let entries: String = ["/landing", "/stale", "/coded", "/short", "/good"]
        .iter()
        .map(|path| entry_of(&server.url(path), text.as_bytes()))
        .collect();
    server.source(&at(0), &entries);
    server.on("/landing", |_| Reply::ok("<html>log in</html>").with("Content-Type", "text/html"));
    let stale = text.replace("listed", "cached");
    server.file("/stale", stale.as_bytes());
    let coded = crate::support::gzip(text.as_bytes());
    server.on("/coded", move |_| Reply::ok(coded.clone()).with("Content-Encoding", "gzip"));
    let short = text[..100].to_owned();
    server.file("/short", short.as_bytes());
    server.file("/good", text.as_bytes());
    let mirror = Mirror::mount(&server.url("/"), "poll=0,timeout=2");
    for path in ["landing", "stale", "short"] {
        assert_eq!(mirror.read(path).unwrap_err().raw_os_error(), Some(5), "{path}");
    }
    for path in ["coded", "good"] {
        assert_eq!(mirror.read(path).unwrap(), text.as_bytes(), "{path}");
    }
    let errors = mirror.errors();
    assert!(["/landing", "/stale", "/short"].iter().all(|path| errors.contains(path)), "each has its reason: {errors}");
}

/// 9: input that means harm.
#[test]
fn pitfall_9_hostile_input_harms_nobody() {
    // Names in a package that lead out of it, a member that becomes a gigabyte.
    let server = Server::start();
    let good = Item::new(&server.url("/r/good"), b"good");
    let slip = Item::new(&server.url("/r/slip"), b"slip").at("/../../../../tmp/resourcesync-slip");
    let bomb = Item::new(&server.url("/r/bomb"), &vec![0; 300 << 20]).saying("length=\"10\"");
    dump::source(&server, &at(0), &[good, slip, bomb], None);
    let mirror = Mirror::mount(&server.url("/"), "poll=0,timeout=2");
    assert_eq!(mirror.read("r/good").unwrap(), b"good");
    let began = Instant::now();
    assert!(mirror.read("r/bomb").is_err());
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(!std::path::Path::new("/tmp/resourcesync-slip").exists());
    // Entities that become a billion laughs, and one that is a file of this machine.
    let server = Server::start();
    let entities =
        "<!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;&a;\"><!ENTITY c SYSTEM \"file:///etc/passwd\">]>";
    server.source(&at(0), "");
    let list =
        resource_list(&at(0), &entry(&server.url("/&b;&c;"), "")).replacen("?>\n", &format!("?>\n{entities}\n"), 1);
    server.file("/resourcelist.xml", list.replace("&amp;", "&"));
    let mirror = Mirror::prepare(&server.url("/"), "poll=0,timeout=2");
    let _ = mirror.try_mount();
    assert!(server.requests().iter().all(|request| !request.path.contains("root:")));
    // A token for one host, and a redirect to another.
    let (server, other) = (Server::start(), Server::start());
    other.file("/r", "r");
    let there = other.url("/r");
    server.on("/r", move |_| Reply::status(302).with("Location", &there));
    server.source(&at(0), &entry_of(&server.url("/r"), b"r"));
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), format!("http://{} bearer SECRET\n", server.address())).unwrap();
    let mirror = Mirror::mount(&server.url("/"), &format!("credentials={}", secret.path().display()));
    assert_eq!(mirror.read("r").unwrap(), b"r");
    assert!(server.requests().iter().any(|request| request.header("authorization").is_some()));
    assert!(other.requests().iter().all(|request| request.header("authorization").is_none()));
    // Addresses that are not the Source's to name are in a test of their own, in a network of its own.
}

/// 10: documents that are confused.
#[test]
fn pitfall_10_what_a_document_is_follows_from_what_is_in_it() {
    let server = Server::start();
    for path in ["/a", "/b", "/c"] {
        server.file(path, path.as_bytes());
    }
    let list = |path: &str| resource_list(&at(0), &entry_of(&server.url(path), path.as_bytes()));
    // An index that says it is a list, whose parts say what they like; a capability twice, and one that nobody knows; two sets.
    let parts: String =
        ["/part1", "/part2"].iter().map(|path| entry(&server.url(path), "").replace("url>", "sitemap>")).collect();
    server.file(
        "/index",
        document("resourcelist", &format!("at=\"{}\"", at(0)), "", &parts).replace("urlset", "sitemapindex"),
    );
    server.file("/part1", list("/a"));
    server.file("/part2", list("/b").replace("capability=\"resourcelist\"", ""));
    server.file("/other", list("/c"));
    let offers = [
        capability(&server.url("/index"), "resourcelist"),
        capability(&server.url("/index"), "resourcelist"),
        capability(&server.url("/future"), "telepathy"),
    ];
    server.file("/one", document("capabilitylist", "", "", &offers.concat()));
    server.file("/two", document("capabilitylist", "", "", &capability(&server.url("/other"), "resourcelist")));
    let sets = capability(&server.url("/one"), "capabilitylist") + &capability(&server.url("/two"), "capabilitylist");
    server.file("/.well-known/resourcesync", document("description", "", "", &sets));
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let mut read: Vec<Vec<u8>> = mirror.files().iter().map(|file| mirror.read(file).unwrap()).collect();
    read.sort();
    assert_eq!(read, [b"/a", b"/b", b"/c"]);
    // A change of what is told of as a change list, though it is called otherwise.
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    source.put("/a", b"anew");
    let told = told(&source.url("/a"), "updated", 10, b"anew");
    source.server.file("/changelist.xml", change_list(Some(0), None, "", &told).replace("sitemap/0.9", "sitemap/0.9#"));
    let _ = mirror.refresh();
    source.changes(&told);
    mirror.refreshed();
    agrees(&mirror, &source);
}
