//! What a user bounds with `limit_NAME=`: for each bound, something within it works, something beyond it is said in its name,
//! and the rest of the mirror stays as good as it was.

use crate::support::channel::Channel;
use crate::support::dump::{self, Item};
use crate::support::resources::{cannot_be_read, is_usable, numbered};
use crate::support::server::{Reply, Server};
use crate::support::telling::{Telling, channel, live, notification, settles};
use crate::support::{Mirror, PROGRAM, bytes, entry, entry_of, index, ln, resource_list, run, seed, text, with_links};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write as _;

const AT: &str = "2026-01-02T03:04:05Z";

fn mount(server: &Server, options: &str) -> Mirror {
    Mirror::mount(&server.url("/"), &format!("poll=0,{options}"))
}

/// A number that the kernel says of a process: `VmHWM` in KiB.
fn peak(daemon: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// What the kernel holds a process to: the soft limit.
fn held_to(daemon: u32, name: &str) -> String {
    let limits = fs::read_to_string(format!("/proc/{daemon}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
    line.split_whitespace().next().expect("a value").to_owned()
}

#[test]
fn what_is_no_bound_or_out_of_its_range_is_refused_with_what_would_do() {
    for (option, said) in [
        ("limit_documnet=1G", "there is no such limit; there are limit_document, "),
        (
            "limit_memory=1M",
            "limit_memory=1M: expected a number of bytes (K, M, G, T are understood) from 256M to 1024T",
        ),
        ("limit_depth=33", "expected a number from 1 to 32"),
        ("limit_uri=9K", "from 64 to 8K"),
    ] {
        let output = run(&["mount", "http://127.0.0.1:1/", "/", "-o", option]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(said), "{option}: {}", text(&output));
    }
    let help = crate::support::output(&["mount", "--help"]);
    assert!(help.contains("limit_NAME=VALUE") && help.contains("limit_callers=1024"), "{help}");
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
fn a_notification_of_too_many_changes_is_looked_for_in_the_lists() {
    let mut sends = Channel::start(None);
    let mut telling = Telling::start(seed(), 5, false);
    telling.offers(&channel(&sends.url(), "change-notification", &[]));
    let mirror = Mirror::mount(&telling.source.url("/"), "poll=0,limit_changes=2");
    sends.wait_for_client();
    live(&mirror);
    let from = telling.second;
    let entries: String = (0..3).map(|_| telling.happens().0).collect();
    telling.source.list(telling.second);
    sends.send(&notification(from, telling.second, &entries));
    settles(&mirror, &telling.source);
    let log = fs::read_to_string(mirror.cache.join("log")).unwrap();
    assert!(log.contains("limit_changes=2"), "{log}");
    // What comes next is not held up by it.
    let told = telling.tells();
    sends.send(&told);
    settles(&mirror, &telling.source);
}

/// How many files of content a process has open.
fn open_files(daemon: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().flatten();
    files
        .filter(|file| fs::read_link(file.path()).is_ok_and(|path| path.to_string_lossy().contains("/objects/")))
        .count()
}

#[test]
fn no_more_files_stay_open_than_allowed_and_there_are_descriptors_for_them() {
    let server = Server::start();
    server.source(AT, &numbered(&server, 0..60));
    for (most, open) in [(60, 60), (20, 20)] {
        let mirror = Mirror::prepare(&server.url("/"), "");
        let options = format!("cache={},poll=0,io=kernel,limit_files={most}", mirror.cache.display());
        let command = format!(
            "ulimit -Sn 200; exec {PROGRAM} mount {} {} -o {options}",
            server.url("/"),
            mirror.directory.display()
        );
        crate::support::shell(&command);
        for _ in 0..2 {
            (0..60).for_each(|number| is_usable(&mirror, number));
        }
        let daemon = mirror.daemon().unwrap();
        assert_eq!(open_files(daemon), open, "limit_files={most}");
        let descriptors = held_to(daemon, "Max open files");
        assert!(descriptors == "unlimited" || descriptors.parse::<u64>().unwrap() >= 1024, "{descriptors}");
    }
}

#[test]
fn the_kernel_holds_the_daemon_to_its_memory() {
    let server = Server::start();
    server.source(AT, &numbered(&server, 0..2));
    for (options, held) in [("limit_memory=256M", "268435456"), ("", "unlimited")] {
        let mirror = mount(&server, options);
        assert_eq!(held_to(mirror.daemon().unwrap(), "Max data size"), held);
        is_usable(&mirror, 0);
    }
}

/// Compresses a text of so many MiB, that begins and goes on as given.
fn bomb(begin: &str, part: &[u8], mebibytes: usize) -> Vec<u8> {
    let mut coder = GzEncoder::new(Vec::new(), Compression::fast());
    coder.write_all(begin.as_bytes()).unwrap();
    (0..(mebibytes << 20) / part.len()).for_each(|_| coder.write_all(part).unwrap());
    coder.finish().unwrap()
}

#[test]
fn whatever_comes_the_daemon_stays_small() {
    let server = Server::start();
    let list = resource_list(AT, "");
    let begin = list.strip_suffix("</urlset>\n").unwrap();
    let comment = format!("<!--{}-->\n", "x".repeat((64 << 10) - 8));
    server.file("/bomb.xml", bomb(begin, comment.as_bytes(), 1024));
    server.file("/token.xml", bomb(&format!("{begin}<url><loc>"), &[b'x'; 64 << 10], 256));
    server.file("/entry.xml", bomb(&format!("{begin}<url>"), b"<x/>", 64));
    server.on("/head", |_| Reply::ok("x").with("X-More", &"x".repeat(32 << 20)));
    server.on("/endless", |_| Reply::endless(vec![b'x'; 64 << 10]));
    let large = Item::new(&server.url("/large"), &vec![0; 128 << 20]);
    let items = [items(&server), vec![large]].concat();
    packed(&server, &items, "");
    let others = entry_of(&server.url("/head"), b"x") + &entry(&server.url("/endless"), "");
    let entries = items.iter().map(Item::in_list).collect::<String>() + &others;
    server.file("/list.xml", resource_list(AT, &entries));
    let parts = ["/list.xml", "/bomb.xml", "/token.xml", "/entry.xml"].map(|path| server.url(path));
    server.file("/resourcelist.xml", index("resourcelist", &format!("at=\"{AT}\""), &parts));
    let mirror = mount(&server, "seed=dump,limit_document=64M,limit_resource=512M,timeout=60,wait=300");
    let daemon = mirror.daemon().unwrap();
    for said in [
        "limit_document",
        "one tag or text is larger than the 1048576 bytes",
        "one entry is larger than the 1560576 bytes",
    ] {
        assert!(mirror.errors().contains(said), "{said:?} is not in {}", mirror.errors());
    }
    cannot_be_read(&mirror, "head", "limit_header=64K");
    cannot_be_read(&mirror, "endless", "limit_resource=512M");
    assert_eq!(mirror.read("large").unwrap().len(), 128 << 20);
    (0..3).for_each(|number| is_usable(&mirror, number));
    let peak = peak(daemon);
    println!("VmHWM: {} MiB", peak >> 10);
    assert!(peak < 256 << 10, "{} MiB", peak >> 10);
    assert_eq!(mirror.daemon(), Some(daemon));
}

#[test]
fn entries_as_large_as_they_may_be_are_not_held_all_at_once() {
    let server = Server::start();
    let list = resource_list(AT, "");
    let begin = list.strip_suffix("</urlset>\n").unwrap();
    let links = ln("related", "http://x.example/", &format!("{}=\"\"", "a".repeat(1000))).repeat(900);
    let large = with_links(&entry("http://x.example/resource", ""), &links);
    server.source(AT, "");
    let parts = ["/small.xml", "/large.xml"].map(|path| server.url(path));
    server.file("/resourcelist.xml", index("resourcelist", &format!("at=\"{AT}\""), &parts));
    server.file("/small.xml", resource_list(AT, &numbered(&server, 0..1)));
    server.file("/large.xml", bomb(begin, large.as_bytes(), 150));
    let mirror = mount(&server, "limit_document=100M,wait=300");
    assert!(mirror.errors().contains("limit_document"), "{}", mirror.errors());
    assert_eq!(mirror.files(), ["0", "@x.example/resource"]);
    let peak = peak(mirror.daemon().unwrap());
    println!("VmHWM: {} MiB", peak >> 10);
    assert!(peak < 90 << 10, "{} MiB", peak >> 10);
}
