//! The mirror beside what its Source lists now: what is missing, extra, stale or corrupt.
//!
//! Looking changes nothing that the mount shows. What the Source's changes told since its lists were made is newer than they are,
//! and no fault. Repair is the engine's usual work, with every list read whole, and damaged content let go.

use std::sync::Arc;

use super::content::expected;
use super::lists::{self, Lists, Spooled};
use super::members::{Flaw, archived};
use super::{Engine, SyncError, dumps, packed, sets};
use crate::catalog::{CatalogError, Compared, Comparison, Difference, Looked, MemberState, SetRow, SetState};
use crate::document::{Capability, Facts, Limits, Reader};
use crate::source::FoundSet;

/// The most findings of one kind that are told one by one.
const MOST_TOLD: usize = 10_000;
/// Objects that are looked at in one go.
const PAGE: usize = 256;

/// Something that is not as it should be.
#[derive(Clone, Debug)]
pub struct Finding {
    /// In the mount.
    pub path: String,
    /// Of what is listed.
    pub uri: Option<String>,
    /// What is not as listed.
    pub differences: Vec<Difference>,
    /// Why content is not what it should be.
    pub problem: Option<String>,
}

/// Findings of one kind: the first of them, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// At most ten thousand.
    pub first: Vec<Finding>,
    /// All of them.
    pub count: u64,
}

impl Findings {
    fn add(&mut self, finding: Finding) {
        self.count += 1;
        if self.first.len() < MOST_TOLD {
            self.first.push(finding);
        }
    }
}

/// What an audit came to.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Resources that the lists name.
    pub listed: u64,
    /// Those that changed since the lists were made, as the Source's changes told.
    pub newer: u64,
    /// Listed, and not in the mirror.
    pub missing: Findings,
    /// In the mirror, and not listed.
    pub extra: Findings,
    /// In the mirror, and not as listed.
    pub stale: Findings,
    /// Content that is not what it was.
    pub corrupt: Findings,
    /// Files and bytes of content that were looked at.
    pub checked: (u64, u64),
    /// What could not be read, now or by the last sync: then nothing is said of what it would list.
    pub unread: Vec<String>,
}

impl Audit {
    /// Whether nothing was found.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        let found = self.missing.count + self.extra.count + self.stale.count + self.corrupt.count;
        found == 0 && self.unread.is_empty()
    }
}

/// Compares the mirror with the Source's lists, and, if `content` says so, what is in the store with its
/// hashes. Content that is corrupt is let go if `repair` says so.
pub(super) async fn audit(engine: &Arc<Engine>, content: bool, repair: bool) -> Result<Audit, SyncError> {
    let mut audit = Audit::default();
    engine.status().phase("comparing");
    let result = look(engine, content, repair, &mut audit).await;
    engine.status().phase("idle");
    result.map(|()| audit)
}

async fn look(engine: &Arc<Engine>, content: bool, repair: bool, audit: &mut Audit) -> Result<(), SyncError> {
    let found = engine.discover().await?;
    audit.unread.extend(found.warnings.iter().filter(|_| !found.complete).cloned());
    for (row, set) in sets::matched(engine, engine.sets()?, &found) {
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
        for feed in engine.readers.ask(|reader| reader.feeds(row.id))? {
            audit.unread.extend(feed.failure);
        }
        let lists = bring(engine, &row, set).await?;
        audit.unread.extend(lists.failed.iter().map(ToString::to_string));
        // While lists come, syncs go on; while they are compared, the tree stands still.
        let _turn = engine.turn.lock().await;
        let (own, so_far) = (Arc::clone(engine), std::mem::take(audit));
        let work = tokio::task::spawn_blocking(move || compare(&own, &row, lists, so_far));
        *audit = work.await.map_err(|error| SyncError::Cache(error.to_string()))??;
    }
    if content {
        engine.status().phase("checking content");
        let (own, so_far) = (Arc::clone(engine), std::mem::take(audit));
        let work = tokio::task::spawn_blocking(move || check(&own, so_far));
        let (checked, damage) = work.await.map_err(|error| SyncError::Cache(error.to_string()))??;
        *audit = checked;
        if repair {
            mend(engine, damage).await?;
        }
    }
    Ok(())
}

/// The lists of a set as they are now, whether they changed or not: Resource Lists, or else manifests.
async fn bring(engine: &Arc<Engine>, set: &SetRow, found: &FoundSet) -> Result<Lists, SyncError> {
    let urls = found.urls(Capability::ResourceList);
    if !urls.is_empty() {
        return Ok(lists::bring(&engine.bringer(Capability::ResourceList), &urls, &[]).await);
    }
    dumps::lists_of(engine, set, &found.urls(Capability::ResourceDump)).await
}

fn compare(engine: &Engine, set: &SetRow, lists: Lists, mut audit: Audit) -> Result<Audit, SyncError> {
    let oldest = lists.cursor();
    let whole = lists.failed.is_empty();
    engine.readers.ask(|reader| {
        let mut comparison = Comparison::new(reader, set.id, set.directory);
        let mut all = whole;
        for document in &lists.read {
            all &= compare_document(engine, document, &mut comparison, &mut audit)?;
        }
        // Of what was not read nobody knows what it lists.
        if all {
            comparison.extra(oldest, |path| {
                audit.extra.add(Finding { path, uri: None, differences: Vec::new(), problem: None });
            })?;
        }
        Ok(())
    })?;
    Ok(audit)
}

/// Compares one list; says whether it was read to its end.
fn compare_document(
    engine: &Engine,
    document: &Spooled,
    comparison: &mut Comparison<'_>,
    audit: &mut Audit,
) -> Result<bool, CatalogError> {
    let io = |error| CatalogError::io(&document.path, error);
    let file = std::fs::File::open(&document.path).map_err(io)?;
    let mut reader = match Reader::open(&file, &document.row.url, Limits::default()) {
        Ok(reader) => reader,
        Err(error) => {
            audit.unread.push(error.to_string());
            return Ok(false);
        }
    };
    let at = document.row.at.unwrap_or_else(crate::document::Datetime::now);
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(true),
            Err(error) => {
                audit.unread.push(error.to_string());
                return Ok(false);
            }
        };
        let facts = Facts::of_entry(&entry, reader.warnings_mut());
        let mapper = &engine.mapper;
        let Some(record) = lists::record(mapper, &document.base, &entry, &facts, at, reader.warnings_mut()) else {
            continue;
        };
        audit.listed += 1;
        let finding = |differences| Finding {
            path: record.path.to_string(),
            uri: Some(record.uri.clone()),
            differences,
            problem: None,
        };
        match comparison.entry(&record, document.row.at)? {
            Compared::Same => {}
            Compared::Repeated => audit.listed -= 1,
            Compared::Newer => audit.newer += 1,
            Compared::Missing => audit.missing.add(finding(Vec::new())),
            Compared::Stale(differences) => audit.stale.add(finding(differences)),
        }
    }
}

/// Content that is not what it was.
struct Damage {
    objects: Vec<([u8; 32], Vec<i64>)>,
    members: Vec<(i64, i64)>,
}

/// Hashes what is in the store again.
fn check(engine: &Engine, mut audit: Audit) -> Result<(Audit, Damage), SyncError> {
    let mut damage = Damage { objects: Vec::new(), members: Vec::new() };
    let mut after = 0;
    loop {
        let page = engine.readers.ask(|reader| reader.objects(after, PAGE))?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for kept in page {
            let problem = match engine.store.check(&kept.sha256) {
                Ok(true) => {
                    audit.checked.0 += 1;
                    audit.checked.1 += kept.size;
                    continue;
                }
                Ok(false) => "its content in the cache is not what it was".to_owned(),
                Err(error) => format!("its content in the cache cannot be read: {error}"),
            };
            // It may have been let go meanwhile, and come again since: then it is none of these.
            let versions = engine.readers.ask(|reader| reader.versions_with(kept.id))?;
            if versions.is_empty() {
                continue;
            }
            for version in &versions {
                found_corrupt(engine, &mut audit, *version, &problem)?;
            }
            damage.objects.push((kept.sha256, versions));
        }
    }
    let mut after = 0;
    loop {
        let page = engine.readers.ask(|reader| reader.members_here(after, PAGE))?;
        let Some(last) = page.last() else { break };
        after = *last;
        for version in page {
            let Some(row) = engine.readers.ask(|reader| reader.version(version))? else { continue };
            let Some(member) = row.member.as_ref() else { continue };
            let Some(package) = engine.packages.get(member.package).filter(|own| own.epoch == member.epoch) else {
                continue;
            };
            let mut facts = expected(&row);
            if let Some(hashes) = &member.hashes {
                facts.hashes = hashes.clone();
            }
            match packed::look(&package, &archived(member), &facts) {
                Ok(()) => {
                    audit.checked.0 += 1;
                    audit.checked.1 += member.size;
                }
                Err(Flaw::Damaged(why)) => {
                    found_corrupt(engine, &mut audit, version, &format!("its member in {}: {why}", package.url))?;
                    damage.members.push((version, package.epoch));
                }
                Err(Flaw::Disk(error)) => audit.unread.push(format!("{}: {error}", package.url)),
            }
        }
    }
    Ok((audit, damage))
}

fn found_corrupt(engine: &Engine, audit: &mut Audit, version: i64, problem: &str) -> Result<(), SyncError> {
    let path = engine.readers.ask(|reader| reader.path_of(version))?;
    audit.corrupt.add(Finding { path, uri: None, differences: Vec::new(), problem: Some(problem.to_owned()) });
    Ok(())
}

/// Lets damaged content go, and fetches it anew.
async fn mend(engine: &Arc<Engine>, damage: Damage) -> Result<(), SyncError> {
    let mut versions = Vec::new();
    for (sha256, having) in damage.objects {
        engine.ledger.lost(sha256);
        if let Err(error) = engine.store.remove(&sha256) {
            engine.status().error(&format!("cache: {error}"));
        }
        versions.extend(having);
    }
    for (version, epoch) in damage.members {
        engine.ledger.member(Looked { version, state: MemberState::Damaged, epoch, sha256: None });
        versions.push(version);
    }
    versions.iter().for_each(|version| engine.contents.files.forget(*version));
    // Facts are gathered for a moment before they are written.
    engine.ledger.settled().await?;
    // What cannot be had again is told where it is fetched.
    engine.contents.many(versions.into_iter().map(|version| (version, None)).collect(), |_| ()).await;
    engine.ledger.settled().await
}
