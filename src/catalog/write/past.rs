//! What archives tell, brought into the versions of resources (Archives, 3 to 6).
//!
//! When anything was in force, [`timeline`](super::timeline) says; here it is read from the rows and written into them. What is
//! in force today is not touched but for when it began: neither names nor counts of the current tree change. A resource that is
//! only of the past has a name without a current version, as one that was deleted has.

use crate::catalog::db::numbers::own;
use crate::catalog::model::ids::{NameId, SetId, VersionId};
use crate::catalog::model::mementos::EntrySays;
use std::collections::{HashMap, HashSet};

use rusqlite::params;

use crate::catalog::db::names::resource_of;
use crate::catalog::db::naming::Named;
use crate::catalog::db::tree::{NewName, Numbers, Tree};
use crate::catalog::error::CatalogError;
use crate::catalog::model::origin::How;
use crate::catalog::model::reach::Reach;
use crate::catalog::model::record::{Extra, Record};
use crate::catalog::model::timeline::{Facts, Origin, Span, Timeline};
use crate::catalog::write::changes::Names;
use crate::catalog::write::insert::VersionValues;
use crate::catalog::write::transaction::{Arrival, NOBODY, Transaction};
use crate::document::{Change, Datetime, Hashes};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// How many names are looked at in one go.
pub(in crate::catalog) const PAGE: i64 = 20_000;

/// The number of superseded versions from which [`Transaction::has_many_versions`] is true: adding one reads all of them.
const MANY_VERSIONS: i64 = 256;

/// How long a list may take to be made: what it says was modified within that time after its moment was, meanwhile.
const MAKING: i64 = 86_400_000_000_000;

/// What is known while documents of archives are read for one set, from step to step.
#[derive(Debug)]
pub struct Past {
    rset: SetId,
    /// The set's.
    directory: NameId,
    snapshots: Vec<Datetime>,
    /// The resources that the list has which is being read.
    seen: Numbers,
    /// Moments of lists that are still to be read.
    expected: Vec<Datetime>,
    /// The moment that was come to, and the resources of which it was told that they came then.
    came: (Datetime, HashSet<NameId>),
    /// How many versions became known.
    pub versions: u64,
    /// Whether anything changed that nobody was told of yet.
    untold: bool,
}

impl Past {
    /// Begins with a set and its directory, and the moments of lists that are known.
    #[must_use]
    pub fn new(rset: SetId, directory: NameId, reach: &Reach) -> Self {
        let snapshots = reach.snapshots.clone();
        Self {
            rset,
            directory,
            snapshots,
            seen: Numbers::default(),
            expected: Vec::new(),
            came: (Datetime::MIN, HashSet::new()),
            versions: 0,
            untold: false,
        }
    }

    /// Lists of these moments are going to be read.
    pub fn expect(&mut self, moments: impl Iterator<Item = Datetime>) {
        self.expected = moments.collect();
    }

    /// Whether the list of a moment is known.
    #[must_use]
    pub fn has(&self, at: Datetime) -> bool {
        self.snapshots.binary_search(&at).is_ok()
    }

    /// The next list that is known after a moment.
    #[must_use]
    pub fn next_list(&self, after: Datetime) -> Option<Datetime> {
        let begin = self.snapshots.partition_point(|at| *at <= after);
        self.snapshots.get(begin).copied()
    }

    /// Whether a list is known, or expected, that was made after one moment, and not after another.
    fn has_list(&self, after: Datetime, upto: Datetime) -> bool {
        self.snapshots.iter().chain(&self.expected).any(|at| (after.plus_nanos(1)..=upto).contains(at))
    }

    /// Another list is read from here on.
    pub fn begin_list(&mut self) {
        self.seen = Numbers::default();
    }
}

fn facts_of(record: &Record) -> Facts {
    let modified = (record.dated == 1).then_some(record.mtime);
    Facts { modified, size: record.size, hashes: record.hashes.clone() }
}

/// A resource whose versions are looked at.
pub(in crate::catalog) struct Known {
    names: Names,
    spans: Vec<Span>,
}

/// What became of spans.
struct Written {
    /// The version of each.
    versions: Vec<Option<VersionId>>,
    /// The one that was not known.
    told: Option<VersionId>,
    /// From when to when something is other than it was.
    begin: Datetime,
    end: Datetime,
}

impl Transaction<'_> {
    /// A list that was made at a moment has this. Returns the version that was in force then, if there is one now.
    pub fn listed_then(&mut self, past: &mut Past, at: Datetime, record: &Record) -> Result<Option<VersionId>> {
        let (at, modified) = (at, record.mtime);
        // What was modified while the list was made is listed as it was then.
        let (at, claim) = match record.dated {
            1 if modified <= at => (at, modified),
            1 if modified.nanos().saturating_sub(at.nanos()) < MAKING && !past.has_list(at, modified) => {
                (modified, modified)
            }
            _ => (at, at),
        };
        let known = self.known_past(past, record)?;
        if let Some(known) = &known {
            past.seen.insert(known.names.own);
        }
        let version = self.weave(past, known, Some(record), |timeline| {
            timeline.listed(at, claim, &facts_of(record));
            timeline.in_force(at)
        })?;
        Ok(version)
    }

    /// A change that happened at a moment of its own. Returns the version that it made, if it has one now.
    pub fn changed_then(&mut self, past: &mut Past, record: &Record, kind: Change) -> Result<Option<VersionId>> {
        let (moment, how) = (record.begin, How::change(kind, true));
        let known = self.known_past(past, record)?;
        if past.came.0 != moment {
            past.came = (moment, HashSet::new());
        }
        if kind == Change::Deleted {
            let came_then = known.as_ref().is_some_and(|known| past.came.1.contains(&known.names.own));
            return self.weave(past, known, None, |timeline| {
                timeline.deleted(moment, how, came_then);
                None
            });
        }
        let facts = Facts { modified: Some(record.mtime), ..facts_of(record) };
        let version = self.weave(past, known, Some(record), |timeline| {
            let is_there = timeline.changed(moment, how, &facts);
            timeline.spans.iter().rposition(|span| span.begin == moment && span.how == Some(how)).filter(|_| is_there)
        })?;
        if let Some((names, _)) = self.resource(past.directory, record)? {
            past.came.1.insert(names.own);
        }
        Ok(version)
    }

    /// Whether a resource has too many versions to add another between them in a time that is bounded.
    pub fn has_many_versions(&mut self, past: &Past, record: &Record) -> Result<bool> {
        let Some((names, _)) = self.resource(past.directory, record)? else { return Ok(false) };
        let mut statement = self.connection().prepare_cached(
            "SELECT count(*) >= ?3 FROM (SELECT 1 FROM version WHERE name IN (?1, ?2) AND until IS NOT NULL LIMIT ?3)",
        )?;
        Ok(statement.query_row(params![names.own, names.in_directory, MANY_VERSIONS], |row| row.get(0))?)
    }

    /// What a complete list of a moment does not have was not there then: of some resources, after the name with this number.
    /// Returns the number to go on from; none when all are looked at, and the list is known as complete.
    pub fn absent_then(&mut self, past: &mut Past, at: Datetime, after: NameId) -> Result<Option<NameId>> {
        let moment = at;
        let page: Vec<(NameId, bool)> = self
            .connection()
            .prepare_cached(
                concat!("SELECT n.id, EXISTS (SELECT 1 FROM version v WHERE v.id = n.version AND v.begin <= ?3)
                     OR EXISTS (SELECT 1 FROM version v WHERE v.name = n.id AND v.until IS NOT NULL AND v.begin <= ?3 AND v.until > ?3
                                AND ", own!("v.change"), ")
                 FROM name n WHERE n.rset = ?1 AND n.id > ?2 ORDER BY n.id LIMIT ?4"),
            )?
            .query_map(params![past.rset, after, moment, PAGE], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for name in page.iter().filter(|(_, was_there)| *was_there).map(|(name, _)| *name) {
            let own = resource_of(self.connection(), name)?;
            if past.seen.contains(own) {
                continue;
            }
            let in_directory = self.child(own, SELF)?.map_or(own, |inner| inner.id);
            let known = self.with_spans(Names { own, in_directory })?;
            self.weave(past, Some(known), None, |timeline| {
                timeline.absent(moment);
                None
            })?;
        }
        if let Some((last, _)) = page.last() {
            return Ok(Some(*last));
        }
        self.put_snapshot(past.rset, at, false)?;
        if let Err(place) = past.snapshots.binary_search(&moment) {
            past.snapshots.insert(place, moment);
        }
        Ok(None)
    }

    /// Whether a version is in force no more.
    pub fn is_of_the_past(&self, version: VersionId) -> Result<bool> {
        let mut statement = self.connection().prepare_cached("SELECT until IS NOT NULL FROM version WHERE id = ?1")?;
        Ok(statement.query_row([version], |row| row.get(0))?)
    }

    /// Whoever looks at the past is to forget what was known of it: names below `.versions` are known to the kernel for good.
    /// Of a past that was lost with a step, nobody knows whether anything changed.
    pub fn tell_past(&mut self, past: Option<&mut Past>) {
        self.tree.changes.too_many |= past.is_none_or(|past| std::mem::take(&mut past.untold));
    }

    fn known_past(&mut self, past: &Past, record: &Record) -> Result<Option<Known>> {
        self.resource(past.directory, record)?.map(|(names, _)| self.with_spans(names)).transpose()
    }

    /// The Source's own versions of a resource.
    fn with_spans(&self, names: Names) -> Result<Known> {
        const FACTS: &str = "v.id, v.begin, v.until, v.change, v.gone, CASE WHEN v.dated = 1 THEN v.mtime END,
             CASE WHEN v.settled THEN NULL ELSE v.size END, v.hashes";
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT {FACTS} FROM version v WHERE v.name IN (?1, ?2) AND v.until IS NOT NULL AND {own}
             UNION ALL SELECT {FACTS} FROM name n JOIN version v ON v.id = n.version WHERE n.id IN (?1, ?2) ORDER BY 2, 1", own = own!("v.change")
        ))?;
        let spans = statement.query_map([names.own, names.in_directory], |row| {
            let hashes: Option<Vec<u8>> = row.get(7)?;
            Ok(Span {
                origin: Origin::Row(row.get(0)?),
                begin: row.get(1)?,
                until: row.get(2)?,
                how: How::of(row.get(3)?),
                gone: How::of(row.get(4)?),
                facts: Facts {
                    modified: row.get(5)?,
                    size: row.get::<_, Option<i64>>(6)?.map(i64::unsigned_abs),
                    hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
                },
            })
        })?;
        Ok(Known { names, spans: spans.collect::<rusqlite::Result<_>>()? })
    }

    /// Changes when the versions of a resource were in force, and writes what that came to. Returns the version of the span
    /// that `change` points to.
    fn weave(
        &mut self,
        past: &mut Past,
        known: Option<Known>,
        record: Option<&Record>,
        change: impl FnOnce(&mut Timeline<'_>) -> Option<usize>,
    ) -> Result<Option<VersionId>> {
        let (names, before) = known.map_or((None, Vec::new()), |known| (Some(known.names), known.spans));
        let mut timeline = Timeline::new(before.clone(), &past.snapshots);
        let wanted = change(&mut timeline);
        let after = timeline.spans;
        if after == before {
            let version = wanted.and_then(|index| match after[index].origin {
                Origin::Row(row) => Some(row),
                _ => None,
            });
            if let Some((version, record)) = version.zip(record) {
                self.places_of(version, record)?;
                self.linked(Some(version), record)?;
            }
            return Ok(version);
        }
        let names = match (names, record) {
            // A directory has a name, but that is not yet marked as its own resource's: that is done with its first version.
            (Some(names), _) if !before.is_empty() => names,
            (_, Some(record)) => {
                let names = self.past_name(past, record)?;
                past.seen.insert(names.own);
                names
            }
            (Some(names), None) => names,
            (None, None) => return Ok(None),
        };
        let Written { versions, told, begin, end } = self.write_spans(past, names, record, (&before, &after))?;
        if told.is_some() {
            self.tree.ensure_self(&self.transaction, names.own, past.rset)?;
        }
        self.lived(names.own, begin, end)?;
        if names.in_directory != names.own {
            self.lived(names.in_directory, begin, end)?;
        }
        past.untold = true;
        let version = wanted.and_then(|index| versions[index]);
        if let Some((version, record)) = version.zip(record) {
            if told != Some(version) {
                self.places_of(version, record)?;
            }
            self.linked(Some(version), record)?;
        }
        Ok(version)
    }

    /// Writes what differs `after` a change of the spans from `before` it. `record` is that of the one that was told.
    fn write_spans(
        &mut self,
        past: &mut Past,
        names: Names,
        record: Option<&Record>,
        (before, after): (&[Span], &[Span]),
    ) -> Result<Written> {
        let rows: HashMap<VersionId, &Span> = before
            .iter()
            .filter_map(|span| match span.origin {
                Origin::Row(row) => Some((row, span)),
                _ => None,
            })
            .collect();
        let mut written = Written { versions: Vec::new(), told: None, begin: Datetime::MAX, end: Datetime::MIN };
        for span in after {
            let version = match (span.origin, record) {
                (Origin::Row(row), _) if rows.get(&row) == Some(&span) => {
                    written.versions.push(Some(row));
                    continue;
                }
                (Origin::Row(row), _) => {
                    written.begin = written.begin.min(rows.get(&row).map_or(Datetime::MAX, |before| before.begin));
                    self.is_in_force(row, span)?;
                    row
                }
                (Origin::Copy(row), _) => {
                    past.versions += 1;
                    self.copy_version(row, span)?
                }
                (Origin::Told, Some(record)) => {
                    past.versions += 1;
                    let row = self.insert_told(names, record, span)?;
                    written.told = Some(row);
                    row
                }
                (Origin::Told, None) => {
                    written.versions.push(None);
                    continue;
                }
            };
            written.begin = written.begin.min(span.begin);
            written.end = written.end.max(span.until.unwrap_or(Datetime::MIN));
            written.versions.push(Some(version));
        }
        Ok(written)
    }

    /// Says when a version was in force, how it came, and how its resource went.
    fn is_in_force(&self, version: VersionId, span: &Span) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE version SET begin = ?2, until = ?3, change = ?4, gone = ?5,
                     went = CASE WHEN ?5 IS NULL THEN NULL ELSE went END,
                     ended = CASE WHEN ?3 IS NULL THEN ended ELSE COALESCE(ended, ?6) END WHERE id = ?1",
            )?
            .execute(params![
                version,
                span.begin,
                span.until,
                span.how.map(How::number),
                span.gone.map(How::number),
                self.now
            ])?;
        Ok(())
    }

    /// The same version once more, at another time. Where nothing tells what its bytes were, they may have been others.
    fn copy_version(&mut self, version: VersionId, span: &Span) -> Result<VersionId> {
        let Some(known) = VersionValues::load(self.connection(), version)? else { return Ok(version) };
        let copy = self.new_version();
        let has_hashes = known.hashes.is_some();
        VersionValues {
            id: copy,
            document: NOBODY,
            begin: span.begin,
            until: span.until,
            size: known.size.filter(|_| has_hashes || !known.settled),
            object: known.object.filter(|_| has_hashes),
            served: known.served.filter(|_| has_hashes),
            change: span.how.map(How::number),
            gone: span.gone.map(How::number),
            came: None,
            went: None,
            ended: Some(self.now),
            rank: None,
            ..known
        }
        .insert(self.connection())?;
        if !span.facts.hashes.is_empty() {
            self.inherit_member(version, copy, &Hashes::default())?;
            self.connection()
                .prepare_cached(
                    "INSERT OR IGNORE INTO memento (version, url, datetime, negotiated, sure, gone, original)
                     SELECT ?2, url, datetime, negotiated, sure, gone, original FROM memento WHERE version = ?1",
                )?
                .execute(params![version, copy])?;
        }
        Ok(copy)
    }

    /// A version that was not known.
    fn insert_told(&mut self, names: Names, record: &Record, span: &Span) -> Result<VersionId> {
        let heir_of = self.same_bytes_before(names, record)?;
        let record = Record { begin: span.begin, ..record.clone() };
        let how = span.how.unwrap_or(How::listed(Change::Created));
        let version = self.insert_version(names.own, Arrival { record: &record, how, document: NOBODY, heir_of })?;
        self.is_in_force(version, span)?;
        Ok(version)
    }

    /// Where a version that is known can be had, as this entry says.
    fn places_of(&self, version: VersionId, record: &Record) -> Result<()> {
        let Some(extra) = record.extra.as_deref().filter(|extra| extra.contains("memento")) else { return Ok(()) };
        let extra: Extra = serde_json::from_str(extra).unwrap_or_default();
        let length = extra.length.or(record.size);
        let same_words: bool = self
            .connection()
            .prepare_cached("SELECT until IS NULL OR extra IS ?2 FROM version WHERE id = ?1")?
            .query_row(params![version, record.extra], |row| row.get(0))?;
        if same_words {
            return Ok(());
        }
        let times = [Some(record.begin), Some(record.mtime)];
        let says = EntrySays { uri: &record.uri, hashes: &record.hashes, length, times };
        for url in extra.own_mementos(&says) {
            self.connection()
                .prepare_cached("INSERT OR IGNORE INTO memento (version, url, negotiated) VALUES (?1, ?2, 0)")?
                .execute(params![version, url])?;
        }
        Ok(())
    }

    /// The names of a resource that is only of the past: they are made without making anything in the current tree into
    /// something else.
    fn past_name(&mut self, past: &Past, record: &Record) -> Result<Names> {
        let mut at = past.directory;
        for step in record.path.above() {
            at = self.past_directory(past, at, step)?;
        }
        let Named { name, row, uri } = Named::find(&self.transaction, at, &record.path, &record.uri)?;
        let left_out = self.leaves_out(past.directory, &name, record)?;
        let own = match row {
            None => self.tree.insert(&self.transaction, NewName { uri, ..NewName::directory(at, &name, past.rset) })?,
            Some(row) => {
                self.tree.ensure_self(&self.transaction, row.id, past.rset)?;
                row.id
            }
        };
        let in_directory = self.child(own, SELF)?.map_or(own, |inner| inner.id);
        self.connection()
            .prepare_cached("UPDATE name SET uri = COALESCE(uri, ?2), hidden = ?3 WHERE id = ?1 AND version IS NULL")?
            .execute(params![in_directory, uri, left_out])?;
        self.parent_has_own(past, at)?;
        Ok(Names { own, in_directory })
    }

    /// A name in which something lay.
    fn past_directory(&mut self, past: &Past, parent: NameId, name: &str) -> Result<NameId> {
        let id = match Tree::row(&self.transaction, parent, name)? {
            None => self.tree.insert(&self.transaction, NewName::directory(parent, name, past.rset))?,
            Some(row) => {
                self.tree.was_directory(&self.transaction, row, past.rset)?;
                row.id
            }
        };
        self.parent_has_own(past, parent)?;
        Ok(id)
    }

    /// What is a file today, and was a directory, has its own history under `@self`, too.
    fn parent_has_own(&mut self, past: &Past, parent: NameId) -> Result<()> {
        let is_file: bool = self
            .connection()
            .prepare_cached("SELECT version IS NOT NULL FROM name WHERE id = ?1")?
            .query_row([parent], |row| row.get(0))?;
        if is_file { self.tree.ensure_self(&self.transaction, parent, past.rset) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
