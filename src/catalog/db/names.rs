//! Names and paths, as SQL and by one connection.

use crate::catalog::model::ids::NameId;
use rusqlite::{Connection, OptionalExtension, params};

use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::ROOT;
use crate::path::{Mapper, SELF};

type Result<T> = std::result::Result<T, CatalogError>;

/// Whether a row `n` of `name` is shown, as SQL.
pub(in crate::catalog) const SHOWN: &str = "((n.version IS NOT NULL) + n.live > n.hidden)";

/// Whether a row `n` of `name` was left out as a file, be it live or not, as SQL.
pub(in crate::catalog) const LEFT_OUT: &str = "(n.live = 0 AND n.hidden > 0)";

/// The names of a resource: its own, and `@self` in the directory of that name.
pub(in crate::catalog) const OWN: &str =
    "WITH own (id) AS (SELECT ?1 UNION ALL SELECT id FROM name WHERE parent = ?1 AND name = ?2)";

/// The resource that a name belongs to: `@self` to the name of its directory.
pub(in crate::catalog) fn resource_of(connection: &rusqlite::Connection, name: NameId) -> Result<NameId> {
    let mut statement =
        connection.prepare_cached("SELECT CASE WHEN name = ?2 THEN parent ELSE id END FROM name WHERE id = ?1")?;
    Ok(statement.query_row(params![name, SELF], |row| row.get(0)).optional()?.unwrap_or(name))
}

/// The names that lead from (and without) `root` to `name`.
pub(in crate::catalog) fn names(connection: &Connection, name: NameId, root: NameId) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut at = name;
    while at != root && at.number() > 0 {
        let (parent, name) = place(connection, at)?;
        names.push(name);
        at = parent;
    }
    names.reverse();
    if names.last().is_some_and(String::is_empty) {
        names.pop();
    }
    Ok(names)
}

/// The stored URI of the resource with the row `n` of `name`, as SQL: if the name is a directory, the row of its `@self` has it. NULL if
/// the path determines the URI.
pub(in crate::catalog) const URI: &str = "COALESCE(n.uri, CASE WHEN n.version IS NULL
     THEN (SELECT s.uri FROM name s WHERE s.parent = n.id AND s.name = '@self') END)";

/// The URI of a name whose path determines it.
pub(in crate::catalog) fn derived_uri(
    connection: &Connection,
    mapper: &Mapper,
    name: NameId,
    directory: NameId,
) -> Result<String> {
    let names = names(connection, name, directory)?;
    Ok(mapper.uri(&names).unwrap_or_default())
}

/// The directory in which a name is, and what it is there.
pub(in crate::catalog) fn place(connection: &Connection, name: NameId) -> rusqlite::Result<(NameId, String)> {
    connection
        .prepare_cached("SELECT parent, name FROM name WHERE id = ?1")?
        .query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The name and the URI of a resource.
pub(in crate::catalog) fn resource_name(
    connection: &Connection,
    mapper: &Mapper,
    resource: NameId,
) -> Result<Option<(String, String)>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT n.name, {URI}, r.directory FROM name n LEFT JOIN rset r ON r.id = n.rset WHERE n.id = ?1"
    ))?;
    let found: Option<(String, Option<String>, Option<NameId>)> =
        statement.query_row([resource], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((name, uri, directory)) = found else { return Ok(None) };
    let uri = match uri {
        Some(uri) => uri,
        None => derived_uri(connection, mapper, resource, directory.unwrap_or(ROOT))?,
    };
    Ok(Some((name, uri)))
}
