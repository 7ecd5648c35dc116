//! Changes that were followed, or are offered, and cannot be read: what is missed until lists make up for them.

use super::baseline::Edition;
use crate::catalog::{Feed, SetRow};
use crate::document::Datetime;
use crate::source::SourceError;
use crate::sync::context::Context;
use crate::sync::error::SyncError;

/// What the Source offers to tell, and does not.
#[derive(Debug, Default)]
pub(in crate::sync) struct LostFeeds {
    /// What was followed, and is not there any more.
    pub(in crate::sync) feeds: Vec<Feed>,
    /// What is there, and cannot be read, and why: no list makes up for changes that are published after it.
    pub(in crate::sync) unreadable: Vec<(Feed, SourceError)>,
    /// Whether there is one that was not followed, or is not missed any more: lists alone tell what it would.
    pub(in crate::sync) unknown: bool,
}

impl LostFeeds {
    /// Whether lists are to be read. What is gone or broken for one look may be there with the next, and tell each version; lists
    /// tell the newest alone.
    pub(in crate::sync) fn wants_lists(&self) -> bool {
        let unreadable = self.unreadable.iter().map(|(feed, _)| feed);
        self.unknown || self.feeds.iter().chain(unreadable).any(|feed| feed.failure.is_some())
    }

    pub(in crate::sync) fn is_empty(&self) -> bool {
        self.feeds.is_empty() && self.unreadable.is_empty()
    }
}

/// Goes on without changes that are gone. Lists that were made after that was noticed replace them: such lists include the result
/// of earlier changes, and if a feed comes back, its changes before the lists are added to the history. Without such lists,
/// something may be missing: then the answer is true, and the reason is kept.
pub(in crate::sync) async fn without(
    context: &Context,
    set: &SetRow,
    gone: LostFeeds,
    edition: Option<Edition>,
) -> Result<bool, SyncError> {
    let now = Datetime::now();
    let (made_up, missing): (Vec<Feed>, Vec<Feed>) = gone.feeds.into_iter().partition(|feed| {
        let known = set.at.map(|at| Edition { at: Some(at) });
        [edition, known].into_iter().flatten().any(|edition| edition.is_after(feed.missed.or(Some(now))))
    });
    let missing = missing.into_iter().map(|feed| {
        let missed = feed.missed.unwrap_or(now);
        let cursor = feed.cursor.map(|cursor| format!(", which was followed up to {cursor},")).unwrap_or_default();
        let why = format!(
            "{}{cursor} is not there any more (noticed at {missed}), and the lists are no newer: what has changed since is \
             not known",
            feed.root
        );
        (Feed { missed: Some(missed), ..feed }, why)
    });
    let unreadable = gone.unreadable.into_iter().map(|(feed, error)| {
        let why = format!("{error}; what it tells is not known until it can be read");
        (Feed { missed: None, ..feed }, why)
    });
    let missing: Vec<(Feed, String)> = missing.chain(unreadable).collect();
    missing.iter().for_each(|(_, why)| context.status.error(why));
    let behind = !missing.is_empty();
    let unsaid: Vec<Feed> = missing
        .into_iter()
        .filter(|(feed, why)| feed.failure.as_ref() != Some(why))
        .map(|(feed, why)| Feed { failure: Some(why), ..feed })
        .collect();
    if !made_up.is_empty() || !unsaid.is_empty() {
        let id = set.id;
        context
            .write_queue
            .write(move |transaction| {
                made_up.iter().try_for_each(|feed| transaction.replace_feed(id, feed))?;
                unsaid.iter().try_for_each(|feed| transaction.note_feed_failure(id, feed))
            })
            .await?;
    }
    Ok(behind)
}
