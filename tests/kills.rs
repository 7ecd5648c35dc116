//! A daemon that is killed a hundred times while it writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::fs;

use support::history::History;
use support::nginx::Nginx;
use support::{Mirror, run, scramble, shell};

/// Whether the daemon is writing to its cache just now: whether one of its threads is in such a system call.
fn is_writing(daemon: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{daemon}/task")) else { return false };
    // pwrite64, fsync, fdatasync and ftruncate, as x86-64 and AArch64 number them.
    let numbers: &[&str] =
        if cfg!(target_arch = "x86_64") { &["18", "74", "75", "77"] } else { &["68", "82", "83", "46"] };
    tasks.flatten().any(|task| {
        let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        call.split(' ').next().is_some_and(|number| numbers.contains(&number))
    })
}

/// Whether the write-ahead log ends in the middle of a transaction.
fn is_torn(wal: &[u8]) -> bool {
    let word = |at: usize| wal.get(at..at + 4).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
    let (Some(page), Some(salt)) = (word(8), word(16)) else { return false };
    let mut at = 32;
    let mut torn = false;
    // A frame: its page, the size of the database if it ends a transaction, the salts, two sums, the page itself.
    while let (Some(commit), Some(own)) = (word(at + 4), word(at + 8)) {
        if own != salt {
            break;
        }
        torn = commit == 0;
        at += 24 + page as usize;
    }
    torn
}

#[test]
fn a_hundred_kills_most_of_them_inside_a_write_lose_no_change_and_double_none() {
    support::require(&["nginx"]);
    let seed = support::seed();
    let mut nginx = Nginx::prepare();
    let mut history = History::new(&nginx, seed, 300);
    history.publish(&["changelist", "changedump"]);
    nginx.start();
    let mirror = Mirror::mount(&nginx.url("/"), "poll=0");
    let wal = mirror.cache.join("catalog.db-wal");
    let (mut inside, mut kills) = (0, 0);
    let mut round = 0;
    // On a busy machine fewer of them are seen to be inside a write.
    while kills < 100 || inside < 80 && kills < 200 {
        round += 1;
        history.changes(50 + scramble(seed + round) % 200);
        // By list, by package, by both in turn, with lists that end and begin.
        if scramble(seed ^ round).is_multiple_of(3) {
            history.pack();
        }
        match scramble(seed ^ round) % 5 {
            0 => history.rotate(),
            _ => history.publish_changes(),
        }
        let daemon = mirror.daemon().expect("a daemon");
        let directory = mirror.directory.to_string_lossy().into_owned();
        let refresh = std::thread::spawn(move || run(&["refresh", &directory]));
        // In the first, or the second, or the third of its writes that is seen; or when it is done.
        let mut wanted = scramble(seed * 7 + round) % 3;
        let writing = loop {
            match (is_writing(daemon), wanted) {
                (true, 0) => break true,
                (true, _) => wanted -= 1,
                (false, _) if refresh.is_finished() => break false,
                (false, _) => {}
            }
        };
        let kill = rustix::process::Pid::from_raw(i32::try_from(daemon).unwrap()).unwrap();
        rustix::process::kill_process(kill, rustix::process::Signal::KILL).unwrap();
        mirror.wait_for_end();
        kills += 1;
        inside += u32::from(writing || is_torn(&fs::read(&wal).unwrap_or_default()));
        refresh.join().unwrap();
        let output = mirror.try_mount();
        assert!(output.status.success(), "SEED={seed}: {}", support::text(&output));
        let paths: Vec<String> = history.now.keys().map(|path| path.trim_start_matches('/').to_owned()).collect();
        let began = std::time::Instant::now();
        // The mount has its tree at once, and goes on with the sync that was cut off.
        while mirror.files() != paths || mirror.status()["activity"] != "idle" {
            assert!(began.elapsed().as_secs() < 120, "SEED={seed}, round {round}: {:#}", mirror.status());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let versions = support::catalog::versions(&mirror.cache) as u64;
        assert_eq!(versions, history.versions, "SEED={seed}, round {round}: no change is lost, none is applied twice");
        // Some are read each time, and all in the end.
        for (path, body) in history.now.iter().skip(usize::try_from(round % 17).unwrap()).step_by(17) {
            assert_eq!(mirror.read(path.trim_start_matches('/')).unwrap(), *body, "SEED={seed}, round {round}, {path}");
        }
    }
    println!("{kills} kills, {inside} of them inside a write");
    assert!(inside >= 40, "{inside} of {kills}");
    assert_eq!(shell(&format!("diff -r {}/data {}/data", mirror.directory.display(), nginx.root().display())), "");
}
