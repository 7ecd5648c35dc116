//! Files of the store that stay open for the next read.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::content::Ready;

/// The most that stay open.
const MOST: u64 = 1024;

/// By version: what the file is in the store, and the file.
type Files = LruCache<i64, ([u8; 32], Ready)>;

/// Open files by version. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct OpenFiles(Arc<Mutex<Files>>);

impl OpenFiles {
    /// As many as the process may keep open besides all else that it opens.
    pub(super) fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(MOST * 4);
        let most = usize::try_from((limit / 4).clamp(16, MOST)).unwrap_or(16);
        Self(Arc::new(Mutex::new(LruCache::new(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN)))))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Files) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn get(&self, version: i64) -> Option<Ready> {
        self.with(|files| files.get(&version).map(|(_, ready)| ready.clone()))
    }

    pub(super) fn put(&self, version: i64, sha256: [u8; 32], ready: Ready) {
        self.with(|files| drop(files.put(version, (sha256, ready))));
    }

    /// Closes what has left the store: an open file keeps its room on the disk.
    pub(super) fn close(&self, gone: &[[u8; 32]]) {
        let gone: HashSet<&[u8; 32]> = gone.iter().collect();
        self.with(|files| {
            let versions: Vec<i64> =
                files.iter().filter(|(_, (sha256, _))| gone.contains(sha256)).map(|(version, _)| *version).collect();
            versions.iter().for_each(|version| drop(files.pop(version)));
        });
    }
}
