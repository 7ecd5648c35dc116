//! Archives of lists, dumps and changes (Archives, 3 to 6): what a Source keeps of its past becomes history here, so that
//! `.versions` reaches back as far as it does.
//!
//! **Owns** what is to be read of archives, and in which order: from the oldest to the newest, lists and changes side by side.
//! A list says what was in force at its moment, changes say what happened in between; what is offered of changes today is an
//! archive, too, of what happened before the mirror was first made. What has happened since, the mirror follows: that is not
//! read again.
//!
//! **Promises** that nothing that is in force today changes by it, but for when it began; that what cannot be read is said, is
//! tried again, and keeps nothing else from being read; that it goes on where it was.
//!
//! **Never knows** how versions lie in time: that is the catalog's.

mod told;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::attach::Attacher;
use super::behind::{AGAIN, until};
use super::dumps::{self, Offered, Reading};
use super::feeds;
use super::lists::{self, Got, Spooled};
use super::{Engine, SyncError};
use crate::bounds;
use crate::catalog::{ArchivedRow, CatalogError, Past, SetRow, SetState, Transaction};
use crate::document::{Capability, Datetime};
use crate::source::{SourceError, Trouble};

use told::Changes;

/// How often it is looked for what has come to archives.
const LOOKED: Duration = Duration::from_secs(86_400);

/// What archives are of, in the order in which they are read at the same moment: content is given to what is known.
const KINDS: [Capability; 4] =
    [Capability::ResourceList, Capability::ResourceDump, Capability::ChangeList, Capability::ChangeDump];

/// A document that is to be read.
#[derive(Clone, Debug)]
struct Planned {
    capability: Capability,
    url: String,
    /// When its snapshot, or its interval, began.
    begin: Option<Datetime>,
    /// When its interval ended, if that is known.
    end: Option<Datetime>,
}

impl Planned {
    fn row(&self, failure: Option<String>) -> ArchivedRow {
        ArchivedRow { url: self.url.clone(), capability: self.capability, begin: self.begin, failure }
    }
}

/// What of a set is to be read.
#[derive(Debug, Default)]
struct Plan {
    /// By their moments.
    snapshots: Vec<Planned>,
    /// By their beginning.
    changes: VecDeque<Planned>,
    /// What happened from then on is followed, or is still to be listed.
    horizon: Option<Datetime>,
    /// Indexes of changes that are done with when those are.
    indexes: Vec<String>,
    failed: Vec<SourceError>,
}

/// What came of reading archives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    documents: u64,
    failed: u64,
    versions: u64,
    /// Whether there is a set that nothing is known of yet.
    early: bool,
}

impl Engine {
    /// Brings what archives have into the history, where all of that is kept: when it is mounted, when somebody asks for a
    /// sync, and once a day; what failed is tried again, ever later. Runs until it is dropped.
    pub(super) async fn reach_back(self: &Arc<Self>) {
        if !self.keeps_all() || self.config.offline {
            return;
        }
        let mut asked = self.asked.subscribe();
        let mut retry = AGAIN;
        loop {
            asked.mark_unchanged();
            let again = match self.read_archives().await {
                Ok(Came { failed: 0, early: false, .. }) => {
                    retry = AGAIN;
                    LOOKED
                }
                Ok(_) => retry,
                Err(error) => {
                    self.status().error(&format!("archives: {error}"));
                    retry
                }
            };
            tokio::select! {
                () = until(Some(Instant::now() + again)) => retry = (retry * 2).min(LOOKED),
                _ = asked.changed() => retry = AGAIN,
            }
        }
    }

    /// Whether all history is kept, also that which archives have.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        self.config.keep == Duration::MAX
    }

    async fn read_archives(self: &Arc<Self>) -> Result<Came, SyncError> {
        let mut all = Came::default();
        for set in self.sets()? {
            if set.at.is_none() {
                all.early = true;
                continue;
            }
            let came = of_set(self, &set).await?;
            all.documents += came.documents;
            all.failed += came.failed;
            all.versions += came.versions;
        }
        if all.documents > 0 {
            tracing::info!(
                documents = all.documents,
                versions = all.versions,
                failed = all.failed,
                "archives were read"
            );
        }
        self.status().read_archives(|archives| {
            archives.left = 0;
            archives.looked = Some(Datetime::now()).filter(|_| !all.early).or(archives.looked);
        });
        Ok(all)
    }
}

/// Brings what the archives of one set have into its history.
async fn of_set(engine: &Arc<Engine>, set: &SetRow) -> Result<Came, SyncError> {
    let reach = engine.readers.ask(|reader| reader.reach(set.id))?;
    let Plan { snapshots, changes, horizon, indexes, failed } = plan(engine, set).await?;
    failed.iter().for_each(|error| engine.status().error(&error.to_string()));
    let total = (snapshots.len() + changes.len()) as u64;
    engine.status().read_archives(|archives| archives.left += total);
    let mut weaver = Weaver {
        engine,
        set,
        past: Some(Past::new(set.id, set.directory, &reach)),
        open: Vec::new(),
        waiting: changes,
        came: Came { documents: total, failed: failed.len() as u64, ..Came::default() },
    };
    let read = weaver.read(snapshots, horizon).await;
    // Whatever came of it, what is in the history is seen.
    weaver.told(|_| Ok(())).await?;
    read?;
    if weaver.came.failed == 0 {
        let set = set.id;
        let rows: Vec<ArchivedRow> = indexes
            .into_iter()
            .map(|url| ArchivedRow { url, capability: Capability::ChangeList, begin: None, failure: None })
            .collect();
        engine
            .ledger
            .write(move |transaction| rows.iter().try_for_each(|row| transaction.put_archived(set, row)))
            .await?;
    }
    weaver.came.versions = weaver.past.as_ref().map_or(0, |past| past.versions);
    Ok(weaver.came)
}

/// Finds out what is to be read.
async fn plan(engine: &Arc<Engine>, set: &SetRow) -> Result<Plan, SyncError> {
    let offers = engine.readers.ask(|reader| reader.offers(set.id))?;
    let reach = engine.readers.ask(|reader| reader.reach(set.id))?;
    let urls = |capability: Capability| {
        offers.iter().filter(move |offer| offer.capability == capability).map(|offer| offer.url.clone())
    };
    let archived = KINDS.iter().filter_map(|kind| kind.archive()).any(|archive| urls(archive).next().is_some());
    let follows = offers.iter().any(|offer| offer.capability.tells_changes()) && set.state != SetState::Gap;
    // Between lists, without changes, more may have happened than they tell.
    let mut plan = Plan { horizon: if follows { reach.first } else { reach.last }, ..Plan::default() };
    let is_past =
        |begin: Option<Datetime>| begin.is_none_or(|begin| plan.horizon.is_none_or(|horizon| begin < horizon));
    let is_read = |planned: &Planned| {
        let known = reach.archived.iter().find(|row| row.url == planned.url && row.begin == planned.begin);
        known.is_some_and(|row| row.failure.is_none())
    };
    let mut seen = HashSet::new();
    for kind in KINDS {
        let mut roots: Vec<String> = kind.archive().into_iter().flat_map(&urls).collect();
        // What happened before the mirror was made is told today, too. Once that was read, there is nothing more to it.
        let is_done = |url: &String| reach.archived.iter().any(|row| row.url == *url && row.failure.is_none());
        let today: Vec<String> = urls(kind).filter(|url| kind.tells_changes() && !is_done(url)).collect();
        roots.extend(today.iter().cloned());
        if roots.is_empty() {
            continue;
        }
        let failed = plan.failed.len();
        let all = named(engine, kind, roots, &mut plan.failed).await;
        if plan.failed.len() == failed {
            plan.indexes.extend(today.into_iter().filter(|url| all.iter().all(|planned| planned.url != *url)));
        }
        for planned in all {
            if !is_past(planned.begin) || is_read(&planned) || !seen.insert((planned.url.clone(), planned.begin)) {
                continue;
            }
            match planned.begin {
                _ if kind.tells_changes() => plan.changes.push_back(planned),
                // What was read as the current list is known; a dump has the content.
                Some(at) if kind == Capability::ResourceList && reach.snapshots.contains(&at) => {}
                Some(_) => plan.snapshots.push(planned),
                None => {
                    let trouble =
                        Trouble::Nowhere("it does not say when it was made, and is of no use for history".into());
                    engine.status().warning(&SourceError::new(&planned.url, trouble).to_string());
                }
            }
        }
    }
    if !archived && plan.changes.iter().all(|planned| planned.begin.is_none()) {
        // A list of changes that says nothing of its beginning is no archive.
        plan.changes.clear();
    }
    plan.snapshots.sort_by_key(|planned| planned.begin);
    plan.changes.make_contiguous().sort_by_key(|planned| planned.begin);
    Ok(plan)
}

/// The documents that archives name, and those below them; or what is at their place, if it is no archive.
async fn named(
    engine: &Arc<Engine>,
    capability: Capability,
    roots: Vec<String>,
    failed: &mut Vec<SourceError>,
) -> Vec<Planned> {
    let bringer = engine.bringer(capability);
    let bounds = engine.config.bounds;
    let mut asked: HashSet<String> = roots.iter().cloned().collect();
    let mut queue: VecDeque<(String, usize)> = roots.into_iter().map(|root| (root, 0)).collect();
    let mut all = Vec::new();
    while let Some((url, depth)) = queue.pop_front() {
        let parts = match bringer.get(&url, depth, None).await {
            Ok(Got::Index { archive, row, parts, .. }) => match archive || capability.tells_changes() {
                true => parts,
                // A list in several parts is one.
                false => {
                    let begin = row.at.or_else(|| parts.iter().filter_map(|part| part.at).min());
                    all.push(Planned { capability, url, begin, end: None });
                    continue;
                }
            },
            Ok(Got::List(document)) => {
                let about = &document.about;
                let begin = if capability.tells_changes() { about.from.or(about.oldest) } else { document.row.at };
                all.push(Planned { capability, url, begin, end: about.until });
                continue;
            }
            Ok(Got::Unchanged(_)) => continue,
            // What is offered of changes today may be missing: whoever follows it says so.
            Err(error) if depth == 0 && feeds::is_gone(&error) && capability.tells_changes() => continue,
            Err(error) => {
                failed.push(error);
                continue;
            }
        };
        for part in parts {
            let begin = if capability.tells_changes() { part.from } else { part.at };
            if begin.is_some() {
                all.push(Planned { capability, url: part.url, begin, end: part.until });
                continue;
            }
            // When it was made, it says itself; or it is another archive.
            let beyond = match (depth as u64 >= bounds.depth, asked.len() as u64 >= bounds.documents) {
                (true, _) => bounds::DEPTH.passed("the depth of its archives", &bounds),
                (_, true) => bounds::DOCUMENTS.passed("the number of its archives", &bounds),
                (false, false) => {
                    if asked.insert(part.url.clone()) {
                        queue.push_back((part.url, depth + 1));
                    }
                    continue;
                }
            };
            failed.push(SourceError::new(&url, beyond.into()));
            break;
        }
    }
    all
}

/// A document of changes that is being read, window after window.
struct Open {
    planned: Planned,
    documents: Vec<Changes>,
    failure: Option<String>,
}

/// Whoever brings documents, and has them written into the past, in the order of time.
struct Weaver<'e> {
    engine: &'e Arc<Engine>,
    set: &'e SetRow,
    /// Away while a step has it.
    past: Option<Past>,
    open: Vec<Open>,
    waiting: VecDeque<Planned>,
    came: Came,
}

impl Weaver<'_> {
    /// All there is to be read, from the oldest to the newest.
    async fn read(&mut self, snapshots: Vec<Planned>, horizon: Option<Datetime>) -> Result<(), SyncError> {
        let mut from = Datetime::from_nanos(i64::MIN);
        for planned in snapshots {
            let at = planned.begin.unwrap_or(from);
            self.changes(from, at).await?;
            from = at;
            self.snapshot(&planned, at).await?;
        }
        self.changes(from, horizon.unwrap_or(Datetime::from_nanos(i64::MAX))).await?;
        self.close_all().await
    }

    /// All that changed from one moment until another.
    async fn changes(&mut self, from: Datetime, until: Datetime) -> Result<(), SyncError> {
        while let Some(planned) = self.waiting.pop_front_if(|planned| planned.begin.is_none_or(|begin| begin < until)) {
            let opened = self.bring_changes(&planned).await;
            match opened {
                Ok(open) => self.open.push(open),
                Err(SyncError::Source(error)) => self.failed(&planned, error).await?,
                Err(error) => return Err(error),
            }
        }
        for place in 0..self.open.len() {
            for index in 0..self.open[place].documents.len() {
                let document = &self.open[place].documents[index];
                if document.tells_of(from, until) {
                    self.window(place, index, from, until).await?;
                }
            }
        }
        let (done, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| open.planned.end.is_some_and(|end| end < until));
        self.open = open;
        self.close(done).await
    }

    async fn close_all(&mut self) -> Result<(), SyncError> {
        let done = std::mem::take(&mut self.open);
        self.close(done).await
    }

    /// These have been read to their ends.
    async fn close(&mut self, done: Vec<Open>) -> Result<(), SyncError> {
        for Open { planned, documents, failure } in done {
            let timeless: u64 = documents.iter().map(|document| document.timeless).sum();
            if timeless > 0 {
                self.engine.status().warning(&format!(
                    "{}: {timeless} changes have no time of their own, and are no history",
                    planned.url
                ));
            }
            let set = self.set.id;
            let row = planned.row(failure.clone());
            let status = Arc::clone(self.engine.status());
            let attachers: Vec<Attacher> = documents.into_iter().filter_map(|document| document.attacher).collect();
            self.told(move |transaction| {
                for attacher in attachers {
                    let fresh = attacher.finish(transaction, &status)?;
                    transaction.package_archived(fresh.package.id)?;
                }
                transaction.put_archived(set, &row)
            })
            .await?;
            self.count(failure.is_some());
        }
        Ok(())
    }

    /// Has something written when a document was read, and tells whoever looks at the past.
    async fn told(
        &mut self,
        write: impl FnOnce(&mut Transaction<'_>) -> Result<(), CatalogError> + Send + 'static,
    ) -> Result<(), SyncError> {
        let mut past = self.past.take();
        self.past = self
            .engine
            .ledger
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
        self.came.failed += u64::from(failed);
        self.engine.status().read_archives(|archives| archives.left = archives.left.saturating_sub(1));
    }

    /// It cannot be read: that is said, and noted where it is not for a moment only.
    async fn failed(&mut self, planned: &Planned, error: SourceError) -> Result<(), SyncError> {
        self.engine.status().error(&format!("{error}; it is missing in the history"));
        self.count(true);
        let (set, row) = (self.set.id, planned.row(Some(error.trouble.to_string())));
        self.engine.ledger.write(move |transaction| transaction.put_archived(set, &row)).await
    }

    async fn bring_changes(&self, planned: &Planned) -> Result<Open, SyncError> {
        let engine = self.engine;
        let found = lists::bring(&engine.bringer(planned.capability), std::slice::from_ref(&planned.url), &[]).await;
        let mut failed = found.failed;
        let mut documents = found.read;
        if planned.capability == Capability::ChangeDump {
            let packed = dumps::packages_since(engine, self.set, documents, None).await?;
            let manifests = dumps::manifests_of_changes(engine, packed, false).await?;
            failed.extend(manifests.failed);
            documents = manifests.read;
        }
        if documents.is_empty()
            && let Some(error) = failed.pop()
        {
            return Err(error.into());
        }
        documents.sort_by_key(|document| document.about.from);
        let mut open = Open {
            planned: planned.clone(),
            documents: Vec::new(),
            failure: failed.first().map(|error| error.to_string()),
        };
        for document in documents {
            match told::survey(document, engine).await {
                Ok((changes, broken)) => {
                    open.failure = open.failure.or(broken);
                    open.documents.push(changes);
                }
                Err(SyncError::Unfit(why)) => open.failure = open.failure.or(Some(why)),
                Err(error) => return Err(error),
            }
        }
        if let Some(why) = &open.failure {
            engine.status().error(&format!("{why}; it is missing in the history"));
        }
        Ok(open)
    }

    /// Has what one document tells of a window of time written.
    async fn window(&mut self, place: usize, index: usize, from: Datetime, until: Datetime) -> Result<(), SyncError> {
        let changes = &mut self.open[place].documents[index];
        let mut coming = changes.read(self.engine, from, until);
        while let Some(batch) = coming.batches.recv().await {
            let (Some(mut past), mut attacher) = (self.past.take(), changes.attacher.take()) else { break };
            let (past, attacher) = self
                .engine
                .ledger
                .step(move |writer| {
                    let mut transaction = writer.begin(true)?;
                    for told in &batch {
                        let version = transaction.changed_then(&mut past, &told.record, told.kind)?;
                        if let (Some(attacher), Some(version)) = (&mut attacher, version) {
                            attacher.give_change(&transaction, &told.entry, &told.record, version)?;
                        }
                    }
                    Ok(((past, attacher), transaction.commit()?))
                })
                .await?;
            (self.past, changes.attacher) = (Some(past), attacher);
        }
        if let Some(why) = coming.ended().await? {
            self.engine.status().error(&format!("{why}; what it tells before that is history"));
            self.open[place].failure.get_or_insert(why);
        }
        Ok(())
    }

    /// What there was at a moment.
    async fn snapshot(&mut self, planned: &Planned, at: Datetime) -> Result<(), SyncError> {
        let engine = self.engine;
        let found = match planned.capability {
            Capability::ResourceDump => {
                let offered = Offered::at(&planned.url);
                let mut dump = dumps::bring(engine, self.set, &offered, &[]).await;
                let manifest = Capability::ResourceDumpManifest;
                let how = Reading { download: false, wanted: false, beside: false, manifest };
                if !dump.packages.is_empty() {
                    dumps::enter(engine, &mut dump, how).await?;
                    dumps::read(engine, &mut dump, &[], how).await;
                }
                dump.into_lists()
            }
            capability => lists::bring(&engine.bringer(capability), std::slice::from_ref(&planned.url), &[]).await,
        };
        if found.read.is_empty()
            && let Some(error) = found.failed.first()
        {
            return self.failed(planned, error.clone()).await;
        }
        let mut failure = found.failed.first().map(|error| error.to_string());
        if let Some(past) = &mut self.past {
            past.begin_list();
        }
        for document in found.read {
            let broken = self.list(document, at).await?;
            failure = failure.or(broken);
        }
        if let Some(why) = &failure {
            engine.status().error(&format!("{why}; what it does not list may have been there"));
        } else {
            self.absent(at).await?;
        }
        let (set, row) = (self.set.id, planned.row(failure.clone()));
        self.told(move |transaction| transaction.put_archived(set, &row)).await?;
        self.count(failure.is_some());
        Ok(())
    }

    /// Has one document of a list of a moment written; returns why it is not whole, if it is not.
    async fn list(&mut self, document: Spooled, at: Datetime) -> Result<Option<String>, SyncError> {
        let at = document.row.at.map_or(at, |own| own.max(at));
        let mut attacher = document.package.as_ref().and_then(|package| {
            let attacher = Attacher::new(package, &document);
            attacher.map_err(|error| self.engine.status().error(&error.to_string())).ok()
        });
        let mut coming = told::list(document, self.engine);
        while let Some(batch) = coming.batches.recv().await {
            let Some(mut past) = self.past.take() else { break };
            (self.past, attacher) = self
                .engine
                .ledger
                .step(move |writer| {
                    let mut transaction = writer.begin(true)?;
                    for told in &batch {
                        let version = transaction.listed_then(&mut past, at, &told.record)?;
                        if let (Some(attacher), Some(version)) = (&mut attacher, version)
                            && transaction.is_of_the_past(version)?
                        {
                            attacher.give(&transaction, &told.entry, &told.record, version)?;
                        }
                    }
                    Ok(((Some(past), attacher), transaction.commit()?))
                })
                .await?;
        }
        if let Some(attacher) = attacher {
            let status = Arc::clone(self.engine.status());
            self.engine
                .ledger
                .write(move |transaction| {
                    let fresh = attacher.finish(transaction, &status)?;
                    transaction.package_archived(fresh.package.id)
                })
                .await?;
        }
        coming.ended().await
    }

    /// What a complete list does not have was not there.
    async fn absent(&mut self, at: Datetime) -> Result<(), SyncError> {
        let mut after = Some(0);
        while let Some(last) = after
            && let Some(mut past) = self.past.take()
        {
            let (past, next) = self
                .engine
                .ledger
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
