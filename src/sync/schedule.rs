//! A sync: which sets there are, what each offers, and what each needs now.
//!
//! What a Source offers is remembered for an hour, so that a poll of a set whose changes are followed costs one request where
//! nothing has changed. A set without a list of changes, out of step with its lists, or whose list of changes is gone, has its
//! lists read; so has every set once in `relist=`, for publishers omit deletions from their Change Lists.
//!
//! Layout, each line uses only those above it:
//! - `offers`, `plan`
//! - `set`

mod offers;
mod plan;
mod set;

pub(super) use offers::{LACKING, PUBLIC};

use offers::{choose, remember, remembered};

use std::sync::Arc;

use super::context::Context;
use super::documents::follow;
use super::error::SyncError;
use super::notification_body::Announced;
use super::summary::{Summary, Trigger};
use crate::catalog::{SetId, SetRow};
use crate::printable;
use crate::source::FoundSet;

/// The most reasons for missing sets that are kept, and the most characters of a reason.
const MOST_LACKING: usize = 20;
const MOST_TEXT: usize = 500;

/// How thorough a sync is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SyncScope {
    /// Whether lists are read even where changes tell enough.
    lists: bool,
    /// Whether what is above the documents of changes is looked at, too.
    wide: bool,
    /// Whether what a complete list leaves out is let go, however much it is.
    accept_deletions: bool,
}

/// Brings all sets in step.
pub(super) async fn sync(context: &Arc<Context>, trigger: Trigger) -> Result<Summary, SyncError> {
    let accept_deletions = matches!(trigger, Trigger::Refresh { accept_deletions: true });
    let lists = accept_deletions || matches!(trigger, Trigger::Repair);
    if matches!(trigger, Trigger::Repair) {
        // Every list is read whole.
        for set in context.sets()? {
            context.write_queue.write(move |transaction| transaction.forget_validators(set.id)).await?;
        }
    }
    let announced = match trigger {
        Trigger::Notified(announced) => announced,
        _ => Announced::default(),
    };
    let synced = from_the_top(context, trigger, announced, SyncScope { lists, wide: true, accept_deletions }).await;
    if !synced.as_ref().is_ok_and(|summary| !summary.partial) {
        // What was remembered of pages may be what a fault made of them.
        context.client.forget_pages();
    }
    synced
}

/// Finds the sets, where what is remembered of them does not do, and brings them in step.
async fn from_the_top(
    context: &Arc<Context>,
    trigger: Trigger,
    announced: Announced,
    scope: SyncScope,
) -> Result<Summary, SyncError> {
    let SyncScope { lists, accept_deletions, .. } = scope;
    let mut so_far = Summary::default();
    if let Some(chosen) = remembered(context, &trigger).await? {
        let scope = SyncScope { lists: announced.lists, wide: announced.named, accept_deletions: false };
        match all(context, chosen, scope, true).await {
            Ok((summary, true)) => return Ok(summary),
            // What was remembered is not where it was.
            Ok((summary, false)) => so_far = summary,
            Err(SyncError::Source(error)) if follow::is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let found = match trigger {
        Trigger::Mount(Some(found)) => *found,
        _ => context.discover().await?,
    };
    found.warnings.iter().for_each(|warning| context.status.warning(warning));
    let chosen = choose(context, &found).await?;
    let lacking = if context.config.set.is_none() { found.lacking.as_slice() } else { &[] };
    let shown = |error: &String| {
        let error = printable::short_line(error, MOST_TEXT);
        format!("{error}; what it leads to is missing; -o set= mounts one of the other sets alone")
    };
    let lacking: Vec<String> = lacking.iter().take(MOST_LACKING).map(shown).collect();
    lacking.iter().for_each(|text| context.status.warning(text));
    remember(context, &chosen, found.complete, &lacking).await?;
    let scope = SyncScope { lists: lists || announced.lists, wide: true, accept_deletions };
    let (summary, _) = all(context, chosen, scope, false).await?;
    so_far.add(&summary);
    Ok(Summary { partial: summary.partial || !found.complete, ..so_far })
}

/// Brings these sets in step, as far as what they are `remembered` to offer is there: false if it is not all.
async fn all(
    context: &Arc<Context>,
    chosen: Vec<(SetRow, FoundSet)>,
    scope: SyncScope,
    remembered: bool,
) -> Result<(Summary, bool), SyncError> {
    let mut summary = Summary::default();
    let mut failed = None;
    let mut synced = false;
    for (row, found) in chosen {
        let (id, errors) = (row.id, context.status.errors().1);
        let one = set::bring(context, row, &found, scope, remembered).await;
        let why = match &one {
            Ok(Some(part)) if part.partial => Some(why_partial(context, errors)),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        if !matches!(one, Ok(None)) {
            note_behind(context, id, why).await?;
        }
        match one {
            Ok(Some(part)) => {
                synced = true;
                summary.add(&part);
            }
            Ok(None) => return Ok((summary, false)),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if !synced => Err(error),
        Some(error) => {
            context.status.error(&error.to_string());
            summary.partial = true;
            Ok((summary, true))
        }
        None => Ok((summary, true)),
    }
}

/// Why a sync was partial: the last error since there were so many.
fn why_partial(context: &Context, before: u64) -> String {
    let (errors, count) = context.status.errors();
    let last = errors.into_iter().next_back().filter(|_| count > before);
    last.map_or_else(|| "not all of its documents could be read whole".to_owned(), |last| last.error)
}

/// Keeps why not all of a set is in step: what a feed, or a list, has not told shows nowhere else.
async fn note_behind(context: &Context, id: SetId, why: Option<String>) -> Result<(), SyncError> {
    let why = why.map(|why| printable::short_line(&why, MOST_TEXT));
    if context.readers.ask(|reader| reader.meta(&format!("behind {id}")))?.unwrap_or_default()
        == why.as_deref().unwrap_or_default()
    {
        return Ok(());
    }
    context
        .write_queue
        .step(move |writer| {
            writer.note_behind(id, why.as_deref())?;
            Ok(((), Default::default()))
        })
        .await
}
