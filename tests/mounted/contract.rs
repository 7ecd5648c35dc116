//! What a Source may do that must cost no data, and what a user may do that must not go wrong: each of
//! these went wrong once.

use crate::support::resources::named;
use crate::support::server::{Reply, Server};
use crate::support::{Mirror, bytes, entry, run, text};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

const AT: &str = "2026-01-02T03:04:05Z";

#[test]
fn mounts_at_once_on_one_directory_do_not_stack() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a"]));
    let mirror = Mirror::prepare(&server.url("/"), "");
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..4)
            .map(|number| {
                let (source, options) = (server.url("/"), format!("cache={}-{number}", mirror.cache.display()));
                let directory = mirror.directory.to_string_lossy().into_owned();
                scope.spawn(move || run(&["mount", &source, &directory, "-o", &options]))
            })
            .collect();
        started.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mounted = outputs.iter().filter(|output| output.status.success()).count();
    assert_eq!(mounted, 1, "{:?}", outputs.iter().map(text).collect::<Vec<_>>());
    for output in outputs.iter().filter(|output| !output.status.success()) {
        assert!(output.status.code() == Some(32) && text(output).contains("is mounted already"), "{}", text(output));
    }
    let lines = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains(&*mirror.directory.to_string_lossy())).count(), 1);
}

#[test]
fn a_daemon_that_hangs_does_not_hang_mount() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a"]));
    let mirror = Mirror::mount(&server.url("/"), "");
    let daemon = mirror.daemon().unwrap().to_string();
    std::process::Command::new("kill").args(["-STOP", &daemon]).output().unwrap();
    let began = Instant::now();
    let output = mirror.try_mount();
    std::process::Command::new("kill").args(["-CONT", &daemon]).output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(output.status.code() == Some(32) && text(&output).contains("does not answer"), "{}", text(&output));
}

#[test]
fn content_that_was_evicted_comes_back_the_same_or_as_another_version() {
    let server = Server::start();
    let (old, new) = (bytes(1, 900_000), bytes(2, 900_000));
    server.file("/x", old.clone());
    server.file("/y", bytes(3, 900_000));
    server.source(AT, &["/x", "/y"].map(|path| entry(&server.url(path), "length=\"900000\"")).concat());
    let mirror = Mirror::mount(&server.url("/"), "cache_size=1000000,timeout=3");
    let file = File::open(mirror.path("x")).unwrap();
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 0).unwrap();
    mirror.read("y").unwrap();
    mirror.wait("room", |status| status["cached"]["bytes"].as_u64().unwrap() <= 1_000_000);
    server.file("/x", new.clone());
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for at in [0, 400_000, 800_000] {
        if file.read_exact_at(&mut part, at).is_ok() {
            let at = usize::try_from(at).unwrap();
            assert!(part == old[at..at + 4096], "the open file has bytes of another version at {at}");
        }
    }
    drop(file);
    mirror.wait("a version that reads", |_| mirror.read("x").is_ok_and(|found| found == new || found == old));
}

#[test]
fn an_absurd_retry_after_is_no_end() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a"]));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    server.on("/resourcelist.xml", |_| Reply {
        delay: Duration::from_millis(1200),
        ..Reply::status(503).with("Retry-After", "18446744073709551615")
    });
    let said = mirror.refresh();
    assert!(text(&said).contains("503"), "{}", text(&said));
    assert_eq!(mirror.read("a").unwrap(), b"/a");
    assert!(mirror.daemon().is_some());
}

#[test]
fn the_end_is_heard_while_the_first_lists_are_read() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a"]));
    server.on("/resourcelist.xml", |_| Reply { delay: Duration::from_secs(20), ..Reply::status(404) });
    for signal in [true, false] {
        let mirror = Mirror::prepare(&server.url("/"), "timeout=30");
        let output = std::thread::scope(|scope| {
            let mount = scope.spawn(|| mirror.try_mount());
            let began = Instant::now();
            while !mirror.path(".resourcesync/status.json").exists() {
                assert!(began.elapsed() < Duration::from_secs(10));
                std::thread::sleep(Duration::from_millis(20));
            }
            match signal {
                true => std::process::Command::new("kill").arg(mirror.daemon().unwrap().to_string()).output().unwrap(),
                false => std::process::Command::new("umount").arg(&mirror.directory).output().unwrap(),
            };
            mount.join().unwrap()
        });
        assert_eq!(output.status.code(), Some(32), "{}", text(&output));
        mirror.wait_for_end();
        let lines = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!lines.contains(&*mirror.directory.to_string_lossy()), "no dead mount is left");
    }
}

#[test]
fn offline_with_nothing_in_the_cache_is_no_empty_mirror() {
    let server = Server::start();
    let mirror = Mirror::prepare(&server.url("/"), "offline");
    let output = mirror.try_mount();
    assert!(output.status.code() == Some(32) && text(&output).contains("nothing in the cache"), "{}", text(&output));
    assert!(!mirror.cache.exists(), "a mount that never was leaves no cache");
}
