//! Members of packages: held to their manifest before anybody sees them, once.
//!
//! What a member comes to is looked at when it is first read, or by the background's pass over packages
//! that are here ([`pass`]), whichever is first; the result is kept in the catalog. A member that is
//! not what is listed is reported, and its resource is had from its own URL while the Source still has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::catalog::{Looked, MemberState, UnseenMember, VersionId};
use crate::source::{Expected, Hasher, Sums, verify};
use crate::store::archive::{ArchiveError, Member};
use crate::sync::config::Verify;
use crate::sync::context::Context;
use crate::sync::error::SyncError;
use crate::sync::transfer::package::{Package, archived};

/// Up to this size a member is inflated in memory whenever it is read.
const SMALL: u64 = 1 << 20;
/// How many members are looked at in one go.
const PAGE: usize = 256;
/// And how many bytes they come to, at the most, but for one.
const PAGE_BYTES: u64 = 16 << 20;
/// How many results are written at once.
const WRITE_EACH: usize = 2000;

/// Whether a member is inflated in memory whenever it is read.
pub(in crate::sync) fn is_small(member: &Member) -> bool {
    member.size <= SMALL && member.compressed <= SMALL
}

/// Why a member is not served.
#[derive(Debug)]
pub(in crate::sync) enum Flaw {
    /// It is not what is listed.
    Damaged(String),
    /// The cache could not be read.
    Disk(std::io::Error),
}

impl From<ArchiveError> for Flaw {
    fn from(error: ArchiveError) -> Self {
        match error {
            // A stream tells of damage by an error of its own making.
            ArchiveError::Io(error) if error.kind() == std::io::ErrorKind::Other => Self::Damaged(error.to_string()),
            ArchiveError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Self::Damaged("the package ends before it".to_owned())
            }
            ArchiveError::Io(error) => Self::Disk(error),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<std::io::Error> for Flaw {
    fn from(error: std::io::Error) -> Self {
        Self::from(match error.kind() {
            // What an inflater says of bytes that were never deflated.
            std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
                ArchiveError::Damaged(format!("it cannot be inflated: {error}"))
            }
            _ => ArchiveError::Io(error),
        })
    }
}

/// Holds content to what is listed of it, and says what the member is, then.
pub(in crate::sync) fn hold(sums: &Sums, expected: &Expected, doubtful: bool) -> Result<MemberState, Flaw> {
    verify(sums, expected).map_err(|trouble| Flaw::Damaged(trouble.to_string()))?;
    match (expected.hashes.is_empty(), expected.length) {
        (true, _) if doubtful => {
            Err(Flaw::Damaged("its package is not what the dump says, and it has no hash of its own".to_owned()))
        }
        (true, None) => Ok(MemberState::Intact),
        _ => Ok(MemberState::Verified),
    }
}

thread_local! {
    /// What members are read and inflated into while they are only looked at.
    static BUFFERS: std::cell::RefCell<(Vec<u8>, Vec<u8>)> = const { std::cell::RefCell::new((Vec::new(), Vec::new())) };
}

/// Reads a member through, and says what it is.
fn look(package: &Package, unseen: &UnseenMember) -> Result<(MemberState, [u8; 32]), Flaw> {
    let member = archived(&unseen.member);
    let expected = Expected { length: unseen.length, hashes: unseen.hashes.clone(), encoding: None, media: None };
    let sums = if is_small(&member) {
        BUFFERS.with_borrow_mut(|(raw, content)| {
            member.content_into(&package.file, raw, content)?;
            Ok::<_, Flaw>(Hasher::read(&expected.hashes, content.as_slice())?)
        })?
    } else {
        Hasher::read(&expected.hashes, member.stream(Arc::clone(&package.file))?)?
    };
    Ok((hold(&sums, &expected, package.doubtful.load(Ordering::Acquire))?, sums.sha256))
}

/// A damaged member, and why it is.
pub(in crate::sync) struct Damage {
    pub(in crate::sync) version: VersionId,
    pub(in crate::sync) why: String,
}

/// What came of a page of members.
#[derive(Default)]
struct Seen {
    looked: Vec<Looked>,
    damage: Vec<Damage>,
    disk: Option<std::io::Error>,
}

/// Looks at all members of a package that are here and that nobody has looked at yet; returns what
/// is damaged.
///
/// # Errors
/// If the catalog or the cache fails.
pub(in crate::sync) async fn pass(context: &Context, package: &Arc<Package>) -> Result<Vec<Damage>, SyncError> {
    let _turn = package.looking.lock().await;
    let mut from = 0;
    run(context, package, || {
        let mut page = context.readers.ask(|reader| reader.unseen_members(package.id, from, PAGE))?;
        page.truncate(fitting(&page));
        from = page.last().map_or(from, |last| last.member.header + 1);
        Ok(page)
    })
    .await
}

/// Looks at these members of a package, which versions were just given.
///
/// # Errors
/// If the catalog or the cache fails.
pub(in crate::sync) async fn given(
    context: &Context,
    package: &Arc<Package>,
    mut members: Vec<UnseenMember>,
) -> Result<Vec<Damage>, SyncError> {
    members.sort_unstable_by_key(|unseen| std::cmp::Reverse(unseen.member.header));
    run(context, package, || {
        let mut page: Vec<UnseenMember> = members.drain(members.len().saturating_sub(PAGE)..).rev().collect();
        let rest = page.split_off(fitting(&page));
        members.extend(rest.into_iter().rev());
        Ok(page)
    })
    .await
}

async fn run(
    context: &Context,
    package: &Arc<Package>,
    mut next: impl FnMut() -> Result<Vec<UnseenMember>, SyncError>,
) -> Result<Vec<Damage>, SyncError> {
    if context.config.verify == Verify::Off {
        return Ok(Vec::new());
    }
    let forgives = context.config.verify == Verify::Warn;
    let most = std::thread::available_parallelism().map_or(2, usize::from);
    let (mut running, mut writing) = (FuturesUnordered::new(), FuturesUnordered::new());
    let (mut damage, mut looked) = (Vec::new(), Vec::new());
    let mut more = true;
    loop {
        while more && running.len() <= most {
            let page = next()?;
            if page.is_empty() {
                more = false;
                break;
            }
            let own = Arc::clone(package);
            running.push(tokio::task::spawn_blocking(move || see(&own, page, forgives)));
        }
        // Looking goes on while what was found is written.
        if looked.len() >= WRITE_EACH || running.is_empty() && !looked.is_empty() {
            let found: Vec<Looked> = std::mem::take(&mut looked);
            writing.push(async move {
                let count = found.len() as u64;
                context.write_queue.seen(found).await.map(|()| count)
            });
        }
        tokio::select! {
            Some(seen) = running.next() => {
                let seen = seen?;
                if let Some(error) = seen.disk {
                    return Err(SyncError::cache(&package.url, error));
                }
                damage.extend(seen.damage);
                looked.extend(seen.looked);
            }
            Some(written) = writing.next() => {
                let count = written?;
                context.status.update(|progress| progress.verified += count);
            }
            else => break,
        }
    }
    Ok(damage)
}

/// How many of these members are looked at in one go.
fn fitting(page: &[UnseenMember]) -> usize {
    let mut bytes = 0;
    let fits = page.iter().take_while(|unseen| {
        let first = bytes == 0;
        bytes += unseen.member.size.max(1);
        first || bytes <= PAGE_BYTES
    });
    fits.count()
}

/// `forgives`: what is not what is listed is nobody's business before somebody reads it.
fn see(package: &Package, page: Vec<UnseenMember>, forgives: bool) -> Seen {
    let mut seen = Seen::default();
    for unseen in page {
        if !package.has_member(&archived(&unseen.member)) && !package.is_whole() {
            continue;
        }
        let looked = |state, sha256| Looked { version: unseen.member.version, state, epoch: package.epoch, sha256 };
        match look(package, &unseen) {
            // What nothing is listed of is held to what it is now.
            Ok((state, sha256)) => {
                seen.looked.push(looked(state, (state == MemberState::Intact).then_some(sha256)));
            }
            Err(Flaw::Damaged(_)) if forgives => {}
            Err(Flaw::Damaged(why)) => {
                seen.looked.push(looked(MemberState::Damaged, None));
                seen.damage.push(Damage { version: unseen.member.version, why });
            }
            Err(Flaw::Disk(error)) => seen.disk = Some(error),
        }
    }
    seen
}
