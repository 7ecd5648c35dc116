//! Rows of versions and members of packages: the only place that inserts them.
//!
//! New versions of a list are written many to a statement ([`Numbered`]); a version that another one makes room for, one at
//! a time with all of its columns ([`VersionValues`]).

use crate::catalog::db::numbers::{not_here, unseen};
use crate::catalog::model::ids::{DocumentId, NameId, VersionId};
use std::sync::LazyLock;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::catalog::error::CatalogError;
use crate::catalog::model::integers::signed;
use crate::catalog::model::members::MemberRow;
use crate::catalog::model::record::Record;
use crate::document::{Datetime, Hashes};

type Result<T> = std::result::Result<T, CatalogError>;

/// How many rows a statement writes: as many of the first as there are rows for, then of the next.
pub(in crate::catalog) const AT_ONCE: [usize; 3] = [32, 8, 1];

/// What rows of one kind are written with.
struct Statements {
    /// For each of [`AT_ONCE`].
    texts: [String; AT_ONCE.len()],
    /// How many parameters say the same of all rows of a statement; they stand first.
    shared: usize,
    /// How many each row has of its own.
    own: usize,
}

impl Statements {
    /// In `row`, `?` is the next of a row's own parameters, and `?1` and so on are shared.
    fn new(insert: &str, row: &str) -> Self {
        let values = || row.split(", ");
        let own = values().filter(|value| *value == "?").count();
        let shared = values().count() - own;
        let texts = AT_ONCE.map(|count| {
            let mut next = shared;
            let mut one = || {
                let numbered = values().map(|value| match value {
                    "?" => {
                        next += 1;
                        format!("?{next}")
                    }
                    value => value.to_owned(),
                });
                format!("({})", numbered.collect::<Vec<_>>().join(", "))
            };
            let rows: Vec<_> = (0..count).map(|_| one()).collect();
            format!("{insert} VALUES {}", rows.join(", "))
        });
        Self { texts, shared, own }
    }

    /// Calls `write` with as many rows at once as there are, each with the number of its first parameter, and their statement.
    fn write<T>(
        &self,
        mut all: &[T],
        mut write: impl FnMut(&str, &mut dyn Iterator<Item = (&T, usize)>) -> Result<()>,
    ) -> Result<()> {
        for (count, statement) in AT_ONCE.into_iter().zip(&self.texts) {
            while let Some((part, rest)) = all.split_at_checked(count) {
                write(statement, &mut part.iter().zip((self.shared + 1..).step_by(self.own)))?;
                all = rest;
            }
        }
        Ok(())
    }
}

/// No expression of a parameter in these: SQLite would plan it anew for each value.
static VERSIONS: LazyLock<Numbered> = LazyLock::new(|| {
    Numbered::new(
        "version",
        "name, document, begin, mtime, dated, size, settled, hashes, media, extra, object, change, came",
        "?, ?1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?2, ?3",
    )
});

/// Of versions of which nothing else is to be said.
static PLAIN_VERSIONS: LazyLock<Numbered> = LazyLock::new(|| {
    Numbered::new(
        "version",
        "name, document, begin, mtime, dated, size, settled, hashes, media",
        "?, ?1, ?, ?, ?, ?, ?, ?, ?",
    )
});

/// The same for rows whose numbers follow each other, and come after all that there are: the first is written with its
/// number, and SQLite gives the others theirs.
///
/// A number that is given might be none, so SQLite would journal each statement of many such rows, whatever its conflict
/// clause: of 3.77 million resources, pages of 6 GB, 2 s of 8.
pub(in crate::catalog) struct Numbered {
    first: Statements,
    others: Statements,
}

impl Numbered {
    pub(in crate::catalog) fn new(table: &str, columns: &str, row: &str) -> Self {
        let insert = format!("INSERT OR FAIL INTO {table}");
        Self {
            first: Statements::new(&format!("{insert} (id, {columns})"), &format!("?, {row}")),
            others: Statements::new(&format!("{insert} ({columns})"), row),
        }
    }

    /// Calls `bind` for the parameters that all rows of a statement share, and for those of each row, from the number given on.
    pub(in crate::catalog) fn write<T>(
        &self,
        connection: &Connection,
        (all, number): (&[T], fn(&T) -> i64),
        shared: impl Fn(&mut rusqlite::Statement<'_>) -> rusqlite::Result<()>,
        mut bind: impl FnMut(&mut rusqlite::Statement<'_>, &T, usize) -> rusqlite::Result<()>,
    ) -> Result<()> {
        let Some((first, others)) = all.split_first() else { return Ok(()) };
        for (statements, rows, numbered) in
            [(&self.first, std::slice::from_ref(first), true), (&self.others, others, false)]
        {
            statements.write(rows, |statement, rows| {
                let mut statement = connection.prepare_cached(statement)?;
                shared(&mut statement)?;
                for (row, own) in rows {
                    if numbered {
                        statement.raw_bind_parameter(own, number(row))?;
                    }
                    bind(&mut statement, row, own + usize::from(numbered))?;
                }
                statement.raw_execute()?;
                Ok(())
            })?;
        }
        let (given, wanted) = (connection.last_insert_rowid(), all.last().map_or(0, number));
        if given == wanted { Ok(()) } else { Err(CatalogError::Numbers { given, wanted }) }
    }
}

/// A version to be written.
pub(in crate::catalog) struct NewVersion<'r> {
    pub(in crate::catalog) id: VersionId,
    pub(in crate::catalog) name: NameId,
    pub(in crate::catalog) record: &'r Record,
    pub(in crate::catalog) media: Option<i64>,
    /// The content of the version before it, and its size, where the bytes are the same.
    pub(in crate::catalog) object: Option<i64>,
    pub(in crate::catalog) size: Option<i64>,
}

/// Inserts versions that a document lists, whose numbers follow each other. `origin` is how they came (`version.change`),
/// and the sync that brought them.
pub(in crate::catalog) fn insert_versions(
    connection: &Connection,
    versions: &[NewVersion<'_>],
    document: DocumentId,
    origin: Option<(i64, i64)>,
) -> Result<()> {
    let is_plain =
        origin.is_none() && versions.iter().all(|version| version.record.extra.is_none() && version.object.is_none());
    let statements = if is_plain { &PLAIN_VERSIONS } else { &VERSIONS };
    let mut hashes = Vec::new();
    statements.write(
        connection,
        (versions, |version| version.id.number()),
        |statement| {
            statement.raw_bind_parameter(1, document)?;
            if !is_plain {
                statement.raw_bind_parameter(2, origin.map(|(change, _)| change))?;
                statement.raw_bind_parameter(3, origin.map(|(_, sync)| sync))?;
            }
            Ok(())
        },
        |statement, version, own| {
            let record = version.record;
            let listed = record.size.and_then(|size| i64::try_from(size).ok());
            hashes.clear();
            record.hashes.append_to(&mut hashes);
            statement.raw_bind_parameter(own, version.name)?;
            statement.raw_bind_parameter(own + 1, record.begin.nanos())?;
            statement.raw_bind_parameter(own + 2, record.mtime.nanos())?;
            statement.raw_bind_parameter(own + 3, record.dated)?;
            statement.raw_bind_parameter(own + 4, listed.or(version.size))?;
            statement.raw_bind_parameter(own + 5, listed.is_none())?;
            statement.raw_bind_parameter(own + 6, (!hashes.is_empty()).then_some(hashes.as_slice()))?;
            statement.raw_bind_parameter(own + 7, version.media)?;
            if !is_plain {
                statement.raw_bind_parameter(own + 8, record.extra.as_deref())?;
                statement.raw_bind_parameter(own + 9, version.object)?;
            }
            Ok(())
        },
    )
}

/// The columns of a version, as the schema describes them. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::catalog) struct VersionValues {
    pub(in crate::catalog) id: VersionId,
    pub(in crate::catalog) name: NameId,
    pub(in crate::catalog) document: DocumentId,
    pub(in crate::catalog) begin: Datetime,
    pub(in crate::catalog) until: Option<Datetime>,
    pub(in crate::catalog) mtime: Datetime,
    pub(in crate::catalog) dated: u8,
    pub(in crate::catalog) size: Option<i64>,
    pub(in crate::catalog) settled: bool,
    pub(in crate::catalog) hashes: Option<Vec<u8>>,
    pub(in crate::catalog) media: Option<i64>,
    pub(in crate::catalog) extra: Option<String>,
    pub(in crate::catalog) object: Option<i64>,
    pub(in crate::catalog) served: Option<Vec<u8>>,
    pub(in crate::catalog) change: Option<i64>,
    pub(in crate::catalog) gone: Option<i64>,
    pub(in crate::catalog) came: Option<i64>,
    pub(in crate::catalog) went: Option<i64>,
    pub(in crate::catalog) ended: Option<Datetime>,
    pub(in crate::catalog) rank: Option<i64>,
}

impl VersionValues {
    /// Of a version that the catalog has.
    pub(in crate::catalog) fn load(connection: &Connection, version: VersionId) -> Result<Option<Self>> {
        let mut statement = connection.prepare_cached(
            "SELECT id, name, document, begin, until, mtime, dated, size, settled, hashes, media, extra, object, served, change,
                 gone, came, went, ended, rank FROM version WHERE id = ?1",
        )?;
        Ok(statement.query_row([version], Self::of).optional()?)
    }

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            document: row.get(2)?,
            begin: row.get(3)?,
            until: row.get(4)?,
            mtime: row.get(5)?,
            dated: row.get(6)?,
            size: row.get(7)?,
            settled: row.get(8)?,
            hashes: row.get(9)?,
            media: row.get(10)?,
            extra: row.get(11)?,
            object: row.get(12)?,
            served: row.get(13)?,
            change: row.get(14)?,
            gone: row.get(15)?,
            came: row.get(16)?,
            went: row.get(17)?,
            ended: row.get(18)?,
            rank: row.get(19)?,
        })
    }

    /// Inserts the version.
    pub(in crate::catalog) fn insert(&self, connection: &Connection) -> Result<()> {
        connection
            .prepare_cached(
                "INSERT INTO version (id, name, document, begin, until, mtime, dated, size, settled, hashes, media, extra, object,
                     served, change, gone, came, went, ended, rank)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
            )?
            .execute(params![
                self.id,
                self.name,
                self.document,
                self.begin,
                self.until,
                self.mtime,
                self.dated,
                self.size,
                self.settled,
                self.hashes,
                self.media,
                self.extra,
                self.object,
                self.served,
                self.change,
                self.gone,
                self.came,
                self.went,
                self.ended,
                self.rank
            ])?;
        Ok(())
    }
}

/// What becomes of the member that a version has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::catalog) enum Existing {
    /// It stays.
    Keep,
    /// It stays if it is verified, or not yet verified in a package of which all is here; otherwise it is replaced by one of
    /// another package.
    Replace,
}

/// Gives a version a member as its content.
pub(in crate::catalog) fn insert_member(
    connection: &Connection,
    version: VersionId,
    row: &MemberRow,
    existing: Existing,
) -> Result<()> {
    connection
        .prepare_cached(
            concat!("INSERT INTO member (version, package, header, compressed, size, crc, name_length, deflated, hashes, coded, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (version) DO UPDATE SET package = excluded.package, header = excluded.header,
                 compressed = excluded.compressed, size = excluded.size, crc = excluded.crc,
                 name_length = excluded.name_length, deflated = excluded.deflated, hashes = excluded.hashes, state = ", unseen!(), "
             WHERE ?12 AND member.package != excluded.package AND ", not_here!("member.state"), "
               AND NOT (member.state = ", unseen!(), " AND EXISTS (SELECT 1 FROM package WHERE id = member.package AND whole))"),
        )?
        .execute(params![
            version,
            row.package,
            signed(row.header),
            signed(row.compressed),
            signed(row.size),
            row.crc,
            row.name_length,
            row.deflated,
            row.hashes.as_ref().map(Hashes::to_bytes),
            row.coded,
            row.state as i64,
            existing == Existing::Replace
        ])?;
    Ok(())
}
