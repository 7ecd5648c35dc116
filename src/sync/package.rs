//! One package of a dump, as much of it as is here.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{Notify, Semaphore};

use super::fill::Parts;
use super::lock::locked;
use crate::catalog::MemberRow;
use crate::catalog::UnseenMember;
use crate::source::SourceError;
use crate::store::archive::{Member, Method};

/// The most packages that are downloaded at once.
const MOST_AT_ONCE: usize = 4;

/// The name of the manifest in a package (core 11.2).
pub(super) const MANIFEST: &str = "manifest.xml";

/// No download is under way.
pub(super) const NOWHERE: u64 = u64::MAX;

/// What a server has shown of a package.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) total: Option<u64>,
    pub(super) validator: Option<String>,
    /// Whether the server gives parts of it.
    pub(super) ranges: Option<bool>,
    pub(super) failed: Option<SourceError>,
}

/// One package, as much of it as is here.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) id: i64,
    /// How often its bytes were begun anew.
    pub(super) epoch: i64,
    pub(super) url: String,
    /// In bytes, as the dump lists it.
    pub(super) listed: Option<u64>,
    pub(super) file: Arc<File>,
    pub(super) doubtful: AtomicBool,
    /// Whether its server has no ZIP file, so that nothing of it can be read before it was written as one.
    pub(super) recast: AtomicBool,
    pub(super) parts: Arc<Parts>,
    pub(super) known: Mutex<Known>,
    pub(super) whole: AtomicBool,
    /// Whether a download was begun, or waits for its turn.
    pub(super) busy: AtomicBool,
    /// Where the download is, once it has its turn.
    pub(super) stream: AtomicU64,
    /// Parts that are being fetched aside.
    pub(super) asked: Mutex<Vec<(u64, u64)>>,
    pub(super) touched: Mutex<Option<Instant>>,
    /// How many bytes of it the catalog knows to be here.
    pub(super) counted: AtomicU64,
    /// Whether its file has left the store: what comes now is nobody's.
    pub(super) gone: AtomicBool,
    /// Held by whoever goes through its members.
    pub(super) looking: Arc<tokio::sync::Mutex<()>>,
}

impl Package {
    /// Its length in bytes, once it is known.
    pub(super) fn total(&self) -> Option<u64> {
        locked(&self.known).total
    }

    /// Whether all of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Whether it was written anew here, or will be.
    pub(super) fn is_recast(&self) -> bool {
        self.recast.load(Ordering::Acquire)
    }

    /// Whether the bytes from the one offset up to the other are here, as far as it reaches.
    pub(super) fn has(&self, begin: u64, end: u64) -> bool {
        if self.is_whole() {
            return true;
        }
        if self.is_recast() {
            return false;
        }
        let end = self.total().map_or(end, |total| end.min(total));
        self.parts.ranges().contains(begin, end)
    }

    /// Whether the bytes of a member are here.
    pub(super) fn has_member(&self, member: &Member) -> bool {
        let (begin, end) = member.extent();
        // Only the local header tells how long that is.
        self.has(begin, end)
            && member.data(&self.file).is_ok_and(|data| self.has(begin, data.saturating_add(member.compressed)))
    }

    pub(super) fn downloading(&self) -> Option<u64> {
        Some(self.stream.load(Ordering::Acquire)).filter(|at| *at != NOWHERE)
    }

    /// Its file has left the store.
    pub(super) fn left(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether its file has left the store.
    pub(super) fn has_left(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether a download of it is under way, or waits for its turn.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(super) fn is_asked(&self, begin: u64, end: u64) -> bool {
        locked(&self.asked).iter().any(|(from, to)| *from <= begin && end <= *to)
    }
}

/// Takes a part off the list of those that are fetched, however that ends.
pub(super) struct Asking<'p> {
    package: &'p Package,
    part: (u64, u64),
}

impl<'p> Asking<'p> {
    pub(super) fn begin(package: &'p Package, part: (u64, u64)) -> Self {
        locked(&package.asked).push(part);
        Self { package, part }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asked = locked(&self.package.asked);
        if let Some(at) = asked.iter().position(|part| *part == self.part) {
            asked.swap_remove(at);
        }
        drop(asked);
        self.package.parts.progress();
    }
}

/// The member as the package's own format has it.
pub(super) fn archived(row: &MemberRow) -> Member {
    Member {
        header: row.header,
        compressed: row.compressed,
        size: row.size,
        crc: row.crc,
        name_length: row.name_length,
        method: if row.deflated { Method::Deflated } else { Method::Stored },
    }
}

/// Members of a package that versions were just given.
#[derive(Debug)]
pub(super) struct NewMembers {
    pub(super) package: Arc<Package>,
    pub(super) members: Vec<UnseenMember>,
}

/// Whose turn it is to download packages.
#[derive(Debug)]
pub(super) struct Downloads {
    /// As many as are downloaded at once.
    pub(super) slots: Arc<Semaphore>,
    /// A download has ended.
    pub(super) ended: Notify,
}

impl Downloads {
    /// For as many connections.
    pub(super) fn new(connections: usize) -> Self {
        let at_once = connections.saturating_sub(1).clamp(1, MOST_AT_ONCE);
        Self { slots: Arc::new(Semaphore::new(at_once)), ended: Notify::new() }
    }
}
