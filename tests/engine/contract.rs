//! What a Source may do that must cost no data, and what a user may do that must not go wrong: each of
//! these went wrong once.

use crate::support::opened::{Mirror, said};

use crate::support::resources::named;
use crate::support::server::{Reply, Server};
use crate::support::{bytes, capability, document, entry, entry_of, resource_list};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const AT: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-02-02T03:04:05Z";

#[test]
fn a_prefix_listed_after_what_lies_deep_below_it() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a/b/c/d", "/a/b/c", "/a/b", "/a", "/z"]));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files(), ["a/@self", "a/b/@self", "a/b/c/@self", "a/b/c/d", "z"]);
    assert_eq!(mirror.read("a/b/c/@self").unwrap(), b"/a/b/c");
}

#[test]
fn a_set_that_cannot_be_read_keeps_its_tree() {
    let server = Server::start();
    for set in ["one", "two"] {
        let entries = named(&server, &[&format!("/{set}/x"), &format!("/{set}/y")]);
        server.file(&format!("/{set}/list.xml"), resource_list(AT, &entries));
        let list = capability(&server.url(&format!("/{set}/list.xml")), "resourcelist");
        server.file(&format!("/{set}/capabilities.xml"), document("capabilitylist", "", "", &list));
    }
    let lists =
        ["one", "two"].map(|set| capability(&server.url(&format!("/{set}/capabilities.xml")), "capabilitylist"));
    server.file("/.well-known/resourcesync", document("description", "", "", &lists.concat()));
    let (both, one) = (Mirror::mount(&server.url("/"), ""), Mirror::mount(&server.url("/"), "set=one"));
    server.on("/one/capabilities.xml", |_| Reply::status(404));
    for mirror in [&both, &one] {
        let _ = mirror.refresh();
        let _ = mirror.refresh();
    }
    assert_eq!(both.files(), ["one/one/x", "one/one/y", "two/two/x", "two/two/y"]);
    assert_eq!(one.files(), ["one/x", "one/y"]);
}

#[test]
fn a_passing_fault_of_the_description_does_not_change_the_route() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a", "/b"]));
    server.file("/sitemap.xml", resource_list(LATER, &entry(&server.url("/c"), "")));
    server.file("/robots.txt", format!("Sitemap: {}\n", server.url("/sitemap.xml")));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    server.on("/.well-known/resourcesync", |_| Reply::status(503));
    assert!(mirror.refresh().is_err());
    assert_eq!(mirror.files(), ["a", "b"]);
    server.remove("/.well-known/resourcesync");
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["a", "b"], "robots.txt is a lesser route than what is known");
}

#[test]
fn a_part_that_was_missing_is_asked_for_again() {
    let server = Server::start();
    server.source(AT, "");
    let parts = [server.url("/part1.xml"), server.url("/part2.xml")];
    server.file("/resourcelist.xml", crate::support::index("resourcelist", &format!("at=\"{AT}\""), &parts));
    server.file("/part1.xml", resource_list(AT, &named(&server, &["/a"])));
    let second = resource_list(AT, &named(&server, &["/b"]));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    assert_eq!((mirror.files(), mirror.status()["state"].as_str()), (vec!["a".to_owned()], Some("partial")));
    server.file("/part2.xml", second);
    let _ = mirror.refresh();
    assert_eq!((mirror.files().len(), mirror.status()["state"].as_str()), (2, Some("complete")));
    server.file("/resourcelist.xml", crate::support::index("resourcelist", &format!("at=\"{LATER}\""), &parts[..1]));
    server.file("/part1.xml", resource_list(LATER, &named(&server, &["/a", "/b", "/c"])));
    server.remove("/part2.xml");
    let _ = mirror.refresh();
    assert_eq!((mirror.files().len(), mirror.status()["state"].as_str()), (3, Some("complete")), "a part that is gone");
}

#[test]
fn a_head_that_lies_makes_no_short_file() {
    let server = Server::start();
    let body = bytes(1, 110);
    for (path, length) in [("/seven", 7), ("/zero", 0)] {
        let body = body.clone();
        server.on(path, move |request| match request.method.as_str() {
            "HEAD" => Reply::ok(vec![0; length]),
            _ => Reply::good(request, &body),
        });
    }
    let hash = format!("hash=\"sha-256:{}\"", crate::support::sha256(&body));
    server.source(AT, &(entry(&server.url("/seven"), &hash) + &entry(&server.url("/zero"), "")));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    for path in ["seven", "zero"] {
        let began = Instant::now();
        loop {
            match mirror.read(path) {
                Ok(found) => break assert!(found == body, "{path}: {} bytes", found.len()),
                Err(error) => assert_eq!(error.raw_os_error(), Some(5), "{path}"),
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{path} never reads");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(mirror.stat(path).unwrap().size, 110, "{path}");
    }
}

#[test]
fn a_listed_length_that_is_wrong_is_forgiven_whole() {
    let server = Server::start();
    for (path, length) in [("/longer", 20), ("/shorter", 5)] {
        server.file(path, bytes(1, length));
    }
    let entries = ["/longer", "/shorter"].map(|path| entry(&server.url(path), "length=\"10\""));
    server.source(AT, &entries.concat());
    let mirror = Mirror::mount(&server.url("/"), "verify=warn,timeout=3");
    for (path, length) in [("longer", 20), ("shorter", 5)] {
        let _ = mirror.read(path);
        mirror.wait("the real size", |_| mirror.stat(path).unwrap().size == length);
        assert_eq!(mirror.read(path).unwrap(), bytes(1, usize::try_from(length).unwrap()), "{path}");
    }
}

#[test]
fn a_stream_never_goes_on_from_another_place() {
    let server = Server::start();
    let body = bytes(1, 16 << 20);
    let content = body.clone();
    // Without a validator, what broke cannot be gone on with.
    server.on("/first", move |_| Reply { close_after: Some(2 << 20), ..Reply::ok(content.as_slice()) });
    let content = body.clone();
    server.on("/second", move |request| Reply { drip: Duration::from_millis(1), ..Reply::good(request, &content) });
    let link = format!("<rs:ln rel=\"duplicate\" pri=\"1\" href=\"{}\"/></url>", server.url("/first"));
    server.source(AT, &entry_of(&server.url("/second"), &body).replace("</url>", &link));
    let mirror = Mirror::mount(&server.url("/"), "verify=stream,timeout=5");
    let file = mirror.open("second").unwrap();
    for at in [0, 10 << 20, 15 << 20] {
        let mut part = vec![0; 4096];
        if let Ok(count) = file.read_at(&mut part, at) {
            assert!(count == 4096 && part == body[at as usize..at as usize + 4096], "{count} bytes at {at}");
        }
    }
    drop(file);
    server.file("/first", body.clone());
    std::thread::sleep(Duration::from_secs(4));
    assert!(mirror.read("second").unwrap() == body);
}

#[test]
fn bytes_of_a_stream_that_was_refused_are_not_mixed_with_good_ones() {
    let server = Server::start();
    let body = bytes(1, 12 << 20);
    let mut bad = body.clone();
    bad[100] ^= 1;
    let tries = Arc::new(AtomicUsize::new(0));
    let (content, count) = (body.clone(), tries.clone());
    server.on("/large", move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply { drip: Duration::from_millis(1), ..Reply::ok(bad.as_slice()) }.with("ETag", "\"bad\""),
        _ => Reply::ok(content.as_slice()).with("ETag", "\"good\""),
    });
    server.source(AT, &entry_of(&server.url("/large"), &body));
    let mirror = Mirror::mount(&server.url("/"), "verify=stream,timeout=5");
    let mut start = vec![0; 4096];
    mirror.open("large").unwrap().read_exact_at(&mut start, 0).unwrap();
    assert!(start != body[..4096], "the stream is served before it is verified");
    mirror.wait("the verdict", |_| mirror.errors().contains("wrong content"));
    let began = Instant::now();
    while mirror.read("large").ok().as_ref() != Some(&body) {
        assert!(began.elapsed() < Duration::from_secs(20), "it is never read whole and right");
        std::thread::sleep(Duration::from_millis(100));
    }
    mirror.wait("the good verdict", |_| mirror.xattr("large", "user.resourcesync.verified").as_deref() == Some("yes"));
    assert!(mirror.read("large").unwrap() == body);
}

/// A Source of one large file. Of the parts that are requested, so many are damaged on their way; the whole never is.
fn damaging(body: &[u8], damaged: usize) -> Server {
    let server = Server::start();
    let tries = AtomicUsize::new(0);
    let content = body.to_vec();
    server.on("/large", move |request| {
        let reply = Reply::good(request, &content);
        match request.header("range") {
            None => Reply { drip: Duration::from_millis(1), ..reply },
            Some(_) if tries.fetch_add(1, Ordering::SeqCst) >= damaged => reply,
            Some(_) => Reply { body: reply.body.iter().map(|byte| byte ^ 1).collect(), ..reply },
        }
    });
    server.source(AT, &entry_of(&server.url("/large"), body));
    server
}

/// Has a stream served whose part at 12 MiB is damaged.
fn read_damaged(mirror: &Mirror, body: &[u8]) {
    let file = mirror.open("large").unwrap();
    let mut part = vec![0; 4096];
    file.read_exact_at(&mut part, 12 << 20).unwrap();
    assert!(part != body[12 << 20..(12 << 20) + 4096], "the part is served before it is verified");
}

#[test]
fn a_server_whose_ranges_are_damaged_delivers_the_whole() {
    let body = bytes(1, 16 << 20);
    let server = damaging(&body, usize::MAX);
    let mirror = Mirror::mount(&server.url("/"), "verify=stream,timeout=5");
    read_damaged(&mirror, &body);
    mirror.wait("the verdict", |_| mirror.errors().contains("wrong content"));
    // Readers want the same part again, far ahead of what has come. Until the file is replaced, the kernel has what they saw.
    let began = Instant::now();
    let mut part = vec![0; 4096];
    let mut read =
        || mirror.open("large").and_then(|file| file.read_exact_at(&mut part, 12 << 20)).map(|()| part.clone());
    while read().ok().as_deref() != Some(&body[12 << 20..(12 << 20) + 4096]) {
        assert!(began.elapsed() < Duration::from_secs(30), "it never comes: {}", mirror.errors());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(mirror.read("large").unwrap() == body);
}

#[test]
fn what_readers_saw_of_a_stream_is_what_is_verified() {
    let body = bytes(1, 16 << 20);
    let server = damaging(&body, 1);
    let mirror = Mirror::mount(&server.url("/"), "verify=stream,timeout=5");
    read_damaged(&mirror, &body);
    mirror.wait("the verdict", |_| {
        mirror.errors().contains("wrong content")
            || mirror.xattr("large", "user.resourcesync.verified").as_deref() == Some("yes")
    });
    let began = Instant::now();
    while mirror.read("large").ok().as_ref() != Some(&body) {
        let verified = mirror.xattr("large", "user.resourcesync.verified");
        assert!(verified.as_deref() != Some("yes"), "what is read is not what was verified");
        assert!(began.elapsed() < Duration::from_secs(20), "it is never read whole and right");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_server_that_ignores_if_range_cannot_mix_two_versions() {
    let server = Server::start();
    let (old, new) = (bytes(1, 4 << 20), bytes(2, 4 << 20));
    let (first, second) = (old.clone(), new.clone());
    server.on("/large", move |request| match request.header("range") {
        None => Reply { close_after: Some(2 << 20), ..Reply::ok(first.as_slice()) }.with("ETag", "\"v1\""),
        Some(range) => {
            let begin: usize = range["bytes=".len()..].split('-').next().unwrap().parse().unwrap();
            Reply { status: 206, body: second[begin..].to_vec(), ..Reply::default() }
                .with("ETag", "\"v2\"")
                .with("Content-Range", &format!("bytes {begin}-{}/{}", second.len() - 1, second.len()))
        }
    });
    server.source(AT, &entry(&server.url("/large"), &format!("length=\"{}\"", 4 << 20)));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    for _ in 0..3 {
        if let Ok(found) = mirror.read("large") {
            assert!(found == old || found == new, "a mixture was read");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(mirror.errors().contains("changed while it was fetched"), "{}", mirror.errors());
}

#[test]
fn a_cache_keeps_to_its_base_and_set() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/data/x", "/x"]));
    let mirror = Mirror::prepare(&server.url("/"), "");
    mirror.set_options(&format!("base={}", server.url("/data/")));
    mirror.try_mount().unwrap();
    let other = format!("@{}/x", server.url("")["http://".len()..].to_owned());
    assert_eq!(mirror.files(), [other, "x".to_owned()]);
    assert_eq!(mirror.read("x").unwrap(), b"/data/x");
    mirror.unmount();
    for options in ["", "set=capabilitylist"] {
        mirror.set_options(options);
        let result = mirror.try_mount();
        let said = said(&result);
        assert!(said.contains("give this mount another cache=DIR"), "{options}: {said}");
    }
}

#[test]
fn a_mass_deletion_needs_another_edition_or_a_word() {
    let server = Server::start();
    let all: Vec<String> = (0..10).map(|number| format!("/{number}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    server.source(AT, &named(&server, &all));
    let mirror = Mirror::mount(&server.url("/"), "");
    server.source(LATER, &named(&server, &all[..1]));
    for _ in 0..3 {
        let _ = mirror.refresh();
        assert_eq!((mirror.files().len(), mirror.status()["state"].as_str()), (10, Some("held")));
    }
    assert_eq!(mirror.status()["sets"][0]["held_deletions"], 9);
    let said = mirror.refresh_accepting_deletions().unwrap();
    assert!(said.contains("9 deleted"), "{said}");
    assert_eq!((mirror.files(), mirror.status()["state"].as_str()), (vec!["0".to_owned()], Some("complete")));
}

#[test]
fn a_resource_that_an_unchanged_list_still_names_stays() {
    let server = Server::start();
    let lists = ["/one.xml", "/two.xml"].map(|list| capability(&server.url(list), "resourcelist"));
    server.file("/capabilities.xml", document("capabilitylist", "", "", &lists.concat()));
    let shared = named(&server, &["/x"]);
    let more = named(&server, &["/a", "/b", "/c"]);
    server.file("/one.xml", resource_list(AT, &shared));
    server.file("/two.xml", resource_list(AT, &more));
    let mirror = Mirror::mount(&server.url("/capabilities.xml"), "");
    server.file("/two.xml", resource_list(LATER, &(more.clone() + &shared)));
    let _ = mirror.refresh();
    server.file("/two.xml", resource_list("2026-03-02T00:00:00Z", &more));
    let _ = mirror.refresh();
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["a", "b", "c", "x"], "one.xml names x all the time");
    server.file("/one.xml", resource_list("2026-04-02T00:00:00Z", ""));
    let _ = mirror.refresh();
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["a", "b", "c"], "and now no list does");
}

#[test]
fn pinned_content_stays_whoever_else_has_the_same() {
    let server = Server::start();
    let mut entries = String::new();
    for number in 0..30_u64 {
        // Each pinned file has a twin elsewhere.
        for folder in ["keep", "twin"] {
            let path = format!("/{folder}/{number}");
            let body = bytes(number % 10, 100_000);
            server.file(&path, body.clone());
            if folder == "twin" || number < 10 {
                entries.push_str(&entry_of(&server.url(&path), &body));
            }
        }
    }
    for number in 100..140 {
        let path = format!("/more/{number}");
        server.file(&path, bytes(number, 100_000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(number, 100_000)));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "cache_size=2M");
    mirror.read("twin/3").unwrap();
    mirror.fetch("keep", true);
    mirror.fetch("", false);
    mirror.wait("room", |status| status["cached"]["bytes"].as_u64().unwrap() <= 2 << 20);
    drop(server);
    for number in 0..10 {
        assert_eq!(mirror.read(&format!("keep/{number}")).unwrap(), bytes(number, 100_000), "keep/{number}");
    }
}

#[test]
fn one_busy_resource_keeps_no_other_waiting() {
    let server = Server::start();
    let good = named(&server, &["/good"]);
    server.on("/bad", |_| Reply::status(503).with("Retry-After", "600"));
    server.source(AT, &(good + &entry_of(&server.url("/bad"), b"bad")));
    let mirror = Mirror::mount(&server.url("/"), "timeout=3");
    assert!(mirror.read("bad").is_err());
    assert_eq!(mirror.read("good").unwrap(), b"/good");
    let began = Instant::now();
    let _ = mirror.refresh();
    assert!(began.elapsed() < Duration::from_secs(30), "a refresh answers: {:?}", began.elapsed());
}

#[test]
fn slow_bytes_are_progress_and_a_rate_is_no_fault() {
    let server = Server::start();
    let body = bytes(1, 500_000);
    let content = body.clone();
    server.on("/slow", move |request| Reply { drip: Duration::from_millis(120), ..Reply::good(request, &content) });
    let mut entries = entry_of(&server.url("/slow"), &body);
    for number in 0..4 {
        let path = format!("/rated/{number}");
        server.file(&path, bytes(10 + number, 150_000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(10 + number, 150_000)));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    let began = Instant::now();
    assert!(mirror.read("slow").unwrap() == body);
    assert!(began.elapsed() > Duration::from_secs(3), "longer than the timeout, in small steps");
    let rated = Mirror::mount(&server.url("/"), "timeout=2,rate=120K");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let rated = &rated;
            scope
                .spawn(move || assert!(rated.read(&format!("rated/{number}")).unwrap() == bytes(10 + number, 150_000)));
        }
    });
    assert!(began.elapsed() > Duration::from_secs(6), "600,000 bytes at 120K a second");
}

#[test]
fn a_size_is_had_within_the_timeout_or_not_at_all() {
    let server = Server::start();
    for hop in 0..9 {
        let next = server.url(&format!("/hop{}", hop + 1));
        server.on(&format!("/hop{hop}"), move |_| Reply {
            delay: Duration::from_millis(900),
            ..Reply::status(302).with("Location", &next)
        });
    }
    server.source(AT, &entry(&server.url("/hop0"), ""));
    let mirror = Mirror::mount(&server.url("/"), "timeout=2");
    let began = Instant::now();
    assert_eq!(mirror.stat("hop0").unwrap_err().raw_os_error(), Some(5));
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}

#[test]
fn a_sitemap_that_says_nothing_of_its_resources_still_brings_new_content() {
    let server = Server::start();
    server.file("/x", "old");
    server.file("/list.xml", resource_list(AT, &entry(&server.url("/x"), "")));
    let mirror = Mirror::mount(&server.url("/list.xml"), "");
    assert_eq!(mirror.read("x").unwrap(), b"old");
    server.file("/x", "newer");
    let _ = mirror.refresh();
    assert_eq!(mirror.read("x").unwrap(), b"newer", "its server is asked");
    server.file("/x", "newest");
    assert_eq!(mirror.read("x").unwrap(), b"newer", "not before it is due");
    server.file("/list.xml", resource_list(LATER, &entry(&server.url("/x"), "")));
    let _ = mirror.refresh();
    mirror.wait("the new version", |_| mirror.read("x").is_ok_and(|found| found == b"newest"));
}

#[test]
fn a_document_is_taken_at_its_word_whatever_header_comes_with_it() {
    let server = Server::start();
    server.source(AT, &named(&server, &["/a", "/b"]));
    let small = resource_list(AT, &named(&server, &["/a"]));
    server.on("/small.xml", move |request| {
        Reply::good(request, small.as_bytes()).with("Link", "</capabilitylist.xml>; rel=\"resourcesync\"")
    });
    assert_eq!(Mirror::mount(&server.url("/small.xml"), "").files(), ["a"]);
}

#[test]
fn a_stream_that_broke_goes_on_with_the_same_or_not_at_all() {
    let server = Server::start();
    let (old, new) = (bytes(1, 12 << 20), bytes(2, 12 << 20));
    let (first, second) = (old.clone(), new.clone());
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    server.on("/large", move |request| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply { close_after: Some(10 << 20), ..Reply::good(request, &first) },
        1..4 => Reply::status(503),
        _ => Reply::good(request, &second),
    });
    server.source(AT, &entry(&server.url("/large"), &format!("length=\"{}\"", 12 << 20)));
    let mirror = Mirror::mount(&server.url("/"), "verify=stream,timeout=2");
    let file = mirror.open("large").unwrap();
    let mut part = vec![0; 4096];
    assert_eq!(file.read_at(&mut part, 0).unwrap(), 4096);
    assert!(part == old[..4096]);
    let began = Instant::now();
    while mirror.read("large").ok().as_ref() != Some(&new) {
        if let Ok(found) = mirror.read("large") {
            assert!(found == old || found == new, "a mixture was read");
        }
        assert!(began.elapsed() < Duration::from_secs(30), "the new version never comes: {}", mirror.errors());
        std::thread::sleep(Duration::from_millis(200));
    }
    if let Ok(count) = file.read_at(&mut part, 11 << 20) {
        assert!(part[..count] == old[11 << 20..(11 << 20) + count], "the open file has bytes of another version");
    }
}

#[test]
fn a_plain_sitemap_that_shrank_is_held_until_it_changes_again() {
    let server = Server::start();
    let paths: Vec<String> = (0..10).map(|number| format!("/{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let sitemap = |entries: &str| {
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{entries}</urlset>"
        )
    };
    server.file("/sitemap.xml", sitemap(&named(&server, &paths)));
    let mirror = Mirror::mount(&server.url("/sitemap.xml"), "");
    server.file("/sitemap.xml", sitemap(&named(&server, &paths[..1])));
    for _ in 0..3 {
        let _ = mirror.refresh();
        assert_eq!((mirror.files().len(), mirror.status()["state"].as_str()), (10, Some("held")));
    }
    server.file("/sitemap.xml", sitemap(&format!("<!-- again -->{}", named(&server, &paths[..1]))));
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["0"]);
}

#[test]
fn a_resource_that_another_part_describes_anew_stays_while_an_unchanged_part_names_it() {
    let server = Server::start();
    let parts = [server.url("/a.xml"), server.url("/b.xml")];
    server.source(AT, "");
    server.file("/resourcelist.xml", crate::support::index("resourcelist", &format!("at=\"{AT}\""), &parts));
    server.file("/a.xml", resource_list(AT, &named(&server, &["/r", "/s"])));
    let rest = named(&server, &["/t", "/u"]);
    server.file("/b.xml", resource_list(AT, &rest));
    let mirror = Mirror::mount(&server.url("/"), "");
    server.file("/b.xml", resource_list(LATER, &(rest.clone() + &entry(&server.url("/r"), "length=\"99\""))));
    let _ = mirror.refresh();
    server.file("/b.xml", resource_list("2026-03-02T00:00:00Z", &rest));
    let _ = mirror.refresh();
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["r", "s", "t", "u"]);
}

#[test]
fn a_bad_large_file_is_not_fetched_for_ever() {
    let server = Server::start();
    server.file("/bad", bytes(1, 9 << 20));
    server.source(AT, &entry_of(&server.url("/bad"), &bytes(2, 9 << 20)));
    let mirror = Mirror::mount(&server.url("/"), "content=all,verify=stream,timeout=5");
    mirror.wait("the verdict", |_| mirror.errors().contains("wrong content"));
    std::thread::sleep(Duration::from_secs(3));
    assert!(server.count("/bad") <= 3, "{} requests", server.count("/bad"));
}

#[test]
fn an_older_part_that_is_new_does_not_stop_the_sync() {
    let server = Server::start();
    server.source(AT, "");
    let index = |at: &str, parts: &[&str]| {
        let parts: Vec<String> = parts.iter().map(|part| server.url(part)).collect();
        server.file("/resourcelist.xml", crate::support::index("resourcelist", &format!("at=\"{at}\""), &parts));
    };
    index(AT, &["/new.xml"]);
    server.file("/new.xml", resource_list(AT, &named(&server, &["/a"])));
    let mirror = Mirror::mount(&server.url("/"), "");
    index(LATER, &["/new.xml", "/archive.xml"]);
    server.file("/new.xml", resource_list(LATER, &named(&server, &["/a", "/b"])));
    server.file("/archive.xml", resource_list("2020-01-01T00:00:00Z", &named(&server, &["/old"])));
    let _ = mirror.refresh();
    assert_eq!(mirror.files(), ["a", "b", "old"]);
}

#[test]
fn a_redirect_that_moves_is_followed_anew() {
    let server = Server::start();
    for number in [1, 2] {
        let entries = named(&server, &["/cdn/x"]) + "<url><loc>y</loc></url>";
        server.file(&format!("/cdn/{number}.xml"), resource_list(&format!("2026-0{number}-01T00:00:00Z"), &entries));
    }
    server.file("/cdn/y", "relative");
    server.on("/sitemap.xml", |_| Reply::status(302).with("Location", "/cdn/1.xml"));
    let mirror = Mirror::mount(&server.url("/sitemap.xml"), "");
    server.on("/sitemap.xml", |_| Reply::status(302).with("Location", "/cdn/2.xml"));
    let said = mirror.refresh();
    said.unwrap();
    assert_eq!(mirror.files(), ["cdn/x", "cdn/y"], "relative to where the document came from");
}

#[test]
fn a_layout_is_not_fixed_while_a_set_is_missing() {
    let server = Server::start();
    let lists = ["/one.xml", "/two.xml"].map(|list| capability(&server.url(list), "capabilitylist"));
    server.file("/.well-known/resourcesync", document("description", "", "", &lists.concat()));
    for set in ["one", "two"] {
        let list = resource_list(AT, &named(&server, &[&format!("/{set}/x")]));
        server.file(&format!("/{set}/list.xml"), list);
    }
    let set = |name: &str| {
        document("capabilitylist", "", "", &capability(&server.url(&format!("/{name}/list.xml")), "resourcelist"))
    };
    server.file("/two.xml", set("two"));
    server.on("/one.xml", |_| Reply::status(503));
    let mirror = Mirror::prepare(&server.url("/"), "timeout=2");
    let output = mirror.try_mount();
    assert!(output.is_err() && said(&output).contains("/one.xml"), "{}", said(&output));
    server.file("/one.xml", set("one"));
    mirror.try_mount().unwrap();
    assert_eq!(mirror.files(), ["one/one/x", "two/two/x"]);
    server.remove("/one.xml");
    let _ = mirror.refresh();
    assert_eq!(mirror.status()["state"], "partial", "a set that could not be looked at is not complete");
    assert_eq!(mirror.files(), ["one/one/x", "two/two/x"]);
}

#[test]
fn polling_goes_on_while_content_is_fetched_ahead() {
    let server = Server::start();
    let mut entries = String::new();
    for number in 0..40 {
        let path = format!("/{number}");
        server.file(&path, bytes(number, 100_000));
        entries.push_str(&entry_of(&server.url(&path), &bytes(number, 100_000)));
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "content=all,rate=50K,poll=1");
    let before = server.count("/resourcelist.xml");
    let began = Instant::now();
    while server.count("/resourcelist.xml") <= before + 1 {
        assert!(began.elapsed() < Duration::from_secs(40), "nobody polls");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(mirror.status()["cached"]["resources"].as_u64().unwrap() < 40);
}
