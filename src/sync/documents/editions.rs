//! Whether the documents of a list are of one edition: parts of two editions never delete anything.
//!
//! A publisher rewrites an index and its parts one after the other, and a cache may keep some of them longer than others. An
//! entry that moved from one part to another is then in neither of the two that were read.

use std::collections::{HashMap, HashSet};

use data_encoding::HEXLOWER;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};

use super::fetch::{DocumentFetcher, Got, Lists, Named};
use super::spooled::Spooled;
use crate::catalog::{DocumentRow, Snapshot};
use crate::document::Datetime;
use crate::source::{SourceError, Trouble, Validators};

/// Why documents are of different editions.
#[derive(Debug)]
pub(in crate::sync) enum Mixed {
    /// The index, or one of them, has changed since, or cannot be read any more.
    Changed(SourceError),
    /// A part is older than its index says: a cache has kept it, or its publisher dates all parts alike.
    Earlier(SourceError),
}

impl std::fmt::Display for Mixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Changed(error) | Self::Earlier(error)) = self;
        error.fmt(f)
    }
}

fn mixed_at(url: &str, why: &str) -> SourceError {
    SourceError::new(url, Trouble::Mixed(why.to_owned()))
}

/// Why documents that were just downloaded are of different editions. `None` if they are of one edition, as far as can be seen.
pub(in crate::sync) async fn mixed(fetcher: &DocumentFetcher, lists: &Lists, named: &Named) -> Option<Mixed> {
    let differs = |url: &str, why: &str| Some(Mixed::Changed(mixed_at(url, why)));
    // Times that move with the request do not date a part.
    let mut of_the_request = HashSet::new();
    for (url, before) in &named.indexes {
        match fetcher.get(url, 0, None).await {
            Ok(Got::Index { outline, parts, .. }) if outline.is_that_of(before) => {
                let moved = parts.into_iter().filter(|part| named.at.get(&part.url).copied() != part.at);
                of_the_request.extend(moved.map(|part| part.url));
            }
            Ok(_) => return differs(url, "the index has changed while its parts were read"),
            Err(error) => return Some(Mixed::Changed(error)),
        }
    }
    let rows = || lists.read.iter().map(|document| &document.row).chain(&lists.unchanged);
    let is_earlier =
        |(own, named): (Datetime, Datetime)| own.nanos().saturating_add(Snapshot::TO_WRITE) < named.nanos();
    let named_at = |url: &str| named.at.get(url).copied().filter(|_| !of_the_request.contains(url));
    let own_at = |row: &DocumentRow| row.at.zip(named_at(&row.url));
    if let Some(row) = rows().find(|row| own_at(row).is_some_and(is_earlier)) {
        let why = "its `at` is earlier than the index says: a cache may have kept an edition before it";
        return Some(Mixed::Earlier(mixed_at(&row.url, why)));
    }
    let is_as_named = |row: &DocumentRow| own_at(row).is_some_and(|(own, named)| own == named);
    if lists.read.is_empty() || rows().count() < 2 || rows().all(is_as_named) {
        return None;
    }
    let checks: Vec<_> = rows().cloned().map(|row| check(fetcher.clone(), row)).collect();
    let mut checks = futures_util::stream::iter(checks).buffer_unordered(fetcher.client.connections());
    while let Some((url, now)) = checks.next().await {
        match now {
            Ok(Now::Same) => {}
            Ok(Now::Other(now)) => {
                let before = lists.read.iter().find(|document| document.row.url == url);
                let differ = |before: &Spooled| before.digest_of_entries() != now.digest_of_entries();
                if before.is_none_or(differ) {
                    return differs(&url, "it has changed while the other parts were read");
                }
            }
            Err(error) => return Some(Mixed::Changed(error)),
        }
    }
    None
}

/// A part, or a page, that is of a newer edition than what names it, while another is not: its publisher may be writing them, and
/// the index last. What moved from one to another is then in neither.
pub(in crate::sync) fn unfinished(lists: &Lists, named: &Named, before: &[DocumentRow]) -> Option<String> {
    let rows: HashMap<&str, &DocumentRow> = lists
        .read
        .iter()
        .map(|document| &document.row)
        .chain(&lists.unchanged)
        .map(|row| (row.url.as_str(), row))
        .collect();
    let is_later = |own: Datetime, other: Datetime| own.nanos() > other.nanos().saturating_add(Snapshot::TO_WRITE);
    let of_index = lists.indexes.iter().filter_map(|row| row.at).max();
    // An index that was not sent again says what it said when its parts were as they were then.
    let was_sent = !named.indexes.is_empty() || lists.indexes.is_empty();
    let before = before.iter().filter(|_| !was_sent).map(|row| (row.url.as_str(), row.at));
    let before: HashMap<&str, Option<Datetime>> = before.collect();
    let known = |row: &DocumentRow| {
        let named = named.at.get(&row.url).copied();
        // A part of which an edition was missed may have been as it is now when the index was read.
        let at_least = before.get(row.url.as_str()).copied().flatten().max(of_index);
        Some((row.at?, named.or(at_least)?))
    };
    let parts = || rows.values().filter(|row| row.part).filter_map(|row| Some((row.url.as_str(), known(row)?)));
    let is_newer = |(_, (own, named)): &(&str, (Datetime, Datetime))| is_later(*own, *named);
    let part = parts().filter(is_newer).map(|(url, _)| url).min().filter(|_| !parts().all(|part| is_newer(&part)));
    let is_other = |row: &&&DocumentRow| {
        let next = row.next.as_ref().and_then(|next| rows.get(next.as_str())).and_then(|next| next.at);
        row.at.zip(next).is_some_and(|(own, next)| is_later(own, next) || is_later(next, own))
    };
    part.or_else(|| rows.values().filter(is_other).map(|row| row.url.as_str()).min()).map(str::to_owned)
}

/// An index that is older than each of its parts: parts that it does not name may exist. `None` if no time tells, or if its times
/// are those of the request.
///
/// # Errors
/// If a cache has kept the index: the lists are to be read again.
pub(in crate::sync) async fn older_index(
    past_caches: &DocumentFetcher,
    lists: &Lists,
    named: &Named,
) -> Result<Option<String>, Mixed> {
    let is_newer = |row: &DocumentRow, named: Option<Datetime>| {
        let is_later =
            |(own, named): (Datetime, Datetime)| own.nanos() > named.nanos().saturating_add(Snapshot::TO_WRITE);
        row.at.zip(named).is_some_and(is_later)
    };
    let rows = || lists.read.iter().map(|document| &document.row).chain(&lists.unchanged).filter(|row| row.part);
    let known = lists.indexes.iter().min_by_key(|row| &row.url).filter(|_| rows().next().is_some());
    let may_be_older = rows().all(|row| is_newer(row, lists.inherited.get(&row.url).copied()));
    let Some(known) = known.filter(|_| may_be_older) else { return Ok(None) };
    // A cache may have kept it. And one that was not sent is known without the times that it gives for its parts.
    let Ok(Got::Index { row, outline, parts, .. }) = past_caches.get(&known.url, 0, None).await else {
        return Ok(Some(known.url.clone()));
    };
    let before = named.indexes.iter().find(|(url, _)| *url == known.url).map(|(_, outline)| outline);
    if before.map_or(row.at != known.at, |before| !outline.is_that_of(before)) {
        return Err(Mixed::Changed(mixed_at(
            &known.url,
            "a cache has kept an edition of it that is older than its parts",
        )));
    }
    if before.is_some_and(|before| row.at != known.at || outline.times != before.times) {
        // Its times are those of the request.
        return Ok(None);
    }
    let named: HashMap<&str, Datetime> =
        parts.iter().filter_map(|part| Some((part.url.as_str(), part.at.or(row.at)?))).collect();
    let is_older = rows().all(|row| is_newer(row, named.get(row.url.as_str()).copied()));
    Ok(Some(known.url.clone()).filter(|_| is_older))
}

/// The parts of a list, whatever their times.
pub(in crate::sync) fn parts(lists: &Lists) -> String {
    digest_of(lists, |row| row.url.clone())
}

/// The parts of a list, and the time of each.
pub(in crate::sync) fn dated_parts(lists: &Lists) -> String {
    digest_of(lists, |row| format!("{} {:?}", row.url, row.at))
}

fn digest_of(lists: &Lists, text: impl Fn(&DocumentRow) -> String) -> String {
    let rows = lists.read.iter().map(|document| &document.row).chain(&lists.unchanged);
    let mut all: Vec<String> = rows.map(text).collect();
    all.sort_unstable();
    HEXLOWER.encode(&Sha256::digest(all.join("\n")))
}

/// What tells one state of a list from the next: its parts, and the edition of what names them.
pub(in crate::sync) fn state(lists: &Lists) -> String {
    let rows = lists.read.iter().map(|document| &document.row).chain(&lists.unchanged);
    // Pages have no index whose edition tells theirs.
    let paged = lists.indexes.is_empty();
    let parts = rows.map(|row| if paged { format!("{} {:?}", row.url, row.at) } else { row.url.clone() });
    let mut all: Vec<String> =
        parts.chain(lists.indexes.iter().map(|row| format!("{} {:?}", row.url, row.at))).collect();
    all.sort_unstable();
    HEXLOWER.encode(&Sha256::digest(all.join("\n")))
}

/// What a document is now.
enum Now {
    /// As it was a moment ago.
    Same,
    /// Another, as far as its server tells; or its server does not tell.
    Other(Box<Spooled>),
}

/// Asks for a document once more.
async fn check(fetcher: DocumentFetcher, row: DocumentRow) -> (String, Result<Now, SourceError>) {
    let now = ask_again(&fetcher, &row).await;
    (row.url, now)
}

async fn ask_again(fetcher: &DocumentFetcher, row: &DocumentRow) -> Result<Now, SourceError> {
    let known = Validators { etag: row.etag.clone(), last_modified: row.last_modified.clone(), settled: false };
    let conditional = Some(&known).filter(|known| !known.is_empty());
    let Some(body) = fetcher.spool(&row.url, conditional, false).await? else { return Ok(Now::Same) };
    if known.etag.is_some() && known.etag == body.validators.etag {
        return Ok(Now::Same);
    }
    match fetcher.inspect(body, &row.url, 1).await? {
        Got::List(now) => Ok(Now::Other(now)),
        _ => Err(SourceError::new(&row.url, Trouble::Mixed("it was a list, and is an index now".to_owned()))),
    }
}
