//! From Change Lists and Change Dumps to the tree (core 12, 13).
//!
//! First every document is brought here, then all of them are applied in one step. Where both kinds are
//! offered, what is missing is taken from packages if that costs less than asking for each resource; the
//! Change List goes on from where they end, and what both tell counts once.
//!
//! The cursor of a feed passes a document only when all of it is in the tree.

use crate::catalog::SetId;
use std::sync::Arc;

use super::lost_feeds::LostFeeds;
use super::step::{MOST_STALE, Step};
use crate::bounds::Bounds;
use crate::catalog::{
    Beginning, CatalogError, Changes, DocumentRow, Edition, Feed, Past, SetRow, SetState, Transaction, Writer,
};
use crate::document::{Capability, Datetime, Limits, Reader};
use crate::path::Mapper;
use crate::source::{FoundSet, SourceError};
use crate::store::Store;
use crate::sync::config::SeedFrom;
use crate::sync::context::Context;
use crate::sync::documents::align::Continues;
use crate::sync::documents::dumps::Packed;
use crate::sync::documents::fetch::Budget;
use crate::sync::documents::follow::{Chain, FollowDepth, Followed, NOT_IN_HISTORY};
use crate::sync::documents::order::{Survey, Unsurveyed};
use crate::sync::documents::spooled::{About, Spooled};
use crate::sync::documents::{dumps, follow, order};
use crate::sync::error::SyncError;
use crate::sync::priority;
use crate::sync::status::Status;
use crate::sync::summary::Summary;
use crate::sync::transfer::package::NewMembers;

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

/// What is left of a feed to be applied.
struct Left {
    feed: Feed,
    documents: Vec<(Spooled, Survey)>,
    failure: Option<SourceError>,
    hole: Option<Hole>,
    /// Up to then, all is in the tree when all of its documents are.
    until: Option<Datetime>,
}

impl Left {
    /// Whether it lists changes that are older than `covered`, the time of the lists, and not in the history.
    fn has_history(&self, covered: Option<Datetime>) -> bool {
        self.feed.read_from(covered) < covered
    }
}

/// Changes that are missing before those of a feed.
#[derive(Clone, Copy)]
enum Hole {
    /// The feed begins `from` then; what the tree was made from ends at `covered`.
    Interval { covered: Option<Datetime>, from: Datetime },
    /// A list without an interval shares no entry with the edition of it that was followed up to `covered`; this was noticed at
    /// `from`.
    Lost { covered: Option<Datetime>, from: Datetime },
}

impl Hole {
    fn between((covered, from): (Option<Datetime>, Datetime)) -> Self {
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

/// Brings a set in step with what its Source says has changed.
pub(in crate::sync) async fn bring(
    context: &Arc<Context>,
    set: &SetRow,
    found: &FoundSet,
    how: FollowDepth,
) -> Result<(Outcome, LostFeeds), SyncError> {
    let lists = found.urls(Capability::ChangeList);
    let dumps = found.urls(Capability::ChangeDump);
    let (capability, roots) =
        if lists.is_empty() { (Capability::ChangeDump, &dumps) } else { (Capability::ChangeList, &lists) };
    if roots.is_empty() {
        return Ok((Outcome::NoFeed, LostFeeds::default()));
    }
    let archives = capability.archive().map(|archive| found.urls(archive)).unwrap_or_default();
    context.status.phase("reading changes");
    let (known, replaced) =
        context.readers.ask(|reader| Ok::<_, CatalogError>((reader.feeds(set.id)?, reader.replaced_feeds(set.id)?)))?;
    let covered = set.cursor.max(set.at);
    let gone_roots: Vec<&Feed> =
        known.iter().filter(|feed| feed.capability == capability && !roots.contains(&feed.root)).collect();
    let is_known = |root: &String| known.iter().any(|feed| feed.root == *root);
    let moved = match (gone_roots.as_slice(), roots.as_slice()) {
        ([one], [root]) if !is_known(root) => Some(*one),
        _ => None,
    };
    // What is not offered any more is missed: what it told since it was read last is not known.
    let missed = gone_roots.iter().filter(|_| moved.is_none());
    let mut gone = LostFeeds { feeds: missed.map(|feed| (*feed).clone()).collect(), ..LostFeeds::default() };
    let kept: Vec<String> = roots.iter().chain(gone.feeds.iter().map(|feed| &feed.root)).cloned().collect();
    let mut left = Vec::new();
    let budget = Budget::new(&context.config.bounds);
    let (mut errors, mut unchanged) = (Vec::new(), 0);
    for root in roots {
        // One that has moved is followed from where it was left.
        let before = known.iter().find(|feed| feed.root == *root).or(moved);
        let feed = match before {
            Some(before) => Feed { root: root.clone(), ..before.clone() },
            None => {
                let before = replaced.iter().find(|feed| feed.root == *root && feed.capability == capability);
                before.cloned().unwrap_or_else(|| Feed::new(root, capability))
            }
        };
        let how = if feed.failure.is_some() { how.max(FollowDepth::Again) } else { how };
        match follow::follow(context, &feed, &archives, roots, covered, how).await {
            Ok(Followed::Unchanged) => unchanged += 1,
            Ok(Followed::Changed(chain)) => left.push(survey(context, *chain, set.cursor, &budget).await?),
            Err(error) if follow::is_gone(&error) => {
                context.status.warning(&format!("{error}; there are only the lists to tell what it would"));
                match (before, error.trouble.is_missing()) {
                    (Some(before), true) => gone.feeds.push(before.clone()),
                    (None, true) => gone.unknown = true,
                    (_, false) => gone.unreadable.push((feed, error)),
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if left.is_empty() {
        return match errors.into_iter().next() {
            Some(error) => Err(error.into()),
            None if unchanged > 0 => Ok((Outcome::Unchanged, gone)),
            None => Ok((Outcome::NoFeed, gone)),
        };
    }
    errors.iter().for_each(|error| context.status.error(&error.to_string()));
    let plan = match capability {
        Capability::ChangeDump => unpack(context, set, left, &budget).await?,
        _ => {
            let choice = choose(context, set, &dumps, covered, &left, &budget).await?;
            Plan { packages: choice.packages, left, how: choice.how, why: choice.why }
        }
    };
    // Changes between where a feed was followed last and the lists that were read since belong to the history.
    let past = match plan.left.iter().any(|left| left.has_history(set.cursor)) {
        true => Some(Past::new(set.id, set.directory, &context.readers.ask(|reader| reader.reach(set.id))?)),
        false => None,
    };
    plan.left.iter().filter_map(|left| left.failure.as_ref()).for_each(|error| {
        context.status.error(&format!("{error}; changes after that wait until it can be read"));
    });
    context.status.phase("applying");
    let (mapper, status, store) =
        (Arc::clone(&context.mapper), Arc::clone(&context.status), Arc::clone(&context.store));
    let own = set.clone();
    let partial = !errors.is_empty();
    let is_whole = errors.is_empty() && unchanged == 0 && gone.is_empty();
    let Applied { mut summary, fresh, gap, doubtful } = context
        .write_queue
        .step(move |writer| apply(writer, &mapper, &status, &store, &own, (plan, past, is_whole), &kept))
        .await?;
    summary.partial |= partial;
    fresh.into_iter().for_each(|fresh| context.check_members(fresh));
    let outcome = match (gap, doubtful) {
        (true, _) => Outcome::Gap(summary),
        (false, true) => Outcome::Doubtful(summary),
        (false, false) => Outcome::Applied(summary),
    };
    Ok((outcome, gone))
}

async fn survey(
    context: &Context,
    chain: Chain,
    covered: Option<Datetime>,
    budget: &Arc<Budget>,
) -> Result<Left, SyncError> {
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
    Ok(Left { feed, documents, failure, hole, until: None })
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
    surveyed.await.map_err(|error| SyncError::Cache(error.to_string()))?.map_err(|error| match error {
        Unsurveyed::Disk(error) => SyncError::Cache(error.to_string()),
        Unsurveyed::Beyond(beyond) => SyncError::Unfit(beyond.to_string()),
    })
}

/// What one step applies.
struct Plan {
    /// Manifests of packages, that come before all else.
    packages: Vec<(Spooled, Survey)>,
    left: Vec<Left>,
    /// `changelist` or `changedump`, and why from that.
    how: &'static str,
    why: String,
}

/// What one step did.
struct Applied {
    summary: Summary,
    /// Members that were given to versions.
    fresh: Vec<NewMembers>,
    /// Whether changes are missing before those that were applied.
    gap: bool,
    /// Whether a deletion named what is not in the tree, or a change was withdrawn.
    doubtful: bool,
}

/// Where what is missing is taken from.
struct Choice {
    packages: Vec<(Spooled, Survey)>,
    how: &'static str,
    why: String,
}

/// Decides whether packages are read before the Change List.
async fn choose(
    context: &Arc<Context>,
    set: &SetRow,
    dumps: &[String],
    covered: Option<Datetime>,
    left: &[Left],
    budget: &Arc<Budget>,
) -> Result<Choice, SyncError> {
    let list = |why: String| Choice { packages: Vec::new(), how: "changelist", why };
    let is_present = |(document, _): &&(Spooled, Survey)| !document.ended_before(set.cursor);
    let documents = || left.iter().flat_map(|left| &left.documents).filter(is_present);
    let changes: u64 = documents().map(|(_, survey)| survey.left()).sum();
    let bytes: u64 = documents().map(|(_, survey)| survey.bytes).sum();
    if dumps.is_empty() {
        return Ok(list("the Source offers no Change Dump".to_owned()));
    }
    if context.config.seed == SeedFrom::List {
        return Ok(list("seed=list leaves Change Dumps alone".to_owned()));
    }
    if changes < WORTH_A_LOOK && context.config.seed != SeedFrom::Dump {
        return Ok(list(format!("{changes} changes are not worth a look at the Change Dump")));
    }
    let cursor = left.iter().filter_map(|left| left.feed.cursor).min().max(covered);
    let mut packed = Packed::default();
    for root in dumps {
        let feed = Feed { cursor, ..Feed::new(root, Capability::ChangeDump) };
        match follow::follow(context, &feed, &[], dumps, covered, FollowDepth::Again).await {
            Ok(Followed::Changed(chain)) if chain.failure.is_none() => {
                packed.extend(dumps::packages_since(context, set, chain.documents, cursor).await?);
            }
            Ok(Followed::Changed(chain)) => packed.failed.extend(chain.failure),
            Ok(Followed::Unchanged) => {}
            Err(error) => packed.failed.push(error),
        }
    }
    if let Some(error) = packed.failed.first() {
        return Ok(list(format!("the Change Dump cannot be used: {error}")));
    }
    if packed.packages.is_empty() || packed.hole(cursor).is_some() {
        return Ok(list("the Change Dump does not have all since where this mirror is".to_owned()));
    }
    let by_list = bytes.saturating_add(changes.saturating_mul(REQUEST));
    let by_dump = packed.bytes().saturating_add(2 * REQUEST * packed.packages.len() as u64);
    let costs = format!(
        "{changes} changes would cost {} KiB by themselves, and {} KiB in {} packages",
        by_list >> 10,
        by_dump >> 10,
        packed.packages.len()
    );
    if by_dump > by_list && context.config.seed != SeedFrom::Dump {
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

/// Turns documents that list packages into the manifests of those packages.
async fn unpack(
    context: &Arc<Context>,
    set: &SetRow,
    left: Vec<Left>,
    budget: &Arc<Budget>,
) -> Result<Plan, SyncError> {
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
    Ok(Plan { packages: Vec::new(), left: unpacked, how: "changedump", why })
}

/// Notifications that are to be applied in one step.
pub(in crate::sync) struct Told {
    pub(in crate::sync) set: SetId,
    pub(in crate::sync) channel: i64,
    pub(in crate::sync) url: String,
    /// Up to when its notifications are in the tree then.
    pub(in crate::sync) cursor: Option<Datetime>,
    pub(in crate::sync) deliveries: Vec<Delivered>,
    /// The deliveries that are dealt with then.
    pub(in crate::sync) done: Vec<i64>,
    /// What of them is read.
    pub(in crate::sync) bounds: Bounds,
    pub(in crate::sync) prefer: Option<Arc<str>>,
}

/// What was delivered on a channel.
pub(in crate::sync) struct Delivered {
    pub(in crate::sync) body: Vec<u8>,
    pub(in crate::sync) from: Datetime,
    pub(in crate::sync) until: Datetime,
    /// Whether what looks as if it had happened before is no reason to think that it happened again: each change has
    /// its time, or the lists were read after it came.
    pub(in crate::sync) sure: bool,
}

impl Delivered {
    /// As a document that was brought here.
    fn spooled(
        &self,
        url: &str,
        store: &Store,
        bounds: &Bounds,
        prefer: Option<Arc<str>>,
    ) -> Result<Spooled, CatalogError> {
        let failed = |error: std::io::Error| CatalogError::Io { path: store.root().display().to_string(), error };
        let mut file = store.spool().map_err(failed)?;
        std::io::Write::write_all(&mut file, &self.body).map_err(failed)?;
        // Relative references are to what the Source serves, not to what it sends frames from.
        let base = url.strip_prefix("ws").map(|rest| format!("http{rest}"));
        let base = url::Url::parse(base.as_deref().unwrap_or(url))
            .map_err(|error| failed(std::io::Error::other(format!("{url}: {error}"))))?;
        let row = DocumentRow { url: url.to_owned(), ..DocumentRow::default() };
        let limits = Limits::of(bounds);
        let by_lastmod =
            Reader::open(self.body.as_slice(), url, limits).is_ok_and(|one| one.head().changes_by_lastmod());
        let about = About { from: Some(self.from), until: Some(self.until), by_lastmod, ..About::default() };
        Ok(Spooled::new(row, base, file.into_temp_path(), about, *bounds, prefer))
    }
}

/// Applies notifications in one step, as a Change List is. Returns, too, whether something was told of that is known, and is
/// not what the tree shows: of changes within one moment only a list knows the order.
pub(in crate::sync) fn tell(
    writer: &mut Writer,
    mapper: &Mapper,
    status: &Status,
    store: &Store,
    told: Told,
) -> Result<((Summary, bool), Changes), CatalogError> {
    // As it is in this step: a sync may have been under way.
    let Some(set) = &writer.sets()?.into_iter().find(|set| set.id == told.set) else {
        return Ok(((Summary::default(), false), Changes::default()));
    };
    let mut transaction = writer.begin(true)?;
    transaction.begin_sync()?;
    let mut step = Step::new(&mut transaction, mapper, status, store, set);
    step.ordered = false;
    let mut doubtful = false;
    let feed = Feed::new(&told.url, Capability::ChangeNotification);
    for delivered in &told.deliveries {
        let document = delivered.spooled(&told.url, store, &told.bounds, told.prefer.clone())?;
        let survey = match order::survey(&document, &feed, set.cursor, &Budget::new(&told.bounds), store) {
            Ok(survey) => survey,
            Err(Unsurveyed::Disk(error)) => {
                return Err(CatalogError::Io { path: store.root().display().to_string(), error });
            }
            Err(Unsurveyed::Beyond(beyond)) => {
                status
                    .warning(&format!("{}: {beyond}; what the notification tells, the lists are asked for", told.url));
                doubtful = true;
                continue;
            }
        };
        step.document(&document, &survey)?;
        if delivered.sure {
            doubtful |= !step.stale.is_empty();
            step.stale.clear();
        }
    }
    step.settle()?;
    let Step { tally, forgot, oldest, .. } = step;
    doubtful |= forgot;
    transaction.channel_joins(told.channel, told.cursor)?;
    transaction.delivered(told.channel, &told.done)?;
    if !told.deliveries.is_empty() {
        transaction.followed(set.id, set.state, "notification", &format!("delivered on {}", told.url))?;
    }
    if tally.changed() {
        note_changes_over_lists(&transaction, set, oldest)?;
        transaction.end_sync(set.id, "notification", &tally)?;
    }
    let changes = transaction.commit()?;
    Ok(((Summary::of(&tally), doubtful), changes))
}

/// As long as not all of a newer edition of the lists is in the tree, the cursor does not tell which changes that edition includes.
fn note_changes_over_lists(
    transaction: &Transaction<'_>,
    set: &SetRow,
    oldest: Option<Datetime>,
) -> Result<(), CatalogError> {
    match (set.state, oldest) {
        (SetState::Partial | SetState::Held, Some(oldest)) => transaction.note_changes_over_lists(set.id, oldest),
        _ => Ok(()),
    }
}

/// Applies documents in one step. A gap is closed if these are the documents of all that is followed.
fn apply(
    writer: &mut Writer,
    mapper: &Mapper,
    status: &Status,
    store: &Store,
    set: &SetRow,
    (plan, past, is_whole): (Plan, Option<Past>, bool),
    roots: &[String],
) -> Result<(Applied, Changes), CatalogError> {
    let mut transaction = writer.begin(true)?;
    transaction.begin_sync()?;
    let mut step = Step::new(&mut transaction, mapper, status, store, set);
    (step.past, step.read_from) = (past, set.cursor);
    let mut partial = false;
    for (document, survey) in &plan.packages {
        // What breaks off here, the list tells of.
        if survey.unusable().is_none() {
            step.document(document, survey)?;
        }
    }
    let mut feeds = Vec::new();
    let (mut gap, mut withdrawn) = (None, false);
    // A document that gives no interval, and tells of nothing, says nothing of what is missing.
    let mut tells = plan.left.is_empty();
    for Left { mut feed, documents, failure, hole, until } in plan.left {
        step.read_from = feed.read_from(set.cursor);
        tells |= documents.iter().any(|(document, survey)| {
            let about = &document.about;
            survey.entries > 0 || !about.by_lastmod || about.from.is_some()
        });
        let known = feed.read.clone();
        let mut failure = failure.map(|error| error.to_string());
        for (document, survey) in &documents {
            let is_past = document.ended_before(set.cursor);
            if let Some(why) = survey.unusable().filter(|_| is_past) {
                status.warning(&format!("{}: {why}; {NOT_IN_HISTORY}", document.row.url));
                continue;
            }
            if let Some(why) = survey.unusable() {
                let why = format!(
                    "{}: {why}; its changes are not in the order of time, and wait until it can be read whole",
                    document.row.url
                );
                status.error(&why);
                failure = Some(why);
                break;
            }
            withdrawn |= survey.withdrawn;
            let end = step.document(document, survey)?;
            if end.broken.is_some() && (!step.stale.is_empty() || step.transaction.awaits_return()) {
                // Whether these have happened again, or what came after, only what was not read tells: all of it is gone
                // through once more.
                step.stale.clear();
                feed.read.clone_from(&known);
            } else {
                feed.has_read(Beginning { entries: survey.entries, digest: survey.digest }, survey.known);
                // A list that is empty for a while says nothing of what was in it.
                if !survey.edition.is_empty() {
                    feed.edition = Edition { url: document.row.url.clone(), entries: survey.edition.clone() };
                }
            }
            if hole.is_none() {
                // A change that is told to happen in the future is no reason to look away until then.
                let last = end.last.map(|last| last.min(document.about.until.unwrap_or_else(Datetime::now)));
                feed.cursor = [feed.cursor, document.about.from, last].into_iter().max().flatten();
            }
            if let Some(why) = end.broken.filter(|_| !is_past) {
                failure = Some(why);
                break;
            }
            if hole.is_none() {
                feed.cursor = feed.cursor.max(document.about.until);
            }
        }
        step.settle()?;
        if failure.is_some() {
            // What follows the one that broke may begin where we are: only from the top, all that is missing is found again.
            feed = Feed {
                cursor: feed.cursor,
                history_from: feed.history_from,
                read: feed.read,
                edition: feed.edition,
                lost: feed.lost,
                beside: feed.beside,
                ..Feed::new(&feed.root, feed.capability)
            };
            partial = true;
        } else {
            feed.history_from = None;
            feed.cursor = if hole.is_none() { feed.cursor.max(until) } else { feed.cursor };
        }
        (feed.failure, feed.missed) = (failure, None);
        if let Some((covered, from)) = hole.map(Hole::ends) {
            step.transaction.put_gap(set.id, covered, from)?;
            // Nothing has to have changed for it to be one still.
            (feed.etag, feed.last_modified) = (None, None);
        }
        gap = gap.or(hole);
        feeds.push(feed);
    }
    step.settle_absent()?;
    if let Some(past) = &mut step.past {
        step.transaction.tell_past(Some(past));
    }
    let Step { tally, fresh, forgot, oldest, .. } = step;
    for feed in &mut feeds {
        if forgot {
            feed.lost = Some(Datetime::now());
        }
        transaction.put_feed(set.id, feed)?;
    }
    let doubtful = withdrawn || tally.absent > 0;
    if doubtful {
        // Whatever ends this process, the lists are asked for.
        transaction.want_lists(set.id)?;
    }
    transaction.forget_feeds(set.id, roots)?;
    let state = match (gap, set.state) {
        (Some(hole), SetState::Complete | SetState::Gap) => {
            status.warning(&format!("{}: {hole}; a newer list or dump will close the gap", set.key));
            SetState::Gap
        }
        (None, SetState::Complete | SetState::Gap) if forgot => {
            status.warning(&format!(
                "{}: more than {MOST_STALE} changes that were told before may have happened again; a newer list or dump will tell",
                set.key
            ));
            SetState::Gap
        }
        (None, SetState::Gap) if tells && is_whole => SetState::Complete,
        // As it was before a list was looked at that is no newer.
        (_, state) => state,
    };
    transaction.followed(set.id, state, plan.how, &plan.why)?;
    if tally.changed() {
        note_changes_over_lists(&transaction, set, oldest)?;
        transaction.end_sync(set.id, plan.how, &tally)?;
    }
    let summary = Summary { partial, ..Summary::of(&tally) };
    let changes = transaction.commit()?;
    Ok((Applied { summary, fresh, gap: gap.is_some() || forgot, doubtful }, changes))
}
