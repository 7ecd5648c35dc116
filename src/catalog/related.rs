//! Where the links of resources lead: to other resources of the mirror, and to what lies elsewhere.

use rusqlite::{OptionalExtension, params};
use sha2::{Digest as _, Sha256};

use super::filter::SHOWN;
use super::naming::Named;
use super::reader::{Reader, names};
use super::{CatalogError, ROOT};
use crate::path::{SELF, set_labels, shortened};

type Result<T> = std::result::Result<T, CatalogError>;

/// A name of the current tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub name: i64,
    /// The version that it shows, if it is a file.
    pub version: Option<i64>,
    /// When it changed last, by our clock, in nanoseconds.
    pub changed: i64,
}

/// A link of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// One relation type.
    pub relation: String,
    /// The target, absolute.
    pub uri: String,
}

/// The names of collections (core 14.5).
#[derive(Debug)]
pub(super) struct Collection;

impl Collection {
    /// What a collection can be called by the last part of its URI: the one name, or the other where that is another's, too.
    pub(super) fn labels(uri: &str) -> [String; 2] {
        let label = set_labels(&[uri]).pop().unwrap_or_default();
        let digest = Sha256::digest(uri);
        let digest = digest[..4].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let long = shortened(&format!("{label}~{digest}")).into_owned();
        [label, long]
    }
}

impl Reader {
    /// A name of the current tree, by the directory that it is in.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn shown(&self, directory: i64, name: &str) -> Result<Option<Shown>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.id, n.version, n.changed FROM name n WHERE n.parent = ?1 AND n.name = ?2 AND {SHOWN}"
        ))?;
        Ok(statement.query_row(params![directory, name], shown).optional()?)
    }

    /// A name of the current tree, by its number.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn shown_by_number(&self, name: i64) -> Result<Option<Shown>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.id, n.version, n.changed FROM name n WHERE n.id = ?1 AND ({SHOWN} OR n.id = {ROOT})"
        ))?;
        Ok(statement.query_row([name], shown).optional()?)
    }

    /// The links of a version, by their relation types in the order of the alphabet; of one type, as their entry has them.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn related(&self, version: i64) -> Result<Vec<Related>> {
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn path_of_uri(&self, uri: &str, beside: i64) -> Result<Option<String>> {
        let Ok(path) = self.mapper().path(uri) else { return Ok(None) };
        let mut statement = self
            .connection()
            .prepare_cached("SELECT directory FROM rset ORDER BY id != (SELECT rset FROM name WHERE id = ?1), id")?;
        let directories: Vec<i64> =
            statement.query_map([beside], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for directory in directories {
            let mut at = Some(Shown { name: directory, version: None, changed: 0 });
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
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn tree_path(&self, name: i64) -> Result<String> {
        Ok(names(self.connection(), name, ROOT)?.join("/"))
    }
}

fn shown(row: &rusqlite::Row<'_>) -> rusqlite::Result<Shown> {
    Ok(Shown { name: row.get(0)?, version: row.get(1)?, changed: row.get(2)? })
}

/// The target of a link of a resource.
pub(super) fn absolute(base: &str, href: &str) -> Option<String> {
    match url::Url::parse(href.trim()) {
        Ok(uri) => Some(uri.into()),
        Err(_) => url::Url::parse(base).ok()?.join(href.trim()).ok().map(String::from),
    }
}
