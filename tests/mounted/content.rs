//! Content on demand: one request for many readers, mirrors, codings, unknown sizes, streams, limits.

use crate::support::server::{Reply, Server};
use crate::support::{Mirror, bytes, entry, entry_of, output, run, shell, text, xattr};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

const AT: &str = "2026-01-02T03:04:05Z";

#[test]
fn an_unknown_size_is_settled_before_a_reader_sees_it() {
    let server = Server::start();
    let body = bytes(1, 4321);
    server.file("/head", body.clone());
    let content = body.clone();
    // HEAD says nothing of the length, so that it must be fetched.
    server.on("/fetch", move |request| match request.method.as_str() {
        "HEAD" => Reply::status(405),
        _ => Reply::good(request, &content),
    });
    server.on("/none", |_| Reply::status(404));
    let mut entries: String = ["/head", "/fetch", "/none"].map(|path| entry(&server.url(path), "")).concat();
    for number in 0..40 {
        let path = format!("/many/{number:02}");
        server.file(&path, bytes(number, 100 + usize::try_from(number).unwrap()));
        entries.push_str(&entry(&server.url(&path), ""));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    for path in ["head", "fetch"] {
        assert_eq!(std::fs::metadata(mirror.path(path)).unwrap().len(), 4321, "{path}");
        assert_eq!(mirror.read(path).unwrap(), body, "{path}");
        assert_eq!(std::fs::metadata(mirror.path(path)).unwrap().len(), 4321, "{path}");
    }
    let error = std::fs::metadata(mirror.path("none")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "a size that cannot be had is no size: {error}");
    let mount = mirror.directory.display();
    assert_eq!(shell(&format!("ls {mount}/many | wc -l")).trim(), "40", "names need no sizes");
    let sizes = shell(&format!("ls -l {mount}/many | awk 'NR>1 {{print $5}}' | sort -n | head -3 | tr '\\n' ' '"));
    assert_eq!(sizes.trim(), "100 101 102");
    for tool in ["cat", "wc -c <", "dd status=none if=", "tail -c +1"] {
        let glue = if tool.ends_with('=') { "" } else { " " };
        let command = format!("{tool}{glue}{mount}/many/07");
        let found = shell(&if tool.starts_with("wc") { command } else { format!("{command} | wc -c") });
        assert_eq!(found.trim(), "107", "{tool}");
    }
}

#[test]
fn a_stream_is_readable_before_it_is_complete() {
    let server = Server::start();
    let body = bytes(1, 24 << 20);
    let content = body.clone();
    server.on("/large", move |request| {
        let whole = request.header("range").is_none();
        let drip = if whole { Duration::from_millis(4) } else { Duration::ZERO };
        Reply { drip, ..Reply::good(request, &content) }
    });
    server.source(AT, &entry_of(&server.url("/large"), &body));
    let mirror = Mirror::mount(&server.url("/"), "verify=stream,timeout=10");
    let began = Instant::now();
    let mut file = File::open(mirror.path("large")).unwrap();
    let mut start = vec![0; 4096];
    file.read_exact(&mut start).unwrap();
    assert!(start == body[..4096]);
    assert_eq!(xattr(&mirror.path("large"), "user.resourcesync.verified").as_deref(), Some("no"));
    let mut end = vec![0; 4096];
    file.seek(SeekFrom::Start((24 << 20) - 4096)).unwrap();
    file.read_exact(&mut end).unwrap();
    assert!(end == body[body.len() - 4096..]);
    let partial = began.elapsed();
    assert!(mirror.read("large").unwrap() == body);
    let complete = began.elapsed();
    assert!(partial * 2 < complete, "both ends after {partial:?}, the whole after {complete:?}");
    mirror
        .wait("the verdict", |_| xattr(&mirror.path("large"), "user.resourcesync.verified").as_deref() == Some("yes"));
    let ranges = server.requests().iter().filter(|request| request.header("range").is_some()).count();
    assert!(ranges >= 1, "the end was asked for by range");
}

#[test]
fn the_cache_keeps_to_its_size_and_to_its_pins() {
    let server = Server::start();
    let mut entries = String::new();
    for number in 0..40 {
        let path = format!("/{}/{number:02}", if number < 10 { "pinned" } else { "free" });
        server.file(&path, bytes(number, 100_000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(number, 100_000)));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "cache_size=2M");
    let said = output(&["fetch", "--pin", &mirror.path("pinned").to_string_lossy()]);
    assert!(said.contains("10 files") && said.contains("pinned"), "{said}");
    for number in 10..40 {
        assert_eq!(mirror.read(&format!("free/{number}")).unwrap(), bytes(number, 100_000));
    }
    let status = mirror.wait("room", |status| status["cached"]["bytes"].as_u64().unwrap() <= 2 << 20);
    assert!(status["cached"]["resources"].as_u64().unwrap() >= 15, "{status:#}");
    mirror.wait("files to go", |_| crate::support::files(&mirror.cache.join("objects")).len() <= 21);
    let open = shell(&format!("ls -l /proc/{}/fd | grep -c deleted || true", mirror.daemon().unwrap()));
    assert_eq!(open.trim(), "0", "what is evicted is not kept open");
    drop(server);
    for number in 0..10 {
        assert_eq!(mirror.read(&format!("pinned/{number:02}")).unwrap(), bytes(number, 100_000), "pinned");
    }
}

#[test]
fn fetch_says_what_it_could_not_have() {
    let server = Server::start();
    server.file("/good", bytes(1, 100));
    server.source(AT, &(entry_of(&server.url("/good"), &bytes(1, 100)) + &entry_of(&server.url("/bad"), b"x")));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    let output = run(&["fetch", &mirror.directory.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("1 file, ") && text(&output).contains("1 file could not be had"),
        "{}",
        text(&output)
    );
    let output = run(&["fetch", "/tmp"]);
    assert!(text(&output).contains("does not lie in a resourcesync mount"), "{}", text(&output));
}

#[test]
fn credentials_stay_with_their_host() {
    let (server, other) = (Server::start(), Server::start());
    let body = bytes(1, 100);
    let content = body.clone();
    let guarded = move |request: &crate::support::server::Request| match request.header("authorization") {
        Some("Bearer t0ps3cret") => Reply::good(request, &content),
        _ => Reply::status(401),
    };
    server.on("/a", guarded);
    let target = other.url("/b");
    server.on("/b", move |_| Reply::status(302).with("Location", &target));
    other.file("/b", body.clone());
    other.file("/c", body.clone());
    let entries = [
        entry(&server.url("/a"), "length=\"100\""),
        entry(&server.url("/b"), "length=\"100\""),
        entry(&other.url("/c"), "length=\"100\""),
    ];
    server.source(AT, &entries.concat());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    std::fs::write(&file, format!("# for tests\nhttp://{} bearer t0ps3cret\n", server.address())).unwrap();
    let options = format!("timeout=3,credentials={}", file.display());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = Mirror::prepare(&server.url("/"), &options);
    let output = open.try_mount();
    assert!(text(&output).contains("chmod 600"), "{}", text(&output));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mirror = Mirror::mount(&server.url("/"), &options);
    let foreign = format!("@{}/c", other.address());
    for path in ["a", "b", foreign.as_str()] {
        assert_eq!(mirror.read(path).unwrap(), body, "{path}");
    }
    let leaked = other.requests().iter().filter(|request| request.header("authorization").is_some()).count();
    assert_eq!(leaked, 0, "neither by a link nor through a redirect");
    let daemon = mirror.daemon().unwrap();
    let visible = std::fs::read(format!("/proc/{daemon}/cmdline")).unwrap();
    assert!(!String::from_utf8_lossy(&visible).contains("t0ps3cret"));
    assert!(!std::fs::read_to_string(mirror.cache.join("log")).unwrap_or_default().contains("t0ps3cret"));
}

#[test]
fn a_proxy_from_the_environment_is_used() {
    let (server, proxy) = (Server::start(), Server::start());
    // A proxy is asked with the whole URL.
    let list = crate::support::resource_list(AT, &entry("http://source.invalid/a", "length=\"3\""));
    proxy.file("http://source.invalid/list.xml", list);
    proxy.on("http://source.invalid/a", |_| Reply::ok("abc"));
    drop(server);
    let mirror = Mirror::prepare("http://source.invalid/list.xml", "");
    let output = std::process::Command::new(crate::support::PROGRAM)
        .args(["mount", "http://source.invalid/list.xml"])
        .arg(&mirror.directory)
        .args(["-o", &format!("timeout=3,cache={}", mirror.cache.display())])
        .env("http_proxy", proxy.url(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(mirror.read("a").unwrap(), b"abc");
}

/// How often the bytes of a path were asked for.
fn gets(server: &Server, path: &str) -> usize {
    server.requests().iter().filter(|request| request.method == "GET" && request.path == path).count()
}

#[test]
fn what_has_neither_a_hash_nor_a_time_is_asked_for_again_when_it_is_opened() {
    for io in ["kernel", "passthrough"] {
        let server = Server::start();
        let serve = |body: &'static [u8]| server.on("/page", move |request| Reply::good(request, body));
        serve(b"first");
        server.file("/listed", "listed");
        server.source(AT, &(entry(&server.url("/page"), "") + &entry_of(&server.url("/listed"), b"listed")));
        let mirror = Mirror::mount(&server.url("/"), &format!("poll=0,io={io},revalidate=1s"));
        assert_eq!(mirror.read("page").unwrap(), b"first");
        assert_eq!(mirror.read("page").unwrap(), b"first");
        assert_eq!(gets(&server, "/page"), 1, "{io}: not before it is due");
        let mut before = File::open(mirror.path("page")).unwrap();
        serve(b"second, and longer");
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(mirror.read("page").unwrap(), b"second, and longer", "{io}");
        let mut text = String::new();
        before.read_to_string(&mut text).unwrap();
        assert_eq!(text, "first", "{io}: an open file keeps its version");
        assert_eq!(mirror.names(".versions/page").len(), 2, "{io}");
        // Unchanged, it costs an answer without a body; what was just looked at is not looked at again.
        std::thread::sleep(Duration::from_millis(1100));
        let asked = gets(&server, "/page");
        (0..3).for_each(|_| assert_eq!(mirror.read("page").unwrap(), b"second, and longer"));
        assert_eq!(gets(&server, "/page"), asked + 1, "{io}");
        // One that does not answer leaves what is here.
        server.on("/page", |_| Reply::status(503));
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(mirror.read("page").unwrap(), b"second, and longer", "{io}");
        let status = mirror.status();
        assert!(status["warnings"].to_string().contains("whether it has changed is not known"), "{status:#}");
        assert_eq!(status["state"], "complete");
        (0..3).for_each(|_| assert_eq!(mirror.read("listed").unwrap(), b"listed"));
        assert_eq!(gets(&server, "/listed"), 1, "{io}: a hash tells");
    }
}

#[test]
fn the_size_of_a_page_is_asked_for_once_in_a_listing() {
    let server = Server::start();
    let entries: String = (0..60)
        .map(|number| {
            let path = format!("/section/{number:02}/");
            server.on(&path, move |request| Reply {
                delay: Duration::from_millis(20),
                ..Reply::good(request, format!("page {number}").as_bytes())
            });
            entry(&server.url(&path), "")
        })
        .collect();
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let listed = shell(&format!("ls -lR {}", mirror.directory.display()));
    assert_eq!(listed.matches("@index").count(), 60, "{listed}");
    let heads = server.requests().iter().filter(|one| one.method == "HEAD").count();
    let gets = server.requests().iter().filter(|one| one.method == "GET" && one.path.starts_with("/section")).count();
    assert_eq!((heads, gets), (60, 0));
}
