//! Where the links of resources lead: `.resourcesync/links`, `.resourcesync/collections`, and `log`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::library::{Book, offer_changes, publish};
use crate::support::server::Server;
use crate::support::{Mirror, entry_of, output, resource_list, shell};

const AT: &str = "2020-01-01T00:00:00Z";

fn library(count: usize) -> (Server, Vec<Book>, Mirror) {
    let server = Server::start();
    let books: Vec<Book> = (0..count).map(|n| Book::of(&server, n)).collect();
    publish(&server, &books, AT);
    offer_changes(&server, AT, "");
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    (server, books, mirror)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|one| one.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What the views have to show of these books.
fn holds(mirror: &Mirror, books: &[Book], step: usize) {
    let links = mirror.path(".resourcesync/links");
    for book in books.iter().step_by(step) {
        let own = links.join(&book.path[1..]);
        let mut expected = vec!["collection", "describedby"];
        expected.extend(book.alternate.as_ref().map(|_| "alternate"));
        expected.sort_unstable();
        assert_eq!(names(&own), expected, "{}", book.path);
        // Where the target is in the mirror, the link leads there; else it is a file with the URI.
        let described = own.join("describedby");
        match book.described_by.split_once("/meta/") {
            Some((_, name)) => {
                assert!(fs::symlink_metadata(&described).unwrap().is_symlink(), "{}", described.display());
                assert_eq!(described.canonicalize().unwrap(), mirror.path("meta").join(name));
                let about = fs::read_to_string(&described).unwrap();
                assert!(
                    about.starts_with("<about>/data/")
                        && about.contains(&format!("/{}.", name.trim_end_matches(".xml")))
                );
            }
            None => {
                assert!(fs::symlink_metadata(&described).unwrap().is_file());
                assert_eq!(fs::read_to_string(&described).unwrap(), format!("{}\n", book.described_by));
            }
        }
        assert_eq!(fs::read_to_string(own.join("collection")).unwrap(), format!("{}\n", book.collection));
        if let Some((url, _)) = &book.alternate {
            assert_eq!(fs::read_to_string(own.join("alternate")).unwrap(), format!("{url}\n"));
        }
    }
}

/// What the collections have to show of these books.
fn collects(mirror: &Mirror, books: &[Book], step: usize) {
    let mut members: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for book in books {
        let name = book.collection.rsplit('/').next().unwrap();
        members.entry(name).or_default().push(book.path[1..].replace('/', "%2F"));
    }
    let collections = mirror.path(".resourcesync/collections");
    assert_eq!(names(&collections), members.keys().copied().collect::<Vec<_>>());
    for (name, mut expected) in members {
        expected.sort();
        assert_eq!(names(&collections.join(name)), expected, "{name}");
        for member in expected.iter().step_by(step) {
            let at = collections.join(name).join(member);
            assert!(fs::symlink_metadata(&at).unwrap().is_symlink());
            assert_eq!(at.canonicalize().unwrap(), mirror.path(&member.replace("%2F", "/")));
        }
    }
}

#[test]
fn five_thousand_resources_and_their_relations() {
    let (server, mut books, mirror) = library(5000);
    holds(&mirror, &books, 31);
    collects(&mirror, &books, 31);
    // Tools find their way through it.
    let at = mirror.path(".resourcesync/links/data/7").display().to_string();
    assert_eq!(shell(&format!("find {at} -name describedby | wc -l")).trim(), "100");
    assert_eq!(
        shell(&format!("ls {} | wc -l", mirror.path(".resourcesync/collections/monographs").display())).trim(),
        "1667"
    );
    // A change brings another collection, another description, and one book less.
    let other = Book::of(&server, 1);
    books[0].collection = "http://library.example/new".to_owned();
    books[0].described_by = "http://elsewhere.example/0.rdf".to_owned();
    books[3].described_by = server.url("/meta/2.xml");
    books[3].alternate = Some((server.url("/alternates/3.json"), "application/json"));
    let told = |book: &Book, second: u32| {
        let md = format!("<rs:md change=\"updated\" datetime=\"2020-01-02T00:00:{second:02}Z\" ");
        book.in_list(&server).replace("<rs:md ", &md)
    };
    let gone = format!(
        "<url><loc>{}</loc><rs:md change=\"deleted\" datetime=\"2020-01-02T00:00:03Z\"/></url>",
        server.url(&other.path)
    );
    offer_changes(&server, AT, &(told(&books[0], 1) + &told(&books[3], 2) + &gone));
    mirror.refreshed();
    books.remove(1);
    holds(&mirror, &books, 37);
    collects(&mirror, &books, 37);
    holds(&mirror, &[&books[..1], &books[2..3]].concat(), 1);
    assert!(!mirror.path(&format!(".resourcesync/links{}", other.path)).exists());
    // What nobody looks at is no part of the tree, and costs no request.
    assert_eq!(mirror.names(".resourcesync"), ["collections", "links", "metrics", "status.json"]);
    assert!(!shell(&format!("find {} -type d", mirror.directory.display())).contains(".resourcesync"));
    let log = output(&["log", &mirror.path(&books[0].path[1..]).to_string_lossy()]);
    assert!(log.contains("described by http://elsewhere.example/0.rdf"), "{log}");
}

#[test]
fn odd_links_have_their_place() {
    let server = Server::start();
    let uris = ["/a", "/a/b", "/dir/", "/x%2Fy"];
    let mut entries = String::new();
    for uri in uris {
        server.file(uri, uri);
        let links: String = uris
            .iter()
            .map(|to| format!("<rs:ln rel=\"related http://x.example/rel/own\" href=\"{}\"/>", server.url(to)))
            .chain(["<rs:ln rel=\"via\" href=\"http://x.example/source\"/><rs:ln rel=\"via\" href=\"a\"/><rs:ln rel=\"..\" href=\"/a\"/>".to_owned()])
            .collect();
        entries += &entry_of(&server.url(uri), uri.as_bytes()).replace("</url>", &format!("{links}</url>"));
    }
    server.source(AT, &entries);
    server.file("/resourcelist.xml", resource_list(AT, &entries));
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let paths = ["a/@self", "a/b", "dir/@index", "x%2Fy"];
    assert_eq!(mirror.files(), paths);
    for path in paths {
        let own = mirror.path(".resourcesync/links").join(path);
        let relations = ["related", "http:%2F%2Fx.example%2Frel%2Fown"];
        let mut expected: Vec<String> = relations
            .iter()
            .flat_map(|name| (1..=4).map(move |n| if n == 1 { (*name).to_owned() } else { format!("{name}~{n}") }))
            .chain(["..~".to_owned(), "via".to_owned(), "via~2".to_owned()])
            .collect();
        expected.sort();
        assert_eq!(names(&own), expected, "{path}");
        for (n, to) in paths.iter().enumerate() {
            let name = if n == 0 { "related".to_owned() } else { format!("related~{}", n + 1) };
            assert_eq!(own.join(name).canonicalize().unwrap(), mirror.path(to), "{path}");
        }
    }
    let log = output(&["log", "--json", &mirror.path("a/b").to_string_lossy()]);
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    assert_eq!(log[0]["via"], serde_json::json!(["http://x.example/source", server.url("/a")]));
    assert!(mirror.names(".resourcesync/collections").is_empty());
}

#[test]
fn attributes_of_links_are_extended_attributes() {
    let server = Server::start();
    server.file("/a", "a");
    let links = "<rs:ln rel=\"via\" href=\"http://x.example/1\" hash=\"md5:0cc175b9c0f1b6a831c399e269772661\" length=\"1\" \
                 modified=\"2013-01-02T18:00:00Z\"/><rs:ln rel=\"via\" href=\"http://x.example/2\" type=\"text/plain\"/>";
    let entries = entry_of(&server.url("/a"), b"a").replace("</url>", &format!("{links}</url>"));
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let value = |name: &str| crate::support::xattr(&mirror.path("a"), &format!("user.resourcesync.{name}"));
    for (name, expected) in [
        ("via", "http://x.example/1\nhttp://x.example/2"),
        ("via.hash", "md5:0cc175b9c0f1b6a831c399e269772661\n"),
        ("via.length", "1\n"),
        ("via.modified", "2013-01-02T18:00:00Z\n"),
        ("via.type", "\ntext/plain"),
    ] {
        assert_eq!(value(name).as_deref(), Some(expected), "{name}");
    }
    assert_eq!(value("via.pri"), None);
}

#[test]
fn a_resource_is_found_by_its_uri_and_by_its_canonical_one() {
    let server = Server::start();
    let canonical = "https://doi.example/10.1000/a%20b?x=1";
    let links = [
        format!("<rs:ln rel=\"canonical\" href=\"{canonical}\"/>"),
        "<rs:ln rel=\"canonical\" href=\"/two\"/>".to_owned(),
    ];
    let entries: String = ["/one", "/two"]
        .iter()
        .zip(links)
        .map(|(path, link)| {
            server.file(path, *path);
            entry_of(&server.url(path), path.as_bytes()).replace("</url>", &format!("{link}</url>"))
        })
        .collect();
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let by_uri =
        |uri: &str| mirror.path(".resourcesync/uris").join(uri.replace('%', "%25").replace('/', "%2F")).canonicalize();
    assert_eq!(by_uri(&server.url("/one")).unwrap(), mirror.path("one"));
    assert_eq!(by_uri(&server.url("/two")).unwrap(), mirror.path("two"));
    assert_eq!(by_uri(canonical).unwrap(), mirror.path("one"));
    assert!(by_uri("https://doi.example/other").is_err() && by_uri("x").is_err());
    assert!(mirror.names(".resourcesync/uris").is_empty());
    // What it says is the canonical one goes with it.
    server.source("2020-01-02T00:00:00Z", &entry_of(&server.url("/two"), b"/two"));
    let accepted = crate::support::run(&["refresh", "--accept-deletions", &mirror.directory.to_string_lossy()]);
    assert!(accepted.status.success());
    assert!(by_uri(canonical).is_err());
}

#[test]
fn of_several_alternates_of_a_type_the_one_with_the_best_priority_is_taken() {
    let server = Server::start();
    server.file("/page.html", "<p>page</p>");
    let mut links = String::new();
    for (name, pri) in [("worse", "pri=\"2\""), ("best", "pri=\"1\""), ("unsaid", "")] {
        server.file(&format!("/{name}.txt"), name);
        let url = server.url(&format!("/{name}.txt"));
        links += &format!("<rs:ln rel=\"alternate\" href=\"{url}\" type=\"text/plain\" {pri}/>");
    }
    let listed = entry_of(&server.url("/page.html"), b"<p>page</p>").replace("</url>", &format!("{links}</url>"));
    server.source(AT, &listed);
    let mirror = Mirror::mount(&server.url("/"), "poll=0,prefer=text/plain");
    assert_eq!(mirror.read("page.html").unwrap(), b"best");
    assert_eq!(["/worse.txt", "/unsaid.txt", "/page.html"].map(|path| server.count(path)), [0, 0, 0]);
}

#[test]
fn an_alternate_is_taken_for_its_resource_where_that_is_preferred() {
    let server = Server::start();
    let json = |n: usize| format!("{{\"n\":{n}}}");
    let mut entries = String::new();
    for n in 0..4 {
        let (path, alternate) = (format!("/{n}.html"), format!("/{n}.json"));
        server.file(&path, format!("<p>{n}</p>"));
        server.file(&alternate, json(n));
        // One has no alternate; of one, nothing is said of its bytes.
        let said = if n == 1 { String::new() } else { crate::support::facts_of(json(n).as_bytes()) };
        let link = format!(
            "<rs:ln rel=\"alternate\" href=\"{}\" type=\"application/json; charset=utf-8\" {said}/>",
            server.url(&alternate)
        );
        let entry = entry_of(&server.url(&path), format!("<p>{n}</p>").as_bytes());
        entries += &if n == 2 { entry } else { entry.replace("</url>", &format!("{link}</url>")) };
    }
    server.source(AT, &entries);
    let mut mirror = Mirror::mount(&server.url("/"), "poll=0,prefer=application/json");
    for n in 0..4 {
        let expected = if n == 2 { format!("<p>{n}</p>") } else { json(n) };
        let path = format!("{n}.html");
        assert_eq!(fs::metadata(mirror.path(&path)).unwrap().len(), expected.len() as u64, "{n}");
        assert_eq!(String::from_utf8(mirror.read(&path).unwrap()).unwrap(), expected);
        let media = crate::support::xattr(&mirror.path(&path), "user.mime_type");
        assert_eq!(media.is_some_and(|media| media.starts_with("application/json")), n != 2, "{n}");
        assert_eq!(server.count(&format!("/{path}")) > 0, n == 2, "{n}");
    }
    let audit = output(&["audit", "--content", &mirror.directory.to_string_lossy()]);
    assert!(audit.contains("in sync"), "{audit}");
    // The cache is of these: of others it would be another.
    mirror.unmount();
    mirror.set_options("poll=0");
    let refused = mirror.try_mount();
    assert!(
        !refused.status.success() && crate::support::text(&refused).contains("prefer application/json"),
        "{}",
        crate::support::text(&refused)
    );
    mirror.set_options("poll=0,prefer=application/json");
    assert!(mirror.try_mount().status.success());
}

#[test]
fn collections_of_one_name_and_members_of_odd_names_are_told_apart() {
    let server = Server::start();
    let uris = ["/a/b", "/a%2Fb", "/q?x=%2Fy&z", "/100%25", &format!("/{}", "n".repeat(300))];
    let link = |uri: &str| format!("<rs:ln rel=\"collection\" href=\"{uri}\"/>");
    let entries: String = uris
        .iter()
        .map(|uri| {
            let both = link("http://c.example/one/set.html") + &link("/two/set");
            entry_of(&server.url(uri), b"x").replace("</url>", &format!("{both}</url>"))
        })
        .collect();
    server.source(AT, &entries);
    let mirror = Mirror::mount(&server.url("/"), "poll=0");
    let all = names(&mirror.path(".resourcesync/collections"));
    assert!(all.len() == 2 && all.iter().all(|name| name.starts_with("set~")), "{all:?}");
    let mut expected: Vec<_> = mirror.files().into_iter().map(|path| mirror.path(&path)).collect();
    expected.sort();
    for collection in &all {
        let folder = mirror.path(".resourcesync/collections").join(collection);
        let members = names(&folder);
        assert_eq!(members.iter().collect::<std::collections::BTreeSet<_>>().len(), uris.len(), "{members:?}");
        let mut led: Vec<_> = members
            .iter()
            .map(|name| folder.join(name).canonicalize().unwrap_or_else(|e| panic!("{name}: {e}")))
            .collect();
        led.sort();
        assert_eq!(led, expected);
        assert!(!folder.join("a%2Fc").exists() && !folder.join("no~such").exists());
    }
    // What `ls` calls a collection, the filter calls it, too.
    let shown = |filter: &str| {
        let remount = crate::support::run(&[
            "mount",
            "x",
            &mirror.directory.to_string_lossy(),
            "-o",
            &format!("remount,collection=,collection={filter}"),
        ]);
        assert!(remount.status.success(), "{}", crate::support::text(&remount));
        mirror.files().len()
    };
    assert_eq!((shown(&all[0]), shown("set"), shown("other"), shown(&server.url("/two/set"))), (5, 5, 0, 5));
    // Programs that look twice see the same file.
    let copy = tempfile::tempdir().unwrap();
    shell(&format!("cp -a {}/a {}", mirror.path(".resourcesync/links").display(), copy.path().display()));
    assert_eq!(fs::read_to_string(copy.path().join("a/b/collection")).unwrap(), "http://c.example/one/set.html\n");
}
