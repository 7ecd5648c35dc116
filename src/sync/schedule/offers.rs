//! The sets that are mirrored, and what each offers: discovered, and remembered for a while.

use std::time::Duration;

use crate::catalog::{Offer, SetId, SetRow, SetState, SyncResult};
use crate::document::{Capability, Datetime};
use crate::path::set_labels;
use crate::source::{CapabilityDocument, Discovery, FoundSet};
use crate::sync::apply::set_rows;
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::summary::Trigger;

/// How long it is believed that a Source offers what it did.
pub(in crate::sync) const REMEMBERED: Duration = Duration::from_secs(3600);

/// How old the time of a discovery is before it is noted again.
pub(in crate::sync) const NOTED: Duration = Duration::from_secs(60);

/// Where that time is kept.
pub(in crate::sync) const DISCOVERED: &str = "discovered";

/// Where it is kept that the Source was seen on a public address.
pub(in crate::sync) const PUBLIC: &str = "public";

/// Where it is kept why sets that the Source names are missing: a JSON list of texts.
pub(in crate::sync) const LACKING: &str = "lacking";

pub(in crate::sync) fn offers_changes(found: &FoundSet) -> bool {
    found.capabilities.iter().any(|document| document.capability.tells_changes())
}

/// What the sets offer, if it was looked for not long ago and is all that this sync needs.
pub(in crate::sync) async fn remembered(
    context: &Context,
    trigger: &Trigger,
) -> Result<Option<Vec<(SetRow, FoundSet)>>, SyncError> {
    let deep = match trigger {
        // From the top.
        Trigger::Refresh { .. } => true,
        Trigger::Mount(found) => found.is_some(),
        Trigger::Notified(announced) => announced.offers,
        Trigger::Repair => true,
        Trigger::Poll | Trigger::StaleHint => false,
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

pub(in crate::sync) fn as_found(row: &SetRow, offers: &[Offer]) -> FoundSet {
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
pub(in crate::sync) fn noted(context: &Context, key: &str) -> Result<Option<Datetime>, SyncError> {
    let noted = context.readers.ask(|reader| reader.meta(key))?;
    Ok(noted.and_then(|text| text.parse().ok()).map(Datetime::from_nanos))
}

/// How long ago that was; `None` if there is none, or it lies ahead: the clock was set back.
pub(in crate::sync) fn age(context: &Context, key: &str) -> Result<Option<Duration>, SyncError> {
    Ok(noted(context, key)?.and_then(age_of))
}

pub(in crate::sync) fn age_of(noted: Datetime) -> Option<Duration> {
    u64::try_from(Datetime::now().nanos() - noted.nanos()).ok().map(Duration::from_nanos)
}

/// Keeps what was found.
pub(in crate::sync) async fn remember(
    context: &Context,
    chosen: &[(SetRow, FoundSet)],
    complete: bool,
    lacking: &[String],
) -> Result<(), SyncError> {
    let lacking = serde_json::to_string(lacking).unwrap_or_default();
    let new_lacking = context.readers.ask(|reader| reader.meta(LACKING))?.as_deref() != Some(lacking.as_str());
    let fresh = age(context, DISCOVERED)?.is_some_and(|age| age < NOTED);
    let offers: Vec<(SetId, Vec<Offer>)> = chosen
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
        .write_queue
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
pub(in crate::sync) async fn choose(
    context: &Context,
    found: &Discovery,
) -> Result<Vec<(SetRow, FoundSet)>, SyncError> {
    let known = context.sets()?;
    let keys: Vec<&str> = found.sets.iter().map(|set| set.key.as_str()).collect();
    let labels = set_labels(&keys);
    if known.is_empty() {
        return lay_out(context, found, labels).await;
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
                context.write_queue.write(move |transaction| transaction.finish_set(id, &result)).await?;
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

/// Fixes the layout of a new cache: which of the sets that were found are mirrored, under these labels.
async fn lay_out(
    context: &Context,
    found: &Discovery,
    labels: Vec<String>,
) -> Result<Vec<(SetRow, FoundSet)>, SyncError> {
    if !found.complete && context.config.set.is_none() {
        let what = found.warnings.last().map_or("a document of it cannot be read for now", String::as_str);
        return Err(SyncError::Unfit(format!(
            "not all of what the Source offers could be read, so the layout of a new cache cannot be fixed: {what}; \
             try again, or choose a set with -o set="
        )));
    }
    let is_chosen = |(set, label): &(FoundSet, String)| {
        context.config.set.as_ref().is_none_or(|name| label == name || set.key == *name)
    };
    let all = found.sets.iter().cloned().zip(labels.iter().cloned());
    let wanted: Vec<(FoundSet, String)> = all.filter(is_chosen).collect();
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
        .write_queue
        .write(move |transaction| {
            sets.iter().try_for_each(|(set, label)| transaction.set(&set.key, label, several).map(|_| ()))
        })
        .await?;
    let rows = context.sets()?;
    let with_row = |(set, _): (FoundSet, String)| Some((rows.iter().find(|row| row.key == set.key)?.clone(), set));
    Ok(wanted.into_iter().filter_map(with_row).collect())
}
