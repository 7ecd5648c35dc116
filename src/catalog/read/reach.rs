//! How far back the history of a set reaches.

use crate::catalog::db::pool::Reader;
use crate::catalog::error::CatalogError;
use crate::catalog::model::ids::SetId;
use crate::catalog::model::reach::{ArchivedRow, Reach};
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

impl Reader {
    /// What is known of the past of a set.
    pub fn reach(&self, rset: SetId) -> Result<Reach> {
        let mut statement =
            self.connection().prepare_cached("SELECT at, own FROM snapshot WHERE rset = ?1 ORDER BY at")?;
        let snapshots: Vec<(Datetime, bool)> = statement
            .query_map([rset], |row| Ok((Datetime::from_nanos(row.get(0)?), row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let mut rows = self.connection().prepare_cached(
            "SELECT url, capability, begin, failure FROM archived WHERE rset = ?1 ORDER BY begin, url",
        )?;
        let archived = rows.query_map([rset], |row| {
            let capability: String = row.get(1)?;
            let row = ArchivedRow {
                url: row.get(0)?,
                capability: Capability::from_name(&capability).unwrap_or(Capability::ResourceList),
                begin: Some(row.get(2)?).filter(|begin| *begin != i64::MIN).map(Datetime::from_nanos),
                failure: row.get(3)?,
            };
            Ok(row)
        })?;
        let mut gaps =
            self.connection().prepare_cached("SELECT begin, until FROM gap WHERE rset = ?1 ORDER BY begin")?;
        let gaps =
            gaps.query_map([rset], |row| Ok((Datetime::from_nanos(row.get(0)?), Datetime::from_nanos(row.get(1)?))))?;
        Ok(Reach {
            gaps: gaps.collect::<rusqlite::Result<_>>()?,
            first: snapshots.iter().find(|(_, own)| *own).map(|(at, _)| *at),
            last: snapshots.iter().rfind(|(_, own)| *own).map(|(at, _)| *at),
            snapshots: snapshots.into_iter().map(|(at, _)| at).collect(),
            archived: archived.collect::<rusqlite::Result<_>>()?,
        })
    }
}
