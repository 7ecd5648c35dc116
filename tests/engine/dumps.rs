//! Mirrors that are seeded from Resource Dumps: what is in them, where it comes from, what happens on the way.

use crate::support::dump::{self, Item, contents, manifest, package, package_with};
use crate::support::opened::{Mirror, said};
use crate::support::server::{Reply, Server};
use crate::support::{bytes, document, facts_of, resource_list, scramble, shell};
use resourcesync::catalog::Reader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const EARLY: &str = "2026-01-01T00:00:00Z";
const MIDDLE: &str = "2026-02-01T00:00:00Z";
const LATE: &str = "2026-03-01T00:00:00Z";

#[test]
fn the_cursor_is_the_smallest_time_that_any_part_began_never_when_one_was_completed() {
    let server = Server::start();
    let own = dump::items(&server, 4);
    server.file("/one.zip", package("2026-02-01T00:00:00Z", &own[..2]));
    server.file("/two.zip", package("2026-02-01T00:05:00Z", &own[2..]));
    let packages = [
        (
            server.url("/one.zip"),
            "at=\"2026-02-01T00:00:00Z\" completed=\"2026-02-01T00:09:00Z\"".to_owned(),
            String::new(),
        ),
        (
            server.url("/two.zip"),
            "at=\"2026-01-31T23:59:00Z\" completed=\"2026-02-01T00:10:00Z\"".to_owned(),
            String::new(),
        ),
    ];
    let head = "at=\"2026-02-01T00:00:00Z\" completed=\"2026-02-01T00:10:00Z\"";
    server.file("/resourcedump.xml", dump::dump(head, &packages));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    let status = mirror.status();
    assert_eq!(status["sets"][0]["cursor"], "2026-01-31T23:59:00Z", "{status:#}");
    assert_eq!((&status["state"], &status["resources"]), (&"complete".into(), &4.into()));
    // What was listed without a time has the time of its own package's snapshot.
    let time = |number: usize| mirror.stat(&format!("r/{number}")).unwrap().mtime();
    assert_eq!((time(0), time(2)), (1_769_904_000, 1_769_903_940));
}

#[test]
fn a_dump_older_than_the_list_gives_only_what_is_still_the_same() {
    let server = Server::start();
    let old = dump::items(&server, 6);
    let dated = |item: &Item, time: &str| item.clone().modified(time);
    let quiet = |item: &Item, time: &str| item.clone().saying("").modified(time);
    let silent = |item: &Item| item.clone().saying("");
    // 0 as it was; 1 changed; 2 gone; 3 told by its time alone, as it was; 4 the same, changed; 5 of which
    // nothing is said; 6 new.
    let changed = |number: usize| Item::new(&old[number].uri, format!("new content of {number}").as_bytes());
    let new = Item::new(&server.url("/r/6"), b"a new one");
    let packed =
        [old[0].clone(), old[1].clone(), old[2].clone(), quiet(&old[3], EARLY), quiet(&old[4], EARLY), silent(&old[5])];
    let listed = [
        dated(&old[0], EARLY),
        changed(1),
        quiet(&old[3], EARLY),
        quiet(&changed(4), MIDDLE),
        silent(&changed(5)),
        new.clone(),
    ];
    for item in [&old[0], &changed(1), &old[3], &changed(4), &changed(5), &new] {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    dump::source(&server, EARLY, &packed, Some((LATE, &listed)));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files(), ["r/0", "r/1", "r/3", "r/4", "r/5", "r/6"]);
    for item in [&old[0], &changed(1), &old[3], &changed(4), &changed(5), &new] {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes, "{}", item.uri);
    }
    let asked: Vec<usize> = (0..=6).map(|number| server.count(&format!("/r/{number}"))).collect();
    // A HEAD, where no length is listed, may come before the GET.
    let asked: Vec<bool> = asked.iter().map(|count| *count > 0).collect();
    assert_eq!(asked, [false, true, false, false, true, true, true], "only what differs, or may");
    let status = mirror.status();
    assert_eq!(status["state"], "complete", "{status:#}");
    // Changes from the dump's time on are still to be looked at.
    assert_eq!(status["sets"][0]["cursor"], EARLY);
    assert_eq!(status["sets"][0]["at"], LATE);
}

#[test]
fn a_dump_newer_than_the_list_says_what_there_is_until_there_is_a_newer_list() {
    let server = Server::start();
    let own = dump::items(&server, 4);
    let stale = [Item::new(&own[0].uri, b"as it was long ago"), Item::new(&server.url("/r/gone"), b"gone since")];
    dump::source(&server, MIDDLE, &own, Some((EARLY, &stale)));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files(), ["r/0", "r/1", "r/2", "r/3"]);
    dump::all_verified(&mirror, 4);
    assert!(mirror.status()["seed"]["why"].as_str().unwrap().contains("older than the dump"));
    let inodes = |mirror: &Mirror| {
        (0..4).map(|number| mirror.stat(&format!("r/{number}")).map(|found| found.ino).ok()).collect::<Vec<_>>()
    };
    let before = inodes(&mirror);
    // Nothing new: the old list is not read again as a whole, and changes nothing.
    mirror.refresh().unwrap();
    assert_eq!((mirror.files().len(), inodes(&mirror)), (4, before.clone()));
    // A newer list says the same of two, less of the third, and the last is gone.
    let less = format!("hash=\"md5:{}\"", crate::support::md5(&own[2].bytes));
    let listed = [own[0].clone(), own[1].clone(), own[2].clone().saying(&less)];
    let entries: String = listed.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(LATE, &entries));
    mirror.refresh().unwrap();
    assert_eq!(mirror.files(), ["r/0", "r/1", "r/2"]);
    let after = inodes(&mirror);
    assert_eq!(before[..2], after[..2], "what is the same keeps its inode");
    for item in &own[..3] {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    assert_eq!(dump::singles(&server), 0, "the content was here already");
    // From now on the list is asked, and the dump is not.
    let asked = server.count("/resourcedump.xml");
    mirror.refresh().unwrap();
    assert_eq!(server.count("/resourcedump.xml"), asked);
    assert_eq!(mirror.status()["error_count"], 0, "{}", mirror.errors());
}

#[test]
fn changes_that_begin_after_the_dump_leave_a_gap_until_a_newer_list_closes_it() {
    let server = Server::start();
    let own = dump::items(&server, 3);
    dump::source(&server, EARLY, &own, None);
    server.file("/changelist.xml", document("changelist", &format!("from=\"{MIDDLE}\""), "", ""));
    dump::offer(&server, &["resourcedump", "changelist"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    let status = mirror.status();
    assert_eq!((&status["state"], &status["resources"]), (&"gap".into(), &3.into()), "{status:#}");
    assert!(status["warnings"].to_string().contains("changes begin at"), "{status:#}");
    // A newer dump closes it.
    server.file("/package.zip", package(MIDDLE, &own));
    dump::list_package(&server, MIDDLE, "/package.zip");
    mirror.refresh().unwrap();
    assert_eq!(mirror.status()["state"], "complete");
    // So does a list; one that is older than the changes does not.
    dump::source(&server, EARLY, &own, Some((EARLY, &own)));
    dump::offer(&server, &["resourcedump", "changelist", "resourcelist"]);
    let other = Mirror::mount(&server.url("/"), "");
    assert_eq!(other.status()["state"], "gap");
    let entries: String = own.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(LATE, &entries));
    other.refresh().unwrap();
    assert_eq!(other.status()["state"], "complete", "{:#}", other.status());
}

#[test]
fn a_source_with_dumps_alone_is_followed_from_dump_to_dump() {
    let server = Server::start();
    let own = dump::items(&server, 300);
    dump::source(&server, EARLY, &own, None);
    let mirror = Mirror::mount(&server.url("/"), "");
    dump::all_verified(&mirror, 300);
    let asked = server.count("/package.zip");
    mirror.refresh().unwrap();
    assert_eq!(server.count("/package.zip"), asked, "nothing changed");
    // The next dump: one changed, one gone, one new. Only those are fetched from the new package.
    let mut next: Vec<Item> = own[1..].to_vec();
    next[0] = Item::new(&own[1].uri, b"changed");
    next.push(Item::new(&server.url("/r/new"), b"new"));
    server.file("/next.zip", package(MIDDLE, &next));
    dump::list_package(&server, MIDDLE, "/next.zip");
    let said = mirror.refreshed();
    assert!(said.contains("1 added") && said.contains("1 updated") && said.contains("1 deleted"), "{said}");
    assert_eq!(mirror.read("r/1").unwrap(), b"changed");
    assert_eq!(mirror.read("r/new").unwrap(), b"new");
    assert_eq!(mirror.read("r/2").unwrap(), own[2].bytes);
    assert!(mirror.read("r/0").is_err());
    assert_eq!(mirror.files().len(), 300);
    let whole = server
        .requests()
        .iter()
        .filter(|request| request.path == "/next.zip" && request.header("range").is_none())
        .count();
    assert_eq!((whole, dump::singles(&server)), (0, 0), "parts of the new package were enough");
    // A dump that cannot be read whole adds, and deletes nothing.
    server.file("/broken.zip", package(LATE, &next[..200])[..5000].to_vec());
    dump::list_package(&server, LATE, "/broken.zip");
    let _ = mirror.refresh();
    assert_eq!((mirror.files().len(), mirror.status()["state"].as_str().unwrap()), (300, "partial"));
}

#[test]
fn dumps_under_an_index_are_one_dump() {
    let server = Server::start();
    let own = dump::items(&server, 6);
    for (name, items) in [("a", &own[..3]), ("b", &own[3..])] {
        server.file(&format!("/{name}.zip"), package(EARLY, items));
        let packages = [(server.url(&format!("/{name}.zip")), String::new(), String::new())];
        server.file(&format!("/dump-{name}.xml"), dump::dump(&format!("at=\"{EARLY}\""), &packages));
    }
    let parts = [server.url("/dump-a.xml"), server.url("/dump-b.xml")];
    server.file("/resourcedump.xml", crate::support::index("resourcedump", &format!("at=\"{EARLY}\""), &parts));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    dump::all_verified(&mirror, 6);
    assert_eq!(mirror.status()["packages"]["whole"], 2);
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    let asked = server.count("/a.zip");
    mirror.refresh().unwrap();
    assert_eq!(server.count("/a.zip"), asked);
    // One of the two is missing: what it listed stays.
    server.remove("/dump-b.xml");
    server.file("/resourcedump.xml", crate::support::index("resourcedump", &format!("at=\"{MIDDLE}\""), &parts));
    let _ = mirror.refresh();
    assert_eq!((mirror.files().len(), mirror.status()["state"].as_str().unwrap()), (6, "partial"));
}

#[test]
fn a_server_without_ranges_gives_its_packages_all_the_same() {
    let server = Server::start();
    let mut own = dump::items(&server, 20);
    own.insert(0, Item::new(&server.url("/r/large"), &bytes(99, 24 << 20)).stored());
    let whole = Arc::new(package(EARLY, &own));
    let slow = Arc::clone(&whole);
    let comes = |millis: u64| {
        let slow = Arc::clone(&slow);
        server.on("/package.zip", move |_| Reply {
            drip: Duration::from_millis(millis),
            ..Reply::ok(slow.to_vec()).with("Accept-Ranges", "none")
        });
    };
    comes(1);
    server.file("/manifest.xml", manifest(EARLY, &own));
    for item in &own {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    // Without a copy of the manifest, the tree comes with the package.
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    dump::all_verified(&mirror, 21);
    assert_eq!((mirror.files().len(), dump::singles(&server)), (21, 0));
    drop(mirror);
    // With it, the tree is there at once, and the members join it later.
    let link = contents(&server.url("/manifest.xml"));
    server.file(
        "/resourcedump.xml",
        dump::dump(&format!("at=\"{EARLY}\""), &[(server.url("/package.zip"), String::new(), link)]),
    );
    comes(6);
    let began = Instant::now();
    let mirror = Mirror::mount(&server.url("/"), "");
    let (after, whole) = (began.elapsed(), mirror.status()["packages"]["whole"].clone());
    assert_eq!((mirror.files().len(), whole), (21, 0.into()), "after {after:?}");
    assert_eq!(mirror.read("r/3").unwrap(), own[4].bytes, "from its own URL, for once");
    dump::all_verified(&mirror, 20);
    let before = dump::singles(&server);
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    assert_eq!(dump::singles(&server), before);
    drop(mirror);
    // With a list, the same.
    let entries: String = own.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(EARLY, &entries));
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump", "resourcelist"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    dump::all_verified(&mirror, 21);
    assert_eq!(mirror.status()["error_count"], 0, "{}", mirror.errors());
}

#[test]
fn a_download_that_breaks_goes_on_where_it_broke() {
    let server = Server::start();
    let mut own = dump::items(&server, 5);
    own.push(Item::new(&server.url("/r/large"), &bytes(99, 6 << 20)).stored());
    let whole = Arc::new(package(EARLY, &own));
    let (served, breaks) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (body, count, broken) = (Arc::clone(&whole), Arc::clone(&served), Arc::clone(&breaks));
    server.on("/package.zip", move |request| {
        let mut reply = Reply::good(request, &body);
        // Each of the first answers breaks off after 2 MiB.
        if broken.fetch_add(1, Ordering::SeqCst) < 2 && reply.body.len() > 2 << 20 {
            reply.close_after = Some(2 << 20);
            // The client must learn that more was to come.
            reply.headers.push(("Content-Length".to_owned(), reply.body.len().to_string()));
        }
        count.fetch_add(reply.close_after.unwrap_or(reply.body.len()), Ordering::SeqCst);
        reply
    });
    let packages = [(server.url("/package.zip"), facts_of(&whole), String::new())];
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    let status = dump::all_verified(&mirror, 6);
    assert_eq!(status["error_count"], 0, "{}", mirror.errors());
    assert!(breaks.load(Ordering::SeqCst) >= 3);
    let (served, whole) = (served.load(Ordering::SeqCst), whole.len());
    assert!(served <= whole + (1 << 20), "{served} bytes were sent of a package of {whole}");
    assert_eq!(mirror.read("r/large").unwrap(), own[5].bytes);
}

#[test]
fn killed_at_any_moment_of_seeding_it_goes_on_and_downloads_nothing_twice_that_was_complete() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SEED={seed}");
    let server = Server::start();
    let mut packages = Vec::new();
    let mut own = Vec::new();
    let sizes: Arc<Vec<AtomicUsize>> = Arc::new((0..4).map(|_| AtomicUsize::new(0)).collect());
    let mut lengths = Vec::new();
    for number in 0..4_u64 {
        let mut part = dump::items(&server, 0);
        for at in 0..60 {
            let id = number * 1000 + at;
            part.push(Item::new(&server.url(&format!("/r/{id}")), &bytes(id, 60_000)).stored());
        }
        let body = Arc::new(package(EARLY, &part));
        lengths.push(body.len());
        packages.push((server.url(&format!("/{number}.zip")), facts_of(&body), String::new()));
        let sizes = Arc::clone(&sizes);
        server.on(&format!("/{number}.zip"), move |request| {
            let reply = Reply { drip: Duration::from_millis(2), ..Reply::good(request, &body) };
            sizes[usize::try_from(number).unwrap()].fetch_add(reply.body.len(), Ordering::SeqCst);
            reply
        });
        own.extend(part);
    }
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    let entries: String = own.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(EARLY, &entries));
    dump::offer(&server, &["resourcedump", "resourcelist"]);
    let mirror = Mirror::prepare(&server.url("/"), "bg");
    mirror.try_mount().unwrap();
    let mut complete: Vec<Option<usize>> = vec![None; 4];
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(scramble(seed << 8 | round) % 700));
        let packages = mirror.ask(Reader::packages);
        let whole = [0, 1, 2, 3].map(|number| {
            let url = server.url(&format!("/{number}.zip"));
            packages.iter().any(|package| package.url == url && package.whole)
        });
        mirror.kill();
        for (number, whole) in whole.into_iter().enumerate() {
            let sent = sizes[number].load(Ordering::SeqCst);
            match complete[number] {
                Some(before) => assert_eq!(sent, before, "package {number} was complete, and asked for again"),
                None if whole => complete[number] = Some(sent),
                None => {}
            }
        }
        let output = mirror.try_mount();
        assert!(output.is_ok(), "{}", said(&output));
    }
    let status = dump::all_verified(&mirror, 240);
    assert_eq!((&status["state"], &status["error_count"]), (&"complete".into(), &0.into()), "{status:#}");
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    for (number, before) in complete.iter().enumerate() {
        if let Some(before) = before {
            assert_eq!(sizes[number].load(Ordering::SeqCst), *before, "package {number}");
        }
    }
}

#[test]
fn what_is_not_a_zip_is_said_so_and_the_list_serves() {
    let server = Server::start();
    let own = dump::items(&server, 3);
    for item in &own {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    dump::source(&server, EARLY, &own, Some((EARLY, &own)));
    server.file("/package.zip", &b"this is a tar, or an HTML page, or whatever it is that somebody put there"[..]);
    let mirror = Mirror::mount(&server.url("/"), "");
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    let status = mirror.status();
    assert_eq!((&status["state"], &status["seed"]["from"]), (&"complete".into(), &"list".into()), "{status:#}");
    assert!(mirror.errors().contains("/package.zip: it is not a ZIP package"), "{}", mirror.errors());
    assert!(status["seed"]["why"].as_str().unwrap().contains("not a ZIP"), "{status:#}");
    // Also where the dump was to say what there is.
    server.file(
        "/resourcelist.xml",
        resource_list("2025-01-01T00:00:00Z", &own.iter().map(Item::in_list).collect::<String>()),
    );
    let other = Mirror::mount(&server.url("/"), "");
    assert_eq!((other.files().len(), &other.status()["state"]), (3, &"complete".into()), "{:#}", other.status());
    // Without a list, a copy of the manifest says what there is.
    server.file("/manifest.xml", manifest(EARLY, &own));
    let packages = [(server.url("/package.zip"), String::new(), contents(&server.url("/manifest.xml")))];
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    dump::offer(&server, &["resourcedump"]);
    let last = Mirror::mount(&server.url("/"), "");
    assert_eq!((last.files().len(), last.read("r/1").unwrap()), (3, own[1].bytes.clone()));
    assert!(last.errors().contains("its manifest is read from"), "{}", last.errors());
}

/// A Source with a list whose package is made by hand; each resource can be had by its own URL too.
fn hostile(own: &[Item], server: &Server, body: Vec<u8>) {
    for item in own {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    server.file("/package.zip", body);
    dump::list_package(server, EARLY, "/package.zip");
    let entries: String = own.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(EARLY, &entries));
    dump::offer(server, &["resourcedump", "resourcelist"]);
}

/// Replaces bytes wherever they stand.
fn replace(package: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let at: Vec<usize> = (0..=package.len() - from.len()).filter(|at| package[*at..].starts_with(from)).collect();
    assert!(!at.is_empty(), "there is no {:?}", String::from_utf8_lossy(from));
    at.into_iter().for_each(|at| package[at..at + from.len()].copy_from_slice(to));
}

/// Where the directory has the entry of a member.
fn entry_at(package: &[u8], name: &str) -> usize {
    (0..package.len() - 46)
        .find(|at| package[*at..].starts_with(b"PK\x01\x02") && package[at + 46..].starts_with(name.as_bytes()))
        .unwrap_or_else(|| panic!("no member {name}"))
}

#[test]
fn each_hostile_member_is_refused_by_itself_and_the_rest_is_served() {
    let server = Server::start();
    let uri = |name: &str| server.url(&format!("/r/{name}"));
    let text = |name: &str| format!("content of {name}, ").repeat(30).into_bytes();
    let names = [
        "climb", "absolut", "drive", "link", "device", "declared", "real", "twin-1", "twin-2", "over", "under",
        "offset", "crc", "hash", "fair",
    ];
    let stored = |item: Item, name: &str| if matches!(name, "over" | "under") { item.stored() } else { item };
    let own: Vec<Item> =
        names.iter().map(|name| stored(Item::new(&uri(name), &text(name)).at(&format!("/m/{name}")), name)).collect();
    let (mut packed, mut described) = (own.clone(), own.clone());
    // One unfolds to far more than is said, one is not what is listed.
    packed[6].bytes = text("real").repeat(5000);
    packed[13].bytes[0] ^= 1;
    let renamed = [
        (0, "m/climb", "../limb"),
        (1, "m/absolut", "/absolute"),
        (2, "m/drive", "C:/driv"),
        (8, "m/twin-2", "m/twin-1"),
    ];
    for (at, _, to) in renamed {
        described[at].path = format!("/{}", to.trim_start_matches('/'));
    }
    // The manifest is deflated: names are replaced in local headers and in the directory alone.
    let mut body = package_with(&manifest(EARLY, &described), &packed);
    for (_, from, to) in renamed {
        replace(&mut body, from.as_bytes(), to.as_bytes());
    }
    let set = |body: &mut Vec<u8>, name: &str, at: usize, value: u32| {
        let entry = entry_at(body, name);
        body[entry + at..entry + at + 4].copy_from_slice(&value.to_le_bytes());
    };
    // Made on Unix, a symbolic link; made on Unix, a device.
    for (name, mode) in [("m/link", 0o120_777_u32), ("m/device", 0o020_666)] {
        let entry = entry_at(&body, name);
        body[entry + 5] = 3;
        set(&mut body, name, 38, mode << 16);
    }
    set(&mut body, "m/declared", 24, 0xf000_0000);
    set(&mut body, "m/real", 24, u32::try_from(own[6].bytes.len()).unwrap());
    let over = entry_at(&body, "m/over");
    let header = u32::from_le_bytes(body[over + 42..over + 46].try_into().unwrap());
    set(&mut body, "m/under", 42, header + 60);
    set(&mut body, "m/offset", 42, 17);
    set(&mut body, "m/crc", 16, 0xdead_beef);
    hostile(&own, &server, body);
    let before = shell("ls -la / /tmp/.. /etc | wc -l");
    let mirror = Mirror::mount(&server.url("/"), "");
    for (name, item) in names.iter().zip(&own) {
        assert_eq!(mirror.read(&format!("r/{name}")).unwrap(), item.bytes, "{name}");
    }
    assert_eq!(shell("ls -la / /tmp/.. /etc | wc -l"), before);
    let errors = mirror.errors();
    for name in names.iter().filter(|name| **name != "fair") {
        let asked = server.count(&format!("/r/{name}"));
        assert!(asked > 0, "{name} was taken from the package: {errors}");
        assert!(errors.contains(&uri(name)), "nothing is said of {name}: {errors}");
    }
    assert_eq!(server.count("/r/fair"), 0);
    let below: Vec<String> =
        shell(&format!("find {} -type f -o -type l", mirror.cache.display())).lines().map(str::to_owned).collect();
    assert!(below.iter().all(|path| !path.contains("limb") && !path.contains("driv")), "{below:?}");
}

#[test]
fn damage_is_found_and_mended_while_the_source_still_can() {
    let server = Server::start();
    let own = dump::items(&server, 50);
    let mut body = package(EARLY, &own);
    // One byte in the middle of one member, that nobody reads.
    let entry = entry_at(&body, own[20].path.trim_start_matches('/'));
    let header = u32::from_le_bytes(body[entry + 42..entry + 46].try_into().unwrap());
    body[header as usize + 120] ^= 0x40;
    hostile(&own, &server, body);
    let mirror = Mirror::mount(&server.url("/"), "");
    let status =
        mirror.wait("the damage", |status| status["packages"]["damaged"] == 1 && status["cached"]["resources"] == 50);
    assert!(status["errors"].to_string().contains(&format!("{}: its member in", own[20].uri)), "{status:#}");
    assert!(status["warnings"].to_string().contains("1 of its members, which are damaged, came from"), "{status:#}");
    assert_eq!(dump::singles(&server), 1);
    // The Source may go now.
    let address = server.address();
    drop(server);
    for item in &own {
        let path = item.uri.strip_prefix(&format!("http://{address}/")).unwrap();
        assert_eq!(mirror.read(path).unwrap(), item.bytes, "{path}");
    }
}

#[test]
fn a_package_that_is_not_what_its_dump_says_is_trusted_only_where_members_have_hashes() {
    let server = Server::start();
    let mut own = dump::items(&server, 3);
    own[2] = own[2].clone().saying(&format!("length=\"{}\"", own[2].bytes.len()));
    let body = package(EARLY, &own);
    for wrong in [
        facts_of(b"something else"),
        format!("hash=\"sha-256:{}\"", crate::support::sha256(b"x")),
        "length=\"12\"".to_owned(),
    ] {
        for item in &own {
            server.file(&item.uri[server.url("").len()..], item.bytes.clone());
        }
        server.file("/package.zip", body.clone());
        server.file(
            "/resourcedump.xml",
            dump::dump(&format!("at=\"{EARLY}\""), &[(server.url("/package.zip"), wrong, String::new())]),
        );
        dump::offer(&server, &["resourcedump"]);
        let before = (0..3).map(|number| server.count(&format!("/r/{number}"))).collect::<Vec<_>>();
        let mirror = Mirror::mount(&server.url("/"), "");
        mirror
            .wait("a look at all", |status| status["packages"]["verified"] == 2 && status["cached"]["resources"] == 3);
        for item in &own {
            assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
        }
        let asked: Vec<usize> = (0..3).map(|number| server.count(&format!("/r/{number}")) - before[number]).collect();
        assert_eq!(asked, [0, 0, 1]);
        assert!(mirror.errors().contains("/package.zip: wrong"), "{}", mirror.errors());
    }
}

#[test]
fn a_package_whose_manifest_is_an_index_of_manifests_is_read_through_it() {
    let server = Server::start();
    let own = dump::items(&server, 5);
    let part = |name: &str, items: &[Item]| Item {
        path: format!("/manifests/{name}"),
        ..Item::new("http://a.example/x", manifest(EARLY, items).as_bytes())
    };
    let index = crate::support::index(
        "resourcedump-manifest",
        &format!("at=\"{EARLY}\""),
        &["one.xml".to_owned(), "two.xml".to_owned()],
    )
    .replace("<loc>one.xml</loc>", "<loc>one.xml</loc><rs:md path=\"/manifests/one.xml\"/>")
    .replace("<loc>two.xml</loc>", "<loc>http://a.example/manifests/two.xml</loc><rs:md path=\"/manifests/two.xml\"/>");
    let members: Vec<Item> =
        own.iter().cloned().chain([part("one.xml", &own[..2]), part("two.xml", &own[2..])]).collect();
    hostile(&own, &server, package_with(&index, &members));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    let names: Vec<String> = own.iter().map(|item| item.uri[server.url("/").len()..].to_owned()).collect();
    assert_eq!(mirror.files(), names);
    for (item, name) in own.iter().zip(&names) {
        assert_eq!(mirror.read(name).unwrap(), item.bytes);
    }
    assert_eq!(dump::singles(&server), 0, "all of it lies in the package");
    assert_eq!(mirror.status()["state"], "complete");
    // One of the manifests is not there: nothing of the package is taken for the tree.
    server.file("/package.zip", package_with(&index, &members[..6]));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.status()["state"], "partial");
    assert_eq!(mirror.files(), Vec::<String>::new());
    assert!(mirror.errors().contains("the package has no manifests/two.xml"), "{}", mirror.errors());
}

#[test]
fn a_manifest_and_its_package_that_disagree_are_reported_and_the_rest_serves() {
    let server = Server::start();
    let own = dump::items(&server, 5);
    let mut described = own.clone();
    // 0 is not in the package; 1 has another length; 2 has no path; 4 is not in the manifest.
    described[0].path = "/resources/nowhere".to_owned();
    let mut packed = own.clone();
    packed[1].bytes.push(b'!');
    let text = manifest(EARLY, &described[..4]).replace(&format!("path=\"{}\"", own[2].path), "");
    hostile(&own, &server, package_with(&text, &packed));
    let mirror = Mirror::mount(&server.url("/"), "");
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes, "{}", item.uri);
    }
    let asked: Vec<usize> = (0..5).map(|number| server.count(&format!("/r/{number}"))).collect();
    assert_eq!(asked, [1, 1, 1, 0, 1]);
    let status = mirror.status();
    let (errors, warnings) = (status["errors"].to_string(), status["warnings"].to_string());
    assert!(errors.contains("the manifest names /resources/nowhere, which is not in the package"), "{errors}");
    assert!(errors.contains("where the manifest says"), "{errors}");
    assert!(errors.contains("the manifest has no path for it"), "{errors}");
    assert!(warnings.contains("members that its manifest does not name"), "{warnings}");
    // A package without a manifest, and one whose manifest is something else.
    for text in [String::new(), resource_list(EARLY, "")] {
        let before = dump::singles(&server);
        hostile(&own, &server, package_with(&text, &own));
        let mirror = Mirror::mount(&server.url("/"), "");
        assert_eq!(mirror.read("r/3").unwrap(), own[3].bytes);
        assert!(mirror.errors().contains("manifest"), "{}", mirror.errors());
        assert_eq!(dump::singles(&server), before + 1);
        // A copy of the manifest that the dump links to takes its place.
        server.file("/manifest.xml", manifest(EARLY, &own));
        let packages = [(server.url("/package.zip"), String::new(), contents(&server.url("/manifest.xml")))];
        server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
        let mirror = Mirror::mount(&server.url("/"), "");
        assert_eq!(mirror.read("r/3").unwrap(), own[3].bytes);
        assert_eq!(dump::singles(&server), before + 1);
    }
}

#[test]
fn members_with_a_content_coding_are_decoded() {
    use std::io::Write as _;
    let server = Server::start();
    let text = b"words and more words, ".repeat(1000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&text).unwrap();
    let coded = gzip.finish().unwrap();
    let own = [Item::new(&server.url("/r/coded"), &coded).saying(&format!("{} encoding=\"gzip\"", facts_of(&coded)))];
    dump::source(&server, EARLY, &own, None);
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.stat("r/coded").unwrap().size, text.len() as u64);
    assert_eq!(mirror.read("r/coded").unwrap(), text);
    assert_eq!((dump::singles(&server), mirror.status()["error_count"].clone()), (0, 0.into()), "{}", mirror.errors());
}

#[test]
fn sizes_and_attributes_are_those_of_the_manifest_or_else_of_the_member() {
    let server = Server::start();
    let own = [
        Item::new(&server.url("/r/told"), b"eleven byte").modified(EARLY),
        Item::new(&server.url("/r/untold"), b"these are nineteen.").saying("type=\"text/plain\""),
    ];
    dump::source(&server, MIDDLE, &own, None);
    let mirror = Mirror::mount(&server.url("/"), "");
    let meta = |name: &str| mirror.stat(&format!("r/{name}")).unwrap();
    assert_eq!((meta("told").size, meta("untold").size), (11, 19));
    assert_eq!((meta("told").mtime(), meta("untold").mtime()), (1_767_225_600, 1_769_904_000));
    dump::all_verified(&mirror, 2);
    assert_eq!(mirror.read("r/untold").unwrap(), b"these are nineteen.");
    let of = |name: &str, attribute: &str| mirror.xattr(&format!("r/{name}"), attribute);
    assert_eq!(of("told", "user.resourcesync.verified").as_deref(), Some("yes"));
    // There was nothing to hold it to.
    assert_eq!(of("untold", "user.resourcesync.verified").as_deref(), Some("no"));
    assert_eq!(of("untold", "user.mime_type").as_deref(), Some("text/plain"));
    assert_eq!(of("told", "user.xdg.origin.url"), Some(server.url("/r/told")));
    assert_eq!(of("told", "user.resourcesync.path"), None, "where it lies in a package is no business of readers");
    assert!(server.requests().iter().all(|request| !request.path.starts_with("/r/")));
}

#[test]
fn content_all_completes_what_a_dump_leaves_out() {
    let server = Server::start();
    let own = dump::items(&server, 30);
    for item in &own {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    dump::source(&server, EARLY, &own[..20], Some((EARLY, &own)));
    let mirror = Mirror::mount(&server.url("/"), "content=all");
    let status = mirror.wait("all content", |status| status["cached"]["resources"] == 30);
    assert_eq!((&status["packages"]["members"], dump::singles(&server)), (&20.into(), 10), "{status:#}");
}

#[test]
fn files_that_are_open_keep_their_version_while_dumps_follow_each_other() {
    let server = Server::start();
    let old = [Item::new(&server.url("/r/0"), &bytes(1, 600_000)), Item::new(&server.url("/r/1"), &bytes(2, 3 << 20))];
    dump::source(&server, EARLY, &old, None);
    let mirror = Mirror::mount(&server.url("/"), "");
    let open: Vec<_> = (0..2).map(|number| mirror.open(&format!("r/{number}")).unwrap()).collect();
    open[1].read_exact_at(&mut [0; 1000], 0).unwrap();
    let new = [Item::new(&old[0].uri, b"new"), Item::new(&old[1].uri, b"newer")];
    server.file("/next.zip", package(MIDDLE, &new));
    dump::list_package(&server, MIDDLE, "/next.zip");
    server.remove("/package.zip");
    mirror.refresh().unwrap();
    assert_eq!((mirror.read("r/0").unwrap(), mirror.read("r/1").unwrap()), (b"new".to_vec(), b"newer".to_vec()));
    for (file, item) in open.iter().zip(&old) {
        assert!(file.read().unwrap() == item.bytes, "{}", item.uri);
    }
}

static RAISED: AtomicBool = AtomicBool::new(false);

#[test]
fn a_package_that_changes_under_way_is_never_mixed() {
    RAISED.store(false, Ordering::SeqCst);
    let server = Server::start();
    let own: Vec<Item> = (0..30)
        .map(|number| Item::new(&server.url(&format!("/r/{number}")), &bytes(number, 300_000)).stored())
        .collect();
    let other: Vec<Item> = (0..30)
        .map(|number| Item::new(&server.url(&format!("/r/{number}")), &bytes(number + 100, 300_000)).stored())
        .collect();
    let bodies = [Arc::new(package(EARLY, &own)), Arc::new(package(EARLY, &other))];
    server.on("/package.zip", move |request| {
        let body = &bodies[usize::from(RAISED.load(Ordering::SeqCst))];
        let mut reply = Reply::good(request, body);
        if !RAISED.swap(true, Ordering::SeqCst) {
            reply.close_after = Some(4 << 20);
            reply.headers.push(("Content-Length".to_owned(), reply.body.len().to_string()));
        }
        reply
    });
    for item in &other {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    let entries: String = other.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(EARLY, &entries));
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump", "resourcelist"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    for item in &other {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes, "{}", item.uri);
    }
}

#[test]
fn packages_that_wait_for_their_turn_can_be_read_from_too() {
    let server = Server::start();
    let mut packages = Vec::new();
    let mut own = Vec::new();
    for number in 0..9_u64 {
        let part: Vec<Item> = (0..20)
            .map(|at| number * 100 + at)
            .map(|id| Item::new(&server.url(&format!("/r/{id}")), &bytes(id, 400_000)).stored())
            .collect();
        let body = Arc::new(package(EARLY, &part));
        packages.push((server.url(&format!("/{number}.zip")), facts_of(&body), String::new()));
        server.on(&format!("/{number}.zip"), move |request| {
            let reply = Reply::good(request, &body);
            // A whole package takes a minute.
            if request.header("range").is_none() { Reply { drip: Duration::from_millis(120), ..reply } } else { reply }
        });
        own.extend(part);
    }
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    dump::offer(&server, &["resourcedump"]);
    for options in ["timeout=5", "timeout=5,connections=2"] {
        let began = Instant::now();
        let mirror = Mirror::mount(&server.url("/"), options);
        assert_eq!(mirror.files().len(), 180);
        for id in [5, 419, 800, 819] {
            assert_eq!(mirror.read(&format!("r/{id}")).unwrap(), bytes(id, 400_000), "{}", mirror.errors());
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{options}: {:?}", began.elapsed());
        assert_eq!(dump::singles(&server), 0);
    }
}

#[test]
fn a_size_that_was_shown_is_not_contradicted_by_a_member() {
    let server = Server::start();
    let content = b"a thousand or so bytes, ".repeat(40);
    let hash = format!("hash=\"sha-256:{}\"", crate::support::sha256(&content));
    let own = [Item::new(&server.url("/r/0"), &content).saying(&hash)];
    let listed = own.iter().map(Item::in_list).collect::<String>();
    server.file("/resourcelist.xml", resource_list(EARLY, &listed));
    let whole = content.clone();
    server.on("/r/0", move |request| match request.method.as_str() {
        "HEAD" => Reply::ok(Vec::new()).with("Content-Length", "10"),
        _ => Reply::good(request, &whole),
    });
    // The package comes late, and its server gives no parts of it.
    let body =
        Arc::new(package(EARLY, &[own[0].clone(), Item::new(&server.url("/r/filler"), &bytes(1, 20 << 20)).stored()]));
    server.on("/package.zip", move |_| Reply { drip: Duration::from_millis(8), ..Reply::ok(body.to_vec()) });
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump", "resourcelist"]);
    let mirror = Mirror::mount(&server.url("/"), "bg");
    mirror.wait("the list", |status| status["resources"] == 1);
    assert_eq!(mirror.stat("r/0").unwrap().size, 10);
    mirror.wait("the package", |status| status["packages"]["whole"] == 1);
    let _ = mirror.refresh();
    // The first try may find that what was shown is not so; the next has it.
    let read = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(300));
        mirror.read("r/0").ok()
    });
    assert!(read.as_deref() == Some(&content[..]), "{:?} {}", read.map(|read| read.len()), mirror.errors());
}

#[test]
fn a_package_whose_length_is_not_announced_is_here_for_good() {
    use std::io::{Read as _, Write as _};
    let server = Server::start();
    let own = dump::items(&server, 30);
    let body = package(EARLY, &own);
    // A server that only says where a body ends by closing the connection.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/package.zip", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            asked.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(&body);
        }
    });
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &[(url, String::new(), String::new())]));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "content=all");
    dump::all_verified(&mirror, 30);
    let before = count.load(Ordering::SeqCst);
    mirror.unmount();
    mirror.set_options("offline");
    mirror.try_mount().unwrap();
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    assert_eq!((count.load(Ordering::SeqCst), dump::singles(&server)), (before, 0));
    assert!(mirror.status()["cached"]["bytes"].as_u64() > Some(0));
}

#[test]
fn where_only_the_length_is_common_a_newer_list_is_not_believed_to_mean_the_same_bytes() {
    let server = Server::start();
    let length = |item: Item| item.saying("length=\"5\"");
    let item = |name: &str, content: &[u8]| length(Item::new(&server.url(&format!("/r/{name}")), content));
    for (name, content) in [("dated", b"new-1"), ("undated", b"new-2")] {
        server.file(&format!("/r/{name}"), &content[..]);
    }
    let packed = [item("dated", b"old-1"), item("undated", b"old-2")];
    let listed = [item("dated", b"new-1").modified(MIDDLE), item("undated", b"new-2")];
    dump::source(&server, EARLY, &packed, Some((LATE, &listed)));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.read("r/dated").unwrap(), b"new-1");
    assert_eq!(mirror.read("r/undated").unwrap(), b"new-2");
    // A list as old as the dump may be.
    dump::source(&server, EARLY, &packed, Some((EARLY, &packed)));
    let other = Mirror::mount(&server.url("/"), "");
    assert_eq!(other.read("r/undated").unwrap(), b"old-2");
}

#[test]
fn a_gap_stays_while_nothing_new_is_said() {
    let server = Server::start();
    let own = dump::items(&server, 3);
    dump::source(&server, EARLY, &own, Some((EARLY, &own)));
    server.file("/changelist.xml", document("changelist", &format!("from=\"{MIDDLE}\""), "", ""));
    dump::offer(&server, &["resourcedump", "changelist", "resourcelist"]);
    for options in ["", "seed=list"] {
        let mirror = Mirror::mount(&server.url("/"), options);
        for _ in 0..2 {
            assert_eq!(mirror.status()["state"], "gap", "{options}");
            mirror.refresh().unwrap();
        }
        assert_eq!(mirror.status()["state"], "gap", "{options}");
    }
}

#[test]
fn verify_warn_and_off_serve_a_member_that_is_not_what_is_listed() {
    let server = Server::start();
    let mut own = dump::items(&server, 2);
    own[0] = own[0].clone().saying(&format!(
        "hash=\"md5:{}\" length=\"{}\"",
        crate::support::md5(b"other"),
        own[0].bytes.len()
    ));
    dump::source(&server, EARLY, &own, None);
    for (options, served) in
        [("verify=warn", true), ("verify=off", true), ("verify=strict", false), ("verify=stream", false)]
    {
        let mirror = Mirror::mount(&server.url("/"), options);
        let read = mirror.read("r/0");
        assert_eq!(read.is_ok(), served, "{options}: {}", mirror.errors());
        if let Ok(content) = read {
            assert_eq!(content, own[0].bytes, "{options}");
        }
        assert_eq!(mirror.read("r/1").unwrap(), own[1].bytes, "{options}");
    }
    // What was served unchecked is not taken for checked by a strict mount of the same cache.
    let mirror = Mirror::mount(&server.url("/"), "verify=off");
    assert!(mirror.read("r/0").is_ok());
    mirror.unmount();
    mirror.set_options("verify=strict");
    mirror.try_mount().unwrap();
    assert!(mirror.read("r/0").is_err());
}

#[test]
fn lengths_beyond_all_measure_are_no_trouble() {
    let server = Server::start();
    let own = dump::items(&server, 3);
    server.file("/package.zip", package(EARLY, &own));
    let packages: Vec<_> = (0..3)
        .map(|number| {
            (server.url(&format!("/package.zip?{number}")), format!("length=\"{}\"", i64::MAX), String::new())
        })
        .collect();
    for (url, _, _) in &packages {
        server.file(&url[server.url("").len()..], package(EARLY, &own));
    }
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.read("r/1").unwrap(), own[1].bytes);
    assert!(mirror.status()["seed"]["why"].as_str().unwrap().contains("larger than"), "{:#}", mirror.status());
}

#[test]
fn one_connection_is_enough() {
    let server = Server::start();
    let mut own = dump::items(&server, 10);
    own.push(Item::new(&server.url("/r/large"), &bytes(9, 12 << 20)).stored());
    let body = Arc::new(package(EARLY, &own));
    server.on("/package.zip", move |request| Reply { drip: Duration::from_millis(3), ..Reply::good(request, &body) });
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "connections=1,timeout=4");
    for item in &own {
        assert!(mirror.read(&item.uri[server.url("/").len()..]).unwrap() == item.bytes, "{}", mirror.errors());
    }
    assert_eq!((dump::singles(&server), mirror.status()["error_count"].clone()), (0, 0.into()), "{}", mirror.errors());
}

#[test]
fn the_status_says_what_a_mirror_is_seeded_from_and_why() {
    let server = Server::start();
    let own = dump::items(&server, 3);
    for item in &own {
        server.file(&item.uri[server.url("").len()..], item.bytes.clone());
    }
    dump::source(&server, EARLY, &own, Some((EARLY, &own)));
    let seed = |options: &str| {
        let mirror = Mirror::mount(&server.url("/"), options);
        for item in &own {
            assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
        }
        let status = mirror.status();
        (status["seed"]["from"].as_str().unwrap().to_owned(), status["seed"]["why"].as_str().unwrap().to_owned())
    };
    let (from, why) = seed("");
    assert!(from == "dump" && why.contains(EARLY) && why.contains("as new"), "{from}: {why}");
    assert_eq!(dump::singles(&server), 0);
    assert_eq!(seed("seed=dump").0, "dump");
    assert_eq!(dump::singles(&server), 0);
    let (from, why) = seed("seed=list");
    assert!(from == "list" && why.contains("seed=list"), "{from}: {why}");
    assert_eq!(dump::singles(&server), 3);
    // Packages larger than the cache may be are read from where they are.
    let packages =
        [(server.url("/package.zip"), "type=\"application/zip\" length=\"5000000\"".to_owned(), String::new())];
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    let (from, why) = seed("cache_size=1M");
    assert!(from == "dump" && why.contains("cache_size"), "{from}: {why}");
    assert_eq!(dump::singles(&server), 3);
    dump::offer(&server, &["resourcelist"]);
    let (from, why) = seed("seed=dump");
    assert!(from == "list" && why.contains("no Resource Dump"), "{from}: {why}");
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::prepare(&server.url("/"), "seed=list");
    let said = mirror.try_mount().unwrap_err();
    assert!(said.contains("no Resource List") && said.contains("seed=auto"), "{said}");
}
