//! What a transaction notes of sets, and of the documents that they are made from.

use crate::catalog::db::tree::NewName;
use crate::catalog::model::ids::{DocumentId, SetId};
use std::collections::HashSet;

use rusqlite::{OptionalExtension, params};

use crate::catalog::db::meta::{behind_key, listed_key, meta, set_meta};
use crate::catalog::error::CatalogError;
use crate::catalog::model::inode::ROOT;
use crate::catalog::model::rows::{DocumentRow, Seed, SetState, SyncResult};
use crate::catalog::write::transaction::Transaction;
use crate::catalog::write::writer::Writer;
use crate::document::Datetime;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// The set described by `key`, made where there is none: at the root, or in the directory `label`.
    pub fn set(&mut self, key: &str, label: &str, own_directory: bool) -> Result<SetId> {
        let known: Option<SetId> =
            self.transaction.query_row("SELECT id FROM rset WHERE key = ?1", [key], |row| row.get(0)).optional()?;
        if let Some(id) = known {
            return Ok(id);
        }
        self.transaction.execute(
            "INSERT INTO rset (key, label, directory, state) VALUES (?1, ?2, ?3, 'empty')",
            params![key, label, ROOT],
        )?;
        let id = SetId::new(self.transaction.last_insert_rowid());
        if own_directory {
            let directory = self.tree.insert(&self.transaction, NewName::directory(ROOT, label, id))?;
            self.transaction.execute("UPDATE rset SET directory = ?2 WHERE id = ?1", params![id, directory])?;
        }
        Ok(id)
    }

    /// Keeps what is known of a document, and returns its number.
    pub fn put_document(&self, rset: SetId, document: &DocumentRow) -> Result<DocumentId> {
        Ok(self
            .transaction
            .prepare_cached(
                "INSERT INTO document (rset, url, etag, last_modified, at, part, entries, package, next)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (rset, url) DO UPDATE SET etag = excluded.etag, last_modified = excluded.last_modified,
                     at = excluded.at, part = excluded.part, entries = excluded.entries, package = excluded.package,
                     next = excluded.next
                 RETURNING id",
            )?
            .query_row(
                params![
                    rset,
                    document.url,
                    document.etag,
                    document.last_modified,
                    document.at.map(Datetime::nanos),
                    document.part,
                    i64::try_from(document.entries).unwrap_or(i64::MAX),
                    document.package,
                    document.next
                ],
                |row| row.get(0),
            )?)
    }

    /// Lets all documents of a set be read again, whether they changed or not.
    pub fn forget_validators(&self, rset: SetId) -> Result<()> {
        self.transaction.execute("UPDATE document SET etag = NULL, last_modified = NULL WHERE rset = ?1", [rset])?;
        Ok(())
    }

    /// Forgets the documents of a set that are none of these.
    pub fn forget_documents(&self, rset: SetId, kept: &HashSet<DocumentId>) -> Result<()> {
        let known: Vec<DocumentId> = self
            .transaction
            .prepare_cached("SELECT id FROM document WHERE rset = ?1")?
            .query_map([rset], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for id in known.iter().filter(|id| !kept.contains(id)) {
            self.transaction.execute("DELETE FROM document WHERE id = ?1", [id])?;
        }
        Ok(())
    }

    /// Notes how a sync of a set ended.
    pub fn finish_set(&self, rset: SetId, result: &SyncResult) -> Result<()> {
        self.transaction.execute(
            "UPDATE rset SET state = ?2, cursor = max(COALESCE(?3, cursor), COALESCE(cursor, ?3)),
             at = COALESCE(?4, at), synced = ?5, held = ?6, held_edition = ?7 WHERE id = ?1",
            params![
                rset,
                result.state.name(),
                result.cursor.map(Datetime::nanos),
                result.at.map(Datetime::nanos),
                Datetime::now().nanos(),
                result.held.and_then(|held| i64::try_from(held).ok()),
                result.held_edition
            ],
        )?;
        // What is of the future was not made by a clock that tells anything.
        result.at.filter(|at| *at <= Datetime::now()).map_or(Ok(()), |at| self.put_snapshot(rset, at, true))
    }

    /// Notes that changes were applied, the oldest of them at `oldest`, while not all of the lists is in the tree: changes that are
    /// older than one of its documents may lie over what that lists.
    pub fn note_changes_over_lists(&self, rset: SetId, oldest: Datetime) -> Result<()> {
        let newer = "SELECT EXISTS (SELECT 1 FROM document WHERE rset = ?1 AND COALESCE(at, ?3) > ?2)";
        let is_older: bool =
            self.connection().query_row(newer, params![rset, oldest.nanos(), i64::MAX], |row| row.get(0))?;
        match is_older {
            true => set_meta(self.connection(), &changes_over_lists_key(rset), "yes"),
            false => Ok(()),
        }
    }

    /// Notes that no older change lies over what the lists of a set list.
    pub fn lists_are_on_top(&self, rset: SetId) -> Result<()> {
        set_meta(self.connection(), &changes_over_lists_key(rset), "")
    }

    /// Whether a change may lie over what newer lists of a set list. Of a cache in which neither was ever noted, that is so where
    /// not all of its lists is in the tree.
    pub fn has_changes_over_lists(&self, rset: SetId, state: SetState) -> Result<bool> {
        let noted = meta(self.connection(), &changes_over_lists_key(rset))?;
        Ok(noted.map_or(matches!(state, SetState::Partial | SetState::Held), |noted| !noted.is_empty()))
    }

    /// Has the lists of a set read with its next sync, or looked at.
    pub fn want_lists(&self, rset: SetId) -> Result<()> {
        set_meta(self.connection(), &listed_key(rset), "")
    }

    /// Notes that the changes of a set were followed, and from what.
    pub fn followed(&self, rset: SetId, state: SetState, how: &str, why: &str) -> Result<()> {
        self.transaction.execute(
            "UPDATE rset SET state = ?2, synced = ?3, follows = ?4, follows_why = ?5 WHERE id = ?1",
            params![rset, state.name(), Datetime::now().nanos(), how, why],
        )?;
        Ok(())
    }

    /// Notes what a set is first filled from, and why.
    pub fn set_seed(&self, rset: SetId, seed: &Seed) -> Result<()> {
        self.transaction
            .execute("UPDATE rset SET seed = ?2, why = ?3 WHERE id = ?1", params![rset, seed.from, seed.why])?;
        Ok(())
    }
}

/// Where it is kept that changes may have been applied that are older than lists: `yes`, or an empty text.
fn changes_over_lists_key(rset: SetId) -> String {
    format!("changes over lists {rset}")
}

impl Writer {
    /// Notes that the lists of a set were read or found unchanged.
    pub fn note_listed(&self, rset: SetId, when: Datetime) -> Result<()> {
        self.set_meta(&listed_key(rset), &when.nanos().to_string())
    }

    /// Notes why not all of a set is in step; `None` if it is.
    pub fn note_behind(&self, rset: SetId, why: Option<&str>) -> Result<()> {
        self.set_meta(&behind_key(rset), why.unwrap_or_default())
    }
}
