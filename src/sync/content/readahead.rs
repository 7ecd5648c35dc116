//! What is likely to be read next: the files that follow in their directory.
//!
//! `cp -r`, `tar`, `grep -r` and `cat *` read one file after the other, and after each wait for the disk: for where the
//! object lies, and for its bytes. When two files are read that follow each other, those after them are opened, and the disk
//! is asked for their bytes, while the reader is busy with these. In the middle of what was so brought, the next are.
//!
//! Only what is in the cache is brought; nothing is asked of the Source.

use crate::catalog::VersionId;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::fetch::Contents;
use crate::bounds::capacity;
use crate::store::Body;
use crate::sync::writer::open_files::Ready;

/// How many files are brought at once.
const WINDOW: usize = 32;
/// By how many threads.
pub(in crate::sync) const HANDS: usize = 2;
/// How much of each, in bytes: of a longer file the kernel reads ahead itself.
const MOST: u64 = 256 << 10;
/// How many files are remembered as read, and as in the middle of what was brought.
const REMEMBERED: usize = 256;

/// What was read lately.
#[derive(Debug)]
pub(in crate::sync) struct Readahead {
    contents: Arc<Contents>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Versions that were opened.
    opened: LruCache<VersionId, ()>,
    /// In the middle of what was brought: its last version.
    middles: LruCache<VersionId, VersionId>,
}

impl Readahead {
    pub(in crate::sync) fn new(contents: Arc<Contents>) -> Self {
        Self {
            contents,
            inner: Mutex::new(Inner {
                opened: LruCache::new(capacity(REMEMBERED)),
                middles: LruCache::new(capacity(REMEMBERED)),
            }),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock())
    }

    /// As [`Contents::ready`], for a reader; also says after which version files are to be brought now, if any.
    pub(in crate::sync) fn reading(&self, version: VersionId) -> (Option<Ready>, Option<VersionId>) {
        if let Some(ready) = self.contents.context.files.get(version) {
            return (Some(ready), self.with(|inner| inner.middles.pop(&version)));
        }
        let ready = self.contents.ready(version);
        if ready.is_none() {
            return (None, None);
        }
        // What cannot be asked is not brought; a failure shows where it is asked for.
        let before = self.contents.context.readers.ask(|reader| reader.before(version)).ok().flatten();
        let follows = self.with(|inner| {
            inner.opened.put(version, ());
            before.is_some_and(|before| inner.opened.contains(&before))
        });
        (ready, follows.then_some(version))
    }

    /// The versions that follow this one in its directory, to be brought: as many hands' shares of them.
    pub(in crate::sync) fn following(&self, after: VersionId) -> Vec<Vec<VersionId>> {
        let versions = self.contents.context.readers.ask(|reader| reader.following(after, WINDOW)).unwrap_or_default();
        if let (Some(middle), Some(last)) = (versions.get(versions.len() / 2), versions.last()) {
            self.with(|inner| inner.middles.put(*middle, *last));
        }
        (0..HANDS).map(|hand| versions.iter().copied().skip(hand).step_by(HANDS).collect()).collect()
    }

    /// Brings those of these versions that are in the cache to where they are read fast.
    pub(in crate::sync) fn bring_near(&self, versions: &[VersionId]) {
        for version in versions {
            if self.contents.context.files.get(*version).is_none()
                && let Some(Ready { body: Body::File(file, begin, size), .. }) = self.contents.ready(*version)
            {
                // Advice; a file system that takes none reads when it is asked.
                let length = std::num::NonZeroU64::new(size.min(MOST));
                let _ = rustix::fs::fadvise(&*file, begin, length, rustix::fs::Advice::WillNeed);
            }
        }
    }
}
