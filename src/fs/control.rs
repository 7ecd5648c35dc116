//! `.resourcesync`: files that are made when they are looked up; and symbolic links, which are made so, too.
//!
//! A file that changes by nature gets a new inode at each LOOKUP, with what it is at that moment, so
//! that the rule "an inode never changes" has no exception.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::attributes::Attributes;
use super::error::FsError;
use crate::document::Datetime;

/// The name of the directory at the root.
pub(super) const DIRECTORY: &str = ".resourcesync";
/// Its files.
pub(super) const FILES: [&str; 2] = ["status.json", "metrics"];
/// Its inode number, above all that the catalog gives out.
pub(super) const DIRECTORY_INO: u64 = 1 << 62;

/// The attributes of that directory.
pub(super) fn directory() -> Attributes {
    Attributes::directory(DIRECTORY_INO, Datetime::EPOCH)
}

/// The files that the kernel knows of.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    next: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    files: HashMap<u64, Snapshot>,
    /// The numbers of the files that change by nature whose content is kept, oldest first.
    kept: BTreeSet<u64>,
    /// Bytes of these.
    bytes: u64,
    /// The numbers of those that stay what they are as long as somebody knows them.
    keys: HashMap<String, u64>,
}

#[derive(Debug)]
struct Snapshot {
    lookups: u64,
    /// None if there was no room for it any longer.
    content: Option<Arc<Vec<u8>>>,
    /// In bytes.
    size: u64,
    made: Made,
    key: Option<String>,
}

/// What was made, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// A file that is as old as the look at it.
    Now,
    /// A file of this time.
    File(Datetime),
    /// A symbolic link of this time.
    Link(Datetime),
}

impl Made {
    /// The attributes of what was made, with its size in bytes.
    fn attributes(self, ino: u64, size: u64) -> Attributes {
        match self {
            Self::Link(mtime) => Attributes::symlink(ino, mtime, size),
            Self::File(mtime) => Attributes::file(ino, mtime, size),
            Self::Now => Attributes::file(ino, Datetime::now(), size),
        }
    }
}

impl Known {
    fn drop_content(&mut self, ino: u64) {
        if self.kept.remove(&ino)
            && let Some(snapshot) = self.files.get_mut(&ino)
        {
            snapshot.content = None;
            self.bytes -= snapshot.size;
        }
    }
}

impl Snapshots {
    /// Whether an inode number is one of these files or their directory.
    pub(super) fn is_ours(ino: u64) -> bool {
        ino >= DIRECTORY_INO
    }

    /// Keeps a file that changes by nature, as it is now, for as many as look it up at once. All such files take no more than
    /// `most` bytes: beyond that, the oldest can be read no longer.
    pub(super) fn add_current(&self, content: Vec<u8>, lookups: u64, most: u64) -> Attributes {
        let attributes = self.keep(content, Made::Now, None);
        let Attributes { ino, size, .. } = attributes;
        let mut known = self.known.lock();
        if let Some(snapshot) = known.files.get_mut(&ino) {
            snapshot.lookups = lookups;
        }
        known.kept.insert(ino);
        known.bytes += size;
        while known.bytes > most
            && let Some(oldest) = known.kept.first().copied().filter(|oldest| *oldest != ino)
        {
            known.drop_content(oldest);
        }
        attributes
    }

    /// Keeps the target of a symbolic link of this time in the same way.
    pub(super) fn add_link(&self, target: Vec<u8>, mtime: Datetime) -> Attributes {
        self.keep(target, Made::Link(mtime), None)
    }

    /// Keeps what says the same under the same number for as long as the kernel knows it: programs that copy a file look
    /// whether it is still the one that they saw.
    pub(super) fn add_same(&self, place: &str, content: Vec<u8>, made: Made) -> Attributes {
        let key = format!("{place}\n{made:?}\n{}", String::from_utf8_lossy(&content));
        let mut known = self.known.lock();
        if let Some(ino) = known.keys.get(&key).copied()
            && let Some(snapshot) = known.files.get_mut(&ino)
        {
            snapshot.lookups += 1;
            return snapshot.made.attributes(ino, snapshot.size);
        }
        drop(known);
        self.keep(content, made, Some(key))
    }

    fn keep(&self, content: Vec<u8>, made: Made, key: Option<String>) -> Attributes {
        let ino = DIRECTORY_INO + 1 + self.next.fetch_add(1, Ordering::Relaxed);
        let mut known = self.known.lock();
        known.keys.extend(key.clone().map(|key| (key, ino)));
        let size = content.len() as u64;
        known.files.insert(ino, Snapshot { lookups: 1, content: Some(Arc::new(content)), size, made, key });
        made.attributes(ino, size)
    }

    /// The content of a file, or the target of a link.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if the kernel knows no such file; [`FsError::Stale`] if it was opened so long ago that it is not
    /// kept any more.
    pub(super) fn get(&self, ino: u64) -> Result<Arc<Vec<u8>>, FsError> {
        let known = self.known.lock();
        known.files.get(&ino).ok_or(FsError::NotFound)?.content.clone().ok_or(FsError::Stale)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::NotALink`] if this is none.
    pub(super) fn target(&self, ino: u64) -> Result<Arc<Vec<u8>>, FsError> {
        let known = self.known.lock();
        let link = known.files.get(&ino).filter(|known| matches!(known.made, Made::Link(_)));
        link.and_then(|link| link.content.clone()).ok_or(FsError::NotALink)
    }

    /// The attributes of a file or of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if the kernel knows none of this number.
    pub(super) fn attributes(&self, ino: u64) -> Result<Attributes, FsError> {
        let known = self.known.lock();
        let Snapshot { size, made, .. } = known.files.get(&ino).ok_or(FsError::NotFound)?;
        Ok(made.attributes(ino, *size))
    }

    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        let mut known = self.known.lock();
        if let Some(snapshot) = known.files.get_mut(&ino) {
            snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
            let is_known = snapshot.lookups > 0;
            if !is_known {
                known.drop_content(ino);
            }
            if !is_known
                && let Some(key) = known.files.remove(&ino).and_then(|gone| gone.key)
                && known.keys.get(&key) == Some(&ino)
            {
                known.keys.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_all_is_forgotten_with_the_kernel() {
        let snapshots = Snapshots::default();
        let add = |size| snapshots.add_current(vec![b'x'; size], 2, 250).ino;
        let (first, second, third) = (add(100), add(100), add(100));
        assert!(matches!(snapshots.get(first), Err(FsError::Stale)));
        assert_eq!(snapshots.attributes(first).unwrap().size, 100);
        assert_eq!((snapshots.get(second).unwrap().len(), snapshots.get(third).unwrap().len()), (100, 100));
        let large = add(1000);
        assert_eq!(snapshots.get(large).unwrap().len(), 1000, "the newest can always be read");
        for ino in [first, second, third, large] {
            snapshots.forget(ino, 1);
            assert!(snapshots.attributes(ino).is_ok());
            snapshots.forget(ino, 1);
            assert!(snapshots.attributes(ino).is_err());
        }
        assert_eq!(snapshots.known.lock().bytes, 0);
    }
}
