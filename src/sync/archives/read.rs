//! What documents of archives tell, read on a thread of its own, some at a time: no step of the writer is long.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::catalog::{Feed, Record};
use crate::document::{Capability, Change, Datetime, Entry, Facts, Warnings};
use crate::path::Mapper;
use crate::sync::apply::attach::Attacher;
use crate::sync::context::Context;
use crate::sync::documents::fetch::{Budget, Described};
use crate::sync::documents::order::{Interrupted, Survey, Unsurveyed};
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{fetch, order};
use crate::sync::error::SyncError;
use crate::sync::status::Status;

/// How many entries go over at once.
const BATCH: usize = 2_000;

/// What one entry says.
pub(in crate::sync) struct Told {
    pub(in crate::sync) record: Record,
    pub(in crate::sync) kind: Change,
    /// The entry itself, of a manifest: where its content lies.
    pub(in crate::sync) entry: Option<Entry>,
}

impl Spooled {
    fn of_manifest(&self, entry: Entry) -> Option<Entry> {
        self.package.is_some().then_some(entry)
    }
}

/// What is being read.
pub(in crate::sync) struct Coming {
    pub(in crate::sync) batches: mpsc::Receiver<Vec<Told>>,
    reading: JoinHandle<Result<Option<String>, SyncError>>,
}

impl Coming {
    /// Why it could not be read to its end, if it could not.
    pub(in crate::sync) async fn ended(self) -> Result<Option<String>, SyncError> {
        drop(self.batches);
        self.reading.await?
    }
}

/// Gives entries away, as many at a time as a step takes.
struct Giver {
    batch: Vec<Told>,
    to: mpsc::Sender<Vec<Told>>,
}

/// Whoever took what was read takes no more.
struct Left;

impl Giver {
    fn give(&mut self, told: Told) -> Result<(), Left> {
        self.batch.push(told);
        if self.batch.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Left> {
        // Nothing is no step.
        if self.batch.is_empty() {
            return Ok(());
        }
        self.to.blocking_send(std::mem::take(&mut self.batch)).map_err(|_| Left)
    }
}

/// Reads a list of what there was.
pub(in crate::sync) fn list(document: Spooled, context: &Context) -> Coming {
    let (to, batches) = mpsc::channel(1);
    let (mapper, status) = (Arc::clone(&context.mapper), Arc::clone(&context.status));
    let mut giver = Giver { batch: Vec::new(), to };
    let reading = tokio::task::spawn_blocking(move || list_into(&document, &mapper, &status, &mut giver));
    Coming { batches, reading }
}

fn list_into(
    document: &Spooled,
    mapper: &Mapper,
    status: &Status,
    giver: &mut Giver,
) -> Result<Option<String>, SyncError> {
    let url = &document.row.url;
    let mut reader = match document.entries(url) {
        Ok(reader) => reader,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let at = document.at().unwrap_or_else(Datetime::now);
    let budget = Budget::new(&document.bounds);
    let broken = loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        };
        if let Err(beyond) = budget.take() {
            break Some(format!("{url}: {beyond}"));
        }
        let facts = Facts::of_entry(&entry, reader.warnings_mut());
        let described = Described { entry: &entry, facts: &facts };
        if let Some(record) = fetch::resource(mapper, document, described, at, reader.warnings_mut())
            && giver.give(Told { record, kind: Change::Created, entry: document.of_manifest(entry) }).is_err()
        {
            return Ok(None);
        }
    };
    // Nobody takes any more what is left where a step failed, which says so itself.
    let _ = giver.flush();
    for warning in reader.warnings().lines() {
        status.warning(&format!("{url}: {warning}"));
    }
    Ok(broken)
}

/// A document of changes.
pub(in crate::sync) struct Changes {
    document: Arc<Spooled>,
    survey: Arc<Survey>,
    /// When each change happened, ascending.
    moments: Vec<i64>,
    /// How many changes there are of which that is not told.
    pub(in crate::sync) timeless: u64,
    pub(in crate::sync) attacher: Option<Attacher>,
}

/// Looks through a document of changes. The second part of the answer is why it is of no use, or not all of it.
pub(in crate::sync) async fn survey(
    document: Spooled,
    context: &Context,
) -> Result<(Changes, Option<String>), SyncError> {
    let (store, status) = (Arc::clone(&context.store), Arc::clone(&context.status));
    let looked = tokio::task::spawn_blocking(move || {
        let feed = Feed::new(&document.row.url, Capability::ChangeList);
        let survey = order::survey(&document, &feed, None, &Budget::new(&document.bounds), &store).map_err(
            |error| match error {
                Unsurveyed::Disk(error) => error.into(),
                Unsurveyed::Beyond(beyond) => SyncError::Unfit(format!("{}: {beyond}", document.row.url)),
            },
        )?;
        let attacher = Attacher::of(&document, &status);
        let now = Datetime::now();
        let (mut moments, mut timeless) = (Vec::new(), 0);
        if survey.unusable().is_none() {
            let mut skipped = Warnings::default();
            let read = order::each(&survey, &mut skipped, |entry, warnings| {
                match moment(&Facts::of_entry(&entry, warnings), &document) {
                    Some(moment) if moment <= now => moments.push(moment.nanos()),
                    _ => timeless += 1,
                }
                Ok::<(), SyncError>(())
            });
            // Where the document breaks off, the survey says.
            read.map_err(|error| error.into_error(SyncError::from))?;
        }
        moments.sort_unstable();
        let broken = survey.cut().map(str::to_owned);
        let changes = Changes { document: Arc::new(document), survey: Arc::new(survey), moments, timeless, attacher };
        Ok((changes, broken))
    });
    looked.await?
}

/// When a change happened, if it is told.
fn moment(facts: &Facts, document: &Spooled) -> Option<Datetime> {
    facts.datetime.or(facts.lastmod.filter(|_| document.about.by_lastmod))
}

impl Changes {
    /// When the first of them happened.
    pub(in crate::sync) fn first(&self) -> Option<Datetime> {
        self.moments.first().copied().map(Datetime::from_nanos)
    }

    /// When the last of them happened.
    pub(in crate::sync) fn last(&self) -> Option<Datetime> {
        self.moments.last().copied().map(Datetime::from_nanos)
    }

    /// Whether anything happened from one moment until another.
    pub(in crate::sync) fn tells_of(&self, from: Datetime, until: Datetime) -> bool {
        let first = self.moments.partition_point(|moment| *moment < from.nanos());
        self.moments.get(first).is_some_and(|moment| *moment < until.nanos())
    }

    /// Reads what happened from one moment until another, in the order of time.
    pub(in crate::sync) fn read(&self, context: &Context, from: Datetime, until: Datetime) -> Coming {
        let (to, batches) = mpsc::channel(1);
        let (mapper, status) = (Arc::clone(&context.mapper), Arc::clone(&context.status));
        let (document, survey) = (Arc::clone(&self.document), Arc::clone(&self.survey));
        let last = self.moments.last().is_none_or(|last| *last < until.nanos());
        let mut giver = Giver { batch: Vec::new(), to };
        let reading = tokio::task::spawn_blocking(move || {
            let mut warnings = Warnings::default();
            let read = order::each(&survey, &mut warnings, |entry, warnings| {
                let facts = Facts::of_entry(&entry, warnings);
                let Some(moment) = moment(&facts, &document).filter(|moment| (from..until).contains(moment)) else {
                    return Ok(());
                };
                let Some(mut record) =
                    fetch::record(&mapper, &document, Described { entry: &entry, facts: &facts }, moment, warnings)
                else {
                    return Ok(());
                };
                record.begin = moment;
                let kind = facts.change.unwrap_or(Change::Updated);
                giver.give(Told { record, kind, entry: document.of_manifest(entry) })
            });
            let broken = match read {
                Err(Interrupted::Visitor(Left)) => return Ok(None),
                Err(Interrupted::Disk(error)) => return Err(error.into()),
                Ok(broken) => broken.map(|error| error.to_string()),
            };
            // Nobody takes any more what is left where a step failed, which says so itself.
            let _ = giver.flush();
            // What is odd in it is said once.
            for warning in warnings.lines().into_iter().filter(|_| last) {
                status.warning(&format!("{}: {warning}", document.row.url));
            }
            Ok(broken)
        });
        Coming { batches, reading }
    }
}
