//! Telling the kernel what a commit changed, from a thread that no reply depends on.
//!
//! For each directory that changed, its listing is dropped; for each name, its entry, which may be a
//! negative one. Of the trees of moments that are not what they were, all listings that the kernel has are dropped, and
//! names are asked for again. Above [`Changes::MOST_NAMES`] names, one new epoch makes the kernel ask again for all
//! names (2 µs where 100,000 single calls took 70 to 350 ms). A directory that lives on is never
//! invalidated as an entry: that would detach mounts and working directories below it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::{INodeNo, Notifier};
use tokio::sync::mpsc;

use super::inodes::Moments;
use super::related::Collections;
use crate::catalog::{Changes, News};

/// `FUSE_NOTIFY_INC_EPOCH`, which fuser has no call for.
const INC_EPOCH: i32 = 8;

/// Starts the thread. It ends when the sender of `news` is gone. `device` is a duplicate of the
/// session's.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(
    notifier: Notifier,
    device: OwnedFd,
    moments: Arc<Moments>,
    collections: Arc<Collections>,
    mut news: mpsc::UnboundedReceiver<News>,
) -> std::io::Result<()> {
    std::thread::Builder::new().name("invalidate".to_owned()).spawn(move || {
        while let Some(news) = news.blocking_recv() {
            match news {
                News::Changed(changes) => {
                    collections.forget();
                    tell(&notifier, &device, &moments, &changes);
                }
                News::Told(done) => done(),
            }
        }
    })?;
    Ok(())
}

fn tell(notifier: &Notifier, device: &OwnedFd, moments: &Moments, changes: &Changes) {
    let then = changes.since.map(|since| moments.since(since)).unwrap_or_default();
    if (changes.too_many || !then.is_empty())
        && let Err(error) = new_epoch(device)
    {
        // Kernels before 6.16 have no epochs.
        tracing::warn!(%error, "the kernel takes no new epoch; names that it knows may be out of date until the next mount");
    }
    for directory in changes.directories.iter().chain(&then) {
        report(notifier.inval_inode(INodeNo(*directory), 0, 0), *directory, "");
    }
    for (directory, name) in &changes.names {
        report(notifier.inval_entry(INodeNo(*directory), OsStr::new(name)), *directory, name);
    }
}

/// What the kernel does not know needs no invalidation.
fn report(result: std::io::Result<()>, directory: u64, name: &str) {
    if let Err(error) = result
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(%error, directory, name, "not invalidated");
    }
}

fn new_epoch(device: &OwnedFd) -> std::io::Result<()> {
    let mut message = [0_u8; 16];
    message[..4].copy_from_slice(&16_u32.to_ne_bytes());
    message[4..8].copy_from_slice(&INC_EPOCH.to_ne_bytes());
    rustix::io::write(device, &message)?;
    Ok(())
}
