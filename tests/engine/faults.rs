//! What a Source may do wrong with one resource, and what a reader then sees: a clear error within the
//! timeout, nothing wrong ever read, and everything else as if nothing had happened.

use crate::support::opened::{Mirror, said};
use crate::support::server::{Reply, Server};
use crate::support::{bytes, entry, entry_of};
use std::time::{Duration, Instant};

const AT: &str = "2026-01-02T03:04:05Z";

/// `timeout=` in these tests, and what more a loaded machine may take.
const TIMEOUT: Duration = Duration::from_secs(6);

const SLACK: Duration = Duration::from_secs(8);

#[test]
fn a_source_that_is_gone_leaves_the_tree_and_what_is_cached() {
    let server = Server::start();
    let mut entries = String::new();
    for number in 0..5 {
        let path = format!("/d/{number}");
        server.file(&path, bytes(number, 1000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(number, 1000)));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    assert_eq!(mirror.read("d/0").unwrap(), bytes(0, 1000));
    let source = server.url("/");
    drop(server);
    let began = Instant::now();
    let error = mirror.read("d/1").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    assert!(began.elapsed() < TIMEOUT + SLACK, "{:?}", began.elapsed());
    assert!(mirror.errors().contains("cannot connect: Connection refused"), "{}", mirror.errors());
    assert_eq!(mirror.read("d/0").unwrap(), bytes(0, 1000));
    assert_eq!(mirror.files().len(), 5);
    mirror.unmount();
    let output = mirror.try_mount();
    assert!(output.is_ok(), "a mirror mounts without its Source: {}", said(&output));
    assert_eq!(mirror.read("d/0").unwrap(), bytes(0, 1000));
    assert_eq!(mirror.wait("away", |status| status["state"] == "away")["resources"], 5);
    let fresh = Mirror::prepare(&source, "timeout=2");
    let output = fresh.try_mount();
    assert!(output.is_err(), "{output:?}");
    assert!(said(&output).contains("cannot connect"), "{}", said(&output));
}

#[test]
fn a_passing_fault_is_not_seen() {
    let server = Server::start();
    let body = bytes(1, 3000);
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (content, count) = (body.clone(), tries.clone());
    let times = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let asked = times.clone();
    server.on("/a", move |request| {
        asked.lock().unwrap().push(Instant::now());
        match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Reply::status(503).with("Retry-After", "2"),
            _ => Reply::good(request, &content),
        }
    });
    let other = bytes(2, 3000);
    let content = other.clone();
    let broken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = broken.clone();
    server.on("/b", move |request| match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Reply { close_after: Some(10), ..Reply::ok(content.as_slice()) },
        _ => Reply::good(request, &content),
    });
    server.source(AT, &(entry_of(&server.url("/a"), &body) + &entry_of(&server.url("/b"), &other)));
    let mirror = Mirror::mount(&server.url("/"), "timeout=5");
    assert_eq!(mirror.read("a").unwrap(), body);
    assert_eq!(mirror.read("b").unwrap(), other);
    assert_eq!(
        (tries.load(std::sync::atomic::Ordering::SeqCst), broken.load(std::sync::atomic::Ordering::SeqCst)),
        (2, 2)
    );
    let times = times.lock().unwrap();
    assert!(times[1] - times[0] >= Duration::from_millis(1900), "retried before the time in Retry-After: {times:?}");
}

#[test]
fn a_body_that_crawls_is_given_up_and_what_came_is_kept() {
    let server = Server::start();
    let body = bytes(1, 3 << 20);
    let content = body.clone();
    server.on("/slow", move |request| match request.header("range") {
        None => Reply { stall_after: Some(2 << 20), ..Reply::good(request, &content) },
        Some(_) => Reply::good(request, &content),
    });
    server.source(AT, &entry_of(&server.url("/slow"), &body));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    let began = Instant::now();
    assert_eq!(mirror.read("slow").unwrap_err().raw_os_error(), Some(5));
    assert!(began.elapsed() < 2 * TIMEOUT, "{:?}", began.elapsed());
    std::thread::sleep(Duration::from_secs(4));
    assert!(mirror.read("slow").unwrap() == body, "the second try goes on");
    let ranges: Vec<String> =
        server.requests().iter().filter_map(|request| request.header("range").map(str::to_owned)).collect();
    assert!(ranges.iter().any(|range| range.starts_with("bytes=2097152-")), "{ranges:?}");
}

#[test]
fn a_list_that_is_cut_short_adds_and_does_not_delete() {
    let server = Server::start();
    let entries = |numbers: std::ops::Range<u64>, server: &Server| -> String {
        numbers.map(|number| entry_of(&server.url(&format!("/{number}")), &bytes(number, 100))).collect()
    };
    server.source(AT, &entries(0..10, &server));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files().len(), 10);
    let whole = crate::support::resource_list("2026-02-02T03:04:05Z", &entries(8..14, &server));
    let cut = whole[..whole.find("/13<").unwrap()].to_owned();
    server.file("/resourcelist.xml", cut);
    let _ = mirror.refresh();
    assert_eq!(mirror.files().len(), 13, "10, 11 and 12 came; nothing went");
    let status = mirror.status();
    assert_eq!(status["state"], "partial");
    assert!(mirror.errors().contains("cut short after 5 entries"), "{}", mirror.errors());
    server.file("/resourcelist.xml", whole);
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "held", "more than half would go");
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "held", "the same list says nothing new");
    assert_eq!(mirror.files().len(), 14);
    let again = crate::support::resource_list("2026-02-03T03:04:05Z", &entries(8..14, &server));
    server.file("/resourcelist.xml", again);
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["10", "11", "12", "13", "8", "9"], "another edition agrees");
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn an_index_with_a_missing_part_deletes_nothing() {
    let server = Server::start();
    let part = |range: std::ops::Range<u64>, server: &Server| {
        let entries: String =
            range.map(|number| entry_of(&server.url(&format!("/{number}")), &bytes(number, 100))).collect();
        crate::support::resource_list(AT, &entries)
    };
    server.source(AT, "");
    let urls = [server.url("/part1.xml"), server.url("/part2.xml")];
    server.file("/resourcelist.xml", crate::support::index("resourcelist", &format!("at=\"{AT}\""), &urls));
    server.file("/part1.xml", part(0..5, &server));
    server.file("/part2.xml", part(5..10, &server));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    assert_eq!(mirror.files().len(), 10);
    server.remove("/part2.xml");
    server.file("/part1.xml", part(1..6, &server));
    let _ = mirror.refresh();
    assert_eq!(mirror.files().len(), 10, "0 stays while part2 is away");
    assert_eq!(mirror.status()["state"], "partial");
    server.file("/part2.xml", part(6..10, &server));
    let _ = mirror.refresh();
    assert_eq!(mirror.files().len(), 9);
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn an_entry_that_is_wrong_does_not_stop_the_others() {
    let server = Server::start();
    server.file("/good", bytes(1, 10));
    let entries = [
        entry("", "length=\"1\""),
        entry("no uri at all \u{7f}", ""),
        entry(&server.url("/../../../etc/passwd"), "length=\"1\""),
        entry(&server.url("/bad-date"), "datetime=\"yesterday\" length=\"minus one\" hash=\"md5:zz\""),
        entry(&format!("{}{}", server.url("/"), "x".repeat(10_000)), ""),
        entry_of(&server.url("/good"), &bytes(1, 10)),
    ]
    .concat();
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.read("good").unwrap(), bytes(1, 10));
    let files = mirror.files();
    assert!(files.contains(&"bad-date".to_owned()), "{files:?}");
    assert!(files.iter().all(|file| !file.contains("/../")), "{files:?}");
    let warnings = mirror.status()["warnings"].to_string();
    for part in ["without loc", "yesterday", "not a number of bytes", "limit_uri=8K"] {
        assert!(warnings.contains(part), "{part:?} is not in {warnings}");
    }
}

#[test]
fn retry_after_delays_all_background_requests_to_the_host() {
    let server = Server::start();
    server.source(AT, &entry_of(&server.url("/busy"), b"busy"));
    let mirror = Mirror::mount(&server.url("/"), "poll=0,timeout=1");
    let busy_since = std::sync::Arc::new(std::sync::OnceLock::new());
    let first = busy_since.clone();
    server.on("/busy", move |_| {
        first.get_or_init(Instant::now);
        Reply::status(503).with("Retry-After", "6")
    });
    assert!(mirror.read("busy").is_err());
    // A reader tries nevertheless; a sync waits.
    let before = server.requests().len();
    let _ = mirror.refresh();
    let waited = busy_since.get().unwrap().elapsed();
    let asked = server.requests().len() - before;
    assert!(asked == 0 || waited >= Duration::from_secs(6), "{asked} requests after {waited:?}");
}
