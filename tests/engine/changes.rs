//! Staying in step by Change Lists: each rule of order, cursor, identity, of where to go next and where bytes
//! come from, as a user sees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::changes::{Source, agrees, at, change, change_index, change_list, link, next_second, opened, told};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Request, Server};
use crate::support::{catalog, document, entry, facts_of, resource_list};
use resourcesync::sync::AuditScope;

fn versions(mirror: &Mirror) -> usize {
    catalog::versions(&mirror.cache)
}

#[test]
fn creations_updates_and_deletions_are_followed_without_reading_the_list_again() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let lists = source.server.count("/resourcelist.xml");
    let mut entries = source.does("created", "/d/c", 10, "c");
    entries += &source.does("updated", "/a", 20, "a, anew");
    entries += &source.does("deleted", "/b", 30, "");
    source.changes(&entries);
    let said = mirror.refreshed();
    assert!(said.contains("1 added, 1 updated, 1 deleted"), "{said}");
    agrees(&mirror, &source);
    assert_eq!(source.server.count("/resourcelist.xml"), lists);
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"complete".into(), &at(30).into()));
    assert_eq!(status["sets"][0]["changes"]["from"], "changelist");
    // It is the same after a remount, which asks for the Change List alone.
    mirror.remount();
    agrees(&mirror, &source);
    assert_eq!(source.server.count("/resourcelist.xml"), lists);
}

/// The documents of changes that a refresh asks for, after those that say what the Source offers.
fn asked_by_a_refresh(mirror: &Mirror, source: &Source) -> Vec<String> {
    let before = source.server.requests().len();
    mirror.refreshed();
    let asked = source.server.requests().split_off(before).into_iter();
    asked
        .inspect(|one| assert!(one.header("if-none-match").is_some(), "{one:?}"))
        .map(|one| one.path)
        .filter(|path| !["/.well-known/resourcesync", "/capabilitylist.xml"].contains(&path.as_str()))
        .collect()
}

#[test]
fn a_poll_of_an_unchanged_source_is_one_request_and_no_write() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let entries = source.does("updated", "/a", 10, "a, anew");
    source.changes(&entries);
    let mirror = Mirror::mount(&source.url("/"), "poll=1");
    agrees(&mirror, &source);
    mirror.wait("what was read is noted", |status| status["cached"]["resources"] == 1);
    let synced = mirror.status()["sets"][0]["last_sync"].clone();
    mirror.wait("a poll", |status| status["sets"][0]["last_sync"] != synced || status["lag"] == 0);
    // Whatever else writes, this changes.
    let connection = catalog::open(&mirror.cache);
    let written = || -> i64 { connection.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap() };
    let is_quiet = |_| {
        let before = written();
        std::thread::sleep(Duration::from_secs(2));
        written() == before
    };
    assert!((0..10).any(is_quiet), "each poll writes");
    let (first, before) = (written(), source.server.requests().len());
    let began = Instant::now();
    while source.server.requests().len() < before + 3 {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not poll");
        std::thread::sleep(Duration::from_millis(50));
    }
    let asked: Vec<_> = source.server.requests().split_off(before);
    assert!(
        asked.iter().all(|one| one.path == "/changelist.xml" && one.header("if-none-match").is_some()),
        "{asked:?}"
    );
    assert_eq!(written(), first, "nothing is written");
    // A refresh asks, too, what the Source offers, and writes nothing either.
    let said = mirror.refreshed();
    assert!(said.contains("nothing changed"), "{said}");
    let conditional = |one: &Request| one.header("if-none-match").is_some();
    assert!(source.server.requests().split_off(before).iter().all(conditional));
    assert_eq!(written(), first, "nothing is written");
    // The status knows of it all the same.
    assert!(mirror.status()["lag"].as_u64().unwrap() < 30);
}

#[test]
fn order_is_position_or_backwards_or_the_datetimes() {
    // Each list tells of a, b and c as they ended; what was before stands before it, in some sense.
    type Make = fn(&Source) -> String;
    let lists: [(&str, Make); 5] = [
        ("position, where times are missing", |s| {
            told(&s.url("/a"), "updated", 10, b"old")
                + &change(&s.url("/a"), "updated", &crate::support::facts_of(b"new"))
                + &told(&s.url("/b"), "deleted", 20, b"")
        }),
        ("backwards throughout", |s| {
            told(&s.url("/b"), "deleted", 30, b"")
                + &told(&s.url("/a"), "updated", 20, b"new")
                + &told(&s.url("/a"), "updated", 10, b"old")
        }),
        ("every entry has a datetime", |s| {
            told(&s.url("/a"), "updated", 20, b"new")
                + &told(&s.url("/b"), "deleted", 30, b"")
                + &told(&s.url("/a"), "updated", 10, b"old")
        }),
        ("lastmod within the interval, newest first", |s| {
            let entry = |path: &str, second, body: &[u8]| {
                let md = crate::support::facts_of(body);
                change(&s.url(path), "updated", &md)
                    .replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", at(second)))
            };
            let gone =
                change(&s.url("/b"), "deleted", "").replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", at(40)));
            gone + &entry("/a", 30, b"new") + &entry("/a", 10, b"old")
        }),
        ("lastmod out of the interval is no order", |s| {
            let entry = |path: &str, time: &str, body: &[u8]| {
                let md = crate::support::facts_of(body);
                change(&s.url(path), "updated", &md).replace("</loc>", &format!("</loc><lastmod>{time}</lastmod>"))
            };
            entry("/a", "2020-01-01T00:00:00Z", b"old")
                + &entry("/a", "2010-01-01T00:00:00Z", b"new")
                + &change(&s.url("/b"), "deleted", "")
        }),
    ];
    for (rule, make) in lists {
        let mut source = Source::start(&[("/a", "first"), ("/b", "b"), ("/c", "c")], &["changelist"]);
        source.changes("");
        let mirror = opened(&source);
        source.put("/a", b"new");
        source.remove("/b");
        source.changes(&make(&source));
        mirror.refreshed();
        agrees(&mirror, &source);
        // Three versions of a, one of b, one of c; and however often it is read, no more.
        assert_eq!(versions(&mirror), 5, "{rule}");
        source.put("/c", b"c, anew");
        source.changes(&(make(&source) + &told(&source.url("/c"), "updated", 50, b"c, anew")));
        mirror.refreshed();
        assert_eq!(versions(&mirror), 6, "{rule}");
        agrees(&mirror, &source);
    }
}

#[test]
fn the_cursor_after_a_baseline_is_its_at_and_older_changes_are_in() {
    let mut source = Source::start(&[("/a", "first")], &["changelist"]);
    // The list is of second 100; its snapshot took a while, and has what happened at 110 already.
    source.put("/a", b"at 110");
    source.list(100);
    let url = source.url("/a");
    let mut entries = told(&url, "updated", 50, b"at 50")
        + &told(&source.url("/gone"), "created", 60, b"x")
        + &told(&url, "updated", 110, b"at 110");
    source.changes(&entries);
    let mirror = opened(&source);
    assert_eq!(versions(&mirror), 1, "what is in the snapshot is no new version");
    let inode = mirror.stat("a").unwrap().ino;
    entries += &source.does("updated", "/a", 120, "at 120");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 2);
    assert_ne!(inode, mirror.stat("a").unwrap().ino);
}

#[test]
fn the_cursor_never_passes_a_failure() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let server = &source.server;
    let lists: Vec<String> = (0..3).map(|number| server.url(&format!("/changes-{number}.xml"))).collect();
    let parts = [
        change_list(Some(0), Some(10), "", &told(&source.url("/one"), "created", 5, b"one")),
        change_list(Some(10), Some(20), "", &told(&source.url("/two"), "created", 15, b"two")),
        change_list(Some(20), None, "", &told(&source.url("/three"), "created", 25, b"three")),
    ];
    server.file("/changes-0.xml", parts[0].as_str());
    server.on("/changes-1.xml", |_| Reply::status(500));
    server.file("/changes-2.xml", parts[2].as_str());
    let index = [
        (lists[0].clone(), Some(0), Some(10)),
        (lists[1].clone(), Some(10), Some(20)),
        (lists[2].clone(), Some(20), None),
    ];
    server.file("/changelist.xml", change_index(0, &index));
    source.put("/one", b"one");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=3");
    agrees(&mirror, &source);
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"partial".into(), &at(10).into()), "{status:#}");
    // What was missing comes, and nothing is told twice.
    source.server.file("/changes-1.xml", parts[1].as_str());
    source.put("/two", b"two");
    source.put("/three", b"three");
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!((mirror.status()["state"].clone(), versions(&mirror)), ("complete".into(), 4));
    assert_eq!(source.server.count("/changes-0.xml"), 2, "it ends where the cursor is: bounds are inclusive");
    // A list that is cut short: what it says before that counts, and the rest comes when it is whole.
    let more = told(&source.url("/four"), "created", 35, b"four") + &told(&source.url("/five"), "created", 36, b"five");
    let whole = change_list(Some(20), None, "", &(told(&source.url("/three"), "created", 25, b"three") + &more));
    let cut = whole.find("/five").unwrap();
    source.server.file("/changes-2.xml", &whole[..cut]);
    source.put("/four", b"four");
    let said = mirror.refreshed();
    assert!(said.contains("1 added") && said.contains("could not be read whole"), "{said}");
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "partial");
    source.server.file("/changes-2.xml", whole);
    source.put("/five", b"five");
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!((mirror.status()["state"].clone(), versions(&mirror)), ("complete".into(), 6));
}

#[test]
fn a_change_is_told_from_others_by_set_uri_kind_and_datetime() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    // The same change comes by a list, by the next one, whose interval begins where that ends, and by both.
    let (first, second) = (source.does("updated", "/a", 10, "at 10"), source.does("updated", "/a", 20, "at 20"));
    source.changes(&(first.clone() + &second));
    mirror.refreshed();
    assert_eq!(versions(&mirror), 3);
    let index = [(source.url("/old.xml"), Some(0), Some(20)), (source.url("/new.xml"), Some(20), None)];
    source.server.file("/old.xml", change_list(Some(0), Some(20), "", &(first + &second)));
    let third = source.does("updated", "/a", 30, "at 30");
    source.server.file("/new.xml", change_list(Some(20), None, "", &(second + &third)));
    source.server.file("/changelist.xml", change_index(0, &index));
    mirror.refreshed();
    assert_eq!(versions(&mirror), 4);
    agrees(&mirror, &source);
}

#[test]
fn a_change_without_a_time_is_told_by_its_hash_and_without_both_by_its_place() {
    let mut source = Source::start(&[("/a", "first")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let url = source.url("/a");
    let by_hash = |body: &str| change(&url, "updated", &crate::support::facts_of(body.as_bytes()));
    let mut entries = by_hash("one") + &by_hash("two") + &by_hash("one");
    source.put("/a", b"one");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 4, "back to what it was is a change, too");
    // The list grows: what stands at the same places is the same.
    entries += &by_hash("two");
    source.put("/a", b"two");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 5);
    // It was rotated, and tells some of it again: nothing is new but the last.
    source.put("/a", b"three");
    source.changes(&(by_hash("two") + &by_hash("one") + &by_hash("two") + &by_hash("three")));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 6);
    // Neither time nor hash: the place in the list.
    let silent = change(&url, "updated", "");
    let entries = by_hash("three") + &silent;
    source.put("/a", b"four");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    let known = versions(&mirror);
    source.changes(&(entries.clone() + &change(&source.url("/b"), "deleted", "")));
    mirror.refreshed();
    assert_eq!(versions(&mirror), known);
    source.put("/a", b"five");
    source.changes(&(entries + &change(&source.url("/b"), "deleted", "") + &silent));
    mirror.refreshed();
    assert_eq!(versions(&mirror), known + 1);
    agrees(&mirror, &source);
}

#[test]
fn a_change_without_a_time_in_a_list_that_begins_later_is_none_of_those_before() {
    // By a clock that is right, and by one that is late.
    for is_late in [false, true] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
        source.changes("");
        let mirror = opened(&source);
        let entry = |path: &str, kind: &str, more: &str| change(&source.url(path), kind, more);
        let (created, deleted) = (entry("/c", "created", &facts_of(b"c")), entry("/c", "deleted", ""));
        let (gone, back) = (entry("/b", "deleted", ""), entry("/b", "created", &facts_of(b"b")));
        source.changes(&(created.clone() + &deleted + &gone + &back));
        mirror.refreshed();
        agrees(&mirror, &source);
        // The baseline is made anew, and changes before it are not listed any more.
        let begin = if is_late { 100 } else { next_second() };
        source.list(begin);
        let publish = |source: &Source, entries: &str| {
            source.server.file("/changelist.xml", change_list(Some(begin), None, "", entries));
        };
        publish(&source, "");
        mirror.refreshed();
        agrees(&mirror, &source);
        source.put("/c", b"c");
        source.remove("/b");
        publish(&source, &(created.clone() + &gone));
        mirror.refreshed();
        agrees(&mirror, &source);
        // What is empty for a moment only has the same changes after it.
        publish(&source, "");
        mirror.refreshed();
        publish(&source, &created);
        mirror.refreshed();
        publish(&source, &(created + &gone));
        mirror.refreshed();
        agrees(&mirror, &source);
        assert_eq!(mirror.status()["state"], "complete");
    }
}

#[test]
fn two_changes_within_one_second_are_two() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let entries = source.does("updated", "/a", 10, "one")
        + &source.does("updated", "/a", 10, "two")
        + &source.does("deleted", "/a", 10, "")
        + &source.does("created", "/a", 10, "three");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 4);
    // Read again from another place, they are known.
    source.server.file("/other.xml", change_list(Some(0), None, "", &entries));
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/other.xml"), Some(0), None)]));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 4);
}

#[test]
fn a_list_from_before_a_change_does_not_take_it_back() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let one = source.does("created", "/b", 10, "one");
    let both = one.clone() + &source.does("updated", "/b", 10, "two");
    source.changes(&both);
    mirror.refreshed();
    // As a cache kept it, in another place.
    source.server.file("/other.xml", change_list(Some(0), None, "", &one));
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/other.xml"), Some(0), None)]));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 3);
}

#[test]
fn a_change_that_comes_late_lies_before_the_deletion_that_came_before_it() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let created = source.does("created", "/b", 10, "one");
    let updated = source.does("updated", "/b", 15, "two");
    let deleted = source.does("deleted", "/b", 20, "");
    source.changes(&(created.clone() + &deleted));
    mirror.refreshed();
    let all = created + &updated + &deleted;
    source.changes(&all);
    mirror.refreshed();
    agrees(&mirror, &source);
    let log = mirror.log("b");
    assert_eq!((&log[0]["deleted"], &log[0]["until"]), (&true.into(), &at(20).into()), "{log:#?}");
    assert_eq!((&log[1]["deleted"], &log[1]["until"]), (&false.into(), &at(15).into()), "{log:#?}");
    // And it is known, wherever it is read again.
    source.server.file("/other.xml", change_list(Some(0), None, "", &all));
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/other.xml"), Some(0), None)]));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 3);
}

/// An index, of which the first list has ended.
fn ended(source: &Source) {
    let lists = [(source.url("/0.xml"), Some(0), Some(20)), (source.url("/1.xml"), Some(20), None)];
    source.server.file("/changelist.xml", change_index(0, &lists));
    source.server.file("/1.xml", change_list(Some(20), None, &link("index", &source.url("/changelist.xml")), ""));
}

/// A Source with a list of changes that is open, and what it has when it is complete.
fn open_and_complete() -> (Source, Mirror, [String; 2]) {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let to_index = link("index", &source.url("/changelist.xml"));
    let first = source.does("updated", "/a", 10, "one");
    let open = change_list(Some(0), None, &to_index, &first);
    source.server.file("/0.xml", open.clone());
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/0.xml"), Some(0), None)]));
    let mirror = opened(&source);
    // It was cut once: what is above it is looked at too then.
    source.server.file("/0.xml", &open[..open.len() - 20]);
    let _ = mirror.refresh();
    let rest = source.does("updated", "/a", 15, "two") + &source.does("created", "/b", 20, "b");
    (source, mirror, [open, first + &rest])
}

#[test]
fn a_list_that_a_cache_kept_too_long_is_asked_of_the_server_itself() {
    let (source, mirror, [open, all]) = open_and_complete();
    let to_index = link("index", &source.url("/changelist.xml"));
    let new = change_list(Some(0), Some(20), &to_index, &all);
    source.server.on("/0.xml", move |request| {
        let fresh = request.header("cache-control").is_some_and(|control| control.contains("no-cache"));
        Reply::ok(if fresh { new.clone() } else { open.clone() })
    });
    ended(&source);
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn each_list_that_ended_since_is_asked_of_the_server_itself() {
    let (mut source, mirror, [open, all]) = open_and_complete();
    let to_index = link("index", &source.url("/changelist.xml"));
    let new = change_list(Some(0), Some(20), &to_index, &all);
    source.server.on("/0.xml", move |request| {
        let fresh = request.header("cache-control").is_some_and(|control| control.contains("no-cache"));
        Reply::ok(if fresh { new.clone() } else { open.clone() })
    });
    // Two have ended since the last look.
    let next = source.does("created", "/c", 25, "c");
    source.server.file("/1.xml", change_list(Some(20), Some(30), &to_index, &next));
    let last = source.does("created", "/d", 35, "d");
    source.server.file("/2.xml", change_list(Some(30), None, &to_index, &last));
    let lists = [
        (source.url("/0.xml"), Some(0), Some(20)),
        (source.url("/1.xml"), Some(20), Some(30)),
        (source.url("/2.xml"), Some(30), None),
    ];
    source.server.file("/changelist.xml", change_index(0, &lists));
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn a_list_that_goes_on_where_its_index_says_that_it_has_ended_is_followed_as_far_as_it_goes() {
    let (mut source, mirror, [_, all]) = open_and_complete();
    let to_index = link("index", &source.url("/changelist.xml"));
    let later = source.does("created", "/later", 30, "later");
    let (url, number) = (source.url("/b"), AtomicU64::new(0));
    let (busy, after) = (all.clone(), to_index.clone());
    ended(&source);
    source.server.file("/1.xml", change_list(Some(20), None, &to_index, &later));
    source.server.on("/0.xml", move |_| {
        let more: String =
            (0..number.fetch_add(1, Ordering::SeqCst)).map(|_| told(&url, "updated", 20, b"b")).collect();
        Reply::ok(change_list(Some(0), None, &after, &(busy.clone() + &more)))
    });
    mirror.refreshed();
    assert_eq!(mirror.files(), ["a", "b"], "what it tells is here, and what comes after it waits");
    assert!(mirror.errors().contains("it goes on"), "{}", mirror.errors());
    source.server.file("/0.xml", change_list(Some(0), Some(20), &to_index, &all));
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn what_is_cut_short_does_not_bring_back_what_was_before() {
    let mut source = Source::start(&[("/a", "one")], &["changelist"]);
    // Nothing in it has a time: only what comes later in it tells that the first of these is not what is now.
    let undated = |text: &str| {
        let facts = facts_of(text.as_bytes());
        change(&source.url("/a"), "updated", &facts)
    };
    let (first, second, third) = (undated("two"), undated("three"), undated("four"));
    source.changes(&first);
    source.put("/a", b"two");
    let mirror = opened(&source);
    for text in ["three", "four"] {
        source.put("/a", text.as_bytes());
        source.changes(&[first.as_str(), &second, &third][..if text == "three" { 2 } else { 3 }].concat());
        mirror.refreshed();
        agrees(&mirror, &source);
    }
    let whole = change_list(Some(0), None, "", &(first.clone() + &second + &third));
    // It is written anew, and half of it is there yet.
    let again = change_list(Some(0), None, "<!-- anew -->", &(first + &second));
    source.server.file("/changelist.xml", again.trim_end().trim_end_matches("</urlset>"));
    let _ = mirror.refresh();
    agrees(&mirror, &source);
    source.server.file("/changelist.xml", whole);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 4);
}

#[test]
fn a_list_that_ended_where_we_are_and_is_cut_short_is_read_again() {
    let mut source = Source::start(&[("/a", "one"), ("/b", "one")], &["changelist"]);
    let to_index = link("index", &source.url("/changelist.xml"));
    let first = source.does("updated", "/a", 20, "two");
    source.server.file("/0.xml", change_list(Some(0), None, &to_index, &first));
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/0.xml"), Some(0), None)]));
    let mirror = opened(&source);
    mirror.refreshed();
    // One more within the last second, and then it ended.
    let rest = source.does("deleted", "/b", 20, "");
    let whole = change_list(Some(0), Some(20), &to_index, &(first + &rest));
    ended(&source);
    source.server.file("/0.xml", &whole[..whole.len() - 40]);
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["a", "b"]);
    source.server.file("/0.xml", whole);
    mirror.refreshed();
    agrees(&mirror, &source);
    // And then the list that is open is polled again, and its index.
    assert_eq!(asked_by_a_refresh(&mirror, &source), ["/1.xml", "/changelist.xml"]);
}

#[test]
fn changes_of_before_what_a_list_said_leave_a_history_in_order() {
    // Its clock was ahead when the list was made: /a and /b are of second 100, at second 0.
    let mut source = Source::start(&[("/a", "one"), ("/b", "one")], &["changelist"]);
    let dated = |path: &str| {
        entry(&source.url(path), &facts_of(b"one")).replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", at(100)))
    };
    source.server.file("/resourcelist.xml", resource_list(&at(0), &(dated("/a") + &dated("/b"))));
    source.changes("");
    let mirror = opened(&source);
    let gone = source.does("deleted", "/a", 50, "");
    let next = source.does("updated", "/b", 40, "three");
    source.changes(&(next.clone() + &gone));
    mirror.refreshed();
    agrees(&mirror, &source);
    let end = source.does("deleted", "/b", 150, "");
    source.changes(&(next.clone() + &gone + &end));
    mirror.refreshed();
    // And one that came late.
    let late = told(&source.url("/b"), "updated", 45, b"two");
    source.changes(&(next + &late + &gone + &end));
    mirror.refreshed();
    agrees(&mirror, &source);
    let audit = mirror.audit(AuditScope { content: true, repair: false }).unwrap();
    assert!(audit.in_sync(), "{audit:#?}");
    for (second, there) in [(42, true), (48, true), (120, true), (149, true), (151, false)] {
        assert_eq!(mirror.exists(&format!(".versions/@{}/b", at(second))), there, "{second}");
    }
}

#[test]
fn a_list_whose_index_says_that_it_has_ended_before_it_has_is_waited_for() {
    let (source, mirror, [open, all]) = open_and_complete();
    let to_index = link("index", &source.url("/changelist.xml"));
    let complete = change_list(Some(0), Some(20), &to_index, &all);
    // First the index is written, and a moment later the list.
    ended(&source);
    let began = Instant::now();
    source.server.on("/0.xml", move |_| {
        Reply::ok(if began.elapsed() < Duration::from_secs(1) { open.clone() } else { complete.clone() })
    });
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn a_source_whose_lists_never_say_that_they_ended_is_followed() {
    let (mut source, mirror, [_, all]) = open_and_complete();
    let to_index = link("index", &source.url("/changelist.xml"));
    source.server.file("/0.xml", change_list(Some(0), None, &to_index, &all));
    ended(&source);
    let last = source.does("created", "/c", 30, "c");
    source.server.file("/1.xml", change_list(Some(20), None, &to_index, &last));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(
        asked_by_a_refresh(&mirror, &source),
        ["/1.xml", "/changelist.xml"],
        "it is not looked at again for ever"
    );
}

#[test]
fn where_next_an_open_list_is_polled_with_its_index_and_a_closed_one_leads_to_that() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let index_url = source.url("/changelist.xml");
    let to_index = link("index", &index_url) + &link("up", &source.url("/capabilitylist.xml"));
    let old = told(&source.url("/never"), "created", 0, b"x");
    source.server.file("/0.xml", change_list(Some(0), Some(50), &to_index, &old));
    source.list(60);
    let first = source.does("created", "/b", 65, "b");
    source.server.file("/1.xml", change_list(Some(50), None, &to_index, &first));
    let lists = |count: usize| {
        let all = [
            (source.url("/0.xml"), Some(0), Some(50)),
            (source.url("/1.xml"), Some(50), if count > 2 { Some(100) } else { None }),
            (source.url("/2.xml"), Some(100), None),
        ];
        change_index(0, &all[..count])
    };
    source.server.file("/changelist.xml", lists(2));
    let mirror = opened(&source);
    assert_eq!(source.server.count("/0.xml"), 0, "it ended before the baseline began");
    let polled = asked_by_a_refresh(&mirror, &source);
    assert_eq!(polled, ["/1.xml", "/changelist.xml"], "an open list is polled, and its index");
    let index = lists(3);
    // It is closed; the next one is in the index.
    let second = source.does("updated", "/b", 90, "b, anew");
    source.server.file("/1.xml", change_list(Some(50), Some(100), &to_index, &(first + &second)));
    let third = source.does("created", "/c", 110, "c");
    source.server.file("/2.xml", change_list(Some(100), None, &to_index, &third));
    source.server.file("/changelist.xml", index);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(asked_by_a_refresh(&mirror, &source), ["/2.xml", "/changelist.xml"]);
    // It is gone: the index tells where to go on.
    source.server.remove("/2.xml");
    let fourth = source.does("deleted", "/a", 120, "");
    source.server.file("/3.xml", change_list(Some(100), None, &to_index, &(third + &fourth)));
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/3.xml"), Some(100), None)]));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn where_next_a_closed_list_without_an_index_leads_up_to_the_capability_list() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let up = link("up", &source.url("/capabilitylist.xml"));
    let first = source.does("created", "/b", 10, "b");
    source.server.file("/changelist.xml", change_list(Some(0), Some(20), &up, &first));
    let mirror = opened(&source);
    mirror.refreshed();
    // The Capability List names another one now.
    let second = source.does("updated", "/b", 30, "b, anew");
    source.server.file("/next.xml", change_list(Some(20), None, &up, &second));
    let entries = crate::support::capability(&source.url("/resourcelist.xml"), "resourcelist")
        + &crate::support::capability(&source.url("/next.xml"), "changelist");
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
    let lists = source.server.count("/resourcelist.xml");
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(source.server.count("/resourcelist.xml"), lists, "no list had to be read for that");
}

#[test]
fn a_list_that_was_rotated_in_place_is_followed_through_its_index() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let to_index = link("index", &source.url("/index.xml"));
    source.server.file("/changelist.xml", change_list(Some(0), None, &to_index, ""));
    let mirror = opened(&source);
    let first = source.does("created", "/b", 10, "b");
    source.server.file("/archive.xml", change_list(Some(0), Some(20), &to_index, &first));
    let second = source.does("updated", "/b", 30, "b, anew");
    source.server.file("/changelist.xml", change_list(Some(20), None, &to_index, &second));
    let index = [(source.url("/archive.xml"), Some(0), Some(20)), (source.url("/changelist.xml"), Some(20), None)];
    source.server.file("/index.xml", change_index(0, &index));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!((mirror.status()["state"].clone(), versions(&mirror)), ("complete".into(), 3));
}

#[test]
fn a_list_that_no_longer_reaches_back_needs_a_new_baseline_by_difference() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    let entries = source.does("updated", "/a", 10, "a, anew");
    source.changes(&entries);
    let mirror = opened(&source);
    // Meanwhile b went, and c changed; the list begins later, and no newer baseline is out.
    source.remove("/b");
    source.put("/c", b"c, anew");
    let later = source.does("created", "/d", 90, "d");
    source.server.file("/changelist.xml", change_list(Some(80), None, "", &later));
    mirror.refreshed();
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"gap".into(), &at(10).into()), "{status:#}");
    assert_eq!(mirror.read("d").unwrap(), b"d", "what is told is applied all the same");
    // The state does not go by itself.
    mirror.refreshed();
    assert_eq!(mirror.status()["state"], "gap");
    let ino = |path: &str| mirror.stat(path).unwrap().ino;
    let before = (ino("a"), ino("d"));
    source.list(85);
    mirror.refreshed();
    assert_eq!(mirror.status()["state"], "complete");
    agrees(&mirror, &source);
    assert_eq!((ino("a"), ino("d")), before, "what did not change is the same file");
}

#[test]
fn an_older_list_does_not_undo_what_changes_have_brought() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/z", "z")], &["changelist"]);
    let entries = source.does("updated", "/a", 100, "a, anew")
        + &source.does("deleted", "/b", 110, "")
        + &source.does("created", "/c", 120, "c");
    source.changes(&entries);
    let mirror = opened(&source);
    // The Resource List of second 50 comes late, and is read because somebody asks for it.
    let list = crate::support::resource_list(
        &at(50),
        &[("/a", "a"), ("/b", "b"), ("/z", "z")]
            .map(|(path, body)| crate::support::entry_of(&source.url(path), body.as_bytes()))
            .concat(),
    );
    source.server.file("/resourcelist.xml", list);
    mirror.refresh_accepting_deletions().unwrap();
    agrees(&mirror, &source);
    // One that is newer than all of it does count.
    source.remove("/z");
    source.list(200);
    mirror.refresh_accepting_deletions().unwrap();
    agrees(&mirror, &source);
}

#[test]
fn bytes_come_from_the_mirrors_first_and_a_superseded_version_is_never_asked_of_its_uri() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let mirrored = Server::start();
    mirrored.file("/copy", "anew");
    source.changes("");
    let mirror = opened(&source);
    source.put("/a", b"anew");
    let entry = told(&source.url("/a"), "updated", 10, b"anew")
        .replace("</url>", &format!("<rs:ln rel=\"duplicate\" pri=\"1\" href=\"{}\"/></url>", mirrored.url("/copy")));
    source.changes(&entry);
    mirror.refreshed();
    let asked = source.server.count("/a");
    assert_eq!(mirror.read("a").unwrap(), b"anew");
    assert_eq!((source.server.count("/a"), mirrored.count("/copy")), (asked, 1));
    // Opened, but not read, before it is superseded: its bytes are nowhere any more.
    source.put("/a", b"third");
    source.changes(&(entry.clone() + &told(&source.url("/a"), "updated", 20, b"third")));
    mirror.refreshed();
    let open = mirror.open("a").unwrap();
    source.put("/a", b"fourth");
    source.changes(
        &(entry
            + &told(&source.url("/a"), "updated", 20, b"third")
            + &told(&source.url("/a"), "updated", 30, b"fourth")),
    );
    mirror.refreshed();
    let asked = source.server.count("/a");
    assert!(open.read().is_err());
    assert_eq!(source.server.count("/a"), asked);
    assert!(mirror.errors().contains("superseded before it was fetched"), "{}", mirror.errors());
    agrees(&mirror, &source);
}

#[test]
fn content_that_does_not_fit_makes_us_look_whether_we_are_behind() {
    let mut source = Source::start(&[("/a", "first")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let entry = source.does("updated", "/a", 10, "second");
    source.changes(&entry);
    // Nobody refreshed; whoever reads finds other bytes, and the mirror looks at the changes.
    assert!(mirror.read("a").is_err());
    mirror.wait("the new version", |_| mirror.read("a").is_ok_and(|bytes| bytes == b"second"));
    agrees(&mirror, &source);
}

#[test]
fn an_open_file_keeps_its_version_over_an_update_and_a_deletion() {
    let mut source = Source::start(&[("/a", "first"), ("/d/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let open = mirror.open("a").unwrap();
    assert!(!mirror.exists("late"), "looked up, and absent");
    let first = source.does("updated", "/a", 10, "second") + &source.does("created", "/late", 11, "late");
    source.changes(&first);
    mirror.refreshed();
    assert!(mirror.exists("late"), "a name that was absent appears");
    agrees(&mirror, &source);
    let second = source.does("deleted", "/a", 20, "") + &source.does("deleted", "/d/b", 21, "");
    source.changes(&(first + &second));
    mirror.refreshed();
    assert!(!mirror.exists("a") && !mirror.exists("d"));
    assert_eq!(open.read().unwrap(), b"first");
    agrees(&mirror, &source);
}

#[test]
fn deletions_that_are_told_are_believed_however_many() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let entries: String = ["/a", "/b", "/c"]
        .into_iter()
        .zip(10..)
        .map(|(path, second)| source.does("deleted", path, second, ""))
        .collect();
    source.changes(&entries);
    mirror.refreshed();
    assert_eq!((mirror.files().len(), mirror.status()["state"].clone()), (0, "complete".into()));
}

#[test]
fn hyrax_lists_newest_first_with_lastmod_alone() {
    // Never deleted, `from` the oldest change, no length and no hash, cached for a week.
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let publish = |source: &Source, entries: &[(&str, u64, &str)]| {
        let entry = |path: &str, second: u64, kind: &str| {
            change(&source.url(path), kind, "").replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", at(second)))
        };
        let entries: String = entries.iter().rev().map(|(path, second, kind)| entry(path, *second, kind)).collect();
        let list = change_list(Some(0), None, &link("up", "http://localhost/no-such-thing"), &entries);
        source
            .server
            .on("/changelist.xml", move |_| Reply::ok(list.as_str()).with("Cache-Control", "max-age=604800, public"));
    };
    source.put("/w/1", b"work");
    publish(&source, &[("/w/1", 5, "created"), ("/w/1", 10, "updated")]);
    let mirror = opened(&source);
    assert_eq!(versions(&mirror), 3);
    source.put("/a", b"a, anew");
    publish(&source, &[("/w/1", 5, "created"), ("/w/1", 10, "updated"), ("/a", 20, "updated")]);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 4);
}

#[test]
fn dspace_deletes_without_a_time_what_was_never_listed() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let entries = source.does("created", "/c", 10, "c")
        + &change(&source.url("/handle/never-listed"), "deleted", "")
        + &source.does("updated", "/b", 20, "b, anew");
    source.changes(&entries);
    for _ in 0..2 {
        mirror.refreshed();
        agrees(&mirror, &source);
        assert_eq!(versions(&mirror), 4);
    }
}

#[test]
fn local_time_that_is_labelled_z_does_not_hide_what_comes_after() {
    // Two hours ahead of the list that says it, and of all that is told with the right time later.
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let first = source.does("updated", "/a", 7200, "ahead");
    source.changes(&first);
    let mirror = opened(&source);
    let second = source.does("updated", "/a", 7210, "still ahead") + &source.does("created", "/b", 7220, "b");
    source.changes(&(first + &second));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 4);
}

#[test]
fn times_without_a_zone_and_within_a_second_are_read() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let entries = source.does("created", "/c", 10, "c").replace("Z\"", "\"")
        + &source.does("updated", "/b", 20, "first").replace("Z\"", ".25Z\"")
        + &source.does("updated", "/b", 20, "second").replace("Z\"", ".5Z\"");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(versions(&mirror), 5);
    let warnings = mirror.status()["warnings"].to_string();
    assert!(warnings.contains("has no time zone; taken as UTC"), "{warnings}");
}

#[test]
fn one_bad_entry_does_not_stop_the_others_and_a_bad_value_empties_its_field() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let entries = source.does("updated", "/b", 10, "b, anew")
        + "<url><rs:md change=\"updated\"/></url>"
        + &change(
            &source.url("/b"),
            "twisted",
            &format!("datetime=\"yesterday\" {}", crate::support::facts_of(b"b, anew")),
        )
        + &crate::support::entry(
            &source.url("/a"),
            &format!("datetime=\"{}\" {}", at(30), crate::support::facts_of(b"a, anew")),
        );
    source.put("/a", b"a, anew");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn a_change_list_that_is_named_twice_counts_once_and_two_are_the_union() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let entries = crate::support::capability(&source.url("/resourcelist.xml"), "resourcelist")
        + &crate::support::capability(&source.url("/changelist.xml"), "changelist").repeat(2)
        + &crate::support::capability(&source.url("/more.xml"), "changelist");
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
    let (one, two) = (source.does("updated", "/a", 10, "a, anew"), source.does("deleted", "/b", 10, ""));
    source.changes(&one);
    source.server.file("/more.xml", change_list(Some(0), None, "", &two));
    let mirror = opened(&source);
    assert_eq!(versions(&mirror), 3);
}

#[test]
fn an_index_of_changes_may_be_a_urlset_with_relative_locations() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let own = crate::support::entry("/own.xml", "capability=\"changelist\"");
    source.server.file("/changelist.xml", document("changelist", &format!("from=\"{}\"", at(0)), "", &own));
    let first = source.does("updated", "/a", 10, "a, anew");
    source.server.file("/own.xml", change_list(Some(0), None, "", &first));
    let mirror = opened(&source);
    let second = source.does("created", "/c", 20, "c").replace(&source.url("/c"), "/c");
    source.server.file("/own.xml", change_list(Some(0), None, "", &(first + &second)));
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn resources_may_lie_on_another_host_than_the_list_of_their_changes() {
    let source = Source::start(&[], &["changelist"]);
    let other = Server::start();
    let host = other.address();
    source.changes("");
    let mirror = opened(&source);
    other.file("/paper", "first");
    source.changes(&told(&other.url("/paper"), "created", 10, b"first"));
    mirror.refreshed();
    let path = format!("@{host}/paper");
    assert_eq!(mirror.files(), std::slice::from_ref(&path));
    assert_eq!(mirror.read(&path).unwrap(), b"first");
}

#[test]
fn a_source_without_its_change_list_is_followed_by_its_lists() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let mirror = opened(&source);
    assert!(mirror.status()["warnings"].to_string().contains("there are only the lists to tell"));
    source.put("/b", b"b");
    source.list(10);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn a_change_list_that_is_gone_is_not_taken_for_no_change() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let first = source.does("updated", "/a", 10, "a, anew");
    source.changes(&first);
    let mirror = opened(&source);
    let both = first + &source.does("created", "/b", 20, "b");
    source.server.remove("/changelist.xml");
    for _ in 0..2 {
        is_behind(&mirror);
        let status = mirror.status();
        assert!(status["errors"].to_string().contains("is not there any more"), "{status:#}");
        assert_eq!(mirror.files(), ["a"]);
    }
    source.changes(&both);
    is_complete(&mirror, &source);
    // A list of before that was noticed need not have all that was told until then; one of after it has. It is read when the other
    // is not there once more, which would tell each version.
    source.server.remove("/changelist.xml");
    source.put("/c", b"c");
    source.list(30);
    is_behind(&mirror);
    is_behind(&mirror);
    assert_eq!(mirror.files(), ["a", "b", "c"]);
    source.list(next_second());
    is_complete(&mirror, &source);
    is_complete(&mirror, &source);
}

#[test]
fn a_change_list_that_is_broken_for_one_look_loses_no_version() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let first = source.does("updated", "/a", 10, "second");
    source.changes(&first);
    let mirror = opened(&source);
    let more = source.does("updated", "/a", 20, "third") + &source.does("updated", "/a", 30, "fourth");
    for broken in ["", "<urlset", "<!DOCTYPE html><html><body>Sorry</body></html>"] {
        source.server.file("/changelist.xml", broken);
        source.list(40);
        is_behind(&mirror);
        assert_eq!(versions(&mirror), 2);
        source.changes(&first);
        mirror.refreshed();
    }
    source.changes(&(first + &more));
    is_complete(&mirror, &source);
    assert_eq!(versions(&mirror), 4);
}

#[test]
fn no_list_makes_up_for_a_change_list_that_cannot_be_read() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    for broken in ["<urlset", "<!DOCTYPE html><html><body>Sorry</body></html>"] {
        source.server.file("/changelist.xml", broken);
        is_behind(&mirror);
        source.put("/a", broken.as_bytes());
        source.list(next_second());
        // The tree is as the list has it, and what was told since is not known.
        is_behind(&mirror);
        agrees(&mirror, &source);
        let status = mirror.status();
        assert!(status["errors"].to_string().contains("is not known until it can be read"), "{status:#}");
    }
    let last = source.does("created", "/b", next_second(), "b");
    source.changes(&last);
    is_complete(&mirror, &source);
    // Nor does one for what could never be read.
    let source = Source::start(&[("/a", "a")], &["changelist"]);
    source.server.file("/changelist.xml", "<urlset");
    let mirror = opened(&source);
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "partial");
    source.changes("");
    is_complete(&mirror, &source);
}

/// Refreshes what cannot be in step.
fn is_behind(mirror: &Mirror) {
    let refreshed = mirror.refreshed();
    assert!(refreshed.contains("could not be read whole"), "{refreshed}");
    assert_eq!(mirror.status()["state"], "partial");
}

fn is_complete(mirror: &Mirror, source: &Source) {
    mirror.refreshed();
    agrees(mirror, source);
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn a_change_list_that_is_gone_with_its_first_change_is_missed() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    // A list that is newer than the last change that was told has none of those that were told since it was read.
    source.list(10);
    let mirror = opened(&source);
    source.server.remove("/changelist.xml");
    is_behind(&mirror);
    is_behind(&mirror);
    source.put("/b", b"b");
    source.list(next_second());
    is_complete(&mirror, &source);
    // It is not missed any more.
    is_complete(&mirror, &source);
    // Nor is one that is not offered any more, once there is a newer list.
    let third = source.does("created", "/c", next_second(), "c");
    source.changes(&third);
    is_complete(&mirror, &source);
    let only = crate::support::capability(&source.url("/resourcelist.xml"), "resourcelist");
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &only));
    source.server.remove("/changelist.xml");
    is_behind(&mirror);
    is_behind(&mirror);
    source.put("/d", b"d");
    source.list(next_second());
    is_complete(&mirror, &source);
    let audit = mirror.audit(AuditScope::default()).unwrap();
    assert!(audit.in_sync(), "{audit:#?}");
}

#[test]
fn a_closed_list_is_read_though_the_index_that_it_names_is_gone() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let first = source.does("updated", "/a", 10, "a, anew");
    let nowhere = link("index", &source.url("/no-such-index.xml"));
    source.server.file("/changelist.xml", change_list(Some(0), Some(20), &nowhere, &first));
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "partial", "what follows it is not known");
    // The Capability List knows.
    let links = nowhere.clone() + &link("up", &source.url("/capabilitylist.xml"));
    let second = first + &source.does("created", "/b", 20, "b");
    source.server.file("/changelist.xml", change_list(Some(0), Some(30), &links, &second));
    is_complete(&mirror, &source);
    // One that begins too late is read all the same, and what came before it is missed.
    let late = source.does("created", "/c", 50, "c");
    source.server.file("/changelist.xml", change_list(Some(40), None, &nowhere, &late));
    drop(mirror.refresh());
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "gap");
}

#[test]
fn one_of_two_change_lists_that_is_gone_is_not_taken_for_no_change() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    let entries = crate::support::capability(&source.url("/resourcelist.xml"), "resourcelist")
        + &crate::support::capability(&source.url("/changelist.xml"), "changelist")
        + &crate::support::capability(&source.url("/more.xml"), "changelist");
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
    let (one, two) = (source.does("updated", "/a", 10, "a, anew"), source.does("updated", "/b", 10, "b, anew"));
    source.changes(&one);
    let more = change_list(Some(0), None, "", &two);
    source.server.file("/more.xml", more.clone());
    let mirror = opened(&source);
    source.server.remove("/more.xml");
    is_behind(&mirror);
    is_behind(&mirror);
    source.server.file("/more.xml", more);
    is_complete(&mirror, &source);
    // A newer list knows what it would have told.
    source.server.remove("/more.xml");
    is_behind(&mirror);
    source.put("/b", b"b, once more");
    source.list(next_second());
    is_complete(&mirror, &source);
    // So does the one after that.
    source.put("/b", b"b, for the last time");
    source.list(next_second());
    is_complete(&mirror, &source);
}
