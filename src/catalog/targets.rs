//! Links that are looked up by their target: by its canonical URI a resource is found, and by that of a collection its
//! members (core 14.2, 14.5).
//!
//! Rows are kept of current versions alone; a trigger removes those of a version that is superseded. So names that move,
//! become directories or are hidden by a filter need nothing here.

use rusqlite::{OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

use super::CatalogError;
use super::mementos::resource_of;
use super::reader::Reader;
use super::record::Extra;
use super::related::{Collection, absolute};
use super::transaction::Transaction;
use super::writer::Writer;

type Result<T> = std::result::Result<T, CatalogError>;

/// A relation by whose target resources are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The resource's canonical URI, which is not its own.
    Canonical = 1,
    /// A collection that it is a member of.
    Collection = 2,
}

/// The target of such a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How the resource is related to it.
    pub relation: Relation,
    /// Absolute.
    pub uri: String,
}

/// The largest number of a target: it is a part of an inode number.
const LARGEST: i64 = (1 << 48) - 1;

/// The number of the target with this URI, in every cache where no other one has it.
fn number_of(uri: &str) -> i64 {
    let digest = Sha256::digest(uri);
    digest[..6].iter().fold(0, |number, byte| number << 8 | i64::from(*byte)).max(1)
}

impl Extra {
    /// What the entry of the resource `uri` links to by these relations.
    pub(super) fn targets(&self, uri: &str) -> Vec<Target> {
        let mut targets = Vec::new();
        for (relation, name) in [(Relation::Canonical, "canonical"), (Relation::Collection, "collection")] {
            for target in self.linked(&[name]).filter_map(|href| absolute(uri, href)) {
                let target = Target { relation, uri: target };
                if (relation == Relation::Collection || target.uri != uri) && !targets.contains(&target) {
                    targets.push(target);
                }
            }
        }
        targets
    }
}

impl Transaction<'_> {
    /// Keeps the targets of a version that is current.
    pub(super) fn put_targets(&self, version: i64, targets: &[Target]) -> Result<()> {
        for Target { relation, uri } in targets {
            let number = self.target(uri)?;
            if *relation == Relation::Collection {
                let [label, long] = Collection::labels(uri);
                self.connection()
                    .prepare_cached("UPDATE target SET label = ?2, long_label = ?3 WHERE id = ?1 AND label IS NULL")?
                    .execute(params![number, label, long])?;
            }
            self.connection()
                .prepare_cached("INSERT OR IGNORE INTO link (version, relation, target) VALUES (?1, ?2, ?3)")?
                .execute(params![version, *relation as i64, number])?;
        }
        Ok(())
    }

    /// The number of a target, which is kept from now on. A number that another one has is not given again.
    fn target(&self, uri: &str) -> Result<i64> {
        let known = "SELECT id FROM target WHERE uri = ?1";
        if let Some(number) = self.connection().prepare_cached(known)?.query_row([uri], |row| row.get(0)).optional()? {
            return Ok(number);
        }
        let mut number = number_of(uri);
        let insert = "INSERT INTO target (id, uri) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
        while self.connection().prepare_cached(insert)?.execute(params![number, uri])? == 0 {
            number = if number == LARGEST { 1 } else { number + 1 };
        }
        Ok(number)
    }

    /// A version that was not inserted as it is now, or whose entry is another: its targets are read from its entry again.
    pub(super) fn relink(&self, version: i64) -> Result<()> {
        self.connection().prepare_cached("DELETE FROM link WHERE version = ?1")?.execute([version])?;
        let found: Option<(i64, String)> = self
            .connection()
            .prepare_cached(
                "SELECT name, extra FROM version WHERE id = ?1 AND until IS NULL AND name > 0 AND extra IS NOT NULL",
            )?
            .query_row([version], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((name, extra)) = found else { return Ok(()) };
        let extra: Extra = serde_json::from_str(&extra).unwrap_or_default();
        if extra.linked(&["canonical", "collection"]).next().is_none() {
            return Ok(());
        }
        let uri = self.uri_of_resource(resource_of(self.connection(), name)?)?;
        self.put_targets(version, &extra.targets(&uri))
    }
}

/// Where it is kept that the links of a cache of an earlier version were read.
const INDEXED: &str = "links";
/// How many versions are looked at in one transaction.
const AT_ONCE: i64 = 100_000;

impl Writer {
    /// Reads the links of a cache that a version of this program made which kept none.
    pub(super) fn index_links(&mut self) -> Result<()> {
        if self.meta(INDEXED)?.is_some() {
            return Ok(());
        }
        let mut after = 0;
        loop {
            let transaction = self.begin(true)?;
            let last: Option<i64> = transaction.connection().query_row(
                "SELECT max(id) FROM (SELECT id FROM version WHERE id > ?1 ORDER BY id LIMIT ?2)",
                [after, AT_ONCE],
                |row| row.get(0),
            )?;
            let Some(last) = last else { break };
            let versions: Vec<i64> = transaction
                .connection()
                .prepare("SELECT id FROM version WHERE id > ?1 AND id <= ?2 AND until IS NULL AND extra IS NOT NULL")?
                .query_map([after, last], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            versions.into_iter().try_for_each(|version| transaction.relink(version))?;
            transaction.commit()?;
            after = last;
        }
        self.set_meta(INDEXED, "yes")
    }
}

/// Whether a name shows the version of link `l`.
const SHOWN_LINK: &str = "EXISTS (SELECT 1 FROM version v JOIN name n ON n.id = v.name AND n.version = v.id AND n.hidden = 0 WHERE v.id = l.version)";

impl Reader {
    /// The name of the resource in the tree whose canonical URI this is: the first, where several have it.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn canonical(&self, uri: &str) -> Result<Option<i64>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT n.id FROM target t CROSS JOIN link l ON l.target = t.id AND l.relation = 1
             CROSS JOIN version v ON v.id = l.version CROSS JOIN name n ON n.id = v.name AND n.version = v.id AND n.hidden = 0
             WHERE t.uri = ?1 ORDER BY l.version LIMIT 1",
        )?;
        Ok(statement.query_row([uri], |row| row.get(0)).optional()?)
    }

    /// Visits the collections that have members in the tree, after one, in the order of their numbers, until `visit` returns
    /// false: each with its number and what its directory is called.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn collections(&self, after: i64, mut visit: impl FnMut(i64, &str) -> bool) -> Result<()> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT t.id, CASE WHEN {} THEN t.long_label ELSE t.label END FROM target t INDEXED BY target_collection
             WHERE t.label IS NOT NULL AND t.id > ?1 AND {} ORDER BY t.id",
            is_shared_label("t"),
            has_members("t")
        ))?;
        let mut rows = statement.query([after])?;
        while let Some(row) = rows.next()? {
            if !visit(row.get(0)?, row.get_ref(1)?.as_str().unwrap_or_default()) {
                break;
            }
        }
        Ok(())
    }

    /// Whether a collection has members in the tree.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn is_collection(&self, number: i64) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT EXISTS (SELECT 1 FROM target t WHERE t.id = ?1 AND {})",
            has_members("t")
        ))?;
        Ok(statement.query_row([number], |row| row.get(0))?)
    }

    /// The number of the collection whose directory has this name.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn collection_called(&self, name: &str) -> Result<Option<i64>> {
        let shared = is_shared_label("t");
        let members = has_members("t");
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT t.id FROM target t WHERE t.label = ?1 AND {members} AND NOT {shared}
             UNION ALL SELECT t.id FROM target t WHERE t.long_label = ?1 AND {members} AND {shared} LIMIT 1"
        ))?;
        Ok(statement.query_row([name], |row| row.get(0)).optional()?)
    }

    /// Visits the members of a collection after one, in the order of their versions, until `visit` returns false: each by its
    /// version and its name.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn members(&self, collection: i64, after: i64, mut visit: impl FnMut(i64, i64) -> Result<bool>) -> Result<()> {
        let mut statement = self.connection().prepare_cached(
            "SELECT l.version, n.id FROM link l CROSS JOIN version v ON v.id = l.version
             CROSS JOIN name n ON n.id = v.name AND n.version = v.id AND n.hidden = 0
             WHERE l.target = ?1 AND l.relation = 2 AND l.version > ?2 ORDER BY l.version",
        )?;
        let mut rows = statement.query([collection, after])?;
        while let Some(row) = rows.next()? {
            if !visit(row.get(0)?, row.get(1)?)? {
                break;
            }
        }
        Ok(())
    }

    /// Whether the resource that a name shows is a member of a collection.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn is_member(&self, collection: i64, name: i64) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM name n CROSS JOIN link l ON l.version = n.version AND l.relation = 2 AND l.target = ?1
             WHERE n.id = ?2 AND n.hidden = 0)",
        )?;
        Ok(statement.query_row([collection, name], |row| row.get(0))?)
    }
}

/// Whether a target is a collection with members in the tree.
fn has_members(target: &str) -> String {
    format!("EXISTS (SELECT 1 FROM link l WHERE l.target = {target}.id AND l.relation = 2 AND {SHOWN_LINK})")
}

/// Whether another such collection has the same label.
fn is_shared_label(target: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM target o WHERE o.label = {target}.label AND o.id != {target}.id AND {})",
        has_members("o")
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::path::Mapper;

    fn collection(uri: &str) -> [Target; 1] {
        [Target { relation: Relation::Collection, uri: uri.to_owned() }]
    }

    fn targets(transaction: &Transaction<'_>) -> Vec<(i64, String)> {
        let mut statement = transaction.connection().prepare("SELECT id, uri FROM target ORDER BY uri").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(rusqlite::Result::unwrap).collect()
    }

    #[test]
    fn two_targets_have_two_numbers_and_what_no_version_links_to_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
        let mut writer = Writer::open(folder.path(), mapper).unwrap();
        let transaction = writer.begin(false).unwrap();
        let [one, other] = ["http://example.com/a", "http://example.com/b"];
        // As if these two had the same digits.
        let taken = number_of(other);
        transaction.connection().execute("INSERT INTO target (id, uri) VALUES (?1, ?2)", params![taken, one]).unwrap();
        transaction.put_targets(1, &collection(one)).unwrap();
        transaction.put_targets(2, &collection(other)).unwrap();
        transaction.put_targets(3, &collection(other)).unwrap();
        assert_eq!(targets(&transaction), [(taken, one.to_owned()), (taken + 1, other.to_owned())]);
        transaction.relink(2).unwrap();
        assert_eq!(targets(&transaction).len(), 2, "version 3 links to it");
        transaction.relink(3).unwrap();
        assert_eq!(targets(&transaction), [(taken, one.to_owned())]);
    }

    #[test]
    fn a_question_that_takes_too_long_is_ended_and_the_next_one_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
        let writer = Writer::open(folder.path(), mapper).unwrap();
        let readers = writer.readers();
        let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let limit = Duration::from_millis(50);
        let asked = readers
            .ask_within(limit, |reader| Ok(reader.connection().query_row(endless, [], |row| row.get::<_, i64>(0))?));
        assert!(matches!(asked, Err(CatalogError::Slow(known)) if known == limit), "{asked:?}");
        let after = |reader: &Reader| {
            std::thread::sleep(2 * limit);
            let some = format!("{endless} WHERE i < 100000").replace("FROM n)", "FROM n WHERE i < 100000)");
            Ok(reader.connection().query_row(&some, [], |row| row.get::<_, i64>(0))?)
        };
        assert_eq!(readers.ask(after).unwrap(), 99_999);
    }
}
