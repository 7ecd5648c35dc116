//! Content of which only its server knows whether it is current.

use crate::catalog::model::ids::VersionId;
use rusqlite::OptionalExtension;

use crate::catalog::db::meta::TIMELESS;
use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::validators::KnownContent;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// Whether there is, or was, a resource of which neither a hash nor a time of modification is listed.
    pub fn has_timeless(&self) -> Result<bool> {
        Ok(self.meta(TIMELESS)?.is_some())
    }

    /// What the server said of the content of a current version.
    pub fn known_content(&self, version: VersionId) -> Result<Option<KnownContent>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT v.etag, v.last_modified, m.type, v.checked FROM validators v LEFT JOIN media m ON m.id = v.media
                 WHERE v.version = ?1",
        )?;
        let known = statement.query_row([version], |row| {
            let checked = Datetime::from_nanos(row.get(3)?);
            Ok(KnownContent { etag: row.get(0)?, last_modified: row.get(1)?, media: row.get(2)?, checked })
        });
        Ok(known.optional()?)
    }

    /// The current versions whose content is here, and that neither a hash nor a time tells from others.
    pub fn timeless(&self) -> Result<Vec<VersionId>> {
        if !self.has_timeless()? {
            return Ok(Vec::new());
        }
        let mut statement = self.connection().prepare(
            "SELECT v.id FROM name n JOIN version v ON v.id = n.version
             WHERE v.dated != 1 AND v.hashes IS NULL AND v.object IS NOT NULL ORDER BY v.id",
        )?;
        let versions = statement.query_map([], |row| row.get(0))?;
        Ok(versions.collect::<rusqlite::Result<_>>()?)
    }
}
