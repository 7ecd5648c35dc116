//! Which name a resource has in its directory: the plain one, unless it is another resource's.

use crate::catalog::model::ids::NameId;
use std::borrow::Cow;

use rusqlite::{Connection, OptionalExtension, params};

use crate::catalog::db::tree::{NameRow, Tree};
use crate::catalog::error::CatalogError;
use crate::path::{Naming, ResourcePath, SELF};

type Result<T> = std::result::Result<T, CatalogError>;

/// The name of a resource in its directory. A resource keeps the name that it was given first, also after it was deleted.
#[derive(Debug)]
pub(in crate::catalog) struct Named<'r> {
    pub(in crate::catalog) name: Cow<'r, str>,
    /// The row with that name, if there is one: that of the resource, or of a directory.
    pub(in crate::catalog) row: Option<NameRow>,
    /// The URI, if the name does not determine it.
    pub(in crate::catalog) uri: Option<&'r str>,
}

/// The resource that a plain name belongs to.
enum Owner {
    This,
    Other,
    /// No resource has, or had, the name; a directory may have it.
    None,
}

impl<'r> Named<'r> {
    /// The name that the resource with this URI has, or would get, in the directory `parent`.
    pub(in crate::catalog) fn find(
        connection: &Connection,
        parent: NameId,
        path: &'r ResourcePath,
        uri: &'r str,
    ) -> Result<Self> {
        let found = row_and_uri(connection, parent, path.leaf())?;
        let owner = match &found {
            _ if path.naming == Naming::Digest => Owner::This,
            Some((row, known)) => owner(connection, *row, known.as_deref(), path.naming, uri)?,
            None => Owner::None,
        };
        let plain = |found: Option<(NameRow, Option<String>)>| Self {
            name: Cow::Borrowed(path.leaf()),
            row: found.map(|(row, _)| row),
            uri: path.needs_uri().then_some(uri),
        };
        if matches!((&owner, path.naming), (Owner::This, _) | (Owner::None, Naming::Encoded)) {
            return Ok(plain(found));
        }
        let name = path.apart(uri);
        let row = Tree::row(connection, parent, &name)?;
        Ok(match owner {
            // A resource that got a long name keeps it.
            Owner::None if row.is_none() => plain(found),
            _ => Self { name, row, uri: Some(uri) },
        })
    }
}

/// The owner of the name of a row; `known` is the URI that is stored with the row.
fn owner(connection: &Connection, row: NameRow, known: Option<&str>, naming: Naming, uri: &str) -> Result<Owner> {
    let is_ours = |known: &str| if known == uri { Owner::This } else { Owner::Other };
    let the_encoded_one = if naming == Naming::Encoded { Owner::This } else { Owner::Other };
    if let Some(known) = known {
        return Ok(is_ours(known));
    }
    if row.version.is_some() {
        return Ok(the_encoded_one);
    }
    let inner = row_and_uri(connection, row.id, SELF)?;
    if let Some((_, Some(known))) = &inner {
        return Ok(is_ours(known));
    }
    let was_resource: bool = connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM version WHERE name IN (?1, ?2) AND until IS NOT NULL)
                 OR EXISTS (SELECT 1 FROM version WHERE name IN (?1, ?2) AND change >= 16)",
        )?
        .query_row([row.id, inner.map_or(row.id, |(inner, _)| inner.id)], |row| row.get(0))?;
    Ok(if was_resource { the_encoded_one } else { Owner::None })
}

fn row_and_uri(connection: &Connection, parent: NameId, name: &str) -> Result<Option<(NameRow, Option<String>)>> {
    let mut statement =
        connection.prepare_cached("SELECT id, version, live, hidden, uri FROM name WHERE parent = ?1 AND name = ?2")?;
    Ok(statement.query_row(params![parent, name], |row| Ok((NameRow::of(row)?, row.get(4)?))).optional()?)
}
