//! What a server said of content. Where nothing that the Source lists tells it from its next edition, neither a hash nor a time of
//! modification, it is asked for again, if it has changed, when it is used. Where no media type is listed, it has the server's.

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
    /// `Content-Type`, without parameters.
    pub media: Option<String>,
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
    pub fn put_known_content(&mut self, version: i64, known: &KnownContent) -> Result<()> {
        let media = self.media(known.media.as_deref())?;
        self.connection()
            .prepare_cached(
                "INSERT INTO validators (version, etag, last_modified, media, checked)
                 SELECT id, ?2, ?3, ?4, ?5 FROM version WHERE id = ?1 AND until IS NULL
                 ON CONFLICT (version) DO UPDATE SET etag = excluded.etag, last_modified = excluded.last_modified,
                     media = COALESCE(excluded.media, media), checked = excluded.checked",
            )?
            .execute(params![version, known.etag, known.last_modified, media, known.checked.nanos()])?;
        Ok(())
    }
}
