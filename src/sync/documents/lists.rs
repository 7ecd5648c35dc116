//! Reads the documents of lists, until all are of one edition.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::editions::{self, Mixed};
use super::fetch::{DocumentFetcher, Got, INDEX, Lists, Named, Part, Unsettled, UnsettledKind};
use crate::bounds::{self, Beyond, Bounds};
use crate::catalog::DocumentRow;
use crate::document::Datetime;
use crate::source::SourceError;

/// How often lists are read again because they are of different editions.
const MOST_RESTARTS: usize = 2;

/// Downloads the documents of the lists at `roots`. `known` are those of the last time. Documents of different editions are
/// read again; if they stay mixed, that is one of the failures.
pub(in crate::sync) async fn bring(fetcher: &DocumentFetcher, roots: &[String], known: &[DocumentRow]) -> Lists {
    let past_caches = DocumentFetcher { past_caches: true, ..fetcher.clone() };
    let known_indexes = known.iter().filter(|row| row.entries == INDEX).count();
    let mut without_indexes: Option<Vec<DocumentRow>> = None;
    let mut restarts = 0;
    loop {
        let fetcher = if restarts == MOST_RESTARTS { &past_caches } else { fetcher };
        let (mut lists, named) = once(fetcher, roots, without_indexes.as_deref().unwrap_or(known)).await;
        let unchanged = lists.indexes.len() - named.indexes.len();
        let is_another_gone = known_indexes > unchanged && lists.failed.is_empty();
        if unchanged > 0 && (!named.indexes.is_empty() || is_another_gone) {
            // Of the parts that are known, it is not known which index named them: where one index has changed, all are read.
            without_indexes = Some(known.iter().filter(|row| row.entries != INDEX).cloned().collect());
            continue;
        }
        let mixed = match editions::mixed(fetcher, &lists, &named).await {
            Some(mixed) => Err(mixed),
            None => editions::older_index(&past_caches, &lists, &named).await,
        };
        match mixed {
            Err(mixed) if restarts < MOST_RESTARTS => {
                fetcher.status.warning(&format!("{mixed}; reading the lists again"));
                restarts += 1;
                continue;
            }
            Err(Mixed::Changed(error)) => lists.failed.push(error),
            Err(Mixed::Earlier(error)) => {
                let (kind, why) = (UnsettledKind::EarlierPart, format!("{error}, or have not changed for ten minutes"));
                lists.unsettled.push(Unsettled { kind, state: editions::dated_parts(&lists), why });
            }
            Ok(Some(url)) => {
                let why = format!(
                    "{url}: it is older than all of its parts, and may not name all of them; the set is complete when the \
                     index is newer, or has named the same parts for ten minutes"
                );
                lists.unsettled.push(Unsettled {
                    kind: UnsettledKind::OlderIndex,
                    state: editions::parts(&lists),
                    why,
                });
            }
            Ok(None) => {}
        }
        lists.unfinished = editions::unfinished(&lists, &named, known);
        return lists;
    }
}

/// A document that is to be downloaded.
struct Wanted {
    url: String,
    /// How many indexes lead to it.
    depth: usize,
    /// The `at` of what names it.
    inherited: Option<Datetime>,
}

async fn once(fetcher: &DocumentFetcher, roots: &[String], known: &[DocumentRow]) -> (Lists, Named) {
    let known: HashMap<&str, &DocumentRow> = known.iter().map(|row| (row.url.as_str(), row)).collect();
    let mut walk = Walk::default();
    for root in roots {
        walk.want(Wanted { url: root.clone(), depth: 0, inherited: None });
    }
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < fetcher.client.connections()
            && let Some(wanted) = walk.queue.pop_front()
        {
            let row = known.get(wanted.url.as_str()).map(|row| (*row).clone());
            let fetcher = fetcher.clone();
            running.push(async move {
                let got = fetcher.get(&wanted.url, wanted.depth, row).await;
                (wanted, got)
            });
        }
        let asked = walk.asked.len() as u64;
        fetcher.status.update(|progress| progress.documents_known = progress.documents_known.max(asked));
        let Some((wanted, got)) = running.next().await else { break };
        fetcher.status.update(|progress| progress.documents += 1);
        let children = walk.take(&wanted, got, &known, &fetcher.selected);
        if !walk.named.indexes.is_empty() && walk.lists.indexes.len() > walk.named.indexes.len() {
            // All indexes are asked for again: see `bring`.
            break;
        }
        if let Err(beyond) = walk.want_all(children, &fetcher.bounds) {
            walk.lists.failed.push(SourceError::new(&wanted.url, beyond.into()));
        }
    }
    let Walk { mut lists, named, .. } = walk;
    // The order in which documents came is chance; the order in which they apply must not be.
    lists.read.sort_by(|one, other| one.row.url.cmp(&other.row.url));
    (lists, named)
}

/// From roots to all that they lead to.
#[derive(Default)]
struct Walk {
    lists: Lists,
    named: Named,
    asked: HashSet<String>,
    queue: VecDeque<Wanted>,
}

impl Walk {
    fn want(&mut self, wanted: Wanted) {
        if self.asked.insert(wanted.url.clone()) {
            self.queue.push_back(wanted);
        }
    }

    /// Asks for those that were not asked for yet, within bounds.
    fn want_all(&mut self, children: Vec<Wanted>, bounds: &Bounds) -> Result<(), Beyond> {
        for child in children {
            if self.asked.contains(&child.url) {
                continue;
            }
            if child.depth as u64 > bounds.depth {
                return Err(bounds::DEPTH.passed("the depth of its indexes", bounds));
            }
            if self.asked.len() as u64 >= bounds.documents {
                return Err(bounds::DOCUMENTS.passed("the number of its documents", bounds));
            }
            self.want(child);
        }
        Ok(())
    }

    /// Takes a document; returns those that it leads to.
    fn take(
        &mut self,
        wanted: &Wanted,
        got: Result<Got, SourceError>,
        known: &HashMap<&str, &DocumentRow>,
        selected: &Arc<[String]>,
    ) -> Vec<Wanted> {
        let Self { lists, named, .. } = self;
        let Wanted { url, depth, inherited } = wanted;
        lists.inherited.extend(inherited.map(|at| (url.clone(), at)));
        let page = |url: Option<String>, inherited| {
            url.map(|url| Wanted { url, depth: (*depth).max(1), inherited }).into_iter().collect()
        };
        match got {
            Ok(Got::List(mut document)) => {
                document.inherited_at = *inherited;
                let (next, at) = (document.row.next.clone(), document.at());
                lists.read.push(*document);
                page(next, at)
            }
            Ok(Got::Unchanged(row)) if row.entries == INDEX => {
                // Its parts may have changed all the same.
                let at = row.at;
                lists.indexes.push(row);
                let parts = known.values().filter(|row| row.part && row.package.is_none());
                parts.map(|row| Wanted { url: row.url.clone(), depth: depth + 1, inherited: at }).collect()
            }
            Ok(Got::Unchanged(row)) => {
                let (next, at) = (row.next.clone(), row.at.or(*inherited));
                lists.unchanged.push(row);
                page(next, at)
            }
            Ok(Got::Index { row, parts, outline, .. }) => {
                let at = row.at;
                named.indexes.push((url.clone(), outline));
                named.at.extend(parts.iter().filter_map(|part| Some((part.url.clone(), part.at?))));
                lists.indexes.push(row);
                let (excluded, parts): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.is_excluded);
                if !excluded.is_empty() {
                    lists.selected = Arc::clone(selected);
                }
                lists.excluded.extend(excluded.into_iter().map(|part| part.url));
                let wanted = |part: Part| Wanted { url: part.url, depth: depth + 1, inherited: part.at.or(at) };
                parts.into_iter().map(wanted).collect()
            }
            Err(error) => {
                lists.failed.push(error);
                Vec::new()
            }
        }
    }
}
