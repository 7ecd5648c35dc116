//! Files of the store that stay open for the next read.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::bounds::{self, Bounds};
use crate::catalog::{PackageId, Stored, VersionId};
use crate::store::Body;
use crate::sync::transfer::package::Package;

/// The most bytes of inflated content that stay in memory.
const MOST_BYTES: u64 = 8 << 20;

/// A file from which a version, or the part of it that was asked for, can be read.
#[derive(Clone, Debug)]
pub struct Ready {
    /// To be read at offsets.
    pub body: Body,
    /// Bytes of the whole.
    pub size: u64,
    /// Whether a hash or a length of the Source agreed with the whole.
    pub verified: bool,
}

#[derive(Debug)]
struct Inner {
    /// By version: where it is in the store, and what can be read there.
    files: LruCache<VersionId, (Stored, Ready)>,
    /// The same, of content in memory.
    inflated: LruCache<VersionId, (Stored, Ready)>,
    inflated_bytes: u64,
    packages: HashMap<PackageId, Arc<Package>>,
}

/// Open files by version. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::sync) struct OpenFiles(Arc<Mutex<Inner>>);

impl OpenFiles {
    /// As many as allowed, and as the process may keep open besides all else that it opens.
    pub(in crate::sync) fn new(bounds: &Bounds) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = bounds::count((limit / 4).max(16).min(bounds.files));
        Self(Arc::new(Mutex::new(Inner {
            files: LruCache::new(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN)),
            inflated: LruCache::unbounded(),
            inflated_bytes: 0,
            packages: HashMap::new(),
        })))
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.0.lock())
    }

    pub(in crate::sync) fn get(&self, version: VersionId) -> Option<Ready> {
        self.with(|inner| {
            let found = inner.files.get(&version).or_else(|| inner.inflated.get(&version));
            found.map(|(_, ready)| ready.clone())
        })
    }

    /// Keeps what was opened.
    pub(in crate::sync) fn put(&self, version: VersionId, place: Stored, ready: Ready) {
        self.with(|inner| drop(inner.files.put(version, (place, ready))));
    }

    /// Keeps what was inflated into memory, and lets go what was not read for longest.
    pub(in crate::sync) fn put_inflated(&self, version: VersionId, place: Stored, ready: Ready) {
        self.with(|inner| {
            inner.inflated_bytes += ready.size;
            if let Some((_, (_, before))) = inner.inflated.push(version, (place, ready)) {
                inner.inflated_bytes -= before.size.min(inner.inflated_bytes);
            }
            while inner.inflated_bytes > MOST_BYTES
                && let Some((_, (_, gone))) = inner.inflated.pop_lru()
            {
                inner.inflated_bytes -= gone.size.min(inner.inflated_bytes);
            }
        });
    }

    /// What was opened of a version is not its content after all.
    pub(in crate::sync) fn forget(&self, version: VersionId) {
        self.with(|inner| {
            inner.files.pop(&version);
            if let Some((_, gone)) = inner.inflated.pop(&version) {
                inner.inflated_bytes -= gone.size.min(inner.inflated_bytes);
            }
        });
    }

    /// An open package.
    pub(in crate::sync) fn package(&self, id: PackageId) -> Option<Arc<Package>> {
        self.with(|inner| inner.packages.get(&id).map(Arc::clone))
    }

    /// Keeps a package open, unless it is open already; returns the one that is.
    pub(in crate::sync) fn put_package(&self, id: PackageId, package: Arc<Package>) -> Arc<Package> {
        self.with(|inner| Arc::clone(inner.packages.entry(id).or_insert(package)))
    }

    /// All open packages.
    pub(in crate::sync) fn packages(&self) -> Vec<Arc<Package>> {
        self.with(|inner| inner.packages.values().map(Arc::clone).collect())
    }

    /// Whether it is being written.
    pub(in crate::sync) fn is_busy(&self, place: Stored) -> bool {
        match place {
            Stored::Object(_) => false,
            Stored::Package(id) => self.package(id).is_some_and(|package| package.is_busy()),
        }
    }

    /// Closes what has left the store: an open file keeps its room on the disk.
    pub(in crate::sync) fn close(&self, gone: &[Stored]) {
        let gone: HashSet<&Stored> = gone.iter().collect();
        self.with(|inner| {
            let versions: Vec<VersionId> = inner
                .files
                .iter()
                .filter(|(_, (place, _))| gone.contains(place))
                .map(|(version, _)| *version)
                .collect();
            versions.iter().for_each(|version| drop(inner.files.pop(version)));
            inner.packages.retain(|id, package| {
                let stays = !gone.contains(&Stored::Package(*id));
                if !stays {
                    package.left();
                }
                stays
            });
        });
    }
}
