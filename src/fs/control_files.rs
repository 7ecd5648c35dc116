//! Lookups of files of `.resourcesync`, which one thread answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Contents;
use super::answer::{Answer, Then};
use super::attributes::Entry;
use super::control::{FILES, Snapshots};
use super::error::FsError;

/// The files are made during a fifth of the time at most, however often they are looked up.
const PAUSES: u32 = 4;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

type Reply = Then<Result<Entry, FsError>>;

/// The lookups that wait.
#[derive(Default)]
struct Waiting {
    /// By file.
    replies: [Vec<Reply>; FILES.len()],
    /// Whether a thread answers them.
    is_served: bool,
}

/// The files of `.resourcesync`.
pub(super) struct ControlFiles {
    contents: Arc<dyn Contents>,
    snapshots: Arc<Snapshots>,
    waiting: Arc<Mutex<Waiting>>,
}

impl ControlFiles {
    pub(super) fn new(contents: Arc<dyn Contents>, snapshots: Arc<Snapshots>) -> Self {
        Self { contents, snapshots, waiting: Arc::default() }
    }

    pub(super) fn lookup(&self, name: &str) -> Answer<Entry> {
        let Some(at) = FILES.iter().position(|file| *file == name) else { return Err(FsError::NotFound).into() };
        let (contents, snapshots) = (Arc::clone(&self.contents), Arc::clone(&self.snapshots));
        let waiting = Arc::clone(&self.waiting);
        Answer::later(move |then| {
            let is_served = {
                let mut waiting = waiting.lock();
                waiting.replies[at].push(then);
                std::mem::replace(&mut waiting.is_served, true)
            };
            if !is_served {
                let server = Server { contents: Arc::clone(&contents), snapshots, waiting, is_done: false };
                // Outside of the lock: if there is no room for it, it is dropped at once.
                contents.aside(Box::new(move || server.serve()));
            }
        })
    }
}

/// The thread that answers them. If it ends before it is done, or never begins, the replies that wait are dropped, and the next
/// lookup starts another one.
struct Server {
    contents: Arc<dyn Contents>,
    snapshots: Arc<Snapshots>,
    waiting: Arc<Mutex<Waiting>>,
    is_done: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_done {
            // Dropped after the lock is released: dropping a reply answers it.
            let left = std::mem::take(&mut *self.waiting.lock());
            drop(left);
        }
    }
}

impl Server {
    /// Makes the files that lookups wait for, until none do: each once for all that began to wait before it was made.
    fn serve(mut self) {
        loop {
            let replies = {
                let mut waiting = self.waiting.lock();
                waiting.is_served = waiting.replies.iter().any(|replies| !replies.is_empty());
                if !waiting.is_served {
                    self.is_done = true;
                    return;
                }
                std::mem::take(&mut waiting.replies)
            };
            let began = Instant::now();
            for (name, replies) in FILES.iter().zip(replies).filter(|(_, replies)| !replies.is_empty()) {
                let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.contents.control(name)));
                let Some(content) = made.ok().flatten() else {
                    replies.into_iter().for_each(|reply| reply(Err(FsError::NotFound)));
                    continue;
                };
                let attributes =
                    self.snapshots.add_current(content, replies.len() as u64, self.contents.most_snapshots());
                for reply in replies {
                    reply(Ok(Entry::with_uncached_name(attributes)));
                }
            }
            std::thread::sleep((began.elapsed() * PAUSES).min(LONGEST_PAUSE));
        }
    }
}
