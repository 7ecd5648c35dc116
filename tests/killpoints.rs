//! A daemon that is killed at a step of what it writes: at the first, at the second, and so on to the last. Whenever that is,
//! the cache opens, all of it is sound, and what was being done is done after all, once.
//!
//! A step is a system call that changes what is on the disk. They are counted by thread: the one that comes first to so many
//! is taken. A short run takes some of them, as `SEED` says;
//! `KILL_POINTS=all` takes each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::faulty::Faulty;
use support::history::{History, Style};
use support::{Mirror, run, scramble, text};

const STEPS: &str = "pwrite64,pwritev,rename,renameat,renameat2,unlink,unlinkat,ftruncate,fsync,fdatasync,sync_file_range,fallocate,mkdir,mkdirat,linkat,copy_file_range,sendfile";

/// Kills a process with the so-manieth step that one of its threads is about to take. Dropping it lets it go.
struct Killer(Child);

impl Killer {
    fn at(process: u32, step: u64) -> Self {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={STEPS}")]);
        strace.args(["-e", &format!("inject={STEPS}:signal=SIGKILL:when={step}"), "-p", &process.to_string()]);
        let killer = Self(strace.stderr(Stdio::null()).spawn().expect("strace; run scripts/test-deps"));
        let began = Instant::now();
        // It has hold of the process when the process says so.
        while !fs::read_to_string(format!("/proc/{process}/status"))
            .unwrap_or_default()
            .contains(&format!("TracerPid:\t{}", killer.0.id()))
        {
            assert!(began.elapsed() < Duration::from_secs(60), "strace does not attach");
            std::thread::sleep(Duration::from_millis(2));
        }
        killer
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        // It lets go of the process when it is asked to end.
        if let Some(own) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if began.elapsed() > Duration::from_secs(3) {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The step after this one that is to be looked at: the next, or one of the next few.
fn after(step: u64, seed: u64) -> u64 {
    match std::env::var("KILL_POINTS").is_ok_and(|points| points == "all") {
        true => step + 1,
        false => step + 4 + scramble(seed ^ step) % 7,
    }
}

fn sound(mirror: &Mirror, told: &str) {
    let output = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert!(output.status.success(), "{told}: {}", text(&output));
}

fn is_in_step(mirror: &Mirror, history: &History, told: &str) {
    mirror.refreshed();
    let paths: Vec<String> = history.now.keys().map(|path| path.trim_start_matches('/').to_owned()).collect();
    assert_eq!(mirror.files(), paths, "{told}");
    for (path, body) in &history.now {
        assert!(mirror.read(path.trim_start_matches('/')).unwrap() == *body, "{told}: {path}");
    }
    let versions = support::catalog::told_versions(&mirror.cache) as u64;
    assert_eq!(versions, history.versions, "{told}: versions");
}

/// Does a thing once for each step, until it is done before that is come to. Returns how many times that was.
fn at_each_step(options: &str, capabilities: &[&str], style: Style, work: impl Fn(&mut History, &Mirror, u64)) -> u64 {
    support::require(&["strace"]);
    let seed = support::seed();
    let folder = tempfile::tempdir().unwrap();
    let server = Faulty::serve(folder.path().to_owned(), seed);
    let mut history = History::styled(folder.path().to_owned(), server.url(""), seed, 30, style);
    history.publish(capabilities);
    let mirror = Mirror::mount(&server.url("/"), &format!("poll=0,timeout=5,{options}"));
    let (mut step, mut kills) = (1, 0);
    loop {
        let told = format!("SEED={seed}, {options}, step {step}");
        history.changes(8);
        if capabilities.contains(&"changedump") {
            history.pack();
        }
        match scramble(seed ^ step).is_multiple_of(5) {
            true => history.rotate(),
            false => history.publish_changes(),
        }
        let killer = Killer::at(mirror.daemon().expect("a daemon"), step);
        work(&mut history, &mirror, step);
        drop(killer);
        // One that was killed just now is still there.
        std::thread::sleep(Duration::from_millis(200));
        if mirror.daemon().is_some() {
            is_in_step(&mirror, &history, &told);
            println!("{options}: {kills} kills, the last at step {step}");
            return kills;
        }
        kills += 1;
        let output = mirror.try_mount();
        assert!(output.status.success(), "{told}: {}", text(&output));
        sound(&mirror, &told);
        is_in_step(&mirror, &history, &told);
        sound(&mirror, &told);
        step = after(step, seed);
    }
}

/// A refresh, and a reader of what changed.
fn refresh_and_read(history: &mut History, mirror: &Mirror, _: u64) {
    run(&["refresh", &mirror.directory.to_string_lossy()]);
    for path in history.now.keys() {
        if mirror.read(path.trim_start_matches('/')).is_err() {
            return;
        }
    }
    // The catalog is told of what was fetched a moment later.
    let _ = run(&["audit", &mirror.directory.to_string_lossy()]);
}

#[test]
fn of_changes_by_lists_and_content_that_is_fetched_when_it_is_read() {
    let large = Style { large: Some((9, 1_100_000, 1_300_000)), ..Style::default() };
    assert!(at_each_step("content=lazy", &["changelist"], large, refresh_and_read) > 1);
}

#[test]
fn of_changes_by_packages_with_all_content_ahead() {
    assert!(at_each_step("content=all", &["changelist", "changedump"], Style::default(), refresh_and_read) > 1);
}

#[test]
fn of_patches_and_of_content_that_is_evicted() {
    let style = Style { patches: true, ..Style::default() };
    assert!(at_each_step("cache_size=20K,keep=0s", &["changelist"], style, refresh_and_read) > 1);
}
