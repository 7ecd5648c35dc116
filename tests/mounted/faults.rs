//! What a Source may do wrong with one resource, and what a reader then sees: a clear error within the
//! timeout, nothing wrong ever read, and everything else as if nothing had happened.

use crate::support::server::{Reply, Server};
use crate::support::{Mirror, bytes, entry_of, run, shell, text};
use std::io::Read as _;
use std::time::{Duration, Instant};

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
