//! Mementos (RFC 7089) of pywb.

use std::sync::Arc;
use std::time::Duration;

use crate::support::pywb::Pywb;
use resourcesync::document::Datetime;
use resourcesync::source::{Asked, Client, Options, SourceError, Trouble};
use resourcesync::versions::{
    Limits, Memento, TimeMap, Timeline, ask_timegate, memento_datetime, original_bytes, read_timemap,
};

const WITHIN: Duration = Duration::from_secs(120);
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

fn read(url: &str) -> Result<TimeMap, SourceError> {
    match wait(read_timemap(&client(), url, None, &Limits::default(), WITHIN))? {
        Timeline::Map(map) => Ok(map),
        Timeline::NotModified => panic!("nothing was known"),
    }
}

const ORIGINAL: &str = "http://example.com/dir/res.html?a=b";

/// pywb with three captures of a page, which it rewrites, and one of another.
fn pywb(redirect: bool) -> Pywb {
    let bodies = [0, 1, 2].map(body);
    let captures: Vec<_> =
        TIMES.iter().zip(&bodies).map(|(time, body)| (ORIGINAL, "text/html", *time, body.as_slice())).collect();
    let other = [("http://example.com/other", "text/plain", "2010-01-01T00:00:00Z", b"other".as_slice())];
    Pywb::start(&[captures.as_slice(), &other].concat(), redirect)
}

fn body(number: usize) -> Vec<u8> {
    format!("<html><head></head><body><a href=\"http://example.com/other\">version {number}</a></body></html>\n").into()
}

/// What was at a moment: the TimeGate knows, or else the TimeMap it names.
fn latest(gate: &str, at: Datetime) -> Option<Memento> {
    let said = wait(ask_timegate(&client(), gate, Some(at), WITHIN)).unwrap();
    assert!(!said.negotiated);
    said.memento.or_else(|| {
        let map = read(&said.timemap.expect("a TimeMap")).unwrap();
        map.mementos.into_iter().rfind(|memento| memento.datetime <= at)
    })
}

fn is_served_right(archive: &Pywb) {
    let map = read(&archive.timemap(ORIGINAL)).unwrap();
    assert!(map.complete && map.notes.is_empty(), "{:?}", map.notes);
    assert_eq!(map.timegate, Some(archive.timegate(ORIGINAL)));
    let times: Vec<_> = map.mementos.iter().map(|memento| memento.datetime).collect();
    assert_eq!(times, TIMES.map(moment));
    for (number, memento) in map.mementos.iter().enumerate() {
        let fetch = |url: &str| {
            wait(async {
                let answer = client().ask(url, &Asked::default()).await.unwrap();
                (memento_datetime(&answer.headers), answer.bytes(1 << 20).await.unwrap())
            })
        };
        let bytes = original_bytes(&memento.url).unwrap();
        assert_eq!(fetch(&bytes), (Some(memento.datetime), body(number)), "{bytes}");
        assert_ne!(fetch(&memento.url).1, body(number), "pywb rewrites");
    }
    let gate = archive.timegate(ORIGINAL);
    for (at, expected) in [
        ("2012-12-31", None),
        ("2013-01-03T08:59:59.999Z", None),
        (TIMES[0], Some(0)),
        ("2013-01-04", Some(0)),
        ("2014-06-15T12:29:59Z", Some(0)),
        (TIMES[1], Some(1)),
        ("2014-06-15T12:30:00.5Z", Some(1)),
        ("2016-11-20T18:45:09.999Z", Some(1)),
        (TIMES[2], Some(2)),
        ("2026-01-01", Some(2)),
    ] {
        assert_eq!(latest(&gate, moment(at)), expected.map(|at: usize| map.mementos[at].clone()), "{at}");
    }
    let seed = crate::support::seed();
    let (begin, end) = (moment("2012-06-01").nanos(), moment("2017-06-01").nanos());
    for round in 0..20 {
        let nanos = crate::support::scramble(seed << 8 | round) % end.abs_diff(begin);
        let at = Datetime::from_nanos(begin + i64::try_from(nanos).unwrap());
        let expected = map.mementos.iter().rfind(|memento| memento.datetime <= at);
        assert_eq!(latest(&gate, at).as_ref(), expected, "{at}");
    }
    let now = wait(ask_timegate(&client(), &gate, None, WITHIN)).unwrap();
    assert_eq!(now.memento.as_ref(), map.mementos.last());
    assert_eq!(now.timemap, Some(archive.timemap(ORIGINAL)));
    let missing = wait(ask_timegate(&client(), &archive.timegate("http://example.com/no"), None, WITHIN)).unwrap();
    assert_eq!(missing.memento, None);
    let error = read(&archive.timemap("http://example.com/no")).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Status { code: 404, .. }), "{error}");
    let error = read(&archive.timegate(&format!("timemap/json/{ORIGINAL}"))).unwrap_err();
    assert!(matches!(error.trouble, Trouble::Nowhere(_)), "{error}");
}

#[test]
fn pywb_that_redirects_is_understood() {
    is_served_right(&pywb(true));
}

#[test]
fn pywb_that_answers_itself_is_understood() {
    is_served_right(&pywb(false));
}
