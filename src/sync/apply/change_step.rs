//! One step of the writer that applies what all feeds of a set tell (core 12, 13): all of it, or nothing.
//!
//! **Owns** how far each feed was read, and whether changes are missing before what was.
//!
//! **Assumes** that all documents were downloaded and looked through before.

use super::step::{MOST_STALE, Step, note_changes_over_lists};
use super::step_context::StepContext;
use crate::catalog::{Beginning, CatalogError, Changes, Edition, Feed, Past, SetRow, SetState, Writer};
use crate::document::Datetime;
use crate::source::SourceError;
use crate::sync::documents::follow::NOT_IN_HISTORY;
use crate::sync::documents::order::Survey;
use crate::sync::documents::spooled::Spooled;
use crate::sync::status::Status;
use crate::sync::summary::Summary;
use crate::sync::transfer::package::NewMembers;

/// What is left of a feed to be applied.
pub(super) struct PendingFeed {
    pub(super) feed: Feed,
    pub(super) documents: Vec<(Spooled, Survey)>,
    pub(super) failure: Option<SourceError>,
    pub(super) hole: Option<Hole>,
    /// Up to then, all is in the tree when all of its documents are.
    pub(super) until: Option<Datetime>,
}

impl PendingFeed {
    /// Whether it lists changes that are older than `covered`, the time of the lists, and not in the history.
    pub(super) fn has_history(&self, covered: Option<Datetime>) -> bool {
        self.feed.read_from(covered) < covered
    }
}

/// Changes that are missing before those of a feed.
#[derive(Clone, Copy)]
pub(super) enum Hole {
    /// The feed begins `from` then; what the tree was made from ends at `covered`.
    Interval { covered: Option<Datetime>, from: Datetime },
    /// A list without an interval shares no entry with the edition of it that was followed up to `covered`; this was noticed at
    /// `from`.
    Lost { covered: Option<Datetime>, from: Datetime },
}

impl Hole {
    pub(super) fn between((covered, from): (Option<Datetime>, Datetime)) -> Self {
        Self::Interval { covered, from }
    }

    /// From when to when changes are missing.
    fn ends(self) -> (Option<Datetime>, Datetime) {
        let (Self::Interval { covered, from } | Self::Lost { covered, from }) = self;
        (covered, from)
    }
}

impl std::fmt::Display for Hole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let covered = self.ends().0.map_or_else(|| "of no known time".to_owned(), |covered| covered.to_string());
        match self {
            Self::Interval { from, .. } => {
                write!(f, "its changes begin at {from}, after what the tree was made from ({covered})")
            }
            Self::Lost { .. } => write!(
                f,
                "its Change List shares no entry with the edition of it that was followed before ({covered}): changes between the two are missing"
            ),
        }
    }
}

/// Where changes are taken from.
pub(super) struct Choice {
    /// Manifests of packages, that come before all else.
    pub(super) packages: Vec<(Spooled, Survey)>,
    /// `changelist` or `changedump`, and why from that.
    pub(super) how: &'static str,
    pub(super) why: String,
}

/// What one step applies.
pub(super) struct Plan {
    pub(super) choice: Choice,
    pub(super) left: Vec<PendingFeed>,
    /// What changes that are older than the lists are added to.
    pub(super) past: Option<Past>,
    /// Whether these are the documents of all that is followed: they close a gap.
    pub(super) is_whole: bool,
    /// Where the feeds are that are followed.
    pub(super) roots: Vec<String>,
}

/// What one step did.
pub(super) struct Applied {
    pub(super) summary: Summary,
    /// Members that were given to versions.
    pub(super) fresh: Vec<NewMembers>,
    /// Whether changes are missing before those that were applied.
    pub(super) gap: bool,
    /// Whether a deletion named what is not in the tree, or a change was withdrawn.
    pub(super) doubtful: bool,
}

/// Applies documents in one step.
pub(super) fn apply(
    writer: &mut Writer,
    context: &StepContext,
    set: &SetRow,
    plan: Plan,
) -> Result<(Applied, Changes), CatalogError> {
    let mut transaction = writer.begin(true)?;
    transaction.begin_sync()?;
    let mut step = Step::new(&mut transaction, context, set);
    (step.past, step.read_from) = (plan.past, set.cursor);
    for (document, survey) in &plan.choice.packages {
        // What breaks off here, the list tells of.
        if survey.unusable().is_none() {
            step.document(document, survey)?;
        }
    }
    let mut reader = FeedReader {
        step,
        status: &context.status,
        set,
        // A document that gives no interval, and tells of nothing, says nothing of what is missing.
        tells: plan.left.is_empty(),
        gap: None,
        withdrawn: false,
        partial: false,
        feeds: Vec::new(),
    };
    plan.left.into_iter().try_for_each(|left| reader.feed(left))?;
    reader.step.settle_absent()?;
    if let Some(past) = &mut reader.step.past {
        reader.step.transaction.tell_past(Some(past));
    }
    let state = reader.state(plan.is_whole);
    let FeedReader { step, gap, withdrawn, partial, feeds, .. } = reader;
    let Step { tally, fresh, forgot, oldest, .. } = step;
    for mut feed in feeds {
        if forgot {
            feed.lost = Some(Datetime::now());
        }
        transaction.put_feed(set.id, &feed)?;
    }
    let doubtful = withdrawn || tally.absent > 0;
    if doubtful {
        // Whatever ends this process, the lists are asked for.
        transaction.want_lists(set.id)?;
    }
    transaction.forget_feeds(set.id, &plan.roots)?;
    let Choice { how, why, .. } = &plan.choice;
    transaction.followed(set.id, state, how, why)?;
    if tally.changed() {
        note_changes_over_lists(&transaction, set, oldest)?;
        transaction.end_sync(set.id, how, &tally)?;
    }
    let summary = Summary { partial, ..Summary::of(&tally) };
    let changes = transaction.commit()?;
    Ok((Applied { summary, fresh, gap: gap.is_some() || forgot, doubtful }, changes))
}

struct FeedReader<'s, 'w> {
    step: Step<'s, 'w>,
    status: &'s Status,
    set: &'s SetRow,
    /// Whether any document says of what time it tells.
    tells: bool,
    /// The first that was found.
    gap: Option<Hole>,
    /// Whether a change that was told before is not told any more.
    withdrawn: bool,
    partial: bool,
    /// Those that were read, as they are left.
    feeds: Vec<Feed>,
}

/// A feed while it is read.
struct Reading {
    feed: Feed,
    /// What was known of it before.
    known: Vec<Beginning>,
    /// Whether nothing is missing before it: then its cursor goes on with what is read.
    is_joined: bool,
}

impl Reading {
    fn has_read(&mut self, document: &Spooled, survey: &Survey) {
        self.feed.has_read(Beginning { entries: survey.entries, digest: survey.digest }, survey.known);
        let (url, from) = (&document.row.url, document.about.from);
        // An empty list does not replace the edition before: a publisher may be rewriting it. If it begins later, it does: all entries
        // of that edition lie before it.
        let begins_later = self.feed.edition.from.is_some() && self.feed.edition.from < from;
        let is_replaced = survey.is_empty() && begins_later && self.feed.edition.url == *url;
        if !survey.edition.is_empty() || is_replaced {
            self.feed.edition = Edition { url: url.clone(), from, entries: survey.edition.clone() };
        }
    }

    /// The feed has been read up to the change of this time, or all of the document.
    fn goes_on(&mut self, document: &Spooled, last: Option<Datetime>, is_whole: bool) {
        if !self.is_joined {
            return;
        }
        let about = &document.about;
        // A change that is told to happen in the future is no reason to look away until then.
        let last = last.map(|last| last.min(about.until.unwrap_or_else(Datetime::now)));
        let until = about.until.filter(|_| is_whole);
        self.feed.cursor = [self.feed.cursor, about.from, last, until].into_iter().max().flatten();
    }

    /// The feed as it is left. All is in the tree `until` then, if it did not fail.
    fn end(self, failure: Option<String>, until: Option<Datetime>) -> Feed {
        let feed = self.feed;
        match failure {
            // The document after the one that broke may begin at our cursor, which would hide what is missing between them: it is
            // begun again at the root.
            Some(failure) => Feed {
                cursor: feed.cursor,
                history_from: feed.history_from,
                read: feed.read,
                edition: feed.edition,
                lost: feed.lost,
                beside: feed.beside,
                failure: Some(failure),
                missed: None,
                ..Feed::new(&feed.root, feed.capability)
            },
            None => Feed {
                history_from: None,
                cursor: if self.is_joined { feed.cursor.max(until) } else { feed.cursor },
                failure: None,
                missed: None,
                ..feed
            },
        }
    }
}

impl FeedReader<'_, '_> {
    fn feed(&mut self, left: PendingFeed) -> Result<(), CatalogError> {
        let PendingFeed { feed, documents, failure, hole, until } = left;
        self.step.read_from = feed.read_from(self.set.cursor);
        self.tells |= documents.iter().any(|(document, survey)| {
            let about = &document.about;
            survey.entries > 0 || !about.by_lastmod || about.from.is_some()
        });
        let mut reading = Reading { known: feed.read.clone(), feed, is_joined: hole.is_none() };
        let mut failure = failure.map(|error| error.to_string());
        for (document, survey) in &documents {
            if let Some(why) = self.document(&mut reading, document, survey)? {
                failure = Some(why);
                break;
            }
        }
        self.step.settle()?;
        self.partial |= failure.is_some();
        let mut feed = reading.end(failure, until);
        if let Some((covered, from)) = hole.map(Hole::ends) {
            self.step.transaction.put_gap(self.set.id, covered, from)?;
            // Nothing has to have changed for it to be one still.
            (feed.etag, feed.last_modified) = (None, None);
        }
        self.gap = self.gap.or(hole);
        self.feeds.push(feed);
        Ok(())
    }

    /// Applies one document of a feed. Returns why those after it have to wait, if they have.
    fn document(
        &mut self,
        reading: &mut Reading,
        document: &Spooled,
        survey: &Survey,
    ) -> Result<Option<String>, CatalogError> {
        let (url, is_past) = (&document.row.url, document.ended_before(self.set.cursor));
        match survey.unusable() {
            Some(why) if is_past => {
                self.status.warning(&format!("{url}: {why}; {NOT_IN_HISTORY}"));
                return Ok(None);
            }
            Some(why) => {
                let why = format!(
                    "{url}: {why}; its changes are not in the order of time, and wait until it can be read whole"
                );
                self.status.error(&why);
                return Ok(Some(why));
            }
            None => {}
        }
        self.withdrawn |= survey.withdrawn;
        let end = self.step.document(document, survey)?;
        if end.broken.is_some() && (!self.step.stale.is_empty() || self.step.transaction.awaits_return()) {
            // Whether these have happened again, or what came after, only what was not read tells: all of it is gone
            // through once more.
            self.step.stale.clear();
            reading.feed.read.clone_from(&reading.known);
        } else {
            reading.has_read(document, survey);
        }
        let failure = end.broken.filter(|_| !is_past);
        reading.goes_on(document, end.last, failure.is_none());
        Ok(failure)
    }

    /// What is known of the set then, where these are the documents of all that is followed, or not.
    fn state(&self, is_whole: bool) -> SetState {
        let key = &self.set.key;
        match (self.gap, self.set.state) {
            (Some(hole), SetState::Complete | SetState::Gap) => {
                self.status.warning(&format!("{key}: {hole}; a newer list or dump will close the gap"));
                SetState::Gap
            }
            (None, SetState::Complete | SetState::Gap) if self.step.forgot => {
                self.status.warning(&format!(
                    "{key}: more than {MOST_STALE} changes that were told before may have happened again; a newer list or dump \
                     will tell"
                ));
                SetState::Gap
            }
            (None, SetState::Gap) if self.tells && is_whole => SetState::Complete,
            // As it was before a list was looked at that is no newer.
            (_, state) => state,
        }
    }
}
