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
//!
//! The kernel lets only a process with CAP_SYS_ADMIN register a file for passthrough. The daemon has no capability, so
//! another process registers its files ([`Backing`]) and returns their numbers, with which the daemon answers OPEN. fuser
//! has no call for such an answer; it is written here, as the kernel's interface defines it. Registrations are kept until
//! the mount ends, one for each file of the cache and no more than a bound, because fuser has no call that ends one, either.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fuser::{FileHandle, FopenFlags, INodeNo, ReplyOpen, RequestId};
use parking_lot::Mutex;

use super::error::FsError;
use super::reply::errno;
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

/// Who registers files for passthrough (`FUSE_DEV_IOC_BACKING_OPEN`).
pub trait Backing: Send + Sync + std::fmt::Debug {
    /// Registers a file of the cache, and returns its number.
    ///
    /// # Errors
    /// As the kernel reports it.
    fn register(&self, file: &File) -> std::io::Result<u32>;
}

/// The way of a mount.
#[derive(Debug)]
pub struct Io {
    asked: Asked,
    backing: Option<Arc<dyn Backing>>,
    /// The most files that are registered.
    most: usize,
    /// A duplicate of the session's device.
    device: OnceLock<OwnedFd>,
    /// Why the kernel cannot do it.
    unable: OnceLock<String>,
    chosen: OnceLock<Choice>,
    /// Why a file could not be passed through.
    trouble: OnceLock<String>,
    /// When sizes were looked for last.
    looked: Mutex<Option<Instant>>,
}

impl Io {
    /// As `io=` asks. Without `backing`, there is no passthrough.
    #[must_use]
    pub fn new(asked: Asked, backing: Option<Arc<dyn Backing>>, most: usize) -> Self {
        let unable = OnceLock::new();
        if backing.is_none() {
            let _ = unable.set("passthrough is for root".to_owned());
        }
        Self {
            asked,
            backing,
            most,
            device: OnceLock::new(),
            unable,
            chosen: OnceLock::new(),
            trouble: OnceLock::new(),
            looked: Mutex::new(None),
        }
    }

    /// Whether the kernel is to be told of passthrough. Where it is, this mount counts as stacked on another file system: one overlay may
    /// still be mounted over it, and no second one over that.
    #[must_use]
    pub fn may_pass_through(&self, readers: &Pool) -> bool {
        self.choice(readers).is_none_or(|choice| choice.way == Way::Passthrough)
    }

    /// Answers are written to this duplicate of the session's device.
    pub fn set_device(&self, device: OwnedFd) {
        let _ = self.device.set(device);
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
        let mut looked = self.looked.lock();
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
#[derive(Clone, Copy)]
enum Open {
    Cached,
    /// Through the file that is registered under this number.
    Through(u32),
}

/// The inodes that are open, where opens are answered; and the files that are registered, by device and inode. Neither lock
/// is held while a file is registered or a request answered.
#[derive(Default)]
pub(super) struct Opened {
    inodes: Mutex<HashMap<u64, (Open, u64)>>,
    files: Mutex<HashMap<(u64, u64), u32>>,
}

impl Opened {
    /// Answers the open of an inode with that content, if it is here.
    pub(super) fn open(&self, ino: INodeNo, content: Option<Body>, io: &Io, (request, reply): (RequestId, ReplyOpen)) {
        let open = match self.join(ino, None) {
            Some(open) => open,
            None => {
                let file = content.as_ref().and_then(own_file);
                let number = file.and_then(|file| self.number_of(file, io));
                self.join(ino, Some(number.map_or(Open::Cached, Open::Through))).unwrap_or(Open::Cached)
            }
        };
        match (open, io.device.get()) {
            (Open::Through(number), Some(device)) => {
                if !answer_through(device, request, number, reply) {
                    self.close(ino);
                }
            }
            _ => reply.opened(KEPT, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
        }
    }

    /// How an inode is open, which is once more now; if it is not open yet, as `first` says.
    fn join(&self, ino: INodeNo, first: Option<Open>) -> Option<Open> {
        let mut inodes = self.inodes.lock();
        let (open, count) = match first {
            Some(first) => inodes.entry(ino.0).or_insert((first, 0)),
            None => inodes.get_mut(&ino.0)?,
        };
        *count += 1;
        Some(*open)
    }

    /// The number under which a file is registered; none if it cannot be.
    fn number_of(&self, file: &File, io: &Io) -> Option<u32> {
        let metadata = file.metadata().ok()?;
        let key = (metadata.dev(), metadata.ino());
        let files = self.files.lock();
        if let Some(known) = files.get(&key) {
            return Some(*known);
        }
        if files.len() >= io.most {
            return None;
        }
        drop(files);
        match io.backing.as_ref()?.register(file) {
            Ok(number) => {
                self.files.lock().insert(key, number);
                Some(number)
            }
            Err(error) => {
                io.refused(&error);
                None
            }
        }
    }

    /// One of those who had it open is done with it.
    pub(super) fn close(&self, ino: INodeNo) {
        let mut inodes = self.inodes.lock();
        if let Some((_, count)) = inodes.get_mut(&ino.0) {
            *count -= 1;
            if *count == 0 {
                inodes.remove(&ino.0);
            }
        }
    }
}

/// Answers OPEN: reads go to the file that is registered under this number (`fuse_out_header` and `fuse_open_out` of
/// linux/fuse.h).
/// Returns false if that failed.
fn answer_through(device: &OwnedFd, request: RequestId, number: u32, reply: ReplyOpen) -> bool {
    let flags = (FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_PASSTHROUGH).bits();
    let mut answer = [0_u8; 32];
    answer[..4].copy_from_slice(&32_u32.to_ne_bytes());
    answer[8..16].copy_from_slice(&request.0.to_ne_bytes());
    answer[16..24].copy_from_slice(&KEPT.0.to_ne_bytes());
    answer[24..28].copy_from_slice(&flags.to_ne_bytes());
    answer[28..].copy_from_slice(&number.to_ne_bytes());
    match rustix::io::write(device, &answer) {
        // The request is answered: dropped, it would be answered once more, with an error.
        Ok(_) => {
            std::mem::forget(reply);
            true
        }
        Err(error) => {
            reply.error(errno(&FsError::Reply(error.into())));
            false
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

    #[derive(Debug)]
    struct Nothing;

    impl Backing for Nothing {
        fn register(&self, _: &File) -> std::io::Result<u32> {
            Ok(7)
        }
    }

    #[test]
    fn a_file_is_registered_once_and_no_more_files_than_the_bound_allows() {
        let io = Io::new(Asked::Passthrough, Some(Arc::new(Nothing)), 1);
        let (opened, one, other) = (Opened::default(), tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        assert_eq!([opened.number_of(&one, &io), opened.number_of(&other, &io)], [Some(7), None]);
        assert_eq!(opened.number_of(&one, &io), Some(7));
    }

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
        assert_eq!(way(&Io::new(Asked::Kernel, Some(Arc::new(Nothing)), 1)), Some(Way::Kernel));
        assert_eq!(way(&Io::new(Asked::Passthrough, Some(Arc::new(Nothing)), 1)), Some(Way::Passthrough));
        assert_eq!(way(&Io::new(Asked::Auto, Some(Arc::new(Nothing)), 1)), None, "no size is known");
        let unable = Io::new(Asked::Passthrough, Some(Arc::new(Nothing)), 1);
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
