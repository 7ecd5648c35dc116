//! Mementos and TimeMaps of a resource.

use crate::catalog::model::ids::{NameId, VersionId};
use rusqlite::OptionalExtension;

use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::mementos::{MementoRow, TimeMapRow};
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// Where a version can be had under URLs that are its alone, besides what its entry links to.
    pub fn mementos(&self, version: VersionId) -> Result<Vec<MementoRow>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT url, datetime, negotiated, gone, original FROM memento WHERE version = ?1 ORDER BY negotiated, url",
        )?;
        let rows = statement.query_map([version], |row| {
            Ok(MementoRow {
                url: row.get(0)?,
                datetime: row.get::<_, Option<i64>>(1)?.map(Datetime::from_nanos),
                negotiated: row.get(2)?,
                gone: row.get::<_, i64>(3)? > 0,
                original: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What was asked of the versions of a resource, if anything was.
    pub fn timemap(&self, resource: NameId) -> Result<Option<TimeMapRow>> {
        let mut statement =
            self.connection().prepare_cached("SELECT url, etag, last_modified, read FROM timemap WHERE name = ?1")?;
        let found = statement.query_row([resource], |row| {
            Ok(TimeMapRow { url: row.get(0)?, etag: row.get(1)?, last_modified: row.get(2)?, read: row.get(3)? })
        });
        Ok(found.optional()?)
    }
}
