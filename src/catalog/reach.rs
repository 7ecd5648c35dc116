//! How far the history of a set reaches back: of which moments a complete list is known, what was not followed, and what of archives
//! was read.

use rusqlite::params;

use super::transaction::Transaction;
use super::{CatalogError, Reader};
use crate::document::{Capability, Datetime};

type Result<T> = std::result::Result<T, CatalogError>;

/// A document of an archive that is in the history, or cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedRow {
    /// Where it is.
    pub url: String,
    /// Of what it is an archive.
    pub capability: Capability,
    /// When its snapshot, or its interval, began.
    pub begin: Option<Datetime>,
    /// Why not all of it is in the history.
    pub failure: Option<String>,
}

/// How far the history of a set reaches back, and by what.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The moments at which complete lists were made that are known, ascending.
    pub snapshots: Vec<Datetime>,
    /// The first of them that the tree was made from: what happened since is followed.
    pub first: Option<Datetime>,
    /// The last of those.
    pub last: Option<Datetime>,
    /// What was not followed since: until a newer list gives their state.
    pub gaps: Vec<(Datetime, Datetime)>,
    /// What of archives was read.
    pub archived: Vec<ArchivedRow>,
}

impl Reader {
    /// What is known of the past of a set.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn reach(&self, rset: i64) -> Result<Reach> {
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

impl Transaction<'_> {
    /// Notes that what happened between two moments was not followed.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn put_gap(&self, rset: i64, begin: Option<Datetime>, until: Datetime) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT INTO gap (rset, begin, until) VALUES (?1, ?2, ?3)
                 ON CONFLICT (rset, begin) DO UPDATE SET until = max(until, excluded.until)",
            )?
            .execute(params![rset, begin.map_or(i64::MIN, Datetime::nanos), until.nanos()])?;
        Ok(())
    }

    /// Notes that a complete list is known that was made then; `own`, if the tree is.
    pub(super) fn put_snapshot(&self, rset: i64, at: Datetime, own: bool) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT INTO snapshot (rset, at, own) VALUES (?1, ?2, ?3)
                 ON CONFLICT (rset, at) DO UPDATE SET own = max(own, excluded.own)",
            )?
            .execute(params![rset, at.nanos(), own])?;
        Ok(())
    }

    /// Notes what came of a document of an archive.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn put_archived(&self, rset: i64, row: &ArchivedRow) -> Result<()> {
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
