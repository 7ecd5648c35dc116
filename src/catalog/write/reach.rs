//! How far the history of a set reaches back: of which moments a complete list is known, what was not followed, and what of archives
//! was read.

use crate::catalog::model::ids::SetId;
use rusqlite::params;

use crate::catalog::error::CatalogError;
use crate::catalog::model::reach::ArchivedRow;
use crate::catalog::write::transaction::Transaction;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// Notes that what happened between two moments was not followed.
    pub fn put_gap(&self, rset: SetId, begin: Option<Datetime>, until: Datetime) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT INTO gap (rset, begin, until) VALUES (?1, ?2, ?3)
                 ON CONFLICT (rset, begin) DO UPDATE SET until = max(until, excluded.until)",
            )?
            .execute(params![rset, begin.map_or(i64::MIN, Datetime::nanos), until.nanos()])?;
        Ok(())
    }

    /// Notes that a complete list is known that was made then; `own`, if the tree is.
    pub(in crate::catalog) fn put_snapshot(&self, rset: SetId, at: Datetime, own: bool) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT INTO snapshot (rset, at, own) VALUES (?1, ?2, ?3)
                 ON CONFLICT (rset, at) DO UPDATE SET own = max(own, excluded.own)",
            )?
            .execute(params![rset, at.nanos(), own])?;
        Ok(())
    }

    /// Notes what came of a document of an archive.
    pub fn put_archived(&self, rset: SetId, row: &ArchivedRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT OR REPLACE INTO archived (rset, url, capability, begin, failure) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                rset,
                row.url,
                row.capability.name(),
                row.begin.map_or(i64::MIN, Datetime::nanos),
                row.failure
            ])?;
        Ok(())
    }
}
