//! Links that are looked up by their target: by its canonical URI a resource is found, and by that of a collection its
//! members (core 14.2, 14.5).
//!
//! Rows are kept of current versions alone; a trigger removes those of a version that is superseded. So names that move,
//! become directories or are hidden by a filter need nothing here.

use crate::catalog::model::ids::{NameId, VersionId};
use rusqlite::{OptionalExtension as _, params};
use sha2::Digest as _;
use sha2::Sha256;

use crate::catalog::db::names::resource_of;
use crate::catalog::error::CatalogError;
use crate::catalog::model::collection::Collection;
use crate::catalog::model::record::Extra;
use crate::catalog::model::targets::{Relation, Target};
use crate::catalog::write::transaction::Transaction;
use crate::catalog::write::writer::Writer;

type Result<T> = std::result::Result<T, CatalogError>;

/// The largest number of a target: it is a part of an inode number.
const LARGEST: i64 = (1 << 48) - 1;

/// The number of the target with this URI, in every cache where no other one has it.
fn number_of(uri: &str) -> i64 {
    let digest = Sha256::digest(uri);
    digest[..6].iter().fold(0, |number, byte| number << 8 | i64::from(*byte)).max(1)
}

impl Transaction<'_> {
    /// Keeps the targets of a version that is current.
    pub(in crate::catalog) fn put_targets(&self, version: VersionId, targets: &[Target]) -> Result<()> {
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
    pub(in crate::catalog) fn relink(&self, version: VersionId) -> Result<()> {
        self.connection().prepare_cached("DELETE FROM link WHERE version = ?1")?.execute(params![version])?;
        let found: Option<(NameId, String)> = self
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
pub(in crate::catalog) const INDEXED: &str = "links";

/// How many versions are looked at in one transaction.
pub(in crate::catalog) const AT_ONCE: i64 = 100_000;

impl Writer {
    /// Reads the links of a cache that a version of this program made which kept none.
    pub(in crate::catalog) fn index_links(&mut self) -> Result<()> {
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
            let versions: Vec<VersionId> = transaction
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

#[cfg(test)]
mod tests {
    use crate::catalog::db::pool::Reader;
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
        transaction.put_targets(VersionId::new(1), &collection(one)).unwrap();
        transaction.put_targets(VersionId::new(2), &collection(other)).unwrap();
        transaction.put_targets(VersionId::new(3), &collection(other)).unwrap();
        assert_eq!(targets(&transaction), [(taken, one.to_owned()), (taken + 1, other.to_owned())]);
        transaction.relink(VersionId::new(2)).unwrap();
        assert_eq!(targets(&transaction).len(), 2, "version 3 links to it");
        transaction.relink(VersionId::new(3)).unwrap();
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
