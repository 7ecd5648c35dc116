//! A large step goes to the disk while it is written, not all of it when it is committed.
//!
//! A commit waits until the write-ahead log has reached the disk. Of 3.77 million resources that are 600 MB, and took
//! 1.1 s in which nothing else was done. What the log holds before the commit means nothing until then, so it
//! may be written at any time.

use std::path::Path;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// How often the log is looked at, and by how many bytes it must have grown.
const EVERY: Duration = Duration::from_millis(100);

const GROWTH: u64 = 32 << 20;

/// Runs a step that grows the log at `log`.
pub(in crate::catalog) fn during<T>(log: &Path, step: impl FnOnce() -> T) -> T {
    let (running, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Without the thread, the commit does all of it.
        let _ = std::thread::Builder::new().name("write-back".to_owned()).spawn_scoped(scope, move || {
            let mut written = 0;
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                written = follow(log, written).unwrap_or(written);
            }
        });
        let done = step();
        drop(running);
        done
    })
}

/// Writes what came since; returns up to where.
fn follow(log: &Path, written: u64) -> std::io::Result<u64> {
    let size = log.metadata()?.len();
    if size < written.saturating_add(GROWTH) {
        return Ok(written);
    }
    // Not one of the files whose locks SQLite holds: to close it loses none.
    rustix::fs::fdatasync(std::fs::File::open(log)?)?;
    Ok(size)
}
