//! How a transaction keeps the tree: directories, live counts, files that become directories.

use crate::catalog::model::ids::{NameId, SetId, VersionId};
use crate::document::Datetime;
use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, params};

use crate::catalog::db::last_names::LastNames;
use crate::catalog::db::names::place;
use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::{ROOT, directory_ino};
use crate::catalog::model::rows::Changes;
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// A row of `name`, as far as the writer needs it.
#[derive(Clone, Copy, Debug)]
pub(in crate::catalog) struct NameRow {
    pub(in crate::catalog) id: NameId,
    pub(in crate::catalog) version: Option<VersionId>,
    live: i64,
    hidden: i64,
}

impl NameRow {
    /// The row of a query for `id, version, live, hidden`.
    pub(in crate::catalog) fn of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, version: row.get(1)?, live: row.get(2)?, hidden: row.get(3)? })
    }

    /// Whether it was a file, and not shown as that.
    pub(in crate::catalog) fn was_left_out(&self) -> bool {
        self.live == 0 && self.hidden > 0
    }
}

/// What a transaction knows of the tree beyond the rows: live counts not yet written, the last path
/// walked, and what readers will have to be told.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Tree {
    /// By directory: how its number of live names changes, and that of those which are not shown, for directories whose names
    /// changed.
    deltas: HashMap<NameId, (i64, i64)>,
    /// By directory: since when, and until when, there were versions in it that this transaction knows of.
    spans: HashMap<NameId, (Datetime, Datetime)>,
    /// The directories of the last path that was walked, and of the last that was only looked for.
    chain: Chain,
    looked: Chain,
    /// Directories below which this transaction put or found a live file: they are live, whether or not
    /// the counts say so yet.
    walked: Numbers,
    /// Directories that a name went from: `@self` may be all that is left in them.
    shrunk: BTreeSet<NameId>,
    /// Directories that became files which are left out.
    collapsed: Vec<NameId>,
    /// Files that moved into a directory of their own name: their old and their new numbers.
    pub(in crate::catalog) moved: Vec<(NameId, NameId)>,
    /// The last name of directories that lists are written into.
    pub(in crate::catalog) last_names: LastNames,
    pub(in crate::catalog) next_name: NameId,
    /// When the step was begun, by our clock.
    now: Datetime,
    pub(in crate::catalog) changes: Changes,
}

/// The directories of a path, below the directory given first.
#[derive(Debug, Default)]
struct Chain {
    root: NameId,
    steps: Vec<(String, NameId)>,
}

impl Chain {
    /// Keeps what it has in common with another path; returns how long that is, and the directory there.
    fn keep(&mut self, root: NameId, names: &[String]) -> (usize, NameId) {
        if self.root != root {
            self.steps.clear();
            self.root = root;
        }
        let known = self.steps.iter().zip(names).take_while(|((known, _), name)| known == *name).count();
        self.steps.truncate(known);
        (known, self.steps.last().map_or(root, |(_, id)| *id))
    }

    fn push(&mut self, name: &str, id: NameId) {
        self.steps.push((name.to_owned(), id));
    }
}

/// A set of numbers of names: a bit for each, so that millions cost little.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Numbers(Vec<u64>);

impl Numbers {
    /// Adds a number; false if it was in already.
    pub(in crate::catalog) fn insert(&mut self, id: NameId) -> bool {
        let id = usize::try_from(id.number()).unwrap_or(0);
        let (word, bit) = (id / 64, 1_u64 << (id % 64));
        if word >= self.0.len() {
            self.0.resize((word + 1).max(self.0.len() * 2), 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    pub(in crate::catalog) fn contains(&self, id: NameId) -> bool {
        let id = usize::try_from(id.number()).unwrap_or(0);
        self.0.get(id / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}

/// Brings the versions of one name, the current one and those before it, to another.
fn rename(connection: &Connection, (name, current): (NameId, VersionId), to: NameId) -> Result<()> {
    connection.prepare_cached("UPDATE version SET name = ?2 WHERE id = ?1")?.execute(rusqlite::params![current, to])?;
    connection
        .prepare_cached("UPDATE version SET name = ?2 WHERE name = ?1 AND until IS NOT NULL")?
        .execute(rusqlite::params![name, to])?;
    Ok(())
}

/// Widens the spans of a directory and of those above it, as far up as they are not wide enough.
pub(in crate::catalog) fn widen(
    connection: &Connection,
    directory: NameId,
    born: Datetime,
    died: Datetime,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE name SET born = min(COALESCE(born, ?2), ?2), died = max(COALESCE(died, ?3), ?3)
         WHERE id = ?1 AND (born IS NULL OR born > ?2 OR died < ?3) RETURNING parent",
    )?;
    let mut at = directory;
    while at.number() > 0 {
        match statement.query_row(params![at, born, died], |row| row.get(0)).optional()? {
            Some(parent) => at = parent,
            None => break,
        }
    }
    Ok(())
}

/// Above this, counts are written before the end of the transaction.
const MOST_DELTAS: usize = 200_000;

/// A name that comes into the tree.
#[derive(Clone, Copy, Debug)]
pub(in crate::catalog) struct NewName<'n> {
    pub(in crate::catalog) parent: NameId,
    pub(in crate::catalog) name: &'n str,
    pub(in crate::catalog) rset: SetId,
    /// Of its resource, where its path does not tell.
    pub(in crate::catalog) uri: Option<&'n str>,
    pub(in crate::catalog) version: Option<VersionId>,
}

impl<'n> NewName<'n> {
    /// Of no resource, or none that is there.
    pub(in crate::catalog) fn directory(parent: NameId, name: &'n str, rset: SetId) -> Self {
        Self { parent, name, rset, uri: None, version: None }
    }
}

impl Tree {
    /// The tree as the rows have it; `next_name` is the first number not yet used.
    pub(in crate::catalog) fn new(next_name: NameId, now: Datetime) -> Self {
        Self { next_name, now, ..Self::default() }
    }

    /// The number of a name to be written.
    pub(in crate::catalog) fn new_name(&mut self) -> NameId {
        let id = self.next_name;
        self.next_name = id.next();
        id
    }

    pub(in crate::catalog) fn row(connection: &Connection, parent: NameId, name: &str) -> Result<Option<NameRow>> {
        let mut statement =
            connection.prepare_cached("SELECT id, version, live, hidden FROM name WHERE parent = ?1 AND name = ?2")?;
        Ok(statement.query_row(params![parent, name], NameRow::of).optional()?)
    }

    /// Whether live names lie in the directory, those of this transaction counted.
    pub(in crate::catalog) fn is_live_directory(&self, row: NameRow) -> bool {
        row.version.is_none()
            && (self.walked.contains(row.id) || row.live + self.deltas.get(&row.id).map_or(0, |(live, _)| *live) > 0)
    }

    pub(in crate::catalog) fn insert(&mut self, connection: &Connection, new: NewName<'_>) -> Result<NameId> {
        let NewName { parent, name, rset, uri, version } = new;
        let id = self.new_name();
        let mut statement = connection.prepare_cached(
            "INSERT INTO name (id, parent, name, rset, uri, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        statement.execute(params![id, parent, name, rset, uri, version])?;
        self.last_names.put(parent, name);
        Ok(id)
    }

    /// The directory at `names` below `root`, made where it is missing. A file on the way becomes
    /// `@self` in a directory of its name; `uri_of` says what its URI is.
    pub(in crate::catalog) fn directory(
        &mut self,
        connection: &Connection,
        (root, names): (NameId, &[String]),
        rset: SetId,
        uri_of: &mut dyn FnMut(NameId) -> Result<String>,
    ) -> Result<NameId> {
        let (known, mut at) = self.chain.keep(root, names);
        for name in &names[known..] {
            let id = match Self::row(connection, at, name)? {
                None => self.insert(connection, NewName::directory(at, name, rset))?,
                Some(row) => {
                    if let Some(version) = row.version {
                        let uri = uri_of(row.id)?;
                        self.file_to_directory(connection, (at, name), (row, version), &uri)?;
                    } else if row.live == 0 {
                        self.keep_history(connection, row, rset)?;
                    }
                    row.id
                }
            };
            self.chain.push(name, id);
            self.walked.insert(id);
            at = id;
        }
        Ok(at)
    }

    /// The directory at `names` below `root`, if it is the one that was walked to last.
    pub(in crate::catalog) fn at(&self, root: NameId, names: &[String]) -> Option<NameId> {
        let Chain { root: from, steps } = &self.chain;
        let there = *from == root && steps.len() == names.len() && steps.iter().map(|(name, _)| name).eq(names);
        there.then(|| steps.last().map_or(root, |(_, id)| *id))
    }

    /// The name at `names` below `root`, if there is one: be it a directory, or one that was, or will be.
    pub(in crate::catalog) fn find(
        &mut self,
        connection: &Connection,
        root: NameId,
        names: &[String],
    ) -> Result<Option<NameId>> {
        let (known, mut at) = self.looked.keep(root, names);
        for name in &names[known..] {
            let Some(row) = Self::row(connection, at, name)? else { return Ok(None) };
            self.looked.push(name, row.id);
            at = row.id;
        }
        Ok(Some(at))
    }

    fn file_to_directory(
        &mut self,
        connection: &Connection,
        (parent, name): (NameId, &str),
        (NameRow { id, hidden, .. }, version): (NameRow, VersionId),
        uri: &str,
    ) -> Result<()> {
        // It stays its own set's, whichever set makes it a directory.
        let rset: SetId = connection
            .prepare_cached("UPDATE name SET version = NULL, uri = NULL, hidden = 0 WHERE id = ?1 RETURNING rset")?
            .query_row([id], |row| row.get(0))?;
        self.count(connection, parent, name, -1)?;
        self.hide(connection, parent, -hidden)?;
        let moved = match Self::row(connection, id, SELF)? {
            Some(row) => {
                connection
                    .prepare_cached("UPDATE name SET version = ?2, uri = ?3, rset = ?4 WHERE id = ?1")?
                    .execute(params![row.id, version, uri, rset])?;
                row.id
            }
            None => {
                let new = NewName { parent: id, name: SELF, rset, uri: Some(uri), version: Some(version) };
                self.insert(connection, new)?
            }
        };
        rename(connection, (id, version), moved)?;
        let (born, died): (Datetime, Datetime) = connection
            .prepare_cached(
                "SELECT min(v.begin, COALESCE((SELECT min(begin) FROM version WHERE name = ?1 AND until IS NOT NULL), v.begin)),
                        COALESCE(max(COALESCE(v.until, p.until), COALESCE(p.until, v.until)), v.begin)
                 FROM version v, (SELECT max(until) AS until FROM version WHERE name = ?1 AND until IS NOT NULL) p WHERE v.id = ?2",
            )?
            .query_row(params![moved, version], |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.span(id, born, died);
        self.moved.push((id, moved));
        connection.prepare_cached("UPDATE name SET hidden = ?2 WHERE id = ?1")?.execute(params![moved, hidden])?;
        self.hide(connection, id, hidden)?;
        self.count(connection, id, SELF, 1)
    }

    /// A live name appeared in (+1), went from (-1), or changed in (0) a directory.
    pub(in crate::catalog) fn count(
        &mut self,
        connection: &Connection,
        directory: NameId,
        name: &str,
        delta: i64,
    ) -> Result<()> {
        if delta < 0 {
            self.shrunk.insert(directory);
        }
        self.changes.name(directory_ino(directory), name);
        self.count_many(connection, directory, delta)
    }

    /// So many live names appeared in a directory.
    pub(in crate::catalog) fn count_many(
        &mut self,
        connection: &Connection,
        directory: NameId,
        delta: i64,
    ) -> Result<()> {
        self.deltas.entry(directory).or_default().0 += delta;
        if self.deltas.len() > MOST_DELTAS {
            self.settle(connection, self.now)?;
        }
        Ok(())
    }

    /// So many more live names of a directory are not shown.
    pub(in crate::catalog) fn hide(&mut self, connection: &Connection, directory: NameId, delta: i64) -> Result<()> {
        if delta != 0 {
            self.deltas.entry(directory).or_default().1 += delta;
            self.count_many(connection, directory, 0)?;
        }
        Ok(())
    }

    /// In this directory there were versions from `born` on, and none that is not live from `died` on.
    pub(in crate::catalog) fn span(&mut self, directory: NameId, born: Datetime, died: Datetime) {
        let span = self.spans.entry(directory).or_insert((Datetime::MAX, Datetime::MIN));
        *span = (span.0.min(born), span.1.max(died));
    }

    /// Widens the spans of directories, as far up as they are not wide enough.
    fn settle_spans(&mut self, connection: &Connection) -> Result<()> {
        for (directory, (born, died)) in std::mem::take(&mut self.spans) {
            widen(connection, directory, born, died)?;
        }
        Ok(())
    }

    /// A name that becomes a directory may have been a resource's once: that is found under `@self` then.
    fn keep_history(
        &mut self,
        connection: &Connection,
        NameRow { id: name, hidden, .. }: NameRow,
        rset: SetId,
    ) -> Result<()> {
        let was_resource: bool = connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM version WHERE name = ?1 AND until IS NOT NULL)")?
            .query_row([name], |row| row.get(0))?;
        if was_resource {
            // Where it lay beside what was in its directory, there is one already.
            let own = match Self::row(connection, name, SELF)? {
                Some(own) => (hidden != 0).then_some(own.id),
                None => Some(self.insert(connection, NewName::directory(name, SELF, rset))?),
            };
            if let Some(own) = own {
                connection
                    .prepare_cached("UPDATE name SET hidden = ?2 WHERE id = ?1 AND version IS NULL")?
                    .execute(params![own, hidden])?;
            }
        }
        if hidden != 0 {
            connection.prepare_cached("UPDATE name SET hidden = 0 WHERE id = ?1")?.execute([name])?;
        }
        Ok(())
    }

    /// Something lay in a name.
    pub(in crate::catalog) fn was_directory(
        &mut self,
        connection: &Connection,
        row: NameRow,
        rset: SetId,
    ) -> Result<()> {
        if row.version.is_none() && row.live == 0 { self.keep_history(connection, row, rset) } else { Ok(()) }
    }

    /// A name in which something lies, or lay, has its own resource, if there is one, under `@self`: then also
    /// where nothing is left in it.
    pub(in crate::catalog) fn ensure_self(&mut self, connection: &Connection, name: NameId, rset: SetId) -> Result<()> {
        let was_directory: bool = connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM name WHERE parent = ?1)")?
            .query_row([name], |row| row.get(0))?;
        if was_directory && Self::row(connection, name, SELF)?.is_none() {
            self.insert(connection, NewName::directory(name, SELF, rset))?;
        }
        Ok(())
    }

    /// Writes the counts, up to the root; `now` becomes the time of each directory that changed.
    pub(in crate::catalog) fn settle(&mut self, connection: &Connection, now: Datetime) -> Result<()> {
        self.settle_spans(connection)?;
        let mut update = connection.prepare_cached(
            "UPDATE name SET live = live + ?2, hidden = hidden + ?4, changed = max(changed, ?3) WHERE id = ?1
             RETURNING live, hidden, parent, name",
        )?;
        while !self.deltas.is_empty() {
            for (directory, (delta, more_hidden)) in std::mem::take(&mut self.deltas) {
                self.changes.directories.insert(directory_ino(directory));
                let (live, hidden, parent, name): (i64, i64, NameId, String) = update
                    .query_row(params![directory, delta, now, more_hidden], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                    })?;
                let (live_before, hidden_before) = (live - delta, hidden - more_hidden);
                let appeared = i64::from(live > 0) - i64::from(live_before > 0);
                let is_hidden = |live: i64, hidden: i64| i64::from(live > 0 && live <= hidden);
                let went_hidden = is_hidden(live, hidden) - is_hidden(live_before, hidden_before);
                if (appeared, went_hidden) != (0, 0) && directory != ROOT {
                    let above = self.deltas.entry(parent).or_default();
                    *above = (above.0 + appeared, above.1 + went_hidden);
                    if appeared < 0 {
                        self.shrunk.insert(parent);
                    }
                    self.changes.name(directory_ino(parent), &name);
                }
            }
        }
        Ok(())
    }

    /// To be called when all counts are written: what became a file that is left out counts nothing any more.
    pub(in crate::catalog) fn mark_collapsed(&mut self, connection: &Connection) -> Result<()> {
        for name in std::mem::take(&mut self.collapsed) {
            connection
                .prepare_cached("UPDATE name SET hidden = 1 WHERE id = ?1 AND version IS NOT NULL")?
                .execute([name])?;
        }
        Ok(())
    }

    /// Directories of this transaction in which nothing but `@self` is left: their resource is a
    /// prefix of no other any more, and takes the directory's own name again.
    pub(in crate::catalog) fn collapse(&mut self, connection: &Connection) -> Result<()> {
        let mut shrunk = std::mem::take(&mut self.shrunk);
        // A directory that came and went in the same step leaves no trace in the one above it but this.
        for directory in shrunk.clone() {
            let mut at = directory;
            while at != ROOT {
                let (live, parent): (i64, NameId) = connection
                    .prepare_cached("SELECT live, parent FROM name WHERE id = ?1")?
                    .query_row([at], |row| Ok((row.get(0)?, row.get(1)?)))?;
                if live > 0 {
                    break;
                }
                shrunk.insert(parent);
                at = parent;
            }
        }
        for directory in shrunk {
            let lone: Option<(NameId, VersionId, Option<String>, i64, i64)> = connection
                .prepare_cached(
                    "SELECT s.id, s.version, s.uri, s.rset, s.hidden FROM name s
                     WHERE s.parent = ?1 AND s.name = ?2 AND s.version IS NOT NULL
                       AND (SELECT live FROM name WHERE id = ?1) = 1",
                )?
                .query_row(params![directory, SELF], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                })
                .optional()?;
            let Some((id, version, uri, rset, hidden)) = lone else { continue };
            let (parent, name) = place(connection, directory)?;
            connection.prepare_cached("UPDATE name SET version = NULL, hidden = 0 WHERE id = ?1")?.execute([id])?;
            connection
                .prepare_cached("UPDATE name SET version = ?2, uri = ?3, rset = ?4 WHERE id = ?1")?
                .execute(params![directory, version, uri, rset])?;
            rename(connection, (id, version), directory)?;
            self.count(connection, directory, SELF, -1)?;
            // The file counts in the parent in the directory's stead, which settling takes away.
            self.count(connection, parent, &name, 1)?;
            self.collapsed.extend((hidden != 0).then_some(directory));
            self.hide(connection, directory, -hidden)?;
            self.hide(connection, parent, hidden)?;
        }
        Ok(())
    }
}
