//! Mementos (RFC 7089): TimeMaps and TimeGates, from servers that mean no good.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::server::{Reply, Request, Server};
use resourcesync::bounds::{self, Bounds};
use resourcesync::document::Datetime;
use resourcesync::source::{Asked, Client, Options, SourceError, Trouble, Validators};
use resourcesync::versions::{Limits, Memento, Negotiated, TimeMap, Timeline, ask_timegate, read_timemap};

const WITHIN: Duration = Duration::from_secs(120);
const DATES: [&str; 3] =
    ["Thu, 03 Jan 2013 09:00:00 GMT", "Sun, 15 Jun 2014 12:30:00 GMT", "Sun, 20 Nov 2016 18:45:10 GMT"];
const TIMES: [&str; 3] = ["2013-01-03T09:00:00Z", "2014-06-15T12:30:00Z", "2016-11-20T18:45:10Z"];

fn moment(text: &str) -> Datetime {
    Datetime::parse(text).unwrap().0
}

fn client() -> Arc<Client> {
    Client::new(Options::default()).unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(future)
}

fn read(url: &str, limits: &Limits, within: Duration) -> Result<TimeMap, SourceError> {
    match wait(read_timemap(&client(), url, None, limits, within))? {
        Timeline::Map(map) => Ok(map),
        Timeline::NotModified => panic!("nothing was known"),
    }
}

fn timemap(url: &str) -> TimeMap {
    read(url, &Limits::default(), WITHIN).unwrap()
}

fn refused(url: &str) -> String {
    let error = read(url, &Limits::default(), WITHIN).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Nowhere(_)), "{error}");
    error.to_string()
}

fn urls(mementos: &[Memento]) -> Vec<&str> {
    mementos.iter().map(|memento| memento.url.as_str()).collect()
}

fn link(url: &str, date: &str) -> String {
    format!("<{url}>; rel=\"memento\"; datetime=\"{date}\"")
}

/// Serves a page of a TimeMap.
fn page(server: &Server, path: &str, body: impl Into<Vec<u8>>) {
    let body = body.into();
    server.on(path, move |request| Reply::good(request, &body).with("Content-Type", "application/link-format"));
}

#[test]
fn what_timemaps_of_the_wild_look_like() {
    let server = Server::start();
    let [first, second, third] = DATES;
    page(
        &server,
        "/map/1",
        format!(
            "\u{feff}<http://e.com/r>;rel=\"original\",\r\n<../gate?u=a,b>\n;\n rel = timegate ,<1>;rel='self timemap';from='{first}',,
             <http://other.example/3>;rel=\"memento last\";datetime=\"{third}\";license='<x>, y'
             <2#f>;title=\"a, <b>; \\\"c\\\"\";datetime='{second}';rel=memento,
             <2>;rel=memento;datetime=\"{third}\",
             <HTTPS://other.example/a,b/1> ; rel=\"first memento\" ; datetime = \"{first}\" ,
             <ftp://other.example/1>;rel=memento;datetime=\"{first}\",<http://u:p@e.com/>;rel=memento;datetime=\"{first}\",
             <undated>;rel=memento,<yesterday>;rel=memento;datetime=yesterday"
        ),
    );
    server.on("/moved", |_| Reply::status(302).with("Location", "/map/1"));
    let map = timemap(&server.url("/moved"));
    let found: Vec<_> = map.mementos.iter().map(|memento| (memento.url.as_str(), memento.datetime)).collect();
    let expected = [
        ("https://other.example/a,b/1", moment(TIMES[0])),
        (&server.url("/map/2"), moment(TIMES[1])),
        ("http://other.example/3", moment(TIMES[2])),
    ];
    assert_eq!(found, expected);
    assert_eq!(map.timegate, Some(server.url("/gate?u=a,b")));
    assert!(map.complete && map.notes.len() == 2, "{:?}", map.notes);
    assert!(map.notes.iter().all(|note| note.contains("passed over: 2 ")), "{:?}", map.notes);
}

#[test]
fn junk_among_the_characters_harms_no_link() {
    let server = Server::start();
    let mut body = b"<a>;rel=memento;title=\"\xff\xfe\";datetime=\"".to_vec();
    body.extend(DATES[0].bytes().chain(*b"\"\x00\xc3,<b>;rel=memento;datetime=\""));
    body.extend(DATES[1].bytes().chain(*b"\""));
    page(&server, "/map", body);
    assert_eq!(urls(&timemap(&server.url("/map")).mementos), [server.url("/a"), server.url("/b")]);
}

#[test]
fn pages_are_read_once_each() {
    let server = Server::start();
    let around = "<1>;rel=timemap;from=x,<2>;rel=timemap;until=x,<3>;rel=\"timemap next\",<json>;rel=timemap;from=x;type=\"application/json\"";
    for number in 1..=3 {
        let own = link(&format!("/m/{number}"), DATES[number - 1]);
        page(&server, &format!("/{number}"), format!("{around},<{number}#x>;rel=timemap;from=x,{own}"));
    }
    server.on("/begin", |_| Reply::status(307).with("Location", "/1"));
    let map = timemap(&server.url("/begin"));
    assert!(map.complete && map.notes.is_empty(), "{:?}", map.notes);
    assert_eq!(urls(&map.mementos), [server.url("/m/1"), server.url("/m/2"), server.url("/m/3")]);
    assert_eq!([1, 2, 3].map(|number| server.count(&format!("/{number}"))), [1; 3]);
    assert_eq!(server.count("/json"), 0);
}

#[test]
fn a_page_that_fails_leaves_the_rest() {
    let server = Server::start();
    page(
        &server,
        "/1",
        "<gone>;rel=timemap;from=x,<html>;rel=timemap;from=x,<short>;rel=timemap;from=x,<2>;rel=timemap;from=x",
    );
    page(&server, "/2", link("/m", DATES[0]));
    page(&server, "/short", format!("{},<", link("/short/m", DATES[1])));
    server.on("/html", |_| Reply::ok("<html><a href='x'>").with("Content-Type", "text/html"));
    let map = timemap(&server.url("/1"));
    assert_eq!(urls(&map.mementos), [server.url("/m"), server.url("/short/m")]);
    assert!(!map.complete && map.notes.len() == 2, "{:?}", map.notes);
    assert!(map.notes[0].contains("(1 more)") && map.notes[0].contains("404"), "{:?}", map.notes);
    assert!(map.notes[1].contains("end within a link"), "{:?}", map.notes);
    let short = timemap(&server.url("/short"));
    assert!(short.mementos.len() == 1 && !short.complete);
}

#[test]
fn pages_without_end_are_not_all_read() {
    let server = Server::start();
    for number in 0..1000 {
        let body: String = (0..1000).map(|other| format!("<{other}>;rel=timemap;from=x,\n")).collect();
        page(&server, &format!("/{number}"), body + &link(&format!("/m/{number}"), DATES[0]));
    }
    let map = timemap(&server.url("/0"));
    assert!(!map.complete && map.notes == ["the rest is not read: it takes more than 100 pages"], "{:?}", map.notes);
    assert!(map.mementos.len() == 100 && server.requests().len() == 100);
}

#[test]
fn an_archive_that_has_not_changed_says_so() {
    let server = Server::start();
    page(&server, "/map", link("/m", DATES[0]));
    let (client, url, limits) = (client(), server.url("/map"), Limits::default());
    let known = timemap(&url).validators;
    assert!(known.etag.is_some());
    let ask = |known: &Validators| wait(read_timemap(&client, &url, Some(known), &limits, WITHIN)).unwrap();
    assert!(matches!(ask(&known), Timeline::NotModified));
    assert!(matches!(ask(&Validators { etag: Some("\"x\"".to_owned()), ..known }), Timeline::Map(map) if map.complete));
}

#[test]
fn what_is_no_timemap_is_refused() {
    let server = Server::start();
    let serve = |path: &str, kind: &'static str, body: &[u8]| {
        let body = body.to_vec();
        server.on(path, move |_| Reply::ok(body.clone()).with("Content-Type", kind));
        server.url(path)
    };
    let html =
        refused(&serve("/html", "text/html", b"<!DOCTYPE html><html><body><p>Sign in, <b>please</b></body></html>"));
    assert!(html.contains("\"text/html\" is no TimeMap"), "{html}");
    let json = refused(&serve("/json", "application/json", b"{\"mementos\": \"<a>; rel=memento\"}"));
    assert!(json.contains("is no TimeMap, neither"), "{json}");
    let json = refused(&serve("/typed", "application/link-format", b"\xef\xbb\xbf\n {\"a\": 1}"));
    assert!(json.contains("is no TimeMap, neither"), "{json}");
    refused(&serve("/garbage", "application/link-format", &crate::support::bytes(7, 300_000)));
    refused(&serve("/empty", "text/plain", b""));
    server.on("/coded", |_| Reply::ok("x").with("Content-Encoding", "compress"));
    let coded = read(&server.url("/coded"), &Limits::default(), WITHIN).unwrap_err();
    assert!(matches!(coded.trouble, Trouble::BadCoding { .. }), "{coded}");
    // These are TimeMaps.
    assert_eq!(timemap(&serve("/text", "text/html", link("/m", DATES[0]).as_bytes())).mementos.len(), 1);
    let none = timemap(&serve("/none", "application/link-format; charset=utf-8", b" \n"));
    assert!(none.complete && none.mementos.is_empty());
}

/// Sends parts of a body without end to each that asks; gives its URL.
fn endless(part: impl Fn(u64) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
        let mut text = "HTTP/1.1 200 OK\r\nContent-Type: application/link-format\r\n\r\n".to_owned();
        for number in 0..10_000_000 {
            text += &part(number);
            if text.len() > 1 << 16 && stream.write_all(std::mem::take(&mut text).as_bytes()).is_err() {
                return;
            }
        }
    });
    format!("http://{address}/")
}

#[test]
fn a_timemap_without_end_is_cut() {
    let limits = Limits { bytes: 4 << 20, mementos: 5_000, ..Limits::default() };
    let many = read(&endless(|number| link(&format!("/m/{number}"), DATES[0]) + ",\n"), &limits, WITHIN).unwrap();
    assert!(many.mementos.len() == 5_000 && !many.complete);
    assert_eq!(many.notes, ["the rest is not read: it takes more than 5000 mementos (limit_mementos)"]);
    let all = timemap(&endless(|number| link(&format!("/{number}"), DATES[0]) + ",\n"));
    assert!(all.mementos.len() == Limits::default().mementos && !all.complete);
    let same = read(&endless(|_| link("/m", DATES[0]) + ",\n"), &limits, WITHIN).unwrap();
    assert!(same.mementos.len() == 1 && !same.complete);
    assert_eq!(same.notes, ["the rest is not read: it takes more than 4194304 bytes"]);
    let one = format!("{},<", link("/m", DATES[0]));
    let long = endless(move |number| if number == 0 { one.clone() } else { "x".repeat(1000) });
    let long = read(&long, &limits, WITHIN).unwrap();
    assert!(long.mementos.len() == 1 && !long.complete && long.notes.len() == 2, "{:?}", long.notes);
    let nothing = read(&endless(|_| "<x>, ".to_owned()), &limits, WITHIN).unwrap_err();
    assert!(matches!(nothing.trouble, Trouble::Nowhere(_)), "{nothing}");
}

#[test]
fn relative_targets_do_not_grow_without_end() {
    let server = Server::start();
    let folder = format!("/{}/", "f".repeat(7000));
    let body: String = (0..2000).map(|number| link(&number.to_string(), DATES[0]) + ",").collect();
    page(&server, &folder, body);
    let limits = Limits { bytes: 1 << 20, ..Limits::default() };
    let map = read(&server.url(&folder), &limits, WITHIN).unwrap();
    let kept: usize = map.mementos.iter().map(|memento| memento.url.len()).sum();
    assert!(kept <= 1 << 20 && map.mementos.len() > 100 && !map.complete);
}

#[test]
fn one_link_of_ten_megabytes_is_passed_over() {
    let server = Server::start();
    let [before, after] = ["/1", "/2"].map(|url| link(url, DATES[0]));
    page(&server, "/map", format!("{before},\n{},\n{after}", link(&"x".repeat(10 << 20), DATES[1])));
    let map = timemap(&server.url("/map"));
    assert_eq!(urls(&map.mementos), [server.url("/1"), server.url("/2")]);
    assert!(!map.complete && map.notes == ["passed over: 1 links that are too long"], "{:?}", map.notes);
}

#[test]
fn silence_is_not_waited_out() {
    let server = Server::start();
    let body = link("/m", DATES[0]) + &",".repeat(100);
    let silent = body.clone();
    server.on("/silent", move |_| Reply { stall_after: Some(90), ..Reply::ok(silent.clone()) });
    server.on("/mute", |_| Reply { delay: Duration::from_secs(60), ..Reply::ok("") });
    page(&server, "/first", body + "<silent>;rel=timemap;from=x,<mute>;rel=timemap;from=x");
    let began = Instant::now();
    let within = Duration::from_millis(1500);
    for path in ["/silent", "/mute"] {
        let error = read(&server.url(path), &Limits::default(), within).unwrap_err();
        assert!(matches!(error.trouble, Trouble::Stalled { .. }), "{error}");
    }
    let gate = wait(ask_timegate(&client(), &server.url("/mute"), None, within)).unwrap_err();
    assert!(matches!(gate.trouble, Trouble::Stalled { .. }), "{gate}");
    let map = read(&server.url("/first"), &Limits::default(), within).unwrap();
    assert!(map.mementos.len() == 1 && !map.complete && map.notes[0].contains("cannot be read"), "{:?}", map.notes);
    assert_eq!(map.notes[1], "the rest is not read: it takes more than 1.5 s");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

fn gate(server: &Server, path: &str, at: &str) -> Negotiated {
    wait(ask_timegate(&client(), &server.url(path), Some(moment(at)), WITHIN)).unwrap()
}

fn named(server: &Server, path: &str, time: usize) -> Option<Memento> {
    Some(Memento { url: server.url(path), datetime: moment(TIMES[time]) })
}

/// An archive with the mementos `/m/0` to `/m/2`; what a TimeGate may answer with.
fn archive() -> Server {
    let server = Server::start();
    for (number, date) in DATES.into_iter().enumerate() {
        server.on(&format!("/m/{number}"), move |_| {
            Reply::ok("bytes").with("Memento-Datetime", date).with("Link", "</r>; rel=original, </gate>; rel=timegate")
        });
    }
    server
}

#[test]
fn each_pattern_of_a_timegate_is_understood() {
    let server = archive();
    let links = "</r>; rel=\"original timegate\", </map>; rel=timemap; type=\"application/link-format\"";
    // 1.1 and 2.1: it redirects, itself or after it was moved.
    for status in [302, 303, 307] {
        let path = format!("/r/{status}");
        server.on(&path, move |_| Reply::status(status).with("Location", "/m/1").with("Link", links));
        server.on("/moved", move |_| Reply::status(301).with("Location", &format!("/r/{status}")));
        for path in [path.as_str(), "/moved"] {
            let found = gate(&server, path, "2015-01-01");
            assert_eq!((found.memento, found.negotiated), (named(&server, "/m/1", 1), false), "{path}");
            assert_eq!(found.timemap, Some(server.url("/map")));
        }
    }
    // 1.2 and 2.2: it answers with the bytes, and says where they are.
    server.on("/located", move |_| {
        let reply = Reply::ok("bytes").with("Memento-Datetime", DATES[1]).with("Vary", "accept-datetime");
        reply.with("Content-Location", "m/1").with("Link", links)
    });
    let found = gate(&server, "/located", "2015-01-01");
    assert_eq!((found.memento, found.negotiated), (named(&server, "/m/1", 1), false));
    // 1.3 and 2.3: it does not say, or names itself.
    for (path, location) in [("/vague", None), ("/own", Some("/own"))] {
        server.on(path, move |_| {
            let reply =
                Reply::ok("bytes").with("Memento-Datetime", DATES[1]).with("Vary", "negotiate, Accept-Datetime");
            location.into_iter().fold(reply, |reply, location| reply.with("Content-Location", location))
        });
        let found = gate(&server, path, "2015-01-01");
        assert_eq!((found.memento, found.negotiated), (named(&server, path, 1), true));
        server.on("/secure", move |_| Reply::status(301).with("Location", path));
        let found = gate(&server, "/secure", "2015-01-01");
        assert_eq!((found.memento, found.negotiated), (named(&server, path, 1), true));
    }
    // 3: the resource is its only memento. 4: a memento, of no TimeGate.
    for (path, link) in
        [("/fixed", "</fixed>; rel=original"), ("/lone", "</lone>; rel=\"memento\", </r>; rel=original")]
    {
        server.on(path, move |_| Reply::ok("bytes").with("Memento-Datetime", DATES[1]).with("Link", link));
        let found = gate(&server, path, "2015-01-01");
        assert_eq!((found.memento, found.negotiated), (named(&server, path, 1), false));
    }
    let asked: Vec<_> = server.requests();
    let said = |request: &Request| request.header("accept-datetime") == Some("Thu, 01 Jan 2015 00:00:00 GMT");
    assert!(asked.iter().all(|request| request.method == "HEAD" && said(request)), "{asked:?}");
}

#[test]
fn a_redirect_that_was_archived_is_the_memento_and_an_error_is_none() {
    let server = archive();
    server.on("/gate", |_| Reply::status(302).with("Location", "/m/redirect"));
    server.on("/m/redirect", |_| Reply::status(301).with("Location", "/m/2").with("Memento-Datetime", DATES[1]));
    let found = gate(&server, "/gate", "2020-01-01");
    assert_eq!((found.memento, found.negotiated), (named(&server, "/m/redirect", 1), false));
    assert_eq!(server.count("/m/2"), 0);
    server.on("/error", |_| {
        let links = format!("</map>; rel=timemap, {}", link("/m/0", DATES[0]));
        Reply::status(404).with("Memento-Datetime", DATES[1]).with("Link", &links).with("Vary", "accept-datetime")
    });
    for (at, expected) in [("2015-01-01", None), ("2014-01-01", named(&server, "/m/0", 0))] {
        let found = gate(&server, "/error", at);
        assert_eq!((found.memento, found.negotiated, found.timemap), (expected, false, Some(server.url("/map"))));
    }
    // Who does not ask for mementos is led on.
    let answer = wait(client().ask(&server.url("/gate"), &Asked::default())).unwrap();
    assert_eq!((answer.status, answer.url.as_str(), answer.passed.len()), (200, server.url("/m/2").as_str(), 2));
}

#[test]
fn no_memento_is_believed_that_is_after_the_moment() {
    let server = archive();
    let beside = [("first", 0), ("prev", 1), ("next", 2)]
        .map(|(rel, at)| format!("</m/{at}>; rel=\"{rel} memento\"; datetime=\"{}\"", DATES[at]))
        .join(", ");
    server.on("/gate", move |_| Reply::status(302).with("Location", "/m/2").with("Link", &beside));
    for (at, expected) in [
        ("2016-11-20T18:45:10Z", Some(2)),
        ("2016-11-20T18:45:10.9Z", Some(2)),
        ("2016-11-20T18:45:09.9Z", Some(1)),
        ("2014-06-15T12:30:00Z", Some(1)),
        ("2014-06-15T12:29:59.999Z", Some(0)),
        ("2013-01-03T08:59:59Z", None),
        ("1960-01-01", None),
    ] {
        let found = gate(&server, "/gate", at);
        assert_eq!(found.memento, expected.and_then(|time| named(&server, &format!("/m/{time}"), time)), "{at}");
        assert!(found.others.len() == 3 && !found.negotiated);
    }
    let now = wait(ask_timegate(&client(), &server.url("/gate"), None, WITHIN)).unwrap();
    assert_eq!(now.memento, named(&server, "/m/2", 2));
    assert!(server.requests().last().unwrap().header("accept-datetime").is_none());
}

#[test]
fn what_is_no_memento_is_none() {
    let server = archive();
    server.on("/plain", |_| Reply::ok("x").with("Link", "</gate>; rel=timegate, </m/0>; rel=memento; datetime=x"));
    server.on("/badly", |_| Reply::ok("x").with("Memento-Datetime", "yesterday"));
    server.on("/linked", |_| Reply::status(302).with("Location", "/plain").with("Link", &link("/plain", DATES[0])));
    server.on("/gone", |_| Reply::status(410));
    server.on("/lost", |_| Reply::status(302).with("Location", "/missing"));
    for path in ["/plain", "/badly", "/gone", "/lost", "/missing"] {
        assert_eq!(gate(&server, path, "2020-01-01").memento, None, "{path}");
    }
    assert_eq!(gate(&server, "/linked", "2020-01-01").memento, named(&server, "/plain", 0));
    server.on("/circle", |_| Reply::status(302).with("Location", "/circle"));
    let circle = wait(ask_timegate(&client(), &server.url("/circle"), None, WITHIN)).unwrap_err();
    assert!(matches!(circle.trouble, Trouble::RedirectLoop(_)), "{circle}");
}

#[test]
fn where_head_is_refused_get_is_tried() {
    let server = archive();
    for status in [400, 405, 501] {
        server.on("/gate", move |request| match request.method.as_str() {
            "GET" => Reply { stall_after: Some(1), ..Reply::ok(vec![0; 1 << 20]) }.with("Memento-Datetime", DATES[0]),
            _ => Reply::status(status),
        });
        let found = gate(&server, "/gate", "2015-01-01");
        assert_eq!((found.memento, found.negotiated), (named(&server, "/gate", 0), true), "{status}");
    }
}

#[test]
fn links_without_end_in_a_head_are_bounded() {
    let server = archive();
    let many: String = (0..3000).map(|number| format!("</{number}>;rel=memento;datetime=\"{}\",", DATES[0])).collect();
    server.on("/gate", move |_| {
        let reply = Reply::status(302).with("Location", "/m/0");
        many.as_bytes().chunks(8000).fold(reply, |reply, part| reply.with("Link", &String::from_utf8_lossy(part)))
    });
    // As large as a head may be made to be.
    let bounds = Bounds { header: bounds::HEADER.greatest, ..Bounds::default() };
    let client = Client::new(Options { bounds, ..Options::default() }).unwrap();
    let url = server.url("/gate");
    let found = wait(ask_timegate(&client, &url, Some(moment("2015-01-01")), WITHIN)).unwrap();
    assert!(found.others.len() <= 1000 && found.memento == named(&server, "/m/0", 0), "{}", found.others.len());
}

#[test]
fn timemaps_as_gzip_as_json_and_of_several_resources_are_read() {
    let server = Server::start();
    let [first, second, third] = DATES;
    let own = format!("<http://e.com/r>; rel=\"original\",\n{},\n{}", link("/m/1", first), link("/m/2", second));
    let coded = crate::support::gzip(own.as_bytes());
    server.on("/coded", move |_| {
        Reply::ok(coded.clone()).with("Content-Type", "application/link-format").with("Content-Encoding", "gzip")
    });
    assert_eq!(urls(&timemap(&server.url("/coded")).mementos), [server.url("/m/1"), server.url("/m/2")]);
    let asked = server.requests();
    let accept = asked[0].header("accept").unwrap();
    assert!(accept.starts_with("application/link-format"), "it is asked for: {accept}");
    // What is linked of another resource is none of this one's (RFC 8288, 3.2).
    let of_another = format!("{own},\n{}; anchor=\"http://e.com/other\"", link("/m/3", third));
    page(&server, "/anchored", of_another);
    assert_eq!(timemap(&server.url("/anchored")).mementos.len(), 2);
    let list = [("/m/1", TIMES[0]), ("/m/2", TIMES[1])]
        .map(|(path, time)| format!("{{\"datetime\": \"{time}\", \"uri\": \"{}\"}}", server.url(path)));
    let json = format!("{{\"original_uri\": \"http://e.com/r\", \"mementos\": {{\"list\": [{}]}}}}", list.join(","));
    server.on("/json", move |_| Reply::ok(json.clone()).with("Content-Type", "application/json"));
    let map = timemap(&server.url("/json"));
    assert_eq!(urls(&map.mementos), [server.url("/m/1"), server.url("/m/2")]);
    assert_eq!(map.mementos[0].datetime, moment(TIMES[0]));
    // One that is too large to be read whole is said to be.
    let large = format!("{{\"mementos\": {{\"list\": [{}", format!("{},", list[0]).repeat(60_000));
    server.on("/large", move |_| Reply::ok(large.clone()).with("Content-Type", "application/json"));
    assert!(read(&server.url("/large"), &Limits::default(), WITHIN).unwrap_err().to_string().contains("larger than"));
}
