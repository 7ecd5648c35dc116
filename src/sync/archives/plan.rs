//! What of archives is to be read, and in which order.
//!
//! What has happened since the mirror was made it follows by itself, but for gaps that only a newer list closed. Where a Source
//! tells no changes, its lists are followed: between two of them, an archive may know more.

use std::collections::{HashSet, VecDeque};

use crate::bounds;
use crate::catalog::{ArchivedRow, Offer, Reach, SetRow, SetState};
use crate::document::{Capability, Datetime};
use crate::source::{SourceError, Trouble};
use crate::sync::context::Context;
use crate::sync::documents::fetch::{DocumentFetcher, Got};
use crate::sync::documents::follow;
use crate::sync::error::SyncError;

/// What archives are of, in the order in which they are read at the same moment: content is given to what is known.
const KINDS: [Capability; 4] =
    [Capability::ResourceList, Capability::ResourceDump, Capability::ChangeList, Capability::ChangeDump];

/// A document that is to be read.
#[derive(Clone, Debug)]
pub(in crate::sync) struct Planned {
    pub(in crate::sync) capability: Capability,
    pub(in crate::sync) url: String,
    /// When its snapshot, or its interval, began.
    pub(in crate::sync) begin: Option<Datetime>,
}

impl Planned {
    pub(in crate::sync) fn row(&self, failure: Option<String>) -> ArchivedRow {
        ArchivedRow { url: self.url.clone(), capability: self.capability, begin: self.begin, failure }
    }
}

/// What of a set is to be read.
#[derive(Debug)]
pub(in crate::sync) struct Plan {
    /// By their moments.
    pub(in crate::sync) snapshots: VecDeque<Planned>,
    /// By their beginning.
    pub(in crate::sync) changes: VecDeque<Planned>,
    /// Documents of changes that are in the history, by their beginning: what comes before them late may make them tell more.
    pub(in crate::sync) read: Vec<Planned>,
    /// What happened from then on is followed, or is still to be listed.
    pub(in crate::sync) horizon: Datetime,
    /// Whether it is followed: then a document that goes on beyond the horizon is done with there.
    pub(in crate::sync) follows: bool,
    /// Indexes of changes that are done with when those are.
    pub(in crate::sync) indexes: Vec<ArchivedRow>,
    pub(in crate::sync) failed: Vec<SourceError>,
}

impl Plan {
    /// Finds out what is to be read; none where nothing is known yet that it could be added to.
    pub(in crate::sync) async fn of(context: &Context, set: &SetRow, reach: &Reach) -> Result<Option<Self>, SyncError> {
        let offers = context.readers.ask(|reader| reader.offers(set.id))?;
        let follows = offers.iter().any(|offer| offer.capability.tells_changes()) && set.state != SetState::Gap;
        // Between lists, without changes, more may have happened than they tell.
        let Some(known) = (if follows { reach.first } else { reach.last }) else { return Ok(None) };
        let horizon = reach.gaps.iter().map(|(_, until)| *until).fold(known, Datetime::max).min(Datetime::now());
        let mut plan = Self {
            snapshots: VecDeque::new(),
            changes: VecDeque::new(),
            read: Vec::new(),
            horizon,
            follows,
            indexes: Vec::new(),
            failed: Vec::new(),
        };
        let is_past = |begin: Option<Datetime>| {
            let in_gap = |begin| reach.gaps.iter().any(|(from, until)| *from <= begin && begin < *until);
            begin.is_none_or(|begin| begin < known.min(horizon) || in_gap(begin))
        };
        let mut seen = HashSet::new();
        for kind in KINDS {
            for planned in plan.documents(context, kind, &offers, reach).await {
                if is_past(planned.begin) && seen.insert((planned.url.clone(), kind, planned.begin)) {
                    plan.add(context, planned, reach);
                }
            }
        }
        plan.snapshots.make_contiguous().sort_by_key(|planned| planned.begin);
        plan.changes.make_contiguous().sort_by_key(|planned| planned.begin);
        plan.read.sort_by_key(|planned| planned.begin);
        Ok(Some(plan))
    }

    /// The documents of a kind that archives name, or that are offered today.
    async fn documents(
        &mut self,
        context: &Context,
        kind: Capability,
        offers: &[Offer],
        reach: &Reach,
    ) -> Vec<Planned> {
        let urls = |capability: Capability| {
            offers.iter().filter(move |offer| offer.capability == capability).map(|offer| offer.url.clone())
        };
        let of_kind = |row: &&ArchivedRow| row.capability == kind && row.failure.is_none();
        let done: HashSet<&str> = reach.archived.iter().filter(of_kind).map(|row| row.url.as_str()).collect();
        let mut roots: Vec<String> = kind.archive().into_iter().flat_map(&urls).collect();
        // What happened before the mirror was made is told today, too. Once that was read, there is nothing more to it.
        let today: Vec<String> =
            urls(kind).filter(|url| kind.tells_changes() && !done.contains(url.as_str())).collect();
        roots.extend(today.iter().cloned());
        if roots.is_empty() {
            return Vec::new();
        }
        let failed = self.failed.len();
        let all = named(context, kind, roots, &done, &mut self.failed).await;
        if self.failed.len() == failed {
            let indexes = today.into_iter().filter(|url| all.iter().all(|planned| planned.url != *url));
            let row = |url| ArchivedRow { url, capability: kind, begin: None, failure: None };
            self.indexes.extend(indexes.map(row));
        }
        all
    }

    fn add(&mut self, context: &Context, planned: Planned, reach: &Reach) {
        let is_read = reach.archived.iter().any(|row| {
            let same = (&row.url, row.capability) == (&planned.url, planned.capability);
            same && row.begin == planned.begin && row.failure.is_none()
        });
        let tells_changes = planned.capability.tells_changes();
        match planned.begin {
            _ if is_read => self.read.extend(Some(planned).filter(|_| tells_changes)),
            _ if tells_changes => self.changes.push_back(planned),
            // What was read as the current list is known; a dump has the content.
            Some(at) if planned.capability == Capability::ResourceList && reach.snapshots.contains(&at) => {}
            Some(_) => self.snapshots.push_back(planned),
            None => {
                let why = "it does not say when it was made, and is of no use for history".to_owned();
                let error = SourceError::new(&planned.url, Trouble::Nowhere(why));
                context.status.warning(&error.to_string());
            }
        }
    }
}

/// The documents that archives name, and those below them; or what is at their place, if it is no archive. What does not say
/// itself when it begins is looked at, unless it is `done`.
async fn named(
    context: &Context,
    capability: Capability,
    roots: Vec<String>,
    done: &HashSet<&str>,
    failed: &mut Vec<SourceError>,
) -> Vec<Planned> {
    let fetcher = DocumentFetcher::new(context, capability);
    let bounds = context.config.bounds;
    let mut asked: HashSet<String> = roots.iter().cloned().collect();
    let mut queue: VecDeque<(String, usize)> = roots.into_iter().map(|root| (root, 0)).collect();
    let mut all = Vec::new();
    while let Some((url, depth)) = queue.pop_front() {
        let parts = match fetcher.get(&url, depth, None).await {
            Ok(Got::Index { archive, row, parts, .. }) => match archive || capability.tells_changes() {
                true => parts,
                // A list in several parts is one.
                false => {
                    let begin = row.at.or_else(|| parts.iter().filter_map(|part| part.at).min());
                    all.push(Planned { capability, url, begin });
                    continue;
                }
            },
            Ok(Got::List(document)) => {
                let about = &document.about;
                let begin = if capability.tells_changes() { about.from.or(about.oldest) } else { document.row.at };
                all.push(Planned { capability, url, begin });
                continue;
            }
            Ok(Got::Unchanged(_)) => continue,
            // What is offered of changes today may be missing: whoever follows it says so.
            Err(error) if depth == 0 && follow::is_gone(&error) && capability.tells_changes() => continue,
            Err(error) => {
                failed.push(error);
                continue;
            }
        };
        for part in parts {
            let begin = if capability.tells_changes() { part.from } else { part.at };
            if begin.is_some() {
                all.push(Planned { capability, url: part.url, begin });
                continue;
            }
            // When it was made, it says itself; or it is another archive.
            let beyond = match (depth as u64 >= bounds.depth, asked.len() as u64 >= bounds.documents) {
                (true, _) => bounds::DEPTH.passed("the depth of its archives", &bounds),
                (_, true) => bounds::DOCUMENTS.passed("the number of its archives", &bounds),
                (false, false) => {
                    if !done.contains(part.url.as_str()) && asked.insert(part.url.clone()) {
                        queue.push_back((part.url, depth + 1));
                    }
                    continue;
                }
            };
            failed.push(SourceError::new(&url, beyond.into()));
            break;
        }
    }
    all
}
