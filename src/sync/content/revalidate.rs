//! Content that nothing which the Source lists tells from its next edition: neither a hash nor a time of modification. When it is
//! opened, and was not looked at for `revalidate=`, its server is asked whether it has changed; new bytes are a new version.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::download;
use super::download::Served;
use super::fetch::Contents;
use super::flight::Flight;
use super::freshness::{Revalidated, is_timeless, known_content};
use super::location::{Location, expected, represented};
use crate::catalog::{Content, KnownContent, VersionId, VersionRow};
use crate::source::Validators;
use crate::sync::config::Verify;

/// The part of `timeout` that an answer to open waits.
const SHARE: f32 = 0.4;

impl Contents {
    /// Whether an answer to open must wait for a server: then [`Contents::revalidate`] is to be called.
    pub(in crate::sync) fn is_due(&self, version: VersionId) -> bool {
        let Some(interval) = self.freshness.interval.filter(|_| !self.context.config.offline) else { return false };
        if !self.has_timeless() {
            return false;
        }
        let known = self.context.readers.ask(|reader| {
            let row = reader.version(version)?;
            let row = row.filter(|row| is_timeless(row) && self.content_of(row).is_some());
            Ok(match row {
                Some(_) => Some(reader.known_content(version)?),
                None => None,
            })
        });
        // A catalog that fails says so where the content is read.
        let Ok(Some(known)) = known else { return false };
        self.freshness.is_due(version, known.map(|known| known.checked), interval)
    }

    /// The content of a version, be it that it came a moment ago.
    fn content_of(&self, row: &VersionRow) -> Option<Content> {
        row.content.or_else(|| self.context.write_queue.pending(row.id))
    }

    /// Whether there may be content that is to be looked at again.
    pub(in crate::sync) fn has_timeless(&self) -> bool {
        if !self.freshness.timeless.load(Ordering::Relaxed) {
            let found = self.context.readers.ask(|reader| reader.has_timeless()).unwrap_or(false);
            self.freshness.timeless.fetch_or(found, Ordering::Relaxed);
        }
        self.freshness.timeless.load(Ordering::Relaxed)
    }

    /// Asks whether content is still what its server has. A server that does not answer leaves it as it is, until the next time.
    /// One asking at a time for a version; it goes on if nobody waits for it any more.
    pub(in crate::sync) async fn revalidate(self: &Arc<Self>, version: VersionId) -> Revalidated {
        let asking = Arc::clone(self);
        let asked = self.freshness.revalidating.once(version, async move { asking.ask_again(version).await });
        asked.await.unwrap_or_else(|| Revalidated::Unknown("a bug ended the request; see the log".to_owned()))
    }

    /// As [`Contents::revalidate`], for somebody who waits a part of the timeout, and gets what is here then.
    pub(in crate::sync) async fn revalidate_soon(self: &Arc<Self>, version: VersionId) -> Revalidated {
        let within = self.context.client.timeout().mul_f32(SHARE);
        let late = || Revalidated::Unknown(format!("no answer within {:.1} s", within.as_secs_f32()));
        tokio::time::timeout(within, self.revalidate(version)).await.unwrap_or_else(|_| late())
    }

    async fn ask_again(self: &Arc<Self>, version: VersionId) -> Revalidated {
        let Ok(Some(row)) = self.row(version) else { return Revalidated::Current };
        let Some(content) = self.content_of(&row).filter(|_| is_timeless(&row)) else { return Revalidated::Current };
        // Where that cannot be asked of the catalog, all of it comes again.
        let before = self.context.readers.ask(|reader| reader.known_content(version)).ok().flatten();
        let known = before
            .map(|known| Validators { etag: known.etag, last_modified: known.last_modified, settled: true })
            .filter(|known| !known.is_empty());
        // Who opens it meanwhile gets what is here.
        self.freshness.note(&self.context.write_queue, version, known.clone().unwrap_or_default(), None);
        let place = Location::plain(represented(&row).unwrap_or_else(|| row.uri.clone()));
        let (flight, expected) = (Arc::new(Flight::new()), expected(&row));
        let job = download::Job {
            bounds: &self.context.config.bounds,
            client: &self.context.client,
            store: &self.context.store,
            status: &self.context.status,
            flight: &flight,
            // What comes is not the content of this version: it has a file of its own.
            version: VersionId::new(-version.number()),
            place: &place,
            expected: &expected,
            // Nobody reads it before it is whole.
            verify: if self.context.config.verify == Verify::Stream {
                Verify::Strict
            } else {
                self.context.config.verify
            },
            known: known.as_ref(),
            patience: Some(self.context.client.timeout().mul_f32(SHARE)),
            aside: true,
        };
        let ran = job.run().await;
        if ran.is_err()
            && let Err(error) = self.context.store.forget_partial(-version.number())
        {
            self.context.status.warning(&format!("cache: {error}"));
        }
        let came = match ran {
            Ok(Some(served)) if served.content.sha256 == content.sha256 => Ok(Some(served)),
            Ok(Some(served)) => self.hold_to_its_format(&row, &place, served).await.map(Some),
            other => other,
        };
        let Served { content: now, validators, media, .. } = match came {
            Ok(Some(served)) => served,
            Ok(None) => return Revalidated::Current,
            Err(error) => {
                let why = format!("{error}; whether it has changed is not known, and what is here is served");
                self.context.status.warning(&why);
                return Revalidated::Unknown(why);
            }
        };
        if now.sha256 == content.sha256 {
            self.freshness.note(&self.context.write_queue, version, validators, media);
            return Revalidated::Current;
        }
        self.supersede(version, now, known_content(validators, media)).await
    }

    /// Gives a resource a new version, of other content than this one's.
    async fn supersede(&self, version: VersionId, now: Content, known: KnownContent) -> Revalidated {
        self.context.write_queue.renewed(version, now, known);
        match self.context.write_queue.settled().await {
            Ok(()) => Revalidated::Superseded,
            Err(error) => {
                self.context.status.error(&error.to_string());
                Revalidated::Unknown(error.to_string())
            }
        }
    }
}
