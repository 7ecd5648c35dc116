//! Packages.

use crate::catalog::model::ids::PackageId;
use rusqlite::OptionalExtension;

use crate::catalog::db::columns::{PACKAGE, package};
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::packages::PackageRow;

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// All packages, in the order of their numbers.
    pub fn packages(&self) -> Result<Vec<PackageRow>> {
        let mut statement = self.connection().prepare_cached(&format!("SELECT {PACKAGE} FROM package ORDER BY id"))?;
        let rows = statement.query_map([], package)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// A package.
    pub fn package(&self, id: PackageId) -> Result<Option<PackageRow>> {
        let mut statement =
            self.connection().prepare_cached(&format!("SELECT {PACKAGE} FROM package WHERE id = ?1"))?;
        Ok(statement.query_row([id], package).optional()?)
    }
}
