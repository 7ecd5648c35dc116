//! From Resource Lists, or the manifests of a Resource Dump, to the tree (core 10, 11).
//!
//! First every document is downloaded, then all of them are applied in one transaction, which waits for no server. A list is
//! parsed once, while it is applied; if it turns out not to be whole, what it listed stays, and nothing is deleted. Documents
//! that have not changed are not read, unless only they can decide: then the transaction is undone, and all are read.

use std::sync::Arc;

use super::list_step::{Applied, Work};
use super::seed::Baseline;
use super::step_context::StepContext;
use super::{list_step, seed, set_rows};
use crate::catalog::{CatalogError, DocumentRow, Recent, SetRow};
use crate::document::Datetime;
use crate::source::FoundSet;
use crate::sync::context::Context;
use crate::sync::documents::dumps;
use crate::sync::documents::fetch::{Budget, Lists, Scope};
use crate::sync::error::SyncError;
use crate::sync::summary::Summary;

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
    let mut known = {
        let id = set.id;
        context.write_queue.step(move |writer| Ok((writer.documents(id)?, Default::default()))).await?
    };
    if scope == Scope::All {
        known.iter_mut().for_each(|row| *row = std::mem::take(row).without_validators());
    }
    let Baseline { lists, mut beside, dumped, packages } = seed::bring(context, set, found, &known, scope).await?;
    lists.failed.iter().for_each(|error| context.status.error(&error.to_string()));
    if let Some(error) = lists.failed.first().filter(|_| lists.asked().is_empty()) {
        return Err(error.clone().into());
    }
    if let Some(why) = older_than_known(&lists, &known).filter(|_| !accept_deletions) {
        context.status.warning(&why);
        let not_modified = lists.unchanged.len() as u64;
        let partial = !lists.failed.is_empty() || scope == Scope::All;
        return Ok(Some((Summary { not_modified, partial, ..Summary::default() }, None)));
    }
    context.status.phase("applying");
    let edition = edition_of(&lists);
    let work = Work {
        scope,
        dumped,
        accept_deletions,
        followed: is_followed(context, set)?,
        listed: set_rows::listed_at(context, set)?,
        recent: if beside.is_some() { Recent::wanted() } else { Recent::default() },
        budget: Budget::new(&context.config.bounds),
        lists,
    };
    let reading = async {
        if let Some(beside) = &mut beside {
            beside.read(context).await;
        }
    };
    let (applied, ()) = tokio::join!(applied(context, set, work), reading);
    let Some(Applied { summary, recent, fresh, is_known }) = applied? else { return Ok(None) };
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

/// Which list is of an edition before the one that is here, in words, if one is.
fn older_than_known(lists: &Lists, known: &[DocumentRow]) -> Option<String> {
    lists.read.iter().find_map(|document| {
        let before = known.iter().find(|row| row.url == document.row.url)?.at?;
        let now = document.at().filter(|now| *now < before)?;
        let url = &document.row.url;
        Some(format!("{url} is of {now}, older than its edition of {before} that is here already; left alone"))
    })
}

/// Whether the changes of a set are followed, or notified of.
fn is_followed(context: &Context, set: &SetRow) -> Result<bool, CatalogError> {
    context.readers.ask(|reader| {
        let notified = reader.channels()?.iter().any(|channel| channel.rset == set.id);
        Ok(notified || set.follows.is_some() || !reader.feeds(set.id)?.is_empty())
    })
}

async fn applied(context: &Arc<Context>, set: &SetRow, work: Work) -> Result<Option<Applied>, SyncError> {
    let (own, set) = (StepContext::of(context), set.clone());
    let write_queue = context.write_queue.clone();
    let step = context.write_queue.step(move |writer| {
        let applied = writer.long(|writer| list_step::apply(writer, &own, &set, work));
        write_queue.long_step_made();
        applied
    });
    step.await
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
