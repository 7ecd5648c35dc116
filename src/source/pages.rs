//! Pages that discovery has read, and the memory of them.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use url::Url;

use super::validators::Validators;
use crate::document::{Entry, Head};

/// How a Source was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/.well-known/resourcesync` (core 6.3.2).
    WellKnown,
    /// The URL is that of a document.
    Document,
    /// A `Link` header field of the page (core 6.3.3).
    LinkHeader,
    /// A `<link>` of the page (core 6.3.3).
    HtmlLink,
    /// `robots.txt` (core 6.3.4).
    Robots,
    /// `/sitemap.xml`, where sites have it by custom.
    Sitemap,
}

/// A document as far as discovery needs it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// What was asked for: it stands for the document, wherever redirects led this time.
    pub(super) asked: Url,
    /// Where it came from: the base of its relative references.
    pub(super) url: Url,
    pub(super) head: Head,
    pub(super) entries: Vec<Entry>,
    /// The bytes that were read of it.
    pub(super) size: usize,
}

/// What a page is.
#[derive(Clone, Debug)]
pub(super) enum Page {
    Document(Box<Seen>),
    /// HTML, with the links of its head or of itself.
    Links(Route, Vec<Url>),
}

impl Route {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WellKnown => "well-known",
            Self::Document => "document",
            Self::LinkHeader => "link-header",
            Self::HtmlLink => "html-link",
            Self::Robots => "robots.txt",
            Self::Sitemap => "sitemap.xml",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Pages that were read, with their validators: a check whether a Source still offers the same costs answers without a body.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<Url, (Validators, Page)>>);

/// The most pages that are remembered.
const MOST_REMEMBERED: usize = 64;

/// The most bytes of a page whose entries are remembered.
const MOST_BYTES: usize = 64 << 10;

impl Memory {
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    pub(super) fn get(&self, url: &Url) -> Option<(Validators, Page)> {
        self.0.lock().get(url).cloned()
    }

    pub(super) fn put(&self, url: &Url, validators: Validators, page: &Page) {
        let mut known = self.0.lock();
        // Written just now, it may be written again within the same second.
        let is_conditional = validators.etag.is_some() || validators.last_modified.is_some() && validators.settled;
        // A server that fails, or a bot wall, sends a page with the validators of the document that it is in place of.
        let is_small = matches!(page, Page::Document(seen) if seen.entries.is_empty() || seen.size <= MOST_BYTES);
        if !is_small || !is_conditional || known.len() >= MOST_REMEMBERED && !known.contains_key(url) {
            known.remove(url);
            return;
        }
        known.insert(url.clone(), (validators, page.clone()));
    }
}
