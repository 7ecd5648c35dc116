//! From Resource Lists, or the manifests of a Resource Dump, to the tree (core 10, 11).
//!
//! First every document is brought here, then all of them are applied in one step: no transaction
//! waits for a server. A list is read once, while it is applied; if it turns out not to be whole, what
//! it listed stays, and nothing is deleted.

use std::collections::HashSet;
use std::sync::Arc;

use super::dumps::{self, Attacher, Fresh};
use super::lists::{self, Lists, Spooled};
use super::seed::{self, Baseline};
use super::status::Status;
use super::{Engine, Summary, SyncError};
use crate::catalog::{CatalogError, DocumentRow, Outcome, Recent, SetRow, SetState, SyncResult, Transaction, Writer};
use crate::document::{Datetime, Facts, Limits, Reader};
use crate::path::{Mapper, set_labels};
use crate::source::{Discovery, FoundSet};

/// Brings all sets in step.
pub(super) async fn sync(
    engine: &Arc<Engine>,
    found: Option<Discovery>,
    accept_deletions: bool,
) -> Result<Summary, SyncError> {
    let status = engine.status();
    let found = match found {
        Some(found) => found,
        None => engine.discover().await?,
    };
    found.warnings.iter().for_each(|warning| status.warning(warning));
    let chosen = choose(engine, &found).await?;
    let mut summary = Summary { partial: !found.complete, ..Summary::default() };
    let mut failed = None;
    let mut synced = false;
    for (row, set) in chosen {
        match one(engine, row, &set, accept_deletions).await {
            Ok(part) => {
                synced = true;
                summary.added += part.added;
                summary.updated += part.updated;
                summary.deleted += part.deleted;
                summary.held += part.held;
                summary.unchanged += part.unchanged;
                summary.not_modified += part.not_modified;
                summary.partial |= part.partial;
            }
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if !synced => Err(error),
        Some(error) => {
            status.error(&error.to_string());
            summary.partial = true;
            Ok(summary)
        }
        None => Ok(summary),
    }
}

/// The sets that are mirrored, each with what was found of it. The layout is fixed the first time.
async fn choose(engine: &Arc<Engine>, found: &Discovery) -> Result<Vec<(SetRow, FoundSet)>, SyncError> {
    let known = engine.sets()?;
    let keys: Vec<&str> = found.sets.iter().map(|set| set.key.as_str()).collect();
    let labels = set_labels(&keys);
    if known.is_empty() {
        if !found.complete && engine.config.set.is_none() {
            let what = found.warnings.last().map(String::as_str).unwrap_or_default();
            return Err(SyncError::Unfit(format!(
                "not all of what the Source offers could be read, so the layout of a new cache cannot be fixed: {what}; \
                 try again, or choose a set with -o set="
            )));
        }
        let wanted: Vec<(FoundSet, String)> = found
            .sets
            .iter()
            .cloned()
            .zip(labels.clone())
            .filter(|(set, label)| engine.config.set.as_ref().is_none_or(|name| label == name || set.key == *name))
            .collect();
        if wanted.is_empty() {
            return Err(SyncError::Unfit(format!(
                "set={}: there is no such set; the Source has: {}",
                engine.config.set.as_deref().unwrap_or_default(),
                labels.join(", ")
            )));
        }
        let several = wanted.len() > 1;
        let sets = wanted.clone();
        engine
            .ledger
            .write(move |transaction| {
                sets.iter().try_for_each(|(set, label)| transaction.set(&set.key, label, several).map(|_| ()))
            })
            .await?;
        let rows = engine.sets()?;
        return Ok(wanted
            .into_iter()
            .filter_map(|(set, _)| Some((rows.iter().find(|row| row.key == set.key)?.clone(), set)))
            .collect());
    }
    let known_sets = known.len();
    let mut chosen = Vec::new();
    for row in known {
        let same = found.sets.iter().find(|set| set.key == row.key);
        // A Source with one set that moved its documents still has that one set; but one that could not
        // be read whole, or was found by a lesser route, has not moved anything.
        let only = known_sets == 1 && found.sets.len() == 1 && found.complete && engine.config.set.is_none();
        let moved = found.sets.first().filter(|set| only && set.capability_list.is_some());
        match same.or(moved) {
            Some(set) => chosen.push((row, set.clone())),
            None if !found.complete => {
                engine.status().error(&format!("the set {} could not be read; what was mirrored stays", row.key));
                let result = SyncResult {
                    state: SetState::Partial,
                    cursor: None,
                    at: None,
                    held: row.held,
                    held_edition: row.held_edition,
                };
                let id = row.id;
                engine.ledger.write(move |transaction| transaction.finish_set(id, &result)).await?;
            }
            None => engine
                .status()
                .warning(&format!("the Source no longer offers the set {}; what was mirrored stays", row.key)),
        }
    }
    for (set, label) in found.sets.iter().zip(&labels) {
        if engine.config.set.is_none() && !chosen.iter().any(|(_, known)| known.key == set.key) {
            engine.status().warning(&format!(
                "the Source has a new set, {}; the layout of this cache is fixed: mount it with -o set={} and a cache of its own",
                set.key, label
            ));
        }
    }
    if chosen.is_empty() {
        return Err(SyncError::Unfit("the Source offers none of the sets that are mirrored here".to_owned()));
    }
    Ok(chosen)
}

/// Brings one set in step.
async fn one(
    engine: &Arc<Engine>,
    set: SetRow,
    found: &FoundSet,
    accept_deletions: bool,
) -> Result<Summary, SyncError> {
    let status = Arc::clone(engine.status());
    let known = {
        let id = set.id;
        engine.ledger.step(move |writer| Ok((writer.documents(id)?, Default::default()))).await?
    };
    let Baseline { lists, mut beside, changes_begin, dumped, packages } =
        seed::bring(engine, &set, found, &known).await?;
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
        document.row.at.filter(|now| *now < before).map(|now| (document.row.url.clone(), now, before))
    });
    if let Some((url, now, before)) = older.filter(|_| !accept_deletions) {
        status.warning(&format!(
            "{url} is of {now}, older than its edition of {before} that is here already; left alone"
        ));
        return Ok(Summary {
            not_modified: lists.unchanged.len() as u64,
            partial: !lists.failed.is_empty(),
            ..Summary::default()
        });
    }
    status.phase("applying");
    let mapper = Arc::clone(&engine.mapper);
    let own = set.clone();
    let work = Work { lists, changes_begin, dumped, accept_deletions };
    let applying = engine.ledger.step(move |writer| apply(writer, &mapper, &status, &own, work));
    let reading = async {
        if let Some(beside) = &mut beside {
            beside.read(engine).await;
        }
    };
    let (summary, ()) = tokio::join!(applying, reading);
    let (summary, Applied { recent, fresh }) = summary?;
    engine.ledger.long_step_made();
    tracing::debug!(?summary, "lists applied");
    fresh.into_iter().for_each(|fresh| engine.look_at(fresh));
    if let Some(beside) = beside {
        beside.give(engine, &set, recent).await?;
    }
    if let Some(packages) = packages {
        dumps::forget_idle(engine, set.id, packages).await?;
    }
    Ok(summary)
}

/// What a step that was applied leaves for those that follow it.
struct Applied {
    /// What was new.
    recent: Recent,
    /// Members that were given to versions.
    fresh: Vec<Fresh>,
}

/// What one step applies.
struct Work {
    lists: Lists,
    /// When the first change happened that the Source still tells of.
    changes_begin: Option<Datetime>,
    /// When the snapshot of the dump began that gives content.
    dumped: Option<Datetime>,
    accept_deletions: bool,
}

/// Applies documents in one step.
fn apply(
    writer: &mut Writer,
    mapper: &Mapper,
    status: &Status,
    set: &SetRow,
    work: Work,
) -> Result<((Summary, Applied), crate::catalog::Changes), CatalogError> {
    let Work { lists, changes_begin, dumped, accept_deletions } = work;
    let mut summary = Summary { not_modified: lists.unchanged.len() as u64, ..Summary::default() };
    let cursor = lists.cursor();
    let edition = lists.edition();
    let mut complete = lists.failed.is_empty();
    let known = writer.documents(set.id)?;
    let mut transaction = writer.begin(true)?;
    let mut current: HashSet<i64> = lists.unchanged.iter().map(|row| row.id).collect();
    let mut kept = current.clone();
    if !complete {
        // What could not be asked for still stands.
        let asked: HashSet<&str> = lists.asked();
        kept.extend(known.iter().filter(|row| !asked.contains(row.url.as_str())).map(|row| row.id));
        current.extend(&kept);
    }
    transaction.keep(kept);
    for row in &lists.indexes {
        let known = DocumentRow { etag: None, last_modified: None, ..row.clone() };
        // While a part is missing, the index is read again, or nobody would ask for that part.
        current.insert(transaction.put_document(set.id, if complete { row } else { &known })?);
    }
    let read_some = !lists.read.is_empty();
    let (mut whole_documents, mut fresh) = (Vec::new(), Vec::new());
    for document in lists.read {
        let row = document.row.clone();
        let id = transaction.put_document(set.id, &DocumentRow { etag: None, last_modified: None, ..row.clone() })?;
        current.insert(id);
        let whole = apply_document(&mut transaction, mapper, status, set, id, document, &mut summary, &mut fresh)?;
        complete &= whole.is_some();
        if let Some(entries) = whole {
            whole_documents.push(DocumentRow { entries, ..row });
        }
    }
    let gone_documents = known.iter().any(|row| !current.contains(&row.id));
    let mut held = None;
    // Where everything that is listed is known to stand in a document that did not change, nothing goes.
    let doubtful = read_some || gone_documents || set.state != SetState::Complete;
    let mut read_all_again = false;
    if complete && doubtful {
        let unseen = transaction.unseen(set.id)?;
        read_all_again = unseen.doubtful > 0;
        let agrees =
            set.held.is_some_and(|before| unseen.gone <= before) && edition.is_some() && set.held_edition != edition;
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
    // Documents that were not read whole have no validators: they are read again.
    if !read_all_again {
        for row in &whole_documents {
            transaction.put_document(set.id, row)?;
        }
    }
    transaction.forget_documents(set.id, &current)?;
    if read_all_again {
        transaction.forget_validators(set.id)?;
    }
    summary.partial = !complete;
    let state = match (held, complete) {
        (Some(_), _) => SetState::Held,
        (None, true) if changes_begin.is_some_and(|begin| cursor.is_none_or(|cursor| begin > cursor)) => {
            status.warning(&format!(
                "{}: its changes begin at {}, after what the tree was made from ({}); a newer list or dump will close the gap",
                set.key,
                changes_begin.map(|begin| begin.to_string()).unwrap_or_default(),
                cursor.map_or_else(|| "of no known time".to_owned(), |cursor| cursor.to_string())
            ));
            SetState::Gap
        }
        (None, true) => SetState::Complete,
        (None, false) => SetState::Partial,
    };
    let cursor = cursor.filter(|_| complete && held.is_none());
    let held_edition = held.and_then(|_| set.held_edition.clone().filter(|_| set.held == held).or(edition));
    // The tree is of the lists' time; but of all that it was made from, the oldest says from where changes
    // are to be taken.
    let from = cursor.map(|cursor| dumped.map_or(cursor, |dumped| cursor.min(dumped)));
    transaction.finish_set(set.id, &SyncResult { state, cursor: from, at: cursor, held, held_edition })?;
    let applied = Applied { recent: transaction.recent(), fresh };
    let changes = transaction.commit()?;
    Ok(((summary, applied), changes))
}

/// Applies one list; returns its number of entries if it is whole.
#[allow(clippy::too_many_arguments, reason = "a step and what it counts")]
fn apply_document(
    transaction: &mut Transaction<'_>,
    mapper: &Mapper,
    status: &Status,
    set: &SetRow,
    id: i64,
    document: Spooled,
    summary: &mut Summary,
    fresh: &mut Vec<Fresh>,
) -> Result<Option<u64>, CatalogError> {
    let Spooled { row, base, path, package, .. } = &document;
    let mut attacher = match package.as_ref().map(Attacher::new).transpose() {
        Ok(attacher) => attacher,
        Err(error) => {
            status.error(&error.to_string());
            None
        }
    };
    let file = std::fs::File::open(path).map_err(|error| CatalogError::io(path, error))?;
    let at = row.at.unwrap_or_else(Datetime::now);
    let mut reader = match Reader::open(&file, &row.url, Limits::default()) {
        Ok(reader) => reader,
        Err(error) => {
            status.error(&error.to_string());
            return Ok(None);
        }
    };
    if row.at.is_none() {
        reader.warnings_mut().push(0, "the list has no `at`; when its snapshot began is not known");
    }
    let mut entries = 0;
    let whole = loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break true,
            Err(error) => {
                status.error(&format!("{error}; what it lists before that is kept, and nothing is deleted"));
                break false;
            }
        };
        entries += 1;
        if entries % 1000 == 0 {
            status.update(|progress| progress.entries += 1000);
        }
        let facts = Facts::of_entry(&entry, reader.warnings_mut());
        let Some(record) = lists::record(mapper, base, &entry, &facts, at, reader.warnings_mut()) else { continue };
        let upserted = transaction.upsert(set.id, set.directory, id, &record)?;
        match upserted.outcome {
            Outcome::Added => summary.added += 1,
            Outcome::Updated => summary.updated += 1,
            Outcome::Unchanged => summary.unchanged += 1,
            Outcome::Repeated => {
                reader.warnings_mut().push(entry.line, format_args!("{} is listed twice; the first counts", entry.loc));
                continue;
            }
        }
        if let (Some(attacher), Some(version)) = (&mut attacher, upserted.version) {
            attacher.give(transaction, &entry, &record, version)?;
        }
    };
    status.update(|progress| progress.entries += entries % 1000);
    for warning in reader.warnings().lines() {
        status.warning(&format!("{}: {warning}", row.url));
    }
    if let Some(attacher) = attacher {
        fresh.push(attacher.finish(transaction, status)?);
    }
    Ok(whole.then_some(entries))
}
