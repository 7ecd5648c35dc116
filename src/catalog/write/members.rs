//! Members of packages: where in a package the content of a version lies, or a patch that makes it, and what was found of it.

use crate::catalog::model::ids::{NameId, VersionId};
use rusqlite::params;

use crate::catalog::error::CatalogError;
use crate::catalog::model::integers::signed;
use crate::catalog::model::members::{Attached, Looked, MemberRow, MemberState};
use crate::catalog::model::record::Record;
use crate::catalog::model::same_bytes::{Listed, Sameness};
use crate::catalog::write::insert::{Existing, insert_member};
use crate::catalog::write::transaction::Transaction;
use crate::document::Hashes;
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// A patch in a package makes a version of the one before it.
    pub fn attach_patch(&self, version: VersionId, media: &str, row: &MemberRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT OR IGNORE INTO patch (version, package, header, compressed, size, crc, name_length, deflated, type)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
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
                media
            ])?;
        Ok(())
    }

    /// The member that a version has as its content has been looked at.
    pub fn member_is(&self, looked: &Looked) -> Result<()> {
        let counts = self
            .connection()
            .prepare_cached(
                "UPDATE member SET state = ?2 WHERE version = ?1
                 AND EXISTS (SELECT 1 FROM package WHERE id = member.package AND epoch = ?3)",
            )?
            .execute(params![looked.version, looked.state as i64, looked.epoch])?;
        if counts > 0 && looked.state == MemberState::Damaged {
            self.past_changed(looked.version)?;
        }
        if let Some(sha256) = looked.sha256.filter(|_| counts > 0) {
            self.connection()
                .prepare_cached("UPDATE version SET served = ?2 WHERE id = ?1 AND served IS NULL")?
                .execute(params![looked.version, sha256.as_slice()])?;
        }
        Ok(())
    }

    /// Where a version of the past can be had has changed.
    fn past_changed(&self, version: VersionId) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE name SET changed = ?2 WHERE id = (SELECT name FROM version WHERE id = ?1 AND until IS NOT NULL)")?
            .execute(params![version, self.now])?;
        Ok(())
    }

    /// Gives a version that this step made, and of which a length is listed, a member as its content.
    fn attach_to_new(&self, version: VersionId, record: &Record, row: &MemberRow) -> Result<()> {
        let row = MemberRow { hashes: None, coded: record.coded, state: MemberState::Unseen, ..row.clone() };
        insert_member(self.connection(), version, &row, Existing::Keep)
    }

    /// A size that was not listed is what the package says, unless the content is coded.
    fn settle_to_member(&self, version: VersionId, row: &MemberRow) -> Result<()> {
        self.connection()
            .prepare_cached(
                "UPDATE version SET size = ?2, settled = 1
                 WHERE id = ?1 AND size IS NULL AND extra ->> '$.encoding' IS NULL",
            )?
            .execute(params![version, signed(row.size)])?;
        Ok(())
    }

    /// Gives a version that was just brought into the tree from a manifest a member as its content.
    pub fn attach(&self, version: VersionId, record: &Record, row: &MemberRow) -> Result<Attached> {
        if self.recent.same(record) == Some(version) && record.size.is_some() {
            self.attach_to_new(version, record, row)?;
            return Ok(Attached::New(version));
        }
        self.attach_to_any(version, row)?;
        Ok(Attached::Yes)
    }

    fn attach_to_any(&self, version: VersionId, row: &MemberRow) -> Result<()> {
        let (is_here, size, coded) = self
            .connection()
            .prepare_cached(
                "SELECT object IS NOT NULL, size, extra ->> '$.encoding' IS NOT NULL FROM version WHERE id = ?1",
            )?
            .query_row([version], |found| {
                Ok((found.get::<_, bool>(0)?, found.get::<_, Option<i64>>(1)?, found.get::<_, bool>(2)?))
            })?;
        // Content that is here already is as good, and stays.
        if !is_here && (coded || size.is_none_or(|size| size.unsigned_abs() == row.size)) {
            let row = MemberRow { coded, state: MemberState::Unseen, ..row.clone() };
            insert_member(self.connection(), version, &row, Existing::Replace)?;
        }
        self.past_changed(version)?;
        self.settle_to_member(version, row)
    }

    /// Gives the current version of the resource that `record` describes, as a manifest has it, a member
    /// as its content, if what is listed of it is the same: by hash, else by length and time; by length
    /// alone only if the list is as old as the manifest.
    pub fn attach_to_listed(
        &mut self,
        directory: NameId,
        record: &Record,
        row: &MemberRow,
        length_suffices: bool,
    ) -> Result<Attached> {
        if let Some(version) = self.recent.same(record).filter(|_| record.size.is_some()) {
            self.attach_to_new(version, record, row)?;
            return Ok(Attached::New(version));
        }
        let Some(version) = self.current(directory, record)? else { return Ok(Attached::NotListed) };
        let (sameness, fits, same_hashes) = self
            .connection()
            .prepare_cached(
                "SELECT mtime, dated, CASE WHEN settled THEN NULL ELSE size END, hashes, size,
                        extra ->> '$.encoding' IS NOT NULL FROM version WHERE id = ?1",
            )?
            .query_row([version], |found| {
                let hashes: Option<Vec<u8>> = found.get(3)?;
                let hashes = hashes.as_deref().map(Hashes::from_bytes).unwrap_or_default();
                let facts = Listed {
                    modified: (found.get::<_, u8>(1)? == 1).then_some(found.get(0)?),
                    size: found.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs),
                    hashes: &hashes,
                };
                let shown = found.get::<_, Option<i64>>(4)?.map(i64::unsigned_abs);
                // A size that was shown is never contradicted.
                let fits = found.get::<_, bool>(5)? == record.coded
                    && (record.coded || shown.is_none_or(|shown| shown == row.size));
                Ok((facts.compared_with(&Listed::of(record)), fits, hashes == record.hashes))
            })?;
        let agrees = match sameness {
            Sameness::Same => true,
            Sameness::InLength => length_suffices,
            Sameness::No => false,
        };
        if !agrees || !fits {
            return Ok(Attached::Other);
        }
        let hashes = (!same_hashes && !record.hashes.is_empty()).then(|| record.hashes.clone());
        self.attach_to_any(version, &MemberRow { hashes, ..row.clone() })?;
        Ok(Attached::Yes)
    }

    /// The current version of the resource at the path of `record`.
    fn current(&mut self, directory: NameId, record: &Record) -> Result<Option<VersionId>> {
        match self.find(directory, record)? {
            None => Ok(None),
            Some(row) if row.version.is_some() => Ok(row.version),
            Some(row) => Ok(self.child(row.id, SELF)?.and_then(|row| row.version)),
        }
    }
}
