//! Change Lists and Change Dumps that move, close, grow, break and contradict each other: nothing is lost, nothing
//! comes back, and nothing is stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::changes::{Source, agrees, at, change, change_index, change_list, interval, link, opened, told};
use crate::support::dump::{Item, package_with};
use crate::support::opened::Mirror;
use crate::support::server::Reply;
use crate::support::{capability, document, entry, entry_of, facts_of, resource_list};
use resourcesync::sync::AuditScope;

/// Reads the lists again, and lets go what they leave out.
fn accepts(mirror: &Mirror) {
    mirror.refresh_accepting_deletions().unwrap();
}

/// A Source with a Change Dump and no Change List.
fn with_dump(resources: &[(&str, &str)]) -> Source {
    let source = Source::start(resources, &["changedump"]);
    source.server.file("/changedump.xml", document("changedump", &interval(Some(0), None), "", ""));
    source
}

fn package(source: &Source, from: u64, until: u64, changes: &[(&str, &str, u64, &str)]) -> Vec<u8> {
    let (mut entries, mut items) = (String::new(), Vec::new());
    for (number, (kind, path, second, body)) in changes.iter().enumerate() {
        let (url, member) = (source.url(path), format!("/{number}"));
        let md =
            format!("change=\"{kind}\" datetime=\"{}\" {} path=\"{member}\"", at(*second), facts_of(body.as_bytes()));
        entries += &entry(&url, &md);
        items.push(Item::new(&url, body.as_bytes()).at(&member));
    }
    package_with(&document("changedump-manifest", &interval(Some(from), Some(until)), "", &entries), &items)
}

fn dump(source: &Source, packages: &[(&str, u64, u64)]) {
    let entries: String = packages
        .iter()
        .map(|(path, from, until)| entry(&source.url(path), &interval(Some(*from), Some(*until))))
        .collect();
    source.server.file("/changedump.xml", document("changedump", &interval(Some(0), None), "", &entries));
}

#[test]
fn a_closed_list_that_is_replaced_where_it_lies_is_read() {
    for links in [String::new(), "up".to_owned()] {
        let mut source = Source::start(&[("/a", "a")], &["changelist"]);
        let links = if links.is_empty() { links } else { link("up", &source.url("/capabilitylist.xml")) };
        let first = source.does("created", "/b", 5, "b");
        source.server.file("/changelist.xml", change_list(Some(0), Some(10), &links, &first));
        let mirror = opened(&source);
        let second = source.does("updated", "/a", 15, "a, anew");
        source.server.file("/changelist.xml", change_list(Some(10), Some(20), &links, &second));
        mirror.refreshed();
        agrees(&mirror, &source);
        assert_eq!(mirror.status()["state"], "complete");
    }
}

#[test]
fn a_list_that_only_its_index_closes_is_left_when_the_source_is_looked_at_anew() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let first = source.does("created", "/b", 5, "b");
    source.server.file("/one.xml", change_list(Some(0), None, "", &first));
    source.server.file("/changelist.xml", change_index(0, &[(source.url("/one.xml"), Some(0), None)]));
    let mirror = opened(&source);
    let second = source.does("updated", "/a", 25, "a, anew");
    source.server.file("/two.xml", change_list(Some(20), None, "", &second));
    let lists = [(source.url("/one.xml"), Some(0), Some(20)), (source.url("/two.xml"), Some(20), None)];
    source.server.file("/changelist.xml", change_index(0, &lists));
    accepts(&mirror);
    agrees(&mirror, &source);
}

#[test]
fn an_entry_that_comes_late_does_not_hide_those_before_it() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d")], &["changelist"]);
    source.list(10);
    source.changes("");
    let mirror = opened(&source);
    let entries = source.does("updated", "/a", 20, "a, anew")
        + &change(&source.url("/b"), "updated", &facts_of(b"b, anew"))
        + &source.does("updated", "/c", 30, "c, anew")
        + &told(&source.url("/d"), "updated", 5, b"as it was before the baseline");
    source.put("/b", b"b, anew");
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn a_capability_list_that_names_another_change_list_loses_nothing_of_the_first() {
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let name = |source: &Source, list: &str| {
        let entries =
            capability(&source.url("/resourcelist.xml"), "resourcelist") + &capability(&source.url(list), "changelist");
        source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
    };
    name(&source, "/day1.xml");
    let first = source.does("created", "/b", 5, "b");
    source.server.file("/day1.xml", change_list(Some(0), None, "", &first));
    let mirror = opened(&source);
    // The last changes of the first day, and the first of the second.
    let last = source.does("updated", "/b", 15, "b, anew");
    source.server.file("/day1.xml", change_list(Some(0), Some(20), "", &(first + &last)));
    let next = source.does("created", "/c", 25, "c");
    source.server.file("/day2.xml", change_list(Some(20), None, "", &next));
    name(&source, "/day2.xml");
    accepts(&mirror);
    agrees(&mirror, &source);
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"complete".into(), &at(25).into()), "{status:#}");
}

#[test]
fn reading_the_lists_again_undoes_no_change_be_it_undated_or_of_the_same_second() {
    for exact in [true, false] {
        let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/z", "z")], &["changelist"]);
        source.list(5);
        source.changes("");
        let mirror = opened(&source);
        let time = if exact { format!("datetime=\"{}\" ", at(5)) } else { String::new() };
        let entries = change(&source.url("/a"), "updated", &format!("{time}{}", facts_of(b"a, anew")))
            + &change(&source.url("/b"), "deleted", &time)
            + &change(&source.url("/e"), "created", &format!("{time}{}", facts_of(b"e")));
        source.put("/a", b"a, anew");
        source.remove("/b");
        source.put("/e", b"e");
        source.changes(&entries);
        mirror.refreshed();
        agrees(&mirror, &source);
        let audit = mirror.audit(AuditScope { content: false, repair: true }).unwrap();
        assert!(audit.in_sync(), "{audit:#?}");
        agrees(&mirror, &source);
        accepts(&mirror);
        agrees(&mirror, &source);
    }
}

#[test]
fn what_was_deleted_in_a_directory_of_its_own_name_does_not_come_back() {
    let mut source = Source::start(&[("/a", "a"), ("/k", "k")], &["changelist"]);
    source.changes("");
    let mirror = opened(&source);
    let mut entries = String::new();
    for (kind, path, second) in [("created", "/a/b", 10), ("deleted", "/a", 20), ("deleted", "/a/b", 30)] {
        entries += &source.does(kind, path, second, "below");
        source.changes(&entries);
        mirror.refreshed();
    }
    agrees(&mirror, &source);
    // A list that is older than all of it, and still has the first.
    let old = [("/a", "a"), ("/k", "k")].map(|(path, body)| entry_of(&source.url(path), body.as_bytes())).concat();
    source.server.file("/resourcelist.xml", resource_list(&at(5), &old));
    accepts(&mirror);
    agrees(&mirror, &source);
    // One that came and went within a step leaves its prefix where it belongs.
    entries += &(source.does("created", "/z/1/2/3", 40, "deep")
        + &source.does("created", "/z/1", 41, "one")
        + &source.does("deleted", "/z/1/2/3", 42, ""));
    source.changes(&entries);
    mirror.refreshed();
    agrees(&mirror, &source);
}

#[test]
fn a_package_that_grows_where_it_lies_is_read_again() {
    let mut source = with_dump(&[("/a", "a")]);
    let mirror = opened(&source);
    source.server.file("/p.zip", package(&source, 0, 20, &[("updated", "/a", 10, "at 10")]));
    dump(&source, &[("/p.zip", 0, 20)]);
    source.put("/a", b"at 10");
    mirror.refreshed();
    agrees(&mirror, &source);
    let both = [("updated", "/a", 10, "at 10"), ("updated", "/a", 30, "at 30")];
    source.server.file("/p.zip", package(&source, 0, 40, &both));
    dump(&source, &[("/p.zip", 0, 40)]);
    source.put("/a", b"at 30");
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.versions(), 3);
}

#[test]
fn what_lies_between_two_packages_is_missed_and_said_to_be() {
    let mut source = with_dump(&[("/a", "a"), ("/b", "b")]);
    let mirror = opened(&source);
    source.put("/b", b"what nobody tells of");
    source.server.file("/p.zip", package(&source, 20, 40, &[("updated", "/a", 30, "a, anew")]));
    dump(&source, &[("/p.zip", 20, 40)]);
    source.put("/a", b"a, anew");
    mirror.refreshed();
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"gap".into(), &at(0).into()), "{status:#}");
    source.list(50);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn a_package_that_arrived_broken_is_fetched_again() {
    for length in [false, true] {
        let mut source = with_dump(&[("/a", "a")]);
        let mirror = opened(&source);
        let body = package(&source, 0, 20, &[("updated", "/a", 10, "a, anew")]);
        let good = Arc::new(AtomicBool::new(false));
        let (own, served) = (Arc::clone(&good), body.clone());
        source.server.on("/p.zip", move |request| match own.load(Ordering::SeqCst) {
            true => Reply::good(request, &served),
            false => Reply::good(request, b"sorry"),
        });
        let md = if length { format!("length=\"{}\" ", body.len()) } else { String::new() };
        let listed = entry(&source.url("/p.zip"), &format!("{md}{}", interval(Some(0), Some(20))));
        source.server.file("/changedump.xml", document("changedump", &interval(Some(0), None), "", &listed));
        let _ = mirror.refresh();
        assert_eq!(mirror.read("a").unwrap(), b"a", "the tree is as it was");
        assert_eq!(mirror.status()["state"], "partial");
        good.store(true, Ordering::SeqCst);
        source.put("/a", b"a, anew");
        mirror.refreshed();
        agrees(&mirror, &source);
        assert_eq!(mirror.status()["state"], "complete");
    }
}

#[test]
fn an_audit_writes_nothing_whatever_it_finds() {
    let source = Source::start(&[("/a", "a")], &["changelist"]);
    source.changes("");
    let other = document("capabilitylist", "", "", &capability(&source.url("/other.xml"), "resourcelist"));
    source.server.file("/other/capabilitylist.xml", other);
    source.server.file("/other.xml", resource_list(&at(0), &entry_of(&source.url("/a"), b"a")));
    let sets = capability(&source.url("/capabilitylist.xml"), "capabilitylist")
        + &capability(&source.url("/other/capabilitylist.xml"), "capabilitylist");
    source.server.file("/.well-known/resourcesync", document("description", "", "", &sets));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=3");
    let states =
        || mirror.status()["sets"].as_array().unwrap().iter().map(|set| set["state"].clone()).collect::<Vec<_>>();
    assert_eq!(states(), ["complete", "complete"]);
    source.server.on("/other/capabilitylist.xml", |_| Reply::status(500));
    let audit = mirror.audit(AuditScope::default()).unwrap();
    assert!(!audit.in_sync() && !audit.unread.is_empty(), "{audit:#?}");
    assert_eq!(states(), ["complete", "complete"]);
}

#[test]
fn a_list_that_is_written_twice_within_a_second_is_read_twice() {
    // Of its editions the server knows nothing but the second, as many do.
    let mut source = Source::start(&[("/a", "a")], &["changelist"]);
    let publish = |source: &Source, entries: &str| {
        let list = change_list(Some(0), None, "", entries);
        let now = httpdate::fmt_http_date(std::time::SystemTime::now());
        source.server.on("/changelist.xml", move |request| {
            match request.header("if-modified-since") == Some(now.as_str()) {
                true => Reply::status(304).with("Date", &now),
                false => Reply::ok(list.as_str()).with("Last-Modified", &now).with("Date", &now),
            }
        });
    };
    publish(&source, "");
    let mirror = opened(&source);
    let mut entries = String::new();
    for second in 10..14 {
        entries += &source.does("updated", "/a", second, &format!("at {second}"));
        publish(&source, &entries);
        mirror.refreshed();
        agrees(&mirror, &source);
    }
}
