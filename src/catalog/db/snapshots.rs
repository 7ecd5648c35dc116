//! What is newer than a snapshot, as SQL.

use crate::catalog::db::numbers::deleted;
use crate::catalog::model::ids::NameId;
use rusqlite::params;

use crate::catalog::error::CatalogError;
use crate::catalog::model::snapshot::Snapshot;

type Result<T> = std::result::Result<T, CatalogError>;

/// The time at which a version `v` was first seen that a change below the kind `?2` brought, as SQL.
macro_rules! seen {
    () => {
        "CASE WHEN v.change < ?2 THEN (SELECT s.time FROM sync s WHERE s.id = v.came) END"
    };
}

/// Whether a change took the resource with these names away after a snapshot.
pub(in crate::catalog) fn went_later(
    connection: &rusqlite::Connection,
    names: (NameId, NameId),
    snapshot: Snapshot,
) -> Result<bool> {
    let mut statement = connection.prepare_cached(concat!(
        "SELECT EXISTS (SELECT 1 FROM version v WHERE v.name IN (?1, ?2) AND ",
        deleted!("v.gone"),
        "
             AND (v.until >= ?3 OR v.gone < ?5 AND (SELECT s.time FROM sync s WHERE s.id = v.went) >= ?4))"
    ))?;
    let values = params![names.0, names.1, snapshot.at(), snapshot.seen(), snapshot.kinds()];
    Ok(statement.query_row(values, |row| row.get(0))?)
}
pub(in crate::catalog) use seen;
