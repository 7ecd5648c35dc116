//! Where the content of a version can be fetched: its own URL and its mirrors while it is in force, and always the
//! URLs that are its alone (core 14.6).
//!
//! An archive that rewrites pages has the original bytes elsewhere: those are asked for first. What an archive
//! answers is held to the time that it gave: asked for a capture that it does not have, it may give another.

use super::content::{Contents, Failure, duplicates, expected};
use crate::catalog::{MementoRow, VersionRow};
use crate::document::Datetime;
use crate::source::{Answer, SourceError, Trouble, locations};
use crate::versions;

/// A place to fetch a version from.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) url: String,
    pub(super) memento: Option<Remembered>,
}

/// What the place is known as, where it is a version's alone.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    /// URI-M.
    url: String,
    /// What the answer's Memento-Datetime is held to.
    datetime: Option<Datetime>,
    /// Whether it has to be asked for with that time.
    negotiated: bool,
    /// Whether this is where the archive has the original bytes.
    original: bool,
}

impl Location {
    /// What has to be asked for beside the URL.
    pub(super) fn accept_datetime(&self) -> Option<String> {
        let memento = self.memento.as_ref().filter(|memento| memento.negotiated)?;
        memento.datetime.map(versions::http_date)
    }

    /// Holds an answer to the time of the version that was asked for. `verifiable` says that its bytes will be held
    /// to a hash.
    pub(super) fn check(&self, answer: &Answer, verifiable: bool) -> Result<(), SourceError> {
        let Some(memento) = &self.memento else { return Ok(()) };
        if !matches!(answer.status, 200 | 206) {
            let trouble = Trouble::Status { code: answer.status, retry_after: None };
            return Err(SourceError::new(&self.url, trouble));
        }
        let other = |what: String| Err(SourceError::new(&self.url, Trouble::Nowhere(what)));
        match (versions::memento_datetime(&answer.headers), memento.datetime) {
            (Some(given), Some(wanted)) if given.second() != wanted.second() => {
                other(format!("the archive gives the version of {given}, not of {wanted}"))
            }
            (None, Some(wanted)) if memento.negotiated => {
                other(format!("it does not say whether what it gives is the version of {wanted}"))
            }
            // It may lead out of the archive, to what is there now.
            (None, _) if !answer.passed.is_empty() && !verifiable => {
                other(format!("it leads to {}, which does not say of what time it is", answer.url))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn plain(url: String) -> Self {
        Self { url, memento: None }
    }

    /// Where a memento is asked for, in this order.
    fn of_memento(row: &MementoRow) -> Vec<Self> {
        let location = |url: String, original| Self {
            memento: Some(Remembered {
                url: row.url.clone(),
                datetime: row.datetime,
                negotiated: row.negotiated,
                original,
            }),
            url,
        };
        let raw = versions::original_bytes(&row.url).filter(|_| !row.negotiated);
        raw.map(|raw| location(raw, true)).into_iter().chain([location(row.url.clone(), false)]).collect()
    }
}

impl Contents {
    /// Where a version is fetched from, the best first.
    pub(super) fn locations_of(&self, row: &VersionRow) -> Result<Vec<Location>, Failure> {
        let mut mementos = self
            .readers
            .ask(|reader| reader.mementos(row.id))
            .map_err(|error| self.failed(row.id, error.to_string()))?;
        let length = expected(row).length;
        for url in row.extra.own_mementos(&row.uri, &row.hashes, length, row.begin, row.mtime.nanos()) {
            if !mementos.iter().any(|known| known.url == url) {
                let known = MementoRow { url, datetime: None, negotiated: false, gone: false, original: false };
                mementos.insert(0, known);
            }
        }
        let own = match row.current {
            true => locations(&row.uri, &duplicates(row), !row.hashes.is_empty()),
            false => Vec::new(),
        };
        let own = own.into_iter().map(Location::plain);
        let remembered = mementos.iter().filter(|known| !known.gone).flat_map(Location::of_memento);
        Ok(own.chain(remembered).collect())
    }

    /// Notes what came of asking a place that is a version's alone.
    pub(super) async fn place_told(&self, version: i64, place: &Location, result: Result<(), &SourceError>) {
        let Some(memento) = place.memento.clone() else { return };
        let gone = match result {
            Ok(()) => false,
            // The other form may still be there.
            Err(error) if memento.original || !is_gone(error) => return,
            Err(_) => true,
        };
        let write = self
            .ledger
            .write(move |transaction| transaction.place_is(version, &memento.url, gone, memento.original))
            .await;
        if let Err(error) = write {
            self.status.error(&error.to_string());
        }
    }
}

/// Whether there are no bytes, nor ever will be: what an archive has of a redirect is a redirect.
fn is_gone(error: &SourceError) -> bool {
    matches!(error.trouble, Trouble::Status { code: 300..=399 | 404 | 410, .. })
}
