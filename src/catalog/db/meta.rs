//! Facts about the cache as a whole, by their keys.

use crate::catalog::model::ids::SetId;
use rusqlite::{Connection, OptionalExtension};

use crate::catalog::error::CatalogError;

type Result<T> = std::result::Result<T, CatalogError>;

/// Where the filter is kept that the names are shown by.
pub(in crate::catalog) const KEY: &str = "filter";

/// Where the selection is kept for which some lists of a set were left alone.
pub(in crate::catalog) fn selected_key(rset: SetId) -> String {
    format!("selected {rset}")
}

/// Where it is kept when the lists of a set were read or found unchanged last: a time in nanoseconds; an empty text if they are to be.
pub(in crate::catalog) fn listed_key(rset: SetId) -> String {
    format!("listed {rset}")
}

/// Where it is kept why not all of a set is in step, in words: an empty text if it is.
pub(in crate::catalog) fn behind_key(rset: SetId) -> String {
    format!("behind {rset}")
}

/// Where it is kept that there are such resources, or were.
pub(in crate::catalog) const TIMELESS: &str = "timeless";

pub(in crate::catalog) fn meta(connection: &Connection, key: &str) -> Result<Option<String>> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

pub(in crate::catalog) fn set_meta(connection: &Connection, key: &str, value: &str) -> Result<()> {
    connection.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?.execute([key, value])?;
    Ok(())
}
