//! The cache held to itself: whether its rows agree with each other, and whether its content is what it was.
//!
//! Needs no Source. Whatever happened before, a crash, a full disk, a machine that lost its power, nothing is to be found here
//! but what a disk did to files that were on it.

use std::sync::Arc;

use super::finding::{Audit, Finding};
use crate::catalog::{Looked, MemberState, VersionId};
use crate::sync::content::fetch::Contents;
use crate::sync::content::location::expected;
use crate::sync::content::packed;
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::packages;
use crate::sync::packages::members::Flaw;
use crate::sync::transfer::package::archived;

/// Objects that are looked at in one go.
const PAGE: usize = 256;

/// Content that is not what it was.
pub(in crate::sync) struct Damage {
    objects: Vec<([u8; 32], Vec<VersionId>)>,
    members: Vec<(VersionId, i64)>,
}

/// Looks at all rows, and hashes what is in the store again.
pub(in crate::sync) fn check(context: &Context, mut audit: Audit) -> Result<(Audit, Damage), SyncError> {
    let mut damage = Damage { objects: Vec::new(), members: Vec::new() };
    audit.cache.extend(context.readers.ask(|reader| reader.check())?);
    let mut after = 0;
    loop {
        let page = context.readers.ask(|reader| reader.objects(after, PAGE))?;
        let Some(last) = page.last() else { break };
        after = last.id;
        for kept in page {
            let problem = match context.store.check(&kept.sha256) {
                Ok(true) => {
                    audit.checked.0 += 1;
                    audit.checked.1 += kept.size;
                    continue;
                }
                Ok(false) => "its content in the cache is not what it was".to_owned(),
                Err(error) => format!("its content in the cache cannot be read: {error}"),
            };
            // It may have been let go meanwhile, and come again since: then it is none of these.
            let versions = context.readers.ask(|reader| reader.versions_with(kept.id))?;
            if versions.is_empty() {
                continue;
            }
            for version in &versions {
                found_corrupt(context, &mut audit, *version, &problem)?;
            }
            damage.objects.push((kept.sha256, versions));
        }
    }
    let mut after = 0;
    loop {
        let page = context.readers.ask(|reader| reader.members_here(after, PAGE))?;
        let Some(last) = page.last() else { break };
        after = last.number();
        for version in page {
            let Some(row) = context.readers.ask(|reader| reader.version(version))? else { continue };
            let Some(member) = row.member.as_ref() else { continue };
            let Some(package) = packages::get(context, member.package).filter(|own| own.epoch == member.epoch) else {
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
                    found_corrupt(context, &mut audit, version, &format!("its member in {}: {why}", package.url))?;
                    damage.members.push((version, package.epoch));
                }
                Err(Flaw::Disk(error)) => audit.unread.push(format!("{}: {error}", package.url)),
            }
        }
    }
    Ok((audit, damage))
}

fn found_corrupt(context: &Context, audit: &mut Audit, version: VersionId, problem: &str) -> Result<(), SyncError> {
    let path = context.readers.ask(|reader| reader.path_of(version))?;
    audit.corrupt.add(Finding { path, uri: None, differences: Vec::new(), problem: Some(problem.to_owned()) });
    Ok(())
}

/// Lets damaged content go, and fetches it anew.
pub(in crate::sync) async fn mend(contents: &Arc<Contents>, damage: Damage) -> Result<(), SyncError> {
    let context = &contents.context;
    let mut versions = Vec::new();
    for (sha256, having) in damage.objects {
        if let Err(error) = context.write_queue.discard(sha256).await {
            context.status.error(&error.to_string());
        }
        versions.extend(having);
    }
    for (version, epoch) in damage.members {
        context.write_queue.member(Looked { version, state: MemberState::Damaged, epoch, sha256: None });
        versions.push(version);
    }
    versions.iter().for_each(|version| context.files.forget(*version));
    // Facts are gathered for a moment before they are written.
    context.write_queue.settled().await?;
    // What is not shown is not fetched.
    let mut wanted = Vec::new();
    for version in versions {
        if !context.readers.ask(|reader| reader.is_left_out(version))? {
            wanted.push(version);
        }
    }
    let versions = wanted;
    // What cannot be had again is told where it is fetched.
    contents.many(versions.into_iter().map(|version| (version, None)).collect(), |_| ()).await;
    context.write_queue.settled().await
}
