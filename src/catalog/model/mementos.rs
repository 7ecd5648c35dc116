//! Versions that are told of by links and archives rather than by changes (core 14.6, RFC 7089): what is told of them,
//! and what a `memento` link of an entry is.

use crate::document::{Datetime, Hashes, Link, relation};

/// A version that somebody remembers, and the URL that is its alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memento {
    /// URI-M, absolute.
    pub url: String,
    /// When it came into force, as far as that is told.
    pub begin: Datetime,
    /// Its Memento-Datetime, where an archive gave it: what its answer is held to.
    pub datetime: Option<Datetime>,
    /// Whether the URL gives this version only if asked with that time.
    pub negotiated: bool,
    /// The latest moment at which it is known to be the one in force; none if it is until the next one.
    pub sure: Option<Datetime>,
    /// Bytes, if they are told.
    pub size: Option<u64>,
    /// The digests of its bytes, if they are told.
    pub hashes: Hashes,
    /// The media type, if it is told.
    pub media: Option<String>,
}

impl Memento {
    /// A version of which an archive tells no more than its time.
    #[must_use]
    pub fn archived(url: String, datetime: Datetime) -> Self {
        Self {
            url,
            begin: datetime,
            datetime: Some(datetime),
            negotiated: false,
            sure: None,
            size: None,
            hashes: Hashes::default(),
            media: None,
        }
    }
}

/// What a `memento` link of an entry is (core 14.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MementoLink {
    /// Another place for the version that the entry tells of; and when that was modified, if the link says so.
    Own(String, Option<Datetime>),
    /// Another version.
    Other(Memento),
}

/// What an entry says of the version that it tells of, as far as a link is compared with it.
#[derive(Clone, Copy, Debug)]
pub struct EntrySays<'e> {
    /// The URI of the resource, which links are relative to.
    pub uri: &'e str,
    /// The digests of the bytes.
    pub hashes: &'e Hashes,
    /// Bytes.
    pub length: Option<u64>,
    /// The times that it gives: `lastmod` and `datetime`.
    pub times: [Option<Datetime>; 2],
}

impl MementoLink {
    /// Reads a link; none if it is no memento that can be fetched, or is another version of no known time.
    #[must_use]
    pub fn read<'l>(get: impl Fn(&str) -> Option<&'l str>, entry: &EntrySays<'_>) -> Option<Self> {
        if !get("rel").is_some_and(|rels| relation::is_any(rels, &["memento"])) {
            return None;
        }
        let url = url::Url::parse(entry.uri).ok()?.join(get("href")?.trim()).ok()?;
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        let url = String::from(url);
        let time = |name| get(name).and_then(|text| Datetime::parse(text).ok()).map(|(moment, _)| moment);
        let modified = time("modified").or_else(|| time("datetime"));
        let hashes = get("hash").map(|text| Hashes::parse(text, &mut Vec::new())).unwrap_or_default();
        let length: Option<u64> = get("length").and_then(|text| text.trim().parse().ok());
        let shared = hashes.iter().any(|hash| entry.hashes.get(hash.algorithm()).is_some());
        let says_nothing_of_time = entry.times.iter().all(Option::is_none);
        let own = match modified {
            _ if shared => hashes.agree(entry.hashes),
            _ if length.zip(entry.length).is_some_and(|(one, other)| one != other) => false,
            None => true,
            Some(modified) => {
                says_nothing_of_time || entry.times.iter().flatten().any(|time| time.second() == modified.second())
            }
        };
        if own {
            return Some(Self::Own(url, modified));
        }
        let media = get("type").map(str::trim).filter(|media| !media.is_empty()).map(str::to_owned);
        let begin = modified?;
        Some(Self::Other(Memento {
            size: length,
            hashes,
            media,
            begin,
            datetime: None,
            ..Memento::archived(url, begin)
        }))
    }

    /// Reads the links of an entry. The first that is a place for its own version says when that was modified.
    #[must_use]
    pub fn of_entry(links: &[Link], entry: &EntrySays<'_>) -> (Option<Datetime>, Vec<Memento>) {
        let mut modified = None;
        let mut others = Vec::new();
        for link in links {
            match Self::read(|name| link.0.get(name), entry) {
                Some(Self::Own(_, when)) => modified = modified.or(when),
                Some(Self::Other(memento)) => others.push(memento),
                None => {}
            }
        }
        (modified, others)
    }
}

/// A place of a version, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MementoRow {
    /// URI-M.
    pub url: String,
    /// What the answer's Memento-Datetime is held to.
    pub datetime: Option<Datetime>,
    /// Whether the URL gives it only if asked with that time.
    pub negotiated: bool,
    /// Whether the server said that it is no more.
    pub gone: bool,
    /// Whether the bytes came from where the archive has the original ones.
    pub original: bool,
}

/// What was asked of the versions of a resource, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeMapRow {
    /// The TimeMap.
    pub url: String,
    /// Validators.
    pub etag: Option<String>,
    /// As the server sent it.
    pub last_modified: Option<String>,
    /// When it was read last, by our clock, in nanoseconds.
    pub read: i64,
}

/// What a server answered for a place where a version can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It is no more.
    Gone,
    /// It gave the original bytes, which the archive has beside the ones that it rewrote.
    Original,
}
