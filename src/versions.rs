//! Earlier versions that an archive keeps: a Memento client (RFC 7089).
//!
//! **Owns** how TimeMaps are read, what a TimeGate is asked and how its answer is understood, and where
//! archives keep the bytes of a memento as they were.
//!
//! **Assumes** that archives send anything: endless TimeMaps, pages that name each other in circles,
//! the memento nearest to a moment instead of the last before it, and HTML.
//!
//! **Promises** that each call ends in the time it is given; that no more is read or kept than its limits
//! allow; that a TimeMap which is not whole is said not to be; that no memento is given for a moment
//! before its own.
//!
//! **Never knows** what is mirrored, nor what a version is worth; it writes nothing anywhere.

mod bytes;
mod json;
mod own_links;
mod splitter;
mod targets;
mod time;
mod timegate;
mod timemap;

use crate::bounds::{self, Bounds};
use crate::document::Datetime;
use crate::source::Validators;

pub use bytes::original_bytes;
pub use own_links::{OwnLinks, own_links};
pub use splitter::Splitter;
pub use time::{http_date, memento_datetime};
pub use timegate::ask_timegate;
pub use timemap::read_timemap;

/// What a resource was at a moment, kept at a URL of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memento {
    /// Where it is: an absolute URL of `http` or `https`.
    pub url: String,
    /// The moment that it shows.
    pub datetime: Datetime,
}

/// The mementos of a resource, as an archive lists them.
#[derive(Clone, Debug, Default)]
pub struct TimeMap {
    /// Where the archive can be asked for a moment.
    pub timegate: Option<String>,
    /// By datetime, then by URL; no URL twice.
    pub mementos: Vec<Memento>,
    /// Whether all was read: neither a limit nor a broken page cut it.
    pub complete: bool,
    /// For the log: what was passed over or cut, in a few lines.
    pub notes: Vec<String>,
    /// The validators of its first page.
    pub validators: Validators,
}

/// What came of reading a TimeMap.
#[derive(Clone, Debug)]
pub enum Timeline {
    /// Its first page is as it was.
    NotModified,
    /// What it lists.
    Map(TimeMap),
}

/// How much of a TimeMap is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most pages.
    pub pages: usize,
    /// The most bytes, over all pages; also of the URLs that are kept.
    pub bytes: u64,
    /// The most mementos.
    pub mementos: usize,
}

impl Limits {
    /// What a mount with these bounds reads.
    #[must_use]
    pub fn of(bounds: &Bounds) -> Self {
        Self { pages: 100, bytes: 32 << 20, mementos: bounds::count(bounds.mementos) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&Bounds::default())
    }
}

/// What a TimeGate says.
#[derive(Clone, Debug, Default)]
pub struct Negotiated {
    /// The latest that it names and that is not after the moment. A TimeGate may know more than it names:
    /// some answer with the nearest memento, which may be after the moment, and name no other. Then the
    /// TimeMap can tell.
    pub memento: Option<Memento>,
    /// Whether the bytes of that memento are had only by asking its URL with `Accept-Datetime`.
    pub negotiated: bool,
    /// All mementos that are named in `Link` headers, by datetime, then by URL.
    pub others: Vec<Memento>,
    /// Where all mementos are listed.
    pub timemap: Option<String>,
}
