//! What a Source does not tell for a while is missed, and the state says so until it is made up for: never `complete` where the tree
//! is not what is published.

use std::time::Duration;

use crate::support::changes::{Source, agrees, at, change, change_index, change_list, link, next_second, opened};
use crate::support::opened::Mirror;
use crate::support::server::Reply;
use crate::support::{capability, document, entry, facts_of, resource_list};

const PAGE: &str = "<!DOCTYPE html><html><body>Sorry</body></html>";
const LIST: (&str, &str) = ("/resourcelist.xml", "resourcelist");
const CHANGES: (&str, &str) = ("/changelist.xml", "changelist");
const MORE: (&str, &str) = ("/more.xml", "changelist");

/// What the Capability List has.
fn offers(source: &Source, documents: &[(&str, &str)]) {
    let entries: String = documents.iter().map(|(path, name)| capability(&source.url(path), name)).collect();
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
}

/// A Change List without an interval, of changes without times.
fn undated(source: &Source, changes: &[(&str, &str)]) -> String {
    let told = |(path, kind): &(&str, &str)| change(&source.url(path), kind, &facts_of(&source.now[*path]));
    document("changelist", "", "", &changes.iter().map(told).collect::<String>())
}

/// A Source of two files with two Change Lists, and its mount.
fn two_lists() -> (Source, Mirror) {
    let source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    offers(&source, &[LIST, CHANGES, MORE]);
    source.changes("");
    source.server.file("/more.xml", change_list(Some(0), None, "", ""));
    let mirror = opened(&source);
    (source, mirror)
}

#[track_caller]
fn is_behind(mirror: &Mirror) {
    let _ = mirror.refresh();
    is_behind_now(mirror);
}

#[track_caller]
fn is_behind_now(mirror: &Mirror) {
    let status = mirror.status();
    assert!(status["state"] == "partial" || status["state"] == "gap", "{status:#}");
}

#[track_caller]
fn is_complete(mirror: &Mirror, source: &Source) {
    mirror.refreshed();
    agrees(mirror, source);
    let status = mirror.status();
    assert_eq!(status["state"], "complete", "{status:#}");
}

#[test]
fn a_change_list_that_fails_beside_a_busy_one_is_missed() {
    let (mut source, mirror) = two_lists();
    source.server.on("/more.xml", |_| Reply::status(403));
    source.put("/b", b"b, unseen");
    let mut all = String::new();
    for second in 10..13 {
        all += &source.does("updated", "/a", second, &format!("a, at {second}"));
        source.changes(&all);
        is_behind(&mirror);
    }
    assert!(mirror.status()["reason"].to_string().contains("403"), "{:#}", mirror.status());
    // Whatever ends the daemon.
    mirror.kill();
    mirror.try_mount().unwrap();
    is_behind_now(&mirror);
    let told = change(&source.url("/b"), "updated", &format!("datetime=\"{}\" {}", at(20), facts_of(b"b, unseen")));
    source.server.file("/more.xml", change_list(Some(0), None, "", &told));
    is_complete(&mirror, &source);
}

#[test]
fn a_gap_stays_one_while_its_change_list_fails() {
    for code in [403, 404, 500, 503] {
        let (mut source, mirror) = two_lists();
        source.put("/a", b"a, second");
        source.server.file("/changelist.xml", undated(&source, &[("/a", "updated")]));
        is_complete(&mirror, &source);
        source.put("/b", b"b, unseen");
        source.put("/c", b"c");
        let window = undated(&source, &[("/c", "created")]);
        source.server.file("/changelist.xml", window.clone());
        is_behind(&mirror);
        source.server.on("/changelist.xml", move |_| Reply::status(code));
        is_behind(&mirror);
        source.server.file("/changelist.xml", window);
        is_behind(&mirror);
        is_behind(&mirror);
        source.list(next_second() + 1);
        is_complete(&mirror, &source);
    }
}

#[test]
fn a_set_that_fails_beside_another_is_not_complete() {
    let source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    for (number, path) in [(1, "/a"), (2, "/b")] {
        let documents = [("l", "resourcelist"), ("c", "changelist")];
        let urls = documents.map(|(name, kind)| capability(&source.url(&format!("/{name}{number}.xml")), kind));
        source.server.file(&format!("/cap{number}.xml"), document("capabilitylist", "", "", &urls.concat()));
        let list = resource_list(&at(0), &entry(&source.url(path), &facts_of(&source.now[path])));
        source.server.file(&format!("/l{number}.xml"), list);
        source.server.file(&format!("/c{number}.xml"), change_list(Some(0), None, "", ""));
    }
    let sets = [1, 2].map(|number| capability(&source.url(&format!("/cap{number}.xml")), "capabilitylist")).concat();
    source.server.file("/.well-known/resourcesync", document("description", "", "", &sets));
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    assert_eq!(mirror.status()["state"], "complete");
    for code in [500, 403] {
        source.server.on("/c2.xml", move |_| Reply::status(code));
        is_behind(&mirror);
        let status = mirror.status();
        let states: Vec<_> =
            status["sets"].as_array().unwrap().iter().map(|set| set["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["complete", "partial"], "{status:#}");
    }
    source.server.file("/c2.xml", change_list(Some(0), None, "", ""));
    mirror.refreshed();
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn lists_that_are_due_and_cannot_be_read_are_missed() {
    for code in [404, 500, 200] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
        source.changes("");
        let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1");
        source.remove("/b");
        match code {
            200 => source.server.file("/resourcelist.xml", PAGE),
            code => source.server.on("/resourcelist.xml", move |_| Reply::status(code)),
        }
        std::thread::sleep(Duration::from_millis(1100));
        is_behind(&mirror);
        is_behind(&mirror);
        source.list(next_second());
        is_complete(&mirror, &source);
    }
}

#[test]
fn what_was_withdrawn_is_in_doubt_until_lists_are_read() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    for path in ["/b", "/c", "/d"] {
        source.put(path, path.as_bytes());
    }
    let told = |source: &Source, paths: &[&str]| {
        undated(source, &paths.iter().map(|path| (*path, "created")).collect::<Vec<_>>())
    };
    source.server.file("/changelist.xml", told(&source, &["/b", "/c", "/d"]));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=0");
    agrees(&mirror, &source);
    source.remove("/c");
    source.server.file("/changelist.xml", told(&source, &["/b", "/d"]));
    source.server.on("/resourcelist.xml", |_| Reply::status(500));
    is_behind(&mirror);
    is_behind(&mirror);
    source.list(next_second());
    is_complete(&mirror, &source);
}

#[test]
fn a_change_list_that_is_offered_no_more_is_missed() {
    for is_gone_first in [false, true] {
        let (mut source, mirror) = two_lists();
        source.server.remove("/more.xml");
        source.put("/b", b"b, unseen");
        if is_gone_first {
            is_behind(&mirror);
        }
        offers(&source, &[LIST, CHANGES]);
        is_behind(&mirror);
        // Nor does news of the other make up for it.
        let first = source.does("updated", "/a", 10, "a, anew");
        source.changes(&first);
        is_behind(&mirror);
        source.list(next_second());
        is_complete(&mirror, &source);
    }
}

#[test]
fn one_change_list_that_became_two_is_missed() {
    let (mut source, mirror) = two_lists();
    offers(&source, &[LIST, CHANGES]);
    source.list(next_second());
    is_behind(&mirror);
    source.list(next_second());
    is_complete(&mirror, &source);
    source.put("/b", b"b, unseen");
    source.put("/c", b"c");
    source.server.remove("/changelist.xml");
    source.server.file("/one.xml", undated(&source, &[("/c", "created")]));
    source.server.file("/two.xml", undated(&source, &[]));
    offers(&source, &[LIST, ("/one.xml", "changelist"), ("/two.xml", "changelist")]);
    is_behind(&mirror);
}

#[test]
fn one_newer_list_of_two_makes_up_for_nothing() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    offers(&source, &[LIST, ("/list.xml", "resourcelist"), CHANGES]);
    let list = |source: &Source, path: &str, second: u64| {
        resource_list(&at(second), &entry(&source.url(path), &facts_of(&source.now[path])))
    };
    source.server.file("/resourcelist.xml", list(&source, "/a", 0));
    source.server.file("/list.xml", list(&source, "/b", 0));
    source.changes("");
    let mirror = opened(&source);
    source.put("/b", b"b, unseen");
    source.server.remove("/changelist.xml");
    is_behind(&mirror);
    source.server.file("/resourcelist.xml", list(&source, "/a", next_second()));
    is_behind(&mirror);
    is_behind(&mirror);
    let second = next_second();
    source.server.file("/resourcelist.xml", list(&source, "/a", second));
    source.server.file("/list.xml", list(&source, "/b", second));
    is_complete(&mirror, &source);
}

#[test]
fn the_same_list_without_a_time_makes_up_for_nothing() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let publish = |source: &Source| {
        let entries = source.now.iter().map(|(path, bytes)| entry(&source.url(path), &facts_of(bytes)));
        let list = document("resourcelist", "", "", &entries.collect::<String>());
        // Without validators.
        source.server.on("/resourcelist.xml", move |_| Reply::ok(list.clone()).with("Content-Type", "application/xml"));
    };
    publish(&source);
    source.changes("");
    let mirror = opened(&source);
    source.server.remove("/changelist.xml");
    source.put("/b", b"b, unseen");
    for _ in 0..3 {
        is_behind(&mirror);
    }
    publish(&source);
    is_complete(&mirror, &source);
}

#[test]
fn an_index_that_was_there_beside_an_open_list_is_missed() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let index = |source: &Source, lists: &[&str]| {
        let lists: Vec<_> = lists.iter().map(|list| (source.url(list), Some(0), None)).collect();
        source.server.file("/index.xml", change_index(0, &lists));
    };
    let links = link("index", &source.url("/index.xml"));
    let first = source.does("updated", "/a", 10, "a, anew");
    source.server.file("/changelist.xml", change_list(Some(0), None, &links, &first));
    index(&source, &["/changelist.xml"]);
    let mirror = opened(&source);
    is_complete(&mirror, &source);
    let second = source.does("updated", "/b", 20, "b, anew");
    source.server.file("/second.xml", change_list(Some(0), None, &links, &second));
    for code in [200, 404, 403] {
        match code {
            200 => source.server.file("/index.xml", PAGE),
            404 => source.server.remove("/index.xml"),
            code => source.server.on("/index.xml", move |_| Reply::status(code)),
        }
        is_behind(&mirror);
    }
    index(&source, &["/changelist.xml", "/second.xml"]);
    is_complete(&mirror, &source);
}

/// Publishes two Change Lists below an index: one that ended at second 25, and one that goes on `from` then.
fn two_in_an_index(source: &Source, first: &str, from: u64, second: &str) {
    source.server.file("/1.xml", change_list(Some(0), Some(25), "", first));
    source.server.file("/2.xml", change_list(Some(from), None, "", second));
    let lists = [(source.url("/1.xml"), Some(0), Some(25)), (source.url("/2.xml"), Some(from), None)];
    source.server.file("/changelist.xml", change_index(0, &lists));
}

/// A Source with an empty Change List, and a mirror of it that reads the lists with each sync from a second on.
fn with_lists_due(files: &[(&str, &str)], more: &str) -> (Source, Mirror) {
    let source = Source::start(files, &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,relist=1s{more}"));
    (source, mirror)
}

fn refreshed_when_due(mirror: &Mirror) {
    std::thread::sleep(Duration::from_millis(1200));
    let _ = mirror.refresh();
}

/// The contents of the versions of a file, from the oldest to the newest.
fn versions(mirror: &Mirror, path: &str) -> Vec<String> {
    let mut all: Vec<String> = mirror.log(path).iter().map(|one| one["hash"].to_string()).collect();
    all.reverse();
    all
}

fn hashes(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| format!("\"sha-256:{}\"", crate::support::sha256(text.as_bytes()))).collect()
}

#[test]
fn what_changes_tell_is_kept_where_lists_are_due_as_well() {
    let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/b", "b")], "");
    let mut all = source.does("updated", "/a", 10, "a, second");
    all += &source.does("updated", "/a", 20, "a, third");
    all += &source.does("created", "/c", 21, "c");
    all += &source.does("deleted", "/c", 22, "");
    source.changes(&all);
    source.list(30);
    std::thread::sleep(Duration::from_millis(1200));
    is_complete(&mirror, &source);
    assert_eq!(versions(&mirror, "a"), hashes(&["a", "a, second", "a, third"]));
    assert_eq!(versions(&mirror, "c"), hashes(&["c"]));
}

#[test]
fn what_a_change_list_told_while_it_was_gone_is_known_when_it_is_back() {
    for (is_index, lists_are_newer) in [(false, true), (false, false), (true, true)] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
        let publish = |source: &Source, first: &str, second: &str| {
            if !is_index {
                return source.changes(&format!("{first}{second}"));
            }
            two_in_an_index(source, first, 25, second);
        };
        source.changes("");
        let mirror = opened(&source);
        let mut first = source.does("updated", "/a", 10, "a, second");
        first += &source.does("created", "/c", 21, "c");
        first += &source.does("deleted", "/c", 22, "");
        let mut second = source.does("updated", "/a", 26, "a, third");
        source.list(if lists_are_newer { next_second() + 1 } else { 30 });
        source.server.remove("/changelist.xml");
        is_behind(&mirror);
        let _ = mirror.refresh();
        agrees(&mirror, &source);
        second += &source.does("created", "/d", crate::support::changes::clock() + 2, "d");
        publish(&source, &first, &second);
        std::thread::sleep(Duration::from_secs(3));
        is_complete(&mirror, &source);
        assert_eq!(versions(&mirror, "a"), hashes(&["a", "a, second", "a, third"]));
        assert_eq!(versions(&mirror, "c"), hashes(&["c"]));
        // Once the history has them, the changes before the lists are not requested again.
        let before = source.server.count("/1.xml");
        let sync = mirror.refreshed();
        assert_eq!(source.server.count("/1.xml"), before, "{sync:?}");
        is_complete(&mirror, &source);
    }
}

/// The content of a file, and why the set is not complete, for the log of a test.
fn content_and_reason(mirror: &Mirror, path: &str) -> String {
    let text = mirror.read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    format!("{path}: {text:?}, {}", mirror.status()["reason"])
}

#[test]
fn an_old_change_list_that_cannot_be_read_keeps_nothing_back_that_is_newer_than_the_lists() {
    for is_left in [false, true] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
        source.changes("");
        let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=6s");
        let _ = source.does("updated", "/a", 10, "a, second");
        if is_left {
            // Before the lists are due.
            source.list(crate::support::changes::clock() + 2);
            source.server.remove("/changelist.xml");
            is_behind(&mirror);
            let _ = mirror.refresh();
            std::thread::sleep(Duration::from_secs(6));
        }
        two_in_an_index(&source, "", 25, "");
        source.server.on("/1.xml", |_| Reply::status(410));
        if !is_left {
            is_behind(&mirror);
        }
        source.list(crate::support::changes::clock());
        std::thread::sleep(Duration::from_secs(6));
        let _ = mirror.refresh();
        let _ = mirror.refresh();
        let news = source.does("updated", "/b", crate::support::changes::clock() + 2, "b, second");
        source.server.file("/2.xml", change_list(Some(25), None, "", &news));
        std::thread::sleep(Duration::from_secs(6));
        let _ = mirror.refresh();
        eprintln!("left: {is_left}; {}", content_and_reason(&mirror, "b"));
        is_complete(&mirror, &source);
        let before = source.server.count("/1.xml");
        is_complete(&mirror, &source);
        assert_eq!(source.server.count("/1.xml"), before, "it is asked for again and again");
    }
}

/// A package of a Change Dump with one update.
fn package(source: &Source, (path, text): (&str, &str), second: u64, (from, until): (u64, u64)) -> Vec<u8> {
    let item = crate::support::dump::Item::new(&source.url(path), text.as_bytes());
    let more = format!("datetime=\"{}\" path=\"{}\" {}", at(second), item.path, facts_of(text.as_bytes()));
    let entries = change(&item.uri, "updated", &more);
    let interval = crate::support::changes::interval(Some(from), Some(until));
    crate::support::dump::package_with(&document("changedump-manifest", &interval, "", &entries), &[item])
}

/// Publishes a Change Dump of packages: path, from, until, length.
fn change_dump(source: &Source, packages: &[(&str, u64, u64, usize)]) {
    let entries: String = packages
        .iter()
        .map(|(path, from, until, length)| {
            let interval = crate::support::changes::interval(Some(*from), Some(*until));
            entry(&source.url(path), &format!("{interval} length=\"{length}\""))
        })
        .collect();
    let interval = crate::support::changes::interval(Some(0), None);
    source.server.file("/changedump.xml", document("changedump", &interval, "", &entries));
}

#[test]
fn an_old_package_that_cannot_be_had_keeps_nothing_back_that_is_newer_than_the_lists() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changedump"]);
    let _ = source.does("updated", "/a", 3, "a, first");
    let zero = package(&source, ("/a", "a, first"), 3, (0, 5));
    source.server.file("/p0.zip", zero.clone());
    change_dump(&source, &[("/p0.zip", 0, 5, zero.len())]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    let _ = source.does("updated", "/a", 10, "a, second");
    source.server.on("/p1.zip", |_| Reply::status(410));
    change_dump(&source, &[("/p0.zip", 0, 5, zero.len()), ("/p1.zip", 5, 25, 500)]);
    is_behind(&mirror);
    source.list(crate::support::changes::clock());
    refreshed_when_due(&mirror);
    let _ = mirror.refresh();
    let second = crate::support::changes::clock() + 2;
    let _ = source.does("updated", "/b", second, "b, second");
    std::thread::sleep(Duration::from_secs(3));
    let two = package(&source, ("/b", "b, second"), second, (25, second + 1));
    source.server.file("/p2.zip", two.clone());
    let packages = [("/p0.zip", 0, 5, zero.len()), ("/p1.zip", 5, 25, 500), ("/p2.zip", 25, second + 1, two.len())];
    change_dump(&source, &packages);
    let _ = mirror.refresh();
    eprintln!("{}", content_and_reason(&mirror, "b"));
    is_complete(&mirror, &source);
}

#[test]
fn changes_without_times_before_what_is_older_than_the_lists_are_not_applied_again() {
    for is_gone in [true, false] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
        source.changes("");
        let mirror = Mirror::mount(&source.url("/"), if is_gone { "poll=0" } else { "poll=0,relist=1s" });
        if is_gone {
            source.server.remove("/changelist.xml");
            is_behind(&mirror);
        }
        let mut all = change(&source.url("/c"), "deleted", "");
        all += &source.does("created", "/c", 20, "c, again");
        // The lists alone tell of it.
        source.put("/silent", b"silent");
        source.list(if is_gone { next_second() + 1 } else { 30 });
        let _ = is_gone.then(|| mirror.refresh());
        std::thread::sleep(Duration::from_secs(2));
        if is_gone {
            let _ = mirror.refresh();
            agrees(&mirror, &source);
        }
        source.changes(&all);
        is_complete(&mirror, &source);
        std::thread::sleep(Duration::from_millis(1200));
        is_complete(&mirror, &source);
    }
}

#[test]
fn what_was_left_and_came_back_unreadable_is_missed_when_it_goes_again() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    source.server.remove("/changelist.xml");
    is_behind(&mirror);
    source.list(next_second() + 1);
    let _ = mirror.refresh();
    std::thread::sleep(Duration::from_secs(2));
    is_complete(&mirror, &source);
    source.put("/b", b"b, unseen");
    source.server.file("/changelist.xml", PAGE);
    is_behind(&mirror);
    source.server.remove("/changelist.xml");
    is_behind(&mirror);
}

#[test]
fn changes_without_times_are_one_version_each_where_lists_are_due() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.server.file("/changelist.xml", undated(&source, &[]));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    std::thread::sleep(Duration::from_millis(1200));
    source.put("/a", b"a, second");
    source.list(30);
    let first = undated(&source, &[("/a", "updated")]);
    source.put("/a", b"a, third");
    let third = change(&source.url("/a"), "updated", &facts_of(b"a, third"));
    source.server.file("/changelist.xml", first.replace("</urlset>", &format!("{third}</urlset>")));
    is_complete(&mirror, &source);
    std::thread::sleep(Duration::from_millis(1200));
    is_complete(&mirror, &source);
    assert_eq!(versions(&mirror, "a"), hashes(&["a", "a, second", "a, third"]));
}

#[test]
fn what_happened_before_the_first_list_is_not_told_anew_with_each_list() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let old = |kind: &str, second: u64| -> String {
        (0..100)
            .map(|number| crate::support::changes::told(&source.url(&format!("/old/{number}")), kind, second, b"old"))
            .collect()
    };
    let all = old("created", 10) + &old("deleted", 20);
    source.list(30);
    source.changes(&all);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    source.put("/silent", b"silent");
    source.list(40);
    std::thread::sleep(Duration::from_millis(1200));
    is_complete(&mirror, &source);
    assert_eq!(mirror.versions(), 3);
}

#[test]
fn what_was_told_while_nobody_could_read_it_is_told_once() {
    let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/s", "s")], "");
    let mut all = source.does("updated", "/a", 10, "a, second");
    for second in [21, 23] {
        all += &source.does("created", "/c", second, "c");
        all += &source.does("deleted", "/c", second + 1, "");
    }
    all += &source.does("updated", "/a", 26, "a, third");
    source.server.remove("/changelist.xml");
    is_behind(&mirror);
    source.list(next_second() + 1);
    std::thread::sleep(Duration::from_millis(2200));
    let _ = mirror.refresh();
    is_complete(&mirror, &source);
    source.changes(&all);
    for round in 0..3 {
        is_complete(&mirror, &source);
        assert_eq!(versions(&mirror, "a"), hashes(&["a", "a, second", "a, third"]), "round {round}");
        assert_eq!(versions(&mirror, "c"), hashes(&["c", "c"]), "round {round}");
        source.put("/s", format!("s {round}").as_bytes());
        source.list(next_second());
        std::thread::sleep(Duration::from_millis(1200));
    }
}

#[test]
fn changes_without_times_of_a_list_that_ended_before_the_lists_change_nothing() {
    for has_time in [false, true] {
        let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/b", "b")], "");
        source.put("/a", b"a, second");
        let mut first = change(&source.url("/a"), "updated", &facts_of(b"a, second"));
        first += &change(&source.url("/gone"), "created", &facts_of(b"gone"));
        let mut second = source.does("updated", "/a", 27, "a, third");
        second += &crate::support::changes::told(&source.url("/gone"), "deleted", 28, b"");
        two_in_an_index(&source, &first, 25, if has_time { &second } else { "" });
        source.list(30);
        refreshed_when_due(&mirror);
        is_complete(&mirror, &source);
    }
}

#[test]
fn changes_without_times_of_a_package_that_ended_before_the_lists_change_nothing() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changedump"]);
    let zero = package(&source, ("/b", "b"), 3, (0, 5));
    source.server.file("/p0.zip", zero.clone());
    change_dump(&source, &[("/p0.zip", 0, 5, zero.len())]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,relist=1s");
    let item = crate::support::dump::Item::new(&source.url("/a"), b"a, second");
    let entries = change(&item.uri, "updated", &format!("path=\"{}\" {}", item.path, facts_of(b"a, second")));
    let interval = crate::support::changes::interval(Some(5), Some(25));
    let one = crate::support::dump::package_with(&document("changedump-manifest", &interval, "", &entries), &[item]);
    source.server.file("/p1.zip", one.clone());
    change_dump(&source, &[("/p0.zip", 0, 5, zero.len()), ("/p1.zip", 5, 25, one.len())]);
    source.put("/a", b"a, third");
    source.list(30);
    refreshed_when_due(&mirror);
    is_complete(&mirror, &source);
}

#[test]
fn what_ended_before_the_lists_is_not_read_again_while_there_is_a_gap() {
    let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/b", "b")], "");
    let first = source.does("updated", "/a", 10, "a, second");
    two_in_an_index(&source, &first, 40, "");
    source.list(30);
    refreshed_when_due(&mirror);
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "gap");
    let before = source.server.count("/1.xml");
    for _ in 0..3 {
        let _ = mirror.refresh();
    }
    assert_eq!(source.server.count("/1.xml"), before);
}

#[test]
fn the_history_never_takes_what_a_limit_leaves_to_the_tree() {
    let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/b", "b")], ",limit_names=1000");
    let mut all = String::new();
    for number in 0..1200 {
        all += &crate::support::changes::told(&source.url(&format!("/t/{number}")), "created", 10, b"t");
        all += &crate::support::changes::told(&source.url(&format!("/t/{number}")), "deleted", 12, b"");
    }
    source.list(30);
    all += &source.does("updated", "/a", 40, "a, second");
    source.changes(&all);
    refreshed_when_due(&mirror);
    is_complete(&mirror, &source);
    let status = mirror.status().to_string();
    assert!(status.contains("are missing from the history: they have no hash, the resource has too many versions, or limit_names is reached"), "{status}");
}

#[test]
fn a_change_that_nothing_tells_from_the_version_of_the_lists_is_not_another() {
    for facts in ["", "length=\"9\""] {
        let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/s", "s")], "");
        source.put("/a", b"a, second");
        source.changes(&change(&source.url("/a"), "updated", &format!("datetime=\"{}\" {facts}", at(20))));
        source.list(30);
        refreshed_when_due(&mirror);
        is_complete(&mirror, &source);
        assert_eq!(versions(&mirror, "a"), hashes(&["a", "a, second"]));
    }
}

#[test]
fn a_change_of_a_day_is_not_put_before_what_that_day_began_with() {
    let (mut source, mirror) = with_lists_due(&[("/a", "a"), ("/s", "s")], "");
    source.put("/a", b"a, second");
    let day = at(0)[..10].to_owned();
    source.changes(&change(&source.url("/a"), "updated", &format!("datetime=\"{day}\" {}", facts_of(b"a, second"))));
    source.list(86_400);
    refreshed_when_due(&mirror);
    is_complete(&mirror, &source);
    assert_eq!(versions(&mirror, "a"), hashes(&["a", "a, second"]));
}
