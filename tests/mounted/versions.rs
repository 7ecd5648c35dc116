//! Prior versions as files: a directory of versions for each resource, and the tree as of a moment.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::support::changes::{Source, at, mounted};
use crate::support::history::{Happened, History};
use crate::support::nginx::Nginx;
use crate::support::pywb::Pywb;
use crate::support::server::Reply;
use crate::support::{Mirror, entry, facts_of, ln, md5, output, resource_list, scramble, sha256, with_links, xattr};

fn link_to(mirror: &Mirror, below: &str) -> String {
    let target = fs::read_link(mirror.path(below)).unwrap_or_else(|error| panic!("{below}: {error}"));
    target.to_string_lossy().into_owned()
}

fn text(mirror: &Mirror, below: &str) -> String {
    String::from_utf8(mirror.read(below).unwrap_or_else(|error| panic!("{below}: {error}: {}", mirror.errors())))
        .unwrap()
}

fn is_missing(mirror: &Mirror, below: &str) -> bool {
    mirror.read(below).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// What `log --json` says of a path.
fn log(mirror: &Mirror, below: &str) -> serde_json::Value {
    serde_json::from_str(&output(&["log", &mirror.path(below).to_string_lossy(), "--json"])).unwrap()
}

/// How a moment is spelled in a name.
fn spelled(second: u64) -> String {
    at(second).replace(['-', ':'], "")
}

const CAPTURED: [(&str, &str); 3] = [
    ("2013-01-03T09:00:00Z", "20130103T090000Z"),
    ("2014-06-15T12:30:00Z", "20140615T123000Z"),
    ("2016-11-20T18:45:10Z", "20161120T184510Z"),
];

/// A Source whose one resource has three captures in pywb, of which its list tells by these links. What it lists
/// itself is newer.
fn with_captures(redirect: bool, links: impl Fn(&Pywb) -> String) -> (Source, Pywb) {
    let bodies: Vec<String> = (1..=3).map(|number| format!("<r version='{number}'>captured</r>\n")).collect();
    let captures: Vec<_> = CAPTURED
        .iter()
        .zip(&bodies)
        .map(|((when, _), body)| ("http://example.com/dir/res2.xml", "application/xml", *when, body.as_bytes()))
        .collect();
    let pywb = Pywb::start(&captures, redirect);
    let source = Source::start(&[("/dir/res2.xml", "<r>now</r>\n")], &[]);
    let listed = entry(&source.url("/dir/res2.xml"), &facts_of(b"<r>now</r>\n"));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &with_links(&listed, &links(&pywb))));
    (source, pywb)
}

/// Three captures are three files, with the right bytes and times; between two, the earlier one holds.
fn shows_captures(mirror: &Mirror) {
    let of = |name: &str| format!(".versions/dir/res2.xml/{name}");
    let files: Vec<String> = CAPTURED.iter().map(|(_, name)| format!("{name}.xml")).collect();
    assert_eq!(mirror.names(".versions/dir/res2.xml"), [files.clone(), vec![format!("{}.xml", spelled(0))]].concat());
    for (number, file) in files.iter().enumerate() {
        let body = format!("<r version='{}'>captured</r>\n", number + 1);
        assert_eq!(text(mirror, &of(file)), body);
        let found = fs::metadata(mirror.path(&of(file))).unwrap();
        let modified = jiff::Timestamp::try_from(found.modified().unwrap()).unwrap();
        assert_eq!((modified.to_string().as_str(), found.len()), (CAPTURED[number].0, body.len() as u64));
        assert!(found.permissions().readonly());
    }
    for (moment, file) in [
        ("2013-01-03T09:00:01Z", Some(0)),
        ("20130601000000", Some(0)),
        ("2014-06-15T12:29:59Z", Some(0)),
        ("2014-06-15T12:30:00Z", Some(1)),
        ("20150101T000000Z", Some(1)),
        ("2016-11-20T19:45:10+01:00", Some(2)),
        ("2020-01-01", Some(2)),
        ("2013-01-03T08:59:59Z", None),
        ("1999", None),
    ] {
        let Some(file) = file else {
            assert!(is_missing(mirror, &of(moment)), "{moment}");
            assert!(is_missing(mirror, &format!(".versions/@{moment}/dir/res2.xml")), "{moment}");
            continue;
        };
        assert_eq!(link_to(mirror, &of(moment)), files[file], "{moment}");
        let body = format!("<r version='{}'>captured</r>\n", file + 1);
        assert_eq!(text(mirror, &of(moment)), body, "{moment}");
        assert_eq!(text(mirror, &format!(".versions/@{moment}/dir/res2.xml")), body, "{moment}");
    }
    assert_eq!(text(mirror, "dir/res2.xml"), "<r>now</r>\n");
    assert_eq!(text(mirror, &format!(".versions/@{}/dir/res2.xml", spelled(1))), "<r>now</r>\n");
}

/// What a list says of pywb.
type Links = fn(&Pywb) -> String;

#[test]
fn captures_of_a_web_archive_are_files() {
    fn gate(pywb: &Pywb) -> String {
        ln("timegate", &pywb.timegate("http://example.com/dir/res2.xml"), "")
    }
    fn map(pywb: &Pywb) -> String {
        ln("timemap", &pywb.timemap("http://example.com/dir/res2.xml"), "type=\"application/link-format\"")
    }
    let both = |pywb: &Pywb| gate(pywb) + &map(pywb);
    let links: [(bool, Links); 4] = [(true, both), (true, gate), (false, gate), (false, map)];
    std::thread::scope(|scope| {
        for (redirect, links) in links {
            scope.spawn(move || {
                let (source, pywb) = with_captures(redirect, links);
                let mut mirror = Mirror::mount(&source.url("/"), "poll=0");
                shows_captures(&mirror);
                let first = mirror.path(".versions/dir/res2.xml/20130103T090000Z.xml");
                let (url, raw) =
                    (xattr(&first, "user.resourcesync.memento"), xattr(&first, "user.resourcesync.original"));
                // Its pages are rewritten: the bytes are those of the original, and that is said.
                assert!(url.as_ref().unwrap().contains("/20130103090000"), "{url:?}");
                assert_eq!(url, raw);
                assert_eq!(xattr(&first, "user.resourcesync.datetime").unwrap(), CAPTURED[0].0);
                let of = |name: &str| xattr(&first, &format!("user.resourcesync.{name}"));
                assert!(of("timegate").is_some() || of("timemap").is_some());
                mirror.kill();
                let again = mirror.try_mount();
                assert!(again.status.success(), "{}", crate::support::text(&again));
                shows_captures(&mirror);
                // What was read is there without the archive, and without the Source.
                drop(pywb);
                mirror.unmount();
                mirror.set_options("offline");
                let again = mirror.try_mount();
                assert!(again.status.success(), "{}", crate::support::text(&again));
                shows_captures(&mirror);
            });
        }
    });
}

#[test]
fn the_version_that_the_source_lists_and_its_capture_are_one() {
    let links = |pywb: &Pywb| ln("timemap", &pywb.timemap("http://example.com/dir/res2.xml"), "");
    let (mut source, _pywb) = with_captures(true, links);
    let body = b"<r version='3'>captured</r>\n";
    source.put("/dir/res2.xml", body);
    let listed = fs_list(&source, &_pywb, body);
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let files: Vec<String> = CAPTURED.iter().map(|(_, name)| format!("{name}.xml")).collect();
    assert_eq!(mirror.names(".versions/dir/res2.xml"), files);
    let newest = mirror.path(".versions/dir/res2.xml").join(&files[2]);
    assert_eq!(fs::read(&newest).unwrap(), body);
    assert_eq!(xattr(&newest, "user.resourcesync.verified").unwrap(), "yes");
}

fn fs_list(source: &Source, pywb: &Pywb, body: &[u8]) -> String {
    let listed = entry(&source.url("/dir/res2.xml"), &facts_of(body));
    let listed = listed.replace("</loc>", &format!("</loc><lastmod>{}</lastmod>", CAPTURED[2].0));
    with_links(&listed, &ln("timemap", &pywb.timemap("http://example.com/dir/res2.xml"), ""))
}

/// What there was at a moment.
fn as_of(baseline: &BTreeMap<String, Vec<u8>>, told: &[Happened], second: u64) -> BTreeMap<String, String> {
    let mut there = baseline.clone();
    for one in told.iter().filter(|one| one.second <= second) {
        match one.kind {
            "deleted" => there.remove(&one.path),
            _ => there.insert(one.path.clone(), one.bytes.clone()),
        };
    }
    there.iter().map(|(path, body)| (path.trim_start_matches('/').to_owned(), sha256(body))).collect()
}

/// All files below, and the digests of their content.
fn tree(mirror: &Mirror, below: &str) -> BTreeMap<String, String> {
    let root = mirror.path(below);
    let digest = |path: String| {
        let body =
            fs::read(root.join(&path)).unwrap_or_else(|error| panic!("{below}/{path}: {error}: {}", mirror.errors()));
        (path, sha256(&body))
    };
    crate::support::files(&root).into_iter().map(digest).collect()
}

#[test]
fn five_thousand_changes_by_change_dump_are_versions_and_moments() {
    crate::support::require(&["nginx"]);
    let seed = crate::support::seed();
    let mut nginx = Nginx::prepare();
    let mut history = History::new(&nginx, seed, 500);
    history.publish(&["changedump"]);
    let baseline = history.now.clone();
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "poll=0,content=all");
    mirror.wait("all content", |status| status["cached"]["resources"] == 500);
    for _ in 0..10 {
        history.changes(500);
        history.pack();
        history.rotate();
        mirror.refreshed();
    }
    let last = history.told.last().unwrap().second;
    let check = |moments: u64| {
        let mut wanted: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (path, body) in &baseline {
            wanted.entry(path).or_default().push(sha256(body));
        }
        for one in history.told.iter().filter(|one| one.kind != "deleted") {
            wanted.entry(&one.path).or_default().push(sha256(&one.bytes));
        }
        for (path, mut digests) in wanted {
            let mut found: Vec<String> = tree(&mirror, &format!(".versions{path}")).into_values().collect();
            digests.sort();
            found.sort();
            assert_eq!(found, digests, "SEED={seed}, {path}");
        }
        let mut random = seed;
        for _ in 0..moments {
            random = scramble(random);
            let second = 5 + random % (last + 5);
            let found = tree(&mirror, &format!(".versions/@{}", spelled(second)));
            let wanted = as_of(&baseline, &history.told, second);
            // Before the list was made there was nothing that is known.
            let wanted = if second < 10 { BTreeMap::new() } else { wanted };
            assert!(found == wanted, "SEED={seed}, second {second}: {} files, not {}", found.len(), wanted.len());
        }
    };
    check(20);
    mirror.kill();
    drop(nginx);
    let again = mirror.try_mount();
    assert!(again.status.success(), "{}", crate::support::text(&again));
    check(5);
}

#[test]
fn a_memento_link_is_another_place_or_another_version() {
    let mut source = Source::start(&[("/same", "now"), ("/other", "now"), ("/dead", "now")], &["changelist"]);
    let facts = facts_of(b"now");
    let old = facts_of(b"then");
    let modified = |second| format!("modified=\"{}\"", at(second));
    let links = [
        ("/same", ln("memento", "/m/same", &format!("{} {facts}", modified(0)))),
        ("/other", ln("memento", "m/other", &format!("modified=\"2025-12-31T23:59:59Z\" {old}"))),
        ("/dead", ln("memento", "/m/dead", "modified=\"2025-12-31T23:59:59Z\" length=\"9\"")),
    ];
    let entries: String =
        links.iter().map(|(path, link)| with_links(&entry(&source.url(path), &facts), link)).collect();
    source.server.file("/resourcelist.xml", resource_list(&at(10), &entries));
    source.server.file("/m/same", "now");
    source.server.file("/m/other", "then");
    let mirror = mounted(&source);
    // The entry's own hash: no second version.
    assert_eq!(mirror.names(".versions/same"), [spelled(0)]);
    assert_eq!(log(&mirror, "same").as_array().unwrap().len(), 1);
    // Another hash: another version, verified by it.
    assert_eq!(mirror.names(".versions/other"), ["20251231T235959Z".to_owned(), spelled(10)]);
    assert_eq!(text(&mirror, ".versions/other/20251231T235959Z"), "then");
    let verified = mirror.path(".versions/other/20251231T235959Z");
    assert_eq!(xattr(&verified, "user.resourcesync.verified").unwrap(), "yes");
    assert_eq!(fs::metadata(mirror.path(".versions/other/20251231T235959Z")).unwrap().len(), 4);
    // One that its server does not have is found out, and then only in the log.
    assert_eq!(mirror.names(".versions/dead"), ["20251231T235959Z".to_owned(), spelled(10)]);
    assert!(mirror.read(".versions/dead/20251231T235959Z").is_err());
    assert_eq!(mirror.names(".versions/dead"), [spelled(10)]);
    assert!(is_missing(&mirror, ".versions/dead/2026-01-15"));
    let logged = log(&mirror, "dead");
    assert_eq!((&logged[1]["name"], &logged[1]["where"]), (&serde_json::Value::Null, &serde_json::json!([])));
    // When the resource changes again before it was read, its own memento still has it.
    let change = source.does("updated", "/same", 20, "newer");
    source.changes(&change);
    mirror.refreshed();
    assert_eq!(mirror.names(".versions/same"), [spelled(0), spelled(20)]);
    assert_eq!(text(&mirror, &format!(".versions/same/{}", spelled(0))), "now");
    assert_eq!(text(&mirror, "same"), "newer");
}

#[test]
fn what_can_be_had_nowhere_is_in_the_log_alone() {
    let mut source = Source::start(&[("/a.txt", "one")], &["changelist"]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let changes = source.does("updated", "/a.txt", 10, "two") + &source.does("updated", "/a.txt", 20, "three");
    source.changes(&changes);
    mirror.refreshed();
    // Nobody read the first two, and the Source has the newest only.
    assert_eq!(mirror.names(".versions/a.txt"), [format!("{}.txt", spelled(20))]);
    assert!(is_missing(&mirror, &format!(".versions/a.txt/{}.txt", spelled(10))));
    assert!(is_missing(&mirror, &format!(".versions/a.txt/{}", at(15))));
    let logged = log(&mirror, "a.txt");
    let logged: Vec<_> =
        logged.as_array().unwrap().iter().map(|one| (&one["begin"], &one["name"], &one["where"][0]["kind"])).collect();
    let null = &serde_json::Value::Null;
    let (newest, file) = (at(20).into(), format!("{}.txt", spelled(20)).into());
    assert_eq!(logged, [(&newest, &file, &"source".into()), (&at(10).into(), null, null), (&at(0).into(), null, null)]);
    // In the tree of that moment it is there, and says that it cannot be read.
    let then = mirror.path(&format!(".versions/@{}/a.txt", spelled(12)));
    assert_eq!(fs::metadata(&then).unwrap().len(), 3);
    assert!(fs::read(&then).is_err_and(|error| error.raw_os_error() == Some(5)));
    assert!(mirror.errors().contains("no memento of it is known"), "{}", mirror.errors());
    // One that was read stays.
    assert_eq!(text(&mirror, "a.txt"), "three");
    let changes = changes + &source.does("deleted", "/a.txt", 30, "");
    source.changes(&changes);
    mirror.refreshed();
    assert!(is_missing(&mirror, "a.txt"));
    assert_eq!(mirror.names(".versions"), ["a.txt"]);
    assert_eq!(text(&mirror, &format!(".versions/a.txt/{}", at(25))), "three");
    assert_eq!(text(&mirror, &format!(".versions/@{}/a.txt", at(29))), "three");
    assert!(is_missing(&mirror, &format!(".versions/a.txt/{}", at(30))));
    assert_eq!(mirror.names(&format!(".versions/@{}", at(30))), Vec::<String>::new());
}

#[test]
fn within_a_second_versions_have_names_of_their_own() {
    let mut source = Source::start(&[("/a.txt", "one")], &["changelist"]);
    let mirror = mounted(&source);
    let mut changes = String::new();
    for (fraction, body) in [("", "two"), (".25", "three"), (".75", "four")] {
        let change = source.does("updated", "/a.txt", 10, body);
        changes += &change.replace(&at(10), &at(10).replace('Z', &format!("{fraction}Z")));
        source.changes(&changes);
        mirror.refreshed();
        assert_eq!(text(&mirror, "a.txt"), body);
    }
    changes += &source.does("updated", "/a.txt", 10, "five").replace(&at(10), &at(10).replace('Z', ".75Z"));
    source.changes(&changes);
    mirror.refreshed();
    assert_eq!(text(&mirror, "a.txt"), "five");
    let second = spelled(10);
    let stem = second.trim_end_matches('Z');
    let of = |name: &str| format!(".versions/a.txt/{name}");
    let files = [
        (format!("{}.txt", spelled(0)), "one"),
        (format!("{stem}.25Z.txt"), "three"),
        (format!("{stem}.75Z.txt"), "four"),
        (format!("{stem}.75Z~2.txt"), "five"),
        (format!("{second}.txt"), "two"),
    ];
    assert_eq!(mirror.names(".versions/a.txt"), files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
    for (name, body) in &files {
        assert_eq!(text(&mirror, &of(name)), *body);
    }
    let moment = |fraction: &str| of(&at(10).replace('Z', &format!("{fraction}Z")));
    for (fraction, body) in [("", "two"), (".1", "two"), (".25", "three"), (".5", "three"), (".8", "five")] {
        assert_eq!(text(&mirror, &moment(fraction)), body, "{fraction}");
    }
}

#[test]
fn a_spelling_is_a_link_and_a_name_is_not() {
    let mut source = Source::start(&[("/data/a.tar.gz", "one"), ("/plain", "p")], &["changelist"]);
    let mirror = mounted(&source);
    let change = source.does("updated", "/data/a.tar.gz", 3600, "two");
    source.changes(&change);
    mirror.refreshed();
    assert_eq!(text(&mirror, "data/a.tar.gz"), "two");
    let of = |name: &str| format!(".versions/data/a.tar.gz/{name}");
    assert_eq!(mirror.names(".versions/data/a.tar.gz"), ["20260301T080000Z.gz", "20260301T090000Z.gz"]);
    for spelling in [
        "20260301T080000Z",
        "2026-03-01T08:00:00Z",
        "20260301080000",
        "2026-03-01T10:30:00+02:00",
        "2026-03-01T08:59:59.9Z",
        "2026-03-01T08:30:00Z.gz",
        "20260301T0830Z",
    ] {
        assert_eq!(link_to(&mirror, &of(spelling)), "20260301T080000Z.gz", "{spelling}");
        let time = |link: bool| {
            let path = mirror.path(&of(spelling));
            if link { fs::symlink_metadata(path) } else { fs::metadata(path) }.unwrap().modified().unwrap()
        };
        assert_eq!(time(true), time(false), "{spelling}: a link has the time of its version");
    }
    assert_eq!(link_to(&mirror, &of("20300101000000")), "20260301T090000Z.gz");
    for spelling in ["20260301T075959Z", "2026", "yesterday", "20260301T080000Z.pdf", "@20260301T080000Z", ""] {
        assert!(spelling.is_empty() || is_missing(&mirror, &of(spelling)), "{spelling}");
    }
    assert_eq!(mirror.names(".versions/plain"), ["20260301T080000Z"]);
    // A moment's tree has one spelling of its own; all others lead to it.
    assert_eq!(link_to(&mirror, ".versions/@2026-03-01T10:30:00+02:00"), "@20260301T083000Z");
    assert_eq!(link_to(&mirror, ".versions/@20260301083000"), "@20260301T083000Z");
    assert!(fs::read_link(mirror.path(".versions/@20260301T083000Z")).is_err());
    assert_eq!(crate::support::files(&mirror.path(".versions/@2026-03-01T08:30:00Z")), ["data/a.tar.gz", "plain"]);
    assert!(is_missing(&mirror, ".versions/@nonsense"));
    // It is reached by name, and not listed, unless that is asked for; and nothing can be written to it.
    assert_eq!(mirror.names(""), ["data", "plain"]);
    assert!(fs::write(mirror.path(".versions/plain/new"), "x").is_err_and(|error| error.raw_os_error() == Some(30)));
    assert!(
        fs::remove_file(mirror.path(&of("20260301T080000Z.gz"))).is_err_and(|error| error.raw_os_error() == Some(30))
    );
    assert_eq!(
        crate::support::shell(&format!(
            "cd {} && cp -rL .versions/@2026-03-01T08:30:00Z {}/copy && find .versions | wc -l",
            mirror.directory.display(),
            mirror.cache.display()
        ))
        .trim(),
        "7"
    );
    assert_eq!(fs::read(mirror.cache.join("copy/data/a.tar.gz")).unwrap(), b"one");
}

#[test]
fn visible_lists_it() {
    let source = Source::start(&[("/a", "a")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,visible");
    assert_eq!(mirror.names(""), [".resourcesync", ".versions", "a"]);
    assert_eq!(
        crate::support::shell(&format!("cd {} && find .versions", mirror.directory.display())).lines().count(),
        3
    );
}

#[test]
fn an_archive_that_told_first_and_the_change_are_one_version() {
    let mut source = Source::start(&[("/a", "one")], &["changelist"]);
    let map = |extra: &str| {
        format!(
            "<{0}/a>; rel=\"original\", </m/0>; rel=\"first memento\"; datetime=\"Sun, 01 Mar 2026 08:00:00 GMT\"{extra}",
            "http://example.com"
        )
    };
    let second = ",\n</m/1>; rel=\"memento\"; datetime=\"Sun, 01 Mar 2026 08:00:40 GMT\"";
    source.server.file("/map", map(second));
    let listed = with_links(&entry(&source.url("/a"), &facts_of(b"one")), &ln("timemap", "/map", ""));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
    source.server.file("/m/1", "two");
    let mirror = mounted(&source);
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(40)]);
    let held = fs::File::open(mirror.path(&format!(".versions/a/{}", spelled(40)))).unwrap();
    assert_eq!(std::io::read_to_string(&held).unwrap(), "two");
    let change = source.does("updated", "/a", 40, "two");
    source.changes(&change);
    mirror.refreshed();
    assert_eq!(text(&mirror, "a"), "two");
    assert_eq!(mirror.names(".versions/a"), [spelled(0), spelled(40)]);
    assert_eq!(log(&mirror, "a").as_array().unwrap().len(), 2);
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(40))), "two");
    assert_eq!(held.metadata().unwrap().len(), 3);
}

#[test]
fn one_that_is_listed_costs_one_request_and_others_none() {
    let source = Source::start(&[("/d/a", "a"), ("/d/b", "b"), ("/d/c", "c")], &[]);
    let entries: String = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let listed = entry(&source.url(&format!("/d/{name}")), &facts_of(name.as_bytes()));
            with_links(&listed, &ln("timemap", &format!("/map/{name}"), ""))
        })
        .collect();
    source.server.file("/resourcelist.xml", resource_list(&at(0), &entries));
    let mementos: String = (0..500)
        .map(|number| {
            format!(
                ",\n</m/{number}>; rel=\"memento\"; datetime=\"Tue, 03 Jan 2012 09:{:02}:{:02} GMT\"",
                number / 60,
                number % 60
            )
        })
        .collect();
    source.server.file("/map/a", format!("</d/a>; rel=\"original\"{mementos}"));
    let mirror = mounted(&source);
    let asked = || {
        source
            .server
            .requests()
            .iter()
            .filter(|one| one.path.starts_with("/map") || one.path.starts_with("/m/"))
            .count()
    };
    assert_eq!(mirror.names(".versions/d"), ["a", "b", "c"]);
    // What lies in the current tree, or in that of a moment, is not asked for.
    crate::support::shell(&format!(
        "cd {} && find .versions/@{} -ls && ls -l .versions/d",
        mirror.directory.display(),
        at(5)
    ));
    assert_eq!(asked(), 0);
    assert_eq!(mirror.names(".versions/d/a").len(), 501);
    assert_eq!(asked(), 1, "the TimeMap");
    assert_eq!(mirror.names(".versions/d/a").len(), 501);
    assert_eq!(asked(), 1, "it is fresh");
    // They are fetched ahead of use, those that can be had.
    source.server.file("/m/7", "seven");
    let fetched = crate::support::run(&["fetch", &mirror.path(".versions/d/a").to_string_lossy()]);
    assert!(
        crate::support::text(&fetched).contains("499 files could not be had"),
        "{}",
        crate::support::text(&fetched)
    );
    assert_eq!(text(&mirror, ".versions/d/a/20120103T090007Z"), "seven");
    assert_eq!(mirror.names(".versions/d/a").len(), 2);
    // A directory of versions is asked for when it is read, and once.
    mirror.remount();
    let before = asked();
    assert_eq!(mirror.names(".versions/d/a").len(), 2);
    assert_eq!(asked(), before, "what was read lately need not be asked again, even by the next process");
}

#[test]
fn a_source_that_cannot_be_asked_is_waited_for_no_longer_than_timeout() {
    let source = Source::start(&[("/a", "a")], &[]);
    source.server.on("/map", |_| Reply { stall_after: Some(10), ..Reply::ok("<x>; rel=\"original\"") });
    let listed = with_links(&entry(&source.url("/a"), &facts_of(b"a")), &ln("timemap", "/map", ""));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=8");
    let began = Instant::now();
    assert_eq!(mirror.names(".versions/a"), [spelled(0)]);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let trouble = xattr(&mirror.path(".versions/a"), "user.resourcesync.error").unwrap();
    assert!(trouble.contains("no answer within"), "{trouble}");
    let logged = fs::read_to_string(mirror.cache.join("log")).unwrap_or_default();
    assert!(logged.is_empty() || logged.contains("its versions could not be asked for"), "{logged}");
    let began = Instant::now();
    assert_eq!(mirror.names(".versions/a"), [spelled(0)]);
    // Whether there was one, nobody knows.
    assert!(mirror.read(".versions/a/2001").is_err_and(|error| error.raw_os_error() == Some(5)));
    assert!(began.elapsed() < Duration::from_secs(5), "nobody waits for it again so soon: {:?}", began.elapsed());
}

#[test]
fn history_is_kept_as_long_as_keep_says_and_the_last_three_always() {
    let mut source = Source::start(&[("/a", "0"), ("/pinned", "p0")], &["changelist"]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,keep=0");
    output(&["fetch", "--pin", &mirror.path("pinned").to_string_lossy()]);
    let mut changes = String::new();
    for number in 1..=6 {
        assert_eq!(text(&mirror, "a"), (number - 1).to_string());
        assert_eq!(text(&mirror, "pinned"), format!("p{}", number - 1));
        changes += &source.does("updated", "/a", number * 10, &number.to_string());
        changes += &source.does("updated", "/pinned", number * 10, &format!("p{number}"));
        source.changes(&changes);
        mirror.refreshed();
    }
    assert_eq!(text(&mirror, "a"), "6");
    let began = Instant::now();
    while mirror.names(".versions/a").len() > 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", mirror.names(".versions/a"));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(mirror.names(".versions/a"), [30, 40, 50, 60].map(spelled));
    assert_eq!(mirror.names(".versions/pinned").len(), 7, "what is pinned stays");
    assert_eq!(log(&mirror, "a").as_array().unwrap().len(), 7, "it is in the log all the same");
    assert_eq!(text(&mirror, &format!(".versions/a/{}", spelled(30))), "3");
}

#[test]
fn a_memento_that_is_not_what_its_link_says_is_not_served() {
    let source = Source::start(&[("/a", "now")], &[]);
    let old = format!("hash=\"md5:{}\" length=\"4\" modified=\"2020-01-01T00:00:00Z\"", md5(b"then"));
    let listed = with_links(&entry(&source.url("/a"), &facts_of(b"now")), &ln("memento", "/m", &old));
    source.server.file("/resourcelist.xml", resource_list(&at(0), &listed));
    source.server.file("/m", "them");
    let mirror = mounted(&source);
    let path = ".versions/a/20200101T000000Z";
    assert!(mirror.read(path).is_err_and(|error| error.raw_os_error() == Some(5)));
    assert!(mirror.errors().contains("wrong content"), "{}", mirror.errors());
    source.server.file("/m", "then");
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(text(&mirror, path), "then");
    source.server.remove("/m");
    mirror.remount();
    assert_eq!(text(&mirror, path), "then");
}

#[test]
fn the_tree_as_of_a_moment_is_kept_by_the_kernel_until_the_past_changes() {
    let names: Vec<String> = (0..300).map(|number| format!("/data/{}/{number}", number % 7)).collect();
    let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "one")).collect();
    let mut source = Source::start(&resources, &["changelist"]);
    source.changes("");
    let mirror = mounted(&source);
    let then = fs::File::open(mirror.path(&format!(".versions/@{}", spelled(5)))).unwrap();
    let (process, handle) = (std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&then));
    let work = format!("find /proc/{process}/fd/{handle}/ -printf '%s %T@ %P\\n' | sha256sum");
    crate::support::shell(&work);
    let daemon = mirror.daemon().unwrap();
    let tries = (0..3).any(|_| {
        let cold = crate::support::shell(&work);
        crate::support::shell(&format!("kill -STOP {daemon}"));
        let warm = std::process::Command::new("timeout").args(["10", "bash", "-c", &work]).output().unwrap();
        crate::support::shell(&format!("kill -CONT {daemon}"));
        String::from_utf8_lossy(&warm.stdout) == cold
    });
    assert!(tries, "what was read before is asked for again, each time");
    // What comes later changes nothing of it; what is learnt of before does.
    let files = |second| crate::support::files(&mirror.path(&format!(".versions/@{}", spelled(second)))).len();
    assert_eq!((files(5), files(50)), (300, 300));
    let later = source.does("created", "/data/new", 40, "new");
    source.changes(&later);
    mirror.refreshed();
    assert_eq!((files(5), files(50)), (300, 301));
    let before = source.does("deleted", "/data/3/3", 3, "");
    source.changes(&(before + &later));
    mirror.refreshed();
    assert_eq!((files(2), files(5), files(50)), (300, 299, 300));
    assert!(is_missing(&mirror, &format!(".versions/@{}/data/3/3", spelled(5))));
    assert_eq!(text(&mirror, &format!(".versions/@{}/data/3/3", spelled(2))), "one");
}

#[test]
fn the_link_header_of_a_resource_tells_where_its_versions_are() {
    let source = Source::start(&[("/a", "one"), ("/b", "b")], &[]);
    let links = "</map>; rel=\"timemap\"; type=\"application/link-format\", </other>; rel=\"timemap\"; anchor=\"http://else.example/\"";
    source.server.on("/a", move |request| crate::support::server::Reply::good(request, b"one").with("Link", links));
    let memento = "</m/1>; rel=\"first last memento\"; datetime=\"Sun, 01 Feb 2026 08:00:00 GMT\"";
    source.server.file("/map", format!("</a>; rel=\"original\",\n{memento}"));
    source.server.file("/m/1", "before");
    let mirror = mounted(&source);
    let heads =
        |path: &str| source.server.requests().iter().filter(|one| one.method == "HEAD" && one.path == path).count();
    for _ in 0..2 {
        assert_eq!(mirror.names(".versions/a"), ["20260201T080000Z".to_owned(), spelled(0)]);
        assert_eq!(text(&mirror, ".versions/a/20260201T080000Z"), "before");
        // One that says nothing has its own version alone.
        assert_eq!(mirror.names(".versions/b"), [spelled(0)]);
    }
    assert_eq!([heads("/a"), heads("/b"), source.server.count("/other")], [1, 1, 0], "a day long");
    assert_eq!(xattr(&mirror.path(".versions/b"), "user.resourcesync.error"), None);
}
