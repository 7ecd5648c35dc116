//! `resourcesync audit`: what is missing, extra, stale or corrupt; and its repair.

use std::fs;
use std::os::unix::fs::FileExt as _;

use crate::support::changes::{Source, at};
use crate::support::dump::{self, Item};
use crate::support::server::{Reply, Server};
use crate::support::{Mirror, bytes, entry, facts_of, resource_list, run, text};

fn audit(mirror: &Mirror, options: &[&str]) -> (Option<i32>, String) {
    let directory = mirror.directory.to_string_lossy().into_owned();
    let output = run(&[&["audit", &directory], options].concat());
    (output.status.code(), text(&output))
}

fn json(mirror: &Mirror, options: &[&str]) -> serde_json::Value {
    let directory = mirror.directory.to_string_lossy().into_owned();
    let output = run(&[&["audit", &directory, "--json"], options].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)))
}

fn names(found: &serde_json::Value) -> Vec<String> {
    found.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_mirror_in_sync_is_said_to_be_and_what_changed_since_the_list_is_no_fault() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c/d", "d")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    let (code, said) = audit(&mirror, &[]);
    assert!(code == Some(0) && said.contains("in sync, 3 resources as listed"), "{said}");
    let entries = source.does("updated", "/a", 10, "anew")
        + &source.does("deleted", "/b", 11, "")
        + &source.does("created", "/e", 12, "e");
    source.changes(&entries);
    mirror.refreshed();
    let found = json(&mirror, &[]);
    assert_eq!((&found["in_sync"], &found["newer"]), (&true.into(), &2.into()), "{found:#}");
}

#[test]
fn missing_extra_and_stale_are_found_and_repaired() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b"), ("/c", "c"), ("/d", "d"), ("/e", "e")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    // The Source forgets to tell of these changes.
    source.put("/new", b"new");
    source.remove("/b");
    source.put("/c", b"c, anew");
    source.list(50);
    let before = mirror.files();
    mirror.refreshed();
    assert_eq!(mirror.files(), before, "its Change List says nothing of it");
    let found = json(&mirror, &[]);
    assert_eq!(found["in_sync"], false);
    assert_eq!(
        (names(&found["missing"]), names(&found["extra"]), names(&found["stale"])),
        (vec!["new".to_owned()], vec!["b".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(found["missing"][0]["uri"], source.url("/new"));
    let differences = found["stale"][0]["differences"].as_array().unwrap();
    assert!(differences.iter().any(|one| one["what"] == "length" && one["here"] == "1" && one["listed"] == "7"));
    assert!(differences.iter().any(|one| one["what"] == "sha-256"), "{differences:?}");
    let (code, said) = audit(&mirror, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 missing, 1 extra, 1 stale") && said.contains("audit --repair"), "{said}");
    assert_eq!(mirror.files(), before, "looking changes nothing");
    let (code, said) = audit(&mirror, &["--repair"]);
    assert!(code == Some(0) && said.contains("in sync"), "{said}");
    for (path, bytes) in &source.now {
        assert_eq!(mirror.read(path.trim_start_matches('/')).unwrap(), *bytes);
    }
    assert_eq!(mirror.files().len(), source.now.len());
}

#[test]
fn damaged_content_is_found_by_hashing_it_again_and_fetched_anew() {
    let server = Server::start();
    let (one, two) = (bytes(1, 5000), bytes(2, 300_000));
    let items = [Item::new(&server.url("/r/packed"), &one), Item::new(&server.url("/r/stored"), &two).stored()];
    let single = bytes(3, 4000);
    server.file("/r/single", single.as_slice());
    items
        .iter()
        .for_each(|item| server.file(item.uri.split_once("/r").map_or("", |(_, path)| path), item.bytes.clone()));
    server.file("/r/packed", one.as_slice());
    server.file("/r/stored", two.as_slice());
    dump::source(&server, &at(0), &items, None);
    let list =
        items.iter().map(Item::in_list).collect::<String>() + &entry(&server.url("/r/single"), &facts_of(&single));
    server.file("/resourcelist.xml", resource_list(&at(0), &list));
    dump::offer(&server, &["resourcelist", "resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    assert_eq!(mirror.read("r/single").unwrap(), single);
    mirror.wait("all members verified", |status| status["packages"]["verified"] == 2);
    mirror.wait("what was read is noted", |status| status["cached"]["resources"] == 3);
    let found = json(&mirror, &["--content"]);
    assert_eq!((&found["in_sync"], &found["checked_files"]), (&true.into(), &3.into()), "{found:#}");
    // A bit flips in a package, and one in an object.
    let flip = |path: &std::path::Path, at: u64| {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    };
    let package = fs::read_dir(mirror.cache.join("packages"))
        .unwrap()
        .flatten()
        .find(|file| file.path().extension().is_none())
        .unwrap();
    let middle = package.metadata().unwrap().len() / 2;
    flip(&package.path(), middle);
    let mut objects = Vec::new();
    let mut folders = vec![mirror.cache.join("objects")];
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(folder).unwrap().flatten() {
            if item.file_type().unwrap().is_dir() { folders.push(item.path()) } else { objects.push(item.path()) }
        }
    }
    assert_eq!(objects.len(), 1);
    flip(&objects[0], 100);
    let found = json(&mirror, &["--content"]);
    let mut corrupt = names(&found["corrupt"]);
    corrupt.sort();
    assert_eq!(corrupt, ["r/single", "r/stored"], "{found:#}");
    let (code, said) = audit(&mirror, &["--content"]);
    assert!(code == Some(1) && said.contains("2 corrupt") && said.contains("corrupt  r/single"), "{said}");
    let (code, said) = audit(&mirror, &["--content", "--repair"]);
    assert_eq!(code, Some(0), "{said}");
    mirror.remount();
    assert_eq!((mirror.read("r/single").unwrap(), mirror.read("r/stored").unwrap()), (single, two));
    let (code, said) = audit(&mirror, &["--content"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_cannot_be_read_is_not_said_to_be_in_sync() {
    let mut source = Source::start(&[("/a", "a"), ("/b", "b")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=3");
    source.put("/c", b"c");
    let list = resource_list(
        &at(10),
        &source.now.iter().map(|(path, bytes)| entry(&source.url(path), &facts_of(bytes))).collect::<String>(),
    );
    let cut = list.find("/b<").unwrap();
    source.server.file("/resourcelist.xml", &list[..cut]);
    let found = json(&mirror, &[]);
    assert_eq!((&found["in_sync"], names(&found["extra"]).len()), (&false.into(), 0), "{found:#}");
    assert_eq!(found["unread"].as_array().unwrap().len(), 1);
    source.server.on("/resourcelist.xml", |_| Reply::status(500));
    let (code, said) = audit(&mirror, &[]);
    assert!(code == Some(1) && said.contains("500"), "{said}");
}

#[test]
fn a_mirror_of_a_dump_alone_is_compared_with_its_manifests() {
    let server = Server::start();
    let items: Vec<Item> =
        (0..5).map(|number| Item::new(&server.url(&format!("/r/{number}")), &bytes(number, 500))).collect();
    dump::source(&server, &at(0), &items, None);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let (code, said) = audit(&mirror, &[]);
    assert!(code == Some(0) && said.contains("5 resources as listed"), "{said}");
}

#[test]
fn a_cache_is_held_to_itself_without_its_source() {
    let source = Source::start(&[("/a", "a"), ("/b", "b")], &[]);
    let mut mirror = Mirror::mount(&source.url("/"), "poll=0,timeout=2");
    assert_eq!(mirror.read("a").unwrap(), b"a");
    let sound = |mirror: &Mirror| {
        let (code, said) = audit(mirror, &["--content"]);
        assert!(code == Some(0) && said.contains("the cache is sound") && said.contains("not compared"), "{said}");
        let found = json(mirror, &["--content"]);
        assert!(found["not_compared"].is_string() && found["checked_files"] == 1, "{found:#}");
    };
    // Part of it is ill: that is not a Source which offers nothing.
    for ill in ["/capabilitylist.xml", "/.well-known/resourcesync"] {
        source.server.on(ill, |_| Reply::status(503));
        sound(&mirror);
    }
    drop(source);
    sound(&mirror);
    let (code, said) = audit(&mirror, &[]);
    assert!(code == Some(1) && !said.contains("sound"), "without --content there is nothing to look at: {said}");
    mirror.unmount();
    mirror.set_options("offline");
    assert!(mirror.try_mount().status.success());
    sound(&mirror);
    // A row that is not so.
    mirror.damages();
    let catalog = rusqlite::Connection::open(mirror.cache.join("catalog.db")).unwrap();
    catalog.execute("UPDATE name SET live = live + 1 WHERE id = 1", []).unwrap();
    let (code, said) = audit(&mirror, &["--content"]);
    assert!(code == Some(1) && said.contains("a directory counts its live names"), "{said}");
    assert_eq!(json(&mirror, &["--content"])["cache"].as_array().unwrap().len(), 1);
}

#[test]
fn content_that_a_crash_left_and_that_is_nobody_s_goes() {
    let source = Source::start(&[("/a", "a")], &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0");
    assert_eq!(mirror.read("a").unwrap(), b"a");
    mirror.wait("what was read is noted", |status| status["cached"]["resources"] == 1);
    mirror.kill();
    let own = crate::support::sha256(b"a");
    let own = mirror.cache.join("objects").join(&own[..2]).join(&own[2..]);
    let left = mirror.cache.join("objects/00").join("1".repeat(62));
    fs::create_dir_all(left.parent().unwrap()).unwrap();
    fs::write(&left, "left").unwrap();
    // What is as old as the process may be its own.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(mirror.try_mount().status.success());
    let began = std::time::Instant::now();
    while left.exists() {
        assert!(began.elapsed().as_secs() < 10, "it is still there");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(own.exists(), "what is somebody's stays");
}

#[test]
fn what_a_killed_daemon_left_and_comes_anew_is_not_let_go() {
    let bodies: Vec<(String, String)> = (0..400).map(|n| (format!("/{n}.txt"), format!("content {n}"))).collect();
    let resources: Vec<(&str, &str)> = bodies.iter().map(|(path, body)| (path.as_str(), body.as_str())).collect();
    let source = Source::start(&resources, &[]);
    let mirror = Mirror::mount(&source.url("/"), "poll=0,content=all");
    mirror.wait("all files", |status| status["cached"]["resources"] == bodies.len());
    mirror.kill();
    // All of it has come, and nobody wrote down that it did.
    let catalog = rusqlite::Connection::open(mirror.cache.join("catalog.db")).unwrap();
    catalog.execute_batch("BEGIN; UPDATE version SET object = NULL; DELETE FROM object; COMMIT").unwrap();
    drop(catalog);
    // What came within the last seconds is left alone.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(mirror.try_mount().status.success());
    let began = std::time::Instant::now();
    loop {
        let audit = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
        assert!(audit.status.success(), "{}", text(&audit));
        let cached = mirror.status()["cached"]["resources"].clone();
        if cached == bodies.len() {
            break;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{cached} of {} files came", bodies.len());
    }
}
