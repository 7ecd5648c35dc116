//! The versions of the demo Source by their moments: mementos, TimeMaps and TimeGates (RFC 7089), and the links that
//! lead to them (core 14.6).

use std::collections::VecDeque;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};
use quick_xml::escape::escape;

use super::answers::{plain, send, tag, tag_of, with};
use super::versions::second;
use super::{Content, Resource};
use crate::document::Datetime;

const ACCEPT_DATETIME: HeaderName = HeaderName::from_static("accept-datetime");
const MEMENTO_DATETIME: HeaderName = HeaderName::from_static("memento-datetime");

/// The media type of a TimeMap.
const LINKS: &str = "application/link-format";

/// How many digits of a moment are in the path of a memento: those of year to second.
const DIGITS: usize = 14;

/// The moment as mementos have it in their paths.
fn digits(at: Datetime) -> String {
    at.to_string().chars().filter(char::is_ascii_digit).take(DIGITS).collect()
}

/// The moment as HTTP has it.
fn http_date(at: Datetime) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(u64::try_from(second(at)).unwrap_or(0)))
}

/// The last second a request asks for: the end of time if it names none; nothing if it names what is no date.
fn asked(headers: &HeaderMap) -> Option<i64> {
    let Some(value) = headers.get(ACCEPT_DATETIME) else { return Some(i64::MAX) };
    let moment = httpdate::parse_http_date(value.to_str().ok()?.trim()).ok()?;
    i64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// What a memento is among all, and to the one that was chosen.
fn relations(index: usize, count: usize, chosen: Option<usize>) -> String {
    let roles = [
        ("first ", index == 0),
        ("prev ", chosen == Some(index + 1)),
        ("next ", chosen.is_some_and(|chosen| chosen + 1 == index)),
        ("last ", index + 1 == count),
    ];
    roles.iter().filter(|(_, holds)| *holds).map(|(role, _)| *role).chain(["memento"]).collect()
}

/// Those of which a memento tells: itself and the next to it, the first and the last.
fn neighbours(count: usize, chosen: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |&index| index.abs_diff(chosen) <= 1 || index == 0 || index + 1 == count)
}

/// What caches may do with a memento: its second has to be over before it is sure to stay.
fn lasting(version: &Resource) -> &'static str {
    if second(version.modified) < second(Datetime::now()) { "max-age=31536000, immutable" } else { "no-cache" }
}

impl Content {
    fn memento_url(&self, path: &str, at: Datetime) -> String {
        format!("{}/memento/{}{path}", self.base, digits(at))
    }

    fn timegate_url(&self, path: &str) -> String {
        format!("{}/timegate{path}", self.base)
    }

    fn timemap_url(&self, path: &str) -> String {
        format!("{}/timemap{path}", self.base)
    }

    /// For an entry: where the versions are; nothing if there are none.
    pub(super) fn negotiation(&self, path: &str) -> String {
        let Some(_) = self.versions.of(path) else { return String::new() };
        let (timegate, timemap) = (self.timegate_url(path), self.timemap_url(path));
        format!(
            "<rs:ln rel=\"timegate\" href=\"{}\"/><rs:ln rel=\"timemap\" href=\"{}\" type=\"{LINKS}\"/>",
            escape(timegate.as_str()),
            escape(timemap.as_str())
        )
    }

    /// For the entry of a change: the version it made, with the facts of the entry. There is none if a later one of
    /// the same second has its URL.
    pub(super) fn memento_link(&self, path: &str, at: Datetime, facts: &str) -> Option<String> {
        self.versions.of(path)?.iter().find(|version| version.modified == at)?;
        let memento = self.memento_url(path, at);
        Some(format!("<rs:ln rel=\"memento\" href=\"{}\" modified=\"{at}\"{facts}/>", escape(memento.as_str())))
    }

    /// For the header of a resource: where its versions are.
    pub(super) fn original_fields(&self, path: &str) -> Option<(HeaderName, String)> {
        self.versions.of(path)?;
        Some((header::LINK, format!("{}, {}", self.timegate_value(path), self.timemap_value(path, "timemap", ""))))
    }

    /// The answer of a memento, a TimeMap or a TimeGate; none if the path leads to no such.
    pub(super) fn remember(&self, method: &Method, headers: &HeaderMap, path: &str) -> Option<Response<Body>> {
        if let Some(original) = path.strip_prefix("/timemap") {
            let map = self.timemap(original, self.versions.of(original)?);
            return Some(send(method, headers, LINKS, &tag_of(map.as_bytes()), map.into()));
        }
        if let Some(original) = path.strip_prefix("/timegate") {
            return Some(self.timegate(headers, original, self.versions.of(original)?));
        }
        let (moment, original) = path.strip_prefix("/memento/")?.split_at_checked(DIGITS)?;
        let versions = self.versions.of(original)?;
        let chosen = versions.iter().position(|version| digits(version.modified) == moment)?;
        Some(self.memento((method, headers), original, versions, chosen))
    }

    fn memento(
        &self,
        (method, headers): (&Method, &HeaderMap),
        path: &str,
        versions: &VecDeque<Resource>,
        chosen: usize,
    ) -> Response<Body> {
        let version = &versions[chosen];
        let fields = [
            (MEMENTO_DATETIME, http_date(version.modified)),
            (header::LINK, self.links(path, versions, chosen)),
            (header::CACHE_CONTROL, lasting(version).to_owned()),
        ];
        with(send(method, headers, version.media, &tag(&version.sha256), version.make.bytes()), fields)
    }

    /// Leads to the latest version that is not after the moment asked for; to the first if all are.
    fn timegate(&self, headers: &HeaderMap, path: &str, versions: &VecDeque<Resource>) -> Response<Body> {
        let vary = (header::VARY, "accept-datetime".to_owned());
        let Some(until) = asked(headers) else {
            return with(plain(StatusCode::BAD_REQUEST, "Accept-Datetime is no date of HTTP\n"), [vary]);
        };
        let chosen = versions.partition_point(|version| second(version.modified) <= until).saturating_sub(1);
        let fields = [
            vary,
            (header::LOCATION, self.memento_url(path, versions[chosen].modified)),
            (header::LINK, self.links(path, versions, chosen)),
        ];
        with(plain(StatusCode::FOUND, ""), fields)
    }

    fn timemap(&self, path: &str, versions: &VecDeque<Resource>) -> String {
        let interval = match (versions.front(), versions.back()) {
            (Some(first), Some(last)) => {
                format!("; from=\"{}\"; until=\"{}\"", http_date(first.modified), http_date(last.modified))
            }
            _ => String::new(),
        };
        let about = [self.original_value(path), self.timemap_value(path, "self", &interval), self.timegate_value(path)];
        let mementos = (0..versions.len()).map(|index| self.memento_value(path, versions, index, None));
        about.into_iter().chain(mementos).collect::<Vec<_>>().join(",\n") + "\n"
    }

    /// The `Link` field of a memento, or of the TimeGate that chose it.
    fn links(&self, path: &str, versions: &VecDeque<Resource>, chosen: usize) -> String {
        let about = [self.original_value(path), self.timegate_value(path), self.timemap_value(path, "timemap", "")];
        let mementos =
            neighbours(versions.len(), chosen).map(|index| self.memento_value(path, versions, index, Some(chosen)));
        about.into_iter().chain(mementos).collect::<Vec<_>>().join(", ")
    }

    fn original_value(&self, path: &str) -> String {
        format!("<{}{path}>; rel=\"original\"", self.base)
    }

    fn timegate_value(&self, path: &str) -> String {
        format!("<{}>; rel=\"timegate\"", self.timegate_url(path))
    }

    fn timemap_value(&self, path: &str, rel: &str, interval: &str) -> String {
        format!("<{}>; rel=\"{rel}\"; type=\"{LINKS}\"{interval}", self.timemap_url(path))
    }

    fn memento_value(&self, path: &str, versions: &VecDeque<Resource>, index: usize, chosen: Option<usize>) -> String {
        let at = versions[index].modified;
        let (url, rel) = (self.memento_url(path, at), relations(index, versions.len(), chosen));
        format!("<{url}>; rel=\"{rel}\"; datetime=\"{}\"", http_date(at))
    }
}
