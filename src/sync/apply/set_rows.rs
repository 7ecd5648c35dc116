//! The row of a set as it is now.

use crate::catalog::SetRow;
use crate::document::Datetime;
use crate::source::{Discovery, FoundSet, Route};
use crate::sync::context::Context;
use crate::sync::error::SyncError;

/// When the lists of a set were read or found unchanged last.
pub(in crate::sync) fn listed_at(context: &Context, row: &SetRow) -> Result<Option<Datetime>, SyncError> {
    Ok(context.readers.ask(|reader| reader.listed(row.id))?.flatten())
}

pub(in crate::sync) fn reload(context: &Context, row: SetRow) -> Result<SetRow, SyncError> {
    Ok(context.sets()?.into_iter().find(|set| set.id == row.id).unwrap_or(row))
}

/// The sets that are mirrored, each with what was found of it, if anything was.
pub(in crate::sync) fn matched(
    context: &Context,
    known: Vec<SetRow>,
    found: &Discovery,
) -> Vec<(SetRow, Option<FoundSet>)> {
    // A Source with one set that moved its documents still has that one set; but one that could not
    // be read whole, or was found by a lesser route, has not moved anything.
    let only = known.len() == 1 && found.sets.len() == 1 && found.complete && context.config.set.is_none();
    let only = only && found.lacking.is_empty();
    let moved = found.sets.first().filter(|set| only && set.capability_list.is_some());
    // Several sitemaps of a robots.txt are one set, and so is the one that is left.
    let of_robots = |row: &SetRow| {
        let is_robots = found.route == Route::Robots && row.key.ends_with("/robots.txt");
        found.sets.first().filter(|_| is_robots && found.sets.len() == 1)
    };
    known
        .into_iter()
        .map(|row| {
            let same = found.sets.iter().find(|set| set.key == row.key).cloned();
            let part = || found.sets.iter().find_map(|set| set.part(&row.key));
            let set = same.or_else(part).or_else(|| of_robots(&row).cloned()).or_else(|| moved.cloned());
            (row, set)
        })
        .collect()
}
