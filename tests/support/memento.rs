//! What an archive serves: mementos and TimeMaps (RFC 7089).

use super::server::{Reply, Request};

/// The beginning of a year, as in a `Memento-Datetime`.
pub fn datetime(year: i16) -> String {
    let day = jiff::civil::date(year, 1, 1).at(0, 0, 0, 0).in_tz("UTC").expect("a date");
    day.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// A TimeMap of these URLs, each of a New Year's Day.
pub fn timemap(mementos: &[(&str, i16)]) -> String {
    let links =
        mementos.iter().map(|(url, year)| format!(",\n<{url}>; rel=\"memento\"; datetime=\"{}\"", datetime(*year)));
    format!("<http://example.com/a>; rel=\"original\"{}", links.collect::<String>())
}

/// A capture, with its time.
pub fn capture(request: &Request, body: &str, year: i16) -> Reply {
    Reply::good(request, body.as_bytes()).with("Memento-Datetime", &datetime(year))
}
