//! Places where the content of a version can be fetched, and what is expected there.

use crate::catalog::{MementoRow, VersionRow};
use crate::document::{Datetime, Link, relation};
use crate::source::{Answer, Expected, SourceError, Trouble};
use crate::versions;

/// A place to fetch a version from.
#[derive(Clone, Debug)]
pub(in crate::sync) struct Location {
    pub(in crate::sync) url: String,
    pub(in crate::sync) memento: Option<Remembered>,
}

/// What the place is known as, where it is a version's alone.
#[derive(Clone, Debug)]
pub(in crate::sync) struct Remembered {
    /// URI-M.
    pub(in crate::sync) url: String,
    /// What the answer's Memento-Datetime is held to.
    pub(in crate::sync) datetime: Option<Datetime>,
    /// Whether it has to be asked for with that time.
    pub(in crate::sync) negotiated: bool,
    /// Whether this is where the archive has the original bytes.
    pub(in crate::sync) original: bool,
    /// When the version came into force.
    pub(in crate::sync) begin: Datetime,
    /// Whether the URL is one where the resource itself is had: it has the newest version, but for who negotiates.
    pub(in crate::sync) shared: bool,
}

impl Location {
    /// What has to be asked for beside the URL.
    pub(in crate::sync) fn accept_datetime(&self) -> Option<String> {
        let memento = self.memento.as_ref().filter(|memento| memento.negotiated)?;
        memento.datetime.map(versions::http_date)
    }

    /// Holds an answer to the time of the version that was asked for. `verifiable` says that its bytes will be held
    /// to a hash.
    pub(in crate::sync) fn check(&self, answer: &Answer, verifiable: bool) -> Result<(), SourceError> {
        let Some(memento) = &self.memento else { return Ok(()) };
        if !matches!(answer.status, 200 | 206) {
            return Err(SourceError::new(&self.url, Trouble::Archived(answer.status)));
        }
        let other = |what: String| Err(SourceError::new(&self.url, Trouble::Nowhere(what)));
        let given = versions::memento_datetime(&answer.headers);
        // It may lead out of the archive, to what is there now, or to another capture.
        let led_away = !answer.passed.is_empty();
        let wanted = memento.datetime.or(led_away.then_some(memento.begin).filter(|_| !verifiable));
        match (given, wanted) {
            (Some(given), Some(wanted)) if given.second() != wanted.second() => {
                other(format!("the archive gives the version of {given}, not of {wanted}"))
            }
            (None, _) if memento.negotiated || !verifiable && (led_away || memento.shared || memento.original) => {
                other(format!("{} does not say of what time it is", answer.url))
            }
            _ => Ok(()),
        }
    }

    /// Whether what failed here is not to be asked of another place for the same memento: what passes may be asked
    /// again, and that place has something else.
    pub(in crate::sync) fn keeps_from(&self, next: &Self, error: &SourceError) -> bool {
        let passes = error.trouble.passes() || error.trouble.is_away();
        let url = |place: &Self| place.memento.as_ref().map(|memento| memento.url.clone());
        passes && self.memento.as_ref().is_some_and(|memento| memento.original) && url(self) == url(next)
    }

    pub(in crate::sync) fn plain(url: String) -> Self {
        Self { url, memento: None }
    }

    /// Where a memento is asked for, in this order.
    pub(in crate::sync) fn of_memento(row: &MementoRow, version: &VersionRow, shared: bool) -> Vec<Self> {
        let location = |url: String, original| Self {
            memento: Some(Remembered {
                url: row.url.clone(),
                datetime: row.datetime,
                negotiated: row.negotiated,
                original,
                begin: version.begin,
                shared,
            }),
            url,
        };
        let raw = versions::original_bytes(&row.url).filter(|_| !row.negotiated);
        raw.map(|raw| location(raw, true)).into_iter().chain([location(row.url.clone(), false)]).collect()
    }
}

pub(in crate::sync) fn expected(row: &VersionRow) -> Expected {
    let listed = row.size.filter(|_| !row.settled && row.extra.encoding.is_none());
    Expected {
        length: row.extra.length.or(listed),
        hashes: row.hashes.clone(),
        encoding: row.extra.encoding.clone(),
        media: row.media.clone(),
    }
}

/// Where the alternate is that is taken for a resource.
pub(in crate::sync) fn represented(row: &VersionRow) -> Option<String> {
    let href = row.extra.preferred()?;
    url::Url::parse(&row.uri).ok()?.join(href).ok().map(String::from)
}

pub(in crate::sync) fn duplicates(row: &VersionRow) -> Vec<(u32, String)> {
    row.extra
        .links
        .iter()
        .filter(|link| link.get("rel").is_some_and(|rel| relation::is_any(rel, &relation::DUPLICATE)))
        .filter_map(|link| {
            let href = url::Url::parse(&row.uri).ok()?.join(link.get("href")?.trim()).ok()?;
            Some((Link::priority_of(link.get("pri").map(String::as_str)), href.to_string()))
        })
        .collect()
}
