//! Many resources of a list at once: rows that are known to be new are written many to a statement.
//!
//! A name that comes after all that its directory holds is not in it. So a resource whose name does needs no look
//! into the tables, and lists that go through each directory in order, as most do, are written as fast as
//! SQLite appends. Everything else goes the way of [`Transaction::upsert`].
//!
//! What was tried, on 3.77 million resources, the rows alone (seconds of one core, before the commit): a look for the name
//! and a row to a statement 5.8; without the look 4.6; ten rows to a statement 3.3; a hundred 3.5. The index
//! made after the rows costs what it saves. Without a write-ahead log it would be 2.7, and a crash would
//! be a cache to be made anew.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};

use super::CatalogError;
use super::changes::How;
use super::record::Record;
use super::rows::{Outcome, Upserted};
use super::transaction::Transaction;
use crate::document::Change;

type Result<T> = std::result::Result<T, CatalogError>;

/// How many rows a statement writes: as many of the first as there are rows for, then of the next.
const AT_ONCE: [usize; 3] = [32, 8, 1];
/// Of more directories than these, the last name is looked up again.
const MOST_DIRECTORIES: usize = 10_000;

/// The last name of each directory, in the order of bytes, as far as it was asked for.
#[derive(Debug, Default)]
pub(super) struct LastNames(HashMap<i64, String>);

impl LastNames {
    /// A name was put into a directory.
    pub(super) fn put(&mut self, directory: i64, name: &str) {
        if let Some(last) = self.0.get_mut(&directory)
            && name > last.as_str()
        {
            name.clone_into(last);
        }
    }

    /// The last name of a directory; empty for one that holds none.
    fn of(&mut self, connection: &Connection, directory: i64) -> Result<&mut String> {
        if self.0.len() >= MOST_DIRECTORIES && !self.0.contains_key(&directory) {
            self.0.clear();
        }
        Ok(match self.0.entry(directory) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(unknown) => {
                let last: Option<String> = connection
                    .prepare_cached("SELECT name FROM name WHERE parent = ?1 ORDER BY name DESC LIMIT 1")?
                    .query_row([directory], |row| row.get(0))
                    .optional()?;
                unknown.insert(last.unwrap_or_default())
            }
        })
    }
}

/// A version to be written.
pub(super) struct NewVersion<'r> {
    pub(super) id: i64,
    pub(super) name: i64,
    pub(super) record: &'r Record,
    pub(super) media: Option<i64>,
    /// The content of the version before it, and its size, where the bytes are the same.
    pub(super) object: Option<i64>,
    pub(super) size: Option<i64>,
}

/// New resources of one directory, not written yet.
#[derive(Default)]
struct Run<'r> {
    parent: i64,
    versions: Vec<NewVersion<'r>>,
}

/// Rows of so many parameters each, for a statement.
fn rows(count: usize, parameters: usize, constants: &str) -> String {
    let row = format!("({}{constants})", vec!["?"; parameters].join(", "));
    vec![row; count].join(", ")
}

/// Calls `write` with as many rows at once as there are.
fn in_parts<T>(mut all: &[T], mut write: impl FnMut(&[T]) -> Result<()>) -> Result<()> {
    for count in AT_ONCE {
        while let Some((part, rest)) = all.split_at_checked(count) {
            write(part)?;
            all = rest;
        }
    }
    Ok(())
}

impl Transaction<'_> {
    /// Brings resources of a list into the tree, in their order, as [`Transaction::upsert`] does; tells of each
    /// what it came to. `directory` is the set's.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn upsert_all(
        &mut self,
        rset: i64,
        directory: i64,
        document: i64,
        records: &[Record],
    ) -> Result<Vec<Upserted>> {
        let mut came = Vec::with_capacity(records.len());
        let mut run = Run::default();
        for record in records {
            match self.is_next(directory, record, &mut run)? {
                Some(name) => came.push(self.add_to(&mut run, name, record)?),
                None => {
                    // What is still to be written must be in the tables, or it would not be found.
                    self.write(&mut run, rset, document)?;
                    came.push(self.upsert(rset, directory, document, record)?);
                    run.parent = self.parent_of(directory, record);
                }
            }
        }
        self.write(&mut run, rset, document)?;
        Ok(came)
    }

    /// The directory of a resource, if it is the one that was walked to last; otherwise 0.
    fn parent_of(&self, directory: i64, record: &Record) -> i64 {
        let above = record.path.names.split_last().map(|(_, above)| above);
        above.and_then(|above| self.tree.at(directory, above)).unwrap_or(0)
    }

    /// The name of a resource that lies in the directory of the run, and after all that is there.
    fn is_next<'r>(&mut self, directory: i64, record: &'r Record, run: &mut Run<'_>) -> Result<Option<&'r str>> {
        let Some((name, above)) = record.path.names.split_last() else { return Ok(None) };
        if run.parent == 0 || self.tree.at(directory, above) != Some(run.parent) || !record.mementos.is_empty() {
            return Ok(None);
        }
        let last = self.tree.last_names.of(&self.transaction, run.parent)?;
        if name.as_str() <= last.as_str() {
            return Ok(None);
        }
        name.clone_into(last);
        Ok(Some(name))
    }

    fn add_to<'r>(&mut self, run: &mut Run<'r>, name: &str, record: &'r Record) -> Result<Upserted> {
        let media = self.media(record.media.as_deref())?;
        let (id, version) = (self.tree.next_name, self.next_version);
        self.tree.next_name += 1;
        self.next_version += 1;
        self.seen.insert(id);
        self.recent.add(record, version);
        self.tree.changes.name(super::directory_ino(run.parent), name);
        run.versions.push(NewVersion { id: version, name: id, record, media, object: None, size: None });
        Ok(Upserted { outcome: Outcome::Added, version: Some(version) })
    }

    /// Writes what a run gathered.
    fn write(&mut self, run: &mut Run<'_>, rset: i64, document: i64) -> Result<()> {
        if run.versions.is_empty() {
            return Ok(());
        }
        let parent = run.parent;
        in_parts(&run.versions, |part| {
            let mut statement = self.transaction.prepare_cached(&format!(
                "INSERT INTO name (id, parent, name, rset, uri, version, born, died) VALUES {}",
                rows(part.len(), 6, ", 9223372036854775807, -9223372036854775808")
            ))?;
            for (version, first) in part.iter().zip((1..).step_by(6)) {
                let path = &version.record.path;
                statement.raw_bind_parameter(first, version.name)?;
                statement.raw_bind_parameter(first + 1, parent)?;
                statement.raw_bind_parameter(first + 2, path.names.last())?;
                statement.raw_bind_parameter(first + 3, rset)?;
                statement.raw_bind_parameter(first + 4, path.uri_needed.then_some(version.record.uri.as_str()))?;
                statement.raw_bind_parameter(first + 5, version.id)?;
            }
            statement.raw_execute()?;
            Ok(())
        })?;
        self.insert_versions(&run.versions, document, How::listed(Change::Created))?;
        let begin = run.versions.iter().map(|version| version.record.begin.nanos()).min().unwrap_or(i64::MAX);
        self.tree.span(parent, begin, i64::MIN);
        self.tree.changes.from(begin);
        let count = i64::try_from(run.versions.len()).unwrap_or(i64::MAX);
        self.tree.count_many(&self.transaction, parent, count)?;
        *self.resources.entry(rset).or_insert(0) += count;
        run.versions.clear();
        Ok(())
    }

    /// Writes versions that a document lists.
    pub(super) fn insert_versions(&self, versions: &[NewVersion<'_>], document: i64, how: How) -> Result<()> {
        // Of what came with the first lists, that is all there is to say.
        let change = self.sync.map(|_| how.number());
        in_parts(versions, |part| {
            // No expression of a parameter here: SQLite would plan it anew for each value.
            let mut statement = self.transaction.prepare_cached(&format!(
                "INSERT INTO version (id, name, document, begin, mtime, dated, size, settled, hashes, media, extra, object,
                     change, came) VALUES {}",
                rows(part.len(), 14, "")
            ))?;
            for (version, first) in part.iter().zip((1..).step_by(14)) {
                let record = version.record;
                let listed = record.size.and_then(|size| i64::try_from(size).ok());
                statement.raw_bind_parameter(first, version.id)?;
                statement.raw_bind_parameter(first + 1, version.name)?;
                statement.raw_bind_parameter(first + 2, document)?;
                statement.raw_bind_parameter(first + 3, record.begin.nanos())?;
                statement.raw_bind_parameter(first + 4, record.mtime.nanos())?;
                statement.raw_bind_parameter(first + 5, record.dated)?;
                statement.raw_bind_parameter(first + 6, listed.or(version.size))?;
                statement.raw_bind_parameter(first + 7, listed.is_none())?;
                statement
                    .raw_bind_parameter(first + 8, (!record.hashes.is_empty()).then(|| record.hashes.to_bytes()))?;
                statement.raw_bind_parameter(first + 9, version.media)?;
                statement.raw_bind_parameter(first + 10, record.extra.as_deref())?;
                statement.raw_bind_parameter(first + 11, version.object)?;
                statement.raw_bind_parameter(first + 12, change)?;
                statement.raw_bind_parameter(first + 13, self.sync)?;
            }
            statement.raw_execute()?;
            Ok(())
        })
    }
}
