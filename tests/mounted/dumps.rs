//! Mirrors that are seeded from Resource Dumps: what is in them, where it comes from, what happens on the way.

use crate::support::dump::{self, Item, manifest, package, package_with};

use crate::support::nginx::Nginx;
use crate::support::server::{Reply, Server};
use crate::support::{
    Mirror, bytes, capability, document, facts_of, many, output, resource_list, run, scramble, shell, text,
};
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EARLY: &str = "2026-01-01T00:00:00Z";

/// A Source of thousands of resources behind nginx, with a list, and a dump of two packages.
fn large_source(nginx: &Nginx) {
    let root = nginx.root();
    let mut list = String::new();
    let mut packages = Vec::new();
    for number in 0..2_u64 {
        let mut items = Vec::new();
        for number in number * many() / 2..(number + 1) * many() / 2 {
            let path = format!("data/{:02}/{number:05}.txt", number / 1000);
            let content = match number % 3 {
                0 => bytes(number, 200 + usize::try_from(scramble(number) % 6000).unwrap()),
                _ => format!("words of {number}, ")
                    .repeat(20 + usize::try_from(scramble(number) % 200).unwrap())
                    .into_bytes(),
            };
            fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
            fs::write(root.join(&path), &content).unwrap();
            let item = Item::new(&nginx.url(&format!("/{path}")), &content);
            list.push_str(&item.in_list());
            items.push(item);
        }
        fs::write(root.join(format!("part{number}.zip")), package(EARLY, &items)).unwrap();
        packages.push((nginx.url(&format!("/part{number}.zip")), "type=\"application/zip\"".to_owned(), String::new()));
    }
    fs::write(root.join("resourcelist.xml"), resource_list(EARLY, &list)).unwrap();
    fs::write(root.join("resourcedump.xml"), dump::dump(&format!("at=\"{EARLY}\""), &packages)).unwrap();
    let offered: String = ["resourcelist", "resourcedump"]
        .iter()
        .map(|name| capability(&nginx.url(&format!("/{name}.xml")), name))
        .collect();
    fs::write(root.join("capabilitylist.xml"), document("capabilitylist", "", "", &offered)).unwrap();
    fs::create_dir(root.join(".well-known")).unwrap();
    let sets = capability(&nginx.url("/capabilitylist.xml"), "capabilitylist");
    fs::write(root.join(".well-known/resourcesync"), document("description", "", "", &sets)).unwrap();
}

#[test]
fn thousands_of_resources_come_in_two_packages_and_no_request_for_one_of_them() {
    let mut nginx = Nginx::prepare();
    large_source(&nginx);
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "");
    let served = nginx.root().to_owned();
    let equal = || {
        let (mount, served) = (mirror.directory.display(), served.display());
        assert_eq!(shell(&format!("diff -r {mount}/data {served}/data")), "");
    };
    equal();
    let status = dump::all_verified(&mirror, many());
    assert_eq!((&status["state"], &status["error_count"]), (&"complete".into(), &0.into()));
    assert_eq!(status["seed"]["from"], "dump", "{status:#}");
    assert_eq!(status["cached"]["resources"], many());
    let log = nginx.log();
    let singles: Vec<_> = log.iter().filter(|path| path.starts_with("/data/")).collect();
    assert!(singles.is_empty(), "asked for one by one: {singles:?}");
    assert!(log.len() < 40, "{log:?}");
    nginx.stop();
    equal();
    mirror.remount();
    equal();
    let files = fs::read_dir(mirror.cache.join("objects")).unwrap().count();
    assert_eq!(files, 0, "nothing was unpacked");
}

#[test]
fn a_file_is_read_long_before_its_package_is_here() {
    let server = Server::start();
    let mut own = dump::items(&server, 20);
    own.insert(0, Item::new(&server.url("/r/large"), &bytes(99, 40 << 20)).stored());
    let whole = Arc::new(package(EARLY, &own));
    let slow = Arc::clone(&whole);
    // The whole comes at 2 MiB a second or less; parts come as they are asked for.
    server.on("/package.zip", move |request| {
        let reply = Reply::good(request, &slow);
        match request.header("range") {
            None => Reply { drip: Duration::from_millis(8), ..reply },
            Some(_) => reply,
        }
    });
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files().len(), 21);
    assert_eq!(mirror.read("r/19").unwrap(), own[20].bytes);
    let status = mirror.status();
    let progress = &status["progress"];
    assert_eq!(status["packages"]["whole"], 0, "{status:#}");
    assert_eq!(progress["package_bytes_known"], whole.len());
    mirror.wait("a rate", |status| status["progress"]["bytes_per_second"].as_u64() > Some(100_000));
    let shown = output(&["status", &mirror.directory.to_string_lossy()]);
    assert!(shown.contains("download") && shown.contains("/s, ") && shown.contains(" left"), "{shown}");
    // What the download has not reached is fetched aside, and whoever waits for the large one gets it.
    assert_eq!(mirror.read("r/large").unwrap(), own[0].bytes);
    assert_eq!(dump::singles(&server), 0);
}

#[test]
fn large_members_are_read_here_and_there_without_being_held_in_memory() {
    let server = Server::start();
    let line = |number: usize| format!("line {number:09} of a large text that deflates very well indeed\n");
    let text: Vec<u8> = (0..3_000_000).flat_map(|number| line(number).into_bytes()).collect();
    let noise = bytes(7, 64 << 20);
    let own = [Item::new(&server.url("/r/text"), &text), Item::new(&server.url("/r/noise"), &noise).stored()];
    dump::source(&server, EARLY, &own, None);
    let mirror = Mirror::mount(&server.url("/"), "");
    let file = fs::File::open(mirror.path("r/text")).unwrap();
    let len = line(0).len();
    let began = Instant::now();
    let mut buffer = vec![0; len];
    for at in 0..2000_u64 {
        let number = usize::try_from(scramble(at) % 3_000_000).unwrap();
        file.read_exact_at(&mut buffer, (number * len) as u64).unwrap();
        assert_eq!(buffer, line(number).as_bytes());
    }
    // Reading from the start for each would take minutes.
    assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
    let file = fs::File::open(mirror.path("r/noise")).unwrap();
    for at in 0..500_u64 {
        let offset = scramble(at) % ((64 << 20) - 4096);
        let mut buffer = vec![0; 4096];
        file.read_exact_at(&mut buffer, offset).unwrap();
        assert_eq!(buffer, noise[usize::try_from(offset).unwrap()..][..4096]);
    }
    assert_eq!((mirror.read("r/text").unwrap() == text, mirror.read("r/noise").unwrap() == noise), (true, true));
    assert_eq!(dump::singles(&server), 0);
    let peak = peak_memory(&mirror);
    assert!(peak < 150 << 20, "{} MiB", peak >> 20);
}

/// The most memory that the daemon had resident at any time, in bytes.
fn peak_memory(mirror: &Mirror) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", mirror.daemon().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn packages_larger_than_the_cache_may_be_are_read_by_parts_and_let_go() {
    let server = Server::start();
    let own: Vec<Item> = (0..40)
        .map(|number| Item::new(&server.url(&format!("/r/{number}")), &bytes(number, 400_000)).stored())
        .collect();
    let body = package(EARLY, &own);
    server.file("/package.zip", body.clone());
    server.file(
        "/resourcedump.xml",
        dump::dump(&format!("at=\"{EARLY}\""), &[(server.url("/package.zip"), facts_of(&body), String::new())]),
    );
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "cache_size=6M");
    for item in own.iter().chain(&own) {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    let whole =
        server.requests().iter().any(|request| request.path == "/package.zip" && request.header("range").is_none());
    assert!(!whole, "it does not fit");
    let held = shell(&format!("du -sk {0}/packages {0}/objects | cut -f1 | paste -sd+ | bc", mirror.cache.display()));
    assert!(held.trim().parse::<u64>().unwrap() < 8 << 10, "{held} KiB");
    assert_eq!(dump::singles(&server), 0);
    // Ahead of use: as many as there is room for, all of which are had from the package.
    let said = crate::support::text(&run(&[
        "fetch",
        &mirror.path("r/0").to_string_lossy(),
        &mirror.path("r/1").to_string_lossy(),
    ]));
    assert!(said.contains("1 file"), "{said}");
}

#[test]
fn fetch_brings_the_packages_that_a_directory_needs() {
    let server = Server::start();
    let own = dump::items(&server, 200);
    dump::source(&server, EARLY, &own, None);
    // Nothing is downloaded ahead: the disk is said to be too small for it.
    server.file(
        "/resourcedump.xml",
        dump::dump(
            &format!("at=\"{EARLY}\""),
            &[(server.url("/package.zip"), "length=\"900000000\"".to_owned(), String::new())],
        ),
    );
    let mirror = Mirror::mount(&server.url("/"), "cache_size=800M");
    assert_eq!(mirror.status()["packages"]["whole"], 0);
    let said = crate::support::text(&run(&["fetch", &mirror.path("r").to_string_lossy()]));
    assert!(said.contains("200 files"), "{said}");
    assert_eq!(mirror.status()["cached"]["resources"], 200);
    let requests = server.count("/package.zip");
    assert!(requests < 12, "{requests} requests for 200 members of one package");
    assert_eq!(dump::singles(&server), 0);
    drop(server);
    for number in [0, 77, 199] {
        assert_eq!(mirror.read(&format!("r/{number}")).unwrap(), own[number].bytes);
    }
}

#[test]
fn a_package_that_is_replaced_gives_no_other_bytes_to_a_file_that_was_read() {
    let server = Server::start();
    let uri = server.url("/r/large");
    let (old, new) = (bytes(1, 4 << 20), bytes(2, 4 << 20));
    let filler = Item::new(&server.url("/r/filler"), &bytes(3, 6 << 20)).stored();
    let packed = |content: &[u8]| {
        // The new one lies where the old one did, under the old manifest.
        let mut item = Item::new(&uri, &old).stored();
        item.bytes = content.to_vec();
        let described = [Item::new(&uri, &old).stored(), filler.clone()];
        package_with(&manifest(EARLY, &described), &[item, filler.clone()])
    };
    let bodies = Arc::new([packed(&old), packed(&new)]);
    let replaced = Arc::new(AtomicBool::new(false));
    let (served, second) = (Arc::clone(&bodies), Arc::clone(&replaced));
    server.on("/package.zip", move |request| {
        let now = second.load(Ordering::SeqCst);
        let mut reply = Reply::good(request, &served[usize::from(now)]);
        if !now && request.header("range").is_none() {
            // It never comes to its end.
            reply.headers.push(("Content-Length".to_owned(), reply.body.len().to_string()));
            reply.close_after = Some(9 << 20);
            reply.drip = Duration::from_millis(1);
        }
        reply
    });
    server.file("/r/large", old.clone());
    dump::list_package(&server, EARLY, "/package.zip");
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "timeout=5");
    let file = fs::File::open(mirror.path("r/large")).unwrap();
    let inode = file.metadata().unwrap().ino();
    assert!(mirror.read("r/large").unwrap() == old);
    replaced.store(true, Ordering::SeqCst);
    mirror.refresh();
    mirror.wait("the new package", |status| status["packages"]["whole"] == 1);
    shell("sync; echo 3 > /proc/sys/vm/drop_caches");
    let mut content = vec![0; old.len()];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content == old, "the open file");
    let again = fs::metadata(mirror.path("r/large")).unwrap().ino();
    assert!(again != inode || mirror.read("r/large").unwrap() == old, "the same inode");
    mirror.kill();
    assert!(mirror.try_mount().status.success());
    assert!(mirror.read("r/large").unwrap() == old, "from its own URL: {}", mirror.errors());
}

#[test]
fn packages_that_come_as_a_whole_only_come_one_after_the_other() {
    let server = Server::start();
    let mut packages = Vec::new();
    let mut own = Vec::new();
    for number in 0..7_u64 {
        let part: Vec<Item> = (0..5)
            .map(|at| number * 100 + at)
            .map(|id| Item::new(&server.url(&format!("/r/{id}")), &bytes(id, 400_000)).stored())
            .collect();
        let body = Arc::new(package(EARLY, &part));
        packages.push((server.url(&format!("/{number}.zip")), String::new(), String::new()));
        server.on(&format!("/{number}.zip"), move |_| Reply {
            drip: Duration::from_millis(20),
            ..Reply::ok(body.to_vec())
        });
        own.extend(part);
    }
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{EARLY}\""), &packages));
    dump::offer(&server, &["resourcedump"]);
    let mirror = Mirror::mount(&server.url("/"), "timeout=3,connections=3");
    let status = dump::all_verified(&mirror, 35);
    assert_eq!((&status["state"], &status["error_count"]), (&"complete".into(), &0.into()), "{status:#}");
    for item in &own {
        assert_eq!(mirror.read(&item.uri[server.url("/").len()..]).unwrap(), item.bytes);
    }
    assert_eq!(dump::singles(&server), 0);
    // A daemon that waits does not work.
    let ticks = fs::read_to_string(format!("/proc/{}/stat", mirror.daemon().unwrap())).unwrap();
    let ticks: Vec<u64> = ticks
        .rsplit(')')
        .next()
        .unwrap()
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|n| n.parse().unwrap())
        .collect();
    assert!(ticks.iter().sum::<u64>() < 400, "{ticks:?} hundredths of a second");
}

#[test]
fn what_is_pinned_is_here_even_if_it_was_let_go_before() {
    let server = Server::start();
    let own: Vec<Item> = (0..3)
        .map(|number| Item::new(&server.url(&format!("/r/{number}")), &bytes(number, 3 << 20)).stored())
        .collect();
    let body = package(EARLY, &own);
    server.file("/package.zip", body.clone());
    server.file(
        "/resourcedump.xml",
        dump::dump(&format!("at=\"{EARLY}\""), &[(server.url("/package.zip"), facts_of(&body), String::new())]),
    );
    dump::offer(&server, &["resourcedump"]);
    let mut mirror = Mirror::mount(&server.url("/"), "cache_size=1M");
    let directory = mirror.path("r").to_string_lossy().into_owned();
    assert!(run(&["fetch", &directory]).status.success());
    let said = crate::support::text(&run(&["fetch", "--pin", &directory]));
    assert!(said.contains("3 files") && said.contains("pinned"), "{said}");
    mirror.unmount();
    mirror.set_options("offline,cache_size=1M");
    assert!(mirror.try_mount().status.success());
    for (number, item) in own.iter().enumerate() {
        assert!(mirror.read(&format!("r/{number}")).unwrap() == item.bytes, "{}", mirror.errors());
    }
}

#[test]
fn a_full_disk_is_told_corrupts_nothing_and_it_goes_on_when_there_is_room() {
    let server = Server::start();
    let own: Vec<Item> = (0..60)
        .map(|number| Item::new(&server.url(&format!("/r/{number}")), &bytes(number, 1 << 20)).stored())
        .collect();
    dump::source(&server, EARLY, &own, None);
    let folder = tempfile::tempdir().unwrap();
    let disk = Tmpfs::mount(folder.path(), "100M");
    let mirror = Mirror::prepare(&server.url("/"), "");
    std::os::unix::fs::symlink(folder.path(), &mirror.cache).unwrap();
    let output = mirror.try_mount();
    assert!(output.status.success(), "{}", text(&output));
    let status = mirror.wait("the full disk", |status| status["error_count"].as_u64() > Some(0));
    assert!(status["errors"].to_string().contains("are free; make room"), "{status:#}");
    assert_eq!(mirror.files().len(), 60);
    mirror.kill();
    assert!(mirror.try_mount().status.success());
    assert_eq!(mirror.files().len(), 60);
    disk.grow("300M");
    assert!(mirror.refresh().status.success());
    dump::all_verified(&mirror, 60);
    drop(server);
    for (number, item) in own.iter().enumerate() {
        assert_eq!(mirror.read(&format!("r/{number}")).unwrap(), item.bytes);
    }
    mirror.unmount();
}

/// A small disk.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(path: &std::path::Path, size: &str) -> Self {
        shell(&format!("mount -t tmpfs -o size={size},mode=700 tmpfs {}", path.display()));
        Self(path.to_owned())
    }

    fn grow(&self, size: &str) {
        shell(&format!("mount -o remount,size={size} {}", self.0.display()));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
