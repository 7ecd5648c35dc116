//! One process for one cache.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::fs::flock;

use crate::catalog::error::CatalogError;

const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The name of the file that is locked, in the cache.
const LOCK: &str = "lock";

/// Held as long as a process works with a cache directory.
#[derive(Debug)]
pub struct CacheLock {
    file: File,
}

impl CacheLock {
    /// Takes the lock, waiting up to `patience` for a process that is about to end. `holder` says who
    /// we are, for whoever finds it taken.
    ///
    /// # Errors
    /// If another process keeps it, or the directory cannot be written.
    pub fn take(cache: &Path, holder: &str, patience: Duration) -> Result<Self, CatalogError> {
        let path = cache.join(LOCK);
        let io = |error| CatalogError::io(&path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Whoever the cache was given to might lead root elsewhere.
            .custom_flags(NOFOLLOW)
            .open(&path)
            .map_err(io)?;
        let deadline = Instant::now() + patience;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(io(error.into()));
            }
            if Instant::now() >= deadline {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    known => known.to_owned(),
                };
                return Err(CatalogError::InUse { path: cache.display().to_string(), holder });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        writeln!(file, "{holder}").map_err(io)?;
        Ok(Self { file })
    }

    /// Whether it is the lock of what lies there now: whoever had it before may have taken the whole cache away.
    #[must_use]
    pub fn is_of(&self, cache: &Path) -> bool {
        let place = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = std::fs::symlink_metadata(cache.join(LOCK)).map(place);
        there.is_ok_and(|there| self.file.metadata().map(place).is_ok_and(|own| own == there))
    }

    /// Takes the whole cache away, and the lock last of what is in it: whoever comes meanwhile waits for it, and finds that it
    /// is gone.
    ///
    /// # Errors
    /// If something of it cannot be removed.
    pub fn remove_cache(&self, cache: &Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(cache)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(entry.path())?,
                false if entry.file_name() == LOCK => {}
                false => std::fs::remove_file(entry.path())?,
            }
        }
        std::fs::remove_file(cache.join(LOCK))?;
        std::fs::remove_dir(cache)
    }
}
