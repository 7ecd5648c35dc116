//! `.resourcesync`: files that are made when they are looked up; and symbolic links, which are made so, too.
//!
//! A file that changes by nature gets a new inode at each LOOKUP, with what it is at that moment, so
//! that the rule "an inode never changes" has no exception.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the directory at the root.
pub(super) const DIRECTORY: &str = ".resourcesync";
/// Its files.
pub(super) const FILES: [&str; 2] = ["status.json", "metrics"];
/// Its inode number, above all that the catalog gives out.
pub(super) const DIRECTORY_INO: u64 = 1 << 62;

/// The files that the kernel knows of.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    next: AtomicU64,
    known: Mutex<HashMap<u64, Snapshot>>,
}

#[derive(Debug)]
struct Snapshot {
    lookups: u64,
    content: Arc<Vec<u8>>,
    /// The time of a symbolic link.
    link: Option<i64>,
}

impl Snapshots {
    /// Whether an inode number is one of these files or their directory.
    pub(super) fn is_ours(ino: u64) -> bool {
        ino >= DIRECTORY_INO
    }

    /// Keeps a file's content under a new inode number, until the kernel forgets it.
    pub(super) fn add(&self, content: Vec<u8>) -> (u64, Arc<Vec<u8>>) {
        self.keep(content, None)
    }

    /// Keeps the target of a symbolic link of this time in the same way.
    pub(super) fn add_link(&self, target: Vec<u8>, mtime: i64) -> (u64, Arc<Vec<u8>>) {
        self.keep(target, Some(mtime))
    }

    fn keep(&self, content: Vec<u8>, link: Option<i64>) -> (u64, Arc<Vec<u8>>) {
        let ino = DIRECTORY_INO + 1 + self.next.fetch_add(1, Ordering::Relaxed);
        let content = Arc::new(content);
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(ino, Snapshot { lookups: 1, content: Arc::clone(&content), link });
        (ino, content)
    }

    /// The content of a file, or the target of a link.
    pub(super) fn get(&self, ino: u64) -> Option<Arc<Vec<u8>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&ino).map(|known| Arc::clone(&known.content))
    }

    /// The time of a symbolic link; none if it is a file.
    pub(super) fn link_time(&self, ino: u64) -> Option<i64> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&ino).and_then(|known| known.link)
    }

    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = known.get_mut(&ino) {
            snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
            if snapshot.lookups == 0 {
                known.remove(&ino);
            }
        }
    }
}
