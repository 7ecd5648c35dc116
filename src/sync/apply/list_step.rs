//! One step of the writer that applies the lists of a set (core 10, 11): all of it, or nothing.
//!
//! **Owns** what is decided between the first list and the commit: whether all of them were read whole, and so what of the
//! resources that none of them lists is deleted, and what stays.
//!
//! **Assumes** that all documents were downloaded before.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::attach::Attacher;
use super::step_context::StepContext;
use crate::catalog::{
    CatalogError, Changes, DocumentId, DocumentRow, Outcome, Recent, SetRow, SetState, Snapshot, SyncResult, Tally,
    Transaction, Writer,
};
use crate::document::{Datetime, Warnings};
use crate::sync::documents::fetch::{Budget, Lists, Scope, UnsettledKind};
use crate::sync::documents::listing::{Readers, Reading};
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{editions, fetch};
use crate::sync::summary::Summary;
use crate::sync::transfer::package::NewMembers;

/// What one step applies.
pub(super) struct Work {
    pub(super) lists: Lists,
    pub(super) scope: Scope,
    /// When the snapshot of the dump began that gives content.
    pub(super) dumped: Option<Datetime>,
    pub(super) accept_deletions: bool,
    /// Whether changes are followed, or notified of, so that the tree may be newer than its lists.
    pub(super) followed: bool,
    /// When an earlier edition of them was read.
    pub(super) listed: Option<Datetime>,
    /// For what follows this step.
    pub(super) recent: Recent,
    /// What may still be read.
    pub(super) budget: Arc<Budget>,
}

/// What a step that was applied leaves for those that follow it.
pub(super) struct Applied {
    pub(super) summary: Summary,
    /// What was new.
    pub(super) recent: Recent,
    /// Members that were given to versions.
    pub(super) fresh: Vec<NewMembers>,
    /// Whether this edition, which has no time, was read before.
    pub(super) is_known: bool,
}

/// Applies documents in one transaction. It is undone, and the answer is `None`, if documents that have not changed are to be
/// read, too: only they show whether they list a resource that no other document lists.
pub(super) fn apply(
    writer: &mut Writer,
    context: &StepContext,
    set: &SetRow,
    mut work: Work,
) -> Result<(Option<Applied>, Changes), CatalogError> {
    let known = writer.documents(set.id)?;
    let mut transaction = writer.begin(true)?;
    transaction.remember(std::mem::take(&mut work.recent));
    if set.state != SetState::Empty {
        transaction.begin_sync()?;
    }
    let edition = ListEdition::of(&work, set, &transaction)?;
    let mut step = ListStep {
        complete: work.lists.failed.is_empty() && work.scope != Scope::Additions,
        waits: false,
        held: None,
        current: work.lists.unchanged.iter().map(|row| row.id).collect(),
        whole_documents: Vec::new(),
        fresh: Vec::new(),
        summary: Summary { not_modified: work.lists.unchanged.len() as u64, ..Summary::default() },
        transaction,
        context,
        set,
        work,
        edition,
    };
    step.keep_what_was_not_read(&known)?;
    step.read()?;
    if step.part_with_unlisted(&known)? == Unlisted::MayBeHidden {
        return Ok((None, Changes::default()));
    }
    step.note_documents()?;
    step.finish_set()?;
    step.commit()
}

/// Of which edition the lists of a step are.
struct ListEdition {
    /// Their time, where all of them have one.
    cursor: Option<Datetime>,
    /// What tells it from others, if any of it was sent.
    name: Option<String>,
    /// The same, if it has no time, and all of it was sent.
    timeless: Option<String>,
    /// What tells one state of its documents from the next.
    state: String,
    /// Whether that of no time was read before.
    is_known: bool,
    /// The earliest moment at which it was begun, if it has no time.
    begun: Option<Datetime>,
    /// From when it makes up the tree.
    made_up: Option<Datetime>,
    /// Whether any of it was sent.
    was_sent: bool,
    from_dump: bool,
}

impl ListEdition {
    fn of(work: &Work, set: &SetRow, transaction: &Transaction<'_>) -> Result<Self, CatalogError> {
        let lists = &work.lists;
        let (cursor, name) = (lists.cursor(), lists.edition());
        let was_sent = !lists.read.is_empty();
        // A list of which it is not known when it was made undoes no change, but where it has changed since it was read last.
        let timeless = name.clone().filter(|_| cursor.is_none() && lists.unchanged.is_empty());
        let (before, is_known) = match &timeless {
            Some(name) => (transaction.edition_before(set.id, name)?, transaction.is_edition_known(set.id, name)?),
            None => (None, false),
        };
        let begun = before.map(Snapshot::earliest);
        // Of lists of which a part was not sent again, what was sent is new.
        let is_new = cursor.is_none() && was_sent && !lists.unchanged.is_empty();
        let made_up = cursor.or(begun).or(work.listed.filter(|_| is_new).map(Snapshot::earliest));
        let from_dump = lists.read.iter().any(|document| document.row.package.is_some());
        let state = editions::state(lists);
        Ok(Self { cursor, name, timeless, state, is_known, begun, made_up, was_sent, from_dump })
    }

    /// What a document of this time says nothing of, where changes are followed.
    fn snapshot(&self, at: Option<Datetime>, work: &Work) -> Option<Snapshot> {
        let timeless = || Snapshot::begun_after(self.begun);
        work.followed.then(|| at.map_or_else(timeless, |at| Snapshot::new(at, work.listed)))
    }
}

/// What becomes of the resources that no document lists any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unlisted {
    /// A document that was not sent again may list them, or what they were before a change: all are to be read.
    MayBeHidden,
    /// They stay, and belong to no list: not all was read, or the documents may be being written.
    Stay,
    /// So many stay until another edition agrees.
    Held(u64),
    /// None is missing, or those that are can be deleted.
    Gone(u64),
}

struct ListStep<'s, 'w> {
    transaction: Transaction<'w>,
    context: &'s StepContext,
    set: &'s SetRow,
    work: Work,
    edition: ListEdition,
    /// Whether all that is listed is known.
    complete: bool,
    /// Whether documents that may be being written are waited for.
    waits: bool,
    /// How many deletions wait for another edition to agree.
    held: Option<u64>,
    /// The documents that make up the lists now.
    current: HashSet<DocumentId>,
    /// Those that were read whole, with their validators.
    whole_documents: Vec<DocumentRow>,
    fresh: Vec<NewMembers>,
    summary: Summary,
}

impl ListStep<'_, '_> {
    /// What could not be asked for still stands; what is not selected does as far as it was read for another selection.
    fn keep_what_was_not_read(&mut self, known: &[DocumentRow]) -> Result<(), CatalogError> {
        let lists = &self.work.lists;
        if !self.complete {
            let asked: HashSet<&str> = lists.asked();
            self.current.extend(known.iter().filter(|row| !asked.contains(row.url.as_str())).map(|row| row.id));
        }
        self.current.extend(known.iter().filter(|row| lists.excluded.contains(&row.url)).map(|row| row.id));
        if self.complete || !lists.excluded.is_empty() {
            self.transaction.note_selected(self.set.id, &lists.selected)?;
        }
        self.transaction.keep(self.current.clone());
        // While a part is missing, the index is read again, or nobody would ask for that part.
        let has_all = self.complete && lists.excluded.is_empty();
        for row in &lists.indexes {
            let row = if has_all { row.clone() } else { row.clone().without_validators() };
            self.current.insert(self.transaction.put_document(self.set.id, &row)?);
        }
        Ok(())
    }

    /// Applies the documents one after the other, while the next one is parsed.
    fn read(&mut self) -> Result<(), CatalogError> {
        let documents = std::mem::take(&mut self.work.lists.read);
        let (budget, StepContext { mapper, status, .. }) = (Arc::clone(&self.work.budget), self.context);
        let mut documents = documents.into_iter().map(Arc::new);
        std::thread::scope(|scope| {
            let mut readers = Readers::start(scope, mapper, status, &budget)
                .map_err(|error| CatalogError::io(Path::new("a thread that reads lists"), error))?;
            let mut begin = |document: Arc<Spooled>| {
                let reading = readers.begin(Arc::clone(&document), document.package.is_some())?;
                Ok::<_, CatalogError>((document, reading))
            };
            let mut next = documents.next().map(&mut begin).transpose()?;
            while let Some((document, reading)) = next.take() {
                next = documents.next().map(&mut begin).transpose()?;
                let row = document.row.clone();
                let id = self.transaction.put_document(self.set.id, &row.clone().without_validators())?;
                self.current.insert(id);
                self.transaction.reading(self.edition.snapshot(document.at(), &self.work));
                match self.apply_document(id, &document, reading)? {
                    Some(entries) => self.whole_documents.push(DocumentRow { entries, ..row }),
                    None => self.complete = false,
                }
            }
            Ok(())
        })
    }

    /// Applies one list; returns its number of entries if it is whole.
    fn apply_document(
        &mut self,
        id: DocumentId,
        document: &Spooled,
        reading: Reading,
    ) -> Result<Option<u64>, CatalogError> {
        let Self { transaction, set, summary, .. } = self;
        let StepContext { status, store, .. } = self.context;
        let mut attacher = Attacher::of(document, status);
        let mut repeated = Warnings::default();
        let read = reading.give(status, |batch| {
            let all = transaction.upsert_all(set.id, set.directory, id, &batch.records)?;
            fetch::check_growth(transaction, store, &document.bounds)?;
            for (at, (came, record)) in all.into_iter().zip(&batch.records).enumerate() {
                match came.outcome {
                    Outcome::Added => summary.added += 1,
                    Outcome::Updated => summary.updated += 1,
                    Outcome::Unchanged => summary.unchanged += 1,
                    Outcome::Repeated => {
                        repeated
                            .push(batch.lines[at], format_args!("{} is listed twice; the first counts", record.uri));
                        continue;
                    }
                }
                if let (Some(attacher), Some(version)) = (&mut attacher, came.version) {
                    attacher.give(transaction, &batch.entries[at], record, version)?;
                }
            }
            status.update(|progress| progress.entries += batch.records.len() as u64);
            Ok(())
        })?;
        for warning in read.warnings.lines().into_iter().chain(repeated.lines()) {
            status.warning(&format!("{}: {warning}", document.row.url));
        }
        if let Some(attacher) = attacher {
            self.fresh.push(attacher.finish(transaction, status)?);
        }
        Ok(read.whole.then_some(read.entries))
    }

    /// Decides what becomes of what no document lists, and does it.
    fn part_with_unlisted(&mut self, known: &[DocumentRow]) -> Result<Unlisted, CatalogError> {
        let unlisted = self.unlisted(known)?;
        tracing::debug!(set = self.set.key, ?unlisted, "what no document lists");
        match unlisted {
            Unlisted::MayBeHidden => return Ok(unlisted),
            Unlisted::Stay => self.complete = false,
            Unlisted::Held(gone) => {
                self.held = Some(gone);
                self.summary.held = gone;
            }
            Unlisted::Gone(0) => {}
            Unlisted::Gone(_) => {
                let when = self.edition.cursor.unwrap_or_else(Datetime::now);
                self.summary.deleted = self.transaction.delete_unseen(self.set.id, when)?;
            }
        }
        if !self.complete || self.held.is_some() {
            self.transaction.disown_unseen(self.set.id)?;
        }
        Ok(unlisted)
    }

    fn unlisted(&mut self, known: &[DocumentRow]) -> Result<Unlisted, CatalogError> {
        let (set, was_sent) = (self.set, self.edition.was_sent);
        let gone_documents = known.iter().any(|row| !self.current.contains(&row.id));
        self.transaction.reading(self.edition.snapshot(self.edition.cursor, &self.work));
        if !self.complete || self.is_unsettled()? {
            return Ok(Unlisted::Stay);
        }
        // Where everything that is listed is known to stand in a document that did not change, nothing goes; and of a set that
        // nothing was in, nothing can have gone.
        let doubtful = (was_sent || gone_documents || set.state != SetState::Complete)
            && self.transaction.resources_before(set.id)? > 0;
        if self.work.scope == Scope::Changed && self.summary.not_modified > 0 {
            // What no document lists that was sent may be listed in one that has not changed; and changes that are older than
            // the lists may have been applied over what it lists.
            let may_be_hidden = doubtful && (was_sent || gone_documents || set.state == SetState::Partial);
            let is_hidden = may_be_hidden && self.transaction.unseen(set.id)?.doubtful > 0;
            if is_hidden || self.transaction.has_changes_over_lists(set.id, set.state)? {
                return Ok(Unlisted::MayBeHidden);
            }
        }
        if !doubtful {
            return Ok(Unlisted::Gone(0));
        }
        let gone = self.transaction.unseen(set.id)?.gone;
        if gone > 0 && !self.work.accept_deletions && self.is_being_written(gone)? {
            return Ok(Unlisted::Stay);
        }
        Ok(if self.are_too_many(gone) { Unlisted::Held(gone) } else { Unlisted::Gone(gone) })
    }

    /// Whether documents may be of different editions, and have not stayed as they are for long enough.
    fn is_unsettled(&mut self) -> Result<bool, CatalogError> {
        for kind in UnsettledKind::ALL {
            let key = format!("{} {}", kind.name(), self.set.id);
            match self.work.lists.unsettled.iter().find(|one| one.kind == kind) {
                Some(one) if self.transaction.waits(&key, &one.state, true, Snapshot::TO_WRITE)? => {
                    self.context.status.error(&one.why);
                    self.waits = true;
                }
                Some(_) => {}
                None => self.transaction.stop_waiting(&key)?,
            }
        }
        Ok(self.waits)
    }

    /// Whether the documents may be being written: what moved from one to another may be in neither.
    fn is_being_written(&mut self, gone: u64) -> Result<bool, CatalogError> {
        let unfinished = self.work.lists.unfinished.as_deref();
        let key = format!("unfinished {}", self.set.id);
        self.waits = self.transaction.waits(&key, &self.edition.state, unfinished.is_some(), Snapshot::TO_WRITE)?;
        if self.waits {
            self.context.status.error(&format!(
                "{}: one of its documents is newer than what names it, and others are not: they may be being written; {gone} \
                 resources that none of them lists stay for now",
                unfinished.unwrap_or(&self.set.key)
            ));
        }
        Ok(self.waits)
    }

    /// Whether so many resources are missing that another edition is to agree before they go.
    fn are_too_many(&self, gone: u64) -> bool {
        let ListEdition { cursor, name, .. } = &self.edition;
        // The edition of lists without a time is that of the documents that were sent: it tells nothing where all were.
        let is_other =
            (self.work.scope == Scope::Changed || cursor.is_some()) && name.is_some() && self.set.held_edition != *name;
        let agrees = is_other && self.set.held.is_some_and(|before| gone <= before);
        if gone * 2 <= self.set.resources || agrees || self.work.accept_deletions {
            return false;
        }
        self.context.status.warning(&format!(
            "{}: its list leaves out {gone} of {} resources; they stay until another edition of it agrees, or until \
             `resourcesync refresh --accept-deletions`",
            self.set.key, self.set.resources
        ));
        true
    }

    /// Documents that were not read whole have no validators: they are read again. So are all after a wait, or the sync that ends
    /// it would have read nothing.
    fn note_documents(&mut self) -> Result<(), CatalogError> {
        let id = self.set.id;
        if !self.waits {
            self.whole_documents.iter().try_for_each(|row| self.transaction.put_document(id, row).map(drop))?;
        }
        self.transaction.forget_documents(id, &self.current)?;
        match self.waits {
            true => self.transaction.forget_validators(id),
            false => Ok(()),
        }
    }

    fn finish_set(&mut self) -> Result<(), CatalogError> {
        let Self { set, complete, held, transaction, edition, .. } = self;
        self.summary.partial = !*complete;
        let state = match (*held, *complete) {
            (Some(_), _) => SetState::Held,
            // What was missing is missing still, where no newer list was read.
            (None, true) if set.state == SetState::Gap && !edition.was_sent => SetState::Gap,
            (None, true) => SetState::Complete,
            (None, false) => SetState::Partial,
        };
        let is_whole = *complete && held.is_none();
        let at = edition.cursor.filter(|_| is_whole);
        let name = || edition.name.clone();
        let held_edition = held.and_then(|_| set.held_edition.clone().filter(|_| set.held == *held).or_else(name));
        // The tree is of the lists' time; but of all that it was made from, the oldest says from where changes
        // are to be taken.
        let cursor = at.map(|at| self.work.dumped.map_or(at, |dumped| at.min(dumped)));
        if is_whole && edition.was_sent {
            transaction.lists_make_up(set.id, edition.made_up)?;
            edition.timeless.iter().try_for_each(|name| transaction.note_edition(set.id, name, edition.begun))?;
        }
        if cursor > set.cursor {
            transaction.note_history_gap(set.id, set.cursor)?;
        }
        transaction.finish_set(set.id, &SyncResult { state, cursor, at, held: *held, held_edition })?;
        match complete {
            true => transaction.lists_are_on_top(set.id),
            false => Ok(()),
        }
    }

    fn commit(mut self) -> Result<(Option<Applied>, Changes), CatalogError> {
        let Summary { added, updated, deleted, .. } = self.summary;
        let tally = Tally { added, updated, deleted, ..Tally::default() };
        if tally.changed() {
            // In the same step: whatever ends this process, what changed since these lists is told again.
            self.transaction.reread_feeds(self.set.id)?;
            let from = if self.edition.from_dump { "resourcedump" } else { "resourcelist" };
            self.transaction.end_sync(self.set.id, from, &tally)?;
        }
        let applied = Applied {
            summary: self.summary,
            recent: self.transaction.recent(),
            fresh: self.fresh,
            is_known: self.edition.is_known || self.work.scope == Scope::All && self.edition.cursor.is_none(),
        };
        Ok((Some(applied), self.transaction.commit()?))
    }
}
