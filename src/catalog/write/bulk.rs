//! Many resources of a list at once: rows that are known to be new are written many to a statement.
//!
//! A name that comes after all that its directory holds is not in it. So a resource whose name does needs no look
//! into the tables, and lists that go through each directory in order, as most do, are written as fast as
//! SQLite appends. Everything else goes the way of [`Transaction::upsert`].
//!
//! What was tried, on 3.77 million resources, the rows alone (seconds of one core, before the commit): a look for the name
//! and a row to a statement 5.8; without the look 4.6; ten rows to a statement 3.3; a hundred 3.5. The index
//! made after the rows costs what it saves. Without a write-ahead log it would be 2.7, and a crash would
//! be a cache to be made anew. `OR FAIL`, and numbers that SQLite gives, keep it from journalling each statement of many rows apart;
//! an error ends the step anyway.

use crate::catalog::model::ids::{DocumentId, NameId, SetId};
use std::sync::LazyLock;

use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::directory_ino;
use crate::catalog::model::origin::How;
use crate::catalog::model::record::Record;
use crate::catalog::model::rows::{Outcome, Upserted};
use crate::catalog::write::insert::{NewVersion, Numbered, insert_versions};
use crate::catalog::write::transaction::Transaction;
use crate::document::{Change, Datetime};
use crate::path::{NAME_MAX, Naming};

type Result<T> = std::result::Result<T, CatalogError>;

static NAMES: LazyLock<Numbered> =
    LazyLock::new(|| Numbered::new("name", "parent, name, rset, uri, version", "?1, ?, ?2, ?, ?"));

/// New resources of one directory, not written yet.
#[derive(Default)]
struct Run<'r> {
    /// 0 where none is known.
    parent: NameId,
    /// The last name there, those of the run counted.
    last: String,
    versions: Vec<NewVersion<'r>>,
}

impl Transaction<'_> {
    /// Brings resources of a list into the tree, in their order, as [`Transaction::upsert`] does; tells of each
    /// what it came to. `directory` is the set's.
    pub fn upsert_all(
        &mut self,
        rset: SetId,
        directory: NameId,
        document: DocumentId,
        records: &[Record],
    ) -> Result<Vec<Upserted>> {
        let mut came = Vec::with_capacity(records.len());
        let mut run = Run::default();
        for record in records {
            match self.is_next(directory, record, &run) {
                Some(name) => came.push(self.add_to(&mut run, name, record)?),
                None => {
                    // What is still to be written must be in the tables, or it would not be found.
                    self.write(&mut run, rset, document)?;
                    came.push(self.upsert(rset, directory, document, record)?);
                    run.parent = self.parent_of(directory, record);
                    if run.parent != NameId::default() {
                        self.tree.last_names.of(&self.transaction, run.parent)?.clone_into(&mut run.last);
                    }
                }
            }
        }
        self.write(&mut run, rset, document)?;
        Ok(came)
    }

    /// The directory of a resource, if it is the one that was walked to last; otherwise 0.
    fn parent_of(&self, directory: NameId, record: &Record) -> NameId {
        self.tree.at(directory, record.path.above()).unwrap_or_default()
    }

    /// The name of a resource that lies in the directory of the run, and after all that is there.
    fn is_next<'r>(&self, directory: NameId, record: &'r Record, run: &Run<'_>) -> Option<&'r str> {
        let name = record.path.leaf();
        let is_last = run.parent != NameId::default() && name > run.last.as_str() && !may_have_earlier_name(record);
        let is_new = is_last && record.mementos.is_empty() && self.filter.is_for_all();
        (is_new && self.tree.at(directory, record.path.above()) == Some(run.parent)).then_some(name)
    }

    fn add_to<'r>(&mut self, run: &mut Run<'r>, name: &str, record: &'r Record) -> Result<Upserted> {
        let media = self.media(record.media.as_deref())?;
        let (id, version) = (self.tree.new_name(), self.new_version());
        self.seen.insert(id);
        self.recent.add(record, version);
        self.tree.changes.name(directory_ino(run.parent), name);
        name.clone_into(&mut run.last);
        run.versions.push(NewVersion { id: version, name: id, record, media, object: None, size: None });
        Ok(Upserted { outcome: Outcome::Added, version: Some(version) })
    }

    /// Writes what a run gathered.
    fn write(&mut self, run: &mut Run<'_>, rset: SetId, document: DocumentId) -> Result<()> {
        if run.versions.is_empty() {
            return Ok(());
        }
        let parent = run.parent;
        NAMES.write(
            &self.transaction,
            (&run.versions, |version| version.name.number()),
            |statement| {
                statement.raw_bind_parameter(1, parent)?;
                statement.raw_bind_parameter(2, rset)
            },
            |statement, version, own| {
                let path = &version.record.path;
                statement.raw_bind_parameter(own, path.leaf())?;
                statement.raw_bind_parameter(own + 1, path.needs_uri().then_some(version.record.uri.as_str()))?;
                statement.raw_bind_parameter(own + 2, version.id)
            },
        )?;
        self.insert_versions(&run.versions, document, How::listed(Change::Created))?;
        let begin = run.versions.iter().map(|version| version.record.begin).min().unwrap_or(Datetime::MAX);
        self.tree.span(parent, begin, Datetime::MIN);
        self.tree.changes.from(begin);
        self.tree.last_names.put(parent, &run.last);
        let count = i64::try_from(run.versions.len()).unwrap_or(i64::MAX);
        self.tree.count_many(&self.transaction, parent, count)?;
        *self.resources.entry(rset).or_insert(0) += count;
        run.versions.clear();
        Ok(())
    }

    /// Writes versions that a document lists.
    pub(in crate::catalog) fn insert_versions(
        &self,
        versions: &[NewVersion<'_>],
        document: DocumentId,
        how: How,
    ) -> Result<()> {
        if versions.iter().any(|version| version.record.dated != 1 && version.record.hashes.is_empty()) {
            self.timeless.set(true);
        }
        // Of what came with the first lists, nothing is noted of how it came.
        let origin = self.sync.map(|sync| (how.number(), sync));
        insert_versions(&self.transaction, versions, document, origin)?;
        let linking = versions.iter().filter(|version| !version.record.targets.is_empty());
        linking.into_iter().try_for_each(|version| self.put_targets(version.id, &version.record.targets))
    }
}

/// Whether a resource without a row under its plain name may have one under a long name that sorts before the plain one. That takes a
/// plain name so long that the long one had to cut it.
fn may_have_earlier_name(record: &Record) -> bool {
    record.path.naming == Naming::Respelled && record.path.leaf().len() > NAME_MAX - 17
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{ROOT, Writer};
    use crate::document::{Datetime, Hashes};
    use crate::path::Mapper;

    /// Lists of several sets, each in a step of its own or not.
    #[derive(Clone, Debug)]
    struct Step {
        /// What is applied: the set, and the entries of one document.
        documents: Vec<(usize, Vec<Listed>)>,
        /// Of which sets what no list of the step named goes.
        deletes: [bool; SETS],
        /// Whether the step is a sync that is told of.
        told: bool,
    }

    /// An entry: its URI, and what is said of it.
    #[derive(Clone, Debug)]
    struct Listed {
        uri: String,
        begin: i64,
        size: Option<u64>,
        media: Option<&'static str>,
        extra: bool,
        memento: bool,
    }

    const SETS: usize = 3;

    fn uri() -> impl Strategy<Value = String> {
        let segment = prop_oneof![
            6 => "[a-c]{1,2}",
            2 => "[a-z0-9]{3}",
            1 => Just("@self".to_owned()),
            1 => Just("%40self".to_owned()),
            1 => Just(String::new()),
            1 => Just("é".to_owned()),
            1 => Just("a%2fb".to_owned()),
            1 => Just("A".repeat(300)),
        ];
        (proptest::collection::vec(segment, 1..4), prop::option::weighted(0.1, "[ab]")).prop_map(|(segments, query)| {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            format!("http://example.com/{}{query}", segments.join("/"))
        })
    }

    fn listed() -> impl Strategy<Value = Listed> {
        let media = prop_oneof![3 => Just(None), 1 => Just(Some("text/plain")), 1 => Just(Some("text/html"))];
        (uri(), 0..4_i64, prop::option::of(0..3_u64), media, prop::bool::weighted(0.1), prop::bool::weighted(0.05))
            .prop_map(|(uri, begin, size, media, extra, memento)| Listed { uri, begin, size, media, extra, memento })
    }

    /// Entries in any order; in that of their URIs, as most lists have them; or that of one directory.
    fn entries() -> impl Strategy<Value = Vec<Listed>> {
        let some = || proptest::collection::vec(listed(), 0..40);
        let many = (proptest::collection::vec(listed(), 0..150), "[a-c]?").prop_map(|(mut all, above)| {
            for (number, one) in all.iter_mut().enumerate().filter(|(number, _)| number % 17 != 16) {
                one.uri = format!("http://example.com/{above}{}n{number:03}", if above.is_empty() { "" } else { "/" });
            }
            all
        });
        let sorted = some().prop_map(|mut all| {
            all.sort_by(|one, other| one.uri.cmp(&other.uri));
            all
        });
        prop_oneof![2 => some(), 3 => sorted, 2 => many]
    }

    fn step() -> impl Strategy<Value = Step> {
        let documents = proptest::collection::vec((0..SETS, entries()), 1..4);
        (documents, any::<[bool; SETS]>(), any::<bool>()).prop_map(|(documents, deletes, told)| Step {
            documents,
            deletes,
            told,
        })
    }

    fn record(mapper: &Mapper, listed: &Listed) -> Record {
        let memento = crate::catalog::Memento {
            url: format!("{}-old", listed.uri),
            begin: Datetime::from_nanos(-1),
            datetime: None,
            negotiated: false,
            sure: None,
            size: None,
            hashes: Hashes::default(),
            media: None,
        };
        Record {
            path: mapper.path(&listed.uri).unwrap(),
            uri: listed.uri.clone(),
            begin: Datetime::from_nanos(listed.begin),
            mtime: Datetime::from_nanos(listed.begin),
            dated: 1,
            size: listed.size,
            hashes: Hashes::default(),
            media: listed.media.map(str::to_owned),
            coded: false,
            extra: listed.extra.then(|| "{}".to_owned()),
            mementos: listed.memento.then_some(memento).into_iter().collect(),
            targets: Vec::new(),
        }
    }

    /// All rows, but for what our clock says in them.
    fn rows(writer: &Writer) -> Vec<String> {
        let readers = writer.readers();
        let mut all = Vec::new();
        for question in [
            "SELECT id, parent, name, rset, uri, version, live, born, died, 0 FROM name ORDER BY id",
            "SELECT id, name, document, begin, until, mtime, dated, size, settled, hashes, media, extra, object, change, gone, came, went
             FROM version ORDER BY id",
            "SELECT id, resources FROM rset ORDER BY id",
            "SELECT id, type FROM media ORDER BY id",
            "SELECT version, url, datetime, negotiated FROM memento ORDER BY version, url",
            "SELECT key, value FROM meta WHERE key LIKE 'next_%' ORDER BY key",
        ] {
            readers
                .ask(|reader| {
                    let mut statement = reader.connection().prepare(question)?;
                    let columns = statement.column_count();
                    let mut rows = statement.query([])?;
                    while let Some(row) = rows.next()? {
                        let values: Vec<_> = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
                        all.push(values.join(" "));
                    }
                    Ok(())
                })
                .unwrap();
        }
        all
    }

    /// A catalog, and its sets: the first two lie at the root, the third in a directory of its own.
    fn catalog() -> (tempfile::TempDir, Writer, Vec<(SetId, NameId)>) {
        let folder = tempfile::tempdir().unwrap();
        let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
        let mut writer = Writer::open(folder.path(), mapper).unwrap();
        let mut transaction = writer.begin(false).unwrap();
        for (key, own) in [("one", false), ("two", false), ("own", true)] {
            transaction.set(key, key, own).unwrap();
        }
        transaction.commit().unwrap();
        let sets = writer.sets().unwrap().iter().map(|set| (set.id, set.directory)).collect();
        assert_eq!(writer.sets().unwrap()[0].directory, ROOT);
        (folder, writer, sets)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn many_at_once_are_what_they_are_one_by_one(steps in proptest::collection::vec(step(), 1..4)) {
            let mapper = Mapper::new("http://example.com/", false).unwrap();
            let ((_at_once, mut at_once, sets), (_each, mut each, _)) = (catalog(), catalog());
            for (number, step) in steps.iter().enumerate() {
                let (mut one, mut other) = (at_once.begin(false).unwrap(), each.begin(false).unwrap());
                if step.told {
                    one.begin_sync().unwrap();
                    other.begin_sync().unwrap();
                }
                for (document, (set, entries)) in step.documents.iter().enumerate() {
                    let (rset, directory) = sets[*set];
                    let id = i64::try_from(number * 10 + document + 1).unwrap();
                    let records: Vec<_> = entries.iter().map(|entry| record(&mapper, entry)).collect();
                    let together = one.upsert_all(rset, directory, DocumentId::new(id), &records).unwrap();
                    let alone: Vec<_> =
                        records.iter().map(|record| other.upsert(rset, directory, DocumentId::new(id), record).unwrap()).collect();
                    prop_assert_eq!(together, alone);
                }
                let now = Datetime::from_nanos(100 + i64::try_from(number).unwrap());
                for ((rset, _), _) in sets.iter().zip(step.deletes).filter(|(_, deletes)| *deletes) {
                    prop_assert_eq!(one.delete_unseen(*rset, now).unwrap(), other.delete_unseen(*rset, now).unwrap());
                }
                let (one, other) = (one.commit().unwrap(), other.commit().unwrap());
                prop_assert_eq!(&one.directories, &other.directories);
                prop_assert_eq!((&one.names, one.too_many, one.since), (&other.names, other.too_many, other.since));
                let (one, other) = (rows(&at_once), rows(&each));
                let differs = one.iter().zip(&other).find(|(one, other)| one != other);
                prop_assert_eq!(differs, None);
                prop_assert_eq!(one.len(), other.len());
                prop_assert_eq!(at_once.readers().ask(|reader| reader.check()).unwrap(), Vec::<String>::new());
            }
        }
    }

    #[test]
    fn what_comes_back_begins_when_it_had_ended_under_whichever_name() {
        let mapper = Mapper::new("http://example.com/", false).unwrap();
        let (_folder, mut writer, sets) = catalog();
        let (root, at_root) = sets[0];
        let entry = |path: &str| {
            let uri = format!("http://example.com/{path}");
            record(&mapper, &Listed { uri, begin: 0, size: None, media: None, extra: false, memento: false })
        };
        // It is a file, and then `@self` of a directory; and goes as that, and comes back as a file.
        for listed in [true, false, true] {
            let mut transaction = writer.begin(false).unwrap();
            if listed {
                transaction.upsert_all(root, at_root, DocumentId::new(1), &[entry("c"), entry("c/a")]).unwrap();
            }
            transaction.delete_unseen(root, Datetime::from_nanos(100)).unwrap();
            transaction.commit().unwrap();
            assert_eq!(writer.readers().ask(|reader| reader.check()).unwrap(), Vec::<String>::new());
        }
    }

    #[test]
    fn when_the_last_version_ended_is_had_by_indexes() {
        let (_folder, mut writer, _) = catalog();
        let transaction = writer.begin(false).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {}", super::super::transaction::LAST);
        let mut plan = transaction.transaction.prepare(&sql).unwrap();
        let steps: Vec<String> =
            plan.query_map([1, 2], |row| row.get("detail")).unwrap().collect::<rusqlite::Result<_>>().unwrap();
        let looks: Vec<&String> =
            steps.iter().filter(|step| step.contains("version") || step.contains("name")).collect();
        assert!(looks.len() > 2 && looks.iter().all(|step| step.starts_with("SEARCH")), "{steps:#?}");
    }

    #[test]
    fn a_set_that_counts_nothing_has_nothing() {
        let mapper = Mapper::new("http://example.com/", false).unwrap();
        let (_folder, mut writer, sets) = catalog();
        let ((root, at_root), (own, in_own)) = (sets[0], sets[2]);
        let entry = |path: &str| {
            let uri = format!("http://example.com/{path}");
            record(&mapper, &Listed { uri, begin: 0, size: None, media: None, extra: false, memento: false })
        };
        // What one set has as a file, another needs as a directory.
        let mut transaction = writer.begin(false).unwrap();
        transaction.upsert_all(root, at_root, DocumentId::new(1), &[entry("own/p")]).unwrap();
        transaction.upsert_all(own, in_own, DocumentId::new(2), &[entry("p/q")]).unwrap();
        transaction.commit().unwrap();
        let mut transaction = writer.begin(false).unwrap();
        transaction.upsert_all(own, in_own, DocumentId::new(2), &[entry("p/q")]).unwrap();
        let deleted = transaction.delete_unseen(own, Datetime::from_nanos(9)).unwrap();
        transaction.commit().unwrap();
        let transaction = writer.begin(false).unwrap();
        let (before, unseen) = (transaction.resources_before(own).unwrap(), transaction.unseen(own).unwrap());
        // The other set's resource is not this one's to delete, and what is left of it is counted.
        assert_eq!((deleted, before, unseen.gone), (0, 1, 1));
    }
}
