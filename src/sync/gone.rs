//! Changes that were followed and are not there any more: what is missed until lists make up for them.

use std::sync::Arc;

use super::baseline::Edition;
use super::{Engine, SyncError};
use crate::catalog::{Feed, SetRow};

/// What the Source offers to tell, and does not.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// What was followed.
    pub(super) feeds: Vec<Feed>,
    /// Whether there is one that was not followed, or is not missed any more: lists alone tell what it would.
    pub(super) unknown: bool,
}

/// Goes on without changes that were followed and are gone. Lists that are newer make up for them, and they are forgotten;
/// until there are such, something may be missing: true, and it is kept why.
pub(super) async fn without(
    engine: &Arc<Engine>,
    set: &SetRow,
    gone: Vec<Feed>,
    edition: Option<Edition>,
) -> Result<bool, SyncError> {
    let (made_up, missing): (Vec<Feed>, Vec<Feed>) = gone.into_iter().partition(|feed| {
        let known = set.at.map(|at| Edition { at: Some(at) }).filter(|_| feed.cursor.is_some());
        [edition, known].into_iter().flatten().any(|edition| edition.is_after(feed.cursor))
    });
    let why = |feed: &Feed| {
        let cursor = feed.cursor.map(|cursor| format!(", which was followed up to {cursor}")).unwrap_or_default();
        format!(
            "{}{cursor}, is not there any more, and the lists are no newer: what has changed since is not known",
            feed.root
        )
    };
    missing.iter().for_each(|feed| engine.status().error(&why(feed)));
    let behind = !missing.is_empty();
    let unsaid: Vec<Feed> = missing
        .into_iter()
        .filter(|feed| feed.failure.as_ref() != Some(&why(feed)))
        .map(|feed| Feed { failure: Some(why(&feed)), ..feed })
        .collect();
    if !made_up.is_empty() || !unsaid.is_empty() {
        let id = set.id;
        engine
            .ledger
            .write(move |transaction| {
                made_up.iter().try_for_each(|feed| transaction.forget_feed(id, &feed.root))?;
                unsaid.iter().try_for_each(|feed| transaction.put_feed(id, feed))
            })
            .await?;
    }
    Ok(behind)
}
