//! What leaves the kernel: how many requests the work of a user causes, the first time and again.
//!
//! A cache that is lost shows here as requests, and not on a clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;

use crate::support::server::Server;
use crate::support::{Mirror, bytes, entry_of, shell};

const FILES: usize = 300;

/// `FILES` files in `data`, and one in each of ten directories.
fn source(server: &Server) {
    let mut entries = String::new();
    let paths = (0..FILES).map(|number| format!("/data/{number:04}.txt"));
    for (number, path) in paths.chain((0..10).map(|number| format!("/few/{number}/file.txt"))).enumerate() {
        let content = bytes(number as u64, 300);
        write!(entries, "{}", entry_of(&server.url(&path), &content)).unwrap();
        server.file(&path, content);
    }
    server.source("2026-01-02T03:04:05Z", &entries);
}

type Requests = BTreeMap<String, u64>;
/// What is done, the command that does it (`@` is the mount), and the requests that it may cause, by kind.
type Work<'w> = (&'w str, &'w str, &'w [(&'w str, u64)]);

fn requests(mirror: &Mirror) -> Requests {
    serde_json::from_value(mirror.status()["requests"].clone()).unwrap()
}

/// The requests that a command causes, by kind, without those of which there are none.
fn caused_by(mirror: &Mirror, command: &str) -> Requests {
    let before = requests(mirror);
    shell(command);
    let mut after = requests(mirror);
    after.iter_mut().for_each(|(kind, count)| *count -= before[kind]);
    after.retain(|_, count| *count > 0);
    after
}

fn several(all: &[(&str, u64)]) -> Requests {
    all.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

/// Does all that in a new mount, and holds what it causes to what it may. A kernel that is short of memory, or one that is
/// set to give back what is seldom used (DAMON's `pageout` does so each 5 s), may forget what it knew in between: then all
/// of it is done once more. What the program itself forgets would be missing each time.
fn cause(options: &str, table: &[Work<'_>]) {
    let server = Server::start();
    source(&server);
    let wanted: Vec<(&str, Requests)> = table.iter().map(|(what, _, all)| (*what, several(all))).collect();
    let mut found = Vec::new();
    for _ in 0..5 {
        let mirror = Mirror::mount(&server.url("/"), options);
        let at = mirror.directory.to_string_lossy().into_owned();
        found = table.iter().map(|(what, work, _)| (*what, caused_by(&mirror, &work.replace('@', &at)))).collect();
        if found == wanted {
            return;
        }
    }
    assert_eq!(found, wanted);
}

#[test]
fn what_is_known_is_not_asked_for_again() {
    cause(
        "io=kernel",
        &[
            // Access lists and labels are asked for once by each process, not of each file.
            ("ls -l", "ls -l @/data", &[("getxattr", 2), ("lookup", 1), ("opendir", 1), ("readdirplus", 3)]),
            ("ls -l again", "ls -l @/data", &[("getxattr", 2)]),
            // OPEN is answered once, for the whole mount.
            ("cat", "cat @/data/0007.txt | wc -c", &[("open", 1), ("read", 1)]),
            ("cat again", "cat @/data/0007.txt | wc -c", &[]),
            ("cat another", "cat @/data/0008.txt | wc -c", &[("read", 1)]),
            ("cat all", "cat @/data/*.txt | wc -c", &[("read", 298)]),
            ("cat all again", "cat @/data/*.txt | wc -c", &[]),
            // Each directory's names, and that there are no more of them.
            ("find", "find @", &[("readdirplus", 24)]),
            ("find again", "find @", &[]),
            ("find -ls", "find @ -ls", &[]),
            ("du", "du -s @", &[]),
            ("a name that is not there", "test ! -e @/data/nothing", &[("lookup", 1)]),
            ("not there again", "test ! -e @/data/nothing", &[]),
        ],
    );
}

#[test]
fn attributes_come_with_names() {
    cause(
        "io=kernel",
        &[
            ("find -ls", "find @ -ls", &[("opendir", 1), ("readdirplus", 27)]),
            ("find -ls again", "find @ -ls", &[]),
            ("tar", "tar cf /dev/null @", &[]),
        ],
    );
}

#[test]
fn passed_through_a_read_asks_for_nothing() {
    let open = [("open", 1), ("release", 1)];
    cause(
        "io=passthrough",
        &[
            // Not here yet when it is opened.
            ("cat", "cat @/data/0007.txt | wc -c", &[("lookup", 2), ("open", 1), ("read", 1), ("release", 1)]),
            ("cat again", "cat @/data/0007.txt | wc -c", &open),
            // What the kernel keeps for the mount is dropped: only the file below can have the bytes.
            (
                "cat, nothing being kept",
                "dd if=@/data/0007.txt iflag=nocache count=0 status=none; cat @/data/0007.txt | wc -c",
                &[("open", 2), ("release", 2)],
            ),
            (
                "two at once",
                "sh -c 'exec 3<@/data/0007.txt; cat @/data/0007.txt | wc -c; cat <&3 | wc -c'",
                &[("open", 2), ("release", 2)],
            ),
        ],
    );
}

/// The kernel has all who have an inode open at once read it the same way: who opened it before anything was known to
/// choose by is no hindrance to who opens it after.
#[test]
fn an_open_from_before_the_choice_is_no_hindrance() {
    let server = Server::start();
    let content = bytes(1, 6 << 20);
    server.file("/data/one.bin", content.clone());
    server.source("2026-01-02T03:04:05Z", &format!("<url><loc>{}</loc></url>", server.url("/data/one.bin")));
    let mirror = Mirror::mount(&server.url("/"), "io=auto");
    let path = mirror.path("data/one.bin");
    let mut first = std::fs::File::open(&path).unwrap();
    let mut read = Vec::new();
    first.read_to_end(&mut read).unwrap();
    assert!(read == content);
    mirror.wait("a size that is known", |_| mirror.log("data/one.bin")[0]["size"].is_number());
    mirror.wait("the choice", |status| status["io"] == "passthrough");
    assert!(std::fs::read(&path).unwrap() == content);
    drop(first);
    assert!(std::fs::read(&path).unwrap() == content);
}
