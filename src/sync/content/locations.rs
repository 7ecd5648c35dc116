//! Where the content of a version can be fetched: its own URL and its mirrors while it is in force, and always the
//! URLs that are its alone (core 14.6).
//!
//! An archive that rewrites pages has the original bytes elsewhere: those are asked for first. What an archive
//! answers is held to the time that it gave: asked for a capture that it does not have, it may give another.

use super::fetch::Contents;
use super::flight::Failure;
use super::location::{Location, duplicates, expected, represented};
use crate::catalog::{Answered, EntrySays, MementoRow, VersionId, VersionRow};
use crate::source::{SourceError, Trouble, locations};

/// The most mementos of a version that are asked.
const MOST_PLACES: usize = 8;

impl Contents {
    /// Where a version is fetched from, the best first.
    pub(in crate::sync) fn locations_of(&self, row: &VersionRow) -> Result<Vec<Location>, Failure> {
        if let Some(alternate) = represented(row) {
            // What else is known of is of other bytes.
            return Ok(Some(Location::plain(alternate)).filter(|_| row.current).into_iter().collect());
        }
        let mut mementos = self
            .context
            .readers
            .ask(|reader| reader.mementos(row.id))
            .map_err(|error| self.failed(row.id, error.to_string()))?;
        let length = expected(row).length;
        let times = [Some(row.begin), Some(row.mtime)];
        let says = EntrySays { uri: &row.uri, hashes: &row.hashes, length, times };
        for url in row.extra.own_mementos(&says) {
            if !mementos.iter().any(|known| known.url == url) {
                let known = MementoRow { url, datetime: None, negotiated: false, gone: false, original: false };
                mementos.insert(0, known);
            }
        }
        let own = locations(&row.uri, &duplicates(row), !row.hashes.is_empty());
        let there = mementos.iter().filter(|known| !known.gone).take(MOST_PLACES);
        let remembered: Vec<Location> =
            there.flat_map(|known| Location::of_memento(known, row, own.contains(&known.url))).collect();
        let own = own.into_iter().filter(|_| row.current).map(Location::plain);
        Ok(own.chain(remembered).collect())
    }

    /// The same; of what is known to be nowhere, the Source is asked first whether it has it after all.
    pub(in crate::sync) async fn places_of(
        &self,
        row: &VersionRow,
        waited_for: bool,
    ) -> Result<Vec<Location>, Failure> {
        let places = self.locations_of(row)?;
        if !places.is_empty() || !waited_for {
            return Ok(places);
        }
        let resource = self.context.readers.ask(|reader| reader.ever(row.name));
        let resource = resource.map_err(|error| self.failed(row.id, error.to_string()))?.resource;
        self.history.bring(resource, None, false).await;
        self.locations_of(row)
    }

    /// Notes what came of asking a place that is a version's alone.
    pub(in crate::sync) async fn place_told(
        &self,
        version: VersionId,
        place: &Location,
        result: Result<(), &SourceError>,
    ) {
        let Some(memento) = place.memento.clone() else { return };
        let answered = match result {
            Ok(()) if memento.original => Answered::Original,
            Ok(()) => return,
            // The other form may still be there.
            Err(error) if memento.original || !is_gone(error) => return,
            Err(_) => Answered::Gone,
        };
        let write = self.context.write_queue.step(move |writer| {
            // If this is lost with the machine's power, it is found out again.
            let transaction = writer.begin(false)?;
            transaction.place_is(version, &memento.url, answered)?;
            Ok(((), transaction.commit()?))
        });
        if let Err(error) = write.await {
            self.context.status.error(&error.to_string());
        }
    }
}

/// Whether there are no such bytes, nor ever will be: what an archive has of a redirect or an error is that, and what leads to
/// another version has no other.
fn is_gone(error: &SourceError) -> bool {
    matches!(error.trouble, Trouble::Archived(_) | Trouble::Status { code: 404 | 410, .. } | Trouble::Nowhere(_))
}
