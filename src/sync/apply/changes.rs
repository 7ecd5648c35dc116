//! From Change Lists and Change Dumps to the tree (core 12, 13).
//!
//! First every document is brought here, then all of them are applied in one step. Where both kinds are
//! offered, what is missing is taken from packages if that costs less than asking for each resource; the
//! Change List goes on from where they end, and what both tell counts once.
//!
//! The cursor of a feed passes a document only when all of it is in the tree.

use std::sync::Arc;

use super::change_step::{self, Applied, Choice, Hole, PendingFeed, Plan};
use super::lost_feeds::LostFeeds;
use super::step_context::StepContext;
use crate::catalog::{CatalogError, Feed, Past, SetRow};
use crate::document::{Capability, Datetime};
use crate::source::{FoundSet, SourceError};
use crate::sync::config::SeedFrom;
use crate::sync::context::Context;
use crate::sync::documents::align::Continues;
use crate::sync::documents::dumps::Packed;
use crate::sync::documents::fetch::Budget;
use crate::sync::documents::follow::{Chain, FollowDepth, Followed, NOT_IN_HISTORY, OtherFeeds};
use crate::sync::documents::order::{Survey, Unsurveyed};
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{dumps, follow, order};
use crate::sync::error::SyncError;
use crate::sync::priority;
use crate::sync::summary::Summary;

/// What a request costs, in bytes that could come in its stead.
const REQUEST: u64 = 16 << 10;
/// Below so many changes nobody looks whether packages would cost less.
const WORTH_A_LOOK: u64 = 16;

/// What following the changes of a set came to.
#[derive(Debug)]
pub(in crate::sync) enum Outcome {
    /// The Source offers no list of changes that can be read.
    NoFeed,
    /// There is nothing new.
    Unchanged,
    /// Changes were applied.
    Applied(Summary),
    /// Changes were applied, among them a deletion of what is not in the tree: it may have another URI there; or one that was told
    /// before is not told any more.
    Doubtful(Summary),
    /// Changes were applied, and others are missing before them.
    Gap(Summary),
}

/// Brings a set in step with what its Source says has changed.
pub(in crate::sync) async fn bring(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
    how: FollowDepth,
) -> Result<(Outcome, LostFeeds), SyncError> {
    let Some(offered) = Offered::of(context, set, found)? else {
        return Ok((Outcome::NoFeed, LostFeeds::default()));
    };
    context.status.phase("reading changes");
    let budget = Budget::new(&context.config.bounds);
    let Looked { left, errors, unchanged, gone } = offered.look(context, set, how, &budget).await?;
    if left.is_empty() {
        return match errors.into_iter().next() {
            Some(error) => Err(error.into()),
            None if unchanged > 0 => Ok((Outcome::Unchanged, gone)),
            None => Ok((Outcome::NoFeed, gone)),
        };
    }
    errors.iter().for_each(|error| context.status.error(&error.to_string()));
    let (choice, left) = match offered.capability {
        Capability::ChangeDump => unpack(context, set, left, &budget).await?,
        _ => (choose(context, set, &offered.dumps, &left, &budget).await?, left),
    };
    left.iter().filter_map(|left| left.failure.as_ref()).for_each(|error| {
        context.status.error(&format!("{error}; changes after that wait until it can be read"));
    });
    // Changes between where a feed was followed last and the lists that were read since belong to the history.
    let past = match left.iter().any(|left| left.has_history(set.cursor)) {
        true => Some(Past::new(set.id, set.directory, &context.readers.ask(|reader| reader.reach(set.id))?)),
        false => None,
    };
    let is_whole = errors.is_empty() && unchanged == 0 && gone.is_empty();
    let plan = Plan { choice, left, past, is_whole, roots: offered.kept() };
    context.status.phase("applying");
    let (own, step) = (set.clone(), StepContext::of(context));
    let Applied { mut summary, fresh, gap, doubtful } =
        context.write_queue.step(move |writer| change_step::apply(writer, &step, &own, plan)).await?;
    summary.partial |= !errors.is_empty();
    fresh.into_iter().for_each(|fresh| context.check_members(fresh));
    let outcome = match (gap, doubtful) {
        (true, _) => Outcome::Gap(summary),
        (false, true) => Outcome::Doubtful(summary),
        (false, false) => Outcome::Applied(summary),
    };
    Ok((outcome, gone))
}

/// The changes that a Source offers of a set, and what is known of its feeds.
struct Offered {
    capability: Capability,
    /// Where they are.
    roots: Vec<String>,
    /// The Change Dumps, beside the Change Lists that are followed.
    dumps: Vec<String>,
    archives: Vec<String>,
    known: Vec<Feed>,
    replaced: Vec<Feed>,
    /// The feed that is offered elsewhere now.
    moved: Option<Feed>,
    /// Those that are not offered any more: what they told since they were read last is not known.
    missed: Vec<Feed>,
}

/// What the feeds of a set have.
#[derive(Default)]
struct Looked {
    left: Vec<PendingFeed>,
    errors: Vec<SourceError>,
    /// How many of them have not changed.
    unchanged: usize,
    gone: LostFeeds,
}

impl Offered {
    fn of(context: &Context, set: &SetRow, found: &FoundSet) -> Result<Option<Self>, SyncError> {
        let lists = found.urls(Capability::ChangeList);
        let dumps = found.urls(Capability::ChangeDump);
        let (capability, roots) = match lists.is_empty() {
            true => (Capability::ChangeDump, dumps.clone()),
            false => (Capability::ChangeList, lists),
        };
        if roots.is_empty() {
            return Ok(None);
        }
        let archives = capability.archive().map(|archive| found.urls(archive)).unwrap_or_default();
        let (known, replaced) = context
            .readers
            .ask(|reader| Ok::<_, CatalogError>((reader.feeds(set.id)?, reader.replaced_feeds(set.id)?)))?;
        let mut missed: Vec<Feed> =
            known.iter().filter(|feed| feed.capability == capability && !roots.contains(&feed.root)).cloned().collect();
        let is_known = |root: &String| known.iter().any(|feed| feed.root == *root);
        let moved = match (missed.len(), roots.as_slice()) {
            (1, [root]) if !is_known(root) => missed.pop(),
            _ => None,
        };
        Ok(Some(Self { capability, roots, dumps, archives, known, replaced, moved, missed }))
    }

    /// The roots of the feeds that are kept.
    fn kept(&self) -> Vec<String> {
        self.roots.iter().chain(self.missed.iter().map(|feed| &feed.root)).cloned().collect()
    }

    /// What is known of a feed; one that has moved is followed from where it was left.
    fn before(&self, root: &str) -> Option<&Feed> {
        self.known.iter().find(|feed| feed.root == root).or(self.moved.as_ref())
    }

    /// A feed as it is to be followed.
    fn feed(&self, root: &str) -> Feed {
        if let Some(before) = self.before(root) {
            return Feed { root: root.to_owned(), ..before.clone() };
        }
        let replaced = self.replaced.iter().find(|feed| feed.root == root && feed.capability == self.capability);
        replaced.cloned().unwrap_or_else(|| Feed::new(root, self.capability))
    }

    /// Follows all feeds from where they were left.
    async fn look(
        &self,
        context: &Arc<Context>,
        set: &SetRow,
        how: FollowDepth,
        budget: &Arc<Budget>,
    ) -> Result<Looked, SyncError> {
        let gone = LostFeeds { feeds: self.missed.clone(), ..LostFeeds::default() };
        let mut looked = Looked { gone, ..Looked::default() };
        let beside = OtherFeeds { archives: &self.archives, roots: &self.roots };
        for root in &self.roots {
            let feed = self.feed(root);
            let how = if feed.failure.is_some() { how.max(FollowDepth::Again) } else { how };
            match follow::follow(context, &feed, beside, set.cursor.max(set.at), how).await {
                Ok(Followed::Unchanged) => looked.unchanged += 1,
                Ok(Followed::Changed(chain)) => looked.left.push(survey(context, *chain, set.cursor, budget).await?),
                Err(error) if follow::is_gone(&error) => {
                    context.status.warning(&format!("{error}; there are only the lists to tell what it would"));
                    match (self.before(root), error.trouble.is_missing()) {
                        (Some(before), true) => looked.gone.feeds.push(before.clone()),
                        (None, true) => looked.gone.unknown = true,
                        (_, false) => looked.gone.unreadable.push((feed, error)),
                    }
                }
                Err(error) => looked.errors.push(error),
            }
        }
        Ok(looked)
    }
}

async fn survey(
    context: &Context,
    chain: Chain,
    covered: Option<Datetime>,
    budget: &Arc<Budget>,
) -> Result<PendingFeed, SyncError> {
    let Chain { documents, mut feed, failure, hole } = chain;
    let documents = surveyed(context, documents, feed.clone(), covered, budget).await?;
    let is_lost = |(document, survey): &&(Spooled, Survey)| {
        survey.continues == Continues::Nothing
            && document.about.from.is_none()
            && feed.capability == Capability::ChangeList
    };
    if let Some((document, _)) = documents.iter().find(is_lost) {
        feed.lost = feed.lost.max(Some(document.date));
    }
    let lost = feed.lost.map(|from| Hole::Lost { covered: feed.cursor, from });
    let hole = hole.map(Hole::between).or(lost);
    Ok(PendingFeed { feed, documents, failure, hole, until: None })
}

async fn surveyed(
    context: &Context,
    documents: Vec<Spooled>,
    feed: Feed,
    covered: Option<Datetime>,
    budget: &Arc<Budget>,
) -> Result<Vec<(Spooled, Survey)>, SyncError> {
    let (budget, status, store) = (Arc::clone(budget), Arc::clone(&context.status), Arc::clone(&context.store));
    // Documents that only the history needs do not use up the budget of the tree.
    let history_budget = Budget::new(&context.config.bounds);
    let surveyed = priority::run(move || {
        let mut all = Vec::new();
        for document in documents {
            let is_past = document.ended_before(covered);
            match order::survey(&document, &feed, covered, if is_past { &history_budget } else { &budget }, &store) {
                Ok(survey) => all.push((document, survey)),
                Err(Unsurveyed::Beyond(beyond)) if is_past => {
                    status.warning(&format!("{}: {beyond}; {NOT_IN_HISTORY}", document.row.url));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    });
    surveyed.await?.map_err(|error| match error {
        Unsurveyed::Disk(error) => error.into(),
        Unsurveyed::Beyond(beyond) => SyncError::Unfit(beyond.to_string()),
    })
}

/// What is missing, and what it would cost to ask for each of it.
struct Missing {
    changes: u64,
    bytes: u64,
    /// From when it is missing.
    since: Option<Datetime>,
}

/// Decides whether packages are read before the Change List.
async fn choose(
    context: &Arc<Context>,
    set: &SetRow,
    dumps: &[String],
    left: &[PendingFeed],
    budget: &Arc<Budget>,
) -> Result<Choice, SyncError> {
    let list = |why: String| Choice { packages: Vec::new(), how: "changelist", why };
    let is_present = |(document, _): &&(Spooled, Survey)| !document.ended_before(set.cursor);
    let documents = || left.iter().flat_map(|left| &left.documents).filter(is_present);
    let missing = Missing {
        changes: documents().map(|(_, survey)| survey.left()).sum(),
        bytes: documents().map(|(_, survey)| survey.bytes).sum(),
        since: left.iter().filter_map(|left| left.feed.cursor).min().max(set.cursor.max(set.at)),
    };
    let has_to = context.config.seed == SeedFrom::Dump;
    if dumps.is_empty() {
        return Ok(list("the Source offers no Change Dump".to_owned()));
    }
    if context.config.seed == SeedFrom::List {
        return Ok(list("seed=list leaves Change Dumps alone".to_owned()));
    }
    if missing.changes < WORTH_A_LOOK && !has_to {
        return Ok(list(format!("{} changes are not worth a look at the Change Dump", missing.changes)));
    }
    let packed = packages_beside(context, set, dumps, missing.since).await?;
    if let Some(error) = packed.failed.first() {
        return Ok(list(format!("the Change Dump cannot be used: {error}")));
    }
    if packed.packages.is_empty() || packed.hole(missing.since).is_some() {
        return Ok(list("the Change Dump does not have all since where this mirror is".to_owned()));
    }
    let (costs, is_cheaper) = missing.costs(&packed);
    if !is_cheaper && !has_to {
        return Ok(list(costs));
    }
    let manifests = dumps::manifests_of_changes(context, packed, false).await?;
    if let Some(error) = manifests.failed.first() {
        context.status.warning(&format!("{error}; its changes come by the Change List"));
        return Ok(list(format!("the Change Dump cannot be used: {error}")));
    }
    let feed = Feed::new("", Capability::ChangeDump);
    let packages = surveyed(context, manifests.read, feed, set.cursor, budget).await?;
    Ok(Choice { packages, how: "changedump", why: costs })
}

impl Missing {
    /// What it costs by itself and in packages, in words, and whether packages cost no more.
    fn costs(&self, packed: &Packed) -> (String, bool) {
        let by_list = self.bytes.saturating_add(self.changes.saturating_mul(REQUEST));
        let by_dump = packed.bytes().saturating_add(2 * REQUEST * packed.packages.len() as u64);
        let words = format!(
            "{} changes would cost {} KiB by themselves, and {} KiB in {} packages",
            self.changes,
            by_list >> 10,
            by_dump >> 10,
            packed.packages.len()
        );
        (words, by_dump <= by_list)
    }
}

/// The packages of Change Dumps since a moment.
async fn packages_beside(
    context: &Arc<Context>,
    set: &SetRow,
    dumps: &[String],
    since: Option<Datetime>,
) -> Result<Packed, SyncError> {
    let mut packed = Packed::default();
    let beside = OtherFeeds { archives: &[], roots: dumps };
    for root in dumps {
        let feed = Feed { cursor: since, ..Feed::new(root, Capability::ChangeDump) };
        match follow::follow(context, &feed, beside, set.cursor.max(set.at), FollowDepth::Again).await {
            Ok(Followed::Changed(chain)) if chain.failure.is_none() => {
                packed.extend(dumps::packages_since(context, set, chain.documents, since).await?);
            }
            Ok(Followed::Changed(chain)) => packed.failed.extend(chain.failure),
            Ok(Followed::Unchanged) => {}
            Err(error) => packed.failed.push(error),
        }
    }
    Ok(packed)
}

/// Turns documents that list packages into the manifests of those packages.
async fn unpack(
    context: &Arc<Context>,
    set: &SetRow,
    left: Vec<PendingFeed>,
    budget: &Arc<Budget>,
) -> Result<(Choice, Vec<PendingFeed>), SyncError> {
    let mut unpacked = Vec::new();
    for mut one in left {
        let documents: Vec<Spooled> = one.documents.drain(..).map(|(document, _)| document).collect();
        let until = documents.last().and_then(|document| document.about.until);
        let covered = one.feed.cursor.max(set.cursor);
        let packed = dumps::packages_since(context, set, documents, one.feed.read_from(covered)).await?;
        let (past, packed) = packed.split(covered);
        let past = dumps::manifests_of_changes(context, past, false).await?;
        past.failed.iter().for_each(|error| context.status.warning(&format!("{error}; {NOT_IN_HISTORY}")));
        one.failure = one.failure.or_else(|| packed.failed.first().cloned());
        one.hole = one.hole.or(packed.hole(covered).map(|from| Hole::Interval { covered, from }));
        let manifests = dumps::manifests_of_changes(context, packed, false).await?;
        one.failure = one.failure.or_else(|| manifests.failed.first().cloned());
        if one.failure.is_some() || one.hole.is_some() {
            (one.feed.etag, one.feed.last_modified) = (None, None);
        } else {
            one.until = until;
        }
        let manifests = past.read.into_iter().chain(manifests.read).collect();
        one.documents = surveyed(context, manifests, one.feed.clone(), set.cursor, budget).await?;
        unpacked.push(one);
    }
    let why = "the Source offers no Change List".to_owned();
    Ok((Choice { packages: Vec::new(), how: "changedump", why }, unpacked))
}
