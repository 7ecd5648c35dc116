//! The tree as of a moment, and the tree of all names that there ever were.
//!
//! As of a moment, the resource of a name is a file under that name, or `@self` in a directory of it, by what lay
//! in it then; as in the current tree, and wherever it lies there now.

use crate::catalog::model::ids::{NameId, VersionId};
use rusqlite::{OptionalExtension, Row, params};

use crate::catalog::db::names::{LEFT_OUT, OWN};
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::{Inode, ROOT, directory_ino, version_ino};
use crate::catalog::model::nodes::{DirEntry, Node};
use crate::document::Datetime;
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// A name that there is, or was, as far as the tree as of a moment needs it.
struct Name {
    id: NameId,
    name: String,
    /// Whether something lies, or lay, in it.
    directory: bool,
    /// Nothing at or below it is older; where nothing is live, nothing was in force from `died` on.
    born: Datetime,
    died: Datetime,
    live: i64,
    /// What was in force under this name.
    version: Option<Node>,
}

/// What a row of `name` and what was in force under it then are, for [`Name::of`]. `?2` is the moment.
pub(in crate::catalog) const THEN: &str =
    "n.id, n.name, COALESCE(n.born, 9223372036854775807), COALESCE(n.died, -9223372036854775808), n.live, c.id, c.begin, c.mtime, c.size, p.id, p.begin, p.mtime, p.size,
    n.live = 0 AND n.hidden > 0
    FROM name n LEFT JOIN version c ON c.id = n.version AND c.begin <= ?2
    LEFT JOIN version p ON p.id = (SELECT id FROM version WHERE name = n.id AND until IS NOT NULL AND begin <= ?2
        AND until > ?2 ORDER BY begin DESC, id DESC LIMIT 1)";

impl Name {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let file = |first: usize| -> rusqlite::Result<Option<(i64, Node)>> {
            let Some(version) = row.get::<_, Option<VersionId>>(first)? else { return Ok(None) };
            let size = row.get::<_, Option<i64>>(first + 3)?.map(i64::unsigned_abs);
            let node = Node::File { ino: version_ino(version), mtime: row.get(first + 2)?, size };
            Ok(Some((row.get(first + 1)?, node)))
        };
        let left_out: bool = row.get(13)?;
        let (current, past) = if left_out { (None, None) } else { (file(5)?, file(9)?) };
        // What an archive saw later than the current version began, it saw of that moment.
        let version = match (current, past) {
            (Some((began, current)), Some((begin, past))) => Some(if begin > began { past } else { current }),
            (current, past) => current.or(past).map(|(_, node)| node),
        };
        let born = row.get(2)?;
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            directory: born != Datetime::MAX,
            born,
            died: row.get(3)?,
            live: row.get(4)?,
            version,
        })
    }
}

impl Reader {
    /// The node of a name in a directory as of a moment.
    pub fn lookup_at(&self, directory: NameId, name: &str, moment: Datetime) -> Result<Option<Node>> {
        let found = self.name_at(directory, name, moment)?;
        match found {
            Some(found) if name != SELF => self.node_at(&found, moment),
            _ if name == SELF && directory != ROOT => {
                let own = self.own_at(directory, moment)?;
                Ok(if self.others_at(directory, moment, false)? { own } else { None })
            }
            _ => Ok(None),
        }
    }

    fn name_at(&self, directory: NameId, name: &str, moment: Datetime) -> Result<Option<Name>> {
        let mut statement =
            self.connection().prepare_cached(&format!("SELECT {THEN} WHERE n.parent = ?1 AND n.name = ?3"))?;
        Ok(statement.query_row(params![directory, moment, name], Name::of).optional()?)
    }

    /// What a name was then.
    fn node_at(&self, name: &Name, moment: Datetime) -> Result<Option<Node>> {
        if !name.directory {
            return Ok(name.version);
        }
        let own = self.own_at(name.id, moment)?;
        if self.alive_at(name, moment)? {
            // It is one as well if what makes it one is left out, as in the current tree.
            let shown = own.is_some() || self.others_at(name.id, moment, true)?;
            return Ok(shown.then(|| Node::Directory { ino: directory_ino(name.id), changed: moment }));
        }
        Ok(own)
    }

    /// The version of the resource of a name that was in force, wherever its history lies.
    fn own_at(&self, resource: NameId, moment: Datetime) -> Result<Option<Node>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN}, marked (left_out) AS (
                 SELECT EXISTS (SELECT 1 FROM name d JOIN name s ON s.parent = d.id AND s.name = ?2
                                WHERE d.id = ?1 AND d.version IS NULL AND s.live = 0 AND s.hidden > 0))
             SELECT v.id, v.mtime, v.size, v.begin FROM own JOIN marked ON NOT marked.left_out
                 JOIN name n ON n.id = own.id AND NOT {LEFT_OUT}
                 JOIN version v ON v.name = n.id AND v.until IS NOT NULL AND v.begin <= ?3 AND v.until > ?3
             UNION ALL SELECT v.id, v.mtime, v.size, v.begin FROM own JOIN marked ON NOT marked.left_out
                 JOIN name n ON n.id = own.id AND NOT {LEFT_OUT} JOIN version v ON v.id = n.version AND v.begin <= ?3 ORDER BY 4 DESC, 1 DESC LIMIT 1"
        ))?;
        let found = statement.query_row(params![resource, SELF, moment], |row| {
            let size = row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs);
            Ok(Node::File { ino: version_ino(row.get(0)?), mtime: row.get(1)?, size })
        });
        Ok(found.optional()?)
    }

    /// The version of a resource that was in force at a moment.
    pub fn version_at(&self, resource: NameId, moment: Datetime) -> Result<Option<VersionId>> {
        let found = self.own_at(resource, moment)?.and_then(|node| Inode::from_ino(node.ino()));
        Ok(found.and_then(|inode| if let Inode::Version(version) = inode { Some(version) } else { None }))
    }

    /// Whether anything but its own resource was in force below a name then.
    fn alive_at(&self, name: &Name, moment: Datetime) -> Result<bool> {
        if name.born > moment || name.live == 0 && name.died <= moment {
            return Ok(false);
        }
        self.others_at(name.id, moment, false)
    }

    /// Whether anything but its own resource was in force in a directory then; with `shown`, anything that is shown.
    fn others_at(&self, directory: NameId, moment: Datetime, shown: bool) -> Result<bool> {
        let wanted = if shown { format!(" AND NOT {LEFT_OUT}") } else { String::new() };
        let ask = |question: &str| -> Result<bool> {
            let mut statement = self.connection().prepare_cached(question)?;
            Ok(statement.query_row(params![directory, moment, SELF], |row| row.get(0))?)
        };
        if ask(&format!(
            "SELECT EXISTS (SELECT 1 FROM name n JOIN version v ON v.id = n.version
                WHERE n.parent = ?1 AND n.name != ?3 AND v.begin <= ?2{wanted})"
        ))? || ask(&format!(
            "SELECT EXISTS (SELECT 1 FROM name n CROSS JOIN version v ON v.name = n.id AND v.until IS NOT NULL
                AND v.begin <= ?2 AND v.until > ?2 WHERE n.parent = ?1 AND n.name != ?3{wanted})"
        ))? {
            return Ok(true);
        }
        let mut statement = self.connection().prepare_cached(
            "SELECT id FROM name WHERE parent = ?1 AND name != ?3 AND born <= ?2 AND (live > 0 OR died > ?2)",
        )?;
        let below = statement.query_map(params![directory, moment, SELF], |row| row.get(0))?;
        for below in below.collect::<rusqlite::Result<Vec<NameId>>>()? {
            let own = if shown { self.own_at(below, moment)?.is_some() } else { self.had_own_at(below, moment)? };
            if own || self.others_at(below, moment, shown)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the resource of a name was there at a moment, shown or left out.
    fn had_own_at(&self, resource: NameId, moment: Datetime) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(&format!(
            "{OWN} SELECT EXISTS (SELECT 1 FROM own JOIN version v ON v.name = own.id AND v.until IS NOT NULL
                 AND v.begin <= ?3 AND v.until > ?3)
             OR EXISTS (SELECT 1 FROM own JOIN name n ON n.id = own.id JOIN version v ON v.id = n.version AND v.begin <= ?3)"
        ))?;
        Ok(statement.query_row(params![resource, SELF, moment], |row| row.get(0))?)
    }

    /// Visits the names of a directory as of a moment in their order, after the one whose cookie is `after`, until
    /// `visit` says false.
    pub fn list_at(
        &self,
        directory: NameId,
        moment: Datetime,
        after: Option<i64>,
        mut visit: impl FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT {THEN} WHERE n.parent = ?1 AND n.name > COALESCE((SELECT name FROM name WHERE id = ?3), '') ORDER BY n.name"
        ))?;
        let mut rows = statement.query(params![directory, moment, after])?;
        while let Some(row) = rows.next()? {
            let name = Name::of(row)?;
            let node = match name.name == SELF {
                true if directory != ROOT => self.own_at(directory, moment)?,
                _ => self.node_at(&name, moment)?,
            };
            let Some(node) = node else { continue };
            if !visit(DirEntry { cookie: name.id.number(), name: name.name, node }) {
                break;
            }
        }
        Ok(())
    }

    /// The number of a name in a directory, whether it is in the tree or was once.
    pub fn lookup_ever(&self, directory: NameId, name: &str) -> Result<Option<NameId>> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.id FROM name n WHERE n.parent = ?1 AND n.name = ?2 AND NOT {LEFT_OUT}"
        ))?;
        Ok(statement.query_row(params![directory, name], |row| row.get(0)).optional()?)
    }

    /// Visits the names that there are, or were, in a directory in their order, with their numbers, after the one
    /// whose number is `after`, until `visit` says false.
    pub fn list_ever(
        &self,
        directory: NameId,
        after: Option<i64>,
        mut visit: impl FnMut(NameId, &str) -> bool,
    ) -> Result<()> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT n.id, n.name FROM name n
             WHERE n.parent = ?1 AND n.name > COALESCE((SELECT name FROM name WHERE id = ?2), '') AND NOT {LEFT_OUT}
             ORDER BY n.name",
        ))?;
        let mut rows = statement.query(params![directory, after])?;
        while let Some(row) = rows.next()? {
            if !visit(row.get(0)?, row.get_ref(1)?.as_str().unwrap_or_default()) {
                break;
            }
        }
        Ok(())
    }

    /// What lies in `.versions` under a name: a directory of names, or the versions of a resource.
    pub fn ever(&self, name: NameId) -> Result<Ever> {
        let mut statement = self.connection().prepare_cached(
            "SELECT n.id = 1 OR COALESCE(n.born, ?3) != ?3, CASE WHEN n.name = ?2 THEN n.parent ELSE n.id END,
                    max(n.changed, COALESCE((SELECT changed FROM name WHERE parent = n.id AND name = ?2), 0),
                        CASE WHEN n.name = ?2 THEN (SELECT changed FROM name WHERE id = n.parent) ELSE 0 END),
                    COALESCE((SELECT begin FROM version WHERE id = n.version), 0)
             FROM name n WHERE n.id = ?1",
        )?;
        let found = statement.query_row(params![name, SELF, i64::MAX], |row| {
            let changed: Datetime = row.get(2)?;
            let changed = if changed == Datetime::EPOCH { row.get(3)? } else { changed };
            Ok(Ever { is_directory: row.get(0)?, resource: row.get(1)?, changed })
        });
        Ok(found.optional()?.unwrap_or(Ever { is_directory: false, resource: name, changed: Datetime::EPOCH }))
    }
}

/// What lies in `.versions` under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ever {
    /// Whether names lie in it, rather than the versions of a resource.
    pub is_directory: bool,
    /// The resource whose name it is, or was: that of `@self` is its directory's.
    pub resource: NameId,
    /// When the names, or the versions, changed last, by our clock; else when its version came into force. In
    /// nanoseconds.
    pub changed: Datetime,
}
