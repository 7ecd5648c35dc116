//! The mirror beside what its Source lists now: what is missing, extra, stale or corrupt.
//!
//! Looking changes nothing that the mount shows. What the Source's changes told since its lists were made is newer than they are,
//! and no fault. Repair is the context's usual work, with every list read whole, and damaged content let go. Where the Source is
//! away, what is in the cache can still be held to itself ([`check`]).

use std::sync::Arc;

use futures_util::StreamExt as _;
use tokio::sync::Mutex;

use super::cache;
use super::finding::{Audit, AuditScope, Finding};
use crate::catalog::{CatalogError, Compared, Comparison, Difference, SetRow, SetState, Snapshot};
use crate::document::{Capability, Datetime, Facts};
use crate::path::Mapper;
use crate::source::FoundSet;
use crate::sync::apply::set_rows;
use crate::sync::content::fetch::Contents;
use crate::sync::content::freshness::Revalidated;
use crate::sync::context::Context;
use crate::sync::documents::fetch::{Budget, Described, DocumentFetcher, Lists};
use crate::sync::documents::spooled::Spooled;
use crate::sync::documents::{dumps, fetch, lists};
use crate::sync::error::SyncError;

/// Compares the mirror with the Source's lists, and what `scope` says. While lists are compared, the `turn` of syncs is held.
pub(in crate::sync) async fn audit(
    context: &Arc<Context>,
    contents: &Arc<Contents>,
    turn: &Mutex<()>,
    scope: AuditScope,
) -> Result<Audit, SyncError> {
    let mut audit = Audit::default();
    context.status.phase("comparing");
    let result = look(context, contents, turn, scope, &mut audit).await;
    context.status.phase("idle");
    result.map(|()| audit)
}

async fn look(
    context: &Arc<Context>,
    contents: &Arc<Contents>,
    turn: &Mutex<()>,
    scope: AuditScope,
    audit: &mut Audit,
) -> Result<(), SyncError> {
    let AuditScope { content, repair } = scope;
    match compare_all(context, turn, audit).await {
        Err(error) if content && !repair && (context.config.offline || error.is_away()) => {
            *audit = Audit { not_compared: Some(error.to_string()), ..Audit::default() };
        }
        result => result?,
    }
    if content {
        context.status.phase("checking content");
        let (own, so_far) = (Arc::clone(context), std::mem::take(audit));
        let work = tokio::task::spawn_blocking(move || cache::check(&own, so_far));
        let (checked, damage) = work.await??;
        *audit = checked;
        if repair {
            cache::mend(contents, damage).await?;
        }
        if audit.not_compared.is_none() {
            ask_servers(contents, audit).await?;
        }
    }
    Ok(())
}

/// Asks for content of which nothing that is listed tells whether it is current.
async fn ask_servers(contents: &Arc<Contents>, audit: &mut Audit) -> Result<(), SyncError> {
    let context = &contents.context;
    context.status.phase("asking for content without a hash or a time");
    let versions = context.readers.ask(|reader| reader.timeless())?;
    let asked = versions.into_iter().map(|version| async move {
        // Before: its successor takes its path.
        let path = context.readers.ask(|reader| reader.path_of(version));
        (path, contents.revalidate(version).await)
    });
    let mut asked = futures_util::stream::iter(asked).buffer_unordered(context.client.connections());
    while let Some((path, became)) = asked.next().await {
        match became {
            Revalidated::Current => {}
            Revalidated::Unknown(why) => audit.unread.push(why),
            Revalidated::Superseded => {
                let differences = vec![Difference {
                    what: "content",
                    here: "the copy that was here".to_owned(),
                    listed: "another at its server, which the mount shows from now on".to_owned(),
                }];
                audit.stale.add(Finding { path: path?, uri: None, differences, problem: None });
            }
        }
    }
    Ok(())
}

/// Compares all sets with their lists.
async fn compare_all(context: &Arc<Context>, turn: &Mutex<()>, audit: &mut Audit) -> Result<(), SyncError> {
    if context.config.offline {
        let why = "the mount is offline (-o offline); there are no lists to compare with";
        return Err(SyncError::Unfit(why.to_owned()));
    }
    let found = context.discover().await?;
    audit.unread.extend(found.warnings.iter().filter(|_| !found.complete).cloned());
    for (row, set) in set_rows::matched(context, context.sets()?, &found) {
        let Some(set) = set else {
            audit.unread.push(format!("{}: the Source does not offer this set, or it could not be read", row.key));
            continue;
        };
        if row.state != SetState::Complete {
            audit.unread.push(format!(
                "{}: its state is {}; `resourcesync status` says why",
                row.key,
                row.state.name()
            ));
        }
        for feed in context.readers.ask(|reader| reader.feeds(row.id))? {
            audit.unread.extend(feed.failure);
        }
        let lists = bring(context, &row, &set).await?;
        audit.unread.extend(lists.failed.iter().map(ToString::to_string));
        // While lists come, syncs go on; while they are compared, the tree stands still.
        let _turn = turn.lock().await;
        let (own, so_far) = (Arc::clone(context), std::mem::take(audit));
        let work = tokio::task::spawn_blocking(move || compare(&own, &row, lists, so_far));
        *audit = work.await??;
    }
    Ok(())
}

/// The lists of a set as they are now, whether they changed or not: Resource Lists, or else manifests.
async fn bring(context: &Arc<Context>, set: &SetRow, found: &FoundSet) -> Result<Lists, SyncError> {
    let urls = found.urls(Capability::ResourceList);
    if !urls.is_empty() {
        return Ok(lists::bring(&DocumentFetcher::new(context, Capability::ResourceList), &urls, &[]).await);
    }
    dumps::lists_of(context, set, found).await
}

fn compare(context: &Context, set: &SetRow, lists: Lists, mut audit: Audit) -> Result<Audit, SyncError> {
    let listed = set_rows::listed_at(context, set)?;
    let oldest = lists.cursor().map(|at| Snapshot::new(at, listed));
    let whole = lists.failed.is_empty();
    context.readers.ask(|reader| {
        let mut comparison = Comparison::new(reader, set.id, set.directory);
        let mut all = whole;
        let budget = Budget::new(&context.config.bounds);
        for document in &lists.read {
            all &= compare_document((&context.mapper, &budget), document, listed, &mut comparison, &mut audit)?;
        }
        // Of what was not read nobody knows what it lists.
        if all {
            comparison.extra(oldest, !lists.excluded.is_empty(), |path| {
                audit.extra.add(Finding { path, uri: None, differences: Vec::new(), problem: None });
            })?;
        }
        Ok(())
    })?;
    Ok(audit)
}

/// Compares one list; says whether it was read to its end.
fn compare_document(
    (mapper, budget): (&Mapper, &Budget),
    document: &Spooled,
    listed: Option<Datetime>,
    comparison: &mut Comparison<'_>,
    audit: &mut Audit,
) -> Result<bool, CatalogError> {
    let mut reader = match document.entries(&document.row.url) {
        Ok(reader) => reader,
        Err(error) => {
            audit.unread.push(error.to_string());
            return Ok(false);
        }
    };
    let at = document.at().unwrap_or_else(Datetime::now);
    let snapshot = document.at().map(|at| Snapshot::new(at, listed));
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(true),
            Err(error) => {
                audit.unread.push(error.to_string());
                return Ok(false);
            }
        };
        if let Err(beyond) = budget.take() {
            audit.unread.push(format!("{}: {beyond}", document.row.url));
            return Ok(false);
        }
        let facts = Facts::of_entry(&entry, reader.warnings_mut());
        let described = Described { entry: &entry, facts: &facts };
        let Some(record) = fetch::resource(mapper, document, described, at, reader.warnings_mut()) else {
            continue;
        };
        audit.listed += 1;
        let (findings, differences) = match comparison.entry(&record, snapshot)? {
            Compared::Same => continue,
            Compared::Repeated => {
                audit.listed -= 1;
                continue;
            }
            Compared::Newer => {
                audit.newer += 1;
                continue;
            }
            Compared::Missing => (&mut audit.missing, Vec::new()),
            Compared::Stale(differences) => (&mut audit.stale, differences),
        };
        let path = comparison.path(&record)?;
        findings.add(Finding { path, uri: Some(record.uri), differences, problem: None });
    }
}
