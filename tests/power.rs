//! A machine that loses its power while the cache is written: what was not flushed is lost, and the cache opens and is true.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::disk::Disk;
use support::history::History;
use support::network::enters;
use support::nginx::Nginx;
use support::{Mirror, run, scramble, text};

/// What tells one run of a machine from the next.
struct Boot(PathBuf);

impl Boot {
    /// Its file is this test's own from now on.
    fn first(folder: &std::path::Path) -> Self {
        let own = Self(folder.join("boot_id"));
        own.again(0);
        support::shell(&format!("mount --bind {} /proc/sys/kernel/random/boot_id", own.0.display()));
        own
    }

    fn again(&self, number: u64) {
        fs::write(&self.0, format!("00000000-0000-0000-0000-{number:012}\n")).unwrap();
    }
}

#[test]
fn what_was_written_and_not_flushed_may_be_lost_and_the_cache_is_true() {
    if !enters("what_was_written_and_not_flushed_may_be_lost_and_the_cache_is_true", &[], "127.0.0.1 localhost\n") {
        return;
    }
    let seed = support::seed();
    let rounds: u64 = std::env::var("POWER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(25);
    let folder = tempfile::tempdir().unwrap();
    let boot = Boot::first(folder.path());
    let mut nginx = Nginx::prepare();
    let mut history = History::new(&nginx, seed, 200);
    history.publish(&["changelist", "changedump"]);
    nginx.start();
    let mut mirror = Mirror::prepare(&nginx.url("/"), "poll=0");
    fs::create_dir(&mirror.cache).unwrap();
    let mut disk = Disk::new(256, &mirror.cache);
    let own = mirror.cache.join("cache");
    mirror.cache = own;
    assert!(mirror.try_mount().status.success());
    let (mut whole, mut orderly) = (0, 0);
    for round in 1..=rounds {
        let random = scramble(seed ^ round);
        history.changes(20 + random % 100);
        if random.is_multiple_of(3) {
            history.pack();
        }
        match random % 5 {
            0 => history.rotate(),
            _ => history.publish_changes(),
        }
        let directory = mirror.directory.clone();
        let paths: Vec<String> = history.now.keys().cloned().collect();
        let work = std::thread::spawn(move || {
            let refreshed = run(&["refresh", &directory.to_string_lossy()]).status.success();
            let some = paths.into_iter().skip(usize::try_from(random % 5).unwrap()).step_by(5);
            (refreshed, some.filter(|path| fs::read(directory.join(path.trim_start_matches('/'))).is_ok()).collect())
        });
        // In the midst of it; or when a refresh has said that it is done, and some was read; or after an orderly end of that.
        let (finished, ended) = (random.is_multiple_of(3), random.is_multiple_of(6));
        let mut read: Vec<String> = Vec::new();
        if finished {
            let (refreshed, some) = work.join().unwrap();
            assert!(refreshed, "SEED={seed}, round {round}");
            read = some;
        } else {
            std::thread::sleep(Duration::from_millis(random % 700));
        }
        if ended {
            orderly += 1;
            mirror.unmount();
        }
        disk.loses_power(random);
        if !ended {
            mirror.kill();
            let _ = std::process::Command::new("umount").arg("-l").arg(&mirror.directory).output();
        }
        disk.comes_back();
        boot.again(round);
        if finished {
            // What was said to be done is there without the Source.
            whole += 1;
            mirror.set_options("poll=0,offline");
            let output = mirror.try_mount();
            assert!(output.status.success(), "SEED={seed}, round {round}: {}", text(&output));
            let expected: Vec<String> =
                history.now.keys().map(|path| path.trim_start_matches('/').to_owned()).collect();
            assert_eq!(mirror.files(), expected, "SEED={seed}, round {round}: what was synced is lost");
            for path in read.iter().filter(|_| ended) {
                let there = mirror.read(path.trim_start_matches('/'));
                assert!(there.is_ok(), "SEED={seed}, round {round}: {path} was read, and is lost: {there:?}");
                assert_eq!(there.unwrap(), history.now[path], "SEED={seed}, round {round}: {path}");
            }
            sound(&mirror, seed, round);
            mirror.unmount();
            mirror.set_options("poll=0");
        }
        let output = mirror.try_mount();
        assert!(output.status.success(), "SEED={seed}, round {round}: {}", text(&output));
        sound(&mirror, seed, round);
        mirror.refreshed();
        let expected: Vec<String> = history.now.keys().map(|path| path.trim_start_matches('/').to_owned()).collect();
        assert_eq!(mirror.files(), expected, "SEED={seed}, round {round}");
        for (path, body) in history.now.iter().skip(usize::try_from(round % 7).unwrap()).step_by(7) {
            let read = mirror.read(path.trim_start_matches('/'));
            let read =
                read.unwrap_or_else(|error| panic!("SEED={seed}, round {round}: {path}: {error}: {}", mirror.errors()));
            assert!(read == *body, "SEED={seed}, round {round}, {path}");
        }
        let versions = support::catalog::versions(&mirror.cache) as u64;
        assert_eq!(versions, history.versions, "SEED={seed}, round {round}: versions");
    }
    println!(
        "{rounds} times the power went, {whole} of them after a sync was done, {orderly} after an orderly end; {} flushes",
        disk.flushes()
    );
    assert!(rounds < 20 || whole > 0 && disk.flushes() > rounds);
    mirror.unmount();
}

fn sound(mirror: &Mirror, seed: u64, round: u64) {
    let began = Instant::now();
    let output = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert!(output.status.success(), "SEED={seed}, round {round}: {}", text(&output));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
