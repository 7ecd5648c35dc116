//! When content was looked at that nothing which the Source lists tells from its next edition.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::bounds::capacity;
use crate::catalog::{KnownContent, VersionId, VersionRow};
use crate::document::Datetime;
use crate::source::Validators;
use crate::sync::under_way::UnderWay;
use crate::sync::writer::write_queue::WriteQueue;

/// The most versions of which it is remembered here until it is in the catalog.
const MOST_CHECKED: usize = 10_000;

/// When content was looked at that only its server can tell to be current.
#[derive(Debug)]
pub(in crate::sync) struct Freshness {
    /// How old such content may be; `None`: of any age.
    pub(in crate::sync) interval: Option<Duration>,
    /// Such content that its server is asked for again.
    pub(in crate::sync) revalidating: UnderWay<Revalidated>,
    /// What was looked at before then is looked at again, by our clock.
    fresh_since: AtomicI64,
    /// When such content was looked at that is not noted in the catalog yet.
    checked: Mutex<LruCache<VersionId, Datetime>>,
    /// Whether there may be such content.
    pub(in crate::sync) timeless: AtomicBool,
}

impl Freshness {
    pub(in crate::sync) fn new(interval: Option<Duration>) -> Self {
        Self {
            interval,
            revalidating: UnderWay::default(),
            fresh_since: AtomicI64::new(i64::MIN),
            checked: Mutex::new(LruCache::new(capacity(MOST_CHECKED))),
            timeless: AtomicBool::new(false),
        }
    }

    /// Everything is looked at again when it is opened next.
    pub(in crate::sync) fn check_again(&self) {
        self.fresh_since.store(Datetime::now().nanos(), Ordering::Release);
    }

    /// Whether a version is to be looked at, which was last when `known` says.
    pub(in crate::sync) fn is_due(&self, version: VersionId, known: Option<Datetime>, interval: Duration) -> bool {
        let pending = self.checked.lock().get(&version).copied();
        let checked = pending.max(known);
        let after = self.fresh_since.load(Ordering::Acquire);
        checked.is_none_or(|checked| checked.nanos() < after || age(checked) >= interval)
    }

    /// Notes what a server said of the content of a version just now.
    pub(in crate::sync) fn note(
        &self,
        write_queue: &WriteQueue,
        version: VersionId,
        validators: Validators,
        media: Option<String>,
    ) {
        let known = known_content(validators, media);
        // It is in the catalog a moment later.
        self.checked.lock().put(version, known.checked);
        write_queue.checked(version, known);
    }
}

/// What became of content that was asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sync) enum Revalidated {
    /// It is what the server has.
    Current,
    /// Why that is not known: what is here is served.
    Unknown(String),
    /// There is a new version.
    Superseded,
}

/// Whether only its server can tell whether the content of a version is still that of its resource.
pub(in crate::sync) fn is_timeless(row: &VersionRow) -> bool {
    row.current && row.dated != 1 && row.hashes.is_empty() && row.member.is_none()
}

pub(in crate::sync) fn known_content(validators: Validators, media: Option<String>) -> KnownContent {
    let Validators { etag, last_modified, settled } = validators;
    // Written just now, it may be written again within the same second.
    let last_modified = last_modified.filter(|_| settled || etag.is_some());
    KnownContent { etag, last_modified, media, checked: Datetime::now() }
}

fn age(moment: Datetime) -> Duration {
    let age = Datetime::now().nanos().saturating_sub(moment.nanos());
    // A clock that was set back says nothing.
    u64::try_from(age).map_or(Duration::MAX, Duration::from_nanos)
}
