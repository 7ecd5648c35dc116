//! The last name of each directory.

use crate::catalog::model::ids::NameId;
use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};

use crate::catalog::error::CatalogError;

type Result<T> = std::result::Result<T, CatalogError>;

/// Of more directories than these, the last name is looked up again.
// In tests so few that they are looked up again all the time.
const MOST_DIRECTORIES: usize = if cfg!(test) { 3 } else { 10_000 };

/// The last name of each directory, in the order of bytes, as far as it was asked for.
#[derive(Debug, Default)]
pub(in crate::catalog) struct LastNames(HashMap<NameId, String>);

impl LastNames {
    /// A name was put into a directory.
    pub(in crate::catalog) fn put(&mut self, directory: NameId, name: &str) {
        if let Some(last) = self.0.get_mut(&directory)
            && name > last.as_str()
        {
            name.clone_into(last);
        }
    }

    /// The last name of a directory; empty for one that holds none.
    pub(in crate::catalog) fn of(&mut self, connection: &Connection, directory: NameId) -> Result<&mut String> {
        if self.0.len() >= MOST_DIRECTORIES && !self.0.contains_key(&directory) {
            self.0.clear();
        }
        Ok(match self.0.entry(directory) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(unknown) => {
                let last: Option<String> = connection
                    .prepare_cached("SELECT name FROM name WHERE parent = ?1 ORDER BY name DESC LIMIT 1")?
                    .query_row([directory], |row| row.get(0))
                    .optional()?;
                unknown.insert(last.unwrap_or_default())
            }
        })
    }
}
