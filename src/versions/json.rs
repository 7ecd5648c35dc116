//! TimeMaps as JSON, as MemGator, the Internet Archive's Time Travel service and pywb write them.
//!
//! ```json
//! {"original_uri": "http://a.example/", "timegate_uri": "...",
//!  "mementos": {"list": [{"datetime": "2010-01-02T03:04:05Z", "uri": "..."}]},
//!  "timemap_index": [{"from": "...", "until": "...", "uri": "..."}], "pages": {"next": {"uri": "..."}}}
//! ```

use serde_json::Value;

use crate::document::Datetime;
use crate::source::LinkValue;

/// What it says, as the links that a TimeMap in link format would have; none where it is no such JSON.
pub(super) fn links(text: &[u8]) -> Vec<LinkValue> {
    let Ok(map) = serde_json::from_slice::<Value>(text) else { return Vec::new() };
    let mut links = Vec::new();
    let mut push = |uri: &Value, rel: &str, more: Vec<(&str, String)>| {
        let Some(uri) = uri.as_str() else { return };
        let own = std::iter::once(("rel".to_owned(), rel.to_owned()));
        let parameters = own.chain(more.into_iter().map(|(name, value)| (name.to_owned(), value))).collect();
        links.push(LinkValue { href: uri.to_owned(), parameters });
    };
    push(&map["original_uri"], "original", Vec::new());
    push(&map["timegate_uri"], "timegate", Vec::new());
    for memento in map["mementos"]["list"].as_array().into_iter().flatten() {
        let datetime = memento["datetime"].as_str().and_then(|text| Datetime::parse(text).ok());
        let datetime = datetime.map(|(datetime, _)| ("datetime", super::http_date(datetime)));
        push(&memento["uri"], "memento", datetime.into_iter().collect());
    }
    for page in map["timemap_index"].as_array().into_iter().flatten() {
        // An interval marks a page.
        push(&page["uri"], "timemap", vec![("from", page["from"].as_str().unwrap_or_default().to_owned())]);
    }
    push(&map["pages"]["next"]["uri"], "timemap next", Vec::new());
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timemap_as_json_has_the_links_of_one_in_link_format() {
        let text = br#"{"original_uri": "http://a.example/", "self": "http://archive.example/map.json",
            "mementos": {"list": [{"datetime": "2010-01-02T03:04:05Z", "uri": "http://archive.example/1"},
                                  {"datetime": "soon", "uri": "http://archive.example/2"}]},
            "timegate_uri": "http://archive.example/gate", "pages": {"next": {"uri": "http://archive.example/page2"}}}"#;
        let links = links(text);
        let named =
            |rel: &str| links.iter().filter(|link| link.is(rel)).map(|link| link.href.as_str()).collect::<Vec<_>>();
        assert_eq!(named("original"), ["http://a.example/"]);
        assert_eq!(named("timegate"), ["http://archive.example/gate"]);
        assert_eq!(named("memento"), ["http://archive.example/1", "http://archive.example/2"]);
        assert_eq!(named("next"), ["http://archive.example/page2"]);
        assert_eq!(links[2].parameter("datetime"), Some("Sat, 02 Jan 2010 03:04:05 GMT"));
        assert!(super::links(b"{").is_empty() && super::links(b"[]").is_empty());
    }
}
