//! How bytes reach readers: from the kernel's page cache, filled by READ, or straight from the file in the store.
//!
//! Without an answer to OPEN (ENOSYS, which holds for the whole mount) opening, reading and closing a small
//! file that the kernel knows never leaves it. Passthrough needs the answer: each open and each close costs a round
//! trip, and each read then is the underlying file system's own. So a mount has the one or the other: what its
//! resources ask for, by their sizes.
//!
//! Measured: to open, read and close a small file that is known takes 5.6 µs through the page cache, and 26 µs where the open is
//! answered. To read 1 GiB that is known takes 114 ms through the page cache, whose pages are 4 KiB each, and 66 ms of the underlying
//! file, as long as without us. So passthrough wins from about 400 KiB on; and only with it are bytes
//! kept in memory once, not in two page caches.
//!
//! Of a mount that is new no size is known when the session begins: then the kernel is told that there may be
//! passthrough, and the choice falls when somebody first asks for it, be it an OPEN or the status.
//!
//! All who have an inode open at once must have it the same way, and through the same file (the kernel refuses the
//! rest). So the way is kept from the first open of an inode to the last close: a file that was not here when
//! it was opened is read through the page cache until nobody has it open.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fuser::{BackingId, FileHandle, FopenFlags, INodeNo, ReplyOpen};

use crate::catalog::Pool;
use crate::store::Body;

/// What `io=` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// What suits the Source's sizes.
    #[default]
    Auto,
    /// The page cache.
    Kernel,
    /// The underlying file, where a resource is one.
    Passthrough,
}

/// How bytes reach the readers of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the page cache.
    Kernel,
    /// From the underlying file, where a resource is one.
    Passthrough,
}

impl Way {
    /// As `io=` and the status name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Passthrough => "passthrough",
        }
    }
}

/// Half of the resources being as large as this, in bytes, speak for passthrough.
const LARGE: u64 = 1 << 20;
/// How often sizes are looked for, as long as none is known.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How bytes reach readers.
    pub way: Way,
    /// For people.
    pub why: String,
}

impl Choice {
    fn new(way: Way, why: impl Into<String>) -> Self {
        Self { way, why: why.into() }
    }

    /// What suits resources of which half are as large as `median`, in bytes.
    fn by_size(median: u64) -> Self {
        let large = LARGE >> 20;
        match median >= LARGE {
            true => Self::new(Way::Passthrough, format!("half of the resources are of {large} MiB or more")),
            false => Self::new(Way::Kernel, format!("half of the resources are smaller than {large} MiB")),
        }
    }
}

/// The way of a mount.
#[derive(Debug)]
pub struct Io {
    asked: Asked,
    /// Why the kernel cannot do it.
    unable: OnceLock<String>,
    chosen: OnceLock<Choice>,
    /// Why a file could not be passed through.
    trouble: OnceLock<String>,
    /// When sizes were looked for last.
    looked: Mutex<Option<Instant>>,
}

impl Io {
    /// As `io=` asks.
    #[must_use]
    pub fn new(asked: Asked) -> Self {
        Self {
            asked,
            unable: OnceLock::new(),
            chosen: OnceLock::new(),
            trouble: OnceLock::new(),
            looked: Mutex::new(None),
        }
    }

    /// Whether the kernel is to be told of passthrough. Where it is, this mount counts as stacked on another file system: one overlay may
    /// still be mounted over it, and no second one over that.
    pub(super) fn may_pass_through(&self, readers: &Pool) -> bool {
        self.choice(readers).is_none_or(|choice| choice.way == Way::Passthrough)
    }

    /// There can be no passthrough.
    pub fn rule_out(&self, why: impl Into<String>) {
        let _ = self.unable.set(why.into());
    }

    /// The kernel did not take a file for passthrough. Unless it was short of something, it will take no other.
    fn refused(&self, error: &std::io::Error) {
        use rustix::io::Errno;
        let short = [Errno::NOMEM, Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        let passes = error.raw_os_error().is_some_and(|number| short.contains(&number));
        if !passes && self.trouble.set(error.to_string()).is_ok() {
            tracing::warn!(%error, "no passthrough to the files of this cache; they are read through the page cache");
        }
    }

    /// Of a Source that lists no sizes, none may be known for long, and each open would look for one.
    fn median(&self, readers: &Pool) -> Option<u64> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_some_and(|last| last.elapsed() < LOOK_EVERY) {
            return None;
        }
        *looked = Some(Instant::now());
        drop(looked);
        readers.ask(|reader| reader.median_size()).ok().flatten()
    }

    /// What is chosen; none as long as no size is known.
    pub fn choice(&self, readers: &Pool) -> Option<Choice> {
        if let Some(choice) = self.chosen.get() {
            return Some(match self.trouble.get() {
                Some(trouble) if choice.way == Way::Passthrough => {
                    let why =
                        format!("{}, but the files of this cache cannot be passed through: {trouble}", choice.why);
                    Choice::new(Way::Kernel, why)
                }
                _ => choice.clone(),
            });
        }
        let choice = match (self.asked, self.unable.get()) {
            (Asked::Kernel, _) => Choice::new(Way::Kernel, "asked for"),
            (_, Some(why)) => Choice::new(Way::Kernel, why),
            (Asked::Passthrough, None) => Choice::new(Way::Passthrough, "asked for"),
            (Asked::Auto, None) => Choice::by_size(self.median(readers)?),
        };
        Some(self.chosen.get_or_init(|| choice).clone())
    }
}

/// The handle of an open that is kept count of.
pub(super) const KEPT: FileHandle = FileHandle(1);

/// How an inode is open.
enum Open {
    Cached,
    Through(Arc<BackingId>),
}

/// The inodes that are open, where opens are answered. The lock is held over no more than telling the kernel of a
/// file that is open already.
#[derive(Default)]
pub(super) struct Opened(Mutex<HashMap<u64, (Open, u64)>>);

impl Opened {
    /// Answers the open of an inode with that content, if it is here.
    pub(super) fn open(&self, ino: INodeNo, content: Option<Body>, io: &Io, reply: ReplyOpen) {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (open, count) = opened.entry(ino.0).or_insert_with(|| {
            let open = match content.as_ref().and_then(own_file).map(|file| reply.open_backing(file)) {
                Some(Ok(backing)) => Open::Through(Arc::new(backing)),
                Some(Err(error)) => {
                    io.refused(&error);
                    Open::Cached
                }
                None => Open::Cached,
            };
            (open, 0)
        });
        *count += 1;
        match open {
            Open::Cached => {
                drop(opened);
                reply.opened(KEPT, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            Open::Through(backing) => {
                let backing = Arc::clone(backing);
                drop(opened);
                reply.opened_passthrough(KEPT, FopenFlags::FOPEN_NOFLUSH, &backing);
            }
        }
    }

    /// One of those who had it open is done with it.
    pub(super) fn close(&self, ino: INodeNo) {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = opened.get_mut(&ino.0) {
            *count -= 1;
            if *count == 0 {
                opened.remove(&ino.0);
            }
        }
    }
}

/// The file that is nothing but this content.
fn own_file(content: &Body) -> Option<&File> {
    match content {
        Body::File(file, 0, size) if file.metadata().is_ok_and(|metadata| metadata.len() == *size) => Some(file),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_choose() {
        for (median, way) in
            [(0, Way::Kernel), (LARGE - 1, Way::Kernel), (LARGE, Way::Passthrough), (u64::MAX, Way::Passthrough)]
        {
            assert_eq!(Choice::by_size(median).way, way, "{median}");
        }
    }

    #[test]
    fn what_is_asked_for_holds_unless_the_kernel_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let mapper = Arc::new(crate::path::Mapper::new("http://example.com/", false).unwrap());
        let readers = crate::catalog::Writer::open(folder.path(), mapper).unwrap().readers();
        let way = |io: &Io| io.choice(&readers).map(|choice| choice.way);
        assert_eq!(way(&Io::new(Asked::Kernel)), Some(Way::Kernel));
        assert_eq!(way(&Io::new(Asked::Passthrough)), Some(Way::Passthrough));
        assert_eq!(way(&Io::new(Asked::Auto)), None, "no size is known");
        let unable = Io::new(Asked::Passthrough);
        unable.rule_out("the kernel is too old");
        assert_eq!(unable.choice(&readers), Some(Choice::new(Way::Kernel, "the kernel is too old")));
    }

    #[test]
    fn only_a_file_of_its_own_is_passed_through() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(10).unwrap();
        assert!(own_file(&Body::File(Arc::clone(&file), 0, 10)).is_some());
        assert!(own_file(&Body::File(Arc::clone(&file), 0, 9)).is_none());
        assert!(own_file(&Body::File(file, 1, 9)).is_none());
        assert!(own_file(&Body::Memory(Arc::new([]))).is_none());
    }
}
