//! Long work on a thread of a lower priority: whoever reads a file of the mount gets the processor first.

use std::panic::AssertUnwindSafe;
use std::sync::{OnceLock, mpsc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What is added to the nice value of such a thread.
const ADDED_NICE: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// Where jobs for the thread go. It is one, and always the same: an allocator keeps for each thread what the largest job took.
static JOBS: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();

/// Lowers the priority of the calling thread, and of no other. Where that is refused, it stays as it is.
pub(crate) fn lower() {
    // On Linux, a nice value belongs to a thread.
    let _ = rustix::process::nice(ADDED_NICE);
}

/// Runs `work` on the thread for documents, after what was given to it before.
///
/// # Errors
/// If the thread cannot be started, or `work` panics.
pub(super) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<T> {
    let (sender, result) = oneshot::channel();
    let job = move || {
        // The caller may have gone away.
        let _ = sender.send(work());
    };
    if JOBS.get().is_none() {
        // Of two that were started at the same time, one ends at once.
        let _ = JOBS.set(Mutex::new(start()?));
    }
    if let Some(jobs) = JOBS.get() {
        // The thread lives as long as the process.
        let _ = jobs.lock().send(Box::new(job));
    }
    result.await.map_err(|_| std::io::Error::other("the program panicked while it read a document; see the log"))
}

fn start() -> std::io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel::<Job>();
    std::thread::Builder::new().name("documents".to_owned()).spawn(move || {
        lower();
        for job in jobs {
            // A panic ends one job.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(job));
        }
    })?;
    Ok(sender)
}
