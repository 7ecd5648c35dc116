//! What a server said of content. Where nothing that the Source lists tells it from its next edition, neither a hash nor a time of
//! modification, it is asked for again, if it has changed, when it is used. Where no media type is listed, it has the server's.

use crate::catalog::model::ids::VersionId;
use rusqlite::params;

use crate::catalog::error::CatalogError;
use crate::catalog::model::validators::KnownContent;
use crate::catalog::write::transaction::Transaction;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// Keeps what the server said of the content of a version, if that is current still.
    pub fn put_known_content(&mut self, version: VersionId, known: &KnownContent) -> Result<()> {
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
