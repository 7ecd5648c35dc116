//! A step of the writer that is not yet visible.

use crate::catalog::db::numbers::own;
use crate::catalog::model::ids::{DocumentId, NameId, SetId, VersionId};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::{OptionalExtension as _, params};

use crate::catalog::db::columns::{MEMBER, member};
use crate::catalog::db::meta::{TIMELESS, set_meta};
use crate::catalog::db::names::{derived_uri, resource_name};
use crate::catalog::db::naming::Named;
use crate::catalog::db::pool::Gate;
use crate::catalog::db::snapshots::{seen, went_later};
use crate::catalog::db::tree::{NameRow, NewName, Numbers, Tree};
use crate::catalog::error::CatalogError;
use crate::catalog::model::filter::Filter;
use crate::catalog::model::inode::ROOT;
use crate::catalog::model::members::MemberRow;
use crate::catalog::model::origin::How;
use crate::catalog::model::record::Record;
use crate::catalog::model::rows::{Changes, Outcome, Upserted};
use crate::catalog::model::same_bytes::{Listed, Sameness};
use crate::catalog::model::snapshot::Snapshot;
use crate::catalog::write::insert::{Existing, NewVersion, insert_member};
use crate::catalog::write::state::{Recent, Remembered};
use crate::document::{Change, Datetime, Hashes};
use crate::path::{Mapper, SELF};

type Result<T> = std::result::Result<T, CatalogError>;

/// In place of the document that lists a version: several do.
const SHARED: DocumentId = DocumentId::new(-1);

/// In place of the document that lists a version: none does that was read.
pub(in crate::catalog) const NOBODY: DocumentId = DocumentId::new(0);

/// In place of the document that lists a version: all documents were read, and none lists it.
const UNLISTED: DocumentId = DocumentId::new(-2);

/// When the last of the versions of two names ended; or began, if it is in force.
pub(in crate::catalog) const LAST: &str = concat!(
    "
    SELECT max(moment) FROM (
        SELECT max(until) AS moment FROM version
            WHERE name IN (?1, ?2) AND until IS NOT NULL AND ",
    own!("change"),
    "
        UNION ALL
        SELECT version.begin FROM name CROSS JOIN version ON version.id = name.version
            WHERE name.id IN (?1, ?2) AND ",
    own!("version.change"),
    ")"
);

/// What no list of a step named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Not listed any more.
    pub gone: u64,
    /// Listed by several documents before, of which some were not read because they had not changed:
    /// only reading all of them tells.
    pub doubtful: u64,
}

/// A name that is to go.
pub(in crate::catalog) struct Gone {
    id: NameId,
    parent: NameId,
    name: String,
    version: VersionId,
}

/// A step that is not yet visible.
#[derive(Debug)]
pub struct Transaction<'w> {
    pub(in crate::catalog) transaction: rusqlite::Transaction<'w>,
    mapper: &'w Mapper,
    pub(in crate::catalog) tree: Tree,
    pub(in crate::catalog) next_version: VersionId,
    /// When it was begun, by our clock.
    pub(in crate::catalog) now: Datetime,
    /// Resources whose versions changed, where archives remember any: what lies between is put right at the end.
    pub(in crate::catalog) remembered: Remembered,
    pub(in crate::catalog) seen: Numbers,
    media: HashMap<String, i64>,
    pub(in crate::catalog) resources: HashMap<SetId, i64>,
    /// What is shown of them, and how many more of a set are not.
    pub(in crate::catalog) filter: Arc<Filter>,
    pub(in crate::catalog) left_out: HashMap<SetId, i64>,
    /// Documents of the set that had not changed: what they list stands.
    kept: HashSet<DocumentId>,
    /// Documents that are manifests of packages.
    manifests: Option<HashSet<DocumentId>>,
    /// When the snapshot of the document being read began, where changes may be in the tree that are newer.
    snapshot: Option<Snapshot>,
    /// Whether it brought a resource of which neither a hash nor a time of modification is listed.
    pub(in crate::catalog) timeless: Cell<bool>,
    /// Versions that went earlier than is known, and when: that is kept when it is told what came between.
    pub(in crate::catalog) went_before: HashMap<VersionId, Datetime>,
    /// The sync that this step is, where it is not the first of its set.
    pub(in crate::catalog) sync: Option<i64>,
    pub(in crate::catalog) recent: Recent,
    gate: Arc<Gate>,
}

/// A version that comes into the tree.
#[derive(Clone, Copy)]
pub(in crate::catalog) struct Arrival<'r> {
    pub(in crate::catalog) record: &'r Record,
    pub(in crate::catalog) how: How,
    /// The document that lists it.
    pub(in crate::catalog) document: DocumentId,
    /// The version whose bytes it has.
    pub(in crate::catalog) heir_of: Option<VersionId>,
}

/// What a resource that a document lists is, beside its current version.
struct Compared {
    /// Nothing is new.
    same: bool,
    /// What is said of the bytes is the same.
    same_bytes: bool,
    /// What is said can be said of one and the same.
    agrees: bool,
    /// The document that lists the version.
    listed: DocumentId,
}

/// A place in the tree for a resource.
pub(in crate::catalog) struct Spot<'r> {
    pub(in crate::catalog) parent: NameId,
    /// [`SELF`] in a directory of its own name.
    pub(in crate::catalog) name: Cow<'r, str>,
    pub(in crate::catalog) row: Option<NameRow>,
    pub(in crate::catalog) uri: Option<&'r str>,
    /// That of its set.
    pub(in crate::catalog) directory: NameId,
}

impl<'w> Transaction<'w> {
    pub(in crate::catalog) fn new(
        transaction: rusqlite::Transaction<'w>,
        mapper: &'w Mapper,
        (next_name, next_version): (NameId, VersionId),
        filter: Arc<Filter>,
        gate: Arc<Gate>,
    ) -> Self {
        let now = Datetime::now();
        Self {
            transaction,
            mapper,
            tree: Tree::new(next_name, now),
            next_version,
            now,
            remembered: Remembered::default(),
            seen: Numbers::default(),
            media: HashMap::new(),
            resources: HashMap::new(),
            filter,
            left_out: HashMap::new(),
            kept: HashSet::new(),
            manifests: None,
            snapshot: None,
            timeless: Cell::new(false),
            sync: None,
            went_before: HashMap::new(),
            recent: Recent::default(),
            gate,
        }
    }

    /// How many names the catalog has, those included that are not live any more.
    #[must_use]
    pub fn names_in_all(&self) -> u64 {
        self.tree.next_name.number().unsigned_abs()
    }

    /// What this step brought into the tree, for the step that follows it at once.
    pub fn recent(&mut self) -> Recent {
        std::mem::take(&mut self.recent)
    }

    /// Goes on from the step before this one, if nothing else was written in between; or begins to keep what a step after
    /// this one wants.
    pub fn remember(&mut self, recent: Recent) {
        self.recent = recent;
    }

    pub(in crate::catalog) fn connection(&self) -> &rusqlite::Connection {
        &self.transaction
    }

    /// The URI of a resource.
    pub(in crate::catalog) fn uri_of_resource(&self, resource: NameId) -> Result<String> {
        let found = resource_name(&self.transaction, self.mapper, resource)?;
        Ok(found.map(|(_, uri)| uri).unwrap_or_default())
    }

    /// Brings one resource of a list into the tree. `directory` is the set's.
    pub fn upsert(
        &mut self,
        rset: SetId,
        directory: NameId,
        document: DocumentId,
        record: &Record,
    ) -> Result<Upserted> {
        let upserted = self.place(rset, directory, document, record)?;
        if upserted.outcome != Outcome::Repeated {
            self.linked(upserted.version, record)?;
        }
        Ok(upserted)
    }

    fn place(&mut self, rset: SetId, directory: NameId, document: DocumentId, record: &Record) -> Result<Upserted> {
        let spot = self.spot(rset, directory, record)?;
        if let Some(row) = spot.row {
            if !self.seen.insert(row.id) {
                if let Some(version) = row.version {
                    self.share(version, document)?;
                }
                return Ok(Upserted { outcome: Outcome::Repeated, version: row.version });
            }
            if let Some(version) = row.version {
                return self.update(&spot, (row.id, version), document, record);
            }
            if self.went_later(&spot, row.id)? {
                return Ok(Upserted { outcome: Outcome::Unchanged, version: None });
            }
        }
        let how = How::listed(Change::Created);
        let version = self.appear(rset, &spot, Arrival { record, how, document, heir_of: None })?;
        self.recent.add(record, version);
        Ok(Upserted { outcome: Outcome::Added, version: Some(version) })
    }

    /// Where a resource lies in the tree; directories are made that are missing.
    pub(in crate::catalog) fn spot<'r>(
        &mut self,
        rset: SetId,
        directory: NameId,
        record: &'r Record,
    ) -> Result<Spot<'r>> {
        let parent = self.directory(directory, record.path.above(), rset)?;
        let Named { name, row, uri } = Named::find(&self.transaction, parent, &record.path, &record.uri)?;
        Ok(match row {
            Some(row) if self.tree.is_live_directory(row) => Spot {
                parent: row.id,
                name: Cow::Borrowed(SELF),
                row: Tree::row(&self.transaction, row.id, SELF)?,
                uri: Some(record.uri.as_str()),
                directory,
            },
            row => Spot { directory, parent, name, row, uri },
        })
    }

    /// Makes a version, and brings it into the tree where no version is.
    pub(in crate::catalog) fn appear(
        &mut self,
        rset: SetId,
        spot: &Spot<'_>,
        arrival: Arrival<'_>,
    ) -> Result<VersionId> {
        let Spot { parent, ref name, row, uri, directory } = *spot;
        let left_out = self.leaves_out(directory, name, arrival.record)?;
        let name_id = row.map_or(self.tree.next_name, |row| row.id);
        let record = &*match row {
            Some(row) => self.in_order(self.names(spot, row.id)?, arrival.record, arrival.how)?,
            None => Cow::Borrowed(arrival.record),
        };
        let version = self.insert_version(name_id, Arrival { record, ..arrival })?;
        match row {
            Some(row) => {
                self.transaction
                    .prepare_cached(
                        "UPDATE name SET version = ?2, uri = ?3, rset = ?4, changed = ?5, hidden = 0 WHERE id = ?1",
                    )?
                    .execute(params![row.id, version, uri, rset, self.now])?;
                self.tree.ensure_self(&self.transaction, row.id, rset)?;
                self.history_changed(row.id)?;
            }
            None => {
                let id =
                    self.tree.insert(&self.transaction, NewName { parent, name, rset, uri, version: Some(version) })?;
                self.seen.insert(id);
            }
        }
        let begin = record.begin;
        self.tree.span(parent, begin, Datetime::MIN);
        self.tree.changes.from(begin);
        self.tree.count(&self.transaction, parent, name, 1)?;
        *self.resources.entry(rset).or_insert(0) += 1;
        if left_out {
            self.mark(rset, parent, name_id, true)?;
        } else if row.is_some_and(|row| row.was_left_out()) {
            self.tree.changes.from(Datetime::MIN);
        }
        Ok(version)
    }

    /// Makes a version, and puts it in the place of the current one.
    pub(in crate::catalog) fn succeed(
        &mut self,
        spot: &Spot<'_>,
        (name, version): (NameId, VersionId),
        arrival: Arrival<'_>,
    ) -> Result<VersionId> {
        let record = &*self.in_order(self.names(spot, name)?, arrival.record, arrival.how)?;
        let next = self.insert_version(name, Arrival { record, ..arrival })?;
        self.close(version, record.begin)?;
        if arrival.heir_of == Some(version) || !arrival.how.is_change() && self.is_edition(version, record)? {
            self.inherit_places(version, next)?;
        }
        self.transaction
            .prepare_cached("UPDATE name SET version = ?2, changed = ?3 WHERE id = ?1")?
            .execute(params![name, next, self.now])?;
        self.history_changed(name)?;
        self.tree.span(spot.parent, record.begin, Datetime::MIN);
        self.tree.changes.from(record.begin);
        self.tree.count(&self.transaction, spot.parent, &spot.name, 0)?;
        if !self.filter.is_for_all() {
            let left_out = self.leaves_out(spot.directory, &spot.name, record)?;
            let rset = self
                .transaction
                .prepare_cached("SELECT rset FROM name WHERE id = ?1")?
                .query_row([name], |row| row.get(0))?;
            self.show(rset, (spot.parent, &spot.name), name, left_out)?;
        }
        Ok(next)
    }

    /// Sees to it that the next version of a resource begins when those before it have ended, under whichever of its names
    /// they are: only of a change that gave its own time is that believed, whatever was thought of others.
    fn in_order<'r>(&self, names: (NameId, NameId), record: &'r Record, how: How) -> Result<Cow<'r, Record>> {
        if how.is_exact() {
            self.cut(names, record.begin)?;
            return Ok(Cow::Borrowed(record));
        }
        let last: Option<i64> = self.transaction.prepare_cached(LAST)?.query_row(names, |row| row.get(0))?;
        Ok(match last.map(Datetime::from_nanos) {
            Some(last) if last > record.begin => Cow::Owned(Record { begin: last, ..record.clone() }),
            _ => Cow::Borrowed(record),
        })
    }

    /// Ends, at a moment at which another one began, whatever versions of these names had ended after it.
    pub(in crate::catalog) fn cut(&self, names: (NameId, NameId), moment: Datetime) -> Result<()> {
        self.transaction
            .prepare_cached(concat!(
                "UPDATE version SET until = max(begin, ?3) WHERE name IN (?1, ?2) AND until > ?3 AND ",
                own!("change")
            ))?
            .execute(params![names.0, names.1, moment.nanos()])?;
        Ok(())
    }

    /// Whether a list says of a version what another edition of it said, in other words.
    fn is_edition(&self, version: VersionId, record: &Record) -> Result<bool> {
        let mut statement =
            self.transaction.prepare_cached("SELECT begin, mtime, size, hashes FROM version WHERE id = ?1")?;
        Ok(statement.query_row([version], |row| {
            let hashes: Option<Vec<u8>> = row.get(3)?;
            let hashes = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
            let size = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
            Ok(row.get::<_, i64>(0)? == record.begin.nanos()
                && row.get::<_, i64>(1)? == record.mtime.nanos()
                && (size.is_none() || record.size.is_none() || size == record.size)
                && hashes.agree(&record.hashes))
        })?)
    }

    /// Takes the current version of a name out of the tree, as of the moment `at`, when it was deleted, or was
    /// found to be gone.
    pub(in crate::catalog) fn vanish(
        &mut self,
        rset: SetId,
        (parent, name): (NameId, &str),
        (id, version): (NameId, VersionId),
        (at, how): (Datetime, How),
    ) -> Result<()> {
        // A time that the change itself gave is what tells it from the next one, whatever the version's was.
        let span = match how.is_exact() {
            true => "begin = min(begin, ?2), until = ?2",
            false => "until = max(begin, ?2)",
        };
        let until: Datetime = self
            .transaction
            .prepare_cached(&format!(
                "UPDATE version SET {span}, gone = ?3, went = ?4, ended = ?5 WHERE id = ?1 RETURNING until"
            ))?
            .query_row(params![version, at.nanos(), how.number(), self.sync, self.now], |row| row.get(0))?;
        if how.is_exact() {
            let spot = Spot { parent, name: Cow::Borrowed(name), row: None, uri: None, directory: ROOT };
            self.cut(self.names(&spot, id)?, at)?;
        }
        // What went stays left out as of the moments in which it was there.
        let hidden: i64 = self
            .transaction
            .prepare_cached("UPDATE name SET version = NULL, changed = ?2 WHERE id = ?1 RETURNING hidden")?
            .query_row(params![id, self.now], |row| row.get(0))?;
        self.history_changed(id)?;
        // Where it began later than that, it begins then.
        self.tree.span(parent, until, until);
        self.tree.changes.from(until);
        self.tree.count(&self.transaction, parent, name, -1)?;
        *self.resources.entry(rset).or_insert(0) -= 1;
        if hidden > 0 {
            self.hide(rset, parent, -hidden)?;
        }
        Ok(())
    }

    /// Says when the snapshot began of the document that is read next.
    pub fn reading(&mut self, snapshot: Option<Snapshot>) {
        self.snapshot = snapshot;
    }

    /// What is in a directory under a name.
    pub(in crate::catalog) fn child(&self, directory: NameId, name: &str) -> Result<Option<NameRow>> {
        Tree::row(&self.transaction, directory, name)
    }

    /// Whether a change took the resource of a spot away after the snapshot of what is being read.
    fn went_later(&self, spot: &Spot<'_>, id: NameId) -> Result<bool> {
        let Some(snapshot) = self.snapshot else { return Ok(false) };
        went_later(&self.transaction, self.names(spot, id)?, snapshot)
    }

    /// The name of a spot, and the other one that its resource may have been under.
    fn names(&self, spot: &Spot<'_>, id: NameId) -> Result<(NameId, NameId)> {
        let other = match &*spot.name {
            SELF => Some(spot.parent),
            _ => self.child(id, SELF)?.map(|inner| inner.id),
        };
        Ok((id, other.unwrap_or(id)))
    }

    /// Whether one of two documents is a manifest and the other is not: they may say more or less of the
    /// same resource.
    fn of_two_kinds(&mut self, one: DocumentId, other: DocumentId) -> Result<bool> {
        if self.manifests.is_none() {
            let found = self
                .transaction
                .prepare_cached("SELECT id FROM document WHERE package IS NOT NULL")?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            self.manifests = Some(found);
        }
        let manifests = self.manifests.as_ref();
        let is_one = |id: DocumentId| manifests.is_some_and(|manifests| manifests.contains(&id));
        Ok(one > NOBODY && is_one(one) != is_one(other))
    }

    fn directory(&mut self, root: NameId, names: &[String], rset: SetId) -> Result<NameId> {
        let (transaction, mapper) = (&self.transaction, self.mapper);
        let mut uri_of = |name: NameId| {
            let uri: Option<String> = transaction
                .prepare_cached("SELECT uri FROM name WHERE id = ?1")?
                .query_row([name], |row| row.get(0))?;
            match uri {
                Some(uri) => Ok(uri),
                None => derived_uri(transaction, mapper, name, root),
            }
        };
        let id = self.tree.directory(transaction, (root, names), rset, &mut uri_of)?;
        for (before, after) in self.tree.moved.drain(..) {
            if self.seen.contains(before) {
                self.seen.insert(after);
            }
        }
        Ok(id)
    }

    /// Compares a resource with its current version, and supersedes that where they differ.
    fn update(
        &mut self,
        spot: &Spot<'_>,
        (id, version): (NameId, VersionId),
        document: DocumentId,
        record: &Record,
    ) -> Result<Upserted> {
        let Compared { same, same_bytes, agrees, listed } = self.compare(version, record)?;
        // While an unchanged document may list it too, it is not this document's alone.
        let elsewhere =
            listed != document && (self.kept.contains(&listed) || listed == SHARED && !self.kept.is_empty());
        let owner = if elsewhere { SHARED } else { document };
        if same {
            if owner != listed {
                self.own(version, owner)?;
            }
            return Ok(Upserted { outcome: Outcome::Unchanged, version: Some(version) });
        }
        let handed_over = agrees && !same_bytes && self.of_two_kinds(listed, document)?;
        let heir_of = (same_bytes || handed_over).then_some(version);
        let how = How::listed(Change::Updated);
        let next = self.succeed(spot, (id, version), Arrival { record, how, document: owner, heir_of })?;
        let outcome = if handed_over { Outcome::Unchanged } else { Outcome::Updated };
        Ok(Upserted { outcome, version: Some(next) })
    }

    /// Compares a resource that a document lists with its current version.
    fn compare(&mut self, version: VersionId, record: &Record) -> Result<Compared> {
        let hashes = (!record.hashes.is_empty()).then(|| record.hashes.to_bytes());
        let media = self.media(record.media.as_deref())?;
        let snapshot = self.snapshot;
        let mut statement = self.transaction.prepare_cached(concat!(
            "SELECT mtime, dated, CASE WHEN settled THEN NULL ELSE size END, hashes, media, extra, document, change, begin, ",
            seen!(),
            " FROM version v WHERE id = ?1"
        ))?;
        Ok(statement.query_row(params![version, snapshot.map_or(0, Snapshot::kinds)], |row| {
            let dated: u8 = row.get(1)?;
            // Of a resource of which nothing is said, only the edition of its list tells.
            let silent = record.size.is_none() && hashes.is_none();
            let timeless = dated == 0 && !silent;
            let same_time = dated == record.dated && (timeless || row.get::<_, i64>(0)? == record.mtime.nanos());
            let size = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
            let known: Option<Vec<u8>> = row.get(3)?;
            let (same_size, same_hashes) = (size == record.size, known == hashes);
            let same_media = row.get::<_, Option<i64>>(4)? == media;
            let same_words = row.get::<_, Option<String>>(5)? == record.extra;
            let known = known.as_deref().map(Hashes::from_bytes).unwrap_or_default();
            let modified = (dated == 1).then_some(row.get(0)?);
            let facts = Listed { modified, size, hashes: &known };
            let agrees = facts.compared_with(&Listed::of(record)) == Sameness::Same;
            // What a change said of it needs not be said in the same words by a list.
            let changed = How::of(row.get(7)?).is_some_and(How::is_change);
            let (begin, seen) = (row.get(8)?, row.get(9)?);
            let newer = changed && snapshot.is_some_and(|snapshot| snapshot.is_before(begin, seen));
            Ok(Compared {
                same: same_time && same_size && same_hashes && same_media && same_words
                    || newer
                    || changed && agrees && same_media,
                same_bytes: same_size && same_hashes && (hashes.is_some() || same_time),
                agrees,
                listed: row.get(6)?,
            })
        })?)
    }

    /// Notes which document lists a version.
    fn own(&self, version: VersionId, document: DocumentId) -> Result<()> {
        self.transaction
            .prepare_cached("UPDATE version SET document = ?2 WHERE id = ?1")?
            .execute(params![version, document])?;
        Ok(())
    }

    /// Notes that a version is listed by this document and by another.
    fn share(&self, version: VersionId, document: DocumentId) -> Result<()> {
        self.transaction
            .prepare_cached("UPDATE version SET document = ?2 WHERE id = ?1 AND document != ?3")?
            .execute(params![version, SHARED, document])?;
        Ok(())
    }

    /// The number of a version to be written.
    pub(in crate::catalog) fn new_version(&mut self) -> VersionId {
        let id = self.next_version;
        self.next_version = id.next();
        id
    }

    pub(in crate::catalog) fn close(&self, version: VersionId, until: Datetime) -> Result<()> {
        self.transaction
            .prepare_cached("UPDATE version SET until = max(begin, ?2), ended = ?3 WHERE id = ?1")?
            .execute(params![version, until.nanos(), self.now])?;
        Ok(())
    }

    /// Makes a version. It takes over the content of the one that it is the heir of, unless its record lists another length.
    pub(in crate::catalog) fn insert_version(&mut self, name: NameId, arrival: Arrival<'_>) -> Result<VersionId> {
        let Arrival { record, how, document, heir_of } = arrival;
        let id = self.new_version();
        let media = self.media(record.media.as_deref())?;
        let (object, size) = match heir_of {
            None => (None, None),
            Some(before) => self
                .transaction
                .prepare_cached(
                    "SELECT v.object, COALESCE(o.size, CASE WHEN m.coded THEN NULL ELSE m.size END) FROM version v
                     LEFT JOIN object o ON o.id = v.object LEFT JOIN member m ON m.version = v.id WHERE v.id = ?1",
                )?
                .query_row([before], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)))?,
        };
        let is_other_length = |size: i64| record.size.is_some_and(|listed| listed != size.unsigned_abs());
        let (heir_of, object, size) = match size.is_some_and(is_other_length) {
            true => (None, None, None),
            false => (heir_of, object, size),
        };
        self.insert_versions(&[NewVersion { id, name, record, media, object, size }], document, how)?;
        if let Some(before) = heir_of {
            self.inherit_member(before, id, &record.hashes)?;
        }
        Ok(id)
    }

    /// Gives a version the member that is the content of one `before` it. What the manifest said of the bytes still holds
    /// them, where what is listed of the new version, `hashes`, says less.
    pub(in crate::catalog) fn inherit_member(&self, before: VersionId, id: VersionId, hashes: &Hashes) -> Result<()> {
        let found = self
            .transaction
            .prepare_cached(&format!(
                "SELECT {MEMBER}, v.hashes FROM member m LEFT JOIN package p ON p.id = m.package JOIN version v ON v.id = m.version
                 WHERE m.version = ?1"
            ))?
            .query_row([before], |row| Ok((member(row, 0)?, row.get::<_, Option<Vec<u8>>>(12)?)))
            .optional()?;
        let Some((Some(row), listed)) = found else { return Ok(()) };
        let listed = listed.as_deref().map(Hashes::from_bytes).filter(|listed| listed != hashes);
        let row = MemberRow { hashes: row.hashes.clone().or(listed), ..row };
        insert_member(&self.transaction, id, &row, Existing::Keep)
    }

    pub(in crate::catalog) fn media(&mut self, media: Option<&str>) -> Result<Option<i64>> {
        let Some(media) = media else { return Ok(None) };
        if let Some(id) = self.media.get(media) {
            return Ok(Some(*id));
        }
        self.transaction.prepare_cached("INSERT OR IGNORE INTO media (type) VALUES (?1)")?.execute([media])?;
        let id = self
            .transaction
            .prepare_cached("SELECT id FROM media WHERE type = ?1")?
            .query_row([media], |row| row.get(0))?;
        if self.media.len() < 10_000 {
            self.media.insert(media.to_owned(), id);
        }
        Ok(Some(id))
    }

    /// Says which documents of the set had not changed: what they list stands. To be called before the
    /// first [`Transaction::upsert`].
    pub fn keep(&mut self, documents: HashSet<DocumentId>) {
        self.kept = documents;
    }

    /// How many live files there were of a set when this step was begun.
    pub fn resources_before(&self, rset: SetId) -> Result<u64> {
        let mut statement = self.transaction.prepare_cached("SELECT resources FROM rset WHERE id = ?1")?;
        Ok(statement.query_row([rset], |row| row.get::<_, i64>(0))?.unsigned_abs())
    }

    /// The live files of a set that no list of this step named.
    pub fn unseen(&self, rset: SetId) -> Result<Unseen> {
        let mut unseen = Unseen::default();
        let doubtful = self.each_unseen(rset, |_| unseen.gone += 1)?;
        Ok(Unseen { doubtful, ..unseen })
    }

    /// Visits what [`Transaction::unseen`] counts as gone; returns the number of doubtful ones.
    fn each_unseen(&self, rset: SetId, mut visit: impl FnMut(Gone)) -> Result<u64> {
        // Rows are visited while names are only marked; the statement ends before anything changes.
        let mut statement = self.transaction.prepare_cached(concat!(
            "SELECT n.id, n.parent, n.name, n.version, CASE WHEN ?3 THEN v.document END,
                 ?3 AND v.document = ?7 AND v.change < ?5
                     AND EXISTS (SELECT 1 FROM version b WHERE b.until IS NOT NULL AND b.name IN (
                         n.id, CASE WHEN n.name = ?8 THEN n.parent END,
                         (SELECT c.id FROM name c WHERE c.parent = n.id AND c.name = ?8)))
             FROM name n
             LEFT JOIN version v ON (?3 OR ?4 IS NOT NULL) AND v.id = n.version
             WHERE n.rset = ?1 AND n.version IS NOT NULL
                 AND NOT COALESCE(v.change < ?5 AND (v.begin >= ?4 OR ",
            seen!(),
            " >= ?6), 0)"
        ))?;
        let (at, seen) = (self.snapshot.map(Snapshot::at), self.snapshot.map(Snapshot::seen));
        let kinds = self.snapshot.map(Snapshot::kinds);
        let mut rows =
            statement.query(params![rset, kinds, !self.kept.is_empty(), at, How::LISTED, seen, NOBODY, SELF])?;
        let mut doubtful = 0;
        while let Some(row) = rows.next()? {
            let id: NameId = row.get(0)?;
            let document: Option<DocumentId> = row.get(4)?;
            if self.seen.contains(id) || document.is_some_and(|document| self.kept.contains(&document)) {
                continue;
            }
            // Of what went and came back by changes, a document that has not changed may list what it was before, and is.
            let came_back = row.get::<_, Option<bool>>(5)?.unwrap_or_default();
            if document == Some(SHARED) || came_back {
                doubtful += 1;
                continue;
            }
            visit(Gone { id, parent: row.get(1)?, name: row.get(2)?, version: row.get(3)? });
        }
        Ok(doubtful)
    }

    /// What [`Transaction::unseen`] counts stays, but is no longer said to be in the document that
    /// listed it last: that was read, and does not list it any more. When all documents of the set
    /// have been read whole, it goes.
    pub fn disown_unseen(&self, rset: SetId) -> Result<()> {
        let mut versions = Vec::new();
        self.each_unseen(rset, |gone| versions.push(gone.version))?;
        let owner = if self.kept.is_empty() { UNLISTED } else { NOBODY };
        let mut statement =
            self.transaction.prepare_cached("UPDATE version SET document = ?2 WHERE id = ?1 AND document != ?3")?;
        for version in versions {
            statement.execute(params![version, owner, UNLISTED])?;
        }
        Ok(())
    }

    /// Takes out of the current tree what [`Transaction::unseen`] counts, as of the moment `at`.
    pub fn delete_unseen(&mut self, rset: SetId, at: Datetime) -> Result<u64> {
        let mut all = Vec::new();
        self.each_unseen(rset, |gone| all.push(gone))?;
        for gone in &all {
            let how = How::listed(Change::Deleted);
            self.vanish(rset, (gone.parent, &gone.name), (gone.id, gone.version), (at, how))?;
        }
        Ok(all.len() as u64)
    }

    /// Makes the step visible, whole, and returns what it means for who has looked before.
    ///
    /// # Errors
    /// If SQLite fails; then nothing has changed.
    pub fn commit(mut self) -> Result<Changes> {
        let now = Datetime::now();
        self.rearrange_remembered()?;
        self.tree.settle(&self.transaction, now)?;
        self.tree.collapse(&self.transaction)?;
        self.tree.settle(&self.transaction, now)?;
        self.tree.mark_collapsed(&self.transaction)?;
        for (rset, delta) in &self.resources {
            self.transaction
                .execute("UPDATE rset SET resources = resources + ?2 WHERE id = ?1", params![rset, delta])?;
        }
        for (rset, delta) in &self.left_out {
            self.transaction.execute("UPDATE rset SET left_out = left_out + ?2 WHERE id = ?1", params![rset, delta])?;
        }
        set_meta(&self.transaction, "next_name", &self.tree.next_name.to_string())?;
        set_meta(&self.transaction, "next_version", &self.next_version.to_string())?;
        if self.timeless.get() {
            set_meta(&self.transaction, TIMELESS, "yes")?;
        }
        self.transaction.commit()?;
        self.gate.committed();
        Ok(self.tree.changes)
    }
}
