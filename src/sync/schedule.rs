//! A sync: which sets there are, what each offers, and what each needs now.
//!
//! What a Source offers is remembered for an hour, so that a poll of a set whose changes are followed costs one request where
//! nothing has changed. A set without a list of changes, out of step with its lists, or whose list of changes is gone, has its
//! lists read; so has every set once in `relist=`, for publishers omit deletions from their Change Lists.

use std::sync::Arc;
use std::time::Duration;

use super::apply::changes::Outcome;
use super::apply::lost_feeds::Gone;
use super::apply::set_rows::reload;
use super::apply::{baseline, changes, lost_feeds, set_rows};
use super::context::Context;
use super::documents::follow;
use super::documents::follow::Look;
use super::error::SyncError;
use super::notification_body::Announced;
use super::summary::{Summary, Trigger};
use crate::catalog::{Offer, SetRow, SetState, SyncResult};
use crate::document::{Capability, Datetime};
use crate::path::set_labels;
use crate::printable;
use crate::source::{CapabilityDocument, Discovery, FoundSet};

/// How long it is believed that a Source offers what it did.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// How old the time of a discovery is before it is noted again.
const NOTED: Duration = Duration::from_secs(60);
/// Where that time is kept.
const DISCOVERED: &str = "discovered";
/// Where it is kept that the Source was seen on a public address.
pub(super) const PUBLIC: &str = "public";
/// Where it is kept why sets that the Source names are missing: a JSON list of texts.
pub(super) const LACKING: &str = "lacking";

/// The most of those texts that are kept, and the most characters of each.
const MOST_LACKING: usize = 20;
const MOST_TEXT: usize = 500;

/// How thorough a sync is.
#[derive(Clone, Copy, Debug, Default)]
struct How {
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
            context.ledger.write(move |transaction| transaction.forget_validators(set.id)).await?;
        }
    }
    let announced = match trigger {
        Trigger::Notified(announced) => announced,
        _ => Announced::default(),
    };
    let synced = from_the_top(context, trigger, announced, How { lists, wide: true, accept_deletions }).await;
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
    how: How,
) -> Result<Summary, SyncError> {
    let How { lists, accept_deletions, .. } = how;
    let mut so_far = Summary::default();
    if let Some(chosen) = remembered(context, &trigger).await? {
        let how = How { lists: announced.lists, wide: announced.named, accept_deletions: false };
        match all(context, chosen, how, true).await {
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
    let how = How { lists: lists || announced.lists, wide: true, accept_deletions };
    let (summary, _) = all(context, chosen, how, false).await?;
    so_far.add(&summary);
    Ok(Summary { partial: summary.partial || !found.complete, ..so_far })
}

/// Brings these sets in step, as far as what they are `remembered` to offer is there: false if it is not all.
async fn all(
    context: &Arc<Context>,
    chosen: Vec<(SetRow, FoundSet)>,
    how: How,
    remembered: bool,
) -> Result<(Summary, bool), SyncError> {
    let mut summary = Summary::default();
    let mut failed = None;
    let mut synced = false;
    for (row, set) in chosen {
        let (id, errors) = (row.id, context.status.errors().1);
        let one = one(context, row, &set, how, remembered).await;
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
async fn note_behind(context: &Arc<Context>, id: i64, why: Option<String>) -> Result<(), SyncError> {
    let why = why.map(|why| printable::short_line(&why, MOST_TEXT));
    if context.readers.ask(|reader| reader.meta(&format!("behind {id}")))?.unwrap_or_default()
        == why.as_deref().unwrap_or_default()
    {
        return Ok(());
    }
    context
        .ledger
        .step(move |writer| {
            writer.note_behind(id, why.as_deref())?;
            Ok(((), Default::default()))
        })
        .await
}

/// Brings one set in step.
async fn one(
    context: &Arc<Context>,
    row: SetRow,
    found: &FoundSet,
    how: How,
    remembered: bool,
) -> Result<Option<Summary>, SyncError> {
    let How { lists, wide, accept_deletions } = how;
    let lists = lists || context.readers.ask(|reader| reader.was_selected_otherwise(row.id))?;
    let offers_changes = offers_changes(found);
    let known = context.readers.ask(|reader| reader.feeds(row.id))?;
    let is_followed = offers_changes && !lists && row.state == SetState::Complete && !known.is_empty();
    let settled = is_followed && !is_list_due(context, &row)?;
    let mut summary = Summary::default();
    let mut edition = None;
    if !settled {
        match baseline::bring(context, &row, found, accept_deletions).await {
            Ok((part, new)) => {
                (summary, edition) = (part, new);
                if !summary.partial {
                    note_listed(context, &row).await?;
                }
            }
            // Lists that cannot be read are no reason to miss the changes; if the Source is away, following those fails, too.
            Err(error) if is_followed || offers_changes && row.state != SetState::Empty && !error.is_away() => {
                context.status.error(&error.to_string());
                summary.partial = true;
            }
            Err(error) => return Err(error),
        }
    }
    let row = reload(context, row)?;
    if !offers_changes {
        summary.partial |=
            lost_feeds::without(context, &row, Gone { feeds: known, ..Gone::default() }, edition).await?;
        return Ok(Some(summary));
    }
    let look = match (is_followed, wide) {
        (false, _) => Look::Again,
        (true, true) => Look::Wide,
        (true, false) => Look::Poll,
    };
    let (outcome, mut missing) = match changes::bring(context, &row, found, look).await {
        Ok(found) => found,
        Err(error) if is_followed => return Err(error),
        Err(error) => {
            context.status.error(&format!("{error}; the tree is as its lists have it"));
            if row.state == SetState::Complete {
                let (held, held_edition) = (row.held, row.held_edition.clone());
                let result = SyncResult { state: SetState::Partial, cursor: None, at: None, held, held_edition };
                let id = row.id;
                context.ledger.write(move |transaction| transaction.finish_set(id, &result)).await?;
            }
            summary.partial = true;
            return Ok(Some(summary));
        }
    };
    let mut wants_lists = false;
    let is_gap = matches!(outcome, Outcome::Gap(_));
    match outcome {
        Outcome::Unchanged => summary.not_modified += 1,
        Outcome::Applied(part) => summary.add(&part),
        Outcome::NoFeed if settled && remembered => return Ok(None),
        Outcome::NoFeed => wants_lists = missing.is_empty(),
        Outcome::Gap(part) | Outcome::Doubtful(part) => {
            summary.add(&part);
            if settled {
                // A newer list, by difference, makes up for it; what changed since that list is applied again.
                match baseline::bring(context, &reload(context, row.clone())?, found, false).await {
                    Ok((part, new)) => {
                        if !part.partial {
                            note_listed(context, &row).await?;
                        }
                        summary.add(&part);
                        edition = new;
                    }
                    Err(error) if is_gap => return Err(error),
                    Err(error) => {
                        // What the deletion may have meant, the lists of the next sync tell.
                        context.status.error(&error.to_string());
                        summary.partial = true;
                    }
                }
                if is_gap || edition.is_some() {
                    let (outcome, still) =
                        changes::bring(context, &reload(context, row.clone())?, found, Look::Again).await?;
                    if let Outcome::Applied(part) | Outcome::Doubtful(part) | Outcome::Gap(part) = outcome {
                        summary.add(&part);
                    }
                    missing = still;
                }
            }
        }
    }
    wants_lists |= missing.wants_lists();
    if wants_lists && settled && edition.is_none() {
        match baseline::bring(context, &reload(context, row.clone())?, found, false).await {
            Ok((part, new)) => {
                summary.add(&part);
                edition = new;
            }
            Err(error) if remembered || error.is_away() => return Err(error),
            Err(error) => {
                context.status.error(&error.to_string());
                summary.partial = true;
            }
        }
    }
    summary.partial |= lost_feeds::without(context, &reload(context, row)?, missing, edition).await?;
    Ok(Some(summary))
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
async fn note_listed(context: &Arc<Context>, row: &SetRow) -> Result<(), SyncError> {
    let id = row.id;
    context
        .ledger
        .step(move |writer| {
            writer.note_listed(id, Datetime::now())?;
            Ok(((), Default::default()))
        })
        .await
}

fn offers_changes(found: &FoundSet) -> bool {
    found.capabilities.iter().any(|document| document.capability.tells_changes())
}

/// What the sets offer, if it was looked for not long ago and is all that this sync needs.
async fn remembered(context: &Arc<Context>, trigger: &Trigger) -> Result<Option<Vec<(SetRow, FoundSet)>>, SyncError> {
    let deep = match trigger {
        // From the top.
        Trigger::Refresh { .. } => true,
        Trigger::Mount(found) => found.is_some(),
        Trigger::Notified(announced) => announced.offers,
        Trigger::Repair => true,
        Trigger::Poll | Trigger::Doubt => false,
    };
    let sets = context.sets()?;
    if deep || sets.is_empty() || age(context, DISCOVERED)?.is_none_or(|age| age >= REMEMBERED) {
        return Ok(None);
    }
    let mut chosen = Vec::new();
    for row in sets {
        let offers = context.readers.ask(|reader| reader.offers(row.id))?;
        let set = as_found(&row, &offers);
        // Where lists have to be read, they may be elsewhere by now; a timer need not look each time.
        let simple = row.state == SetState::Complete
            && (offers_changes(&set) || matches!(trigger, Trigger::Poll | Trigger::Notified(_)));
        if offers.is_empty() || !simple {
            return Ok(None);
        }
        chosen.push((row, set));
    }
    Ok(Some(chosen))
}

fn as_found(row: &SetRow, offers: &[Offer]) -> FoundSet {
    let list = offers.iter().find(|offer| offer.capability == Capability::CapabilityList);
    FoundSet {
        key: row.key.clone(),
        capability_list: list.map(|offer| offer.url.clone()),
        capabilities: offers
            .iter()
            .filter(|offer| offer.capability != Capability::CapabilityList)
            .map(|offer| CapabilityDocument {
                capability: offer.capability,
                url: offer.url.clone(),
                hubs: offer.hubs.clone(),
            })
            .collect(),
    }
}

/// The time that is kept under a key.
fn noted(context: &Context, key: &str) -> Result<Option<Datetime>, SyncError> {
    let noted = context.readers.ask(|reader| reader.meta(key))?;
    Ok(noted.and_then(|text| text.parse().ok()).map(Datetime::from_nanos))
}

/// How long ago that was; `None` if there is none, or it lies ahead: the clock was set back.
fn age(context: &Context, key: &str) -> Result<Option<Duration>, SyncError> {
    Ok(noted(context, key)?.and_then(age_of))
}

fn age_of(noted: Datetime) -> Option<Duration> {
    u64::try_from(Datetime::now().nanos() - noted.nanos()).ok().map(Duration::from_nanos)
}

/// Keeps what was found.
async fn remember(
    context: &Arc<Context>,
    chosen: &[(SetRow, FoundSet)],
    complete: bool,
    lacking: &[String],
) -> Result<(), SyncError> {
    let lacking = serde_json::to_string(lacking).unwrap_or_default();
    let new_lacking = context.readers.ask(|reader| reader.meta(LACKING))?.as_deref() != Some(lacking.as_str());
    let fresh = age(context, DISCOVERED)?.is_some_and(|age| age < NOTED);
    let offers: Vec<(i64, Vec<Offer>)> = chosen
        .iter()
        .map(|(row, set)| {
            let own = set.capability_list.iter().map(|url| Offer {
                capability: Capability::CapabilityList,
                url: url.clone(),
                hubs: Vec::new(),
            });
            let all = own.chain(set.capabilities.iter().map(|document| Offer {
                capability: document.capability,
                url: document.url.clone(),
                hubs: document.hubs.clone(),
            }));
            (row.id, all.collect())
        })
        .collect();
    let public = context.client.reach().is_public();
    context
        .ledger
        .step(move |writer| {
            for (set, offers) in &offers {
                writer.keep_offers(*set, offers)?;
            }
            if public {
                writer.set_meta(PUBLIC, "yes")?;
            }
            if new_lacking {
                writer.set_meta(LACKING, &lacking)?;
            }
            if complete && !fresh {
                writer.set_meta(DISCOVERED, &Datetime::now().nanos().to_string())?;
            }
            Ok(((), Default::default()))
        })
        .await
}

/// The sets that are mirrored, each with what was found of it. The layout is fixed the first time.
async fn choose(context: &Arc<Context>, found: &Discovery) -> Result<Vec<(SetRow, FoundSet)>, SyncError> {
    let known = context.sets()?;
    let keys: Vec<&str> = found.sets.iter().map(|set| set.key.as_str()).collect();
    let labels = set_labels(&keys);
    if known.is_empty() {
        if !found.complete && context.config.set.is_none() {
            let what = found.warnings.last().map_or("a document of it cannot be read for now", String::as_str);
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
            .filter(|(set, label)| context.config.set.as_ref().is_none_or(|name| label == name || set.key == *name))
            .collect();
        if wanted.is_empty() {
            return Err(SyncError::Unfit(format!(
                "set={}: there is no such set; the Source has: {}",
                context.config.set.as_deref().unwrap_or_default(),
                labels.join(", ")
            )));
        }
        // A set that is missing now may come back.
        let several = wanted.len() > 1 || !found.lacking.is_empty() && context.config.set.is_none();
        let sets = wanted.clone();
        context
            .ledger
            .write(move |transaction| {
                sets.iter().try_for_each(|(set, label)| transaction.set(&set.key, label, several).map(|_| ()))
            })
            .await?;
        let rows = context.sets()?;
        return Ok(wanted
            .into_iter()
            .filter_map(|(set, _)| Some((rows.iter().find(|row| row.key == set.key)?.clone(), set)))
            .collect());
    }
    let mut chosen = Vec::new();
    for (row, set) in set_rows::matched(context, known, found) {
        match set {
            Some(set) => chosen.push((row, set)),
            None if !found.complete => {
                context.status.error(&format!("the set {} could not be read; what was mirrored stays", row.key));
                let result = SyncResult {
                    state: SetState::Partial,
                    cursor: None,
                    at: None,
                    held: row.held,
                    held_edition: row.held_edition,
                };
                let id = row.id;
                context.ledger.write(move |transaction| transaction.finish_set(id, &result)).await?;
            }
            None => context
                .status
                .warning(&format!("the Source no longer offers the set {}; what was mirrored stays", row.key)),
        }
    }
    for (set, label) in found.sets.iter().zip(&labels) {
        if context.config.set.is_none() && !chosen.iter().any(|(_, known)| known.key == set.key) {
            context.status.warning(&format!(
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
