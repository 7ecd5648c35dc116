//! Content on demand: one request for many readers, mirrors, codings, unknown sizes, streams, limits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

mod support;

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use support::server::{Reply, Server};
use support::{Mirror, bytes, entry, entry_of, output, run, sha256, shell, text, xattr};

const AT: &str = "2026-01-02T03:04:05Z";

#[test]
fn readers_of_one_file_make_one_request() {
    let server = Server::start();
    let body = bytes(1, 3 << 20);
    let content = body.clone();
    server.on("/a", move |request| Reply { delay: Duration::from_millis(300), ..Reply::good(request, &content) });
    server.source(AT, &entry_of(&server.url("/a"), &body));
    let mirror = Mirror::mount(&server.url("/"), "");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert!(mirror.read("a").unwrap() == body));
        }
    });
    assert_eq!(server.count("/a"), 1);
    assert!(mirror.read("a").unwrap() == body);
    assert_eq!(server.count("/a"), 1, "read again from the cache");
}

#[test]
fn mirrors_are_asked_in_the_order_that_the_source_wishes() {
    let server = Server::start();
    let body = bytes(1, 500);
    for path in ["/loc", "/m1", "/m2", "/n1"] {
        server.file(path, body.clone());
    }
    server.on("/bad", |_| Reply::ok("something else"));
    let link = |path: &str, pri: u32, server: &Server| {
        format!("<rs:ln rel=\"duplicate\" pri=\"{pri}\" href=\"{}\"/>", server.url(path))
    };
    let links = [
        link("/m2", 2, &server),
        "<rs:ln rel=\"duplicate\" pri=\"1\" href=\"gsiftp://127.0.0.1/x\"/>".to_owned(),
        link("/bad", 1, &server),
    ]
    .concat();
    let hashed = entry_of(&server.url("/loc"), &body).replace("</url>", &format!("{links}</url>"));
    let plain = entry(&server.url("/loc2"), "").replace("</url>", &format!("{}</url>", link("/n1", 1, &server)));
    server.source(AT, &(hashed + &plain));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.read("loc").unwrap(), body);
    assert_eq!([server.count("/bad"), server.count("/m2"), server.count("/loc")], [1, 1, 0], "by pri, before loc");
    assert_eq!(mirror.read("loc2").unwrap(), body);
    let order: Vec<String> = server
        .requests()
        .iter()
        .filter(|request| request.method == "GET" && ["/loc2", "/n1"].contains(&request.path.as_str()))
        .map(|request| request.path.clone())
        .collect();
    assert_eq!(order.first().map(String::as_str), Some("/loc2"), "without a hash, loc first: {order:?}");
    assert!(order.contains(&"/n1".to_owned()), "loc2 is 404, so its mirror is asked: {order:?}");
}

#[test]
fn codings_are_undone_and_hashes_are_of_what_was_coded() {
    let server = Server::start();
    let plain = b"the text that a reader wants\n".repeat(50);
    let coded = support::gzip(&plain);
    let of = |bytes: &[u8], more: &str| format!("hash=\"sha-256:{}\" length=\"{}\" {more}", sha256(bytes), bytes.len());
    // Declared, labelled, and listed as coded: what the specification says.
    let body = coded.clone();
    server.on("/declared", move |_| Reply::ok(body.as_slice()).with("Content-Encoding", "gzip"));
    // Declared, but the server sends the file without a label.
    let body = coded.clone();
    server.on("/unlabelled", move |_| Reply::ok(body.as_slice()));
    // Not declared: an archive that the server labels as coded. Its hash is that of the archive.
    let body = coded.clone();
    server.on("/x.tar.gz", move |_| Reply::ok(body.as_slice()).with("Content-Encoding", "gzip"));
    // Not declared, and the server codes on its own: the hash is of the plain text.
    let body = coded.clone();
    server.on("/eager", move |_| Reply::ok(body.as_slice()).with("Content-Encoding", "gzip"));
    // Declared as coded, but broken.
    let body = coded[..coded.len() - 9].to_vec();
    server.on("/broken", move |_| Reply::ok(body.as_slice()).with("Content-Encoding", "gzip"));
    let entries = [
        entry(&server.url("/declared"), &of(&coded, "encoding=\"gzip\"")),
        entry(&server.url("/unlabelled"), &of(&coded, "encoding=\"gzip\"")),
        entry(&server.url("/x.tar.gz"), &of(&coded, "")),
        entry(&server.url("/eager"), &of(&plain, "")),
        entry(&server.url("/broken"), &of(&coded[..coded.len() - 9], "encoding=\"gzip\"")),
    ]
    .concat();
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    for (path, expected) in [("declared", &plain), ("unlabelled", &plain), ("x.tar.gz", &coded), ("eager", &plain)] {
        assert_eq!(std::fs::metadata(mirror.path(path)).unwrap().len(), expected.len() as u64, "{path}");
        assert_eq!(&mirror.read(path).unwrap(), expected, "{path}");
        assert_eq!(xattr(&mirror.path(path), "user.resourcesync.verified").as_deref(), Some("yes"), "{path}");
    }
    assert_eq!(xattr(&mirror.path("declared"), "user.resourcesync.encoding").as_deref(), Some("gzip"));
    assert!(mirror.read("broken").is_err());
    assert!(mirror.errors().contains("cannot be undone"), "{}", mirror.errors());
    let asked: Vec<_> = server
        .requests()
        .iter()
        .filter(|request| request.path == "/x.tar.gz")
        .map(|request| request.header("accept-encoding").unwrap_or_default().to_owned())
        .collect();
    assert!(asked.iter().all(|coding| coding == "identity"), "{asked:?}");
}

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
fn a_size_that_turns_out_wrong_becomes_a_new_version() {
    let server = Server::start();
    server.on("/a", |request| match request.method.as_str() {
        "HEAD" => Reply::ok(vec![0; 10]),
        _ => Reply::ok(vec![1; 20]),
    });
    server.source(AT, &entry(&server.url("/a"), ""));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    let before = std::fs::metadata(mirror.path("a")).unwrap();
    assert_eq!(before.len(), 10);
    assert_eq!(mirror.read("a").unwrap_err().raw_os_error(), Some(5), "not what stat said");
    let began = Instant::now();
    loop {
        let after = std::fs::metadata(mirror.path("a")).unwrap();
        if std::os::unix::fs::MetadataExt::ino(&after) != std::os::unix::fs::MetadataExt::ino(&before) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "the name keeps the old version");
        std::thread::sleep(Duration::from_millis(20));
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
fn a_stream_that_does_not_verify_ends_in_an_error() {
    let server = Server::start();
    let body = bytes(1, 9 << 20);
    let mut other = body.clone();
    other[8 << 20] ^= 1;
    server.file("/large", other);
    server.source(AT, &entry_of(&server.url("/large"), &body));
    let strict = Mirror::mount(&server.url("/"), "timeout=10");
    let mut start = vec![0; 10];
    let error = File::open(strict.path("large")).unwrap().read_exact(&mut start).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "verify=strict serves no byte of it");
    let warn = Mirror::mount(&server.url("/"), "verify=warn,timeout=10");
    assert_eq!(warn.read("large").unwrap().len(), 9 << 20);
    assert_eq!(xattr(&warn.path("large"), "user.resourcesync.verified").as_deref(), Some("no"));
    assert!(warn.status()["warnings"].to_string().contains("wrong content"), "verify=warn says so");
}

#[test]
fn a_large_fetch_goes_on_after_a_kill() {
    let server = Server::start();
    let body = bytes(1, 40 << 20);
    let content = body.clone();
    server.on("/large", move |request| match request.header("range") {
        None => Reply { drip: Duration::from_millis(2), ..Reply::good(request, &content) },
        Some(_) => Reply::good(request, &content),
    });
    server.source(AT, &entry_of(&server.url("/large"), &body));
    let mirror = Mirror::mount(&server.url("/"), "content=all,timeout=10");
    mirror.wait("some bytes", |_| {
        std::fs::read_dir(mirror.cache.join("partial")).unwrap().flatten().any(|file| file.path().extension().is_some())
    });
    mirror.kill();
    let output = mirror.try_mount();
    assert!(output.status.success(), "a dead mount of ours is replaced: {}", text(&output));
    assert!(mirror.read("large").unwrap() == body);
    let ranges: Vec<String> =
        server.requests().iter().filter_map(|request| request.header("range").map(str::to_owned)).collect();
    assert!(ranges.iter().any(|range| range != "bytes=0-"), "what came before is not fetched again: {ranges:?}");
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
    mirror.wait("files to go", |_| support::files(&mirror.cache.join("objects")).len() <= 21);
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
fn equal_content_is_stored_and_fetched_once() {
    let server = Server::start();
    let body = bytes(1, 5000);
    server.file("/a", body.clone());
    server.file("/b", body.clone());
    server.source(AT, &(entry_of(&server.url("/a"), &body) + &entry_of(&server.url("/b"), &body)));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.read("a").unwrap(), body);
    assert_eq!(mirror.read("b").unwrap(), body);
    assert_eq!(server.count("/a") + server.count("/b"), 1);
    assert_eq!(shell(&format!("find {}/objects -type f | wc -l", mirror.cache.display())).trim(), "1");
}

#[test]
fn credentials_stay_with_their_host() {
    let (server, other) = (Server::start(), Server::start());
    let body = bytes(1, 100);
    let content = body.clone();
    let guarded = move |request: &support::server::Request| match request.header("authorization") {
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
    let list = support::resource_list(AT, &entry("http://source.invalid/a", "length=\"3\""));
    proxy.file("http://source.invalid/list.xml", list);
    proxy.on("http://source.invalid/a", |_| Reply::ok("abc"));
    drop(server);
    let mirror = Mirror::prepare("http://source.invalid/list.xml", "");
    let output = std::process::Command::new(support::PROGRAM)
        .args(["mount", "http://source.invalid/list.xml"])
        .arg(&mirror.directory)
        .args(["-o", &format!("timeout=3,cache={}", mirror.cache.display())])
        .env("http_proxy", proxy.url(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(mirror.read("a").unwrap(), b"abc");
}

#[test]
fn a_server_without_ranges_is_read_from_the_start_again() {
    let server = Server::start();
    let body = bytes(1, 5 << 20);
    let content = body.clone();
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = tries.clone();
    server.on("/large", move |_| {
        let first = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let close_after = first.then_some(3 << 20);
        Reply { close_after, ..Reply::ok(content.as_slice()) }.with("ETag", "\"one\"")
    });
    server.source(AT, &entry_of(&server.url("/large"), &body));
    let mirror = Mirror::mount(&server.url("/"), "timeout=5");
    assert!(mirror.read("large").unwrap() == body);
    assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn a_resource_that_changes_between_two_parts_is_never_mixed() {
    let server = Server::start();
    let (old, new) = (bytes(1, 5 << 20), bytes(2, 5 << 20));
    let (first, second) = (old.clone(), new.clone());
    server.on("/large", move |request| match request.header("range") {
        None => Reply { close_after: Some(3 << 20), ..Reply::good(request, &first) },
        // The validator does not agree any more: the whole of the new one comes.
        Some(_) => Reply::good(request, &second),
    });
    server.source(AT, &entry(&server.url("/large"), &format!("length=\"{}\"", 5 << 20)));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    match mirror.read("large") {
        Ok(found) => assert!(found == old || found == new, "a mixture was read"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(5)),
    }
    assert!(mirror.errors().contains("changed while it was fetched"), "{}", mirror.errors());
}

#[test]
fn a_reader_has_a_connection_while_what_is_small_hangs() {
    let server = Server::start();
    let mut entries = String::new();
    for number in 0..8 {
        let path = format!("/a{number}");
        server.on(&path, |_| Reply { delay: Duration::from_secs(60), ..Reply::ok("hangs") });
        entries += &entry(&server.url(&path), "length=\"5\"");
    }
    server.file("/z", b"quick".to_vec());
    entries += &entry_of(&server.url("/z"), b"quick");
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "content=all,connections=2,timeout=20");
    while !server.requests().iter().any(|request| request.path.starts_with("/a")) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    let read = mirror.read("z");
    assert!(read.is_ok_and(|read| read == b"quick"), "failed after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
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
fn a_refresh_has_what_only_its_server_tells_of_looked_at_again() {
    let server = Server::start();
    let serve = |body: &'static [u8]| server.on("/page", move |request| Reply::good(request, body));
    serve(b"first");
    server.source(AT, &entry(&server.url("/page"), ""));
    let mirror = Mirror::mount(&server.url("/"), "poll=0,revalidate=1h");
    assert_eq!(mirror.read("page").unwrap(), b"first");
    serve(b"second");
    assert_eq!(mirror.read("page").unwrap(), b"first", "it is not due yet");
    mirror.unmount();
    assert!(mirror.try_mount().status.success());
    assert_eq!(mirror.read("page").unwrap(), b"first", "nor after a remount");
    mirror.refreshed();
    assert_eq!(mirror.read("page").unwrap(), b"second");
    // An audit of content asks, too.
    serve(b"changed once more");
    let audit = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert_eq!(audit.status.code(), Some(1), "{}", text(&audit));
    assert!(text(&audit).contains("another at its server"), "{}", text(&audit));
    assert_eq!(mirror.read("page").unwrap(), b"changed once more");
    let audit = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert_eq!(audit.status.code(), Some(0), "{}", text(&audit));
    // What cannot be asked for is no proof.
    server.on("/page", |_| Reply::status(404));
    let audit = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert_eq!(audit.status.code(), Some(1), "{}", text(&audit));
    assert!(text(&audit).contains("whether it has changed is not known"), "{}", text(&audit));
    // However many open it at once, it is asked for once, and none of them gets anything but a version of it.
    let body = |number: u8| vec![number; 3 << 20];
    let (first, second) = (body(1), body(2));
    let large = first.clone();
    server.on("/page", move |_| Reply { delay: Duration::from_millis(200), ..Reply::ok(large.clone()) });
    mirror.refreshed();
    assert!(mirror.read("page").unwrap() == first);
    let large = second.clone();
    server.on("/page", move |_| Reply { delay: Duration::from_millis(200), ..Reply::ok(large.clone()) });
    mirror.refreshed();
    let asked = gets(&server, "/page");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let read = mirror.read("page").unwrap();
                assert!(read == first || read == second);
            });
        }
    });
    assert_eq!(gets(&server, "/page"), asked + 1);
    assert!(mirror.read("page").unwrap() == second);
    // `304` says nothing where no validator was sent.
    server.on("/page", |_| Reply::status(304));
    let audit = run(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert_eq!(audit.status.code(), Some(1), "{}", text(&audit));
    assert!(text(&audit).contains("answers 304 Not Modified; whether it has changed"), "{}", text(&audit));
    // Whoever wants the first copy for ever says so.
    mirror.unmount();
    let mut mirror = mirror;
    mirror.set_options("poll=0,revalidate=0");
    assert!(mirror.try_mount().status.success());
    serve(b"third");
    mirror.refreshed();
    assert!(mirror.read("page").unwrap() == second);
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

#[test]
fn the_media_type_is_the_servers_where_none_is_listed() {
    let server = Server::start();
    let serve = |path: &str, media: &'static str| {
        server.on(path, move |request| Reply::good(request, b"x").with("Content-Type", media));
    };
    serve("/unlisted", "Text/HTML; charset=utf-8");
    serve("/listed", "text/html");
    serve("/nonsense", "no type at all");
    let entries = entry(&server.url("/unlisted"), "")
        + &entry(&server.url("/listed"), "type=\"application/xhtml+xml\"")
        + &entry(&server.url("/nonsense"), &support::facts_of(b"x"));
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let media = |name: &str| xattr(&mirror.path(name), "user.mime_type");
    assert_eq!(media("unlisted"), None, "it is not known yet");
    ["unlisted", "listed", "nonsense"].iter().for_each(|name| drop(mirror.read(name).unwrap()));
    mirror.wait("the type", |_| media("unlisted").as_deref() == Some("text/html"));
    assert_eq!([media("listed").as_deref(), media("nonsense").as_deref()], [Some("application/xhtml+xml"), None]);
    mirror.remount();
    assert_eq!(media("unlisted").as_deref(), Some("text/html"));
}
