//! Rows of tables, and the columns that they are read from.

use crate::catalog::db::numbers::{here, unseen};
use crate::catalog::model::ids::VersionId;
use rusqlite::{Connection, Row};

use crate::catalog::error::CatalogError;
use crate::catalog::model::members::{MemberRow, MemberState};
use crate::catalog::model::packages::PackageRow;
use crate::catalog::model::rows::{Seed, SetRow, SetState};
use crate::document::{Datetime, Hashes};

type Result<T> = std::result::Result<T, CatalogError>;

pub(in crate::catalog) const MEMBER: &str = "m.version, m.package, m.header, m.compressed, m.size, m.crc, m.name_length, \
                                 m.deflated, m.hashes, m.state, m.coded, p.epoch";

/// Whether version `v` has its content in a member that is here.
pub(in crate::catalog) const MEMBER_HERE: &str = concat!(
    "EXISTS (SELECT 1 FROM member m JOIN package p ON p.id = m.package \
     WHERE m.version = v.id AND (",
    here!("m.state"),
    " OR m.state = ",
    unseen!(),
    " AND p.whole))"
);

pub(in crate::catalog) fn member(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<MemberRow>> {
    let Some(version) = row.get::<_, Option<VersionId>>(first)? else { return Ok(None) };
    let unsigned = |index: usize| row.get::<_, i64>(first + index).map(i64::unsigned_abs);
    let hashes: Option<Vec<u8>> = row.get(first + 8)?;
    Ok(Some(MemberRow {
        version,
        package: row.get(first + 1)?,
        header: unsigned(2)?,
        compressed: unsigned(3)?,
        size: unsigned(4)?,
        crc: row.get(first + 5)?,
        name_length: row.get(first + 6)?,
        deflated: row.get(first + 7)?,
        hashes: hashes.as_deref().map(Hashes::from_bytes),
        state: match row.get::<_, i64>(first + 9)? {
            1 => MemberState::Verified,
            2 => MemberState::Damaged,
            3 => MemberState::Intact,
            _ => MemberState::Unseen,
        },
        coded: row.get(first + 10)?,
        epoch: row.get::<_, Option<i64>>(first + 11)?.unwrap_or(0),
    }))
}

pub(in crate::catalog) const PACKAGE: &str = "id, rset, url, edition, validator, length, hashes, at, size, whole, wanted, doubtful, indexed, bytes, epoch, changes, recast, archived";

pub(in crate::catalog) fn package(row: &Row<'_>) -> rusqlite::Result<PackageRow> {
    let hashes: Option<Vec<u8>> = row.get(6)?;
    Ok(PackageRow {
        id: row.get(0)?,
        rset: row.get(1)?,
        url: row.get(2)?,
        edition: row.get(3)?,
        validator: row.get(4)?,
        length: row.get::<_, Option<i64>>(5)?.map(i64::unsigned_abs),
        hashes: hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default(),
        at: row.get::<_, Option<i64>>(7)?.map(Datetime::from_nanos),
        size: row.get::<_, Option<i64>>(8)?.map(i64::unsigned_abs),
        whole: row.get(9)?,
        wanted: row.get(10)?,
        doubtful: row.get(11)?,
        indexed: row.get(12)?,
        bytes: row.get::<_, i64>(13)?.unsigned_abs(),
        epoch: row.get(14)?,
        changes: row.get(15)?,
        recast: row.get(16)?,
        archived: row.get(17)?,
    })
}

pub(in crate::catalog) fn sets(connection: &Connection) -> Result<Vec<SetRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, key, label, directory, state, cursor, at, synced, resources, held, held_edition, seed, why, follows, follows_why, left_out FROM rset ORDER BY id",
    )?;
    let time = |nanos: Option<i64>| nanos.map(Datetime::from_nanos);
    let rows = statement.query_map([], |row| {
        let state: String = row.get(4)?;
        Ok(SetRow {
            id: row.get(0)?,
            key: row.get(1)?,
            label: row.get(2)?,
            directory: row.get(3)?,
            state: SetState::from_name(&state),
            cursor: time(row.get(5)?),
            at: time(row.get(6)?),
            synced: time(row.get(7)?),
            resources: row.get::<_, i64>(8)?.unsigned_abs(),
            left_out: row.get::<_, i64>(15)?.unsigned_abs(),
            held: row.get::<_, Option<i64>>(9)?.map(i64::unsigned_abs),
            held_edition: row.get(10)?,
            seed: row.get::<_, Option<String>>(11)?.zip(row.get(12)?).map(|(from, why)| Seed { from, why }),
            follows: row.get::<_, Option<String>>(13)?.zip(row.get(14)?).map(|(from, why)| Seed { from, why }),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
