//! The demo Source, asked over HTTP: here for its versions, below for its notifications. Its clock is set by the
//! tests.

mod hub;
mod notifications;
mod sockets;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use reqwest::{Method, Response, StatusCode};
use tokio::sync::watch;

use super::changes::{JSON, json, json_path};
use super::hub::Hub;
use super::life::Life;
use super::{Content, Make, Resource, hexadecimal, router, serve, versions};
use crate::document::Datetime;
use crate::source::{LinkValue, parse_link_header};

/// The moments of the first version of a record, and of those made of it.
const MOMENTS: [(&str, &str, &str); 3] = [
    ("2024-01-01T00:00:00Z", "20240101000000", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ("2024-01-02T00:00:00.25Z", "20240102000000", "Tue, 02 Jan 2024 00:00:00 GMT"),
    ("2024-01-03T12:30:59.999Z", "20240103123059", "Wed, 03 Jan 2024 12:30:59 GMT"),
];

fn moment(text: &str) -> Datetime {
    Datetime::parse(text).unwrap().0
}

struct Running {
    content: Arc<RwLock<Content>>,
    hub: Arc<Hub>,
    base: String,
    client: reqwest::Client,
    _end: watch::Sender<()>,
}

impl Running {
    /// A Source with one record and one text, at which nothing changes by itself.
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let first = moment(MOMENTS[0].0);
        let resources = HashMap::from([
            (json_path(0), Resource::new(JSON, first, json(0, 0))),
            ("/texts/text.txt".to_owned(), Resource::new("text/plain", first, Make::Text(0))),
        ]);
        let content = Arc::new(RwLock::new(Content::new(base.clone(), resources)));
        let (end, life) = Life::begin();
        let hub = Arc::new(Hub::new(Arc::clone(&content), life.clone()).unwrap());
        let router = router(&content, Arc::clone(&hub), &life);
        tokio::spawn(serve(listener, router, life));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { content, hub, base, client, _end: end }
    }

    /// The same with all three versions of the record.
    async fn with_three() -> Self {
        let running = Self::start().await;
        for (revision, (at, ..)) in (1..).zip(&MOMENTS[1..]) {
            running.record(at, revision);
        }
        running
    }

    fn record(&self, at: &str, revision: u64) {
        let mut content = self.content.write();
        content.put(json_path(0), Resource::new(JSON, moment(at), json(0, revision)), None);
        content.tell();
    }

    async fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> Response {
        let request = self.client.request(method, format!("{}{path}", self.base));
        fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path, &[]).await
    }

    async fn text(&self, path: &str) -> String {
        let response = self.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.text().await.unwrap()
    }

    /// The stamp of the memento a TimeGate leads to.
    async fn chosen(&self, moment: Option<&str>) -> String {
        let path = format!("/timegate{}", json_path(0));
        let fields: Vec<_> = moment.iter().map(|moment| ("accept-datetime", *moment)).collect();
        let response = self.ask(Method::GET, &path, &fields).await;
        assert_eq!(response.status(), StatusCode::FOUND);
        assert_eq!(field(&response, "vary"), "accept-datetime");
        assert!(response.headers().get("memento-datetime").is_none());
        assert_eq!(link(&links(&response), "original"), [format!("{}{}", self.base, json_path(0))]);
        let location = field(&response, "location");
        let rest = location.strip_prefix(&format!("{}/memento/", self.base)).unwrap();
        rest.strip_suffix(&json_path(0)).unwrap().to_owned()
    }
}

fn field(response: &Response, name: &str) -> String {
    response.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap().to_owned()
}

fn links(response: &Response) -> Vec<LinkValue> {
    parse_link_header(&field(response, "link"))
}

/// The targets with this relation.
fn link(links: &[LinkValue], rel: &str) -> Vec<String> {
    links.iter().filter(|link| link.is(rel)).map(|link| link.href.clone()).collect()
}

#[tokio::test]
async fn a_timemap_lists_each_version_with_its_moment() {
    let running = Running::with_three().await;
    let path = format!("/timemap{}", json_path(0));
    let response = running.get(&path).await;
    assert_eq!(field(&response, "content-type"), "application/link-format");
    let tag = field(&response, "etag");
    let map = parse_link_header(&response.text().await.unwrap().replace('\n', " "));
    assert_eq!(link(&map, "original"), [format!("{}{}", running.base, json_path(0))]);
    assert_eq!(link(&map, "timegate"), [format!("{}/timegate{}", running.base, json_path(0))]);
    let own = map.iter().find(|link| link.is("self")).unwrap();
    assert_eq!(own.href, format!("{}{path}", running.base));
    assert_eq!((own.parameter("from"), own.parameter("until")), (Some(MOMENTS[0].2), Some(MOMENTS[2].2)));
    let mementos: Vec<_> = map.iter().filter(|link| link.is("memento")).collect();
    assert_eq!(mementos.len(), MOMENTS.len());
    for ((link, (_, stamp, date)), rel) in
        mementos.iter().zip(MOMENTS).zip(["first memento", "memento", "last memento"])
    {
        assert_eq!(link.href, format!("{}/memento/{stamp}{}", running.base, json_path(0)));
        assert_eq!((link.parameter("datetime"), link.parameter("rel")), (Some(date), Some(rel)));
    }
    let same = running.ask(Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!(same.status(), StatusCode::NOT_MODIFIED);
    running.record("2024-01-04T00:00:00Z", 3);
    let other = running.ask(Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!(other.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_memento_is_the_version_of_its_moment() {
    let running = Running::with_three().await;
    for (revision, (_, stamp, date)) in (0..).zip(MOMENTS) {
        let path = format!("/memento/{stamp}{}", json_path(0));
        let response = running.get(&path).await;
        assert_eq!(field(&response, "memento-datetime"), date);
        assert_eq!(field(&response, "content-type"), JSON);
        assert_eq!(field(&response, "cache-control"), "max-age=31536000, immutable");
        let links = links(&response);
        assert_eq!(link(&links, "timegate"), [format!("{}/timegate{}", running.base, json_path(0))]);
        assert_eq!(link(&links, "timemap"), [format!("{}/timemap{}", running.base, json_path(0))]);
        assert_eq!(response.bytes().await.unwrap(), json(0, revision).bytes());
    }
    let response = running.get(&format!("/memento/{}{}", MOMENTS[1].1, json_path(0))).await;
    let rels: Vec<_> = links(&response)
        .iter()
        .filter_map(|link| Some((link.parameter("rel")?.to_owned(), link.parameter("datetime")?.to_owned())))
        .collect();
    let expected =
        [("first prev memento", MOMENTS[0].2), ("memento", MOMENTS[1].2), ("next last memento", MOMENTS[2].2)];
    assert_eq!(rels, expected.map(|(rel, date)| (rel.to_owned(), date.to_owned())));
}

#[tokio::test]
async fn a_memento_is_asked_for_as_any_resource() {
    let running = Running::with_three().await;
    let path = format!("/memento/{}{}", MOMENTS[1].1, json_path(0));
    let bytes = json(0, 1).bytes();
    let head = running.ask(Method::HEAD, &path, &[]).await;
    assert_eq!(head.status(), StatusCode::OK);
    assert_eq!(field(&head, "content-length"), bytes.len().to_string());
    let tag = field(&head, "etag");
    assert_eq!(field(&head, "memento-datetime"), MOMENTS[1].2);
    assert!(head.bytes().await.unwrap().is_empty());
    let part = running.ask(Method::GET, &path, &[("range", "bytes=2-9")]).await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.bytes().await.unwrap(), bytes.slice(2..10));
    let same = running.ask(Method::GET, &path, &[("if-none-match", &tag)]).await;
    assert_eq!(same.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(field(&same, "memento-datetime"), MOMENTS[1].2);
}

#[tokio::test]
async fn a_timegate_leads_to_the_version_of_a_moment() {
    let running = Running::with_three().await;
    for (asked, expected) in [
        (None, MOMENTS[2].1),
        (Some("Tue, 02 Jan 2024 18:00:00 GMT"), MOMENTS[1].1),
        (Some("Wed, 03 Jan 2024 12:30:58 GMT"), MOMENTS[1].1),
        (Some(MOMENTS[2].2), MOMENTS[2].1),
        (Some("Fri, 01 Jan 2100 00:00:00 GMT"), MOMENTS[2].1),
        (Some(MOMENTS[0].2), MOMENTS[0].1),
        (Some("Sat, 01 Jan 2000 00:00:00 GMT"), MOMENTS[0].1),
    ] {
        assert_eq!(running.chosen(asked).await, expected, "{asked:?}");
    }
    let path = format!("/timegate{}", json_path(0));
    let head = running.ask(Method::HEAD, &path, &[("accept-datetime", MOMENTS[1].2)]).await;
    assert_eq!(head.status(), StatusCode::FOUND);
    assert_eq!(field(&head, "location"), format!("{}/memento/{}{}", running.base, MOMENTS[1].1, json_path(0)));
    assert_eq!(link(&links(&head), "timemap"), [format!("{}/timemap{}", running.base, json_path(0))]);
    let refused = running.ask(Method::GET, &path, &[("accept-datetime", "yesterday")]).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    assert_eq!(field(&refused, "vary"), "accept-datetime");
}

#[tokio::test]
async fn what_has_no_versions_has_no_mementos() {
    let running = Running::with_three().await;
    for path in [
        "/timemap/texts/text.txt",
        "/timegate/texts/text.txt",
        "/memento/20240101000000/texts/text.txt",
        "/timemap/records/none.json",
        "/timemap",
        "/timegate",
        "/memento/",
        "/memento/2024",
        "/memento/20240101000001/records/record-0.json",
        "/memento/20240101000000records/record-0.json",
    ] {
        assert_eq!(running.get(path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let text = running.get("/texts/text.txt").await;
    assert!(text.headers().get("link").is_none());
    let record = running.get(&json_path(0)).await;
    assert_eq!(link(&links(&record), "timegate"), [format!("{}/timegate{}", running.base, json_path(0))]);
}

#[tokio::test]
async fn deleted_news_keep_their_mementos() {
    let running = Running::start().await;
    let begun = moment(MOMENTS[0].0).nanos();
    for number in 0..36 {
        running.content.write().change(Datetime::from_nanos(begun + number * 1_000_000_000));
    }
    let path = "/news/news-0000.txt";
    assert_eq!(running.get(path).await.status(), StatusCode::NOT_FOUND);
    let map = parse_link_header(&running.text(&format!("/timemap{path}")).await.replace('\n', " "));
    let mementos = link(&map, "memento");
    assert_eq!(mementos.len(), 2);
    let corrected = running.text(mementos[1].strip_prefix(&running.base).unwrap()).await;
    assert!(corrected.starts_with("News 0, corrected: "), "{corrected}");
    let changes = running.text("/changes/0002.xml").await;
    let entry = changes.lines().find(|line| line.contains("change=\"deleted\"")).unwrap();
    assert!(entry.contains("rel=\"timegate\"") && entry.contains("rel=\"timemap\""), "{entry}");
    assert!(!entry.contains("rel=\"memento\""), "{entry}");
}

#[tokio::test]
async fn the_lists_tell_where_versions_are() {
    let running = Running::with_three().await;
    let base = &running.base;
    let changes = running.text("/changes/0001.xml").await;
    for (revision, (at, stamp, _)) in (0..).zip(MOMENTS).skip(1) {
        let bytes = json(0, revision).bytes();
        let facts =
            format!(" hash=\"sha-256:{}\" length=\"{}\" type=\"application/json\"", hexadecimal(&bytes), bytes.len());
        let at = moment(at);
        let entry = changes.lines().find(|line| line.contains(&format!("datetime=\"{at}\"{facts}"))).unwrap();
        let memento = format!("href=\"{base}/memento/{stamp}/records/record-0.json\" modified=\"{at}\"{facts}/>");
        assert!(entry.contains(&format!("<rs:ln rel=\"memento\" {memento}")), "{entry}");
        assert!(entry.contains(&format!("<rs:ln rel=\"timegate\" href=\"{base}/timegate/records/record-0.json\"/>")));
    }
    let list = running.text("/resourcelist.xml").await;
    let timemap = format!("href=\"{base}/timemap/records/record-0.json\" type=\"application/link-format\"");
    assert!(list.contains(&format!("<rs:ln rel=\"timemap\" {timemap}/>")), "{list}");
    assert!(list.lines().filter(|line| line.contains("/texts/")).all(|line| !line.contains("rs:ln")), "{list}");
}

#[tokio::test]
async fn the_later_of_one_second_has_its_url() {
    let running = Running::start().await;
    running.record("2024-01-02T00:00:00.1Z", 1);
    running.record("2024-01-02T00:00:00.9Z", 2);
    let path = format!("/memento/20240102000000{}", json_path(0));
    assert_eq!(running.text(&path).await.as_bytes(), json(0, 2).bytes());
    let map = running.text(&format!("/timemap{}", json_path(0))).await;
    assert_eq!(link(&parse_link_header(&map.replace('\n', " ")), "memento").len(), 2);
    let changes = running.text("/changes/0001.xml").await;
    assert_eq!(changes.matches("rel=\"memento\"").count(), 1, "the hash of the earlier would not hold");
}

#[test]
fn what_is_kept_is_bounded() {
    let version = |second: i64| {
        let at = Datetime::from_nanos(second * 1_000_000_000);
        Resource::new("text/plain", at, Make::Bytes(second.to_string().into()))
    };
    let mut kept = versions::Versions::default();
    (0..60).for_each(|second| kept.keep("/a", version(second)));
    let of_a = kept.of("/a").unwrap();
    assert_eq!((of_a.len(), versions::second(of_a[0].modified)), (versions::KEPT, 10));
    for number in 0..=versions::DELETED {
        kept.keep(&format!("/{number}"), version(1));
        kept.deleted(&format!("/{number}"));
    }
    assert!(kept.of("/0").is_none() && kept.of("/1").is_some() && kept.of("/a").is_some());
    kept.keep("/1", version(2));
    kept.deleted("/a");
    kept.deleted("/2");
    assert!(kept.of("/1").is_some(), "it is there again");
}
