//! Sources are followed as they are: lists that close, move, slide, repeat themselves, and say less than the specification asks
//! for. The state is `complete` only where nothing is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::catalog::versions_of;
use crate::support::changes::{
    Source, agrees, at, change, change_index, change_list, interval, link, next_second, opened, told,
};
use crate::support::dump::{Item, package_with};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Server};
use crate::support::{capability, document, entry, entry_of, facts_of, resource_list, sha256};

/// A change with `lastmod`, and without `datetime`.
fn modified(url: &str, kind: &str, second: u64, bytes: &[u8]) -> String {
    let facts = if kind == "deleted" { String::new() } else { facts_of(bytes) };
    format!("<url><loc>{url}</loc><lastmod>{}</lastmod><rs:md change=\"{kind}\" {facts}/></url>\n", at(second))
}

/// A change without any time.
fn undated(url: &str, kind: &str, bytes: &[u8]) -> String {
    let facts = if kind == "deleted" { String::new() } else { facts_of(bytes) };
    change(url, kind, &facts)
}

/// The Capability List names these documents.
fn offers(source: &Source, documents: &[(&str, &str)]) {
    let entries: String = documents.iter().map(|(path, name)| capability(&source.url(path), name)).collect();
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
}

/// An index of lists, each with what its `rs:md` says.
fn index(source: &Source, name: &str, md: &str, links: &str, lists: &[(&str, String)]) -> String {
    let entries: String =
        lists.iter().map(|(path, md)| entry(&source.url(path), md).replace("url>", "sitemap>")).collect();
    document(name, md, links, &entries).replace("urlset", "sitemapindex")
}

fn state(mirror: &Mirror) -> String {
    mirror.status()["state"].as_str().unwrap_or_default().to_owned()
}

fn is_complete(mirror: &Mirror) {
    let status = mirror.status();
    assert_eq!(status["state"], "complete", "{status:#}");
}

/// Waits until the state is `complete`: a poll shows what it has applied before it ends.
fn becomes_complete(mirror: &Mirror) {
    mirror.wait("complete", |_| state(mirror) == "complete");
}

/// A mount that polls every second, and has what the Source has.
fn polling(source: &Source, more: &str) -> Mirror {
    let mirror = Mirror::mount(&source.url("/"), &format!("poll=1{more}"));
    agrees(&mirror, source);
    mirror
}

/// Waits until a file has this content, or is gone.
fn shows(mirror: &Mirror, path: &str, content: Option<&[u8]>) {
    mirror.wait(path, |_| mirror.read(path).ok().as_deref() == content);
}

#[test]
fn a_closed_change_list_index_leads_to_what_the_capability_list_names() {
    for closed_list in [false, true] {
        let mut source = Source::start(&[("/a", "a")], &["changelist"]);
        let up = link("up", &source.url("/capabilitylist.xml"));
        let first = source.does("created", "/b", 5, "b");
        let beside = link("index", &source.url("/index.xml"));
        source.server.file("/one.xml", change_list(Some(0), Some(20), &beside, &first));
        let lists = [("/one.xml", interval(Some(0), Some(20)))];
        source.server.file("/index.xml", index(&source, "changelist", &interval(Some(0), Some(20)), &up, &lists));
        let root = if closed_list { "/one.xml" } else { "/index.xml" };
        offers(&source, &[("/resourcelist.xml", "resourcelist"), (root, "changelist")]);
        let mirror = polling(&source, "");
        let second = source.does("updated", "/a", 25, "a, later");
        source.server.file("/two.xml", change_list(Some(20), None, &up, &second));
        offers(&source, &[("/resourcelist.xml", "resourcelist"), ("/two.xml", "changelist")]);
        shows(&mirror, "a", Some(b"a, later"));
        agrees(&mirror, &source);
        becomes_complete(&mirror);
    }
}

/// A package of one change, and its entry in a Change Dump.
fn packed(source: &Source, path: &str, name: &str, (from, until): (u64, u64), bytes: &[u8]) -> String {
    let item = Item::new(&source.url(path), bytes).at("/changes/1");
    let change = told(&source.url(path), "updated", until - 5, bytes).replace("<rs:md ", "<rs:md path=\"/changes/1\" ");
    let manifest = document("changedump-manifest", &interval(Some(from), Some(until)), "", &change);
    let package = package_with(&manifest, &[item]);
    let md = format!("type=\"application/zip\" length=\"{}\" {}", package.len(), interval(Some(from), Some(until)));
    source.server.file(name, package);
    entry(&source.url(name), &md)
}

#[test]
fn a_closed_change_dump_index_leads_to_what_the_capability_list_names() {
    let mut source = Source::start(&[("/a", "a")], &[]);
    let up = link("up", &source.url("/capabilitylist.xml"));
    source.put("/a", b"a, second");
    let first = packed(&source, "/a", "/1.zip", (0, 20), b"a, second");
    source.server.file(
        "/one.xml",
        document("changedump", &interval(Some(0), Some(20)), &link("index", &source.url("/index.xml")), &first),
    );
    let lists = [("/one.xml", interval(Some(0), Some(20)))];
    source.server.file("/index.xml", index(&source, "changedump", &interval(Some(0), Some(20)), &up, &lists));
    offers(&source, &[("/resourcelist.xml", "resourcelist"), ("/index.xml", "changedump")]);
    let mirror = polling(&source, "");
    source.put("/a", b"a, third");
    let second = packed(&source, "/a", "/2.zip", (20, 40), b"a, third");
    source.server.file("/two.xml", document("changedump", &interval(Some(20), None), &up, &second));
    offers(&source, &[("/resourcelist.xml", "resourcelist"), ("/two.xml", "changedump")]);
    shows(&mirror, "a", Some(b"a, third"));
    agrees(&mirror, &source);
    becomes_complete(&mirror);
}

#[test]
fn refresh_starts_from_the_top() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    // The feed is replaced by another, and stays where it was, as it was.
    let entries = source.does("updated", "/a", 20, "a, later");
    source.server.file("/other.xml", change_list(Some(0), None, "", &entries));
    offers(&source, &[("/resourcelist.xml", "resourcelist"), ("/other.xml", "changelist")]);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

/// An index of two parts; `/d` moves from the second to the first.
fn two_parts(source: &Source, index_md: &str) {
    let lists = [("/one.xml", index_md.to_owned()), ("/two.xml", index_md.to_owned())];
    let md = format!("at=\"{}\"", at(0));
    source.server.file("/resourcelist.xml", index(source, "resourcelist", &md, "", &lists));
}

fn part(source: &Source, second: u64, paths: &[&str]) -> String {
    let entries: String =
        paths.iter().map(|path| entry_of(&source.url(path), path.trim_start_matches('/').as_bytes())).collect();
    resource_list(&at(second), &entries)
}

#[test]
fn parts_of_two_editions_never_delete() {
    let source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")], &[]);
    two_parts(&source, "");
    source.server.file("/one.xml", part(&source, 0, &["/a", "/b"]));
    source.server.file("/two.xml", part(&source, 0, &["/c", "/d"]));
    let mirror = opened(&source);
    // The first part is rewritten while the second one is read. The index stays as it is.
    let (before, after) = (part(&source, 0, &["/a", "/b"]), part(&source, 50, &["/a", "/b", "/d"]));
    let rewritten = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&rewritten);
    source.server.on("/one.xml", move |request| {
        Reply::good(request, if own.load(Ordering::SeqCst) { after.as_bytes() } else { before.as_bytes() })
    });
    let second = part(&source, 50, &["/c"]);
    source.server.on("/two.xml", move |request| {
        // The first part has been asked for by then.
        std::thread::sleep(std::time::Duration::from_millis(300));
        rewritten.store(true, Ordering::SeqCst);
        Reply::good(request, second.as_bytes())
    });
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn a_part_that_one_of_several_indexes_does_not_name_any_more_is_gone() {
    for several in [true, false] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d"), ("/e", "e")], &[]);
        for (path, listed) in [("/1.xml", ["/a", "/b"]), ("/2.xml", ["/c", "/c"]), ("/3.xml", ["/d", "/e"])] {
            source.server.file(path, part(&source, 0, &listed));
        }
        let names = |source: &Source, path: &str, parts: &[&str]| {
            let parts: Vec<(&str, String)> = parts.iter().map(|part| (*part, String::new())).collect();
            source.server.file(path, index(source, "resourcelist", "", "", &parts));
        };
        names(&source, "/one.xml", &["/1.xml", "/2.xml"]);
        names(&source, "/other.xml", &["/3.xml"]);
        match several {
            true => offers(&source, &[("/one.xml", "resourcelist"), ("/other.xml", "resourcelist")]),
            // The same below an index of indexes.
            false => {
                names(&source, "/top.xml", &["/one.xml", "/other.xml"]);
                offers(&source, &[("/top.xml", "resourcelist")]);
            }
        }
        let mirror = opened(&source);
        agrees(&mirror, &source);
        // Its file stays on the server.
        names(&source, "/one.xml", &["/1.xml"]);
        source.remove("/c");
        mirror.refreshed();
        agrees(&mirror, &source);
        is_complete(&mirror);
        let before = source.server.requests().len();
        mirror.refreshed();
        assert!(source.server.requests().len() - before <= 8, "quiet, each document is asked for once");
        // One that is no index any more names no part at all.
        source.server.file("/one.xml", part(&source, 10, &["/a"]));
        source.remove("/b");
        mirror.refreshed();
        agrees(&mirror, &source);
        is_complete(&mirror);
    }
}

#[test]
fn parts_that_are_newer_than_their_index_do_not_delete_until_they_have_settled() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")], &[]);
    two_parts(&source, &format!("at=\"{}\"", at(0)));
    source.server.file("/one.xml", part(&source, 0, &["/a", "/b"]));
    source.server.file("/two.xml", part(&source, 0, &["/c", "/d"]));
    let mirror = opened(&source);
    // The publisher has written the first part; `/b` moves to the second.
    source.server.file("/one.xml", part(&source, 3600, &["/a"]));
    for _ in 0..2 {
        let _ = mirror.refresh();
        agrees(&mirror, &source);
        assert_eq!(state(&mirror), "partial");
        assert!(mirror.errors().contains("may be being written"), "{}", mirror.errors());
    }
    source.server.file("/two.xml", part(&source, 3600, &["/b", "/c", "/d"]));
    two_parts(&source, &format!("at=\"{}\"", at(3600)));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
    assert_eq!(versions_of(&mirror.cache, "b"), 1);
    // An index that is never written again: what is gone goes when nothing has changed for ten minutes.
    source.server.file("/two.xml", part(&source, 9000, &["/b", "/c"]));
    let _ = mirror.refresh();
    agrees(&mirror, &source);
    source.remove("/d");
    has_waited(&mirror);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn a_part_that_is_older_than_its_index_says_never_deletes() {
    let source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")], &[]);
    two_parts(&source, &format!("at=\"{}\"", at(0)));
    source.server.file("/one.xml", part(&source, 0, &["/a", "/b"]));
    source.server.file("/two.xml", part(&source, 0, &["/c", "/d"]));
    let mirror = opened(&source);
    // A cache keeps the first part.
    two_parts(&source, &format!("at=\"{}\"", at(3600)));
    source.server.file("/two.xml", part(&source, 3600, &["/c"]));
    // The second time, no part is sent again.
    for _ in 0..2 {
        let _ = mirror.refresh();
        agrees(&mirror, &source);
        assert_eq!(state(&mirror), "partial");
        assert!(mirror.errors().contains("one.xml"), "{}", mirror.errors());
    }
    // It gives the time at which it was begun, the index the one at which it was written.
    source.server.file("/one.xml", part(&source, 3590, &["/a", "/b", "/d"]));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

/// Publishes an index, made at a second, of these parts; returns it.
fn index_of(source: &Source, second: u64, parts: &[&str]) -> Vec<u8> {
    let md = format!("at=\"{}\"", at(second));
    let lists: Vec<(&str, String)> = parts.iter().map(|path| (*path, md.clone())).collect();
    let index = index(source, "resourcelist", &md, "", &lists).into_bytes();
    source.server.file("/resourcelist.xml", index.clone());
    index
}

#[test]
fn an_index_that_is_older_than_all_of_its_parts_may_not_name_all_of_them() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &[]);
    index_of(&source, 0, &["/one.xml", "/two.xml"]);
    source.server.file("/one.xml", part(&source, 0, &["/a", "/b"]));
    source.server.file("/two.xml", part(&source, 0, &["/c"]));
    let mirror = opened(&source);
    // A cache keeps the index; `/c` moves to a third part, where a new resource is, too.
    source.put("/aa", b"aa");
    source.put("/d", b"d");
    source.server.file("/one.xml", part(&source, 3600, &["/a", "/aa"]));
    source.server.file("/two.xml", part(&source, 3600, &["/b"]));
    source.server.file("/three.xml", part(&source, 3600, &["/c", "/d"]));
    for _ in 0..2 {
        let _ = mirror.refresh();
        assert_eq!(mirror.files(), ["a", "aa", "b", "c"]);
        assert_eq!(state(&mirror), "partial");
        assert!(mirror.errors().contains("may not name all of them"), "{}", mirror.errors());
    }
    index_of(&source, 3600, &["/one.xml", "/two.xml", "/three.xml"]);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
    // The next time, the wait begins again.
    assert_eq!(mirror.ask(|reader| reader.meta("older index 1")).as_deref(), Some(""));
}

/// What was waited for has been waited for ten minutes; the mirror is mounted again.
fn has_waited(mirror: &Mirror) {
    mirror.unmount();
    let catalog = rusqlite::Connection::open(mirror.cache.join("catalog.db")).unwrap();
    let changed = catalog.execute(
        "UPDATE meta SET value = substr(value, 1, instr(value, ' ')) || (substr(value, instr(value, ' ')) - 600000000000)
         WHERE (key LIKE 'unfinished %' OR key LIKE 'older index %' OR key LIKE 'earlier part %') AND value != ''",
        [],
    );
    assert_eq!(changed, Ok(1));
    drop(catalog);
    mirror.try_mount().unwrap();
}

#[test]
fn an_index_that_dates_all_parts_alike_is_believed_after_ten_minutes() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &[]);
    index_of(&source, 0, &["/one.xml", "/two.xml"]);
    source.server.file("/one.xml", part(&source, 0, &["/a"]));
    source.server.file("/two.xml", part(&source, 0, &["/b", "/c"]));
    let mirror = opened(&source);
    index_of(&source, 3600, &["/one.xml", "/two.xml"]);
    source.server.file("/two.xml", part(&source, 3600, &["/b"]));
    let _ = mirror.refresh();
    agrees(&mirror, &source);
    assert_eq!(state(&mirror), "partial");
    source.remove("/c");
    has_waited(&mirror);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn deletions_that_are_held_are_not_confirmed_by_reading_the_same_lists_again() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d"), ("/e", "e")], &["changelist"]);
    let timeless = |text: String| text.replace(&format!("at=\"{}\"", at(0)), "");
    let lists = [("/one.xml", String::new()), ("/two.xml", String::new())];
    source.server.file("/resourcelist.xml", index(&source, "resourcelist", "", "", &lists));
    source.server.file("/one.xml", timeless(part(&source, 0, &["/a", "/b", "/c", "/e"])));
    source.server.file("/two.xml", timeless(part(&source, 0, &["/d"])));
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    agrees(&mirror, &source);
    source.server.file("/one.xml", timeless(part(&source, 0, &["/a"])));
    std::thread::sleep(Duration::from_millis(1200));
    let _ = mirror.refresh();
    assert_eq!(state(&mirror), "held");
    source.put("/d", b"d, later");
    source.changes(&undated(&source.url("/d"), "updated", b"d, later"));
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1200));
        let _ = mirror.refresh();
        assert_eq!(state(&mirror), "held");
        agrees(&mirror, &source);
    }
}

#[test]
fn an_index_that_a_cache_has_kept_is_read_past_the_cache() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &[]);
    let kept = index_of(&source, 0, &["/one.xml", "/two.xml"]);
    source.server.file("/one.xml", part(&source, 0, &["/a", "/b"]));
    source.server.file("/two.xml", part(&source, 0, &["/c"]));
    let mirror = opened(&source);
    source.put("/aa", b"aa");
    source.server.file("/one.xml", part(&source, 3600, &["/a", "/aa"]));
    source.server.file("/two.xml", part(&source, 3600, &["/b"]));
    source.server.file("/three.xml", part(&source, 3600, &["/c"]));
    let now = index_of(&source, 3600, &["/one.xml", "/two.xml", "/three.xml"]);
    source.server.on("/resourcelist.xml", move |request| {
        let is_fresh = request.header("cache-control").is_some_and(|control| control.contains("no-cache"));
        Reply::good(request, if is_fresh { &now } else { &kept })
    });
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn an_index_whose_time_goes_along_hours_behind_the_clock_is_not_older_than_its_parts() {
    let source = Source::start(&[("/a", "a"), ("/b", "b")], &[]);
    let urls = [source.url("/one.xml"), source.url("/two.xml")];
    source.server.on("/resourcelist.xml", move |_| {
        let md = format!("at=\"{}\"", jiff::Timestamp::now() - jiff::SignedDuration::from_hours(5));
        let entries: String = urls.iter().map(|url| entry(url, &md).replace("url>", "sitemap>")).collect();
        Reply::ok(document("resourcelist", &md, "", &entries).replace("urlset", "sitemapindex"))
    });
    let second = crate::support::changes::clock() - 3600;
    source.server.file("/one.xml", part(&source, second, &["/a"]));
    source.server.file("/two.xml", part(&source, second, &["/b"]));
    is_complete(&opened(&source));
}

#[test]
fn a_mount_of_an_index_that_is_older_than_its_parts_is_complete_when_the_index_is_newer() {
    let source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    // It was deleted, and is there: of its creation, the list alone knows.
    source.changes(&change(&source.url("/b"), "deleted", &format!("datetime=\"{}\"", at(1800))));
    index_of(&source, 0, &["/one.xml"]);
    source.server.file("/one.xml", part(&source, 3600, &["/a", "/b"]));
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    assert_eq!(state(&mirror), "partial");
    index_of(&source, 3600, &["/one.xml"]);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn what_two_packages_list_stays_when_one_of_them_does_not_list_it_any_more() {
    let server = Server::start();
    let items = ["/a", "/b", "/r"].map(|path| Item::new(&server.url(path), path.as_bytes()));
    let packages = |second: u64| {
        let md = format!("at=\"{}\"", at(second));
        let listed = [("/one.zip", &md), ("/two.zip", &format!("at=\"{}\"", at(0)))];
        let listed = listed.map(|(path, md)| (server.url(path), md.clone(), String::new()));
        server.file("/resourcedump.xml", crate::support::dump::dump(&md, &listed));
    };
    server.file("/one.zip", crate::support::dump::package(&at(0), &[items[0].clone(), items[2].clone()]));
    server.file("/two.zip", crate::support::dump::package(&at(0), &items[1..]));
    packages(0);
    crate::support::dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.files(), ["a", "b", "r"]);
    server.file("/one.zip", crate::support::dump::package(&at(3600), &items[..1]));
    packages(3600);
    for _ in 0..2 {
        mirror.refreshed();
        assert_eq!(mirror.files(), ["a", "b", "r"]);
        is_complete(&mirror);
    }
}

#[test]
fn deletions_that_are_held_do_not_have_the_lists_read_whole_at_each_poll() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    let changes = source.does("updated", "/a", 10, "a, later");
    source.changes(&changes);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    agrees(&mirror, &source);
    source.server.file("/resourcelist.xml", part(&source, 3600, &["/c"]));
    std::thread::sleep(Duration::from_millis(1200));
    let _ = mirror.refresh();
    assert_eq!(state(&mirror), "held");
    let _ = mirror.refresh();
    let whole = || {
        let all = source.server.requests();
        all.iter().filter(|one| one.path == "/resourcelist.xml" && one.header("if-none-match").is_none()).count()
    };
    let before = whole();
    for _ in 0..3 {
        let _ = mirror.refresh();
    }
    assert_eq!(whole(), before);
    agrees(&mirror, &source);
}

#[test]
fn changes_that_are_older_than_lists_of_which_a_part_is_missing_do_not_stay_over_them() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let publish = |source: &Source, second: u64, paths: [&[&str]; 2]| {
        index_of(source, second, &["/one.xml", "/two.xml"]);
        for (name, paths) in ["/one.xml", "/two.xml"].into_iter().zip(paths) {
            let entries = paths.iter().map(|path| entry_of(&source.url(path), &source.now[*path]));
            source.server.file(name, resource_list(&at(second), &entries.collect::<String>()));
        }
    };
    publish(&source, 0, [&["/a"], &["/b"]]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    agrees(&mirror, &source);
    let [first, second] =
        [(10, "a, second"), (20, "a, third")].map(|(at, text)| source.does("updated", "/a", at, text));
    source.server.file("/1.xml", change_list(Some(0), Some(15), "", &first));
    let lists = [(source.url("/1.xml"), Some(0), Some(15)), (source.url("/2.xml"), Some(15), None)];
    source.server.file("/changelist.xml", crate::support::changes::change_index(0, &lists));
    publish(&source, 3600, [&["/a"], &["/b"]]);
    // Of the lists, the second part is missing; of the changes, all after the first.
    for path in ["/two.xml", "/2.xml"] {
        source.server.on(path, |_| Reply::status(403));
    }
    std::thread::sleep(Duration::from_millis(1200));
    let _ = mirror.refresh();
    assert_eq!(state(&mirror), "partial");
    publish(&source, 3600, [&["/a"], &["/b"]]);
    source.server.file("/2.xml", change_list(Some(15), None, "", &second));
    std::thread::sleep(Duration::from_millis(1200));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn what_changes_recreated_and_no_list_has_any_more_is_deleted_before_the_state_is_complete() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")], &["changelist"]);
    source.server.file("/one.xml", part(&source, 0, &["/a", "/b"]));
    source.server.file("/two.xml", part(&source, 0, &["/c", "/d"]));
    index_of(&source, 0, &["/one.xml", "/two.xml"]);
    let mut changes = source.does("deleted", "/b", 10, "") + &source.does("created", "/b", 20, "b, again");
    source.changes(&changes);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    agrees(&mirror, &source);
    // It is deleted; of the next lists, the part without it can be read first, and changes cannot be read then.
    changes += &source.does("deleted", "/b", 30, "");
    let denied = |path: &str| source.server.on(path, |_| Reply::status(403));
    denied("/changelist.xml");
    denied("/two.xml");
    index_of(&source, 3600, &["/one.xml", "/two.xml"]);
    source.server.file("/one.xml", part(&source, 3600, &["/a"]));
    std::thread::sleep(Duration::from_millis(1200));
    let _ = mirror.refresh();
    source.changes(&changes);
    source.server.file("/two.xml", part(&source, 3600, &["/c", "/d"]));
    std::thread::sleep(Duration::from_millis(1200));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn an_index_whose_times_are_those_of_the_request_in_another_zone_is_the_same_index() {
    for with_own in [false, true] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &[]);
        let url = [source.url("/one.xml"), source.url("/two.xml")];
        source.server.on("/resourcelist.xml", move |_| {
            let md = format!("at=\"{}\"", jiff::Timestamp::now() + jiff::SignedDuration::from_hours(9));
            let entries: String = url.iter().map(|url| entry(url, &md).replace("url>", "sitemap>")).collect();
            let text = document("resourcelist", &md, "", &entries).replace("urlset", "sitemapindex");
            Reply::ok(text)
        });
        let part = |paths: &[&str], source: &Source| match with_own {
            true => part(source, 0, paths),
            false => part(source, 0, paths).replace(&format!("at=\"{}\"", at(0)), ""),
        };
        source.server.file("/one.xml", part(&["/a"], &source));
        source.server.file("/two.xml", part(&["/b", "/c"], &source));
        let mirror = opened(&source);
        is_complete(&mirror);
        source.remove("/b");
        source.server.file("/two.xml", part(&["/c"], &source));
        let before = source.server.count("/resourcelist.xml");
        mirror.refreshed();
        agrees(&mirror, &source);
        is_complete(&mirror);
        assert_eq!(source.server.count("/resourcelist.xml") - before, 2, "read, and looked at again");
    }
}

#[test]
fn lastmod_never_sorts() {
    let mut source = Source::start(&[("/k", "k")], &["changelist"]);
    let mirror = {
        source.changes("");
        opened(&source)
    };
    let entries = [
        modified(&source.url("/a"), "created", 4 * 3600, b"a, first"),
        modified(&source.url("/b"), "created", 5 * 3600, b"b"),
        // A file that was restored, with the time that it had.
        modified(&source.url("/a"), "updated", 2 * 3600, b"a, restored"),
        modified(&source.url("/b"), "deleted", 3 * 3600, b""),
    ];
    source.put("/a", b"a, restored");
    source.changes(&entries.concat());
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn an_entry_outside_the_interval_does_not_turn_a_list_around() {
    let mut source = Source::start(&[("/a", "a"), ("/d", "d")], &["changelist"]);
    source.list(10);
    source.server.file("/changelist.xml", change_list(Some(10), None, "", ""));
    let mirror = opened(&source);
    let entries = told(&source.url("/a"), "updated", 20, b"a, first")
        + &undated(&source.url("/a"), "updated", b"a, second")
        + &told(&source.url("/d"), "updated", 5, b"d");
    source.put("/a", b"a, second");
    source.server.file("/changelist.xml", change_list(Some(10), None, "", &entries));
    mirror.refreshed();
    agrees(&mirror, &source);
}

/// A Resource List of pages, each of one resource.
fn pages(source: &Source, second: u64, paths: &[&str]) {
    for (number, path) in paths.iter().enumerate() {
        let next = match number + 1 < paths.len() {
            true => link("next", &source.url(&format!("/page{}.xml", number + 1))),
            false => String::new(),
        };
        let name = if number == 0 { "/resourcelist.xml".to_owned() } else { format!("/page{number}.xml") };
        let body = entry_of(&source.url(path), &source.now[*path]);
        source.server.file(&name, document("resourcelist", &format!("at=\"{}\"", at(second)), &next, &body));
    }
}

#[test]
fn pages_are_one_list() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")], &[]);
    pages(&source, 0, &["/a", "/b", "/c", "/d"]);
    let mirror = opened(&source);
    // Only a later page changes.
    source.put("/c", b"c, later");
    pages(&source, 10, &["/a", "/b", "/c", "/d"]);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
    // A page that cannot be read: what is on it, and behind it, stays.
    source.server.on("/page2.xml", |_| Reply::status(404));
    let _ = mirror.refresh();
    agrees(&mirror, &source);
    assert_eq!(state(&mirror), "partial");
    source.remove("/d");
    pages(&source, 20, &["/a", "/b", "/c"]);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn pages_are_one_change_list() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    // Newest first, over two pages.
    let old = source.does("created", "/b", 10, "b");
    let new = source.does("deleted", "/b", 20, "") + &source.does("updated", "/a", 15, "a, later");
    let next = link("next", &source.url("/page1.xml"));
    source.server.file("/changelist.xml", change_list(Some(0), None, &next, &new));
    source.server.file("/page1.xml", change_list(Some(0), None, "", &old));
    mirror.refreshed();
    agrees(&mirror, &source);
    // Later the second page alone grows.
    let late = source.does("created", "/c", 30, "c");
    source.server.file("/page1.xml", change_list(Some(0), None, "", &(old + &late)));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

/// How a list of two pages is found, and that it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// By an index with its end.
    Index,
    /// By an index that does not say that it has ended.
    IndexWithoutEnd,
    /// By itself; the next one is in the index beside it.
    Itself,
    /// By the Capability List, which names the next one then.
    Up,
}

/// A list of two pages ends, and another begins; `first` and `second` answer for its pages from then on, given what they were before
/// and are now.
fn pages_end(found: Found, first: impl Fn(&Source, String, String), second: impl Fn(&Source, String, String)) {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let links = match found {
        Found::Itself => link("index", &source.url("/changelist.xml")),
        Found::Up => link("up", &source.url("/capabilitylist.xml")),
        _ => String::new(),
    };
    let next = links + &link("next", &source.url("/page.xml"));
    let one = source.does("created", "/b", 10, "b");
    let early = source.does("created", "/c", 20, "c");
    let edition =
        |until, early: &str| (change_list(Some(0), until, &next, &one), change_list(Some(0), until, "", early));
    let before = edition(None, &early);
    source.server.file("/one.xml", before.0.clone());
    source.server.file("/page.xml", before.1.clone());
    let names = |source: &Source, list: &str| {
        offers(source, &[("/resourcelist.xml", "resourcelist"), (list, "changelist")]);
    };
    match found {
        Found::Index | Found::IndexWithoutEnd => {
            source.server.file("/changelist.xml", change_index(0, &[(source.url("/one.xml"), Some(0), None)]));
        }
        Found::Itself | Found::Up => names(&source, "/one.xml"),
    }
    let mirror = opened(&source);
    let late = source.does("updated", "/c", 30, "c, later") + &source.does("created", "/d", 40, "d");
    let now = edition(Some(50), &(early + &late));
    first(&source, before.0, now.0);
    second(&source, before.1, now.1);
    let two = source.does("created", "/e", 60, "e");
    source.server.file("/two.xml", change_list(Some(50), None, "", &two));
    let until = Some(50).filter(|_| found != Found::IndexWithoutEnd);
    let lists = [(source.url("/one.xml"), Some(0), until), (source.url("/two.xml"), Some(50), None)];
    source.server.file("/changelist.xml", change_index(0, &lists));
    if found == Found::Up {
        names(&source, "/two.xml");
    }
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
    assert_eq!(mirror.log("c").len(), 2, "{found:?}");
}

const ALL_FOUND: [Found; 4] = [Found::Index, Found::IndexWithoutEnd, Found::Itself, Found::Up];

#[test]
fn a_page_that_a_cache_has_kept_hides_nothing_of_a_list_that_has_ended() {
    /// A cache that has kept an edition, and asks the server only when it is told to.
    fn keeps(path: &str) -> impl Fn(&Source, String, String) {
        move |source, before, now| {
            source.server.on(path, move |request| {
                Reply::ok(if request.header("cache-control") == Some("no-cache") {
                    now.clone()
                } else {
                    before.clone()
                })
            });
        }
    }
    fn writes(path: &str) -> impl Fn(&Source, String, String) {
        move |source, _, now| source.server.file(path, now)
    }
    for found in ALL_FOUND {
        pages_end(found, keeps("/one.xml"), writes("/page.xml"));
        pages_end(found, writes("/one.xml"), keeps("/page.xml"));
    }
}

#[test]
fn pages_of_a_list_that_has_just_ended_are_waited_for() {
    let at_once = |source: &Source, _, now: String| source.server.file("/one.xml", now);
    // The second is written a while after the first.
    let late = |source: &Source, before: String, now: String| {
        let began = Instant::now();
        source.server.on("/page.xml", move |_| {
            Reply::ok(if began.elapsed() < Duration::from_secs(1) { before.clone() } else { now.clone() })
        });
    };
    std::thread::scope(|scope| {
        for found in ALL_FOUND {
            scope.spawn(move || pages_end(found, at_once, late));
        }
    });
}

#[test]
fn pages_with_intervals_of_their_own_are_a_list_that_goes_on_with_the_last() {
    // The newest first, and the oldest.
    for is_newest_first in [true, false] {
        let mut source = Source::start(&[("/a", "a")], &["changelist"]);
        let next = link("next", &source.url("/page.xml"));
        let pages = [
            (Some(0), Some(50), source.does("created", "/b", 10, "b")),
            (Some(50), None, source.does("created", "/c", 60, "c")),
        ];
        let serve = |source: &Source, pages: &[(Option<u64>, Option<u64>, String)]| {
            let order = if is_newest_first { [1, 0] } else { [0, 1] };
            for (place, path, links) in [(order[0], "/changelist.xml", next.as_str()), (order[1], "/page.xml", "")] {
                let (from, until, entries) = &pages[place];
                source.server.file(path, change_list(*from, *until, links, entries));
            }
        };
        serve(&source, &pages);
        let mirror = opened(&source);
        is_complete(&mirror);
        let [first, (from, _, entries)] = pages;
        let more = source.does("updated", "/b", 70, "b, later");
        serve(&source, &[first, (from, None, entries + &more)]);
        mirror.refreshed();
        agrees(&mirror, &source);
        is_complete(&mirror);
    }
}

#[test]
fn an_interval_that_moves_with_the_request_is_that_of_an_open_list() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let now = jiff::Timestamp::now();
    source.server.file("/resourcelist.xml", resource_list(&now.to_string(), &entry_of(&source.url("/a"), b"a")));
    let serve = |source: &Source, entries: String| {
        source.server.on("/changelist.xml", move |_| {
            let now = jiff::Timestamp::now();
            let from = now - jiff::SignedDuration::from_hours(720);
            Reply::ok(document("changelist", &format!("from=\"{from}\" until=\"{now}\""), "", &entries))
        });
    };
    serve(&source, String::new());
    let mirror = opened(&source);
    let dated = |path: &str, body: &[u8]| {
        let moment = now + jiff::SignedDuration::from_millis(1);
        change(&source.url(path), "updated", &format!("datetime=\"{moment}\" {}", facts_of(body)))
    };
    mirror.refreshed();
    // A change that happened before the last request, and is listed after it.
    let entries = dated("/a", b"a, later");
    source.put("/a", b"a, later");
    serve(&source, entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    let status = mirror.status();
    assert_eq!(status["state"], "complete", "{status:#}");
    let cursor: jiff::Timestamp = status["sets"][0]["cursor"].as_str().unwrap().parse().unwrap();
    assert!(cursor <= now + jiff::SignedDuration::from_millis(2), "{cursor} is that of a request");
}

#[test]
fn a_part_without_a_time_has_that_of_its_index() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let lists = [("/one.xml", String::new()), ("/two.xml", String::new())];
    let md = format!("at=\"{}\"", at(10));
    source.server.file("/resourcelist.xml", index(&source, "resourcelist", &md, "", &lists));
    source.server.file("/one.xml", document("resourcelist", "", "", &entry_of(&source.url("/a"), b"a")));
    source.server.file("/two.xml", document("resourcelist", "", "", &entry_of(&source.url("/b"), b"b")));
    source.server.file("/changelist.xml", change_list(Some(10), None, "", ""));
    let mirror = opened(&source);
    assert_eq!(mirror.status()["sets"][0]["cursor"], at(10));
    // What happened between 10 and 15 is not known.
    let entries = source.does("updated", "/b", 20, "b, later");
    source.server.file("/other.xml", change_list(Some(15), None, "", &entries));
    let fresh = Mirror::prepare(&source.url("/"), "poll=0");
    offers(&source, &[("/resourcelist.xml", "resourcelist"), ("/other.xml", "changelist")]);
    fresh.try_mount().unwrap();
    assert_eq!(state(&fresh), "gap");
}

#[test]
fn a_deletion_counts_whichever_change_list_is_read_first() {
    for deleting in ["/one.xml", "/two.xml"] {
        let mut source = Source::start(&[("/a", "a")], &[]);
        offers(
            &source,
            &[("/resourcelist.xml", "resourcelist"), ("/one.xml", "changelist"), ("/two.xml", "changelist")],
        );
        source.server.file("/one.xml", change_list(Some(0), None, "", ""));
        source.server.file("/two.xml", change_list(Some(0), None, "", ""));
        let mirror = opened(&source);
        let creation = source.does("created", "/b", 20, "b");
        let deletion = source.does("deleted", "/b", 30, "");
        let creating = if deleting == "/one.xml" { "/two.xml" } else { "/one.xml" };
        source.server.file(deleting, change_list(Some(0), None, "", &deletion));
        source.server.file(creating, change_list(Some(0), None, "", &creation));
        mirror.refreshed();
        agrees(&mirror, &source);
        is_complete(&mirror);
    }
}

#[test]
fn a_window_of_undated_changes_that_slides_makes_no_versions() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let mut entries: Vec<String> = Vec::new();
    let mut happened = 0;
    for round in 0..8 {
        let (path, body) = (["/a", "/b", "/c"][round % 3], format!("at {round}"));
        source.put(path, body.as_bytes());
        entries.push(undated(&source.url(path), "updated", body.as_bytes()));
        happened += 1;
        let window = &entries[entries.len().saturating_sub(4)..];
        source.server.file("/changelist.xml", document("changelist", "", "", &window.concat()));
        mirror.refreshed();
        agrees(&mirror, &source);
        assert_eq!(mirror.versions(), 3 + happened);
    }
    is_complete(&mirror);
}

#[test]
fn a_capability_in_another_case_is_that_capability() {
    let source = Source::start(&[("/a", "a")], &[]);
    source.server.file(
        "/resourcelist.xml",
        document("resourceList", &format!("at=\"{}\"", at(0)), "", &entry_of(&source.url("/a"), b"a")),
    );
    offers(&source, &[("/resourcelist.xml", "resourceList")]);
    let mirror = opened(&source);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("resourceList"), "{warnings}");
}

#[test]
fn root_metadata_that_cannot_be_read_or_stands_at_the_end_is_not_lost() {
    let source = Source::start(&[("/a", "a")], &[]);
    let entries = entry_of(&source.url("/a"), b"a");
    source.server.file("/resourcelist.xml", document("resourcelist", "at=\"last Tuesday\"", "", &entries));
    let mirror = opened(&source);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("last Tuesday"), "{warnings}");
    // The same in a list that has it after its entries.
    let md = format!("<rs:md capability=\"resourcelist\" at=\"{}\"/>", at(7));
    let list = document("resourcelist", "", "", &entries).replace("<rs:md capability=\"resourcelist\" />\n", "");
    source.server.file("/resourcelist.xml", list.replace("</urlset>", &format!("{md}</urlset>")));
    mirror.refreshed();
    let status = mirror.status();
    assert_eq!(status["sets"][0]["at"], at(7), "{status:#}");
}

#[test]
fn a_second_list_that_begins_while_the_first_stays_open_is_found() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let first = source.does("created", "/b", 5, "b");
    source.changes(&first);
    let mirror = polling(&source, "");
    // The first list is full: it stays open, and links to an index.
    let beside = link("index", &source.url("/index.xml"));
    let second = source.does("updated", "/a", 25, "a, later");
    source.server.file("/two.xml", change_list(Some(10), None, &beside, &second));
    let lists = [("/changelist.xml", interval(Some(0), None)), ("/two.xml", interval(Some(10), None))];
    source.server.file("/index.xml", index(&source, "changelist", &interval(Some(0), None), "", &lists));
    source.server.file("/changelist.xml", change_list(Some(0), None, &beside, &first));
    shows(&mirror, "a", Some(b"a, later"));
    // And a third.
    let third = source.does("updated", "/b", 45, "b, later");
    source.server.file("/three.xml", change_list(Some(40), None, &beside, &third));
    let more = [lists[0].clone(), lists[1].clone(), ("/three.xml", interval(Some(40), None))];
    source.server.file("/index.xml", index(&source, "changelist", &interval(Some(0), None), "", &more));
    shows(&mirror, "b", Some(b"b, later"));
    agrees(&mirror, &source);
    becomes_complete(&mirror);
}

#[test]
fn a_deletion_that_is_never_reported_is_noticed_by_the_lists() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    source.changes("");
    let mirror = polling(&source, ",relist=2s");
    source.remove("/b");
    source.list(30);
    shows(&mirror, "b", None);
    agrees(&mirror, &source);
    becomes_complete(&mirror);
}

#[test]
fn an_older_list_does_not_undo_a_change_without_a_time() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    let publish = |source: &Source, entries: &[&str]| {
        source.server.file("/changelist.xml", document("changelist", "", "", &entries.concat()));
    };
    publish(&source, &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=10s,content=all");
    source.put("/c", b"c, second");
    let of_c = undated(&source.url("/c"), "updated", b"c, second");
    let now = jiff::Timestamp::now();
    let entries: String = source.now.iter().map(|(path, bytes)| entry_of(&source.url(path), bytes)).collect();
    source.server.file("/resourcelist.xml", resource_list(&now.to_string(), &entries));
    // After that list was made.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    source.remove("/b");
    let of_b = undated(&source.url("/b"), "deleted", b"");
    publish(&source, &[&of_c, &of_b]);
    let read = source.server.count("/resourcelist.xml");
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(source.server.count("/resourcelist.xml"), read, "the list was not read yet");
    // The Change List slides on, and does not tell of that any more.
    let mut last = of_b;
    for body in ["a, second", "a, third"] {
        source.put("/a", body.as_bytes());
        let next = undated(&source.url("/a"), "updated", body.as_bytes());
        publish(&source, &[&last, &next]);
        mirror.refreshed();
        last = next;
    }
    std::thread::sleep(std::time::Duration::from_secs(10));
    mirror.refreshed();
    assert!(source.server.count("/resourcelist.xml") > read, "the list was read again");
    agrees(&mirror, &source);
    is_complete(&mirror);
    // A newer one does.
    source.put("/b", b"b, again");
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    let entries: String = source.now.iter().map(|(path, bytes)| entry_of(&source.url(path), bytes)).collect();
    source.server.file("/resourcelist.xml", resource_list(&now.to_string(), &entries));
    std::thread::sleep(std::time::Duration::from_secs(10));
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn a_deletion_of_an_unknown_uri_has_the_lists_read() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    source.remove("/b");
    source.list(30);
    source.changes(&told(&source.url("/handle/b"), "deleted", 20, b""));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn a_list_without_a_beginning_that_shares_nothing_with_its_last_edition_is_a_gap() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    let publish = |source: &Source, entries: &str| {
        source.server.file("/changelist.xml", document("changelist", "", "", entries));
    };
    source.put("/a", b"a, second");
    publish(&source, &undated(&source.url("/a"), "updated", b"a, second"));
    let mirror = opened(&source);
    // An edition that was missed had a change of another resource.
    source.put("/b", b"b, second");
    source.put("/c", b"c, second");
    publish(&source, &undated(&source.url("/c"), "updated", b"c, second"));
    mirror.refreshed();
    let status = mirror.status();
    assert_eq!(status["state"], "gap", "{status:#}");
    mirror.refreshed();
    assert_eq!(state(&mirror), "gap", "it stays one until newer lists make up for it");
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
    let entries: String = source.now.iter().map(|(path, bytes)| entry_of(&source.url(path), bytes)).collect();
    source.server.file("/resourcelist.xml", resource_list(&now.to_string(), &entries));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn a_dated_list_without_a_beginning_that_slid_past_changes_is_a_gap() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    let publish = |source: &Source, entries: &str| {
        source.server.file("/changelist.xml", document("changelist", "", "", entries));
    };
    let dated = |source: &Source, path: &str, body: &[u8], second: u64| {
        change(&source.url(path), "updated", &format!("datetime=\"{}\" {}", at(second), facts_of(body)))
    };
    source.put("/a", b"a, second");
    let of_a = dated(&source, "/a", b"a, second", 31);
    publish(&source, &of_a);
    let mirror = opened(&source);
    source.put("/b", b"b, second");
    let of_b = dated(&source, "/b", b"b, second", 33);
    publish(&source, &format!("{of_a}{of_b}"));
    mirror.refreshed();
    agrees(&mirror, &source);
    // The window slides, and nothing is missed.
    source.put("/c", b"c, second");
    let of_c = dated(&source, "/c", b"c, second", 35);
    publish(&source, &format!("{of_b}{of_c}"));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
    // It is empty for a while, which says nothing; then an edition was missed.
    publish(&source, "");
    mirror.refreshed();
    is_complete(&mirror);
    source.put("/a", b"a, third");
    source.put("/c", b"c, third");
    publish(&source, &dated(&source, "/c", b"c, third", 39));
    mirror.refreshed();
    let status = mirror.status();
    assert_eq!(status["state"], "gap", "{status:#}");
    let warning = status["warnings"].to_string();
    assert!(warning.contains("shares no entry with the edition of it that was followed before"), "{warning}");
}

#[test]
fn the_same_undated_entry_twice_is_two_changes() {
    let mut source = Source::start(&[("/a", "A"), ("/k", "k")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let mut entries = String::new();
    // Kept times of modification: the file goes back and forth.
    for (second, body) in [(100, "B"), (50, "A"), (100, "B"), (50, "A")] {
        entries += &modified(&source.url("/a"), "updated", second, body.as_bytes());
        source.put("/a", body.as_bytes());
        source.changes(&entries);
        mirror.refreshed();
        agrees(&mirror, &source);
    }
    assert_eq!(versions_of(&mirror.cache, "a"), 5);
    for (kind, body) in [("deleted", ""), ("created", "A"), ("deleted", "")] {
        entries += &undated(&source.url("/a"), kind, body.as_bytes());
        match kind {
            "deleted" => source.remove("/a"),
            _ => source.put("/a", body.as_bytes()),
        }
        source.changes(&entries);
        mirror.refreshed();
        agrees(&mirror, &source);
    }
    // All of them at once.
    let all = opened(&source);
    drop(all);
    is_complete(&mirror);
}

#[test]
fn undated_changes_are_applied_once_while_there_is_a_gap() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.put("/a", b"a, second");
    let entries = undated(&source.url("/a"), "updated", b"a, second");
    source.server.file("/changelist.xml", change_list(Some(30), None, "", &entries));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,content=all");
    assert_eq!(state(&mirror), "gap");
    mirror.refreshed();
    let (versions, fetched) = (mirror.versions(), source.server.count("/a"));
    for _ in 0..3 {
        mirror.refreshed();
    }
    assert_eq!(mirror.versions(), versions);
    assert_eq!(source.server.count("/a"), fetched);
    assert_eq!(state(&mirror), "gap");
}

#[test]
fn one_sitemap_of_several_that_is_gone_does_not_prevent_the_rest() {
    let server = Server::start();
    server.file("/a", "a");
    server.file("/b", "b");
    let sitemap =
        |path: &str| document("", "", "", &entry(&server.url(path), "")).replace("<rs:md capability=\"\" />\n", "");
    server.file("/one.xml", sitemap("/a"));
    server.file("/two.xml", sitemap("/b"));
    let lines: String =
        ["one", "gone", "two"].map(|name| format!("Sitemap: {}\n", server.url(&format!("/{name}.xml")))).concat();
    server.file("/robots.txt", lines);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.files(), ["a", "b"], "several sitemaps are one tree");
    assert_eq!(state(&mirror), "partial");
    assert!(mirror.errors().contains("gone.xml"), "{}", mirror.errors());
}

#[test]
fn a_capability_list_that_is_gone_does_not_prevent_the_other_sets() {
    let source = Source::start(&[("/a", "a")], &[]);
    let sets = capability(&source.url("/capabilitylist.xml"), "capabilitylist")
        + &capability(&source.url("/gone/capabilitylist.xml"), "capabilitylist");
    source.server.file("/.well-known/resourcesync", document("description", "", "", &sets));
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let status = mirror.status();
    assert_eq!(status["state"], "partial", "{status:#}");
    let warnings = status["warnings"].to_string();
    assert!(warnings.contains("gone/capabilitylist.xml") && warnings.contains("set="), "{warnings}");
    assert_eq!(mirror.files().len(), 1);
}

#[test]
fn a_sitemap_at_its_usual_place_is_found() {
    let server = Server::start();
    server.file("/a", "a");
    server.file("/", "<!DOCTYPE html><title>A site</title>");
    server.file(
        "/sitemap.xml",
        document("", "", "", &entry(&server.url("/a"), "")).replace("<rs:md capability=\"\" />\n", ""),
    );
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.files(), ["a"]);
}

#[test]
fn a_well_known_document_below_a_path_is_found() {
    let source = Source::start(&[("/repo/a", "a")], &[]);
    let sets = capability(&source.url("/capabilitylist.xml"), "capabilitylist");
    source.server.remove("/.well-known/resourcesync");
    source.server.file("/repo/.well-known/resourcesync", document("description", "", "", &sets));
    source.server.file("/repo/", "<!DOCTYPE html><title>A repository</title>");
    let mirror = Mirror::mount(&source.url("/repo/"), "poll=0");
    assert_eq!(mirror.files(), ["repo/a"]);
}

#[test]
fn an_encoding_that_only_http_names_counts() {
    let source = Source::start(&[("/caf\u{e9}", "coffee")], &[]);
    let list = resource_list(&at(0), &entry_of(&source.url("/caf\u{e9}"), b"coffee"));
    let list = list.replace(" encoding=\"UTF-8\"", "");
    let latin: Vec<u8> = list.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect();
    source.server.on("/resourcelist.xml", move |request| {
        Reply::good(request, &latin).with("Content-Type", "application/xml; charset=ISO-8859-1")
    });
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let files = mirror.files();
    assert!(files.len() == 1 && files[0].starts_with("caf\u{e9}"), "{files:?}");
}

#[test]
fn an_old_undated_change_does_not_undo_what_newer_lists_report() {
    // Both stay in a Change List that is a log: an update of what was deleted without a report, and a deletion of what came back.
    let mut source = Source::start(&[("/a", "a"), ("/w", "w"), ("/z", "z")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    source.put("/w", b"w, second");
    source.remove("/z");
    let log = undated(&source.url("/w"), "updated", b"w, second") + &undated(&source.url("/z"), "deleted", b"");
    source.changes(&log);
    mirror.refreshed();
    agrees(&mirror, &source);
    // Both happen without a report, and a list is made that shows it.
    source.remove("/w");
    source.put("/z", b"z, again");
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
    let entries: String = source.now.iter().map(|(path, bytes)| entry_of(&source.url(path), bytes)).collect();
    source.server.file("/resourcelist.xml", resource_list(&now.to_string(), &entries));
    // An unknown deletion has the lists read, and the log is read once more after them.
    source.changes(&(log + &told(&source.url("/unknown"), "deleted", 30, b"")));
    for _ in 0..2 {
        mirror.refreshed();
        agrees(&mirror, &source);
    }
    is_complete(&mirror);
}

/// A Resource List of all that is there now, without `at`.
fn list_without_time(source: &Source) {
    let entries: String = source.now.iter().map(|(path, bytes)| entry_of(&source.url(path), bytes)).collect();
    source.server.file("/resourcelist.xml", document("resourcelist", "", "", &entries));
}

#[test]
fn a_list_of_unknown_time_undoes_no_change() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    list_without_time(&source);
    source.changes("");
    let mirror = polling(&source, ",relist=1s");
    // The list is made, and changed by what comes after it.
    source.put("/b", b"b, in the list");
    list_without_time(&source);
    let entries = told(&source.url("/b"), "updated", 10, b"b, in the list")
        + &source.does("created", "/y", 20, "y")
        + &source.does("updated", "/a", 30, "a, later");
    source.changes(&entries);
    shows(&mirror, "y", Some(b"y"));
    let asked = source.server.count("/resourcelist.xml");
    mirror.wait("the list is read again", |_| source.server.count("/resourcelist.xml") >= asked + 2);
    mirror.refreshed();
    agrees(&mirror, &source);
    becomes_complete(&mirror);
}

#[test]
fn an_older_list_does_not_undo_what_a_server_was_asked_for_again() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.put("/x", b"x");
    source.changes(&change(&source.url("/x"), "created", &format!("datetime=\"{}\"", at(20))));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    agrees(&mirror, &source);
    // Its bytes change, and nothing that the Source publishes says so.
    source.put("/x", b"x, later");
    mirror.refreshed();
    agrees(&mirror, &source);
    // The same list, in other bytes.
    let list = resource_list(&at(0), &entry_of(&source.url("/a"), b"a"));
    source.server.file("/resourcelist.xml", list.replace("</urlset>", "<!-- again --></urlset>"));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let read = source.server.count("/resourcelist.xml");
    mirror.refreshed();
    assert!(source.server.count("/resourcelist.xml") > read);
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn a_list_of_unknown_time_that_has_changed_corrects_what_was_known_before() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    list_without_time(&source);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    let created = source.does("created", "/y", 20, "y");
    source.changes(&created);
    mirror.refreshed();
    agrees(&mirror, &source);
    mirror.unmount();
    // An hour passes.
    let catalog = rusqlite::Connection::open(mirror.cache.join("catalog.db")).unwrap();
    catalog.execute("UPDATE sync SET time = time - 3600000000000", []).unwrap();
    drop(catalog);
    mirror.try_mount().unwrap();
    // It goes, and no Change List reports that; the same list as before, from before that, is no reason to.
    std::thread::sleep(std::time::Duration::from_secs(1));
    mirror.refreshed();
    agrees(&mirror, &source);
    source.remove("/y");
    source.put("/a", b"a, in a later list");
    list_without_time(&source);
    std::thread::sleep(std::time::Duration::from_secs(1));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn the_open_list_goes_on_to_be_polled_when_its_index_is_written_again() {
    for dated in [false, true] {
        let mut source = Source::start(&[("/a", "a")], &["changelist"]);
        let beside = link("index", &source.url("/changelist.xml"));
        let first = source.does("created", "/b", 5, "b");
        source.server.file("/one.xml", change_list(Some(0), Some(20), &beside, &first));
        source.server.file("/two.xml", change_list(Some(20), None, &beside, ""));
        let publish_index = |source: &Source, edition: usize| {
            let md = |from, until| if dated { interval(Some(from), until) } else { String::new() };
            let lists = [("/one.xml", md(0, Some(20))), ("/two.xml", md(20, None))];
            let index = index(source, "changelist", &interval(Some(0), None), "", &lists);
            source.server.file("/changelist.xml", format!("{index}<!-- {edition} -->"));
        };
        publish_index(&source, 0);
        let mirror = polling(&source, "");
        let mut entries = String::new();
        for (edition, second) in [(1, 30), (2, 40), (3, 50)] {
            entries += &source.does("updated", "/a", second, &format!("at {second}"));
            source.server.file("/two.xml", change_list(Some(20), None, &beside, &entries));
            shows(&mirror, "a", Some(format!("at {second}").as_bytes()));
            publish_index(&source, edition);
            let asked = source.server.count("/changelist.xml");
            mirror.wait("the index is read", |_| source.server.count("/changelist.xml") >= asked + 2);
        }
        agrees(&mirror, &source);
        becomes_complete(&mirror);
    }
}

#[test]
fn a_capability_list_that_is_gone_for_a_moment_moves_no_set() {
    let source = Source::start(&[("/a", "a")], &[]);
    let mirror = opened(&source);
    let other = document("capabilitylist", "", "", &capability(&source.url("/other.xml"), "resourcelist"));
    source.server.file("/other/capabilitylist.xml", other);
    source.server.file("/other.xml", resource_list(&at(0), &entry_of(&source.url("/x"), b"x")));
    let sets = capability(&source.url("/capabilitylist.xml"), "capabilitylist")
        + &capability(&source.url("/other/capabilitylist.xml"), "capabilitylist");
    source.server.file("/.well-known/resourcesync", document("description", "", "", &sets));
    source.server.remove("/capabilitylist.xml");
    let _ = mirror.refresh();
    agrees(&mirror, &source);
    offers(&source, &[("/resourcelist.xml", "resourcelist")]);
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn an_index_that_is_refused_does_not_keep_an_open_list_from_being_followed() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.server.on("/index.xml", |_| Reply::status(403));
    let beside = link("index", &source.url("/index.xml"));
    source.server.file("/changelist.xml", change_list(Some(0), None, &beside, ""));
    let mirror = opened(&source);
    let entries = source.does("updated", "/a", 20, "a, later");
    source.server.file("/changelist.xml", change_list(Some(0), None, &beside, &entries));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
    // The feed is replaced by another.
    let entries = source.does("updated", "/a", 30, "a, still later");
    source.server.file("/other.xml", change_list(Some(0), None, "", &entries));
    offers(&source, &[("/resourcelist.xml", "resourcelist"), ("/other.xml", "changelist")]);
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn what_is_deleted_and_created_at_the_same_time_is_there() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let entries = told(&source.url("/x"), "deleted", 20, b"") + &source.does("created", "/x", 20, "x");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn what_a_list_has_of_the_second_of_two_changes_is_the_version_of_the_later_one() {
    for exact in [true, false] {
        let mut source = Source::start(&[("/a", "a")], &["changelist"]);
        source.changes("");
        let mirror = opened(&source);
        let created = source.does("created", "/b", 48, "first");
        let created = if exact { created } else { undated(&source.url("/b"), "created", b"first") };
        let updated = source.does("updated", "/b", 48, "second");
        source.list(48);
        // The lists tell first.
        source.server.on("/changelist.xml", |_| Reply::ok("<urlset"));
        for _ in 0..3 {
            let _ = mirror.refresh();
        }
        agrees(&mirror, &source);
        source.changes(&(created + &updated));
        for _ in 0..2 {
            mirror.refreshed();
            agrees(&mirror, &source);
            let versions = mirror.log("b");
            let hashes: Vec<&str> = versions.iter().filter_map(|one| one["hash"].as_str()).collect();
            let expected = ["second", "first"].map(|body| format!("sha-256:{}", sha256(body.as_bytes())));
            assert_eq!(hashes, expected, "{versions:#?}");
            assert!(
                !exact || versions[0]["name"] == "20260301T080048Z",
                "no name moves to another version: {versions:#?}"
            );
        }
        is_complete(&mirror);
    }
}

#[test]
fn content_is_not_taken_over_by_a_version_of_another_length() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let md = |more: &str| format!("hash=\"md5:{}\" {more}", crate::support::md5(b"a"));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entry(&source.url("/a"), &md(""))));
    source.changes("");
    let mirror = opened(&source);
    mirror.wait("its content is kept", |status| status["cached"]["resources"] == 1);
    let other = source.does("updated", "/a", 10, "another");
    // The digest of before, and a length that is not that of the bytes which have it.
    source.put("/a", b"a");
    let restored = md(&format!("datetime=\"{}\" length=\"7\"", at(20)));
    source.changes(&(other + &change(&source.url("/a"), "updated", &restored)));
    mirror.refreshed();
    assert_eq!(mirror.stat("a").unwrap().size, 7);
    assert!(mirror.read("a").is_err());
    assert!(mirror.errors().contains("wrong length: 1 bytes where the Source lists 7"), "{}", mirror.errors());
}

#[test]
fn a_change_that_is_dated_to_the_day_counts_on_the_day_of_the_list() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.list(3600);
    source.changes("");
    let mirror = opened(&source);
    source.put("/a", b"a, later that day");
    let facts = facts_of(b"a, later that day");
    let md = format!("datetime=\"{}\" {facts}", &at(0)[..10]);
    source.changes(&change(&source.url("/a"), "updated", &md));
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn changes_that_lie_between_two_closed_lists_are_a_gap_however_new_those_are() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let now = jiff::Timestamp::now();
    let before = |minutes: i64| (now - jiff::SignedDuration::from_mins(minutes)).to_string();
    let list = |from: i64, until: Option<i64>, entries: &str| {
        let until = until.map(|until| format!("until=\"{}\"", before(until))).unwrap_or_default();
        document("changelist", &format!("from=\"{}\" {until}", before(from)), "", entries)
    };
    source.server.file("/resourcelist.xml", resource_list(&before(50), &entry_of(&source.url("/a"), b"a")));
    source.server.file("/one.xml", list(50, Some(25), ""));
    source.server.file("/two.xml", list(15, None, ""));
    source.put("/a", b"a");
    let md = |from: i64, until: Option<i64>| {
        let until = until.map(|until| format!("until=\"{}\"", before(until))).unwrap_or_default();
        format!("from=\"{}\" {until}", before(from))
    };
    let lists = [("/one.xml", md(50, Some(25))), ("/two.xml", md(15, None))];
    let head = format!("from=\"{}\"", before(50));
    source.server.file("/changelist.xml", index(&source, "changelist", &head, "", &lists));
    let mirror = Mirror::mount(&source.url("/"), "poll=3600");
    assert_eq!(state(&mirror), "gap");
}

#[test]
fn further_sets_above_what_a_page_links_to_are_reported() {
    let source = Source::start(&[("/a", "a")], &[]);
    let sets = capability(&source.url("/capabilitylist.xml"), "capabilitylist")
        + &capability(&source.url("/other/capabilitylist.xml"), "capabilitylist");
    source.server.remove("/.well-known/resourcesync");
    source.server.file("/description.xml", document("description", "", "", &sets));
    let list = capability(&source.url("/resourcelist.xml"), "resourcelist");
    let up = link("up", &source.url("/description.xml"));
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", &up, &list));
    source.server.on("/", |_| {
        Reply::ok("<!DOCTYPE html><link rel=resourcesync href=/capabilitylist.xml>").with("Content-Type", "text/html")
    });
    let mirror = opened(&source);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("1 further set") && warnings.contains("description.xml"), "{warnings}");
}

#[test]
fn a_relative_link_is_resolved_against_its_document() {
    let source = Source::start(&[("/deep/a", "a")], &[]);
    source.server.file("/lists/copies/a", "a");
    source.server.on("/deep/a", |_| Reply::status(404));
    let entry =
        entry_of(&source.url("/deep/a"), b"a").replace("</url>", "<rs:ln rel=\"duplicate\" href=\"copies/a\"/></url>");
    source.server.file("/lists/resourcelist.xml", resource_list(&at(0), &entry));
    offers(&source, &[("/lists/resourcelist.xml", "resourcelist")]);
    let mirror = opened(&source);
    assert_eq!(source.server.count("/lists/copies/a"), 1);
    drop(mirror);
}

#[test]
fn a_page_in_place_of_a_listed_file_is_an_error_that_names_it() {
    let source = Source::start(&[("/a.pdf", "a"), ("/b.pdf", "b")], &[]);
    let page = |status: u16, challenge: bool| {
        move |_: &crate::support::server::Request| {
            let reply = Reply { status, ..Reply::ok("<!DOCTYPE html><title>Are you human?</title>") };
            let reply = reply.with("Content-Type", "text/html");
            if challenge { reply.with("cf-mitigated", "challenge") } else { reply }
        }
    };
    source.server.on("/a.pdf", page(200, false));
    source.server.on("/b.pdf", page(403, true));
    let md = "type=\"application/pdf\"";
    let entries = ["/a.pdf", "/b.pdf"].map(|path| entry(&source.url(path), md)).concat();
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entries));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=3");
    assert!(mirror.read("a.pdf").is_err() && mirror.read("b.pdf").is_err());
    let errors = mirror.errors();
    assert!(errors.contains("HTML page where application/pdf is listed"), "{errors}");
    assert!(errors.contains("challenge of Cloudflare"), "{errors}");
}

#[test]
fn one_body_for_files_of_several_formats_is_an_error_whatever_its_type_is_said_to_be() {
    let source = Source::start(&[("/x.txt", "x")], &[]);
    let serve = |path: &str, body: &'static str| {
        source.server.on(path, move |_| Reply::ok(body).with("Content-Type", "application/octet-stream"));
    };
    serve("/page.pdf", "<html><title>Are you human?</title>");
    for path in ["/one.pdf", "/two.jpg", "/three.zip"] {
        serve(path, "access denied, try again later");
    }
    serve("/same.png", "the same picture");
    serve("/again.png", "the same picture");
    let paths = ["/page.pdf", "/one.pdf", "/two.jpg", "/three.zip", "/same.png", "/again.png"];
    let entries = paths.map(|path| entry(&source.url(path), "")).concat();
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entries));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=3");
    assert!(mirror.read("page.pdf").is_err());
    assert!(mirror.errors().contains("HTML page where a .pdf file is listed"), "{}", mirror.errors());
    // The first alone tells nothing; with the second it does, of both.
    assert!(mirror.read("one.pdf").is_ok());
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(mirror.read("two.jpg").is_err() && mirror.read("three.zip").is_err());
    assert!(mirror.errors().contains("a file of another format"), "{}", mirror.errors());
    assert_eq!(mirror.read("same.png").unwrap(), mirror.read("again.png").unwrap());
    std::thread::sleep(std::time::Duration::from_millis(1000));
    let kept = |path: &&String| mirror.log(path).iter().any(|version| version["cached"] == true);
    assert_eq!(
        mirror.ever().iter().filter(kept).collect::<Vec<_>>(),
        ["again.png", "same.png"],
        "what came in place of files is not kept"
    );
}

#[test]
fn a_document_that_cannot_be_had_is_asked_for_five_times_at_most() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    source.server.on("/changelist.xml", |_| Reply::status(500));
    let before = source.server.count("/changelist.xml");
    let _ = mirror.refresh();
    assert_eq!(source.server.count("/changelist.xml") - before, 5);
    // What a list links to on a host that is down costs no more than the first look at that.
    let dead = |number: u16| link("up", &format!("http://localhost:9/{number}"));
    for number in 0..3 {
        let entries = source.does("updated", "/a", 10 + u64::from(number), &format!("a, {number}"));
        source.server.file("/changelist.xml", change_list(Some(0), Some(20), &dead(number), &entries));
        let began = Instant::now();
        let _ = mirror.refresh();
        agrees(&mirror, &source);
        let most = Duration::from_secs(if number == 0 { 20 } else { 4 });
        assert!(began.elapsed() < most, "{:?}", began.elapsed());
    }
}

#[test]
fn a_page_with_the_validators_of_a_document_is_not_taken_for_it_for_ever() {
    let source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let sets = capability(&source.url("/capabilitylist.xml"), "capabilitylist");
    let description = document("description", "", "", &sets) + "<!-- written again -->";
    let is_walled = Arc::new(AtomicBool::new(true));
    let own = Arc::clone(&is_walled);
    source.server.on("/.well-known/resourcesync", move |request| {
        let reply = Reply::good(request, description.as_bytes());
        match own.load(Ordering::SeqCst) && reply.status == 200 {
            true => Reply { body: b"<!DOCTYPE html><title>Are you human?</title>".to_vec(), ..reply },
            false => reply,
        }
    });
    let _ = mirror.refresh();
    is_walled.store(false, Ordering::SeqCst);
    mirror.refreshed();
    is_complete(&mirror);
}

#[test]
fn lists_that_cannot_be_read_do_not_keep_changes_from_being_followed() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = polling(&source, ",relist=1s,timeout=2");
    source.server.on("/resourcelist.xml", |_| Reply::status(503));
    let entries = source.does("updated", "/a", 20, "a, later");
    source.changes(&entries);
    shows(&mirror, "a", Some(b"a, later"));
}

#[test]
fn a_version_that_is_dated_before_the_last_one_leaves_those_before_it_as_they_were() {
    // A Resource List and an undated change arrive in one sync, twice; the second time with the time of a restored file.
    let mut source = Source::start(&[("/a", "one")], &["changelist"]);
    let url = source.url("/a");
    let listed = |second: u64, modified: u64, text: &str| {
        let facts = facts_of(text.as_bytes());
        let entry = format!("<url><loc>{url}</loc><lastmod>{}</lastmod><rs:md {facts}/></url>\n", at(modified));
        resource_list(&at(second), &entry)
    };
    source.server.file("/resourcelist.xml", listed(20, 10, "one"));
    source.server.file("/changelist.xml", change_list(None, None, "", ""));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    agrees(&mirror, &source);
    for (second, modified, text) in [(30, 25, "two"), (40, 5, "six")] {
        source.put("/a", text.as_bytes());
        let change = self::modified(&url, "updated", modified, text.as_bytes());
        source.server.file("/changelist.xml", change_list(None, None, "", &change));
        source.server.file("/resourcelist.xml", listed(second, modified, text));
        // relist= has passed.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        mirror.refreshed();
        agrees(&mirror, &source);
    }
    // No two versions end when the current one begins.
    let versions = mirror.log("a");
    let ends =
        |version: &&serde_json::Value| version["until"] == versions[0]["begin"] && version["begin"] != version["until"];
    assert_eq!(versions.iter().filter(ends).count(), 1, "{versions:#?}");
}

#[test]
fn lists_that_all_begin_at_the_same_time_are_all_read() {
    // rspub-core gives each Change List the `from` of the first one, and leaves all of them open. Two lists are new in one sync.
    for is_mounted_late in [false, true] {
        let mut source = Source::start(&[("/a", "a")], &["changelist"]);
        let lists = [
            source.does("created", "/b", 5, "b"),
            source.does("created", "/c", 15, "c"),
            source.does("created", "/d", 25, "d"),
        ];
        let publish = |source: &Source, count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("/list{number}.xml")).collect();
            let beside = link("index", &source.url("/changes.xml"));
            for (name, entries) in names.iter().zip(&lists) {
                source.server.file(name, change_list(Some(0), None, &beside, entries));
            }
            let parts: Vec<(&str, String)> =
                names.iter().map(|name| (name.as_str(), interval(Some(0), None))).collect();
            let document = index(source, "changelist", &interval(Some(0), None), "", &parts);
            source.server.file("/changes.xml", document);
            offers(source, &[("/resourcelist.xml", "resourcelist"), ("/changes.xml", "changelist")]);
        };
        publish(&source, if is_mounted_late { 3 } else { 1 });
        let mirror = Mirror::mount(&source.url("/"), "poll=0");
        publish(&source, 3);
        mirror.refreshed();
        agrees(&mirror, &source);
        is_complete(&mirror);
    }
}

#[test]
fn an_entry_that_cannot_be_used_still_moves_the_cursor() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    // The URI is longer than any that gets a path.
    let url = source.url(&format!("/{}", "x".repeat(9000)));
    let unusable = change(&url, "updated", &format!("datetime=\"{}\"", at(50)));
    source.changes(&unusable);
    let mirror = opened(&source);
    mirror.refreshed();
    // The next list begins after what the cursor was before.
    let entries = source.does("updated", "/a", 60, "a, later");
    source.server.file("/changelist.xml", change_list(Some(45), None, "", &entries));
    mirror.refreshed();
    agrees(&mirror, &source);
    is_complete(&mirror);
}

#[test]
fn a_list_that_is_dated_later_than_it_was_sent_is_warned_of() {
    let source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    source.list(next_second() + 7200);
    let mirror = opened(&source);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("are taken for known"), "{warnings}");
}

#[test]
fn a_change_that_is_not_told_any_more_has_the_lists_read() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let told = ["/b", "/c", "/d"].map(|path| {
        source.put(path, path.as_bytes());
        modified(&source.url(path), "created", 10, path.as_bytes())
    });
    source.changes(&told.concat());
    let mirror = opened(&source);
    // One in the middle of the list does not slide out of it: it was taken back, and the lists know what is there.
    source.remove("/c");
    source.list(next_second());
    source.changes(&(told[0].clone() + &told[2]));
    mirror.refreshed();
    assert_eq!(mirror.files(), ["a", "b", "d"]);
    // The first one does, and its resource is there still, whatever a newer list says that nobody asked for.
    source.list(next_second());
    source.changes(&told[2]);
    let asked = source.server.count("/resourcelist.xml");
    mirror.refreshed();
    assert_eq!(
        (mirror.files(), source.server.count("/resourcelist.xml")),
        (vec!["a".into(), "b".into(), "d".into()], asked)
    );
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn a_quiet_poll_is_one_request_and_looks_at_the_top_hourly() {
    let source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=1");
    let asked = |from: usize| -> Vec<String> {
        source.server.requests()[from..].iter().map(|request| request.path.clone()).collect()
    };
    let polls = |most: usize| {
        let from = source.server.requests().len();
        let began = Instant::now();
        while asked(from).iter().filter(|path| *path == "/changelist.xml").count() < most {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", asked(from));
            std::thread::sleep(Duration::from_millis(50));
        }
        asked(from)
    };
    assert_eq!(polls(3), ["/changelist.xml"; 3]);
    // An hour goes by.
    let then = jiff::Timestamp::now().as_nanosecond() - 3_601_000_000_000;
    let noted = rusqlite::Connection::open(mirror.cache.join("catalog.db")).unwrap();
    noted.busy_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(noted.execute("UPDATE meta SET value = ?1 WHERE key = 'discovered'", [then.to_string()]).unwrap(), 1);
    let from = source.server.requests().len();
    polls(3);
    let (asked, all) = (asked(from), source.server.requests());
    let of_the_top = ["/.well-known/resourcesync", "/capabilitylist.xml"];
    for path in of_the_top {
        assert_eq!(asked.iter().filter(|one| *one == path).count(), 1, "{asked:?}");
    }
    let conditional = all[from..].iter().filter(|one| of_the_top.contains(&one.path.as_str()));
    assert!(
        conditional.clone().all(|one| one.header("if-none-match").is_some()),
        "{:?}",
        conditional.collect::<Vec<_>>()
    );
}
