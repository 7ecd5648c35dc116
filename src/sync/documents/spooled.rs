//! A document that was downloaded into the spool, with its further pages, and its entries in document order.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use url::Url;

use crate::bounds::Bounds;
use crate::catalog::DocumentRow;
use crate::document::{Attributes, Datetime, Dialect, DocumentError, Entry, Facts, Head, Limits, Reader, Warnings};
use crate::sync::transfer::package::Package;

/// A time in a document that is less than this away from the time of the answer is that of the request: it tells no edition from
/// another, and an interval that ends then is open.
pub(in crate::sync) const OF_THE_REQUEST: Duration = Duration::from_secs(5);

/// A document that lies in the spool.
#[derive(Debug)]
pub(in crate::sync) struct Spooled {
    pub(in crate::sync) row: DocumentRow,
    /// The URL that it was downloaded from: the base of its relative references.
    pub(in crate::sync) base: Url,
    /// Its file, which is deleted with this.
    pub(in crate::sync) path: TempPath,
    /// The further pages of a Change List (`rs:ln rel="next"`), in their order.
    pub(in crate::sync) pages: Vec<Page>,
    /// The encoding that its server names (the `charset` of `Content-Type`).
    pub(in crate::sync) charset: Option<String>,
    /// The dialect that it was found to be of.
    pub(in crate::sync) dialect: Dialect,
    /// When the server answered.
    pub(in crate::sync) date: Datetime,
    /// The `at` of the index that names it, or of the page before it.
    pub(in crate::sync) inherited_at: Option<Datetime>,
    /// The package that it is the manifest of, where that can be read from.
    pub(in crate::sync) package: Option<Arc<Package>>,
    /// The names of the manifests in that package of which these are the pages, if `manifest.xml` is an index of them.
    pub(in crate::sync) manifests: Vec<String>,
    pub(in crate::sync) about: About,
    /// The limits on what is read of it.
    pub(in crate::sync) bounds: Bounds,
    /// The media type of alternates that represent their resources (`prefer=`).
    pub(in crate::sync) prefer: Option<Arc<str>>,
}

/// A further page of a document.
#[derive(Debug)]
pub(in crate::sync) struct Page {
    pub(in crate::sync) path: TempPath,
    pub(in crate::sync) charset: Option<String>,
    pub(in crate::sync) dialect: Dialect,
    pub(in crate::sync) base: Url,
}

/// Whether an interval that ends at `until` ended before `time`; not if either is unknown.
pub(in crate::sync) fn ended_before(until: Option<Datetime>, time: Option<Datetime>) -> bool {
    until.zip(time).is_some_and(|(until, time)| until < time)
}

impl Spooled {
    /// Whether its interval ended before `time`. If lists of that time were read, only the history needs this document, and no
    /// later document waits for it.
    pub(in crate::sync) fn ended_before(&self, time: Option<Datetime>) -> bool {
        ended_before(self.about.until, time)
    }

    /// A document of one page, downloaded from `base` into `path` just now.
    pub(in crate::sync) fn new(
        row: DocumentRow,
        base: Url,
        path: TempPath,
        about: About,
        (bounds, prefer): (Bounds, Option<Arc<str>>),
    ) -> Self {
        Self {
            row,
            base,
            path,
            pages: Vec::new(),
            charset: None,
            dialect: Dialect::Sitemap,
            date: Datetime::now(),
            inherited_at: None,
            package: None,
            manifests: Vec::new(),
            about,
            bounds,
            prefer,
        }
    }

    /// Opens it. `name` names it in errors.
    ///
    /// # Errors
    /// As [`Reader::open`], and if its file cannot be opened.
    pub(in crate::sync) fn entries(&self, name: &str) -> Result<Entries<'_>, DocumentError> {
        let reader = open(&self.path, (self.dialect, self.charset.as_deref()), name, &self.bounds)?;
        Ok(Entries { document: self, name: name.to_owned(), reader, page: 0, consumed: 0 })
    }

    /// A digest of the entries of all its pages, as far as they can be read.
    pub(in crate::sync) fn digest_of_entries(&self) -> [u8; 32] {
        // Reading them takes seconds where they are many.
        tokio::task::block_in_place(|| {
            let mut hasher = Sha256::new();
            if let Ok(mut entries) = self.entries(&self.row.url) {
                while let Ok(Some(entry)) = entries.next() {
                    digest_entry(&mut hasher, &entry);
                }
            }
            hasher.finalize().into()
        })
    }

    /// When its snapshot began: its own `at`, else that of the index that names it.
    pub(in crate::sync) fn at(&self) -> Option<Datetime> {
        self.row.at.or(self.inherited_at)
    }

    /// Appends the pages of `next`, which continues it.
    pub(in crate::sync) fn append(&mut self, next: Self) {
        let both = |own: Option<Datetime>, next: Option<Datetime>| own.zip(next).map(|(own, next)| own.max(next));
        match self.about.from.zip(next.about.from) {
            // Each page has an interval of its own: the list ends when all of them have ended.
            Some((own, other)) if own != other => {
                self.about.from = Some(own.min(other));
                self.about.until = both(self.about.until, next.about.until);
                self.about.announced = both(self.about.announced, next.about.announced);
            }
            interval => {
                let differ = self.about.announced.is_some() != next.about.announced.is_some();
                self.about.is_mixed |= interval.is_some() && differ;
                self.about.until = self.about.until.or(next.about.until);
                self.about.announced = self.about.announced.or(next.about.announced);
            }
        }
        self.pages.push(Page { path: next.path, charset: next.charset, dialect: next.dialect, base: next.base });
        self.pages.extend(next.pages);
        self.about.next = next.about.next;
        self.about.oldest = [self.about.oldest, next.about.oldest].into_iter().flatten().min();
        // Whether a page after the first has changed, the validators of the first do not say.
        (self.row.etag, self.row.last_modified) = (None, None);
    }
}

fn open(
    path: &Path,
    (dialect, charset): (Dialect, Option<&str>),
    name: &str,
    bounds: &Bounds,
) -> Result<Reader<'static>, DocumentError> {
    let failed = |error: std::io::Error| DocumentError {
        url: name.to_owned(),
        line: 1,
        column: 1,
        problem: format!("opening its downloaded copy: {error}"),
    };
    // The reader detects all other dialects before the first element that depends on them.
    let dialect = if dialect == Dialect::V0_1 { dialect } else { Dialect::Sitemap };
    Reader::open_as(dialect, charset, File::open(path).map_err(failed)?, name, Limits::of(bounds))
}

/// The entries of a document, page after page. Relative references of links are resolved against the page they are in.
pub(in crate::sync) struct Entries<'d> {
    document: &'d Spooled,
    name: String,
    reader: Reader<'static>,
    /// The number of further pages that were opened.
    page: usize,
    /// The bytes of the pages before this one.
    consumed: u64,
}

impl Entries<'_> {
    /// The next entry; `None` at the end of a document that is whole.
    ///
    /// # Errors
    /// As [`Reader::next`], and if the next page cannot be opened. Nothing follows an error.
    #[allow(clippy::should_implement_trait, reason = "an error ends the document; an iterator would go on")]
    pub(in crate::sync) fn next(&mut self) -> Result<Option<Entry>, DocumentError> {
        loop {
            if let Some(entry) = self.reader.next()? {
                return Ok(Some(entry.resolved(self.base())));
            }
            let Some(page) = self.document.pages.get(self.page) else { return Ok(None) };
            let mut next =
                open(&page.path, (page.dialect, page.charset.as_deref()), &self.name, &self.document.bounds)?;
            self.page += 1;
            self.consumed += self.reader.consumed();
            let mut warnings = std::mem::take(self.reader.warnings_mut());
            warnings.append(std::mem::take(next.warnings_mut()));
            *next.warnings_mut() = warnings;
            self.reader = next;
        }
    }

    /// The base of relative references in the page that the last entry is from.
    fn base(&self) -> &Url {
        match self.page {
            0 => &self.document.base,
            page => self.document.pages.get(page - 1).map_or(&self.document.base, |page| &page.base),
        }
    }

    /// What was tolerated so far.
    pub(in crate::sync) fn warnings(&self) -> &Warnings {
        self.reader.warnings()
    }

    /// The place for warnings that a typed reading adds.
    pub(in crate::sync) fn warnings_mut(&mut self) -> &mut Warnings {
        self.reader.warnings_mut()
    }

    /// How many bytes were read, as decompressed.
    pub(in crate::sync) fn consumed(&self) -> u64 {
        self.consumed + self.reader.consumed()
    }
}

/// Adds all that an entry says to a digest.
pub(in crate::sync) fn digest_entry(hasher: &mut Sha256, entry: &Entry) {
    let mut add = |text: &str| {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    add(&entry.loc);
    add(entry.lastmod.as_deref().unwrap_or_default());
    let mut pairs = |attributes: &Attributes| {
        attributes.iter().for_each(|(name, value)| {
            add(name);
            add(value);
        });
        add("");
    };
    pairs(&entry.md);
    entry.links.iter().for_each(|link| pairs(&link.0));
}

/// The metadata of a document: its root `rs:md` and `rs:ln`.
#[derive(Clone, Debug, Default)]
pub(in crate::sync) struct About {
    /// The beginning of the interval whose changes it lists.
    pub(in crate::sync) from: Option<Datetime>,
    /// The end of that interval; `None` while it is open.
    pub(in crate::sync) until: Option<Datetime>,
    /// The end as the document gives it: one that lies at the time of the request closes nothing.
    pub(in crate::sync) announced: Option<Datetime>,
    /// Whether one of its pages has an end, and another of the same interval has none: they may be of two editions.
    pub(in crate::sync) is_mixed: bool,
    /// The index that it belongs to (core 12.1).
    pub(in crate::sync) index: Option<String>,
    /// The Capability List.
    pub(in crate::sync) up: Option<String>,
    /// The page that continues it.
    pub(in crate::sync) next: Option<String>,
    /// The document with the changes before those of this one (0.1, 6.1).
    pub(in crate::sync) prev: Option<String>,
    /// The time of its oldest change, where it gives no interval and `lastmod` is when a change happened.
    pub(in crate::sync) oldest: Option<Datetime>,
    /// Whether `lastmod` is when a change happened.
    pub(in crate::sync) by_lastmod: bool,
}

impl About {
    /// Reads the head of a document that was downloaded from `base`.
    pub(in crate::sync) fn of(head: &Head, facts: &Facts, base: &Url) -> Self {
        let absolute = |link: Option<&str>| link.and_then(|href| base.join(href).ok()).map(String::from);
        Self {
            from: facts.from,
            until: facts.until,
            announced: facts.until,
            is_mixed: false,
            index: absolute(head.index()),
            up: absolute(head.above()),
            next: absolute(head.link("next")).filter(|next| *next != base.as_str()),
            prev: absolute(head.before()),
            oldest: None,
            by_lastmod: head.changes_by_lastmod(),
        }
    }
}
