//! One set: what it needs is decided, then done.

use std::sync::Arc;

use super::SyncScope;
use super::offers::{age_of, offers_changes};
use super::plan::{Known, Next, Plan};
use crate::catalog::{Feed, SetRow, SetState, SyncResult};
use crate::document::Datetime;
use crate::source::FoundSet;
use crate::sync::apply::baseline::{self, Edition};
use crate::sync::apply::changes::{self, Outcome};
use crate::sync::apply::lost_feeds::{self, LostFeeds};
use crate::sync::apply::set_rows::reload;
use crate::sync::context::Context;
use crate::sync::documents::follow::FollowDepth;
use crate::sync::error::SyncError;
use crate::sync::summary::Summary;

/// Brings one set in step; `None` if what it is `remembered` to offer is not there.
pub(super) async fn bring(
    context: &Arc<Context>,
    row: SetRow,
    found: &FoundSet,
    scope: SyncScope,
    remembered: bool,
) -> Result<Option<Summary>, SyncError> {
    let feeds = context.readers.ask(|reader| reader.feeds(row.id))?;
    let known = Known {
        state: row.state,
        offers_changes: offers_changes(found),
        has_feeds: !feeds.is_empty(),
        lists_requested: scope.lists,
        selected_otherwise: context.readers.ask(|reader| reader.was_selected_otherwise(row.id))?,
        lists_due: is_list_due(context, &row)?,
        wide: scope.wide,
    };
    let plan = Plan::of(&known);
    tracing::debug!(set = row.key, ?plan, "planned");
    let run = Run { context, row, found, summary: Summary::default(), edition: None };
    match plan.follow {
        Some(depth) => run.follow(plan, depth, scope, remembered).await,
        None => run.lists_alone(scope, feeds).await.map(Some),
    }
}

/// One set that is being brought in step.
struct Run<'r> {
    context: &'r Arc<Context>,
    row: SetRow,
    found: &'r FoundSet,
    summary: Summary,
    /// The edition of its lists that was read, if any of it was new.
    edition: Option<Edition>,
}

impl Run<'_> {
    /// Brings a set in step that offers no changes. `feeds`: what was followed of it before.
    async fn lists_alone(mut self, scope: SyncScope, feeds: Vec<Feed>) -> Result<Summary, SyncError> {
        self.read_lists(scope.accept_deletions, |_| false).await?;
        self.finish(LostFeeds { feeds, ..LostFeeds::default() }).await
    }

    /// Brings a set in step that offers changes.
    async fn follow(
        mut self,
        plan: Plan,
        depth: FollowDepth,
        scope: SyncScope,
        remembered: bool,
    ) -> Result<Option<Summary>, SyncError> {
        if plan.lists.is_some() {
            let state = self.row.state;
            let goes_on = |error: &SyncError| plan.follows_without_lists(state, error.is_away());
            self.read_lists(scope.accept_deletions, goes_on).await?;
        }
        let (outcome, mut lost) = match self.read_changes(depth).await {
            Ok(followed) => followed,
            Err(error) if plan.goes_on() => return Err(error),
            Err(error) => return self.without_changes(&error).await.map(Some),
        };
        match plan.after(&outcome, remembered) {
            Next::Done => {}
            Next::Discover => return Ok(None),
            Next::Lists { required } => {
                // What a doubtful deletion may have meant, the lists of the next sync tell, if need be.
                self.read_lists(false, |_| !required).await?;
                if required || self.edition.is_some() {
                    lost = self.read_changes(FollowDepth::Again).await?.1;
                }
            }
        }
        if plan.replaces_changes(&outcome, &lost) && self.edition.is_none() {
            self.read_lists(false, |error| !remembered && !error.is_away()).await?;
        }
        self.finish(lost).await.map(Some)
    }

    /// Reads the lists. An error that is `tolerated` is no reason to miss the changes.
    async fn read_lists(
        &mut self,
        accept_deletions: bool,
        tolerated: impl FnOnce(&SyncError) -> bool,
    ) -> Result<(), SyncError> {
        self.row = reload(self.context, self.row.clone())?;
        match baseline::bring(self.context, &self.row, self.found, accept_deletions).await {
            Ok((part, edition)) => {
                self.edition = edition;
                self.summary.add(&part);
                if !part.partial {
                    note_listed(self.context, &self.row).await?;
                }
            }
            Err(error) if tolerated(&error) => {
                self.context.status.error(&error.to_string());
                self.summary.partial = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read_changes(&mut self, depth: FollowDepth) -> Result<(Outcome, LostFeeds), SyncError> {
        self.row = reload(self.context, self.row.clone())?;
        let (outcome, lost) = changes::bring(self.context, &self.row, self.found, depth).await?;
        match &outcome {
            Outcome::NoFeed => {}
            Outcome::Unchanged => self.summary.not_modified += 1,
            Outcome::Applied(part) | Outcome::Doubtful(part) | Outcome::Gap(part) => self.summary.add(part),
        }
        Ok((outcome, lost))
    }

    /// The lists were read, and changes since could not be.
    async fn without_changes(mut self, error: &SyncError) -> Result<Summary, SyncError> {
        self.context.status.error(&format!("{error}; the tree is as its lists have it"));
        self.summary.partial = true;
        if self.row.state == SetState::Complete {
            let SetRow { id, held, held_edition, .. } = self.row;
            let result = SyncResult { state: SetState::Partial, cursor: None, at: None, held, held_edition };
            self.context.write_queue.write(move |transaction| transaction.finish_set(id, &result)).await?;
        }
        Ok(self.summary)
    }

    /// Notes what is lost of changes.
    async fn finish(mut self, lost: LostFeeds) -> Result<Summary, SyncError> {
        self.row = reload(self.context, self.row.clone())?;
        self.summary.partial |= lost_feeds::without(self.context, &self.row, lost, self.edition).await?;
        Ok(self.summary)
    }
}

/// Whether the lists of a set are to be read although its changes are followed.
fn is_list_due(context: &Context, row: &SetRow) -> Result<bool, SyncError> {
    match context.readers.ask(|reader| reader.listed(row.id))? {
        Some(None) => Ok(true),
        Some(Some(noted)) => {
            Ok(context.config.relist.is_some_and(|relist| age_of(noted).is_none_or(|age| age >= relist)))
        }
        None => Ok(context.config.relist.is_some()),
    }
}

/// Notes that the lists of a set were read or found unchanged now.
async fn note_listed(context: &Context, row: &SetRow) -> Result<(), SyncError> {
    let id = row.id;
    context
        .write_queue
        .step(move |writer| {
            writer.note_listed(id, Datetime::now())?;
            Ok(((), Default::default()))
        })
        .await
}
