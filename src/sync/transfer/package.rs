//! One package of a dump, as much of it as is here.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::sparse::Parts;
use crate::catalog::{MemberRow, PackageId, UnseenMember};
use crate::source::SourceError;
use crate::store::archive::{Member, Method};

/// The most packages that are downloaded at once.
const MOST_AT_ONCE: usize = 4;

/// The name of the manifest in a package (core 11.2).
pub(in crate::sync) const MANIFEST: &str = "manifest.xml";

/// No download is under way.
pub(in crate::sync) const NOWHERE: u64 = u64::MAX;

/// What a server has shown of a package.
#[derive(Clone, Debug, Default)]
pub(in crate::sync) struct Known {
    pub(in crate::sync) total: Option<u64>,
    pub(in crate::sync) validator: Option<String>,
    /// Whether the server gives parts of it.
    pub(in crate::sync) ranges: Option<bool>,
    pub(in crate::sync) failed: Option<SourceError>,
}

/// One package, as much of it as is here.
#[derive(Debug)]
pub(in crate::sync) struct Package {
    pub(in crate::sync) id: PackageId,
    /// How often its bytes were begun anew.
    pub(in crate::sync) epoch: i64,
    pub(in crate::sync) url: String,
    /// In bytes, as the dump lists it.
    pub(in crate::sync) listed: Option<u64>,
    pub(in crate::sync) file: Arc<File>,
    pub(in crate::sync) doubtful: AtomicBool,
    /// Whether its server has no ZIP file, so that nothing of it can be read before it was written as one.
    pub(in crate::sync) recast: AtomicBool,
    pub(in crate::sync) parts: Arc<Parts>,
    pub(in crate::sync) known: Mutex<Known>,
    pub(in crate::sync) whole: AtomicBool,
    /// Whether a download was begun, or waits for its turn.
    pub(in crate::sync) busy: AtomicBool,
    /// Where the download is, once it has its turn.
    pub(in crate::sync) stream: AtomicU64,
    /// Parts that are being fetched aside.
    pub(in crate::sync) asked: Mutex<Vec<(u64, u64)>>,
    pub(in crate::sync) touched: Mutex<Option<Instant>>,
    /// How many bytes of it the catalog knows to be here.
    pub(in crate::sync) counted: AtomicU64,
    /// Whether its file has left the store: what comes now is nobody's.
    pub(in crate::sync) gone: AtomicBool,
    /// Held by whoever goes through its members.
    pub(in crate::sync) looking: Arc<tokio::sync::Mutex<()>>,
}

impl Package {
    /// Its length in bytes, once it is known.
    pub(in crate::sync) fn total(&self) -> Option<u64> {
        self.known.lock().total
    }

    /// Whether all of it is here.
    pub(in crate::sync) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// Whether it was written anew here, or will be.
    pub(in crate::sync) fn is_recast(&self) -> bool {
        self.recast.load(Ordering::Acquire)
    }

    /// Whether the bytes from the one offset up to the other are here, as far as it reaches.
    pub(in crate::sync) fn has(&self, begin: u64, end: u64) -> bool {
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
    pub(in crate::sync) fn has_member(&self, member: &Member) -> bool {
        let (begin, end) = member.extent();
        // Only the local header tells how long that is.
        self.has(begin, end)
            && member.data(&self.file).is_ok_and(|data| self.has(begin, data.saturating_add(member.compressed)))
    }

    pub(in crate::sync) fn downloading(&self) -> Option<u64> {
        Some(self.stream.load(Ordering::Acquire)).filter(|at| *at != NOWHERE)
    }

    /// Its file has left the store.
    pub(in crate::sync) fn left(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether its file has left the store.
    pub(in crate::sync) fn has_left(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether a download of it is under way, or waits for its turn.
    pub(in crate::sync) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(in crate::sync) fn is_asked(&self, begin: u64, end: u64) -> bool {
        self.asked.lock().iter().any(|(from, to)| *from <= begin && end <= *to)
    }
}

/// Takes a part off the list of those that are fetched, however that ends.
pub(in crate::sync) struct Asking<'p> {
    package: &'p Package,
    part: (u64, u64),
}

impl<'p> Asking<'p> {
    pub(in crate::sync) fn begin(package: &'p Package, part: (u64, u64)) -> Self {
        package.asked.lock().push(part);
        Self { package, part }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asked = self.package.asked.lock();
        if let Some(at) = asked.iter().position(|part| *part == self.part) {
            asked.swap_remove(at);
        }
        drop(asked);
        self.package.parts.progress();
    }
}

/// The member as the package's own format has it.
pub(in crate::sync) fn archived(row: &MemberRow) -> Member {
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
pub(in crate::sync) struct NewMembers {
    pub(in crate::sync) package: Arc<Package>,
    pub(in crate::sync) members: Vec<UnseenMember>,
}

/// Whose turn it is to download packages.
#[derive(Debug)]
pub(in crate::sync) struct Downloads {
    /// As many as are downloaded at once.
    pub(in crate::sync) slots: Arc<Semaphore>,
    /// A download has ended.
    pub(in crate::sync) ended: Notify,
}

impl Downloads {
    /// For as many connections.
    pub(in crate::sync) fn new(connections: usize) -> Self {
        let at_once = connections.saturating_sub(1).clamp(1, MOST_AT_ONCE);
        Self { slots: Arc::new(Semaphore::new(at_once)), ended: Notify::new() }
    }
}
