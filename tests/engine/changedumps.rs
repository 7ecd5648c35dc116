//! Changes that come in packages: which are read, what of them is used, and what happens where they are no good.

use crate::support::changes::{Source, agrees, at, change_index, interval, told};

use crate::support::dump::{Item, package_with};
use crate::support::opened::Mirror;
use crate::support::server::{Reply, Request};
use crate::support::{bytes, document, entry, facts_of};
use resourcesync::sync::AuditScope;

/// A change of a package: what its manifest says, and its bitstream.
struct Packed {
    entry: String,
    item: Option<Item>,
}

fn packed(source: &Source, kind: &str, path: &str, second: u64, body: &[u8], member: &str) -> Packed {
    let url = source.url(path);
    if kind == "deleted" {
        return Packed { entry: told(&url, kind, second, body), item: None };
    }
    let md = format!("change=\"{kind}\" datetime=\"{}\" {} path=\"{member}\"", at(second), facts_of(body));
    Packed { entry: entry(&url, &md), item: Some(Item::new(&url, body).at(member)) }
}

fn package(from: u64, until: u64, changes: &[Packed]) -> Vec<u8> {
    let entries: String = changes.iter().map(|one| one.entry.as_str()).collect();
    let items: Vec<Item> = changes.iter().filter_map(|one| one.item.clone()).collect();
    package_with(&document("changedump-manifest", &interval(Some(from), Some(until)), "", &entries), &items)
}

/// Publishes a Change Dump of packages at these paths, with their intervals and lengths.
fn dump(source: &Source, at_path: &str, until: Option<u64>, packages: &[(&str, u64, u64, usize)]) {
    let entries: String = packages
        .iter()
        .map(|(path, from, until, length)| {
            let md = format!("type=\"application/zip\" length=\"{length}\" {}", interval(Some(*from), Some(*until)));
            entry(&source.url(path), &md)
        })
        .collect();
    source.server.file(at_path, document("changedump", &interval(Some(0), until), "", &entries));
}

/// Updates all of so many resources at second 10, and returns what a package of them has.
fn update_all(source: &mut Source, count: u64, length: usize) -> Vec<Packed> {
    (0..count)
        .map(|number| {
            let (path, body) = (format!("/r/{number}"), bytes(number + 1000, length));
            source.put(&path, &body);
            packed(source, "updated", &path, 10, &body, &format!("/r/{number}"))
        })
        .collect()
}

fn many(count: u64, capabilities: &[&str]) -> Source {
    let mut source = Source::start(&[], capabilities);
    for number in 0..count {
        source.put(&format!("/r/{number}"), &bytes(number, 100));
    }
    source.list(0);
    source.changes("");
    dump(&source, "/changedump.xml", None, &[]);
    source
}

/// The versions of a resource, the newest first: from when on, and until when.
fn lives(mirror: &Mirror, path: &str) -> Vec<(String, Option<String>)> {
    let text = |moment: &serde_json::Value| moment.as_str().map(str::to_owned);
    mirror.log(path).iter().map(|one| (text(&one["begin"]).unwrap(), text(&one["until"]))).collect()
}

#[test]
fn what_a_package_leaves_out_is_told_by_the_list_deletions_too() {
    let mut source = many(20, &["changelist", "changedump"]);
    ["/x", "/y"].iter().for_each(|path| source.put(path, b"first"));
    source.list(0);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,seed=dump");
    // The package has what became of it all in the end, the list has each step.
    let mut changes = update_all(&mut source, 20, 300);
    source.put("/x", b"third");
    source.remove("/y");
    changes.push(packed(&source, "updated", "/x", 18, b"third", "/x"));
    changes.push(packed(&source, "deleted", "/y", 18, b"", ""));
    let body = package(0, 20, &changes);
    dump(&source, "/changedump.xml", None, &[("/p.zip", 0, 20, body.len())]);
    source.server.file("/p.zip", body);
    let each = |path: &str| {
        let url = source.url(path);
        told(&url, "deleted", 11, b"") + &told(&url, "created", 14, b"second")
    };
    let entries: String = changes.iter().take(20).map(|one| one.entry.replace("path=", "x=")).collect();
    let last = told(&source.url("/x"), "updated", 18, b"third") + &told(&source.url("/y"), "deleted", 18, b"");
    source.changes(&(entries + &each("/x") + &each("/y") + &last));
    mirror.refreshed();
    assert_eq!(mirror.status()["sets"][0]["changes"]["from"], "changedump");
    agrees(&mirror, &source);
    let between = |begin, until: Option<u64>| (at(begin), until.map(at));
    assert_eq!(lives(&mirror, "x"), [between(18, None), between(14, Some(18)), between(0, Some(11))]);
    assert_eq!(lives(&mirror, "y"), [between(14, Some(18)), between(0, Some(11))]);
    // It is told again, and nothing comes of it.
    source.server.remove("/changedump.xml");
    mirror.refreshed();
    assert_eq!(lives(&mirror, "x").len() + lives(&mirror, "y").len(), 5);
    let audit = mirror.audit(AuditScope { content: true, repair: false }).unwrap();
    assert!(audit.in_sync(), "{audit:#?}");
}

#[test]
fn seed_list_leaves_change_dumps_alone_and_seed_dump_takes_them_for_a_single_change() {
    for (seed, expected) in [("list", "changelist"), ("dump", "changedump")] {
        let mut source = many(20, &["changelist", "changedump"]);
        let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,seed={seed}"));
        let changes = update_all(&mut source, if seed == "list" { 20 } else { 1 }, 300);
        let entries: String = changes.iter().map(|one| one.entry.clone()).collect();
        let body = package(0, 20, &changes);
        dump(&source, "/changedump.xml", None, &[("/p.zip", 0, 20, body.len())]);
        source.server.file("/p.zip", body);
        source.changes(&entries.replace("path=", "x="));
        mirror.refreshed();
        assert_eq!(mirror.status()["sets"][0]["changes"]["from"], expected);
        agrees(&mirror, &source);
    }
}

#[test]
fn a_package_that_is_no_good_leaves_its_changes_to_the_list() {
    type Spoil = fn(Vec<u8>) -> Box<dyn Fn(&Request) -> Reply + Send + Sync>;
    let spoils: [(&str, Spoil); 4] = [
        ("missing", |_| Box::new(|_| Reply::status(404))),
        ("no ZIP file", |_| Box::new(|request| Reply::good(request, &bytes(3, 5000)))),
        ("cut short", |body| Box::new(move |request| Reply::good(request, &body[..body.len() / 2]))),
        ("of another kind", |_| {
            Box::new(|request| {
                let manifest = document("resourcedump-manifest", &format!("at=\"{}\"", at(0)), "", "");
                Reply::good(request, &package_with(&manifest, &[]))
            })
        }),
    ];
    for (case, spoil) in spoils {
        let mut source = many(20, &["changelist", "changedump"]);
        let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=4");
        let changes = update_all(&mut source, 20, 300);
        let entries: String = changes.iter().map(|one| one.entry.clone()).collect();
        let body = package(0, 20, &changes);
        dump(&source, "/changedump.xml", None, &[("/p.zip", 0, 20, body.len())]);
        let reply = spoil(body);
        source.server.on("/p.zip", move |request| reply(request));
        source.changes(&entries.replace("path=", "x="));
        mirror.refreshed();
        let status = mirror.status();
        assert_eq!(status["sets"][0]["changes"]["from"], "changelist", "{case}: {status:#}");
        assert!(status["sets"][0]["changes"]["why"].as_str().unwrap().contains("cannot be used"), "{case}");
        agrees(&mirror, &source);
        assert_eq!(mirror.status()["state"], "complete", "{case}");
    }
}

#[test]
fn a_dump_alone_stops_at_a_package_that_cannot_be_had_and_goes_on_when_it_can() {
    let mut source = many(3, &["changedump"]);
    source.server.file(
        "/capabilitylist.xml",
        document(
            "capabilitylist",
            "",
            "",
            &(crate::support::capability(&source.url("/resourcelist.xml"), "resourcelist")
                + &crate::support::capability(&source.url("/changedump.xml"), "changedump")),
        ),
    );
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=4");
    let first = vec![packed(&source, "created", "/one", 5, b"one", "/one")];
    let second = vec![
        packed(&source, "updated", "/one", 15, b"one, anew", "two/leading-slash-or-not"),
        packed(&source, "deleted", "/r/0", 16, b"", ""),
    ];
    let third = vec![packed(&source, "created", "/three", 25, b"three", "/three")];
    let bodies = [package(0, 10, &first), package(10, 20, &second), package(20, 30, &third)];
    dump(
        &source,
        "/changedump.xml",
        None,
        &[("/1.zip", 0, 10, bodies[0].len()), ("/2.zip", 10, 20, bodies[1].len()), ("/3.zip", 20, 30, bodies[2].len())],
    );
    source.server.file("/1.zip", bodies[0].clone());
    source.server.on("/2.zip", |_| Reply::status(503));
    source.server.file("/3.zip", bodies[2].clone());
    source.put("/one", b"one");
    let said = mirror.refreshed();
    assert!(said.contains("1 added") && said.contains("could not be read whole"), "{said}");
    agrees(&mirror, &source);
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"partial".into(), &at(10).into()), "{status:#}");
    source.server.file("/2.zip", bodies[1].clone());
    source.put("/one", b"one, anew");
    source.remove("/r/0");
    source.put("/three", b"three");
    mirror.refreshed();
    agrees(&mirror, &source);
    let status = mirror.status();
    assert_eq!((&status["state"], &status["sets"][0]["cursor"]), (&"complete".into(), &at(30).into()), "{status:#}");
    assert_eq!(mirror.versions(), 6);
    // Nothing new: one request beside those of what the Source offers, whatever the packages are.
    let before = source.server.requests().len();
    mirror.refreshed();
    assert_eq!(source.server.requests().len(), before + 3);
}

#[test]
fn a_package_whose_manifest_breaks_off_is_looked_at_again_when_it_can_be_read() {
    let mut source = Source::start(&[("/a", "one"), ("/b", "one")], &["changedump"]);
    dump(&source, "/changedump.xml", None, &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    source.put("/a", b"two");
    source.put("/b", b"two");
    source.put("/c", b"new");
    let changes = [("updated", "/a", 5, &b"two"[..]), ("created", "/c", 6, b"new")];
    let changes = changes.map(|(kind, path, second, body)| packed(&source, kind, path, second, body, path));
    let first = package(0, 10, &changes);
    let next = package(10, 20, &[packed(&source, "updated", "/b", 15, b"two", "/b")]);
    // Its manifest ends within the second of its entries.
    let entries = changes.map(|one| one.entry).concat();
    let manifest = document("changedump-manifest", &interval(Some(0), Some(10)), "", &entries);
    let cut = package_with(&manifest[..manifest.len() - 60], &[Item::new(&source.url("/a"), b"two").at("/a")]);
    let packages = |length: usize| [("/0.zip", 0, 10, length), ("/1.zip", 10, 20, next.len())];
    dump(&source, "/changedump.xml", Some(20), &packages(cut.len()));
    source.server.file("/0.zip", cut);
    source.server.file("/1.zip", next.clone());
    let _ = mirror.refresh();
    assert!(mirror.errors().contains("0.zip"), "{}", mirror.errors());
    dump(&source, "/changedump.xml", Some(20), &packages(first.len()));
    source.server.file("/0.zip", first);
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.versions(), 5);
}

#[test]
fn a_server_without_ranges_gives_its_packages_whole_and_every_bitstream_is_kept() {
    let mut source = many(1, &["changelist", "changedump"]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    // One resource, many times.
    let states: Vec<Vec<u8>> = (0..30).map(|number| bytes(number + 50, 500)).collect();
    let changes: Vec<Packed> = states
        .iter()
        .zip(10..)
        .map(|(body, second)| packed(&source, "updated", "/r/0", second, body, &format!("/state/{second}")))
        .collect();
    let entries: String = changes.iter().map(|one| one.entry.clone()).collect();
    let body = package(0, 50, &changes);
    dump(&source, "/changedump.xml", None, &[("/p.zip", 0, 50, body.len())]);
    source.server.on("/p.zip", move |_| Reply::ok(body.clone()));
    source.put("/r/0", states.last().unwrap());
    source.changes(&entries.replace("path=", "x="));
    mirror.refreshed();
    agrees(&mirror, &source);
    assert_eq!(mirror.status()["sets"][0]["changes"]["from"], "changedump");
    assert_eq!(mirror.versions(), 31);
    let has_place = |version: &&serde_json::Value| version["where"].to_string().contains("\"package\"");
    assert_eq!(mirror.log("r/0").iter().filter(has_place).count(), 30, "each state is a version with its bitstream");
    mirror.wait("the package is here", |status| status["packages"]["whole"] == 1);
}

#[test]
fn a_change_dump_index_leads_to_the_dumps_that_are_missing() {
    let mut source = many(2, &["changedump"]);
    let entries = crate::support::capability(&source.url("/resourcelist.xml"), "resourcelist")
        + &crate::support::capability(&source.url("/changedump.xml"), "changedump");
    source.server.file("/capabilitylist.xml", document("capabilitylist", "", "", &entries));
    source.list(100);
    let index = |source: &Source, lists: &[(String, Option<u64>, Option<u64>)]| {
        source.server.file("/changedump.xml", change_index(0, lists).replace("changelist", "changedump"));
    };
    let lists = [
        (source.url("/old.xml"), Some(0), Some(50)),
        (source.url("/one.xml"), Some(50), Some(150)),
        (source.url("/two.xml"), Some(150), None),
    ];
    index(&source, &lists);
    let first = vec![packed(&source, "created", "/one", 110, b"one", "/one")];
    let second = vec![packed(&source, "updated", "/one", 160, b"one, anew", "/one")];
    let bodies = [package(50, 150, &first), package(150, 170, &second)];
    dump(&source, "/one.xml", Some(150), &[("/1.zip", 50, 150, bodies[0].len())]);
    dump(&source, "/two.xml", None, &[("/2.zip", 150, 170, bodies[1].len())]);
    source.server.file("/1.zip", bodies[0].clone());
    source.server.file("/2.zip", bodies[1].clone());
    source.put("/one", b"one, anew");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    agrees(&mirror, &source);
    assert_eq!((source.server.count("/old.xml"), mirror.status()["state"].clone()), (0, "complete".into()));
    assert_eq!(mirror.versions(), 4);
}

fn asked(source: &Source) -> usize {
    source.server.requests().iter().filter(|one| one.path.starts_with("/r/")).count()
}

#[test]
fn the_cheaper_of_list_and_dump_is_taken_and_the_status_says_why() {
    // Many small ones: packages. A few: nobody looks. Many, in a package of which most is something else: the list.
    for (count, padding, expected, why) in [
        (40, 0, "changedump", "40 changes would cost"),
        (5, 0, "changelist", "5 changes are not worth a look at the Change Dump"),
        (40, 4 << 20, "changelist", "40 changes would cost"),
    ] {
        let mut source = many(40, &["changelist", "changedump"]);
        let mirror = Mirror::mount(&source.url("/"), "poll=0");
        let mut changes = update_all(&mut source, count, 300);
        let entries: String = changes.iter().map(|one| one.entry.clone()).collect();
        if padding > 0 {
            changes.push(Packed {
                entry: String::new(),
                item: Some(Item::new("x", &bytes(9, padding)).stored().at("/padding")),
            });
        }
        let body = package(0, 20, &changes);
        dump(&source, "/changedump.xml", None, &[("/p.zip", 0, 20, body.len())]);
        source.server.file("/p.zip", body);
        // The same changes, as a list has them.
        source.changes(&entries.replace("path=", "x="));
        mirror.refreshed();
        let status = mirror.status();
        let changes = &status["sets"][0]["changes"];
        assert_eq!(changes["from"], expected, "{status:#}");
        assert!(changes["why"].as_str().unwrap().contains(why), "{changes}");
        let before = asked(&source);
        agrees(&mirror, &source);
        let fetched = asked(&source) - before;
        let own = 40 - usize::try_from(count).unwrap();
        assert_eq!(fetched, if expected == "changedump" { own } else { 40 });
        assert_eq!(mirror.versions() as u64, 40 + count);
    }
}
