//! A Source that takes connections and says nothing: whatever a user asks of the mount has an answer in time, and whoever is
//! tired of waiting can be killed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::faulty::{Faulty, Network};
use crate::support::history::History;
use crate::support::{Mirror, text};

/// As the mount is told.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How much later than that an answer may be, on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

/// Runs a command to its end; returns how long that took, and whether it succeeded.
fn timed(command: &str) -> (Duration, bool, String) {
    let began = Instant::now();
    let output = Command::new("timeout").args(["--signal=KILL", "30", "bash", "-c", command]).output().unwrap();
    (began.elapsed(), output.status.success(), text(&output))
}

#[test]
fn every_question_has_an_answer_in_time_when_the_source_says_nothing() {
    crate::support::require(&["timeout", "getfattr"]);
    let folder = tempfile::tempdir().unwrap();
    let server = Faulty::serve(folder.path().to_owned(), 1);
    let mut history = History::at(folder.path().to_owned(), server.url(""), 1, 40);
    history.publish(&["changelist"]);
    let mirror = Mirror::mount(&server.url("/"), &format!("poll=0,timeout={}", TIMEOUT.as_secs()));
    let paths: Vec<String> = history.now.keys().cloned().collect();
    let here = mirror.path(paths[0].trim_start_matches('/'));
    let away = mirror.path(paths[39].trim_start_matches('/'));
    let (here, away, root) = (here.display(), away.display(), mirror.directory.display());
    assert!(timed(&format!("cat {here}")).1);
    server.network(Network::BlackHole);
    for (command, succeeds) in [
        (format!("ls -lR {root}"), true),
        (format!("stat {here} {away} {root}"), true),
        (format!("df {root}"), true),
        (format!("cat {here}"), true),
        (format!("getfattr -d -m - {here} {away}"), true),
        (format!("find {root}/.versions"), true),
        (format!("ls {root}/.versions/@2026-03-01T08:00:10Z/data"), true),
        (format!("cat {root}/.resourcesync/status.json"), true),
        (format!("cat {away}"), false),
        (format!("head -c 1 {away}"), false),
        (format!("test -e {root}/there-is-no-such-thing"), false),
        (format!("echo x > {here}"), false),
        (format!("ls -lR {root} >/dev/null & cat {away} & wait $!"), false),
    ] {
        let (took, success, said) = timed(&command);
        assert!(took < TIMEOUT + SLACK, "{command}: {took:?}");
        assert_eq!(success, succeeds, "{command}: {said}");
    }
    assert!(mirror.errors().contains("longer timeout="), "the reason is in the status: {}", mirror.errors());
    // Those who wait can be killed, and it is felt at once.
    let mut reader =
        Command::new("cat").arg(mirror.path(paths[38].trim_start_matches('/'))).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    reader.kill().unwrap();
    assert!(!reader.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_millis(1200), "{:?}", began.elapsed());
    // A refresh ends, and so does the mount, while somebody waits.
    let began = Instant::now();
    assert!(!mirror.refresh().status.success());
    assert!(began.elapsed() < TIMEOUT * 10, "{:?}", began.elapsed());
    let mut reader =
        Command::new("cat").arg(mirror.path(paths[37].trim_start_matches('/'))).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let (took, success, said) = timed(&format!("umount -l {root}"));
    assert!(success && took < TIMEOUT + SLACK, "{took:?}: {said}");
    reader.wait().unwrap();
    mirror.wait_for_end();
    // A Source that is back is asked again.
    server.network(Network::Up);
    assert!(mirror.try_mount().status.success());
    let path = paths[39].trim_start_matches('/');
    assert_eq!(mirror.read(path).unwrap(), history.now[&paths[39]]);
}
