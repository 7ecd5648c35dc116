//! Resources by the targets of their links.

use crate::catalog::model::ids::NameId;
use rusqlite::OptionalExtension as _;

use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;

type Result<T> = std::result::Result<T, CatalogError>;

/// Whether a name shows the version of link `l`.
const SHOWN_LINK: &str = "EXISTS (SELECT 1 FROM version v JOIN name n ON n.id = v.name AND n.version = v.id AND n.hidden = 0 WHERE v.id = l.version)";

impl Reader {
    /// The name of the resource in the tree whose canonical URI this is: the first, where several have it.
    pub fn canonical(&self, uri: &str) -> Result<Option<NameId>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT n.id FROM target t CROSS JOIN link l ON l.target = t.id AND l.relation = 1
             CROSS JOIN version v ON v.id = l.version CROSS JOIN name n ON n.id = v.name AND n.version = v.id AND n.hidden = 0
             WHERE t.uri = ?1 ORDER BY l.version LIMIT 1",
        )?;
        Ok(statement.query_row([uri], |row| row.get(0)).optional()?)
    }

    /// Visits the collections that have members in the tree, after one, in the order of their numbers, until `visit` returns
    /// false: each with its number and what its directory is called.
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
    pub fn is_collection(&self, number: i64) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT EXISTS (SELECT 1 FROM target t WHERE t.id = ?1 AND {})",
            has_members("t")
        ))?;
        Ok(statement.query_row([number], |row| row.get(0))?)
    }

    /// The number of the collection whose directory has this name.
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
    pub fn members(
        &self,
        collection: i64,
        after: i64,
        mut visit: impl FnMut(i64, NameId) -> Result<bool>,
    ) -> Result<()> {
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
    pub fn is_member(&self, collection: i64, name: NameId) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM name n CROSS JOIN link l ON l.version = n.version AND l.relation = 2 AND l.target = ?1
             WHERE n.id = ?2 AND n.hidden = 0)",
        )?;
        Ok(statement.query_row(rusqlite::params![collection, name], |row| row.get(0))?)
    }
}

/// Whether a target is a collection with members in the tree.
pub(in crate::catalog) fn has_members(target: &str) -> String {
    format!("EXISTS (SELECT 1 FROM link l WHERE l.target = {target}.id AND l.relation = 2 AND {SHOWN_LINK})")
}

/// Whether another such collection has the same label.
fn is_shared_label(target: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM target o WHERE o.label = {target}.label AND o.id != {target}.id AND {})",
        has_members("o")
    )
}
