//! The content of a version made from the one before it, by the patch that its Source offers (core 14.4).
//!
//! A patch is worth it only where the version before is here, and is used only if what it makes is what the
//! Source lists of the result, by hash. Anything else, and the resource itself is fetched.

use std::sync::Arc;

use super::fetch::Contents;
use super::flight::Flight;
use super::location::expected;
use crate::catalog::{Content, MemberRow, VersionRow};
use crate::document::{Link, relation};
use crate::patch::{self, Kind, Patch};
use crate::source::{Asked, Hasher, verify};
use crate::store::Body;
use crate::sync::config::Verify;
use crate::sync::packages;
use crate::sync::transfer::package::archived;
use crate::sync::writer::open_files::Ready;

/// How many versions are made one of the other to reach the one that is wanted.
const MOST_STEPS: usize = 32;
/// How many patches of one version are tried.
const MOST_PLACES: usize = 3;
/// The part of `timeout` that patches may take.
const SHARE: f32 = 0.4;

/// Where a patch is.
#[derive(Debug)]
enum Place {
    Url(String),
    Package(MemberRow),
}

/// A version to be made, and how.
struct Step {
    row: VersionRow,
    patches: Vec<(Kind, Place)>,
}

impl Contents {
    /// Makes a version from one before it that is here; `None` if that cannot be done, or not in a part of the
    /// time that a reader waits: then there is enough left to fetch it.
    pub(in crate::sync) async fn patched(self: &Arc<Self>, row: &VersionRow, flight: &Flight) -> Option<Content> {
        if self.unpatchable.lock().contains(&row.id) {
            return None;
        }
        let (base, steps) = self.steps_to(row)?;
        let made = tokio::time::timeout(self.context.client.timeout().mul_f32(SHARE), self.through(base, steps)).await;
        flight.parts.progress();
        let made = made.ok().flatten();
        if made.is_none() {
            tracing::info!(uri = row.uri, "its patches do not make it; it is fetched whole");
            self.unpatchable.lock().put(row.id, ());
        }
        made
    }

    /// Makes one version of the other, from the oldest on; each is held to its own hash. Only the last is kept:
    /// those in between have a size of their own that somebody may have seen, and nobody asked for them.
    async fn through(self: &Arc<Self>, base: Ready, steps: Vec<Step>) -> Option<Content> {
        let read = tokio::task::spawn_blocking(move || whole(&base.body, base.size));
        let mut bytes = Arc::new(read.await.ok()?.ok()?);
        let mut made = None;
        for step in steps.into_iter().rev() {
            let (next, sha256) = self.take(&step, &bytes).await?;
            bytes = Arc::new(next);
            made = Some(sha256);
        }
        let (sha256, store) = (made?, Arc::clone(&self.context.store));
        let size = bytes.len() as u64;
        let put = tokio::task::spawn_blocking(move || store.put(&sha256, &bytes));
        put.await.ok()?.ok()?;
        Some(Content { sha256, size, verified: true })
    }

    /// The versions that have to be made, the wanted one first, down to one that is here.
    fn steps_to(&self, row: &VersionRow) -> Option<(Ready, Vec<Step>)> {
        let mut steps = Vec::new();
        let mut at = row.clone();
        while steps.len() < MOST_STEPS {
            let patches = self.patches_of(&at);
            if patches.is_empty() {
                return None;
            }
            let before = self.context.readers.ask(|reader| reader.version_before(at.id)).ok()??;
            steps.push(Step { row: at, patches });
            if let Some(base) = self.ready(before) {
                return (base.size <= self.context.config.bounds.patch).then_some((base, steps));
            }
            at = self.row(before).ok()??;
        }
        None
    }

    /// The patches of a version that are understood, and cost less than the version itself.
    fn patches_of(&self, row: &VersionRow) -> Vec<(Kind, Place)> {
        let held = row.extra.preferred().is_none()
            && !row.hashes.is_empty()
            && row.extra.encoding.is_none()
            && self.context.config.verify != Verify::Off;
        if !held || row.size.is_some_and(|size| size > self.context.config.bounds.patch) {
            return Vec::new();
        }
        let mut patches = Vec::new();
        for (media, member) in self.context.readers.ask(|reader| reader.patches(row.id)).unwrap_or_default() {
            patches.extend(Kind::of_media_type(&media).map(|kind| (kind, Place::Package(member))));
        }
        if self.context.config.offline {
            return patches;
        }
        let mut linked = Vec::new();
        for link in &row.extra.links {
            let is_patch = |rel: &String| relation::is_any(rel, &relation::PATCH);
            // What 0.1 calls the protocol of partial content is a media type where it is one we know.
            let (Some(kind), Some(href)) = (
                ["type", "protocol"]
                    .iter()
                    .find_map(|name| link.get(*name).and_then(|media| Kind::of_media_type(media))),
                link.get("href").filter(|_| link.get("rel").is_some_and(is_patch)),
            ) else {
                continue;
            };
            let length: Option<u64> = link.get("length").and_then(|length| length.trim().parse().ok());
            if length.zip(row.size).is_some_and(|(patch, whole)| patch >= whole) {
                continue;
            }
            let url = url::Url::parse(&row.uri).ok().and_then(|base| base.join(href.trim()).ok());
            let priority = Link::priority_of(link.get("pri").map(String::as_str));
            linked.extend(url.map(|url| (priority, kind, Place::Url(url.into()))));
        }
        linked.sort_by_key(|(priority, ..)| *priority);
        patches.extend(linked.into_iter().map(|(_, kind, place)| (kind, place)));
        patches
    }

    /// Makes one version from the bytes of the one before it.
    async fn take(self: &Arc<Self>, step: &Step, before: &Arc<Vec<u8>>) -> Option<(Vec<u8>, [u8; 32])> {
        for (kind, place) in step.patches.iter().take(MOST_PLACES) {
            // A patch that is larger than what it makes is not worth it.
            let most = step.row.size.unwrap_or(self.context.config.bounds.patch).min(self.context.config.bounds.patch);
            let patch = match self.fetch_patch(place, most).await {
                Ok(patch) => patch,
                Err(error) => {
                    tracing::info!(uri = step.row.uri, error, "its patch cannot be had");
                    continue;
                }
            };
            match self.make(step, *kind, Arc::clone(before), patch).await {
                Ok(made) => return Some(made),
                Err(error) => tracing::info!(uri = step.row.uri, error, ?place, "a patch does not make it"),
            }
        }
        None
    }

    async fn fetch_patch(&self, place: &Place, most: u64) -> Result<Vec<u8>, String> {
        match place {
            Place::Url(url) => {
                let asked = Asked { patience: Some(self.context.client.timeout().mul_f32(SHARE)), ..Asked::default() };
                let answer = self.context.client.ask(url, &asked).await.map_err(|error| error.to_string())?;
                let patch = answer.bytes(most).await.map_err(|error| error.to_string())?;
                self.context.status.update(|progress| progress.fetched_bytes += patch.len() as u64);
                Ok(patch)
            }
            Place::Package(row) => {
                let package = packages::get(&self.context, row.package).ok_or("its package is not known any more")?;
                let member = archived(row);
                if member.size > most {
                    return Err(format!("it has {} bytes", member.size));
                }
                packages::bring_member(&self.context, &package, &member, || ())
                    .await
                    .map_err(|error| error.to_string())?;
                let file = Arc::clone(&package.file);
                let read = tokio::task::spawn_blocking(move || member.content(&file));
                read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
            }
        }
    }

    /// Applies a patch; returns what it makes, and its SHA-256, if that is what the Source lists.
    async fn make(
        &self,
        step: &Step,
        kind: Kind,
        old: Arc<Vec<u8>>,
        patch: Vec<u8>,
    ) -> Result<(Vec<u8>, [u8; 32]), String> {
        let expected = expected(&step.row);
        // A patch may cost much memory: they are applied one at a time.
        let turn = Arc::clone(&self.patching).acquire_owned().await.map_err(|error| error.to_string())?;
        let bounds = self.context.config.bounds;
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut sums = None;
            let mut fits = |made: &[u8]| {
                let Ok(found) = Hasher::read(&expected.hashes, made) else { return false };
                let fits = verify(&found, &expected).is_ok();
                if fits {
                    sums = Some(found.sha256);
                }
                fits
            };
            let made = patch::apply(&old, Patch { kind, bytes: &patch }, expected.length, &bounds, &mut fits);
            let made = made.map_err(|error| error.to_string())?;
            Ok((made, sums.ok_or("nothing fits")?))
        });
        work.await.map_err(|error| error.to_string())?
    }
}

fn whole(body: &Body, size: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        body.read_at(bytes.len() as u64, 1 << 20, |part| match part? {
            [] => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
            part => {
                bytes.extend_from_slice(part);
                Ok(())
            }
        })?;
    }
    Ok(bytes)
}
