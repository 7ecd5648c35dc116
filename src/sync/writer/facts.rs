//! Facts about single versions and content, which are gathered and written many at a time.

use tokio::sync::oneshot;

use crate::catalog::{CatalogError, Content, KnownContent, Looked, PackageId, Transaction, VersionId};
use crate::document::Datetime;
use crate::store::Store;

/// What became known of a single version, or of content.
#[derive(Debug)]
pub(super) enum Fact {
    Stored(VersionId, Content),
    Size(VersionId, u64),
    Superseded(VersionId, Option<(Content, Option<KnownContent>)>),
    Checked(VersionId, KnownContent),
    Touched([u8; 32]),
    TouchedPackage(PackageId),
    Member(Looked),
    Lost([u8; 32]),
    Settled(oneshot::Sender<()>),
}

/// What became of facts that were written.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Bytes of content that the catalog knows of since.
    pub(super) came: u64,
    /// Bytes of content that it knows of no more.
    pub(super) went: u64,
    /// Content that is not in the store after all.
    pub(super) missing: Vec<[u8; 32]>,
}

/// Writes facts. What is no fact any more, because the store has changed since, is not written.
pub(super) fn write(transaction: &mut Transaction<'_>, store: &Store, facts: &[Fact]) -> Result<Written, CatalogError> {
    let now = Datetime::now();
    let mut written = Written::default();
    for fact in facts {
        match fact {
            // Another may have let go of the same content since it came.
            Fact::Stored(_, content) if !store.has(&content.sha256) => written.missing.push(content.sha256),
            Fact::Stored(version, content) => {
                if transaction.store(*version, content, now)? {
                    written.came += content.size;
                }
            }
            Fact::Size(version, size) => transaction.settle_size(*version, *size)?,
            Fact::Superseded(version, content) => {
                let (content, known) = content.as_ref().map(|(content, known)| (*content, known)).unzip();
                let here = content.filter(|content| store.has(&content.sha256));
                written.missing.extend(content.filter(|_| here.is_none()).map(|content| content.sha256));
                let next = transaction.next_version();
                if transaction.supersede(*version, here.as_ref(), now)? {
                    written.came += here.map_or(0, |content| content.size);
                }
                if let Some(known) = known.and_then(Option::as_ref).filter(|_| here.is_some()) {
                    transaction.put_known_content(next, known)?;
                }
            }
            Fact::Checked(version, known) => transaction.put_known_content(*version, known)?,
            Fact::Touched(sha256) => transaction.touch(sha256, now)?,
            Fact::TouchedPackage(package) => transaction.touch_package(*package, now)?,
            Fact::Member(looked) => transaction.member_is(looked)?,
            // It may have come again since.
            Fact::Lost(sha256) if store.has(sha256) => {}
            Fact::Lost(sha256) => {
                if let Some(size) = transaction.forget_content(sha256)? {
                    written.went += size;
                    written.missing.push(*sha256);
                }
            }
            Fact::Settled(_) => {}
        }
    }
    Ok(written)
}
