//! What becomes of lists: layout, names, attributes, and how a tree follows its Source.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use crate::support::server::{Reply, Server};
use crate::support::{
    Mirror, capability, document, entry, entry_of, output, resource_list, run, scramble, shell, text, xattr,
};

const AT: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-02-02T03:04:05Z";

#[test]
fn names_are_what_the_uris_say() {
    let server = Server::start();
    let other = Server::start();
    let long = "long".repeat(75);
    let paths = [
        ("/plain.txt", "plain.txt"),
        ("/with%20blank/%C3%A9t%C3%A9.txt", "with blank/été.txt"),
        ("/query?b=/c&d", "query?b=%2Fc&d"),
        ("/dir/", "dir/@index"),
        ("/a", "a/@self"),
        ("/a/b", "a/b"),
        ("/@me", "%40me"),
        ("/.versions", "%2Eversions"),
        ("/nul%00ctl%1F", "nul%00ctl%1F"),
        ("/a%2Fb", "a%2Fb"),
    ];
    let mut entries = String::new();
    for (path, _) in paths {
        server.file(path, path.as_bytes());
        entries.push_str(&entry_of(&server.url(path), path.as_bytes()));
    }
    other.file("/far", "far");
    entries.push_str(&entry_of(&other.url("/far"), b"far"));
    server.file("/y", "another resource");
    entries.push_str(&entry_of(&server.url("/x/%2E%2E/y"), b"another resource"));
    let long_path = format!("/{long}.pdf");
    server.file(&long_path, "long");
    entries.push_str(&entry_of(&server.url(&long_path), b"long"));
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "");
    for (path, name) in paths {
        let found = mirror.path(name);
        assert_eq!(mirror.read(name).unwrap_or_else(|e| panic!("{name}: {e}")), path.as_bytes());
        assert_eq!(xattr(&found, "user.xdg.origin.url"), Some(server.url(path)), "{name}");
    }
    let far = format!("@{}/far", other.address());
    assert_eq!(mirror.read(&far).unwrap(), b"far");
    let cut = mirror.files().into_iter().find(|name| name.starts_with("longlong")).unwrap();
    assert!(cut.len() == 255 && cut.ends_with(".pdf") && cut.contains('~'), "{cut}");
    assert_eq!(mirror.read(&cut).unwrap(), b"long");
    assert!(mirror.read("x/%2E%2E/y").is_err(), "no URI is rewritten on the way");
    assert!(mirror.errors().contains("would be resolved on the way"), "{}", mirror.errors());
    assert_eq!(mirror.files().len(), paths.len() + 3);
}

/// Names of files as people give them.
const ODD: [&str; 27] = [
    "a b",
    "été",
    "日本語",
    "f(1).pdf",
    "it's",
    "a&b",
    "a+b",
    "a,b",
    "a;b",
    "a=b",
    "a@b",
    "a:b",
    "a!b",
    "a~b",
    "a[b]",
    "a{b}",
    "a|b",
    "a^b",
    "a`b",
    "a\"b",
    "a<b>",
    "100%",
    "a%zz",
    "a\\b",
    "$a",
    "*a",
    "Straße.txt",
];

/// As `urllib.parse.quote` of Python escapes a name.
fn quote(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[test]
fn odd_names_are_plain_and_can_be_read_however_their_uris_are_escaped() {
    let server = Server::start();
    let mut entries = String::new();
    for name in ODD {
        let lower = quote(name).split('%').enumerate().fold(String::new(), |text, (part, rest)| match part {
            0 => rest.to_owned(),
            _ => format!("{text}%{}{}", rest[..2].to_ascii_lowercase(), &rest[2..]),
        });
        // What is no URI is sent as one.
        let sent =
            url::Url::parse(&server.url(&format!("/raw/{}", name.replace('%', "%25").replace('\\', "%5C")))).unwrap();
        server.file(sent.path(), name);
        entries.push_str(&entry_of(&server.url(&format!("/raw/{name}")), name.as_bytes()));
        for (folder, spelled) in [("quote", quote(name)), ("lower", lower)] {
            let path = format!("/{folder}/{spelled}");
            server.file(&path, name);
            entries.push_str(&entry_of(&server.url(&path), name.as_bytes()));
        }
    }
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "");
    for name in ODD {
        for folder in ["raw", "quote", "lower"] {
            let shown = format!("{folder}/{}", name.replace('%', "%25"));
            assert_eq!(mirror.read(&shown).unwrap_or_else(|error| panic!("{shown}: {error}")), name.as_bytes());
        }
    }
    assert_eq!(mirror.files().len(), 3 * ODD.len());
}

#[test]
fn two_spellings_of_a_name_are_two_files_and_keep_their_paths() {
    let server = Server::start();
    let uris = ["/A.txt", "/%41.txt"];
    for uri in uris {
        server.file(uri, uri);
    }
    server.source(AT, &entry_of(&server.url(uris[1]), uris[1].as_bytes()));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.read("A.txt").unwrap(), uris[1].as_bytes());
    let both: String = uris.iter().map(|uri| entry_of(&server.url(uri), uri.as_bytes())).collect();
    server.source(LATER, &both);
    output(&["refresh", &mirror.directory.to_string_lossy()]);
    let files = mirror.files();
    assert!(
        files.len() == 2 && files[0] == "A.txt" && files[1].starts_with("A~") && files[1].ends_with(".txt"),
        "{files:?}"
    );
    assert_eq!(mirror.read("A.txt").unwrap(), uris[1].as_bytes());
    assert_eq!(mirror.read(&files[1]).unwrap(), uris[0].as_bytes());
    assert_eq!(xattr(&mirror.path("A.txt"), "user.xdg.origin.url"), Some(server.url(uris[1])));
    assert_eq!(xattr(&mirror.path(&files[1]), "user.xdg.origin.url"), Some(server.url(uris[0])));
    output(&["audit", &mirror.directory.to_string_lossy()]);
    // Audit names the file that differs, not the one with the plain name.
    server.source(LATER, &both.replace(&crate::support::sha256(uris[0].as_bytes()), &crate::support::sha256(b"other")));
    let audit = text(&run(&["audit", &mirror.directory.to_string_lossy()]));
    assert!(audit.contains(&files[1]) && !audit.contains(" A.txt"), "{audit}");
}

#[test]
fn versions_of_a_respelled_resource_that_is_a_directory_have_its_uri() {
    let server = Server::start();
    let url = server.url("/%41");
    for (path, body) in [("/%41", "now"), ("/%41/b", "b"), ("/memento", "then")] {
        server.file(path, body);
    }
    let memento = format!(
        "<rs:ln rel=\"memento\" href=\"{}\" modified=\"2020-01-01T00:00:00Z\" {}/></url>",
        server.url("/memento"),
        crate::support::facts_of(b"then")
    );
    let entries = entry_of(&url, b"now").replace("</url>", &memento) + &entry_of(&server.url("/%41/b"), b"b");
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files(), ["A/@self", "A/b"]);
    let names = mirror.names(".versions/A/@self");
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let version = mirror.path(&format!(".versions/A/@self/{name}"));
        assert_eq!(xattr(&version, "user.xdg.origin.url"), Some(url.clone()), "{name}");
    }
}

#[test]
fn pages_are_called_as_the_option_says() {
    let server = Server::start();
    let pages = [("/", "index.html"), ("/a/", "a/index.html"), ("/b/index.html", "b/index.html")];
    for (path, _) in pages {
        server.file(path, path);
    }
    let entries: String = pages.iter().map(|(path, _)| entry_of(&server.url(path), path.as_bytes())).collect();
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/.well-known/resourcesync"), "index=index.html");
    for (path, name) in pages {
        assert_eq!(mirror.read(name).unwrap(), path.as_bytes());
        assert_eq!(xattr(&mirror.path(name), "user.xdg.origin.url"), Some(server.url(path)));
    }
    assert_eq!(mirror.files(), ["a/index.html", "b/index.html", "index.html"]);
}

#[test]
fn attributes_are_what_the_source_says() {
    let server = Server::start();
    let body = b"text".as_slice();
    server.file("/a", body);
    let links = format!(
        "<rs:ln rel=\"describedby\" href=\"{0}\"/><rs:ln rel=\"collection\" href=\"http://c.example/1\"/>\
         <rs:ln rel=\"collection\" href=\"http://c.example/2\"/>",
        server.url("/meta")
    );
    let md = format!(
        "hash=\"md5:{}\" length=\"4\" type=\"text/plain\" change=\"updated\" datetime=\"2013-01-02T03:04:05.5Z\"",
        crate::support::md5(body)
    );
    let one = format!(
        "<url><loc>{}</loc><lastmod>2012-12-31T23:00:00+01:00</lastmod><rs:md {md}/>{links}</url>",
        server.url("/a")
    );
    let undated = entry(&server.url("/undated"), "length=\"7\"");
    let changed = entry(&server.url("/changed"), "length=\"7\" datetime=\"2013-01-02T03:04:05Z\"");
    server.source(AT, &(one + &undated + &changed));
    let mirror = Mirror::mount(&server.url("/"), "umask=027,uid=12,gid=34");
    let a = std::fs::metadata(mirror.path("a")).unwrap();
    assert_eq!((a.len(), a.mtime(), a.mode() & 0o7777, a.uid(), a.gid()), (4, 1_356_991_200, 0o440, 12, 34));
    assert_eq!(std::fs::metadata(&mirror.directory).unwrap().mode() & 0o7777, 0o550);
    let time = |name: &str| std::fs::metadata(mirror.path(name)).unwrap().mtime();
    assert_eq!(time("undated"), 1_767_323_045, "the list's at");
    assert_eq!(time("changed"), 1_357_095_845, "the change's datetime");
    for (name, value) in [
        ("user.mime_type", "text/plain"),
        ("user.resourcesync.lastmod", "2012-12-31T23:00:00+01:00"),
        ("user.resourcesync.datetime", "2013-01-02T03:04:05.5Z"),
        ("user.resourcesync.change", "updated"),
        ("user.resourcesync.length", "4"),
        ("user.resourcesync.collection", "http://c.example/1\nhttp://c.example/2"),
    ] {
        assert_eq!(xattr(&mirror.path("a"), name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(xattr(&mirror.path("a"), "user.resourcesync.describedby"), Some(server.url("/meta")));
    let listed = shell(&format!("getfattr --absolute-names {}/a", mirror.directory.display()));
    assert!(listed.contains("user.xdg.origin.url"), "{listed}");
}

#[test]
fn every_write_is_refused_as_on_a_read_only_file_system() {
    let server = Server::start();
    server.file("/d/a", "text");
    server.source(AT, &entry_of(&server.url("/d/a"), b"text"));
    let mirror = Mirror::mount(&server.url("/"), "rw");
    let mount = mirror.directory.display();
    for command in [
        format!("echo x > {mount}/d/a"),
        format!("echo x >> {mount}/d/a"),
        format!("echo x > {mount}/new"),
        format!("rm {mount}/d/a"),
        format!("mkdir {mount}/x"),
        format!("rmdir {mount}/d"),
        format!("mv {mount}/d/a {mount}/b"),
        format!("ln {mount}/d/a {mount}/b"),
        format!("ln -s x {mount}/b"),
        format!("chmod 600 {mount}/d/a"),
        format!("touch {mount}/d/a"),
        format!("truncate -s 0 {mount}/d/a"),
        format!("setfattr -n user.x -v y {mount}/d/a"),
        format!("mknod {mount}/p p"),
    ] {
        let output = std::process::Command::new("bash").args(["-c", &command]).output().unwrap();
        assert!(
            !output.status.success() && text(&output).contains("Read-only file system"),
            "{command}: {}",
            text(&output)
        );
    }
    assert_eq!(mirror.read("d/a").unwrap(), b"text");
}

#[test]
fn our_own_directory_is_reached_by_name_and_listed_when_asked() {
    let server = Server::start();
    server.file("/a", "text");
    server.source(AT, &entry_of(&server.url("/a"), b"text"));
    let mirror = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files(), ["a"]);
    let metrics = String::from_utf8(mirror.read(".resourcesync/metrics").unwrap()).unwrap();
    assert!(metrics.contains("resourcesync_resources 1\n") && metrics.ends_with("# EOF\n"), "{metrics}");
    let names = shell(&format!("ls {}/.resourcesync", mirror.directory.display()));
    assert_eq!(names.split_whitespace().collect::<Vec<_>>(), ["collections", "links", "metrics", "status.json"]);
    mirror.read("a").unwrap();
    mirror.wait("what was read", |status| status["cached"]["resources"] == 1);
    let visible = Mirror::mount(&server.url("/"), "visible");
    assert!(shell(&format!("ls -a {}", visible.directory.display())).contains(".resourcesync"));
}

#[test]
fn a_tree_follows_its_source_and_open_files_keep_their_version() {
    let server = Server::start();
    let body = |name: &str, edition: u64| format!("{name} edition {edition} {}", scramble(edition)).into_bytes();
    let publish = |at: &str, names: &[(&str, u64)]| {
        let mut entries = String::new();
        for (name, edition) in names {
            server.file(&format!("/{name}"), body(name, *edition));
            entries.push_str(&entry_of(&server.url(&format!("/{name}")), &body(name, *edition)));
        }
        server.source(at, &entries);
    };
    publish(AT, &[("d/kept", 1), ("d/changed", 1), ("d/gone", 1), ("e/all", 1)]);
    let mirror = Mirror::mount(&server.url("/"), "");
    let before: BTreeMap<String, u64> = mirror
        .files()
        .into_iter()
        .map(|name| (name.clone(), std::fs::metadata(mirror.path(&name)).unwrap().ino()))
        .collect();
    let mut open = std::fs::File::open(mirror.path("d/changed")).unwrap();
    let mut start = [0; 3];
    open.read_exact(&mut start).unwrap();
    assert!(!mirror.path("f/new").exists(), "and the kernel remembers that");
    publish(LATER, &[("d/kept", 1), ("d/changed", 2), ("f/new", 2)]);
    let said = output(&["refresh", &mirror.directory.to_string_lossy()]);
    assert!(said.contains("1 added, 1 updated, 2 deleted"), "{said}");
    // The kernel is told from a thread of its own.
    for _ in 0..100 {
        if mirror.path("f/new").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(mirror.files(), ["d/changed", "d/kept", "f/new"]);
    assert_eq!(mirror.read("d/changed").unwrap(), body("d/changed", 2));
    assert_eq!(mirror.read("f/new").unwrap(), body("f/new", 2));
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert_eq!([&start[..], &rest[..]].concat(), body("d/changed", 1), "an open file keeps its version");
    drop(open);
    let ino = |name: &str| std::fs::metadata(mirror.path(name)).unwrap().ino();
    assert_eq!(ino("d/kept"), before["d/kept"], "an inode is a version");
    assert_ne!(ino("d/changed"), before["d/changed"]);
    let requests = server.requests().len();
    mirror.remount();
    assert_eq!(ino("d/kept"), before["d/kept"], "also after a remount");
    assert_eq!(mirror.files(), ["d/changed", "d/kept", "f/new"]);
    let after = server.requests();
    let lists = after[requests..].iter().filter(|request| request.path == "/resourcelist.xml").collect::<Vec<_>>();
    assert!(lists.iter().all(|request| request.header("if-none-match").is_some()), "{lists:?}");
    assert_eq!(after[requests..].iter().filter(|request| request.path.starts_with("/d/")).count(), 0);
}

#[test]
fn a_resource_becomes_a_directory_and_a_file_again() {
    let server = Server::start();
    let publish = |at: &str, names: &[&str]| {
        let mut entries = String::new();
        for name in names {
            server.file(name, name.as_bytes());
            entries.push_str(&entry_of(&server.url(name), name.as_bytes()));
        }
        server.source(at, &entries);
    };
    publish(AT, &["/a", "/c"]);
    let mirror = Mirror::mount(&server.url("/"), "");
    let ino = std::fs::metadata(mirror.path("a")).unwrap().ino();
    assert_eq!(mirror.read("a").unwrap(), b"/a");
    publish("2026-02-02T00:00:00Z", &["/a", "/a/b", "/a/b/c", "/c"]);
    mirror.refresh();
    assert_eq!(mirror.files(), ["a/@self", "a/b/@self", "a/b/c", "c"]);
    assert_eq!(std::fs::metadata(mirror.path("a/@self")).unwrap().ino(), ino, "the same version");
    assert_eq!(mirror.read("a/b/@self").unwrap(), b"/a/b");
    assert_eq!(xattr(&mirror.path("a/@self"), "user.xdg.origin.url"), Some(server.url("/a")));
    publish("2026-03-02T00:00:00Z", &["/a", "/c"]);
    mirror.refresh();
    assert_eq!(mirror.files(), ["a", "c"]);
    assert_eq!(std::fs::metadata(mirror.path("a")).unwrap().ino(), ino);
    assert_eq!(mirror.read("a").unwrap(), b"/a");
}

#[test]
fn random_editions_always_end_as_a_fresh_mount_would() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    let server = Server::start();
    let mut state = seed;
    let mut random = |below: u64| {
        state = scramble(state);
        state % below
    };
    // Few names, one inside the other, so that files and directories take turns.
    let names: Vec<String> = ["a", "a/a", "a/a/a", "a/b", "b", "b/", "b/a", "c?q", "c", "d/e/f", "d/e", "d"]
        .into_iter()
        .map(|name| format!("/{name}"))
        .collect();
    let mut live: BTreeMap<String, u64> = BTreeMap::new();
    let mut mirror: Option<Mirror> = None;
    for edition in 1..=25_u64 {
        for name in &names {
            match random(4) {
                0 => drop(live.remove(name)),
                1 => drop(live.insert(name.clone(), edition)),
                _ => {}
            }
        }
        let mut entries = Vec::new();
        for (name, edition) in &live {
            let body = format!("{name} {edition}");
            server.file(name, body.as_bytes());
            entries.push((random(1000), entry_of(&server.url(name), body.as_bytes())));
        }
        entries.sort();
        let entries: String = entries.into_iter().map(|(_, entry)| entry).collect();
        server.source(&format!("2026-01-{edition:02}T00:00:00Z"), &entries);
        let mirror = mirror.get_or_insert_with(|| Mirror::mount(&server.url("/"), ""));
        output(&["refresh", "--accept-deletions", &mirror.directory.to_string_lossy()]);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let fresh = Mirror::mount(&server.url("/"), "");
        // The rules, in words of their own.
        let is_prefix = |name: &str| live.keys().any(|other| other.starts_with(&format!("{name}/")));
        let mut expected: Vec<String> = live
            .keys()
            .map(|name| match &name[1..] {
                directory if directory.ends_with('/') => format!("{directory}@index"),
                file if is_prefix(name) => format!("{file}/@self"),
                file => file.to_owned(),
            })
            .collect();
        expected.sort();
        assert_eq!(fresh.files(), expected, "SEED={seed}, edition {edition}, {live:?}");
        assert_eq!(mirror.files(), expected, "SEED={seed}, edition {edition}, {live:?}");
        for name in fresh.files() {
            assert_eq!(
                mirror.read(&name).unwrap(),
                fresh.read(&name).unwrap(),
                "SEED={seed}, edition {edition}, {name}"
            );
        }
        assert_eq!(mirror.status()["resources"].as_u64(), Some(live.len() as u64), "SEED={seed}, edition {edition}");
    }
}

#[test]
fn several_sets_are_directories_and_one_can_be_chosen() {
    let server = Server::start();
    let sets = ["one", "two"];
    for set in sets {
        let path = format!("/{set}/x");
        server.file(&path, set);
        let list = resource_list(AT, &entry_of(&server.url(&path), set.as_bytes()));
        server.file(&format!("/{set}/resourcelist.xml"), list);
        let list = capability(&server.url(&format!("/{set}/resourcelist.xml")), "resourcelist");
        server.file(&format!("/{set}/capabilitylist.xml"), document("capabilitylist", "", "", &list));
    }
    let lists: String =
        sets.map(|set| capability(&server.url(&format!("/{set}/capabilitylist.xml")), "capabilitylist")).concat();
    server.file("/.well-known/resourcesync", document("description", "", "", &lists));
    let all = Mirror::mount(&server.url("/"), "");
    assert_eq!(all.files(), ["one/one/x", "two/two/x"]);
    assert_eq!(all.read("two/two/x").unwrap(), b"two");
    let one = Mirror::mount(&server.url("/"), "set=one");
    assert_eq!(one.files(), ["one/x"]);
    let none = Mirror::prepare(&server.url("/"), "set=three");
    let output = none.try_mount();
    assert!(text(&output).contains("there is no such set; the Source has: one, two"), "{}", text(&output));
    let more = format!("{lists}{}", capability(&server.url("/three/capabilitylist.xml"), "capabilitylist"));
    server.file(
        "/three/capabilitylist.xml",
        document("capabilitylist", "", "", &capability(&server.url("/one/resourcelist.xml"), "resourcelist")),
    );
    server.file("/.well-known/resourcesync", document("description", "", "", &more));
    all.refresh();
    assert_eq!(all.files(), ["one/one/x", "two/two/x"], "no path ever moves");
    assert!(all.status()["warnings"].to_string().contains("has a new set"), "and the new set is reported");
}

#[test]
fn what_the_field_publishes_is_read() {
    let server = Server::start();
    server.file("/x", "text");
    let x = entry_of(&server.url("/x"), b"text");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gz, resource_list(AT, &x).as_bytes()).unwrap();
    server.file("/list.xml.gz", gz.finish().unwrap());
    let plain = format!(
        "<?xml version='1.0'?><urlset xmlns='http://www.google.com/schemas/sitemap/0.84'><url><loc>\n {} \n</loc></url></urlset>",
        server.url("/x")
    );
    server.file("/sitemap.xml", plain);
    server.file(
        "/urlset-index.xml",
        document("resourcelist", &format!("at=\"{AT}\""), "", &capability(&server.url("/list.xml.gz"), "resourcelist")),
    );
    server.file("/relative.xml", resource_list(AT, "<url><loc>x</loc></url>"));
    server.file("/no-zone.xml", resource_list("2026-01-02T03:04:05", &x));
    server.file(
        "/two.xml",
        document(
            "capabilitylist",
            "",
            "",
            &(capability(&server.url("/list.xml.gz"), "resourcelist")
                + &capability(&server.url("/relative.xml"), "resourcelist")),
        ),
    );
    server.file(
        "/unnamed.xml",
        document(
            "capabilitylist",
            "",
            "",
            &(entry(&server.url("/list.xml.gz"), "") + &entry(&server.url("/dump.zip"), "")),
        ),
    );
    server.file("/dump.zip", b"PK\x03\x04".as_slice());
    server.on("/bogus-up.xml", {
        let list = document(
            "resourcelist",
            &format!("at=\"{AT}\""),
            &format!("<rs:ln rel=\"up\" href=\"{}\"/>", server.url("/none.xml")),
            &x,
        );
        move |request| Reply::good(request, list.as_bytes())
    });
    for path in [
        "/list.xml.gz",
        "/sitemap.xml",
        "/urlset-index.xml",
        "/relative.xml",
        "/no-zone.xml",
        "/two.xml",
        "/unnamed.xml",
        "/bogus-up.xml",
    ] {
        let mirror = Mirror::mount(&server.url(path), "");
        assert_eq!(mirror.files(), ["x"], "{path}");
        assert_eq!(mirror.read("x").unwrap(), b"text", "{path}");
    }
}

#[test]
fn a_cache_is_used_by_one_mount_at_a_time() {
    let server = Server::start();
    server.file("/a", "text");
    server.source(AT, &entry_of(&server.url("/a"), b"text"));
    let mirror = Mirror::mount(&server.url("/"), "");
    let other = Mirror::prepare(&server.url("/"), "");
    let options = format!("cache={}", mirror.cache.display());
    let began = std::time::Instant::now();
    let output = run(&["mount", &server.url("/"), &other.directory.to_string_lossy(), "-o", &options]);
    assert_eq!(output.status.code(), Some(32));
    assert!(text(&output).contains("is in use by process") && text(&output).contains("mirror"), "{}", text(&output));
    assert!(began.elapsed().as_secs_f32() >= 4.5, "it may be about to end: {:?}", began.elapsed());
    mirror.unmount();
    let output = run(&["mount", &server.url("/resourcelist.xml"), &other.directory.to_string_lossy(), "-o", &options]);
    assert!(text(&output).contains("give this mount another cache=DIR"), "{}", text(&output));
}

#[test]
fn a_damaged_cache_and_one_of_a_later_version_are_clear_errors() {
    let server = Server::start();
    server.file("/a", "text");
    server.source(AT, &entry_of(&server.url("/a"), b"text"));
    let mirror = Mirror::mount(&server.url("/"), "");
    mirror.unmount();
    let database = mirror.cache.join("catalog.db");
    let good = std::fs::read(&database).unwrap();
    let mut later = good.clone();
    later[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&database, later).unwrap();
    let said = text(&mirror.try_mount());
    assert!(said.contains("has schema 99, newer than the"), "{said}");
    std::fs::write(&database, b"no database at all, but long enough to look at".repeat(100)).unwrap();
    let said = text(&mirror.try_mount());
    assert!(said.contains("is damaged") && said.contains("remove the cache directory"), "{said}");
    std::fs::write(&database, good).unwrap();
    assert!(mirror.try_mount().status.success());
    assert_eq!(mirror.read("a").unwrap(), b"text");
}

#[test]
fn a_complete_mirror_stays_complete() {
    let server = Server::start();
    let publish = |at: &str, count: u64| {
        let mut entries = String::new();
        for number in 0..count {
            let path = format!("/{number}");
            server.file(&path, path.as_bytes());
            entries.push_str(&entry_of(&server.url(&path), path.as_bytes()));
        }
        server.source(at, &entries);
    };
    publish(AT, 5);
    let mirror = Mirror::mount(&server.url("/"), "content=all,wait=0");
    mirror.wait("the first five", |status| status["cached"]["resources"] == 5);
    publish(LATER, 9);
    mirror.refresh();
    mirror.wait("the new four", |status| status["cached"]["resources"] == 9);
    publish("2026-03-02T00:00:00Z", 12);
    mirror.remount();
    mirror.wait("what came while it was away", |status| status["cached"]["resources"] == 12);
    let said = output(&["mount", "x", &mirror.directory.to_string_lossy(), "-o", "remount,poll=1"]);
    assert_eq!(said, "");
    publish("2026-04-02T00:00:00Z", 15);
    mirror.wait("what the poll found", |status| status["cached"]["resources"] == 15);
}

#[test]
fn offline_serves_what_is_there_and_asks_for_nothing() {
    let server = Server::start();
    for path in ["/a", "/b"] {
        server.file(path, path.as_bytes());
    }
    server.source(AT, &(entry_of(&server.url("/a"), b"/a") + &entry_of(&server.url("/b"), b"/b")));
    let mut mirror = Mirror::mount(&server.url("/"), "");
    mirror.read("a").unwrap();
    mirror.unmount();
    let before = server.requests().len();
    mirror.set_options("offline");
    assert!(mirror.try_mount().status.success());
    assert_eq!(mirror.read("a").unwrap(), b"/a");
    assert_eq!(mirror.read("b").unwrap_err().raw_os_error(), Some(5));
    assert!(mirror.errors().contains("the mount is offline"), "{}", mirror.errors());
    assert_eq!(mirror.status()["state"], "offline");
    assert!(text(&mirror.refresh()).contains("the mount is offline"));
    assert_eq!(server.requests().len(), before);
}

#[test]
fn kills_at_any_moment_lose_nothing_and_repeat_nothing() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    let server = Server::start();
    let publish = |edition: u64| {
        let mut entries = String::new();
        for number in edition * 20..edition * 20 + 400 {
            let path = format!("/{}/{number}", number % 7);
            let body = format!("{number} {}", number / 3 * edition % 5);
            server.file(&path, body.as_bytes());
            entries.push_str(&entry_of(&server.url(&path), body.as_bytes()));
        }
        server.source(&format!("2026-01-{edition:02}T00:00:00Z"), &entries);
    };
    publish(1);
    let mirror = Mirror::mount(&server.url("/"), "content=all");
    for edition in 2..=16 {
        publish(edition);
        let directory = mirror.directory.to_string_lossy().into_owned();
        let refresh = std::thread::spawn(move || run(&["refresh", &directory]));
        std::thread::sleep(std::time::Duration::from_millis(scramble(seed + edition) % 120));
        mirror.kill();
        let _ = refresh.join();
        assert!(mirror.try_mount().status.success(), "SEED={seed}");
    }
    // Where no edition before it came to be, the last one leaves out more than half.
    let directory = mirror.directory.to_string_lossy().into_owned();
    assert!(run(&["refresh", "--accept-deletions", &directory]).status.success());
    let fresh = Mirror::mount(&server.url("/"), "");
    assert_eq!(mirror.files(), fresh.files(), "SEED={seed}");
    for name in fresh.files() {
        assert_eq!(mirror.read(&name).unwrap(), fresh.read(&name).unwrap(), "SEED={seed}, {name}");
    }
    assert_eq!(mirror.status()["resources"], 400, "SEED={seed}");
}
