//! What a change does to the versions of a resource (core 12).
//!
//! A change is told from others by its resource, its kind and its time, or, where it has no time, by the
//! digests that it gives. One that is in the tree already does nothing; one that is older than the change
//! which made the current version becomes history.

use crate::catalog::db::numbers::{own, undated};
use crate::catalog::model::ids::{DocumentId, NameId, SetId, VersionId};
use rusqlite::{OptionalExtension, params};

use crate::catalog::db::names::place;
use crate::catalog::error::CatalogError;
use crate::catalog::model::origin::{Changed, How, Moved};
use crate::catalog::model::record::Record;
use crate::catalog::model::same_bytes::{Listed, Sameness};
use crate::catalog::write::insert::VersionValues;
use crate::catalog::write::transaction::{Arrival, NOBODY, Transaction};
use crate::document::{Change, Datetime, Hashes};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// The most versions of one moment that are put in another order.
const MOST_AT_ONCE: u32 = 64;

/// Where a resource is, or was, in the tree: the name of its path, and `@self` in the directory of that name. It
/// may have been the one and the other in turn, and its history lies with both.
#[derive(Clone, Copy, Debug)]
pub(in crate::catalog) struct Names {
    pub(in crate::catalog) own: NameId,
    pub(in crate::catalog) in_directory: NameId,
}

/// The names of a resource, and the one that has its current version, with that.
pub(in crate::catalog) type Found = (Names, Option<(NameId, VersionId)>);

/// A superseded version that was current for some time.
struct Lived {
    id: VersionId,
    begin: Datetime,
    until: Datetime,
    gone: Option<i64>,
    went: Option<i64>,
    change: Option<i64>,
    hashes: Option<Vec<u8>>,
}

/// The number of preceding versions that are compared with a change to find the same bytes in a package.
const MOST_BEFORE: i64 = 8;

/// How many of the versions of one time are compared with a change, where none has the same hashes.
pub(in crate::catalog) const MOST_COMPARED: i64 = 64;

/// One of the versions of a resource that began at the same moment.
struct AtOnce {
    id: VersionId,
    hashes: Hashes,
    until: Option<Datetime>,
    /// Whether its resource went when it ended.
    went: bool,
}

/// The current version of a resource, as far as a change is compared with it.
struct Current {
    id: VersionId,
    begin: Datetime,
    how: Option<How>,
    hashes: Option<Vec<u8>>,
    sameness: Sameness,
    same_media: bool,
    document: DocumentId,
}

/// A change that a Source tells of.
#[derive(Clone, Copy, Debug)]
pub struct ToldChange<'r> {
    /// What it says of the resource. Its `begin` is the moment of the change: its own time, or else the earliest at which it can have
    /// happened.
    pub record: &'r Record,
    /// What happened, and how exactly that is known.
    pub how: How,
    /// The first version that came in this same reading.
    pub fresh: VersionId,
    /// Whether it is no change that is known, whatever it looks like.
    pub again: bool,
}

impl Transaction<'_> {
    /// Brings one change of a set into the tree, under the directory that is the set's. Returns the version that it made, or that
    /// is known to be its.
    pub fn change(
        &mut self,
        rset: SetId,
        directory: NameId,
        told: &ToldChange<'_>,
    ) -> Result<(Changed, Option<VersionId>)> {
        let (changed, version) = self.apply(rset, directory, told)?;
        if matches!(changed, Changed::Added | Changed::Updated | Changed::Past)
            && let Some(version) = version
        {
            self.absorb_listed(version, told.record, told.how)?;
        }
        self.linked(version, told.record)?;
        Ok((changed, version))
    }

    fn apply(&mut self, rset: SetId, directory: NameId, told: &ToldChange<'_>) -> Result<(Changed, Option<VersionId>)> {
        let ToldChange { record, how, fresh, .. } = *told;
        let found = self.resource(directory, record)?;
        let current = match found {
            Some((_, Some((_, version)))) => Some(self.current_for(version, record)?),
            _ => None,
        };
        let names = found.map(|(names, _)| names);
        if let Some(names) = names.filter(|_| !told.again)
            && let Some(known) = self.is_known(names, current.as_ref(), told)?
        {
            return Ok(known);
        }
        let moment = record.begin;
        let overtaken = match (&current, names) {
            (Some(current), _) if current.how.is_some_and(How::is_exact) => moment < current.begin,
            (_, Some(names)) => self.last_deletion(names)?.is_some_and(|last| moment < last),
            (_, None) => false,
        };
        if how.kind() == Change::Deleted {
            return match (overtaken, found) {
                (true, Some((names, _))) => {
                    let ended = self.delete_past(names, moment, how, fresh)?;
                    Ok((if ended { Changed::Past } else { Changed::Absent }, None))
                }
                (false, Some((_, Some(live)))) => {
                    let (parent, own) = place(self.connection(), live.0)?;
                    self.vanish(rset, (parent, &own), live, (moment, how))?;
                    Ok((Changed::Deleted, None))
                }
                _ => Ok((Changed::Absent, None)),
            };
        }
        if overtaken && let Some(names) = names {
            return Ok((Changed::Past, Some(self.insert_past(names, record, how)?)));
        }
        if let (Some(current), Some((names, Some((name, _))))) = (&current, found)
            && !current.how.is_some_and(How::is_change)
            && current.sameness == Sameness::Same
            && current.same_media
        {
            self.was_listed(name, names, current, told)?;
            return Ok((Changed::Known, Some(current.id)));
        }
        let heir_of = match (&current, names) {
            (Some(current), _) if current.sameness == Sameness::Same => Some(current.id),
            (_, Some(names)) => self.same_bytes_before(names, record)?,
            _ => None,
        };
        let current_document = current.map(|current| current.document);
        self.arrives(rset, directory, (record, how, heir_of), current_document)
    }

    /// A change has made a version; the one that it supersedes, if there is one, is listed by `current_document`.
    fn arrives(
        &mut self,
        rset: SetId,
        directory: NameId,
        (record, how, heir_of): (&Record, How, Option<VersionId>),
        current_document: Option<DocumentId>,
    ) -> Result<(Changed, Option<VersionId>)> {
        let spot = self.spot(rset, directory, record)?;
        match (spot.row.and_then(|row| row.version.map(|version| (row.id, version))), current_document) {
            (Some(known), Some(document)) => {
                // Which list it is in, the change does not say; that list's next edition does.
                let arrival = Arrival { record, how, document, heir_of };
                Ok((Changed::Updated, Some(self.succeed(&spot, known, arrival)?)))
            }
            _ => {
                let arrival = Arrival { record, how, document: NOBODY, heir_of };
                Ok((Changed::Added, Some(self.appear(rset, &spot, arrival)?)))
            }
        }
    }

    /// Whether a change is in the tree already, and what there is of it; `None` if it is new.
    fn is_known(
        &self,
        names: Names,
        current: Option<&Current>,
        told: &ToldChange<'_>,
    ) -> Result<Option<(Changed, Option<VersionId>)>> {
        let how = told.how;
        let is_deletion = how.kind() == Change::Deleted;
        if let Some(known) = self.known(names, current, told)? {
            let stands = match is_deletion {
                true => current.is_none(),
                false => current.is_some_and(|current| Some(current.id) == known),
            };
            let stale = !stands
                && self.may_have_happened_again(names, current, told.record.begin, how)?
                && !(!how.is_exact() && known.is_some() && self.is_in_lists(names, known)?);
            return Ok(Some((if stale { Changed::Stale } else { Changed::Known }, known)));
        }
        let is_listed = current.is_some_and(|current| !current.how.is_some_and(How::is_change));
        // It was deleted before the lists were made that have it again.
        let is_undone = is_deletion && !how.is_exact() && is_listed && self.is_in_lists(names, None)?;
        Ok(is_undone.then_some((Changed::Known, None)))
    }

    /// A list told of the current version before its change did: now it is that of the change.
    fn was_listed(&mut self, name: NameId, names: Names, current: &Current, told: &ToldChange<'_>) -> Result<()> {
        let ToldChange { record, how, .. } = *told;
        let moment = record.begin;
        let same_words: bool = self
            .connection()
            .prepare_cached("SELECT extra IS ?2 FROM version WHERE id = ?1")?
            .query_row(params![current.id, record.extra], |row| row.get(0))?;
        self.connection()
            .prepare_cached("UPDATE version SET change = ?2, begin = ?3, extra = ?4 WHERE id = ?1")?
            .execute(params![current.id, how.number(), moment, record.extra])?;
        if !same_words {
            self.relink(current.id)?;
            // What it is linked to may be something else.
            self.connection()
                .prepare_cached("UPDATE name SET changed = ?2 WHERE id = ?1")?
                .execute(params![name, self.now])?;
            let (parent, leaf) = place(self.connection(), name)?;
            self.tree.count(&self.transaction, parent, &leaf, 0)?;
            self.judge(name)?;
        }
        if current.begin != moment {
            self.cut((names.own, names.in_directory), moment)?;
            // The one before it was in force until then.
            self.connection()
                .prepare_cached(concat!(
                    "UPDATE version SET until = max(begin, ?3) WHERE gone IS NULL AND id = (
                         SELECT id FROM version INDEXED BY version_ended WHERE name IN (?1, ?2) AND until IS NOT NULL
                             AND until = ?4 AND ",
                    own!("change"),
                    " ORDER BY begin DESC, id DESC LIMIT 1)"
                ))?
                .execute(params![names.own, names.in_directory, moment, current.begin])?;
            self.lived(name, moment.min(current.begin), Datetime::MIN)?;
        }
        Ok(())
    }

    /// A list of the very moment of a change had its result already, and another change of that moment was put after it: what
    /// the list had is the version that this change made, and no other.
    fn absorb_listed(&mut self, version: VersionId, record: &Record, how: How) -> Result<()> {
        if !how.is_exact() || record.hashes.is_empty() {
            return Ok(());
        }
        let listed_as = [None, Some(How::listed(Change::Created)), Some(How::listed(Change::Updated))];
        for listed_as in listed_as.map(|how| how.map(How::number)) {
            let listed: Option<VersionId> = self
                .connection()
                .prepare_cached(
                    "SELECT max(l.id) FROM version v JOIN version l ON l.name = v.name
                     WHERE v.id = ?1 AND l.begin = ?2 AND l.until = l.begin AND l.change IS ?3 AND l.hashes = ?4
                         AND l.gone IS NULL AND l.id < v.id AND COALESCE(l.size = v.size, 1)",
                )?
                .query_row(params![version, record.begin, listed_as, record.hashes.to_bytes()], |row| row.get(0))?;
            if let Some(listed) = listed {
                self.take_over(listed, version)?;
                // Both have the same hashes, so a member of a package is the content of the one as of the other.
                let has_member: bool = self
                    .connection()
                    .prepare_cached("SELECT EXISTS (SELECT 1 FROM member WHERE version = ?1)")?
                    .query_row([version], |row| row.get(0))?;
                if !has_member {
                    self.inherit_member(listed, version, &record.hashes)?;
                }
                self.inherit_places(listed, version)?;
                self.orphan(listed, version)?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The names of a resource that is, or was, in the tree; and which of them has its current version.
    pub(in crate::catalog) fn resource(&mut self, directory: NameId, record: &Record) -> Result<Option<Found>> {
        let Some(row) = self.find(directory, record)? else { return Ok(None) };
        let inner = self.child(row.id, SELF)?;
        let names = Names { own: row.id, in_directory: inner.map_or(row.id, |inner| inner.id) };
        let current = row.version.map(|version| (row.id, version));
        let current = current.or(inner.and_then(|inner| inner.version.map(|version| (inner.id, version))));
        Ok(Some((names, current)))
    }

    /// Whether a resource is in the tree, by a version that began before the time of this record.
    pub fn began_before(&mut self, directory: NameId, record: &Record) -> Result<bool> {
        let Some((_, Some((_, version)))) = self.resource(directory, record)? else { return Ok(false) };
        let begin: Datetime = self
            .connection()
            .prepare_cached("SELECT begin FROM version WHERE id = ?1")?
            .query_row([version], |row| row.get(0))?;
        Ok(begin < record.begin)
    }

    /// Whether lists of resources were made after a change without a time had been seen for the first time: then they, and not
    /// that change, tell what has come of its resource. `change` is the version that it made, or else it is a deletion.
    fn is_in_lists(&self, names: Names, change: Option<VersionId>) -> Result<bool> {
        const LISTED_AT: &str =
            "(SELECT COALESCE(r.at, (SELECT CAST(m.value AS INTEGER) FROM meta m WHERE m.key = 'begun ' || r.id))
              FROM rset r JOIN name n ON n.rset = r.id WHERE n.id = ?1)";
        Ok(match change {
            // What the first sync brought has no number of a sync.
            Some(version) => self
                .connection()
                .prepare_cached(&format!(
                    "SELECT {LISTED_AT} IS NOT NULL AND COALESCE((SELECT s.time FROM version v JOIN sync s ON s.id = v.came
                         WHERE v.id = ?2), ?3) <= {LISTED_AT}"
                ))?
                .query_row(params![names.own, version, Datetime::MIN], |row| row.get(0))?,
            None => self
                .connection()
                .prepare_cached(&format!(
                    "SELECT EXISTS (SELECT 1 FROM version v JOIN sync s ON s.id = v.went
                         WHERE v.name IN (?1, ?2) AND v.until IS NOT NULL AND v.gone = ?3 AND s.time <= {LISTED_AT})"
                ))?
                .query_row(
                    params![names.own, names.in_directory, How::change(Change::Deleted, false).number()],
                    |row| row.get(0),
                )?,
        })
    }

    fn current_for(&self, version: VersionId, record: &Record) -> Result<Current> {
        let media = record.media.as_deref();
        Ok(self
            .connection()
            .prepare_cached(
                "SELECT v.begin, v.change, v.hashes, CASE WHEN v.settled THEN NULL ELSE v.size END, v.mtime, v.dated,
                        t.type, v.document FROM version v LEFT JOIN media t ON t.id = v.media WHERE v.id = ?1",
            )?
            .query_row([version], |row| {
                let hashes: Option<Vec<u8>> = row.get(2)?;
                let known = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
                let facts = Listed {
                    modified: (row.get::<_, u8>(5)? == 1).then_some(row.get(4)?),
                    size: row.get::<_, Option<i64>>(3)?.map(i64::unsigned_abs),
                    hashes: &known,
                };
                Ok(Current {
                    id: version,
                    begin: row.get(0)?,
                    how: How::of(row.get(1)?),
                    sameness: facts.compared_with(&Listed::of(record)),
                    hashes,
                    same_media: row.get::<_, Option<String>>(6)?.as_deref() == media || media.is_none(),
                    document: row.get(7)?,
                })
            })?)
    }

    /// The version that a change made or ended, if the change is in the tree already.
    fn known(
        &self,
        names: Names,
        current: Option<&Current>,
        told: &ToldChange<'_>,
    ) -> Result<Option<Option<VersionId>>> {
        let ToldChange { record, how, fresh, .. } = *told;
        let moment = record.begin;
        if how.kind() == Change::Deleted {
            if !how.is_exact() {
                return Ok(None);
            }
            let known: Option<i64> = self
                .connection()
                .prepare_cached(
                    "SELECT id FROM version WHERE name IN (?1, ?2) AND until IS NOT NULL AND until = ?3 AND gone = ?4 LIMIT 1",
                )?
                .query_row(params![names.own, names.in_directory, moment, how.number()], |row| row.get(0))
                .optional()?;
            return Ok(known.map(|_| None));
        }
        if how.is_exact() {
            if let Some(current) = current.filter(|current| {
                current.begin == moment && current.how == Some(how) && agree(current.hashes.as_deref(), &record.hashes)
            }) {
                return Ok(Some(Some(current.id)));
            }
            return Ok(self.known_at(names, moment, how, &record.hashes)?.map(Some));
        }
        if record.hashes.is_empty() {
            let same = |current: &&Current| current.how == Some(how) && current.sameness == Sameness::Same;
            let shown = current.filter(same).filter(|current| current.id < fresh).map(|current| current.id);
            return Ok(match shown {
                Some(_) => Some(shown),
                None => self.known_by_lastmod(names, record, how, fresh)?.map(Some),
            });
        }
        let hashes = record.hashes.to_bytes();
        if let Some(current) = current.filter(|current| {
            current.id < fresh && current.how == Some(how) && current.hashes.as_ref() == Some(&hashes)
        }) {
            return Ok(Some(Some(current.id)));
        }
        let known: Option<VersionId> = self
            .connection()
            .prepare_cached(concat!(
                "SELECT id FROM version WHERE name IN (?1, ?2) AND until IS NOT NULL AND change = ?3 AND ",
                undated!("change"),
                " AND hashes = ?4
                 AND id < ?5 ORDER BY id DESC LIMIT 1"
            ))?
            .query_row(params![names.own, names.in_directory, how.number(), hashes, fresh], |row| row.get(0))
            .optional()?;
        Ok(known.map(Some))
    }

    /// One of the last superseded versions that a change without a time and without hashes made, by its `lastmod`.
    fn known_by_lastmod(&self, names: Names, record: &Record, how: How, fresh: VersionId) -> Result<Option<VersionId>> {
        let Some(lastmod) = Listed::of(record).modified else { return Ok(None) };
        let mut statement = self.connection().prepare_cached(
            "SELECT max(id) FROM (
                 SELECT id, change, mtime, dated FROM version WHERE name = ?1 AND until IS NOT NULL
                 ORDER BY begin DESC, id DESC LIMIT ?5)
             WHERE change = ?2 AND dated = 1 AND mtime = ?3 AND id < ?4",
        )?;
        for name in [names.own, names.in_directory] {
            let known: Option<VersionId> =
                statement.query_row(params![name, how.number(), lastmod, fresh, MOST_COMPARED], |row| row.get(0))?;
            if known.is_some() {
                return Ok(known);
            }
        }
        Ok(None)
    }

    /// The first version that a change made which has this time, and that can have these bytes. Of thousands at one time, those
    /// with the same hashes are found, and of others the newest are compared.
    fn known_at(&self, names: Names, moment: Datetime, how: How, hashes: &Hashes) -> Result<Option<VersionId>> {
        const AT_ONCE: &str =
            "SELECT min(id) FROM version WHERE name IN (?1, ?2) AND begin = ?3 AND until = begin AND change = ?4";
        let own = hashes.to_bytes();
        let among = |condition: &str, bytes: &[u8]| -> Result<Option<VersionId>> {
            let mut statement = self.connection().prepare_cached(&format!("{AT_ONCE} AND {condition}"))?;
            Ok(statement
                .query_row(params![names.own, names.in_directory, moment, how.number(), bytes], |row| row.get(0))?)
        };
        let lived = self.current_at(names, moment)?.filter(|lived| {
            lived.begin == moment && lived.change == Some(how.number()) && agree(lived.hashes.as_deref(), hashes)
        });
        let found = [
            among("hashes = ?5", &own)?,
            among("hashes IS NULL AND ?5 IS NOT NULL", &own)?,
            lived.map(|lived| lived.id),
        ];
        if let Some(found) = found.into_iter().flatten().min() {
            return Ok(Some(found));
        }
        let mut statement = self.connection().prepare_cached(
            "SELECT id, hashes FROM version WHERE name = ?1 AND begin = ?2 AND until IS NOT NULL AND change = ?3
             ORDER BY id DESC LIMIT ?4",
        )?;
        let mut found = None;
        for name in [names.own, names.in_directory] {
            let mut rows = statement.query(params![name, moment, how.number(), MOST_COMPARED])?;
            while let Some(row) = rows.next()? {
                if agree(row.get::<_, Option<Vec<u8>>>(1)?.as_deref(), hashes) {
                    let id: VersionId = row.get(0)?;
                    found = Some(found.map_or(id, |known: VersionId| known.min(id)));
                }
            }
        }
        Ok(found)
    }

    /// The superseded version of the Source's own that was current at a time, or, if it ended before that, the last one
    /// before it. There is one at most: they do not overlap.
    fn current_at(&self, names: Names, moment: Datetime) -> Result<Option<Lived>> {
        // Without a condition on `until`, which SQLite would have to look for in all of them.
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT id, max(begin), until, gone, went, change, hashes FROM version
             WHERE name IN (?1, ?2) AND until > begin AND begin <= ?3 AND ",
            own!("change")
        ))?;
        Ok(statement.query_row(params![names.own, names.in_directory, moment], |row| {
            let Some(id) = row.get::<_, Option<VersionId>>(0)? else { return Ok(None) };
            Ok(Some(Lived {
                id,
                begin: row.get(1)?,
                until: row.get(2)?,
                gone: row.get(3)?,
                went: row.get(4)?,
                change: row.get(5)?,
                hashes: row.get(6)?,
            }))
        })?)
    }

    /// Whether a change that is known, and is not what the tree shows, may be another one that looks the same:
    /// within one second, or without a time. Of those, what is told last of a resource is so.
    fn may_have_happened_again(
        &self,
        names: Names,
        current: Option<&Current>,
        moment: Datetime,
        how: How,
    ) -> Result<bool> {
        match current {
            _ if !how.is_exact() => Ok(true),
            Some(Current { how: Some(shown), begin, .. }) => Ok(shown.is_exact() && *begin == moment),
            Some(_) => Ok(false),
            None => Ok(self.last_deletion(names)? == Some(moment)),
        }
    }

    fn last_deletion(&self, names: Names) -> Result<Option<Datetime>> {
        Ok(self
            .connection()
            .prepare_cached(
                "SELECT max(until) FROM version WHERE name IN (?1, ?2) AND until IS NOT NULL AND gone = ?3",
            )?
            .query_row(params![names.own, names.in_directory, How::change(Change::Deleted, true).number()], |row| {
                row.get(0)
            })?)
    }

    /// A deletion that is told when what came after it is known; false if nothing was in force then.
    fn delete_past(&mut self, names: Names, moment: Datetime, how: How, fresh: VersionId) -> Result<bool> {
        if !how.is_exact() {
            return Ok(false);
        }
        // Of what began within the same second, that was told before it which came in this same reading.
        let gone = self
            .current_at(names, moment)?
            .filter(|lived| lived.until > moment && (lived.begin < moment || lived.id >= fresh))
            .map(|lived| (lived.id, lived.gone.is_some()));
        match gone {
            Some((version, false)) => {
                self.connection()
                    .prepare_cached("UPDATE version SET until = ?2, gone = ?3, went = ?4, ended = ?5 WHERE id = ?1")?
                    .execute(params![version, moment, how.number(), self.sync, self.now])?;
                self.lived(names.own, moment, moment)?;
            }
            // It went once more later: between the two it was here again, and what it was then is told next.
            Some((version, true)) => {
                self.went_before.insert(version, moment);
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Whether it was told that something went, and not yet that it came back, which it did.
    #[must_use]
    pub fn awaits_return(&self) -> bool {
        !self.went_before.is_empty()
    }

    /// A version that was superseded before it was known: until the next one began, or the resource went.
    fn insert_past(&mut self, names: Names, record: &Record, how: How) -> Result<VersionId> {
        let begin = record.begin;
        let next: Option<Datetime> = self
            .connection()
            .prepare_cached(concat!(
                "SELECT min(begin) FROM version WHERE name IN (?1, ?2) AND until > begin AND begin > ?3
                 AND ",
                own!("change")
            ))?
            .query_row(params![names.own, names.in_directory, begin], |row| row.get(0))?;
        let current: Option<Datetime> = self
            .connection()
            .prepare_cached(
                "SELECT min(v.begin) FROM name n JOIN version v ON v.id = n.version WHERE n.id IN (?1, ?2) AND v.begin > ?3",
            )?
            .query_row(params![names.own, names.in_directory, begin], |row| row.get(0))?;
        let before = self.current_at(names, begin)?.filter(|before| before.until > begin);
        let is_listed = |lived: &&Lived| {
            let is_of_a_list = How::of(lived.change).is_none_or(|how| !how.is_change());
            is_of_a_list
                && lived.begin == begin
                && !record.hashes.is_empty()
                && agree(lived.hashes.as_deref(), &record.hashes)
        };
        if let Some(listed) = before.as_ref().filter(is_listed) {
            // A list of that very moment had it already.
            self.connection()
                .prepare_cached("UPDATE version SET change = ?2, extra = ?3 WHERE id = ?1")?
                .execute(params![listed.id, how.number(), record.extra])?;
            return Ok(listed.id);
        }
        let ended = before.as_ref().map(|before| before.until);
        let until = [next, current, ended].into_iter().flatten().min();
        let version = self.insert_version(names.own, Arrival { record, how, document: NOBODY, heir_of: None })?;
        let until = until.unwrap_or(record.begin);
        self.connection()
            .prepare_cached("UPDATE version SET until = ?2, ended = ?3 WHERE id = ?1")?
            .execute(params![version, until, self.now])?;
        if let Some(before) = before.as_ref().filter(|before| before.until == until) {
            self.went_with(version, begin, before)?;
        }
        // The version before it ended when this one began.
        if let Some(before) = before.filter(|before| before.gone.is_none()) {
            self.connection()
                .prepare_cached("UPDATE version SET until = ?2 WHERE id = ?1")?
                .execute(params![before.id, begin])?;
        }
        self.lived(names.own, record.begin, until)?;
        Ok(version)
    }

    /// Where the resource went when the version `before` this one ended, it is this one that did.
    fn went_with(&mut self, version: VersionId, begin: Datetime, before: &Lived) -> Result<()> {
        let Some(gone) = before.gone else { return Ok(()) };
        self.connection().prepare_cached("UPDATE version SET gone = ?2, went = ?3 WHERE id = ?1")?.execute(params![
            version,
            gone,
            before.went
        ])?;
        let went_before = self.went_before.remove(&before.id).filter(|moment| *moment <= begin);
        match went_before {
            Some(moment) => self
                .connection()
                .prepare_cached("UPDATE version SET until = ?2 WHERE id = ?1")?
                .execute(params![before.id, moment])?,
            None => self
                .connection()
                .prepare_cached("UPDATE version SET gone = NULL, went = NULL, until = ?2 WHERE id = ?1")?
                .execute(params![before.id, begin])?,
        };
        self.tree.changes.from(went_before.unwrap_or(begin));
        Ok(())
    }

    /// Of versions of a resource that began at one moment, this one comes after those of `told`; those that nobody told of come
    /// after it if they are `later`, and before it if not. Readers go by the numbers of versions, so whatever is moved gets a
    /// new one. None where the order of them cannot be told: some have the same bytes, or the resource went between them.
    pub fn comes_after(&mut self, version: VersionId, told: &[VersionId], later: bool) -> Result<Option<Moved>> {
        let (name, begin): (NameId, Datetime) = self
            .connection()
            .prepare_cached("SELECT name, begin FROM version WHERE id = ?1")?
            .query_row([version], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let group = self.began_at_once(name, begin)?;
        let alike = group
            .iter()
            .enumerate()
            .any(|(index, one)| group[..index].iter().any(|other| other.hashes.agree(&one.hashes)));
        let Some((last, before)) = group.split_last() else { return Ok(None) };
        let went_between = before.iter().any(|one| one.went) || last.until == Some(begin);
        if alike || went_between || last.id == version || group.len() > MOST_AT_ONCE as usize {
            return Ok(None);
        }
        let is_current = last.until.is_none();
        let (mut end, mut own) = (last.id, version);
        let others = group.iter().map(|one| one.id).filter(|id| later && *id > version && !told.contains(id));
        for moved in std::iter::once(version).chain(others) {
            let next = self.renumber(moved)?;
            own = if moved == version { next } else { own };
            end = if moved == end { next } else { end };
        }
        let last = VersionId::new(self.next_version.number() - 1);
        if end != last {
            // Which list it is in, the order does not say; that of the resource is where it was.
            self.connection()
                .prepare_cached(
                    "UPDATE version SET until = e.until, gone = e.gone, went = e.went, ended = e.ended,
                         document = CASE WHEN e.until IS NULL THEN e.document ELSE version.document END
                     FROM version e WHERE version.id = ?1 AND e.id = ?2",
                )?
                .execute([last, end])?;
            self.connection()
                .prepare_cached(
                    "UPDATE version SET until = begin, gone = NULL, went = NULL, ended = COALESCE(ended, ?2) WHERE id = ?1",
                )?
                .execute(params![end, self.now])?;
        }
        if is_current {
            self.relink(last)?;
            self.connection()
                .prepare_cached("UPDATE name SET version = ?2, changed = ?3 WHERE id = ?1")?
                .execute(params![name, last, self.now])?;
            let (parent, leaf) = place(self.connection(), name)?;
            self.tree.count(&self.transaction, parent, &leaf, 0)?;
            self.judge(name)?;
        }
        self.lived(name, begin, group.last().and_then(|last| last.until).unwrap_or(Datetime::MIN))?;
        Ok(Some(Moved { version: own, is_shown: is_current && own == last }))
    }

    /// The Source's own versions of a name that began at a moment, in their order; no more than one too many.
    fn began_at_once(&self, name: NameId, begin: Datetime) -> Result<Vec<AtOnce>> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT id, hashes, until, gone IS NOT NULL FROM version
                 WHERE name = ?1 AND until IS NOT NULL AND begin = ?2 AND ",
            own!("change"),
            "
             UNION ALL SELECT v.id, v.hashes, NULL, 0 FROM name n JOIN version v ON v.id = n.version
                 WHERE n.id = ?1 AND v.begin = ?2
             ORDER BY 1 LIMIT ?3"
        ))?;
        let group = statement.query_map(params![name, begin, MOST_AT_ONCE + 1], |row| {
            let hashes: Option<Vec<u8>> = row.get(1)?;
            let hashes = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
            Ok(AtOnce { id: row.get(0)?, hashes, until: row.get(2)?, went: row.get(3)? })
        })?;
        Ok(group.collect::<rusqlite::Result<_>>()?)
    }

    /// Gives a version the next number, and returns that. What it is called among versions stays; whoever has it open goes on
    /// with what it was.
    fn renumber(&mut self, version: VersionId) -> Result<VersionId> {
        let Some(known) = VersionValues::load(self.connection(), version)? else { return Ok(version) };
        let next = self.new_version();
        let rank = known.rank.or(Some(version.number()));
        VersionValues { id: next, rank, ..known }.insert(self.connection())?;
        self.inherit_member(version, next, &Hashes::default())?;
        self.connection()
            .prepare_cached("UPDATE patch SET version = ?2 WHERE version = ?1")?
            .execute(params![version, next])?;
        self.orphan(version, next)?;
        self.relink(next)?;
        Ok(next)
    }

    /// An earlier version of the same bytes, whose content is in the store; or, of the last [`MOST_BEFORE`], in a package.
    pub(in crate::catalog) fn same_bytes_before(&self, names: Names, record: &Record) -> Result<Option<VersionId>> {
        if record.hashes.is_empty() {
            return Ok(None);
        }
        let hashes = record.hashes.to_bytes();
        let stored: Option<VersionId> = self
            .connection()
            .prepare_cached(
                "SELECT id FROM version WHERE name IN (?1, ?2) AND until IS NOT NULL AND object IS NOT NULL AND hashes = ?3
                 LIMIT 1",
            )?
            .query_row(params![names.own, names.in_directory, hashes], |row| row.get(0))
            .optional()?;
        if stored.is_some() {
            return Ok(stored);
        }
        // Members are not indexed by digest, and most Sources have no packages.
        let has_members: bool = self
            .connection()
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM member)")?
            .query_row([], |row| row.get(0))?;
        if !has_members {
            return Ok(None);
        }
        let mut packed = self.connection().prepare_cached(
            "SELECT v.id FROM (
                 SELECT id, hashes FROM version WHERE name = ?1 AND until IS NOT NULL ORDER BY begin DESC, id DESC LIMIT ?3) v
             WHERE v.hashes = ?2 AND EXISTS (SELECT 1 FROM member m WHERE m.version = v.id) LIMIT 1",
        )?;
        for name in [names.own, names.in_directory] {
            let found = packed.query_row(params![name, hashes, MOST_BEFORE], |row| row.get(0)).optional()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The number that the next version will have.
    #[must_use]
    pub fn next_version(&self) -> VersionId {
        self.next_version
    }
}

/// Whether two sets of digests can be of the same bytes.
pub(in crate::catalog) fn agree(known: Option<&[u8]>, hashes: &Hashes) -> bool {
    known.map(Hashes::from_bytes).unwrap_or_default().agree(hashes)
}
