//! The content of a version made from the one before it, by the patch that its Source offers (core 14.4).
//!
//! A patch is worth it only where the version before is here, and is used only if what it makes is what the
//! Source lists of the result, by hash. Anything else, and the resource itself is fetched.

use std::sync::Arc;

use super::Verify;
use super::content::{Contents, Flight, expected};
use super::dumps::PATCH;
use super::members::archived;
use crate::catalog::{Content, MemberRow, VersionRow};
use crate::patch::{self, Kind};
use crate::source::{Asked, Hasher, verify};
use crate::store::Body;

/// How many versions are made one of the other to reach the one that is wanted.
const MOST_STEPS: usize = 32;
/// The largest patch, and the largest resource that is patched, in bytes.
const MOST_BYTES: u64 = patch::MOST as u64;

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
    /// Makes a version from one before it that is here; `None` if that cannot be done.
    pub(super) async fn patched(self: &Arc<Self>, row: &VersionRow, flight: &Flight) -> Option<Content> {
        let steps = self.steps_to(row)?;
        let mut made = None;
        // From the oldest on: each is held to its own hash, and kept.
        for step in steps.into_iter().rev() {
            let content = self.take(&step, flight).await?;
            if step.row.id != row.id {
                self.ledger.stored(step.row.id, content);
            }
            made = Some(content);
        }
        made
    }

    /// The versions that have to be made, the wanted one first, down to one that is here.
    fn steps_to(&self, row: &VersionRow) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        let mut at = row.clone();
        while steps.len() < MOST_STEPS {
            let patches = self.patches_of(&at);
            if patches.is_empty() {
                return None;
            }
            let before = self.readers.ask(|reader| reader.version_before(at.id)).ok()??;
            steps.push(Step { row: at, patches });
            if self.ready(before).is_some() {
                return Some(steps);
            }
            at = self.row(before).ok()??;
        }
        None
    }

    /// The patches of a version that are understood, and cost less than the version itself.
    fn patches_of(&self, row: &VersionRow) -> Vec<(Kind, Place)> {
        let held = !row.hashes.is_empty() && row.extra.encoding.is_none() && self.verify != Verify::Off;
        if !held || row.size.is_some_and(|size| size > MOST_BYTES) {
            return Vec::new();
        }
        let mut patches = Vec::new();
        for (media, member) in self.readers.ask(|reader| reader.patches(row.id)).unwrap_or_default() {
            patches.extend(Kind::of_media_type(&media).map(|kind| (kind, Place::Package(member))));
        }
        if self.offline {
            return patches;
        }
        for link in &row.extra.links {
            let is_patch = |rel: &String| rel.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(PATCH));
            let (Some(kind), Some(href)) = (
                link.get("type").and_then(|media| Kind::of_media_type(media)),
                link.get("href").filter(|_| link.get("rel").is_some_and(is_patch)),
            ) else {
                continue;
            };
            let length: Option<u64> = link.get("length").and_then(|length| length.trim().parse().ok());
            if length.zip(row.size).is_some_and(|(patch, whole)| patch >= whole) {
                continue;
            }
            let url = url::Url::parse(&row.uri).ok().and_then(|base| base.join(href.trim()).ok());
            patches.extend(url.map(|url| (kind, Place::Url(url.into()))));
        }
        patches
    }

    /// Makes one version from the one before it.
    async fn take(self: &Arc<Self>, step: &Step, flight: &Flight) -> Option<Content> {
        let before = self.readers.ask(|reader| reader.version_before(step.row.id)).ok()??;
        for (kind, place) in &step.patches {
            let old = self.ready(before).filter(|old| old.size <= MOST_BYTES)?;
            let patch = match self.fetch_patch(place).await {
                Ok(patch) => patch,
                Err(error) => {
                    tracing::info!(uri = step.row.uri, error, "its patch cannot be had");
                    continue;
                }
            };
            flight.parts.progress();
            match self.make(step, *kind, old.body, old.size, patch).await {
                Ok(content) => return Some(content),
                Err(error) => {
                    tracing::info!(
                        uri = step.row.uri,
                        error,
                        ?place,
                        "its patch does not make it; it is fetched whole"
                    );
                }
            }
        }
        None
    }

    async fn fetch_patch(&self, place: &Place) -> Result<Vec<u8>, String> {
        match place {
            Place::Url(url) => {
                let asked = Asked { patience: Some(self.client.timeout().mul_f32(0.4)), ..Asked::default() };
                let answer = self.client.ask(url, &asked).await.map_err(|error| error.to_string())?;
                let patch = answer.bytes(MOST_BYTES).await.map_err(|error| error.to_string())?;
                self.status.update(|progress| progress.fetched_bytes += patch.len() as u64);
                Ok(patch)
            }
            Place::Package(row) => {
                let package = self.packages.get(row.package).ok_or("its package is not known any more")?;
                let member = archived(row);
                if member.size > MOST_BYTES {
                    return Err(format!("it has {} bytes", member.size));
                }
                self.packages.bring_member(&package, &member, || ()).await.map_err(|error| error.to_string())?;
                let file = Arc::clone(&package.file);
                let read = tokio::task::spawn_blocking(move || member.content(&file));
                read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
            }
        }
    }

    /// Applies a patch; what it makes is in the store if it is what the Source lists.
    async fn make(&self, step: &Step, kind: Kind, old: Body, size: u64, patch: Vec<u8>) -> Result<Content, String> {
        let expected = expected(&step.row);
        let store = Arc::clone(&self.store);
        let work = tokio::task::spawn_blocking(move || {
            let old = whole(&old, size).map_err(|error| error.to_string())?;
            let mut sums = None;
            let mut fits = |made: &[u8]| {
                if expected.length.is_some_and(|length| length != made.len() as u64) {
                    return false;
                }
                let Ok(found) = Hasher::read(&expected.hashes, made) else { return false };
                let fits = verify(&found, &expected).is_ok();
                if fits {
                    sums = Some(found.sha256);
                }
                fits
            };
            let made = patch::apply(kind, &old, &patch, &mut fits).map_err(|error| error.to_string())?;
            let sha256 = sums.ok_or("nothing fits")?;
            store.put(&sha256, &made).map_err(|error| error.to_string())?;
            Ok(Content { sha256, size: made.len() as u64, verified: true })
        });
        work.await.map_err(|error| error.to_string())?
    }
}

fn whole(body: &Body, size: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        let part = body.read_at(bytes.len() as u64, 1 << 20)?;
        if part.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
