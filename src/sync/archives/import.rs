//! Documents of archives, brought here and written into the past in the order of time.
//!
//! Lists cut time into windows, and so does the beginning of each document of changes: what happened in a window is gone through
//! before anything that happened later, whichever documents tell of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::plan::{Plan, Planned};
use super::read;
use super::read::{Changes, Coming, Told};
use crate::catalog::{CatalogError, NameId, Past, SetRow, Transaction};
use crate::document::{Capability, Datetime};
use crate::source::SourceError;
use crate::sync::apply::attach::Attacher;
use crate::sync::context::Context;
use crate::sync::documents::dumps::{Offered, Reading};
use crate::sync::documents::fetch::DocumentFetcher;
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{dumps, lists};
use crate::sync::error::SyncError;

/// How many changes are written in one step.
const STEP: usize = 2_000;
/// So many documents are read side by side; of more that tell of the same time, some are gone through after others.
const AT_ONCE: usize = 16;

/// A document of changes that is being read, window after window.
struct Open {
    planned: Planned,
    documents: Vec<Changes>,
    failure: Option<String>,
}

impl Open {
    /// Whether it tells of nothing any more from a moment on.
    fn is_done(&self, until: Datetime) -> bool {
        self.documents.iter().all(|document| document.last().is_none_or(|last| last < until))
    }
}

/// A document that is being read in a window, and what of it waits.
struct Stream {
    coming: Coming,
    waiting: VecDeque<Told>,
    /// Its document, and the part of that.
    place: (usize, usize),
    ended: bool,
}

/// Whoever brings documents, and has them written into the past, in the order of time.
pub(in crate::sync) struct ArchiveImporter<'e> {
    context: &'e Arc<Context>,
    set: &'e SetRow,
    /// Away while a step has it.
    past: Option<Past>,
    plan: Plan,
    open: Vec<Open>,
    /// How many documents could not be read, or not whole.
    pub(in crate::sync) failed: u64,
}

impl<'e> ArchiveImporter<'e> {
    pub(in crate::sync) fn new(context: &'e Arc<Context>, set: &'e SetRow, past: Past, plan: Plan) -> Self {
        Self { context, set, past: Some(past), plan, open: Vec::new(), failed: 0 }
    }

    /// How many versions became known.
    pub(in crate::sync) fn versions(&self) -> u64 {
        self.past.as_ref().map_or(0, |past| past.versions)
    }

    /// All there is to be read, from the oldest to the newest.
    pub(in crate::sync) async fn read(&mut self) -> Result<(), SyncError> {
        let mut from = Datetime::from_nanos(i64::MIN);
        loop {
            let list = self.plan.snapshots.front().and_then(|planned| planned.begin);
            let begins = self.plan.changes.iter().filter_map(|planned| planned.begin).find(|begin| *begin > from);
            let until = list.into_iter().chain(begins).fold(self.plan.horizon, Datetime::min);
            self.changes(from, until).await?;
            from = until;
            match self.plan.snapshots.pop_front_if(|planned| planned.begin.is_none_or(|at| at <= until)) {
                Some(planned) => self.snapshot(&planned, until).await?,
                None if until >= self.plan.horizon => break,
                None => {}
            }
        }
        // What is not followed may go on beyond the last list: it is told when there is a newer one.
        let done = std::mem::take(&mut self.open).into_iter();
        let done: Vec<Open> = done.filter(|open| self.plan.follows || open.is_done(self.plan.horizon)).collect();
        self.close(done).await
    }

    /// All that changed from one moment until another.
    async fn changes(&mut self, from: Datetime, until: Datetime) -> Result<(), SyncError> {
        while let Some(planned) =
            self.plan.changes.pop_front_if(|planned| planned.begin.is_none_or(|begin| begin < until))
        {
            match self.bring_changes(&planned).await {
                Ok(open) => {
                    self.read_on(&open);
                    self.open.push(open);
                }
                Err(SyncError::Source(error)) => self.could_not(&planned, error).await?,
                Err(error) => return Err(error),
            }
        }
        self.window(from, until).await?;
        let (done, open) = std::mem::take(&mut self.open).into_iter().partition(|open| open.is_done(until));
        self.open = open;
        self.close(done).await
    }

    /// What was read of the time after a document that was not had until now may tell more than it did: what ended nothing then
    /// may end something now. Up to the next list, that is.
    fn read_on(&mut self, open: &Open) {
        let last = open.documents.iter().filter_map(Changes::last).max();
        let Some(first) = open.documents.iter().filter_map(Changes::first).min() else { return };
        let next = self.past.as_ref().and_then(|past| past.next_list(last.unwrap_or(first)));
        // The one before may overlap it.
        let begin = self.plan.read.partition_point(|planned| planned.begin.is_none_or(|begin| begin <= first));
        let late = self.plan.read.split_off(begin.saturating_sub(1));
        let is_before = |planned: &Planned| next.is_none_or(|next| planned.begin.is_none_or(|begin| begin < next));
        let (again, rest): (Vec<Planned>, Vec<Planned>) = late.into_iter().partition(is_before);
        self.plan.read.extend(rest);
        self.context.status.read_archives(|archives| archives.left += again.len() as u64);
        self.plan.changes.extend(again);
        self.plan.changes.make_contiguous().sort_by_key(|planned| planned.begin);
    }

    /// These have been read to their ends.
    async fn close(&mut self, done: Vec<Open>) -> Result<(), SyncError> {
        for Open { planned, documents, failure } in done {
            let timeless: u64 = documents.iter().map(|document| document.timeless).sum();
            if timeless > 0 {
                self.context.status.warning(&format!(
                    "{}: {timeless} changes have no time of their own, or one that has not come yet, and are no history",
                    planned.url
                ));
            }
            let (set, row) = (self.set.id, planned.row(failure.clone()));
            let status = Arc::clone(&self.context.status);
            let attachers: Vec<Attacher> = documents.into_iter().filter_map(|document| document.attacher).collect();
            self.tell(move |transaction| {
                attachers.into_iter().try_for_each(|attacher| attacher.finish(transaction, &status).map(drop))?;
                transaction.put_archived(set, &row)
            })
            .await?;
            self.count(failure.is_some());
        }
        Ok(())
    }

    /// Has something written when a document was read, and tells whoever looks at the past.
    pub(in crate::sync) async fn tell(
        &mut self,
        write: impl FnOnce(&mut Transaction<'_>) -> Result<(), CatalogError> + Send + 'static,
    ) -> Result<(), SyncError> {
        let mut past = self.past.take();
        self.past = self
            .context
            .write_queue
            .step(move |writer| {
                let mut transaction = writer.begin(true)?;
                transaction.tell_past(past.as_mut());
                write(&mut transaction)?;
                Ok((past, transaction.commit()?))
            })
            .await?;
        Ok(())
    }

    fn count(&mut self, failed: bool) {
        self.failed += u64::from(failed);
        self.context.status.read_archives(|archives| archives.left = archives.left.saturating_sub(1));
    }

    /// It cannot be read: that is said, and noted.
    async fn could_not(&mut self, planned: &Planned, error: SourceError) -> Result<(), SyncError> {
        self.context.status.error(&format!("{error}; it is missing in the history"));
        self.count(true);
        let (set, row) = (self.set.id, planned.row(Some(error.trouble.to_string())));
        self.context.write_queue.write(move |transaction| transaction.put_archived(set, &row)).await
    }

    async fn bring_changes(&self, planned: &Planned) -> Result<Open, SyncError> {
        let context = self.context;
        let found =
            lists::bring(&DocumentFetcher::new(context, planned.capability), std::slice::from_ref(&planned.url), &[])
                .await;
        let mut failed = found.failed;
        let mut documents = found.read;
        if planned.capability == Capability::ChangeDump {
            let packed = dumps::packages_since(context, self.set, documents, None).await?;
            let manifests = dumps::manifests_of_changes(context, packed, true).await?;
            failed.extend(manifests.failed);
            documents = manifests.read;
        }
        if documents.is_empty()
            && let Some(error) = failed.pop()
        {
            return Err(error.into());
        }
        documents.sort_by_key(|document| document.about.from);
        let failure = failed.first().map(|error| error.to_string());
        let mut open = Open { planned: planned.clone(), documents: Vec::new(), failure };
        for document in documents {
            match read::survey(document, context).await {
                Ok((changes, broken)) => {
                    open.failure = open.failure.or(broken);
                    open.documents.push(changes);
                }
                Err(SyncError::Unfit(why)) => open.failure = open.failure.or(Some(why)),
                Err(error) => return Err(error),
            }
        }
        if let Some(why) = &open.failure {
            context.status.error(&format!("{why}; what it does not tell is missing in the history"));
        }
        Ok(open)
    }

    /// Has all that happened in a window of time written, from whatever documents tell of it.
    async fn window(&mut self, from: Datetime, until: Datetime) -> Result<(), SyncError> {
        let mut telling = Vec::new();
        for (place, open) in self.open.iter().enumerate() {
            let parts = open.documents.iter().enumerate();
            telling.extend(parts.filter(|(_, document)| document.tells_of(from, until)).map(|(part, _)| (place, part)));
        }
        // Each is read on a thread of its own, which waits for the others.
        for some in telling.chunks(AT_ONCE) {
            let read = |place: &(usize, usize)| {
                let coming = self.open[place.0].documents[place.1].read(self.context, from, until);
                Stream { coming, waiting: VecDeque::new(), place: *place, ended: false }
            };
            let mut streams: Vec<Stream> = some.iter().map(read).collect();
            loop {
                let batch = next_of(&mut streams).await;
                if batch.is_empty() {
                    break;
                }
                self.change(batch).await?;
            }
            for Stream { coming, place: (place, _), .. } in streams {
                if let Some(why) = coming.ended().await? {
                    // That it breaks off was said when it was looked through.
                    self.open[place].failure.get_or_insert(why);
                }
            }
        }
        Ok(())
    }

    /// Has changes written.
    async fn change(&mut self, batch: Vec<((usize, usize), Told)>) -> Result<(), SyncError> {
        let Some(mut past) = self.past.take() else { return Ok(()) };
        let mut attachers: HashMap<(usize, usize), Attacher> = HashMap::new();
        for (place, _) in &batch {
            let document = &mut self.open[place.0].documents[place.1];
            if let Some(attacher) = document.attacher.take() {
                attachers.insert(*place, attacher);
            }
        }
        let step = move |writer: &mut crate::catalog::Writer| {
            let mut transaction = writer.begin(true)?;
            for (place, told) in &batch {
                let version = transaction.changed_then(&mut past, &told.record, told.kind)?;
                if let (Some(attacher), Some(entry), Some(version)) = (attachers.get_mut(place), &told.entry, version)
                    && transaction.is_of_the_past(version)?
                {
                    attacher.give_change(&transaction, entry, &told.record, version)?;
                }
            }
            Ok(((past, attachers), transaction.commit()?))
        };
        let (past, attachers) = self.context.write_queue.step(step).await?;
        self.past = Some(past);
        for ((place, part), attacher) in attachers {
            self.open[place].documents[part].attacher = Some(attacher);
        }
        Ok(())
    }

    /// What there was at a moment.
    async fn snapshot(&mut self, planned: &Planned, at: Datetime) -> Result<(), SyncError> {
        let context = self.context;
        let found = match planned.capability {
            Capability::ResourceDump => {
                let mut dump = dumps::bring(context, self.set, &Offered::at(&planned.url), &[]).await;
                let manifest = Capability::ResourceDumpManifest;
                let how = Reading { download: false, wanted: false, beside: false, archived: true, manifest };
                if !dump.packages.is_empty() {
                    dumps::enter(context, &mut dump, how).await?;
                    dumps::read(context, &mut dump, &[], how).await;
                }
                dump.into_lists()
            }
            capability => {
                lists::bring(&DocumentFetcher::new(context, capability), std::slice::from_ref(&planned.url), &[]).await
            }
        };
        if found.read.is_empty()
            && let Some(error) = found.failed.first()
        {
            return self.could_not(planned, error.clone()).await;
        }
        let mut failure = found.failed.first().map(|error| error.to_string());
        // A list knows better than its archive of when it is.
        let own = match found.read.as_slice() {
            [one] if found.indexes.is_empty() => one.row.at.filter(|own| *own != at),
            _ => None,
        };
        let at = own.unwrap_or(at);
        if own.is_some() {
            let warning =
                format!("{}: it is of {at}, and its archive says otherwise; the list is believed", planned.url);
            context.status.warning(&warning);
        }
        if own.is_some() && self.past.as_ref().is_some_and(|past| past.has(at)) {
            let (set, row) = (self.set.id, planned.row(None));
            self.count(false);
            return self.tell(move |transaction| transaction.put_archived(set, &row)).await;
        }
        if let Some(past) = &mut self.past {
            past.begin_list();
        }
        for document in found.read {
            let broken = self.list(document, at).await?;
            failure = failure.or(broken);
        }
        if let Some(why) = &failure {
            context.status.error(&format!("{why}; what it does not list may have been there"));
        } else {
            self.absent(at).await?;
        }
        let (set, row) = (self.set.id, planned.row(failure.clone()));
        self.tell(move |transaction| transaction.put_archived(set, &row)).await?;
        self.count(failure.is_some());
        Ok(())
    }

    /// Has one document of a list of a moment written; returns why it is not whole, if it is not.
    async fn list(&mut self, document: Spooled, at: Datetime) -> Result<Option<String>, SyncError> {
        if at >= self.plan.horizon {
            return Ok(Some(format!("{}: it is of {at}, which is not past yet", document.row.url)));
        }
        let mut attacher = Attacher::of(&document, &self.context.status);
        let mut coming = read::list(document, self.context);
        while let Some(batch) = coming.batches.recv().await {
            let Some(mut past) = self.past.take() else { break };
            (self.past, attacher) = self
                .context
                .write_queue
                .step(move |writer| {
                    let mut transaction = writer.begin(true)?;
                    for told in &batch {
                        let version = transaction.listed_then(&mut past, at, &told.record)?;
                        if let (Some(attacher), Some(entry), Some(version)) = (&mut attacher, &told.entry, version)
                            && transaction.is_of_the_past(version)?
                        {
                            attacher.give(&transaction, entry, &told.record, version)?;
                        }
                    }
                    Ok(((Some(past), attacher), transaction.commit()?))
                })
                .await?;
        }
        if let Some(attacher) = attacher {
            let status = Arc::clone(&self.context.status);
            self.tell(move |transaction| attacher.finish(transaction, &status).map(drop)).await?;
        }
        coming.ended().await
    }

    /// What a complete list does not have was not there.
    async fn absent(&mut self, at: Datetime) -> Result<(), SyncError> {
        let mut after = Some(NameId::default());
        while let Some(last) = after
            && let Some(mut past) = self.past.take()
        {
            let (past, next) = self
                .context
                .write_queue
                .step(move |writer| {
                    let mut transaction = writer.begin(true)?;
                    let next = transaction.absent_then(&mut past, at, last)?;
                    Ok(((past, next), transaction.commit()?))
                })
                .await?;
            (self.past, after) = (Some(past), next);
        }
        Ok(())
    }
}

/// The next changes of some documents, in the order of time; of one moment, in the order of the documents.
async fn next_of(streams: &mut [Stream]) -> Vec<((usize, usize), Told)> {
    let mut batch = Vec::new();
    while batch.len() < STEP {
        for stream in streams.iter_mut().filter(|stream| stream.waiting.is_empty() && !stream.ended) {
            match stream.coming.batches.recv().await {
                Some(told) => stream.waiting.extend(told),
                None => stream.ended = true,
            }
        }
        let moment = |stream: &&mut Stream| stream.waiting.front().map(|told| told.record.begin);
        let Some(next) = streams.iter_mut().filter(|stream| !stream.waiting.is_empty()).min_by_key(moment) else {
            break;
        };
        let place = next.place;
        batch.extend(next.waiting.pop_front().map(|told| (place, told)));
    }
    batch
}
