//! How often the kernel asked, by kind: what never leaves the kernel is not counted here.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of requests that readers cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named as FUSE names it")]
pub enum Kind {
    Lookup,
    Getattr,
    Readlink,
    Open,
    Read,
    Release,
    Opendir,
    Readdir,
    Readdirplus,
    Getxattr,
    Listxattr,
    Statfs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Lookup,
        Self::Getattr,
        Self::Readlink,
        Self::Open,
        Self::Read,
        Self::Release,
        Self::Opendir,
        Self::Readdir,
        Self::Readdirplus,
        Self::Getxattr,
        Self::Listxattr,
        Self::Statfs,
    ];

    /// As metrics name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Getattr => "getattr",
            Self::Readlink => "readlink",
            Self::Open => "open",
            Self::Read => "read",
            Self::Release => "release",
            Self::Opendir => "opendir",
            Self::Readdir => "readdir",
            Self::Readdirplus => "readdirplus",
            Self::Getxattr => "getxattr",
            Self::Listxattr => "listxattr",
            Self::Statfs => "statfs",
        }
    }
}

/// Requests since the mount, but for those about `.resourcesync`: whoever watches does not count.
#[derive(Debug, Default)]
pub struct Requests([AtomicU64; Kind::ALL.len()]);

impl Requests {
    pub(super) fn count(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were of each kind.
    pub fn all(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.into_iter().map(|kind| (kind, self.0[kind as usize].load(Ordering::Relaxed)))
    }
}
