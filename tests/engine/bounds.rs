//! What a user bounds with `limit_NAME=`: for each bound, something within it works, something beyond it is said in its name,
//! and the rest of the mirror stays as good as it was.

use crate::support::changes::{Source, told};
use crate::support::dump::{self, Item};
use crate::support::opened::{Mirror, said};
use crate::support::resources::{cannot_be_read, is_usable, numbered};
use crate::support::server::{Reply, Server};
use crate::support::telling::{Telling, channel, free_port, live, only_channel, settles};
use crate::support::websocket::WebSocketServer;
use crate::support::{bytes, entry, entry_of, gzip, index, ln, resource_list, seed, with_links};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const AT: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-02-02T03:04:05Z";

fn mount(server: &Server, options: &str) -> Mirror {
    Mirror::mount(&server.url("/"), &format!("poll=0,{options}"))
}

fn warnings(mirror: &Mirror) -> String {
    mirror.status()["warnings"].to_string()
}

#[test]
fn a_document_that_is_too_large_deletes_nothing() {
    let server = Server::start();
    server.source(AT, &numbered(&server, 0..5));
    let mirror = mount(&server, "limit_document=8K");
    is_usable(&mirror, 0);
    let large = resource_list(LATER, &numbered(&server, 3..80));
    for body in [large.clone().into_bytes(), gzip(large.as_bytes())] {
        server.file("/resourcelist.xml", body);
        let _ = mirror.refresh();
        assert!(mirror.errors().contains("limit_document"), "{}", mirror.errors());
        let files = mirror.files();
        assert!((0..5).all(|number| files.contains(&number.to_string())), "{files:?}");
        is_usable(&mirror, 1);
    }
}

#[test]
fn with_more_entries_than_allowed_a_sync_changes_nothing() {
    let server = Server::start();
    let parts = [server.url("/part1.xml"), server.url("/part2.xml")];
    server.source(AT, "");
    server.file("/resourcelist.xml", index("resourcelist", &format!("at=\"{AT}\""), &parts));
    server.file("/part1.xml", resource_list(AT, &numbered(&server, 0..3)));
    server.file("/part2.xml", resource_list(AT, &numbered(&server, 3..5)));
    let mirror = mount(&server, "limit_entries=5");
    assert_eq!(mirror.files().len(), 5);
    server.file("/part1.xml", resource_list(LATER, &numbered(&server, 10..13)));
    server.file("/part2.xml", resource_list(LATER, &numbered(&server, 13..16)));
    let output = mirror.refresh();
    assert!(output.is_err(), "{}", said(&output));
    assert!(said(&output).contains("the number of entries is more than limit_entries=5 allows"), "{}", said(&output));
    assert_eq!(mirror.files(), ["0", "1", "2", "3", "4"]);
    is_usable(&mirror, 4);
    let fresh = Mirror::prepare(&server.url("/"), "limit_entries=5");
    let output = fresh.try_mount();
    assert!(said(&output).contains("limit_entries=5"), "{}", said(&output));
    assert!(output.is_err());
}

#[test]
fn with_more_changes_than_allowed_a_sync_changes_nothing() {
    for limit in ["limit_entries=2", "limit_changes=2"] {
        let mut source = Source::start(&[("/a", "one"), ("/b", "two")], &["changelist"]);
        let first = source.does("updated", "/a", 10, "three");
        source.changes(&first);
        let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,{limit}"));
        assert_eq!(mirror.read("a").unwrap(), b"three");
        let more: String =
            (1..4).map(|number| source.does("created", &format!("/{number}"), 10 + number, "x")).collect();
        source.changes(&(first + &more));
        let output = mirror.refresh();
        assert!(output.is_err() && said(&output).contains(limit), "{}", said(&output));
        assert_eq!(mirror.files(), ["a", "b"]);
        assert_eq!(mirror.read("b").unwrap(), b"two");
    }
}

#[test]
fn more_documents_than_allowed_are_not_asked_for() {
    let server = Server::start();
    let part = |number: u64| server.url(&format!("/part{number}.xml"));
    let offers = |count: u64| {
        let parts: Vec<String> = (0..count).map(part).collect();
        index("resourcelist", &format!("at=\"{AT}\""), &parts)
    };
    server.source(AT, "");
    for number in 0..3 {
        server.file(&format!("/part{number}.xml"), resource_list(AT, &numbered(&server, number..number + 1)));
    }
    server.file("/resourcelist.xml", offers(2));
    let mirror = mount(&server, "limit_documents=3");
    assert_eq!((mirror.files().len(), mirror.status()["state"].as_str()), (2, Some("complete")));
    server.file("/resourcelist.xml", offers(3));
    let _ = mirror.refresh();
    let said = "the number of its documents is more than limit_documents=3 allows";
    assert!(mirror.errors().contains(said), "{}", mirror.errors());
    assert_eq!((mirror.files().len(), mirror.status()["state"].as_str()), (2, Some("partial")));
    is_usable(&mirror, 1);
    assert_eq!(server.count("/part2.xml"), 0);
}

#[test]
fn what_lies_deeper_in_indexes_than_allowed_is_not_asked_for() {
    let server = Server::start();
    server.source(AT, "");
    let at = format!("at=\"{AT}\"");
    server.file("/resourcelist.xml", index("resourcelist", &at, &[server.url("/list.xml"), server.url("/index.xml")]));
    server.file("/list.xml", resource_list(AT, &numbered(&server, 0..1)));
    server.file("/index.xml", index("resourcelist", &at, &[server.url("/deep.xml")]));
    server.file("/deep.xml", resource_list(AT, &numbered(&server, 1..2)));
    let within = mount(&server, "limit_depth=2");
    assert_eq!((within.files().len(), within.status()["state"].as_str()), (2, Some("complete")));
    let asked = server.count("/deep.xml");
    let beyond = mount(&server, "limit_depth=1");
    let said = "/index.xml: the depth of its indexes is more than limit_depth=1 allows";
    assert!(beyond.errors().contains(said), "{}", beyond.errors());
    assert_eq!((beyond.files().len(), beyond.status()["state"].as_str()), (1, Some("partial")));
    is_usable(&beyond, 0);
    assert_eq!(server.count("/deep.xml"), asked);
}

#[test]
fn longer_uris_and_more_links_than_allowed_are_reported_and_passed_over() {
    let server = Server::start();
    let name = |length: usize| format!("/{}", "x".repeat(length - server.url("/").len()));
    let mut entries = numbered(&server, 0..1);
    for length in [100, 101] {
        server.file(&name(length), b"x".as_slice());
        entries += &entry_of(&server.url(&name(length)), b"x");
    }
    let links: String = (0..3).map(|n| ln("related", &server.url(&format!("/related/{n}")), "")).collect();
    server.file("/linked", b"linked".as_slice());
    entries += &with_links(&entry_of(&server.url("/linked"), b"linked"), &links);
    server.source(AT, &entries);
    let within = mount(&server, "limit_uri=101,limit_links=3");
    assert_eq!((within.files().len(), warnings(&within)), (4, "[]".to_owned()));
    let beyond = mount(&server, "limit_uri=100,limit_links=2");
    assert_eq!(beyond.files().len(), 3);
    assert_eq!(beyond.read(&name(100)[1..]).unwrap(), b"x");
    assert_eq!(beyond.read("linked").unwrap(), b"linked");
    for said in ["the length of its URI is more than limit_uri=100 allows", "more links than limit_links allows"] {
        assert!(warnings(&beyond).contains(said), "{}", warnings(&beyond));
    }
    is_usable(&beyond, 0);
}

#[test]
fn an_answer_with_too_large_a_head_fails() {
    let server = Server::start();
    let mut entries = numbered(&server, 0..1);
    // The last is more than HTTP/1 is read for at all, and lines may be many, too.
    for (path, lines, length) in [("/slim", 1, 1000), ("/fat", 1, 2100), ("/many", 60, 40), ("/huge", 1, 4 << 20)] {
        server.on(path, move |_| (0..lines).fold(Reply::ok("x"), |reply, _| reply.with("X-More", &"x".repeat(length))));
        // No hash: what is here already is not fetched again.
        entries += &entry(&server.url(path), "length=\"1\"");
    }
    server.source(AT, &entries);
    let mirror = mount(&server, "limit_header=2K");
    assert_eq!(mirror.read("slim").unwrap(), b"x");
    for path in ["fat", "many", "huge"] {
        let said = format!("/{path}: the head of its answer is more than limit_header=2K allows");
        cannot_be_read(&mirror, path, &said);
        assert_eq!(server.count(&format!("/{path}")), 1, "it is not asked for again");
    }
    is_usable(&mirror, 0);
}

#[test]
fn no_more_redirects_are_followed_than_allowed() {
    let server = Server::start();
    let mut entries = numbered(&server, 0..1);
    for (path, to) in [("/2", "/1"), ("/1", "/0"), ("/3", "/2")] {
        server.on(path, move |_| Reply::status(302).with("Location", to));
        // No hash: what is here already is not fetched again.
        entries += &entry(&server.url(path), "length=\"100\"");
    }
    server.source(AT, &entries);
    let mirror = mount(&server, "limit_redirects=2");
    assert_eq!(mirror.read("2").unwrap(), bytes(0, 100));
    cannot_be_read(&mirror, "3", "/3: the number of redirects is more than limit_redirects=2 allows");
    is_usable(&mirror, 0);
}

#[test]
fn a_resource_of_no_listed_length_ends() {
    let server = Server::start();
    let large = bytes(1, 3 << 20);
    server.file("/small", bytes(1, 1 << 20));
    server.file("/listed", large.as_slice());
    server.file("/announced", large.as_slice());
    server.on("/endless", |_| Reply::endless(vec![0; 64 << 10]));
    let zeros = gzip(&vec![0; 3 << 20]);
    server.on("/coded", move |_| Reply::ok(zeros.as_slice()).with("Content-Encoding", "gzip"));
    let mut entries = numbered(&server, 0..1) + &entry_of(&server.url("/listed"), &large);
    for path in ["/small", "/announced", "/endless", "/coded"] {
        entries += &entry(&server.url(path), "");
    }
    server.source(AT, &entries);
    let mirror = mount(&server, "limit_resource=1M");
    assert_eq!(mirror.read("small").unwrap(), bytes(1, 1 << 20));
    assert_eq!(mirror.read("listed").unwrap(), large);
    for path in ["announced", "endless", "coded"] {
        let began = Instant::now();
        cannot_be_read(&mirror, path, &format!("/{path}: its size is more than limit_resource=1M allows"));
        assert!(began.elapsed() < Duration::from_secs(10), "{path}: {:?}", began.elapsed());
    }
    is_usable(&mirror, 0);
}

/// A Source with a Resource List and a dump of one package, of which the dump says this.
fn packed(server: &Server, items: &[Item], md: &str) {
    for item in items {
        server.file(item.uri.strip_prefix(&server.url("")).unwrap(), item.bytes.as_slice());
    }
    dump::source(server, AT, items, Some((AT, items)));
    let packages = [(server.url("/package.zip"), format!("type=\"application/zip\" {md}"), String::new())];
    server.file("/resourcedump.xml", dump::dump(&format!("at=\"{AT}\""), &packages));
}

fn items(server: &Server) -> Vec<Item> {
    (0..3).map(|number| Item::new(&server.url(&format!("/{number}")), &bytes(number, 100)).stored()).collect()
}

#[test]
fn a_package_ends() {
    for (md, endless, said) in [
        (
            "length=\"53248\"",
            true,
            "/package.zip: the package is larger than 16883712 bytes, where its dump lists 53248",
        ),
        ("", true, "/package.zip: the size of the package is more than limit_resource=1M allows"),
        ("", false, ""),
    ] {
        let server = Server::start();
        packed(&server, &items(&server), md);
        if endless {
            server.on("/package.zip", |_| Reply::endless(vec![b'P'; 64 << 10]));
        }
        let began = Instant::now();
        let mirror = mount(&server, "limit_resource=1M,seed=dump");
        (0..3).for_each(|number| is_usable(&mirror, number));
        if endless {
            mirror.wait("the end of the package", |status| status["errors"].to_string().contains(said));
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        } else {
            assert_eq!((server.count("/0"), mirror.errors().as_str()), (0, "[]"), "it is read from its package");
        }
    }
}

#[test]
fn a_package_with_too_many_members_is_not_used() {
    let server = Server::start();
    packed(&server, &items(&server), "");
    let within = mount(&server, "limit_members=4,seed=dump");
    is_usable(&within, 0);
    assert_eq!((server.count("/0"), within.errors().as_str()), (0, "[]"));
    let beyond = mount(&server, "limit_members=3,seed=dump");
    let said = "/package.zip: the number of its members is more than limit_members=3 allows";
    assert!(beyond.errors().contains(said), "{}", beyond.errors());
    is_usable(&beyond, 0);
    assert_eq!(server.count("/0"), 1, "it comes by itself");
}

#[test]
fn content_unfolds_no_further_than_allowed() {
    const LARGE: usize = 65 << 20;
    let server = Server::start();
    let zeros = Arc::new(gzip(&vec![0; LARGE]));
    for path in ["/coded", "/free"] {
        let (large, small) = (Arc::clone(&zeros), gzip(&vec![0; 1 << 20]));
        server.on(path, move |request| {
            let body = if request.path == "/coded" { large.as_slice() } else { &small };
            Reply::ok(body).with("Content-Encoding", "gzip")
        });
    }
    let listed: String = ["/coded", "/free"].iter().map(|path| entry(&server.url(path), "")).collect();
    let bomb = Item::new(&server.url("/bomb"), &vec![0; 100_000]);
    let items = [items(&server), vec![bomb]].concat();
    packed(&server, &items, "");
    let entries: String = items.iter().map(Item::in_list).collect();
    server.file("/resourcelist.xml", resource_list(AT, &(entries + &listed)));
    let within = mount(&server, "seed=dump");
    assert_eq!(within.read("coded").unwrap().len(), LARGE);
    assert_eq!((within.read("bomb").unwrap().len(), server.count("/bomb")), (100_000, 0));
    let beyond = mount(&server, "limit_unfolded=50,seed=dump");
    cannot_be_read(&beyond, "coded", "/coded: how much its content unfolds is more than limit_unfolded=50 allows");
    assert_eq!(beyond.read("free").unwrap().len(), 1 << 20, "64 MiB are free");
    assert!(beyond.errors().contains("limit_unfolded"), "{}", beyond.errors());
    assert_eq!((beyond.read("bomb").unwrap().len(), server.count("/bomb")), (100_000, 1), "it comes by itself");
    is_usable(&beyond, 0);
}

/// Mounts a Source with one resource, which then becomes another by a JSON Patch; returns how often the resource and
/// the patch were asked for after that.
fn patched(old: &str, new: &str, patch: &str, options: &str) -> (usize, usize) {
    let mut source = Source::start(&[("/doc", old), ("/other", "other")], &["changelist"]);
    source.changes("");
    let mirror = Mirror::mount(&source.url("/"), &format!("poll=0,{options}"));
    assert_eq!(mirror.read("doc").unwrap(), old.as_bytes());
    let before = source.server.count("/doc");
    source.server.file("/patch", patch);
    source.put("/doc", new.as_bytes());
    let media = format!("type=\"application/json-patch+json\" length=\"{}\"", patch.len());
    let link = ln("http://www.openarchives.org/rs/terms/patch", &source.url("/patch"), &media);
    source.changes(&with_links(&told(&source.url("/doc"), "updated", 10, new.as_bytes()), &link));
    mirror.refreshed();
    assert!(mirror.read("doc").unwrap() == new.as_bytes(), "{}", mirror.errors());
    assert_eq!(mirror.read("other").unwrap(), b"other");
    (source.server.count("/doc") - before, source.server.count("/patch"))
}

#[test]
fn a_patch_that_is_too_large_gives_way_to_the_resource() {
    let document = |value: u8| format!("{{\"value\": {value}, \"text\": \"{}\"}}", "x".repeat(2000));
    let patch = "[{\"op\": \"replace\", \"path\": \"/value\", \"value\": 2}]";
    for (options, asked) in [("limit_patch=4K", (0, 1)), ("limit_patch=1K", (1, 0))] {
        assert_eq!(patched(&document(1), &document(2), patch, options), asked, "{options}");
    }
}

#[test]
fn a_patch_that_is_too_much_work_gives_way_to_the_resource() {
    let document = |first: &str| {
        let numbers: String = (0..150_000).map(|number| format!(",{}", 100_000 + number)).collect();
        format!("[{first}{numbers}]")
    };
    // Each of these moves the whole array.
    let work = "{\"op\":\"add\",\"path\":\"/0\",\"value\":1},{\"op\":\"remove\",\"path\":\"/0\"},".repeat(300);
    let patch = format!("[{work}{{\"op\":\"replace\",\"path\":\"/0\",\"value\":2}}]");
    for (options, asked) in [("limit_patch_time=60", (0, 1)), ("limit_patch_time=1", (1, 1))] {
        let options = format!("timeout=300,{options}");
        assert_eq!(patched(&document("1"), &document("2"), &patch, &options), asked, "{options}");
    }
}

#[test]
fn no_more_mementos_are_read_than_allowed() {
    let server = Server::start();
    let days = ["Thu, 03 Jan 2013 09:00:00 GMT", "Fri, 04 Jan 2013 09:00:00 GMT", "Sat, 05 Jan 2013 09:00:00 GMT"];
    let links: Vec<String> = days
        .iter()
        .enumerate()
        .map(|(number, day)| format!("<{}>;rel=\"memento\";datetime=\"{day}\"", server.url(&format!("/m/{number}"))))
        .collect();
    let map = links.join(",\n");
    server.on("/map", move |_| Reply::ok(map.as_str()).with("Content-Type", "application/link-format"));
    let link = ln("timemap", &server.url("/map"), "type=\"application/link-format\"");
    server.source(AT, &with_links(&numbered(&server, 0..1), &link));
    for (most, versions) in [(3, 4), (2, 3)] {
        let mirror = mount(&server, &format!("limit_mementos={most}"));
        assert_eq!(mirror.names(".versions/0").len(), versions, "limit_mementos={most}");
        assert_eq!(warnings(&mirror).contains("limit_mementos"), most < 3, "{}", warnings(&mirror));
        is_usable(&mirror, 0);
    }
}

#[test]
fn a_notification_that_is_too_large_is_refused() {
    let sends = WebSocketServer::start();
    let mut telling = Telling::start(seed(), 5, false);
    telling.offers(&channel(&sends.url(), "change-notification", &[]));
    let mirror = Mirror::mount(&telling.source.url("/"), "poll=0,limit_delivery=2K");
    sends.wait_for_client();
    live(&mirror);
    let told = telling.tells();
    assert!(told.len() < 2048, "{}", told.len());
    sends.send(&told);
    settles(&mirror, &telling.source);
    sends.send(&"x".repeat(4096));
    mirror.wait("a refusal", |status| status["channels"][0]["refused"]["too_large"] == 1);
    // The channel is joined again, and what it told meanwhile is looked for.
    let told = telling.tells();
    telling.source.list(telling.second);
    sends.wait_for_client();
    live(&mirror);
    sends.send(&told);
    settles(&mirror, &telling.source);
    assert_eq!(only_channel(&mirror)["refused"]["too_large"], 1);
}

#[test]
fn no_more_callers_are_heard_at_once_than_allowed() {
    let server = Server::start();
    server.source(AT, &numbered(&server, 0..1));
    let port = free_port();
    let mirror = mount(&server, &format!("limit_callers=1,listen=127.0.0.1:{port}"));
    let call = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /nobody HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    };
    let answer = |mut stream: TcpStream, patience: u64| {
        stream.set_read_timeout(Some(Duration::from_millis(patience))).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).map(|()| answer).map_err(|_| stream)
    };
    assert_eq!(&answer(call(), 20_000).expect("an answer"), b"HTTP/1.1 404");
    let silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let waits = answer(call(), 300).expect_err("one is heard at a time");
    drop(silent);
    assert_eq!(&answer(waits, 20_000).expect("its turn comes"), b"HTTP/1.1 404");
    is_usable(&mirror, 0);
}

#[test]
fn no_more_connections_are_made_to_all_hosts_than_allowed() {
    let source = Server::start();
    let others = [Server::start(), Server::start()];
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut entries = numbered(&source, 0..1);
    for server in &others {
        for number in 0..6 {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            server.on(&format!("/{number}"), move |_| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(200));
                now.fetch_sub(1, Ordering::SeqCst);
                Reply::ok("x")
            });
            // No hash: what is here already is not fetched again.
            entries += &entry(&server.url(&format!("/{number}")), "length=\"1\"");
        }
    }
    source.source(AT, &entries);
    for limit in ["limit_connections=3", "limit_connections=64"] {
        let mirror = mount(&source, limit);
        let files = mirror.files();
        let readers: Vec<&String> = files.iter().filter(|path| path.starts_with('@')).collect();
        assert_eq!(readers.len(), 12);
        std::thread::scope(|scope| {
            readers.iter().for_each(|path| drop(scope.spawn(|| assert_eq!(mirror.read(path).unwrap(), b"x"))));
        });
        let most = most.swap(0, Ordering::SeqCst);
        assert!(if limit.ends_with('3') { most <= 3 } else { most > 3 }, "{limit}: {most}");
        is_usable(&mirror, 0);
    }
}

#[test]
fn where_too_little_room_is_left_nothing_more_is_written() {
    let server = Server::start();
    server.source(AT, &numbered(&server, 0..2));
    let mirror = mount(&server, "limit_free=0");
    is_usable(&mirror, 0);
    mirror.set_options("poll=0,limit_free=1024T");
    mirror.remount();
    is_usable(&mirror, 0);
    cannot_be_read(&mirror, "1", "(limit_free=1024T stays free)");
    server.source(LATER, &numbered(&server, 0..3));
    let output = mirror.refresh();
    assert!(output.is_err() && said(&output).contains("limit_free=1024T"), "{}", said(&output));
    assert_eq!(mirror.files(), ["0", "1"]);
}
