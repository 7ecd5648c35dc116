//! Content on demand: one request for many readers, mirrors, codings, unknown sizes, streams, limits.

use crate::support::opened::{Mirror, said};
use crate::support::server::{Reply, Server};
use crate::support::{bytes, entry, entry_of, sha256, shell};
use resourcesync::sync::AuditScope;
use std::time::{Duration, Instant};

const AT: &str = "2026-01-02T03:04:05Z";

/// Content is verified, and nothing repaired.
const CONTENT: AuditScope = AuditScope { content: true, repair: false };

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
    let coded = crate::support::gzip(&plain);
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
        assert_eq!(mirror.stat(path).unwrap().size, expected.len() as u64, "{path}");
        assert_eq!(&mirror.read(path).unwrap(), expected, "{path}");
        assert_eq!(mirror.xattr(path, "user.resourcesync.verified").as_deref(), Some("yes"), "{path}");
    }
    assert_eq!(mirror.xattr("declared", "user.resourcesync.encoding").as_deref(), Some("gzip"));
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
fn a_size_that_turns_out_wrong_becomes_a_new_version() {
    let server = Server::start();
    server.on("/a", |request| match request.method.as_str() {
        "HEAD" => Reply::ok(vec![0; 10]),
        _ => Reply::ok(vec![1; 20]),
    });
    server.source(AT, &entry(&server.url("/a"), ""));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    let before = mirror.stat("a").unwrap();
    assert_eq!(before.size, 10);
    assert_eq!(mirror.read("a").unwrap_err().raw_os_error(), Some(5), "not what stat said");
    let began = Instant::now();
    loop {
        let after = mirror.stat("a").unwrap();
        if after.ino != before.ino {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "the name keeps the old version");
        std::thread::sleep(Duration::from_millis(20));
    }
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
    let error = strict.open("large").unwrap().read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "verify=strict serves no byte of it");
    let warn = Mirror::mount(&server.url("/"), "verify=warn,timeout=10");
    assert_eq!(warn.read("large").unwrap().len(), 9 << 20);
    assert_eq!(warn.xattr("large", "user.resourcesync.verified").as_deref(), Some("no"));
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
    assert!(output.is_ok(), "a dead mount of ours is replaced: {}", said(&output));
    assert!(mirror.read("large").unwrap() == body);
    let ranges: Vec<String> =
        server.requests().iter().filter_map(|request| request.header("range").map(str::to_owned)).collect();
    assert!(ranges.iter().any(|range| range != "bytes=0-"), "what came before is not fetched again: {ranges:?}");
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
    mirror.try_mount().unwrap();
    assert_eq!(mirror.read("page").unwrap(), b"first", "nor after a remount");
    mirror.refreshed();
    assert_eq!(mirror.read("page").unwrap(), b"second");
    // An audit of content asks, too.
    serve(b"changed once more");
    let audit = mirror.audit(CONTENT).unwrap();
    assert!(!audit.in_sync() && format!("{audit:?}").contains("another at its server"), "{audit:#?}");
    assert_eq!(mirror.read("page").unwrap(), b"changed once more");
    let audit = mirror.audit(CONTENT).unwrap();
    assert!(audit.in_sync(), "{audit:#?}");
    // What cannot be asked for is no proof.
    server.on("/page", |_| Reply::status(404));
    let audit = mirror.audit(CONTENT).unwrap();
    assert!(!audit.in_sync() && format!("{audit:?}").contains("whether it has changed is not known"), "{audit:#?}");
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
    let audit = mirror.audit(CONTENT).unwrap();
    assert!(
        !audit.in_sync() && format!("{audit:?}").contains("answers 304 Not Modified; whether it has changed"),
        "{audit:#?}"
    );
    // Whoever wants the first copy for ever says so.
    mirror.unmount();
    let mirror = mirror;
    mirror.set_options("poll=0,revalidate=0");
    mirror.try_mount().unwrap();
    serve(b"third");
    mirror.refreshed();
    assert!(mirror.read("page").unwrap() == second);
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
        + &entry(&server.url("/nonsense"), &crate::support::facts_of(b"x"));
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let media = |name: &str| mirror.xattr(name, "user.mime_type");
    assert_eq!(media("unlisted"), None, "it is not known yet");
    ["unlisted", "listed", "nonsense"].iter().for_each(|name| drop(mirror.read(name).unwrap()));
    mirror.wait("the type", |_| media("unlisted").as_deref() == Some("text/html"));
    assert_eq!([media("listed").as_deref(), media("nonsense").as_deref()], [Some("application/xhtml+xml"), None]);
    mirror.remount();
    assert_eq!(media("unlisted").as_deref(), Some("text/html"));
}
