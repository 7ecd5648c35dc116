//! What a server said of content that nothing which the Source lists tells from its next edition: neither a hash nor a time of
//! modification. It is asked for again, if it has changed, when it is used.

use rusqlite::{OptionalExtension, params};

use super::{CatalogError, Reader, Transaction};
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

/// Where it is kept that there are such resources, or were.
pub(super) const TIMELESS: &str = "timeless";

/// What the server said of the content of a version, as it sent it, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownContent {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// When it came, or was last found unchanged, by our clock.
    pub checked: Datetime,
}

impl Reader {
    /// Whether there is, or was, a resource of which neither a hash nor a time of modification is listed.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn has_timeless(&self) -> Result<bool> {
        Ok(self.meta(TIMELESS)?.is_some())
    }

    /// What the server said of the content of a current version.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn known_content(&self, version: i64) -> Result<Option<KnownContent>> {
        let mut statement = self
            .connection()
            .prepare_cached("SELECT etag, last_modified, checked FROM validators WHERE version = ?1")?;
        let known = statement.query_row([version], |row| {
            let checked = Datetime::from_nanos(row.get(2)?);
            Ok(KnownContent { etag: row.get(0)?, last_modified: row.get(1)?, checked })
        });
        Ok(known.optional()?)
    }

    /// The current versions whose content is here, and that neither a hash nor a time tells from others.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn timeless(&self) -> Result<Vec<i64>> {
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

impl Transaction<'_> {
    /// Keeps what the server said of the content of a version, if that is current still.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn put_known_content(&self, version: i64, known: &KnownContent) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO validators (version, etag, last_modified, checked)
                 SELECT id, ?2, ?3, ?4 FROM version WHERE id = ?1 AND until IS NULL",
            )?
            .execute(params![version, known.etag, known.last_modified, known.checked.nanos()])?;
        Ok(())
    }
}
