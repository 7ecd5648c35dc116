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
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    files: HashMap<u64, Snapshot>,
    /// The numbers of those that stay what they are as long as somebody knows them.
    keys: HashMap<String, u64>,
}

#[derive(Debug)]
struct Snapshot {
    lookups: u64,
    content: Arc<Vec<u8>>,
    made: Made,
    key: Option<String>,
}

/// What was made, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// A file that is as old as the look at it.
    Now,
    /// A file of this time.
    File(i64),
    /// A symbolic link of this time.
    Link(i64),
}

impl Snapshots {
    /// Whether an inode number is one of these files or their directory.
    pub(super) fn is_ours(ino: u64) -> bool {
        ino >= DIRECTORY_INO
    }

    /// Keeps a file's content under a new inode number, until the kernel forgets it.
    pub(super) fn add(&self, content: Vec<u8>) -> (u64, Arc<Vec<u8>>) {
        self.keep(content, Made::Now, None)
    }

    /// Keeps the target of a symbolic link of this time in the same way.
    pub(super) fn add_link(&self, target: Vec<u8>, mtime: i64) -> (u64, Arc<Vec<u8>>) {
        self.keep(target, Made::Link(mtime), None)
    }

    /// Keeps what says the same under the same number for as long as the kernel knows it: programs that copy a file look
    /// whether it is still the one that they saw.
    pub(super) fn add_same(&self, place: &str, content: Vec<u8>, made: Made) -> (u64, Arc<Vec<u8>>) {
        let key = format!("{place}\n{made:?}\n{}", String::from_utf8_lossy(&content));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ino) = known.keys.get(&key).copied()
            && let Some(snapshot) = known.files.get_mut(&ino)
        {
            snapshot.lookups += 1;
            return (ino, Arc::clone(&snapshot.content));
        }
        drop(known);
        self.keep(content, made, Some(key))
    }

    fn keep(&self, content: Vec<u8>, made: Made, key: Option<String>) -> (u64, Arc<Vec<u8>>) {
        let ino = DIRECTORY_INO + 1 + self.next.fetch_add(1, Ordering::Relaxed);
        let content = Arc::new(content);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.keys.extend(key.clone().map(|key| (key, ino)));
        known.files.insert(ino, Snapshot { lookups: 1, content: Arc::clone(&content), made, key });
        (ino, content)
    }

    /// The content of a file, or the target of a link.
    pub(super) fn get(&self, ino: u64) -> Option<Arc<Vec<u8>>> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .files
            .get(&ino)
            .map(|known| Arc::clone(&known.content))
    }

    /// What a number is of.
    pub(super) fn made(&self, ino: u64) -> Option<Made> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).files.get(&ino).map(|known| known.made)
    }

    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = known.files.get_mut(&ino) {
            snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
            if snapshot.lookups == 0
                && let Some(key) = known.files.remove(&ino).and_then(|gone| gone.key)
                && known.keys.get(&key) == Some(&ino)
            {
                known.keys.remove(&key);
            }
        }
    }
}
