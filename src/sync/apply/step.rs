//! One document of changes into the tree, entry after entry (core 12).
//!
//! **Owns** what is to be remembered between the entries of one reading: what was told of each resource at one moment, and
//! which changes look like ones that are known and may have happened again.
//!
//! **Assumes** that the documents of a feed come in the order in which they follow each other; of notifications nothing is
//! assumed.
//!
//! **Never knows** where a document is from, and what is read next.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use super::attach::Attacher;
use super::step_context::StepContext;
use crate::catalog::{
    CatalogError, Changed, How, Past, Record, SetRow, SetState, Tally, ToldChange, Transaction, VersionId,
};
use crate::document::{Change, Datetime, Entry, Facts, Hashes, Warnings};
use crate::patch::Kind;
use crate::path::Mapper;
use crate::store::Store;
use crate::sync::documents::fetch::Described;
use crate::sync::documents::follow::NOT_IN_HISTORY;
use crate::sync::documents::order::Survey;
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{fetch, order};
use crate::sync::status::Status;
use crate::sync::transfer::package::NewMembers;

/// The most changes within one moment that are remembered, to tell an older edition of a list.
const MOST_WITHIN: usize = 1_000_000;
/// The most resources that changed within one moment whose versions are put in order.
const MOST_ORDERED: usize = 50_000;
/// The most versions of one resource within one moment whose order is looked at.
const MOST_VERSIONS: usize = 64;
/// The most changes that may have happened again which are remembered until what follows them is known.
pub(in crate::sync) const MOST_STALE: usize = 100_000;

/// Where the reading of one document ended.
pub(in crate::sync) struct End {
    /// The time of its newest change.
    pub(in crate::sync) last: Option<Datetime>,
    pub(in crate::sync) broken: Option<String>,
}

/// What was told of one moment.
#[derive(Default)]
struct Told {
    moment: Option<Datetime>,
    /// The resources of which it told what the tree shows.
    shown: HashSet<u64>,
    /// The versions of each, in the order in which they were told.
    versions: HashMap<u64, Vec<VersionId>>,
}

/// Whether the bitstream of an update is a patch, known by its media type.
fn is_diff(entry: &Entry, facts: &Facts) -> bool {
    let media = entry.md.get("type");
    facts.change == Some(Change::Updated) && media.is_some_and(|media| Kind::of_media_type(media).is_some())
}

/// A document while it is read.
struct Reading<'d> {
    document: &'d Spooled,
    survey: &'d Survey,
    attacher: Option<Attacher>,
    /// When the next change happened at the earliest: of one without a time it is only known that it came after the one before.
    earliest: Option<Datetime>,
    /// The time of the newest change.
    last: Option<Datetime>,
    /// How many entries were read.
    number: u64,
    /// How many of them the history does without.
    skipped_versions: u64,
}

impl Reading<'_> {
    /// When a change happened that has this time of its `own`, and the part of that which its entry tells: `lastmod` is the time of
    /// the resource, and of the change if that can be.
    fn moment(&self, own: Option<Datetime>, lastmod: Option<Datetime>) -> (Datetime, Option<Datetime>) {
        let now = Datetime::now();
        let can_be = |lastmod: &Datetime| self.earliest.is_none_or(|earliest| earliest <= *lastmod) && *lastmod <= now;
        let told = own.or(lastmod.filter(can_be));
        (told.or(self.earliest).unwrap_or(now), told)
    }
}

/// One step of the writer, into which documents are read.
pub(in crate::sync) struct Step<'s, 'w> {
    pub(in crate::sync) transaction: &'s mut Transaction<'w>,
    mapper: &'s Mapper,
    status: &'s Status,
    store: &'s Store,
    set: &'s SetRow,
    /// The number of the first version that this step makes.
    first: VersionId,
    pub(in crate::sync) tally: Tally,
    pub(in crate::sync) fresh: Vec<NewMembers>,
    /// Changes that are known, and are not what the tree shows: if nothing follows them, they have happened again.
    pub(in crate::sync) stale: HashMap<String, (Record, How)>,
    /// Whether there were more of these than are kept: what the lists of resources say is so then.
    pub(in crate::sync) forgot: bool,
    /// Deletions of what is not in the tree, and was not reported later by the same feed: another feed may list its creation.
    absent: Vec<(Record, How)>,
    /// The same, of the feed that is being read.
    absent_here: HashMap<String, (Record, How)>,
    /// Whether what is read later is told later; notifications come as they do.
    pub(in crate::sync) ordered: bool,
    /// The resources that changed, by what was read so far, at the moment that was come to.
    told: Told,
    /// The time of the oldest change that changed the tree; the earliest time of all for one without a time.
    pub(in crate::sync) oldest: Option<Datetime>,
    /// The time from which changes that are older than the lists are added to the history.
    pub(in crate::sync) read_from: Option<Datetime>,
    /// The history, if there are such changes.
    pub(in crate::sync) past: Option<Past>,
    keys: RandomState,
}

impl<'s, 'w> Step<'s, 'w> {
    pub(in crate::sync) fn new(
        transaction: &'s mut Transaction<'w>,
        context: &'s StepContext,
        set: &'s SetRow,
    ) -> Self {
        let StepContext { mapper, status, store } = context;
        Self {
            first: transaction.next_version(),
            transaction,
            mapper,
            status,
            store,
            set,
            tally: Tally::default(),
            fresh: Vec::new(),
            stale: HashMap::new(),
            forgot: false,
            absent: Vec::new(),
            absent_here: HashMap::new(),
            ordered: true,
            told: Told::default(),
            oldest: None,
            read_from: None,
            past: None,
            keys: RandomState::new(),
        }
    }

    /// Applies one document.
    pub(in crate::sync) fn document(&mut self, document: &Spooled, survey: &Survey) -> Result<End, CatalogError> {
        let mut reading = Reading {
            document,
            survey,
            attacher: Attacher::of(document, self.status),
            // One that was not in the lists which the tree was made from happened after they were begun.
            earliest: [document.about.from, self.set.cursor, survey.before].into_iter().max().flatten(),
            last: None,
            number: 0,
            skipped_versions: 0,
        };
        let before = self.tally;
        if survey.done > 0 {
            // What is in the tree of this document came after all that stands in those before it.
            self.stale.clear();
        }
        let mut warnings = Warnings::default();
        let read = order::each(survey, &mut warnings, |entry, warnings| self.entry(&mut reading, entry, warnings));
        let store = self.store;
        let disk = |error| CatalogError::Io { path: store.root().display().to_string(), error };
        let broken = read.map_err(|error| error.into_error(disk))?;
        self.status.update(|progress| progress.entries += reading.number % 1000);
        fetch::check_growth(self.transaction, self.store, &document.bounds)?;
        let broken = broken.map(|error| format!("{}: {error}", document.row.url));
        self.report(&reading, &warnings, before, broken.as_deref());
        let last = reading.last;
        if let Some(attacher) = reading.attacher {
            self.fresh.push(attacher.finish(self.transaction, self.status)?);
        }
        Ok(End { last, broken })
    }

    /// Applies one entry.
    fn entry(&mut self, reading: &mut Reading<'_>, entry: Entry, warnings: &mut Warnings) -> Result<(), CatalogError> {
        let document = reading.document;
        reading.number += 1;
        if reading.number.is_multiple_of(1000) {
            self.status.update(|progress| progress.entries += 1000);
            fetch::check_growth(self.transaction, self.store, &document.bounds)?;
        }
        let facts = Facts::of_entry(&entry, warnings);
        let own = facts.datetime.or(facts.lastmod.filter(|_| document.about.by_lastmod));
        let is_before_lists = self.is_before_lists(reading, &entry, own);
        // A date without a time of day may begin before `read_from`, where the history is complete.
        if is_before_lists && (self.past.is_none() || own.is_none() || own < self.read_from) {
            return Ok(());
        }
        let (moment, plausible) = reading.moment(own, facts.lastmod);
        // A bitstream that is a diff (D-Lib article, 5) is not the resource; without a hash of that, it is fetched.
        let is_diff = document.package.is_some() && document.about.by_lastmod && is_diff(&entry, &facts);
        let (entry, facts) = match is_diff {
            true => (entry.without_bytes(), Facts { length: None, hashes: Hashes::default(), ..facts }),
            false => (entry, facts),
        };
        // An entry that cannot be used has been read, too.
        reading.last = reading.last.max(own);
        let described = Described { entry: &entry, facts: &facts };
        let Some((record, how)) = self.record(document, described, (moment, own.is_some()), warnings) else {
            return Ok(());
        };
        if is_before_lists {
            let attacher = reading.attacher.as_mut().filter(|_| !is_diff);
            reading.skipped_versions += self.add_to_history(document, (&entry, &record, how), attacher)?;
            return Ok(());
        }
        reading.earliest = reading.earliest.max(plausible);
        // What the edition before did not have has happened, however much it looks like a change that is known.
        let survey = reading.survey;
        let is_new = survey.done + reading.number > survey.new_from && own.is_none();
        let came = self.change(&record, how, is_new)?;
        let skipped = survey.before.max(document.about.from.or(Some(moment)));
        let (changed, version) = self.as_told(&record, how, came, skipped < Some(moment))?;
        let is_doubtful = !how.is_exact() || skipped >= Some(moment) || self.has_told(&record);
        self.remember(&record, how, changed, is_doubtful);
        if how.is_exact() {
            self.note_told(&record, !matches!(changed, Changed::Stale | Changed::Past | Changed::Moved), version);
        }
        self.count(changed, own);
        if let (Some(attacher), Some(version)) = (&mut reading.attacher, version.filter(|_| !is_diff)) {
            attacher.give_change(self.transaction, &entry, &record, version)?;
        }
        Ok(())
    }

    /// Whether the lists that the tree was made from tell of a change, which has this time of its own.
    fn is_before_lists(&self, reading: &Reading<'_>, entry: &Entry, own: Option<Datetime>) -> bool {
        match own {
            Some(own) => self.set.cursor.is_some_and(|cursor| order::latest(entry, own) < cursor),
            // Without a time, its place is the only evidence, or the interval of a document that is read for the history.
            None => {
                reading.survey.done + reading.number <= reading.survey.before_lists
                    || self.past.is_some() && reading.document.ended_before(self.set.cursor)
            }
        }
    }

    /// Remembers what is not settled before more was read: a change that is known and, where that is doubtful, may have happened
    /// again; and a deletion of what is not there.
    fn remember(&mut self, record: &Record, how: How, changed: Changed, is_doubtful: bool) {
        match changed {
            Changed::Stale if is_doubtful => {
                if self.stale.len() < MOST_STALE || self.stale.contains_key(&record.uri) {
                    drop(self.stale.insert(record.uri.clone(), (record.clone(), how)));
                } else {
                    self.forgot = true;
                }
            }
            _ => drop(self.stale.remove(&record.uri)),
        }
        match changed {
            Changed::Absent if self.absent_here.len() < MOST_STALE => {
                drop(self.absent_here.insert(record.uri.clone(), (record.clone(), how)));
            }
            // What the same feed reports later has happened after that.
            _ => drop(self.absent_here.remove(&record.uri)),
        }
    }

    /// Says what is to be known of a document that was read, and of why it is `broken`, if it is.
    fn report(&self, reading: &Reading<'_>, warnings: &Warnings, before: Tally, broken: Option<&str>) {
        let Reading { document, skipped_versions, .. } = reading;
        let url = &document.row.url;
        for warning in warnings.lines() {
            self.status.warning(&format!("{url}: {warning}"));
        }
        if *skipped_versions > 0 {
            self.status.warning(&format!(
                "{url}: {skipped_versions} changes that are older than the lists are missing from the history: they have no \
                 hash, the resource has too many versions, or limit_names is reached"
            ));
        }
        let absent = self.tally.absent - before.absent;
        if absent > 0 && self.tally.known == before.known {
            tracing::info!(url, absent, "deletions of what was never here");
        }
        match broken {
            Some(why) if document.ended_before(self.set.cursor) => {
                self.status.warning(&format!("{why}; {NOT_IN_HISTORY}"));
            }
            Some(why) => self.status.error(&format!("{why}; the changes before that are in the tree")),
            None => {}
        }
    }

    /// Adds the version of a change that is older than the lists which the tree was made from. Returns the number of versions that
    /// were skipped, 0 or 1: without a hash nothing distinguishes it from its neighbours; others would exceed a bound.
    fn add_to_history(
        &mut self,
        document: &Spooled,
        (entry, record, how): (&Entry, &Record, How),
        attacher: Option<&mut Attacher>,
    ) -> Result<u64, CatalogError> {
        let Some(past) = &mut self.past else { return Ok(0) };
        let names = record.path.above().len() as u64 + 2;
        let is_distinct = how.kind() == Change::Deleted || !record.hashes.is_empty();
        if !is_distinct
            || self.transaction.names_in_all() + names > document.bounds.names
            || self.transaction.has_many_versions(past, record)?
        {
            return Ok(1);
        }
        let before = past.versions;
        let version = self.transaction.changed_then(past, record, how.kind())?;
        if past.versions > before {
            self.tally.count(Changed::Past);
        }
        match attacher.zip(version) {
            Some((attacher, version)) if self.transaction.is_of_the_past(version)? => {
                attacher.give_change(self.transaction, entry, record, version)?;
            }
            _ => {}
        }
        Ok(0)
    }

    /// Whether what the tree shows of a resource, since the same moment as this change, was told of before it. If not, what
    /// is read is older than that: an edition that was kept too long somewhere, or the list of before a notification.
    fn has_told(&self, record: &Record) -> bool {
        // Of too many within one moment, none is taken for older.
        let shown = &self.told.shown;
        self.told.moment == Some(record.begin)
            && (shown.len() >= MOST_WITHIN || shown.contains(&self.keys.hash_one(&record.uri)))
    }

    fn note_told(&mut self, record: &Record, shown: bool, version: Option<VersionId>) {
        if self.told.moment != Some(record.begin) {
            self.told = Told { moment: Some(record.begin), ..Told::default() };
        }
        let key = self.keys.hash_one(&record.uri);
        if shown && self.told.shown.len() < MOST_WITHIN {
            self.told.shown.insert(key);
        }
        if self.told.versions.len() < MOST_ORDERED || self.told.versions.contains_key(&key) {
            let versions = self.told.versions.entry(key).or_default();
            if versions.len() < MOST_VERSIONS {
                versions.extend(version);
            }
        }
    }

    /// Among versions that began at the same moment, the order of the document counts, not the order in which they were heard of: a
    /// version that is known, and that the document has after one which came later, is moved behind that one. Versions of the moment
    /// that the document does not have stay behind those that it has, if it was `read_from_before` that moment: it is older than
    /// they are, then.
    fn as_told(
        &mut self,
        record: &Record,
        how: How,
        (changed, version): (Changed, Option<VersionId>),
        read_from_before: bool,
    ) -> Result<(Changed, Option<VersionId>), CatalogError> {
        let is_known = self.ordered && how.is_exact() && matches!(changed, Changed::Known | Changed::Stale);
        let told = self.told.versions.get(&self.keys.hash_one(&record.uri));
        let told = told.filter(|_| self.told.moment == Some(record.begin));
        let (Some(known), Some(told)) = (version.filter(|_| is_known), told) else { return Ok((changed, version)) };
        let is_told_of = told.len() >= MOST_VERSIONS || told.contains(&known);
        if is_told_of || !told.iter().any(|before| *before > known) {
            return Ok((changed, version));
        }
        Ok(match self.transaction.comes_after(known, told, read_from_before)? {
            Some(moved) if moved.is_shown => (Changed::Updated, Some(moved.version)),
            Some(moved) => (Changed::Moved, Some(moved.version)),
            None => (changed, version),
        })
    }

    /// Counts what came of a change, which has this time of its own.
    fn count(&mut self, changed: Changed, own: Option<Datetime>) {
        self.tally.count(changed);
        if matches!(changed, Changed::Added | Changed::Updated | Changed::Deleted) {
            let own = own.unwrap_or(Datetime::from_nanos(i64::MIN));
            self.oldest = Some(self.oldest.map_or(own, |oldest| oldest.min(own)));
        }
    }

    /// The last document of a feed has been applied. What it says last of a resource is so, however often it was
    /// so before.
    pub(in crate::sync) fn settle(&mut self) -> Result<(), CatalogError> {
        self.absent.extend(std::mem::take(&mut self.absent_here).into_values());
        for (record, how) in std::mem::take(&mut self.stale).into_values() {
            let (changed, _) = self.change(&record, how, true)?;
            self.count(changed, None);
        }
        Ok(())
    }

    /// All feeds have been applied. A deletion with a time counts also where another feed listed the creation later.
    pub(in crate::sync) fn settle_absent(&mut self) -> Result<(), CatalogError> {
        for (record, how) in std::mem::take(&mut self.absent).into_iter().filter(|(_, how)| how.is_exact()) {
            if !self.transaction.began_before(self.set.directory, &record)? {
                continue;
            }
            let (changed, _) = self.change(&record, how, false)?;
            if changed != Changed::Absent {
                self.tally.absent -= 1;
                self.count(changed, Some(record.begin));
            }
        }
        Ok(())
    }

    /// What an entry says happened; `None`, with a warning, if nothing can be made of it.
    fn record(
        &self,
        document: &Spooled,
        described: Described<'_>,
        (moment, exact): (Datetime, bool),
        warnings: &mut Warnings,
    ) -> Option<(Record, How)> {
        let mut record = fetch::record(self.mapper, document, described, moment, warnings)?;
        let Described { entry, facts } = described;
        record.begin = moment;
        if facts.change == Some(Change::Deleted) && entry.md.get("expires").is_some() && moment > Datetime::now() {
            warnings.push(entry.line, "it says that it will be deleted; that is for when it is");
            return None;
        }
        let kind = facts.change.unwrap_or_else(|| {
            warnings.push(entry.line, "an entry that does not say what changed; taken as updated");
            Change::Updated
        });
        Some((record, How::change(kind, exact)))
    }

    fn change(&mut self, record: &Record, how: How, again: bool) -> Result<(Changed, Option<VersionId>), CatalogError> {
        let told = ToldChange { record, how, fresh: self.first, again };
        self.transaction.change(self.set.id, self.set.directory, &told)
    }
}

/// As long as not all of a newer edition of the lists is in the tree, the cursor does not tell which changes that edition includes.
pub(super) fn note_changes_over_lists(
    transaction: &Transaction<'_>,
    set: &SetRow,
    oldest: Option<Datetime>,
) -> Result<(), CatalogError> {
    match (set.state, oldest) {
        (SetState::Partial | SetState::Held, Some(oldest)) => transaction.note_changes_over_lists(set.id, oldest),
        _ => Ok(()),
    }
}
