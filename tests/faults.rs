//! What a Source may do wrong with one resource, and what a reader then sees: a clear error within the
//! timeout, nothing wrong ever read, and everything else as if nothing had happened.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::io::Read as _;
use std::time::{Duration, Instant};

use support::server::{Reply, Server};
use support::{Mirror, bytes, entry, entry_of, run, shell, text};

const AT: &str = "2026-01-02T03:04:05Z";
/// `timeout=` in these tests, and what more a loaded machine may take.
const TIMEOUT: Duration = Duration::from_secs(6);
const SLACK: Duration = Duration::from_secs(8);

/// One fault: where, what the server does, and a part of the error that the status shows.
struct Fault {
    path: &'static str,
    error: &'static str,
    reply: fn(&[u8]) -> Reply,
}

const FAULTS: [Fault; 12] = [
    Fault {
        path: "/wrong-hash",
        error: "wrong content: its sha-256 is",
        reply: |body| {
            let mut other = body.to_vec();
            other[100] ^= 1;
            Reply::ok(other)
        },
    },
    Fault {
        path: "/too-short",
        error: "wrong length: 2999 bytes where the Source lists 3000",
        reply: |body| Reply::ok(&body[..2999]),
    },
    Fault { path: "/too-long", error: "wrong length", reply: |body| Reply::ok([body, b"!"].concat()) },
    Fault { path: "/missing", error: "404 Not Found; there is no such thing there", reply: |_| Reply::status(404) },
    Fault { path: "/gone", error: "410 Gone", reply: |_| Reply::status(410) },
    Fault { path: "/forbidden", error: "403 Forbidden; a credentials=FILE", reply: |_| Reply::status(403) },
    Fault {
        path: "/stalled-body",
        error: "no more of the answer for",
        reply: |body| Reply { stall_after: Some(1000), ..Reply::ok(body) },
    },
    Fault {
        path: "/silent",
        error: "no answer for",
        reply: |body| Reply { delay: Duration::from_secs(60), ..Reply::ok(body) },
    },
    Fault {
        path: "/loop",
        error: "redirects go in a circle",
        reply: |_| Reply::status(302).with("Location", "/loop2"),
    },
    Fault {
        path: "/truncated",
        error: "the answer is cut short: 1500 of 3000 bytes",
        reply: |body| Reply { close_after: Some(1500), ..Reply::ok(body) },
    },
    Fault {
        path: "/nowhere",
        error: "ftp is neither http nor https",
        reply: |_| Reply::status(302).with("Location", "ftp://127.0.0.1/x"),
    },
    // Last, because from then on the whole host is left alone for a while.
    Fault {
        path: "/busy",
        error: "503 Service Unavailable and asks to wait 60 s",
        reply: |_| Reply::status(503).with("Retry-After", "60"),
    },
];

#[test]
fn each_fault_has_its_own_error_and_the_rest_goes_on() {
    let server = Server::start();
    let body = bytes(1, 3000);
    let mut entries = String::new();
    for fault in &FAULTS {
        let (body, reply) = (body.clone(), fault.reply);
        server.on(fault.path, move |_| reply(&body));
        entries.push_str(&entry_of(&server.url(fault.path), &bytes(1, 3000)));
    }
    server.on("/loop2", |_| Reply::status(302).with("Location", "/loop"));
    for number in 0..20 {
        let path = format!("/good/{number}");
        server.file(&path, bytes(100 + number, 2000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(100 + number, 2000)));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), &format!("timeout={}", TIMEOUT.as_secs()));
    for (number, fault) in FAULTS.iter().enumerate() {
        let began = Instant::now();
        let path = mirror.path(&fault.path[1..]);
        let reader = std::thread::spawn(move || {
            let mut content = Vec::new();
            let result = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut content));
            (result, content)
        });
        if fault.path != "/busy" {
            let good = 100 + u64::try_from(number).unwrap();
            assert_eq!(mirror.read(&format!("good/{number}")).unwrap(), bytes(good, 2000), "beside {}", fault.path);
        }
        shell(&format!(
            "ls {0} >/dev/null; stat {0}{1} >/dev/null; df {0} >/dev/null",
            mirror.directory.display(),
            fault.path
        ));
        let beside = began.elapsed();
        let (result, content) = reader.join().unwrap();
        assert!(beside < TIMEOUT / 2, "{}: others waited {beside:?}", fault.path);
        let error = result.expect_err(fault.path);
        assert_eq!(error.raw_os_error(), Some(5), "{}: {error}", fault.path);
        assert!(content.is_empty(), "{}: {} bytes were read", fault.path, content.len());
        assert!(began.elapsed() < TIMEOUT + SLACK, "{} took {:?}", fault.path, began.elapsed());
        // Whoever reads may have waited to the end before whoever asks the Source did.
        let told = Instant::now();
        while !mirror.errors().contains(fault.error) {
            let late = told.elapsed() > SLACK;
            assert!(!late, "{}: {:?} is not in {}", fault.path, fault.error, mirror.errors());
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{:<14} {:>5} ms  {}", fault.path, began.elapsed().as_millis(), fault.error);
    }
}

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
    assert!(output.status.success(), "a mirror mounts without its Source: {}", text(&output));
    assert_eq!(mirror.read("d/0").unwrap(), bytes(0, 1000));
    assert_eq!(mirror.wait("away", |status| status["state"] == "away")["resources"], 5);
    let fresh = Mirror::prepare(&source, "timeout=2");
    let output = fresh.try_mount();
    assert_eq!(output.status.code(), Some(32), "{}", text(&output));
    assert!(text(&output).contains("cannot connect"), "{}", text(&output));
}

#[test]
fn a_passing_fault_is_not_seen() {
    let server = Server::start();
    let body = bytes(1, 3000);
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (content, count) = (body.clone(), tries.clone());
    server.on("/a", move |request| match count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Reply::status(503).with("Retry-After", "1"),
        _ => Reply::good(request, &content),
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
fn a_mount_of_what_is_no_source_says_what_was_tried() {
    let server = Server::start();
    server.on("/", |_| Reply::ok("<!DOCTYPE html><html><head></head></html>").with("Content-Type", "text/html"));
    server.on("/broken.xml", |_| Reply::ok("<urlset><url></urlset>"));
    for (source, parts) in [
        ("/", vec!["/.well-known/resourcesync", "404", "HTML page without a link", "robots.txt"]),
        ("/broken.xml", vec!["/broken.xml", "line 1, column 14"]),
        ("/none.xml", vec!["/none.xml", "404"]),
    ] {
        let mirror = Mirror::prepare(&server.url(source), "timeout=2");
        let output = mirror.try_mount();
        assert_eq!(output.status.code(), Some(32), "{}", text(&output));
        for part in parts {
            assert!(text(&output).contains(part), "{part:?} is not in {}", text(&output));
        }
        assert!(mirror.daemon().is_none());
    }
    let output = run(&["mount", "not-a-url", "/tmp"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
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
    let whole = support::resource_list("2026-02-02T03:04:05Z", &entries(8..14, &server));
    let cut = whole[..whole.find("/13<").unwrap()].to_owned();
    server.file("/resourcelist.xml", cut);
    mirror.refresh();
    assert_eq!(mirror.files().len(), 13, "10, 11 and 12 came; nothing went");
    let status = mirror.status();
    assert_eq!(status["state"], "partial");
    assert!(mirror.errors().contains("cut short after 5 entries"), "{}", mirror.errors());
    server.file("/resourcelist.xml", whole);
    mirror.refresh();
    assert_eq!(mirror.status()["state"], "held", "more than half would go");
    mirror.refresh();
    assert_eq!(mirror.status()["state"], "held", "the same list says nothing new");
    assert_eq!(mirror.files().len(), 14);
    let again = support::resource_list("2026-02-03T03:04:05Z", &entries(8..14, &server));
    server.file("/resourcelist.xml", again);
    mirror.refresh();
    assert_eq!(mirror.files(), ["10", "11", "12", "13", "8", "9"], "another edition agrees");
    assert_eq!(mirror.status()["state"], "complete");
}

#[test]
fn an_index_with_a_missing_part_deletes_nothing() {
    let server = Server::start();
    let part = |range: std::ops::Range<u64>, server: &Server| {
        let entries: String =
            range.map(|number| entry_of(&server.url(&format!("/{number}")), &bytes(number, 100))).collect();
        support::resource_list(AT, &entries)
    };
    server.source(AT, "");
    let urls = [server.url("/part1.xml"), server.url("/part2.xml")];
    server.file("/resourcelist.xml", support::index("resourcelist", &format!("at=\"{AT}\""), &urls));
    server.file("/part1.xml", part(0..5, &server));
    server.file("/part2.xml", part(5..10, &server));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    assert_eq!(mirror.files().len(), 10);
    server.remove("/part2.xml");
    server.file("/part1.xml", part(1..6, &server));
    mirror.refresh();
    assert_eq!(mirror.files().len(), 10, "0 stays while part2 is away");
    assert_eq!(mirror.status()["state"], "partial");
    server.file("/part2.xml", part(6..10, &server));
    mirror.refresh();
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
