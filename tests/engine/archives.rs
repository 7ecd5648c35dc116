//! Archives as they are: what they say of the past, and what they give instead of it.

use crate::support::changes::{Source, at, opened};
use crate::support::memento::{capture, datetime, timemap};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Request};
use crate::support::{entry, facts_of, ln, resource_list, sha256};
use std::time::{Duration, Instant};

/// A Source whose one resource `/a` has these links, and nothing said of its bytes unless `said`.
fn linking(links: &str, said: bool) -> Source {
    let source = Source::start(&[("/a", "now")], &[]);
    let facts = if said { facts_of(b"now") } else { String::new() };
    list(&source, at(0).as_str(), &facts, links);
    source
}

/// From now on the Source tells of changes, too.
fn offer_changes(source: &Source, mirror: &Mirror, entries: &str) {
    source.changes(entries);
    let offers: String = ["resourcelist", "changelist"]
        .iter()
        .map(|name| crate::support::capability(&source.url(&format!("/{name}.xml")), name))
        .collect();
    source.server.file("/capabilitylist.xml", crate::support::document("capabilitylist", "", "", &offers));
    mirror.remount();
    mirror.refreshed();
}

fn list(source: &Source, lastmod: &str, facts: &str, links: &str) {
    let listed = entry(&source.url("/a"), facts)
        .replace("</loc>", &format!("</loc><lastmod>{lastmod}</lastmod>"))
        .replace("</url>", &format!("{links}</url>"));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
}

fn mount(source: &Source) -> Mirror {
    Mirror::mount(&source.url("/"), "poll=0")
}

fn text(mirror: &Mirror, below: &str) -> Result<String, Option<i32>> {
    mirror.read(below).map(|body| String::from_utf8(body).unwrap()).map_err(|error| error.raw_os_error())
}

const EIO: Result<String, Option<i32>> = Err(Some(5));
const NOWHERE: Result<String, Option<i32>> = Err(Some(2));

fn spelled(second: u64) -> String {
    at(second).replace(['-', ':'], "")
}

#[test]
fn one_url_for_all_times_gives_each_its_own() {
    let source = linking(&ln("timegate", "/gate", ""), true);
    source.server.on("/gate", |request| {
        let asked = request.header("accept-datetime").map_or(9999, |text| text[12..16].parse().unwrap());
        let year = [2010_i16, 2009, 2008].into_iter().find(|year| *year <= asked).unwrap_or(2008);
        capture(request, &format!("of {year}"), year).with("Vary", "accept-datetime")
    });
    let mirror = mount(&source);
    for (moment, year) in
        [("2008-06-01", 2008), ("2010-06-01", 2010), ("2009-03-01", 2009), ("2008-09-01", 2008), ("2009-09-01", 2009)]
    {
        assert_eq!(text(&mirror, &format!(".versions/a/{moment}")), Ok(format!("of {year}")), "{moment}");
        assert_eq!(text(&mirror, &format!(".versions/@{moment}/a")), Ok(format!("of {year}")), "{moment}");
    }
    assert_eq!(text(&mirror, ".versions/a/2007-01-01"), NOWHERE);
    assert_eq!(mirror.names(".versions/a").len(), 4);
    mirror.kill();
    mirror.try_mount().unwrap();
    assert_eq!(text(&mirror, ".versions/a/20090101T000000Z"), Ok("of 2009".to_owned()));
    assert_eq!(text(&mirror, "a"), Ok("now".to_owned()));
}

#[test]
fn what_is_not_the_capture_is_not_taken_for_it() {
    let archived = |year: i16| format!("/{year}0101000000/http://example.com/a");
    let original = |year: i16| format!("/{year}0101000000id_/http://example.com/a");
    let source = linking(&ln("timemap", "/map", ""), true);
    let urls: Vec<String> = (2001..=2008).map(archived).collect();
    let listed: Vec<(&str, i16)> = urls.iter().map(String::as_str).zip(2001..).chain([("/a", 2009)]).collect();
    source.server.file("/map", timemap(&listed));
    let page = |year: i16| move |request: &Request| capture(request, &format!("<page {year}>"), year);
    let true_bytes = |year: i16| move |request: &Request| capture(request, &format!("true {year}"), year);
    for year in 2001..=2008 {
        source.server.on(&archived(year), page(year));
        source.server.on(&original(year), true_bytes(year));
    }
    // Where originals are kept there is a page that says sorry, with a 200: the archive's own page is had.
    source.server.on(&original(2002), |request| Reply::good(request, b"sorry"));
    // For a moment it is overloaded: that is no reason to take the archive's page for ever.
    source.server.on(&original(2003), |_| Reply::status(503));
    // It has another capture instead, and says so.
    source.server.on(&original(2004), |request| capture(request, "true 2012", 2012));
    source.server.on(&archived(2004), |request| capture(request, "<page 2012>", 2012));
    // It leads to the live page.
    for url in [archived(2005), original(2005)] {
        let live = source.url("/a");
        source.server.on(&url, move |_| Reply::status(302).with("Location", &live));
    }
    // What it saw then was a redirect; or that there was nothing.
    for url in [archived(2006), original(2006)] {
        let live = source.url("/a");
        source
            .server
            .on(&url, move |_| Reply::status(302).with("Location", &live).with("Memento-Datetime", &datetime(2006)));
    }
    for url in [archived(2007), original(2007)] {
        source.server.on(&url, |_| Reply::status(404).with("Memento-Datetime", &datetime(2007)));
    }
    // It rewrites, and has no originals.
    source.server.remove(&original(2008));
    let mirror = mount(&source);
    let read = |year: i16| text(&mirror, &format!(".versions/a/{year}0101T000000Z"));
    assert_eq!(mirror.names(".versions/a").len(), 10);
    assert_eq!(read(2001), Ok("true 2001".to_owned()));
    assert_eq!(read(2002), Ok("<page 2002>".to_owned()));
    assert_eq!(read(2003), EIO);
    assert_eq!([read(2004), read(2005), read(2006), read(2007)], [EIO; 4]);
    assert_eq!(read(2008), Ok("<page 2008>".to_owned()));
    // The resource's own URL has its newest version, whatever a TimeMap says.
    assert_eq!(read(2009), EIO);
    assert_eq!(
        mirror.xattr(".versions/a/20010101T000000Z", "user.resourcesync.original").unwrap(),
        source.url(&archived(2001))
    );
    assert_eq!(mirror.xattr(".versions/a/20020101T000000Z", "user.resourcesync.original"), None);
    // What there is not, and never will be, is listed no more; what may come back is.
    let left = [2001, 2002, 2003, 2008].map(|year| format!("{year}0101T000000Z"));
    assert_eq!(mirror.names(".versions/a"), [&left[..], &[spelled(0)]].concat());
    source.server.on(&original(2003), true_bytes(2003));
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(read(2003), Ok("true 2003".to_owned()));
}

#[test]
fn captures_of_errors_leave_the_directory_once_they_are_known() {
    let source = linking(&ln("timemap", "/map", ""), true);
    let statuses = [204_u16, 304, 404, 410, 500, 503];
    let urls: Vec<String> = statuses.iter().map(|status| format!("/archive/{status}")).collect();
    let listed: Vec<(&str, i16)> =
        urls.iter().map(String::as_str).zip(2001..).chain([("/archive/good", 2010)]).collect();
    source.server.file("/map", timemap(&listed));
    for ((url, status), year) in urls.iter().zip(statuses).zip(2001..) {
        source.server.on(url, move |_| Reply::status(status).with("Memento-Datetime", &datetime(year)));
    }
    source.server.on("/archive/good", |request| capture(request, "good", 2010));
    let mirror = mount(&source);
    assert_eq!(mirror.names(".versions/a").len(), statuses.len() + 2);
    for (year, status) in (2001..).zip(statuses) {
        assert_eq!(text(&mirror, &format!(".versions/a/{year}0101T000000Z")), EIO, "{status}");
    }
    assert_eq!(mirror.names(".versions/a"), ["20100101T000000Z".to_owned(), spelled(0)]);
    assert_eq!(text(&mirror, ".versions/a/20100101T000000Z"), Ok("good".to_owned()));
}

#[test]
fn an_archive_that_is_busy_or_kept_an_error_holds_up_nothing_else_of_its_host() {
    // The 503 is an archived response; or the archive itself is busy.
    for kept in [true, false] {
        let source = linking(&ln("timemap", "/map", ""), true);
        source.server.file("/b", "b");
        let listed = [("/archive/busy", 2001), ("/archive/good", 2002)];
        source.server.file("/map", timemap(&listed));
        source.server.on("/archive/busy", move |_| {
            let busy = Reply::status(503).with("Retry-After", "3600");
            if kept { busy.with("Memento-Datetime", &datetime(2001)) } else { busy }
        });
        source.server.on("/archive/good", |request| capture(request, "good", 2002));
        let entries = [("/a", "now"), ("/b", "b")].map(|(path, body)| {
            let links = if path == "/a" { ln("timemap", "/map", "") } else { String::new() };
            entry(&source.url(path), &facts_of(body.as_bytes())).replace("</url>", &format!("{links}</url>"))
        });
        source.server.file("/resourcelist.xml", resource_list(&at(0), &entries.concat()));
        let mirror = mount(&source);
        let began = Instant::now();
        assert_eq!(text(&mirror, ".versions/a/20010101T000000Z"), EIO, "kept: {kept}");
        assert_eq!(text(&mirror, "b"), Ok("b".to_owned()), "kept: {kept}");
        mirror.refreshed();
        assert_eq!(mirror.status()["state"], "complete", "kept: {kept}, {}", mirror.errors());
        if kept {
            assert_eq!(text(&mirror, ".versions/a/20020101T000000Z"), Ok("good".to_owned()));
        }
        assert!(began.elapsed() < Duration::from_secs(10), "kept: {kept}, {:?}", began.elapsed());
    }
}

#[test]
fn a_link_is_believed_as_far_as_it_can_be_held_to_something() {
    for verify in ["strict", "off", "warn"] {
        let old = format!("modified=\"2008-01-01T00:00:00Z\" {}", facts_of(b"then"));
        let links = ln("memento", "/hashed", &old)
            + &ln("memento", "/led", "modified=\"2009-01-01T00:00:00Z\" length=\"9\"")
            + &ln("memento", "/plain", "modified=\"2010-01-01T00:00:00Z\" length=\"5\"");
        let source = linking(&links, true);
        for path in ["/hashed", "/led"] {
            let live = source.url(if path == "/led" { "/other" } else { "/a" });
            source.server.on(path, move |_| Reply::status(302).with("Location", &live));
        }
        source.server.on("/other", |request| capture(request, "elsewhere", 2012));
        source.server.file("/plain", "plain");
        let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,verify={verify}"));
        assert_eq!(text(&mirror, ".versions/a/20080101T000000Z"), EIO, "{verify}");
        assert_eq!(text(&mirror, ".versions/a/20090101T000000Z"), EIO, "{verify}");
        assert_eq!(text(&mirror, ".versions/a/20100101T000000Z"), Ok("plain".to_owned()), "{verify}");
    }
}

#[test]
fn a_memento_link_to_the_resource_itself_is_no_place_for_what_was() {
    let source = linking(&ln("memento", "/a", ""), false);
    let mirror = mount(&source);
    assert_eq!(mirror.names(".versions/a"), [spelled(0)]);
    source.server.file("/a", "newer");
    list(&source, &at(60), "", &ln("memento", "/a", ""));
    mirror.refreshed();
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(0))), EIO);
    assert_eq!(text(&mirror, "a"), Ok("newer".to_owned()));
}

#[test]
fn other_words_of_the_same_bytes_are_no_other_version() {
    let link = |name: &str| {
        ln(
            "memento",
            &format!("/m/{name}"),
            &format!("modified=\"{name}-01-01T00:00:00Z\" {}", facts_of(name.as_bytes())),
        )
    };
    let source = linking(&link("2001"), true);
    ["2001", "2002"].iter().for_each(|name| source.server.file(&format!("/m/{name}"), *name));
    let mirror = opened(&source);
    let wanted = |more: &[&str]| -> Vec<String> {
        more.iter().map(|year| format!("{year}0101T000000Z")).chain([spelled(0)]).collect()
    };
    assert_eq!(mirror.names(".versions/a"), wanted(&["2001"]));
    for links in [link("2001") + &link("2002"), link("2001"), link("2002")] {
        list(&source, &at(0), &facts_of(b"now"), &links);
        mirror.refreshed();
        assert_eq!(mirror.names(".versions/a"), wanted(&["2001", "2002"]));
        assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(0))), Ok("now".to_owned()));
    }
    // What was the link of a version is not another version because another edition dates it otherwise.
    list(&source, &at(0), &facts_of(b"now"), &ln("memento", "/own", ""));
    mirror.refreshed();
    source.server.file("/a", "newer");
    source.server.file("/own", "now");
    let both =
        ln("memento", "/own2", &facts_of(b"newer")) + &ln("memento", "/own", "modified=\"2026-01-31T10:00:00Z\"");
    list(&source, &at(60), &facts_of(b"newer"), &both);
    mirror.refreshed();
    assert_eq!(mirror.names(".versions/a"), [wanted(&["2001", "2002"]), vec![spelled(60)]].concat());
}

#[test]
fn a_size_that_was_a_lie_costs_one_error_and_no_name() {
    let source = linking(&ln("timemap", "/map", ""), true);
    source.server.file("/map", timemap(&[("/m/first", 2001)]));
    source.server.on("/m/first", |request| {
        let reply = Reply::ok("first").with("Memento-Datetime", &datetime(2001));
        if request.method == "HEAD" { reply.with("Content-Length", "99") } else { reply }
    });
    let mirror = mount(&source);
    let path = ".versions/a/20010101T000000Z";
    let lied = mirror.stat(path).unwrap().size;
    let first = mirror.read(path);
    if lied == 99 {
        assert!(first.is_err_and(|error| error.raw_os_error() == Some(5)));
        let began = Instant::now();
        while mirror.read(path).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "{}", mirror.errors());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    assert_eq!((mirror.read(path).unwrap(), mirror.stat(path).unwrap().size), (b"first".to_vec(), 5));
    assert_eq!(mirror.names(".versions/a"), ["20010101T000000Z".to_owned(), spelled(0)]);
}

#[test]
fn a_version_with_a_thousand_places_is_asked_for_at_few() {
    let source = linking(&ln("timemap", "/map", ""), true);
    let urls: Vec<String> = (0..1000).map(|number| format!("/dead/{number}")).collect();
    let listed: Vec<(&str, i16)> = urls.iter().map(|url| (url.as_str(), 2001)).collect();
    source.server.file("/map", timemap(&listed));
    let mirror = mount(&source);
    assert_eq!(text(&mirror, ".versions/a/20010101T000000Z"), EIO);
    let asked = source.server.requests().iter().filter(|one| one.path.starts_with("/dead")).count();
    assert!((1..=24).contains(&asked), "{asked}");
}

#[test]
fn a_timegate_is_asked_where_what_was_in_force_can_be_had_nowhere() {
    let mut source = linking(&ln("timegate", "/gate", ""), true);
    let mirror = mount(&source);
    let change =
        source.does("updated", "/a", 600, "newer").replace("</url>", &(ln("timegate", "/gate", "") + "</url>"));
    offer_changes(&source, &mirror, &change);
    // Nobody read what it was before, and its archive saw it.
    let seen = "Sun, 01 Mar 2026 08:02:00 GMT";
    let url = source.url("/seen");
    source.server.on("/gate", move |_| Reply::status(302).with("Location", &url).with("Vary", "accept-datetime"));
    source.server.on("/seen", move |request| Reply::good(request, b"now").with("Memento-Datetime", seen));
    assert_eq!(text(&mirror, &format!(".versions/a/{}", at(300))), Ok("now".to_owned()));
    assert_eq!(text(&mirror, &format!(".versions/@{}/a", at(300))), Ok("now".to_owned()));
    assert_eq!(text(&mirror, &format!(".versions/a/{}", at(60))), NOWHERE);
    assert_eq!(text(&mirror, &format!(".versions/a/{}", at(700))), Ok("newer".to_owned()));
}

#[test]
fn a_server_that_is_silent_is_not_waited_for_again_and_again() {
    let source = Source::start(&[("/d/x", "x")], &[]);
    let listed: String = (0..20)
        .map(|number| {
            source.server.file(&format!("/d/{number}"), "same");
            entry(&source.url(&format!("/d/{number}")), &facts_of(b"same"))
                .replace("</url>", &(ln("timemap", &format!("/map/{number}"), "") + "</url>"))
        })
        .collect();
    for number in 0..20 {
        source.server.on(&format!("/map/{number}"), |_| Reply { delay: Duration::from_secs(120), ..Reply::ok("") });
    }
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=2");
    let began = Instant::now();
    assert_eq!(mirror.files_below(".versions").len(), 20);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let trouble = mirror.xattr(".versions/d/7", "user.resourcesync.error").unwrap();
    assert!(trouble.contains("answer"), "{trouble}");
    assert_eq!(mirror.read("d/7").unwrap(), b"same", "the Source itself is asked");
}

#[test]
fn a_resource_that_went_keeps_its_versions_when_others_come_below_its_name() {
    let mut source = Source::start(&[("/foo", "one"), ("/x", "x")], &["changelist"]);
    let mirror = opened(&source);
    let mut changes = source.does("deleted", "/foo", 10, "");
    changes += &source.does("created", "/foo/bar", 20, "bar");
    source.changes(&changes);
    mirror.refreshed();
    assert_eq!(mirror.names(".versions/foo"), ["@self", "bar"]);
    assert_eq!(text(&mirror, &format!(".versions/foo/@self/{}", spelled(0))), Ok("one".to_owned()));
    assert_eq!(text(&mirror, &format!(".versions/@{}/foo", at(5))), Ok("one".to_owned()));
    assert_eq!(mirror.names(&format!(".versions/@{}/foo", at(25))), ["bar"]);
    // A moment is looked up where its resource is, wherever that lies now.
    let link = mirror.link(&format!(".versions/foo/{}", at(5))).unwrap();
    assert_eq!(link, format!("@self/{}", spelled(0)));
    changes += &source.does("deleted", "/foo/bar", 30, "");
    changes += &source.does("created", "/foo", 40, "two");
    source.changes(&changes);
    mirror.refreshed();
    assert_eq!(text(&mirror, "foo"), Ok("two".to_owned()));
    for (second, body) in [(5, "one"), (45, "two")] {
        assert_eq!(text(&mirror, &format!(".versions/foo/{}", at(second))), Ok(body.to_owned()));
    }
    assert_eq!(text(&mirror, &format!(".versions/foo/{}", at(35))), NOWHERE);
    assert_eq!(mirror.log("foo").len(), 2);
}

#[test]
fn a_change_that_a_list_told_first_leaves_no_hole() {
    let mut source = linking("", true);
    let mirror = opened(&source);
    source.put("/a", b"newer");
    list(&source, &at(50), &facts_of(b"newer"), "");
    mirror.refreshed();
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(50)]);
    let told =
        source.does("updated", "/a", 100, "newer").replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", at(50)));
    offer_changes(&source, &mirror, &told);
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(100)]);
    for (second, body) in [(40, "now"), (60, "now"), (110, "newer")] {
        assert_eq!(text(&mirror, &format!(".versions/a/{}", at(second))), Ok(body.to_owned()), "{second}");
        assert_eq!(text(&mirror, &format!(".versions/@{}/a", at(second))), Ok(body.to_owned()), "{second}");
    }
}

#[test]
fn a_clock_that_runs_ahead_hides_nothing() {
    let source = linking("", true);
    list(&source, "2199-01-01T00:00:00Z", &facts_of(b"now"), "");
    let mirror = mount(&source);
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(5);
    assert_eq!(text(&mirror, &format!(".versions/@{later}/a")), Ok("now".to_owned()));
    assert_eq!(mirror.names(".versions/a").len(), 1);
}

#[test]
fn what_is_read_of_an_archive_is_kept_once() {
    let source = linking(&ln("timemap", "/map", ""), true);
    let urls: Vec<(String, i16)> = (2001..2011).map(|year| (format!("/m/{year}"), year)).collect();
    source.server.file("/map", timemap(&urls.iter().map(|(url, year)| (url.as_str(), *year)).collect::<Vec<_>>()));
    for (url, year) in urls.clone() {
        source.server.on(&url, move |request| capture(request, "always the same", year));
    }
    let mirror = mount(&source);
    for name in mirror.names(".versions/a").iter().filter(|name| name.as_str() < "2026") {
        assert_eq!(mirror.read(&format!(".versions/a/{name}")).unwrap(), b"always the same");
    }
    mirror.unmount();
    let stored = crate::support::files(&mirror.cache.join("objects"));
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert!(stored[0].replace('/', "").contains(&sha256(b"always the same")[2..]), "{stored:?}");
}

#[test]
fn what_an_archive_has_of_a_version_that_was_nowhere_is_there_at_once() {
    let mut source = linking(&ln("timemap", "/map", ""), true);
    let mirror = mount(&source);
    let change = source.does("updated", "/a", 600, "newer").replace("</url>", &(ln("timemap", "/map", "") + "</url>"));
    offer_changes(&source, &mirror, &change);
    // The Source's first version, of which it said when it began, and what it was.
    let map = "</a>; rel=\"original\", </seen>; rel=\"memento\"; datetime=\"Sun, 01 Mar 2026 08:00:00 GMT\"";
    source.server.file("/map", map);
    source.server.file("/seen", "now");
    // Its name alone, or a moment's tree alone, makes its archive be asked.
    assert_eq!(mirror.read(&format!(".versions/@{}/a", at(300))).unwrap(), b"now");
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(600)]);
    let again = Mirror::mount(&source.url("/"), "poll=0");
    drop(again);
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(0))), Ok("now".to_owned()));
}

#[test]
fn a_capture_that_was_read_is_here_when_the_source_tells_of_it() {
    let mut source = linking(&ln("timemap", "/map", ""), true);
    let map = "</a>; rel=\"original\", </seen>; rel=\"memento\"; datetime=\"Sun, 01 Mar 2026 08:05:00 GMT\"";
    source.server.file("/map", map);
    source.server.file("/seen", "seen");
    let mirror = mount(&source);
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(300))), Ok("seen".to_owned()));
    // Of that second a change is told that says nothing of bytes; and another after it.
    source.put("/a", b"newest");
    let told = |second: u64| {
        crate::support::changes::change(&source.url("/a"), "updated", &format!("datetime=\"{}\"", at(second)))
    };
    offer_changes(&source, &mirror, &(told(300) + &told(400)));
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(300), spelled(400)][1..]);
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(300))), Ok("seen".to_owned()));
    source.server.remove("/seen");
    mirror.unmount();
    mirror.set_options("poll=0,offline");
    mirror.try_mount().unwrap();
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(300))), Ok("seen".to_owned()));
}

#[test]
fn changes_within_a_second_are_versions_even_if_nothing_tells_them_apart() {
    let mut source = Source::start(&[("/a", "0000")], &["changelist"]);
    let mirror = opened(&source);
    let told = |kind: &str, link: &str| {
        let md = format!("datetime=\"{}\" length=\"4\"", at(10));
        crate::support::changes::change(&source.url("/b"), kind, &md)
            .replace("</url>", &(ln("memento", link, "") + "</url>"))
    };
    let entries = told("created", "/m/1") + &told("updated", "/m/2");
    source.put("/b", b"BBBB");
    source.server.file("/m/1", "AAAA");
    source.server.file("/m/2", "BBBB");
    source.changes(&entries);
    mirror.refreshed();
    let found = mirror.names(".versions/b");
    assert_eq!(found, [spelled(10), format!("{}~2", spelled(10))]);
    let mut bodies: Vec<_> = found.iter().map(|name| text(&mirror, &format!(".versions/b/{name}")).unwrap()).collect();
    bodies.sort();
    assert_eq!(bodies, ["AAAA", "BBBB"]);
}

#[test]
fn other_words_keep_the_places_of_the_first() {
    let source = linking(&(ln("timemap", "/map", "") + &ln("memento", "/own", "")), true);
    let map = "</a>; rel=\"original\", </seen>; rel=\"memento\"; datetime=\"Sun, 01 Mar 2026 08:00:00 GMT\"";
    source.server.file("/map", map);
    source.server.file("/seen", "now");
    let mirror = mount(&source);
    assert_eq!(mirror.names(".versions/a"), [spelled(0)]);
    // Another edition says more, and links to less; then the resource is another, and nobody had read it.
    list(&source, &at(0), &(facts_of(b"now") + " type=\"text/plain\""), "");
    mirror.refreshed();
    source.server.file("/a", "newer");
    list(&source, &at(60), &facts_of(b"newer"), "");
    mirror.refreshed();
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(60)]);
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(0))), Ok("now".to_owned()));
    assert_eq!(text(&mirror, &format!(".versions/@{}/a", at(30))), Ok("now".to_owned()));
}

#[test]
fn one_archive_that_hangs_does_not_hide_another() {
    let source = linking(&(ln("timemap", "/hangs", "") + &ln("timemap", "/map", "")), true);
    let other = crate::support::server::Server::start();
    other.file("/map", timemap(&[("/m/1", 2001)]));
    other.on("/m/1", |request| capture(request, "old", 2001));
    source.server.on("/hangs", |_| Reply { delay: Duration::from_secs(60), ..Reply::ok("") });
    list(&source, &at(0), &facts_of(b"now"), &(ln("timemap", "/hangs", "") + &ln("timemap", &other.url("/map"), "")));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=5");
    let began = Instant::now();
    while mirror.names(".versions/a").len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(45), "{}", mirror.errors());
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(text(&mirror, ".versions/a/20010101T000000Z"), Ok("old".to_owned()));
}

#[test]
fn a_moment_in_a_directory_that_nothing_is_known_of_makes_its_archive_be_asked() {
    let source = Source::start(&[("/papers/2024/a.txt", "now")], &[]);
    let listed = |map: &str| {
        let listed = entry(&source.url("/papers/2024/a.txt"), &facts_of(b"now"));
        source.server.file(
            "/resourcelist.xml",
            resource_list(&at(0), &listed.replace("</url>", &(ln("timemap", map, "") + "</url>"))),
        );
    };
    listed("/map");
    source.server.file("/map", timemap(&[("/m/1", 2001)]));
    source.server.on("/m/1", |request| capture(request, "old", 2001));
    let first = |below: &str| {
        let mirror = mount(&source);
        text(&mirror, below)
    };
    // Each is the very first look.
    assert_eq!(first(".versions/@2005-01-01/papers/2024/a.txt"), Ok("old".to_owned()));
    assert_eq!(first(".versions/papers/2024/a.txt/2005-01-01"), Ok("old".to_owned()));
    assert_eq!(first(".versions/papers/2024/a.txt/20010101T000000Z.txt"), Ok("old".to_owned()));
    assert_eq!(first(".versions/@2000-01-01/papers/2024/a.txt"), NOWHERE);
    assert_eq!(first(".versions/@2000-01-01/papers/2024/b.txt"), NOWHERE);
    assert_eq!(first(".versions/papers/2024/a.txt/2000-01-01"), NOWHERE);
    // A listing is of what is known.
    let mirror = mount(&source);
    assert_eq!(mirror.names(".versions/@2005-01-01"), Vec::<String>::new());
    assert_eq!(text(&mirror, ".versions/@2005-01-01/papers/2024/a.txt"), Ok("old".to_owned()));
    assert_eq!(mirror.names(".versions/@2005-01-01"), ["papers"]);
    // What cannot be asked is not said to be nowhere; and when somebody says so, it is asked again.
    listed("/none");
    let mirror = mount(&source);
    // That there is no such list is an answer.
    assert_eq!(text(&mirror, ".versions/@2005-01-01/papers/2024/a.txt"), NOWHERE);
    assert_eq!(text(&mirror, ".versions/papers/2024/a.txt/2005-01-01"), NOWHERE);
    let error = |name: &str| mirror.xattr(".versions/papers/2024/a.txt", &format!("user.resourcesync.{name}"));
    assert!(error("error").unwrap().contains("404") && error("asked").is_none(), "{:?}", error("error"));
    source.server.file("/none", "<html>no TimeMap</html>");
    mirror.refreshed();
    assert_eq!(text(&mirror, ".versions/papers/2024/a.txt/2005-01-01"), EIO);
    assert!(
        error("error").unwrap().contains("is no TimeMap") && !error("error").unwrap().contains("broke"),
        "{:?}",
        error("error")
    );
    source.server.file("/none", timemap(&[("/m/1", 2001)]));
    mirror.refreshed();
    assert_eq!(text(&mirror, ".versions/papers/2024/a.txt/2005-01-01"), Ok("old".to_owned()));
    assert!(error("error").is_none() && error("asked").is_some());
}
