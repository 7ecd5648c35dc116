//! Where the links of resources lead: to other resources of the mirror, and to what lies elsewhere.

use crate::catalog::model::ids::{NameId, VersionId};
use crate::document::Datetime;
use rusqlite::{OptionalExtension, params};

use crate::catalog::db::names::{SHOWN, names};
use crate::catalog::db::naming::Named;
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::collection::absolute;
use crate::catalog::model::inode::ROOT;
use crate::catalog::model::links::{Related, Shown};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// A name of the current tree, by the directory that it is in.
    pub fn shown(&self, directory: NameId, name: &str) -> Result<Option<Shown>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.id, n.version, n.changed FROM name n WHERE n.parent = ?1 AND n.name = ?2 AND {SHOWN}"
        ))?;
        Ok(statement.query_row(params![directory, name], shown).optional()?)
    }

    /// A name of the current tree, by its number.
    pub fn shown_by_number(&self, name: NameId) -> Result<Option<Shown>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.id, n.version, n.changed FROM name n WHERE n.id = ?1 AND ({SHOWN} OR n.id = {ROOT})"
        ))?;
        Ok(statement.query_row([name], shown).optional()?)
    }

    /// The links of a version, by their relation types in the order of the alphabet; of one type, as their entry has them.
    pub fn related(&self, version: VersionId) -> Result<Vec<Related>> {
        let Some(row) = self.version(version)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for link in &row.extra.links {
            let Some(uri) = link.get("href").and_then(|href| absolute(&row.uri, href)) else { continue };
            let relations = link.get("rel").map(String::as_str).unwrap_or_default();
            for relation in relations.split_ascii_whitespace() {
                all.push(Related { relation: relation.to_owned(), uri: uri.clone() });
            }
        }
        all.sort_by(|one, other| one.relation.cmp(&other.relation));
        Ok(all)
    }

    /// The path of the resource with this URI, if it is shown; of one that is in several sets, that of the set that a name is
    /// of.
    pub fn path_of_uri(&self, uri: &str, beside: NameId) -> Result<Option<String>> {
        let Ok(path) = self.mapper().path(uri) else { return Ok(None) };
        let mut statement = self
            .connection()
            .prepare_cached("SELECT directory FROM rset ORDER BY id != (SELECT rset FROM name WHERE id = ?1), id")?;
        let directories: Vec<NameId> =
            statement.query_map([beside], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for directory in directories {
            let mut at = Some(Shown { name: directory, version: None, changed: Datetime::EPOCH });
            for name in path.above() {
                at = match at {
                    Some(Shown { name: above, version: None, .. }) => self.shown(above, name)?,
                    _ => None,
                };
            }
            let at = match at {
                Some(Shown { name: above, version: None, .. }) => {
                    let named = Named::find(self.connection(), above, &path, uri)?;
                    self.shown(above, &named.name)?
                }
                _ => None,
            };
            // What is a prefix of others is `@self` in its directory.
            let at = match at {
                Some(Shown { name, version: None, .. }) => self.shown(name, SELF)?,
                file => file,
            };
            if let Some(found) = at {
                return Ok(Some(self.tree_path(found.name)?));
            }
        }
        Ok(None)
    }

    /// The path of a name from the root of the mount.
    pub fn tree_path(&self, name: NameId) -> Result<String> {
        Ok(names(self.connection(), name, ROOT)?.join("/"))
    }
}

pub(in crate::catalog) fn shown(row: &rusqlite::Row<'_>) -> rusqlite::Result<Shown> {
    Ok(Shown { name: row.get(0)?, version: row.get(1)?, changed: row.get(2)? })
}
