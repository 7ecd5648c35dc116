//! A part of a Source: what is left out is not shown and never fetched, and what is asked for can be changed back and forth.

use std::collections::BTreeSet;

use crate::support::library::{Book, asked, offer_changes, publish};
use crate::support::server::Server;
use crate::support::{Mirror, output, run, text};

const BOOKS: usize = 5000;
/// Where each of many mounts fetches them.
const FEW: usize = 240;
const AT: &str = "2020-01-01T00:00:00Z";

fn library(count: usize) -> (Server, Vec<Book>) {
    let server = Server::start();
    let books: Vec<Book> = (0..count).map(|n| Book::of(&server, n)).collect();
    publish(&server, &books, AT);
    (server, books)
}

/// What a mirror shows below `data`.
fn shown(mirror: &Mirror) -> BTreeSet<String> {
    mirror.files().into_iter().filter(|path| path.starts_with("data/")).collect()
}

fn paths<'b>(books: impl IntoIterator<Item = &'b Book>) -> BTreeSet<String> {
    books.into_iter().map(|book| book.path[1..].to_owned()).collect()
}

/// Changes what a mount shows.
fn filter(mirror: &Mirror, options: &str) {
    let output = run(&["mount", "x", &mirror.directory.to_string_lossy(), "-o", &format!("remount,{options}")]);
    assert!(output.status.success(), "{options}: {}", text(&output));
}

/// What a test asks for: options, and which books match.
type Case<'b> = (&'static str, Box<dyn Fn(&Book) -> bool + 'b>);

fn cases<'b>() -> Vec<Case<'b>> {
    let ends = |end: &'static str| move |book: &Book| book.path.ends_with(end);
    vec![
        ("include=*.pdf", Box::new(ends(".pdf"))),
        ("include=data/7", Box::new(|book| book.path.starts_with("/data/7/"))),
        ("include=data/*/*1.*,exclude=*.png", Box::new(|book| book.path.contains("1.") && !book.path.ends_with("png"))),
        ("exclude=**/1?/**", Box::new(|book| !(book.path.starts_with("/data/1") && book.path.as_bytes()[8] == b'/'))),
        (
            "type=image/*,type=text/html",
            Box::new(|book| book.media.starts_with("image/") || book.media.starts_with("text/html")),
        ),
        ("collection=monographs", Box::new(|book| book.collection.ends_with("monographs"))),
        ("collection=http://library.example/journals/2", Box::new(|book| book.collection.ends_with("/2"))),
        ("newer=2015-01-11", Box::new(|book| book.modified.as_str() >= "2015-01-11T00:00:00Z")),
        (
            "newer=2018,type=application/pdf,collection=1",
            Box::new(|book| {
                book.modified.as_str() >= "2018" && book.media == "application/pdf" && book.collection.ends_with("/1")
            }),
        ),
    ]
}

#[test]
fn what_is_left_out_is_not_shown_and_not_fetched() {
    let (server, books) = library(FEW);
    for (options, admits) in cases() {
        let before = asked(&server, books.iter().map(|book| book.path.as_str()));
        let mirror = Mirror::mount(&server.url("/"), &format!("poll=0,content=all,{options}"));
        let wanted: Vec<&Book> = books.iter().filter(|book| admits(book)).collect();
        assert!(!wanted.is_empty() && wanted.len() < books.len(), "{options}");
        assert_eq!(shown(&mirror), paths(wanted.iter().copied()), "{options}");
        let status = mirror.wait("the content", |status| status["cached"]["resources"] == status["resources"]);
        let left_out = status["sets"][0]["left_out"].as_u64().unwrap() + status["resources"].as_u64().unwrap();
        assert_eq!(left_out, (FEW + FEW / 2) as u64, "{options}");
        // Not one of the others was asked for, be it for its size or its bytes.
        assert_eq!(asked(&server, books.iter().map(|book| book.path.as_str())) - before, wanted.len(), "{options}");
        for book in wanted.iter().step_by(97) {
            assert_eq!(mirror.read(&book.path[1..]).unwrap(), book.body, "{options}");
        }
        let other = books.iter().find(|book| !admits(book)).unwrap();
        assert_eq!(mirror.read(&other.path[1..]).unwrap_err().kind(), std::io::ErrorKind::NotFound, "{options}");
        let past = format!(".versions/@2019-12-31T00:00:00Z{}", other.path);
        assert_eq!(mirror.read(&past).unwrap_err().kind(), std::io::ErrorKind::NotFound, "{options}");
        assert!(mirror.names(".versions/@2019-12-31/data").len() <= mirror.names("data").len(), "{options}");
    }
}

#[test]
fn what_is_asked_for_is_changed_back_and_forth_without_fetching_anything_anew() {
    let (server, books) = library(BOOKS);
    let mut mirror = Mirror::mount(&server.url("/"), "poll=0,content=all");
    mirror.wait("the content", |status| status["cached"]["resources"] == status["resources"]);
    let all = shown(&mirror);
    assert_eq!(all.len(), BOOKS);
    let requests = server.requests().len();
    let syncs = mirror.log("");
    for (options, admits) in cases() {
        filter(&mirror, options);
        let wanted: Vec<&Book> = books.iter().filter(|book| admits(book)).collect();
        assert_eq!(shown(&mirror), paths(wanted.iter().copied()), "{options}");
        assert_eq!(mirror.read(&wanted[0].path[1..]).unwrap(), wanted[0].body);
        // And all of it again.
        filter(&mirror, "include=,exclude=,type=,collection=,newer=");
        assert_eq!(shown(&mirror), all, "after {options}");
    }
    // Over a new mount, as well.
    let (options, admits) = cases().swap_remove(5);
    mirror.unmount();
    mirror.set_options(&format!("poll=0,content=all,{options}"));
    assert!(mirror.try_mount().status.success());
    assert_eq!(shown(&mirror), paths(books.iter().filter(|book| admits(book))));
    mirror.unmount();
    mirror.set_options("poll=0,content=all");
    assert!(mirror.try_mount().status.success());
    assert_eq!(shown(&mirror), all);
    for book in books.iter().step_by(211) {
        assert_eq!(mirror.read(&book.path[1..]).unwrap(), book.body);
    }
    // Nothing was asked for but what each mount asks for: where the list is, and whether it changed.
    let asked: Vec<String> = server.requests()[requests..].iter().map(|request| request.path.clone()).collect();
    assert!(asked.iter().all(|path| path.contains("well-known") || path.ends_with("list.xml")), "{asked:?}");
    assert_eq!(mirror.log(""), syncs);
}

#[test]
fn a_filter_follows_changes() {
    let (server, mut books) = library(60);
    offer_changes(&server, AT, "");
    let mirror = Mirror::mount(&server.url("/"), "poll=0,content=all,type=application/pdf,newer=2012");
    let admits = |book: &Book| book.media == "application/pdf" && book.modified.as_str() >= "2012";
    assert_eq!(shown(&mirror), paths(books.iter().filter(|book| admits(book))));
    // One comes in by its type, one by its time, one goes out by each; one that is left out changes, and one goes.
    let is_out = books.iter().position(|book| !admits(book) && book.media == "application/pdf").unwrap();
    let is_in: Vec<usize> = (0..60).filter(|n| admits(&books[*n])).collect();
    let mut changes = String::new();
    let mut tell = |books: &mut Vec<Book>, n: usize, second: u32, change: &dyn Fn(&mut Book)| {
        change(&mut books[n]);
        books[n].body.push(b'+');
        server.file(&books[n].path, books[n].body.clone());
        let md = format!("<rs:md change=\"updated\" datetime=\"2020-01-02T00:00:{second:02}Z\" ");
        changes += &books[n].in_list(&server).replace("<rs:md ", &md);
    };
    tell(&mut books, 1, 1, &|book| {
        book.media = "application/pdf";
        book.modified = "2020-01-02T00:00:00Z".to_owned();
    });
    tell(&mut books, is_out, 2, &|book| book.modified = "2020-01-02T00:00:00Z".to_owned());
    tell(&mut books, is_in[0], 3, &|book| book.media = "text/plain");
    tell(&mut books, is_in[1], 4, &|book| book.modified = "2011-01-01T00:00:00Z".to_owned());
    tell(&mut books, 2, 5, &|_| ());
    let gone = books[3].path.clone();
    changes += &format!(
        "<url><loc>{}</loc><rs:md change=\"deleted\" datetime=\"2020-01-02T00:00:06Z\"/></url>",
        server.url(&gone)
    );
    let left_alone = asked(&server, [books[2].path.as_str()]);
    offer_changes(&server, AT, &changes);
    mirror.refreshed();
    let told = shown(&mirror);
    books.retain(|book| book.path != gone);
    assert_eq!(told, paths(books.iter().filter(|book| admits(book))));
    assert_eq!(asked(&server, [books[2].path.as_str()]), left_alone);
    // What is shown anew is as it is now; what went is gone, and as of before it there.
    filter(&mirror, "type=,newer=");
    assert_eq!(shown(&mirror), paths(&books));
    assert_eq!(mirror.read(&books[2].path[1..]).unwrap(), books[2].body);
    assert!(mirror.path(&format!(".versions/@2020-01-01T12:00:00Z{gone}")).exists());
    filter(&mirror, "type=application/pdf");
    assert!(!mirror.path(&format!(".versions/@2020-01-01T12:00:00Z{gone}")).exists());
    // Directories of which nothing is shown are not there.
    filter(&mirror, "type=,include=data/3");
    assert_eq!(mirror.names("data"), ["3"]);
    assert_eq!(mirror.names(""), ["data"]);
}

#[test]
fn a_filter_that_makes_no_sense_is_refused() {
    let (server, _) = library(4);
    for (options, said) in [
        ("include=[", "no pattern"),
        ("newer=yesterday", "give 2013, 2013-01-31"),
        ("type", "needs a value"),
        ("collection", "needs a value"),
    ] {
        let output = Mirror::prepare(&server.url("/"), options).try_mount();
        assert!(!output.status.success() && text(&output).contains(said), "{options}: {}", text(&output));
    }
    assert!(output(&["mount", "--help"]).contains("include=GLOB"));
}

#[test]
fn what_comes_in_and_goes_out_does_so_as_of_every_moment() {
    let server = Server::start();
    let entry = |path: &str, media: &str, more: &str, links: &str| {
        let md = format!("{} type=\"{media}\" {more}", crate::support::facts_of(path.as_bytes()));
        crate::support::entry(&server.url(path), &md).replace("</url>", &format!("{links}</url>"))
    };
    let (text_, pdf) = ("text/plain", "application/pdf");
    for path in ["/d/x", "/d/y", "/a", "/a/b", "/k"] {
        server.file(path, path);
    }
    let list = entry("/d/x", pdf, "", "")
        + &entry("/d/y", text_, "", "")
        + &entry("/a", text_, "", "")
        + &entry("/k", pdf, "", "");
    server.source(AT, &list);
    server.file("/resourcelist.xml", crate::support::resource_list(AT, &list));
    offer_changes(&server, AT, "");
    let mirror = Mirror::mount(&server.url("/"), "poll=0,type=text/plain");
    let then = ".versions/@2020-01-01T12:00:00Z";
    assert_eq!((mirror.names("d"), mirror.names(&format!("{then}/d"))), (vec!["y".to_owned()], vec!["y".to_owned()]));
    // One comes in, one goes out; a file goes, and is a directory of what is left out.
    let change = |n: u32, kind: &str| format!("change=\"{kind}\" datetime=\"2020-01-02T00:00:0{n}Z\"");
    let gone = format!("<url><loc>{}</loc><rs:md {}/></url>", server.url("/a"), change(3, "deleted"));
    let changes = entry("/d/x", text_, &change(1, "updated"), "")
        + &entry("/d/y", pdf, &change(2, "updated"), "")
        + &gone
        + &entry("/a/b", pdf, &change(4, "created"), "");
    offer_changes(&server, AT, &changes);
    mirror.refreshed();
    assert_eq!((mirror.names("d"), mirror.names(&format!("{then}/d"))), (vec!["x".to_owned()], vec!["x".to_owned()]));
    assert!(!mirror.path(&format!("{then}/d/y")).exists());
    assert_eq!(mirror.names(""), ["d"]);
    assert!(mirror.path(&format!("{then}/a")).is_file() && mirror.path(".versions/a/@self").is_dir());
    filter(&mirror, &format!("type=,type={pdf}"));
    assert_eq!(mirror.names(""), ["a", "d", "k"]);
    // By its name it may be a directory, of which nothing is known then.
    assert!(!mirror.path(&format!("{then}/a")).is_file() && !mirror.path(".versions/a/@self").exists());
    assert_eq!(mirror.names(then), ["d", "k"]);
    assert_eq!((mirror.names("d"), mirror.names(&format!("{then}/d"))), (vec!["y".to_owned()], vec!["y".to_owned()]));
    filter(&mirror, "type=");
    assert!(mirror.path(&format!("{then}/a")).is_file() && mirror.path(".versions/a/@self").is_dir());
    // A change that says of the same bytes that they are in a collection.
    filter(&mirror, "collection=one");
    assert_eq!(mirror.names(""), Vec::<String>::new());
    let link = "<rs:ln rel=\"collection\" href=\"http://c.example/one\"/>";
    offer_changes(&server, AT, &(changes + &entry("/k", pdf, &change(5, "updated"), link)));
    mirror.refreshed();
    assert_eq!(mirror.names(""), ["k"]);
    assert_eq!(mirror.names(".resourcesync/collections"), ["one"]);
    filter(&mirror, "collection=");
    assert_eq!(mirror.names(""), ["a", "d", "k"]);
}
