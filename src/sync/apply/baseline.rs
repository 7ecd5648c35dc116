//! From Resource Lists, or the manifests of a Resource Dump, to the tree (core 10, 11).
//!
//! First every document is downloaded, then all of them are applied in one transaction, which waits for no server. A list is
//! parsed once, while it is applied; if it turns out not to be whole, what it listed stays, and nothing is deleted. Documents
//! that have not changed are not read, unless only they can decide: then the transaction is undone, and all are read.

use crate::catalog::DocumentId;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::attach::Attacher;
use super::seed::Baseline;
use super::{seed, set_rows};
use crate::catalog::{
    CatalogError, DocumentRow, Outcome, Recent, SetRow, SetState, Snapshot, SyncResult, Tally, Transaction, Writer,
};
use crate::document::{Datetime, Warnings};
use crate::path::Mapper;
use crate::source::FoundSet;
use crate::store::Store;
use crate::sync::context::Context;
use crate::sync::documents::fetch::{Budget, Lists, Scope, UnsettledKind};
use crate::sync::documents::listing::{Readers, Reading};
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{dumps, editions, fetch};
use crate::sync::error::SyncError;
use crate::sync::status::Status;
use crate::sync::summary::Summary;
use crate::sync::transfer::package::NewMembers;

/// An edition of the lists of a set that was read whole.
#[derive(Clone, Copy, Debug)]
pub(in crate::sync) struct Edition {
    /// The smallest `at` of the documents that the others are named by. Without a time, it is of when it was read.
    pub(in crate::sync) at: Option<Datetime>,
}

impl Edition {
    /// Whether it tells of all that happened up to a moment, and of some time after it.
    pub(in crate::sync) fn is_after(self, moment: Option<Datetime>) -> bool {
        self.at.is_none() || self.at > moment
    }
}

/// Synchronizes one set with its lists. The second part of the answer is the edition of the lists, if any of it was new.
pub(in crate::sync) async fn bring(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
    accept_deletions: bool,
) -> Result<(Summary, Option<Edition>), SyncError> {
    let mut scope = Scope::Changed;
    loop {
        match once(context, set, found, accept_deletions, scope).await {
            Ok(Some(synced)) => return Ok(synced),
            Ok(None) => scope = Scope::All,
            Err(error) if scope == Scope::All => {
                context.status.error(&error.to_string());
                scope = Scope::Additions;
            }
            Err(error) => return Err(error),
        }
    }
}

/// As [`bring`]; nothing is done, and the answer is `None`, if documents that have not changed are to be read, too: only they
/// show whether they list a resource that no other document lists. Only with [`Scope::Changed`] is it `None`.
async fn once(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
    accept_deletions: bool,
    scope: Scope,
) -> Result<Option<(Summary, Option<Edition>)>, SyncError> {
    let status = Arc::clone(&context.status);
    let mut known = {
        let id = set.id;
        context.write_queue.step(move |writer| Ok((writer.documents(id)?, Default::default()))).await?
    };
    if scope == Scope::All {
        known.iter_mut().for_each(|row| (row.etag, row.last_modified) = (None, None));
    }
    let Baseline { lists, mut beside, dumped, packages } = seed::bring(context, set, found, &known, scope).await?;
    lists.failed.iter().for_each(|error| status.error(&error.to_string()));
    if lists.read.is_empty()
        && lists.unchanged.is_empty()
        && lists.indexes.is_empty()
        && let Some(error) = lists.failed.first()
    {
        return Err(error.clone().into());
    }
    let older = lists.read.iter().find_map(|document| {
        let before = known.iter().find(|row| row.url == document.row.url)?.at?;
        document.at().filter(|now| *now < before).map(|now| (document.row.url.clone(), now, before))
    });
    if let Some((url, now, before)) = older.filter(|_| !accept_deletions) {
        status.warning(&format!(
            "{url} is of {now}, older than its edition of {before} that is here already; left alone"
        ));
        let summary = Summary {
            not_modified: lists.unchanged.len() as u64,
            partial: !lists.failed.is_empty() || scope == Scope::All,
            ..Summary::default()
        };
        return Ok(Some((summary, None)));
    }
    status.phase("applying");
    let mapper = Arc::clone(&context.mapper);
    let own = set.clone();
    let followed = context.readers.ask(|reader| {
        let notified = reader.channels()?.iter().any(|channel| channel.rset == set.id);
        Ok(notified || set.follows.is_some() || !reader.feeds(set.id)?.is_empty())
    })?;
    let recent = if beside.is_some() { Recent::wanted() } else { Recent::default() };
    let budget = Budget::new(&context.config.bounds);
    let edition = edition_of(&lists);
    let store = Arc::clone(&context.store);
    let listed = set_rows::listed_at(context, set)?;
    let work = Work { lists, scope, dumped, accept_deletions, followed, listed, recent, budget, store };
    let write_queue = context.write_queue.clone();
    let applying = context.write_queue.step(move |writer| {
        let applied = writer.long(|writer| apply(writer, &mapper, &status, &own, work));
        write_queue.long_step_made();
        applied
    });
    let reading = async {
        if let Some(beside) = &mut beside {
            beside.read(context).await;
        }
    };
    let (applied, ()) = tokio::join!(applying, reading);
    let Some((summary, Applied { recent, fresh, is_known })) = applied? else { return Ok(None) };
    tracing::debug!(?summary, "lists applied");
    fresh.into_iter().for_each(|fresh| context.check_members(fresh));
    if let Some(beside) = beside {
        beside.give(context, set, recent).await?;
    }
    if let Some(packages) = packages {
        dumps::forget_idle(context, set.id, packages).await?;
    }
    let is_new = !summary.partial && summary.held == 0 && !is_known;
    Ok(Some((summary, edition.filter(|_| is_new))))
}

/// The edition that lists are of, if any of them was sent. A part is of the time of its index.
fn edition_of(lists: &Lists) -> Option<Edition> {
    let read = lists.read.iter().filter(|document| !document.row.part).map(|document| (document.at(), true));
    let others = lists.unchanged.iter().map(|row| (row, false)).chain(lists.indexes.iter().map(|row| (row, true)));
    let others = others.filter(|(row, _)| !row.part).map(|(row, sent)| (row.at, sent));
    let tops: Vec<(Option<Datetime>, bool)> = read.chain(others).collect();
    if lists.read.is_empty() || tops.contains(&(None, false)) {
        return None;
    }
    let newest = lists.read.iter().map(|document| document.at()).max().flatten();
    Some(Edition { at: tops.iter().map(|(at, _)| *at).min().unwrap_or(newest) })
}

/// What a step that was applied leaves for those that follow it.
struct Applied {
    /// What was new.
    recent: Recent,
    /// Members that were given to versions.
    fresh: Vec<NewMembers>,
    /// Whether this edition, which has no time, was read before.
    is_known: bool,
}

/// What one step applies.
struct Work {
    lists: Lists,
    scope: Scope,
    /// When the snapshot of the dump began that gives content.
    dumped: Option<Datetime>,
    accept_deletions: bool,
    /// Whether changes are followed, or notified of, so that the tree may be newer than its lists.
    followed: bool,
    /// When an earlier edition of them was read.
    listed: Option<Datetime>,
    /// For what follows this step.
    recent: Recent,
    /// What may still be read.
    budget: Arc<Budget>,
    store: Arc<Store>,
}

/// Applies documents in one transaction, or undoes it: see [`once`].
fn apply(
    writer: &mut Writer,
    mapper: &Mapper,
    status: &Status,
    set: &SetRow,
    work: Work,
) -> Result<(Option<(Summary, Applied)>, crate::catalog::Changes), CatalogError> {
    let Work { lists, scope, dumped, accept_deletions, followed, listed, recent, budget, store } = work;
    let mut summary = Summary { not_modified: lists.unchanged.len() as u64, ..Summary::default() };
    let cursor = lists.cursor();
    let edition = lists.edition();
    let (excluded, selected) = (lists.excluded.clone(), Arc::clone(&lists.selected));
    let (unfinished, state) = (lists.unfinished.clone(), editions::state(&lists));
    let unsettled = lists.unsettled.clone();
    let mut complete = lists.failed.is_empty() && scope != Scope::Additions;
    let known = writer.documents(set.id)?;
    let from_dump = lists.read.iter().any(|document| document.row.package.is_some());
    let mut transaction = writer.begin(true)?;
    transaction.remember(recent);
    if set.state != SetState::Empty {
        transaction.begin_sync()?;
    }
    let mut current: HashSet<DocumentId> = lists.unchanged.iter().map(|row| row.id).collect();
    let mut kept = current.clone();
    if !complete {
        // What could not be asked for still stands.
        let asked: HashSet<&str> = lists.asked();
        kept.extend(known.iter().filter(|row| !asked.contains(row.url.as_str())).map(|row| row.id));
        current.extend(&kept);
    }
    // What is not selected stays, as far as it was read for another selection.
    let left_alone = known.iter().filter(|row| excluded.contains(&row.url)).map(|row| row.id);
    kept.extend(left_alone.clone());
    current.extend(left_alone);
    if complete || !excluded.is_empty() {
        transaction.note_selected(set.id, &selected)?;
    }
    transaction.keep(kept);
    for row in &lists.indexes {
        let known = DocumentRow { etag: None, last_modified: None, ..row.clone() };
        // While a part is missing, the index is read again, or nobody would ask for that part.
        let has_all = complete && excluded.is_empty();
        current.insert(transaction.put_document(set.id, if has_all { row } else { &known })?);
    }
    let read_some = !lists.read.is_empty();
    // A list of which it is not known when it was made undoes no change, but where it has changed since it was read last.
    let timeless = edition.clone().filter(|_| cursor.is_none() && lists.unchanged.is_empty());
    let before = match &timeless {
        Some(edition) => transaction.edition_before(set.id, edition)?,
        None => None,
    };
    let is_known = timeless.as_ref().map(|edition| transaction.is_edition_known(set.id, edition)).transpose()?;
    let begun = before.map(Snapshot::earliest);
    let guard = |at: Option<Datetime>| {
        let timeless = || Snapshot::begun_after(begun);
        followed.then(|| at.map_or_else(timeless, |at| Snapshot::new(at, listed)))
    };
    // Of lists of which a part was not sent again, what was sent is new.
    let is_new = cursor.is_none() && read_some && !lists.unchanged.is_empty();
    let made_up = cursor.or(begun).or(listed.filter(|_| is_new).map(Snapshot::earliest));
    let (mut whole_documents, mut fresh) = (Vec::new(), Vec::new());
    let mut documents = lists.read.into_iter().map(Arc::new);
    std::thread::scope(|scope| -> Result<(), CatalogError> {
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
            let id =
                transaction.put_document(set.id, &DocumentRow { etag: None, last_modified: None, ..row.clone() })?;
            current.insert(id);
            transaction.reading(guard(document.at()));
            let part = Part { set, id, document: &document, status, store: &store };
            let whole = apply_document(&mut transaction, &part, reading, &mut summary, &mut fresh)?;
            complete &= whole.is_some();
            if let Some(entries) = whole {
                whole_documents.push(DocumentRow { entries, ..row });
            }
        }
        Ok(())
    })?;
    let gone_documents = known.iter().any(|row| !current.contains(&row.id));
    let mut held = None;
    // Where everything that is listed is known to stand in a document that did not change, nothing goes.
    let doubtful = read_some || gone_documents || set.state != SetState::Complete;
    // Of a set that nothing was in, nothing can have gone.
    let doubtful = doubtful && transaction.resources_before(set.id)? > 0;
    transaction.reading(guard(cursor));
    let mut waits = false;
    for kind in UnsettledKind::ALL.into_iter().filter(|_| complete) {
        let key = format!("{} {}", kind.name(), set.id);
        match unsettled.iter().find(|one| one.kind == kind) {
            Some(one) if transaction.waits(&key, &one.state, true, Snapshot::TO_WRITE)? => {
                status.error(&one.why);
                waits = true;
            }
            Some(_) => {}
            None => transaction.stop_waiting(&key)?,
        }
    }
    complete &= !waits;
    if complete && scope == Scope::Changed && summary.not_modified > 0 {
        // What no document lists that was sent may be listed in one that has not changed; and changes that are older than the
        // lists may have been applied over what it lists.
        let may_be_hidden = doubtful && (read_some || gone_documents || set.state == SetState::Partial);
        let is_hidden = may_be_hidden && transaction.unseen(set.id)?.doubtful > 0;
        if is_hidden || transaction.has_changes_over_lists(set.id, set.state)? {
            return Ok((None, crate::catalog::Changes::default()));
        }
    }
    if complete && doubtful {
        let unseen = transaction.unseen(set.id)?;
        // What moved from one to another may be in neither.
        let is_written = unseen.gone > 0
            && !accept_deletions
            && transaction.waits(
                &format!("unfinished {}", set.id),
                &state,
                unfinished.is_some(),
                Snapshot::TO_WRITE,
            )?;
        if is_written {
            status.error(&format!(
                "{}: one of its documents is newer than what names it, and others are not: they may be being written; {} \
                 resources that none of them lists stay for now",
                unfinished.as_deref().unwrap_or(&set.key),
                unseen.gone
            ));
            (waits, complete) = (true, false);
        }
    }
    if complete && doubtful {
        let unseen = transaction.unseen(set.id)?;
        // The edition of lists without a time is that of the documents that were sent: it tells nothing where all were.
        let is_other =
            (scope == Scope::Changed || cursor.is_some()) && edition.is_some() && set.held_edition != edition;
        let agrees = is_other && set.held.is_some_and(|before| unseen.gone <= before);
        if unseen.gone * 2 > set.resources && !agrees && !accept_deletions {
            held = Some(unseen.gone);
            summary.held = unseen.gone;
            status.warning(&format!(
                "{}: its list leaves out {} of {} resources; they stay until another edition of it agrees, or until \
                 `resourcesync refresh --accept-deletions`",
                set.key, unseen.gone, set.resources
            ));
        } else if unseen.gone > 0 {
            summary.deleted = transaction.delete_unseen(set.id, cursor.unwrap_or_else(Datetime::now))?;
        }
    }
    if !complete || held.is_some() {
        transaction.disown_unseen(set.id)?;
    }
    // Documents that were not read whole have no validators: they are read again. So are all after a wait, or the sync that ends
    // it would have read nothing.
    if !waits {
        for row in &whole_documents {
            transaction.put_document(set.id, row)?;
        }
    }
    transaction.forget_documents(set.id, &current)?;
    if waits {
        transaction.forget_validators(set.id)?;
    }
    summary.partial = !complete;
    let state = match (held, complete) {
        (Some(_), _) => SetState::Held,
        // What was missing is missing still, where no newer list was read.
        (None, true) if set.state == SetState::Gap && !read_some => SetState::Gap,
        (None, true) => SetState::Complete,
        (None, false) => SetState::Partial,
    };
    let cursor = cursor.filter(|_| complete && held.is_none());
    let held_edition = held.and_then(|_| set.held_edition.clone().filter(|_| set.held == held).or(edition));
    // The tree is of the lists' time; but of all that it was made from, the oldest says from where changes
    // are to be taken.
    let from = cursor.map(|cursor| dumped.map_or(cursor, |dumped| cursor.min(dumped)));
    if complete && held.is_none() && read_some {
        transaction.lists_make_up(set.id, made_up)?;
        timeless.iter().try_for_each(|edition| transaction.note_edition(set.id, edition, begun))?;
    }
    if from > set.cursor {
        transaction.note_history_gap(set.id, set.cursor)?;
    }
    transaction.finish_set(set.id, &SyncResult { state, cursor: from, at: cursor, held, held_edition })?;
    if complete {
        transaction.lists_are_on_top(set.id)?;
    }
    let tally = Tally { added: summary.added, updated: summary.updated, deleted: summary.deleted, ..Tally::default() };
    if tally.changed() {
        // In the same step: whatever ends this process, what changed since these lists is told again.
        transaction.reread_feeds(set.id)?;
        transaction.end_sync(set.id, if from_dump { "resourcedump" } else { "resourcelist" }, &tally)?;
    }
    let applied = Applied {
        recent: transaction.recent(),
        fresh,
        is_known: is_known == Some(true) || scope == Scope::All && cursor.is_none(),
    };
    let changes = transaction.commit()?;
    Ok((Some((summary, applied)), changes))
}

/// One of the lists of a step.
struct Part<'p> {
    set: &'p SetRow,
    /// The number of the document.
    id: DocumentId,
    document: &'p Spooled,
    status: &'p Status,
    store: &'p Store,
}

/// Applies one list; returns its number of entries if it is whole.
fn apply_document(
    transaction: &mut Transaction<'_>,
    part: &Part<'_>,
    reading: Reading,
    summary: &mut Summary,
    fresh: &mut Vec<NewMembers>,
) -> Result<Option<u64>, CatalogError> {
    let Part { set, id, document, status, store } = *part;
    let mut attacher = match document.package.as_ref().map(|package| Attacher::new(package, document)).transpose() {
        Ok(attacher) => attacher,
        Err(error) => {
            status.error(&error.to_string());
            None
        }
    };
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
                    repeated.push(batch.lines[at], format_args!("{} is listed twice; the first counts", record.uri));
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
        fresh.push(attacher.finish(transaction, status)?);
    }
    Ok(read.whole.then_some(read.entries))
}
