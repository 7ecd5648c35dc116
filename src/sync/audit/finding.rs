//! What an audit found.

use crate::catalog::Difference;

/// The most findings of one kind that are told one by one.
const MOST_TOLD: usize = 10_000;

/// What is audited beside the lists, and what becomes of what is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditScope {
    /// Whether what is in the store is held to its hashes, and rows to each other.
    pub content: bool,
    /// Whether content that is corrupt is let go.
    pub repair: bool,
}

/// Something that is not as it should be.
#[derive(Clone, Debug)]
pub struct Finding {
    /// In the mount.
    pub path: String,
    /// Of what is listed.
    pub uri: Option<String>,
    /// What is not as listed.
    pub differences: Vec<Difference>,
    /// Why content is not what it should be.
    pub problem: Option<String>,
}

/// Findings of one kind: the first of them, and how many there are.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// At most ten thousand.
    pub first: Vec<Finding>,
    /// All of them.
    pub count: u64,
}

impl Findings {
    pub(in crate::sync) fn add(&mut self, finding: Finding) {
        self.count += 1;
        if self.first.len() < MOST_TOLD {
            self.first.push(finding);
        }
    }
}

/// What an audit came to.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Resources that the lists name.
    pub listed: u64,
    /// Those that changed since the lists were made, as the Source's changes told.
    pub newer: u64,
    /// Listed, and not in the mirror.
    pub missing: Findings,
    /// In the mirror, and not listed.
    pub extra: Findings,
    /// In the mirror, and not as listed.
    pub stale: Findings,
    /// Content that is not what it was.
    pub corrupt: Findings,
    /// What is wrong with the cache itself.
    pub cache: Vec<String>,
    /// Why the mirror was not compared with the Source's lists, if it was not.
    pub not_compared: Option<String>,
    /// Files and bytes of content that were looked at.
    pub checked: (u64, u64),
    /// What could not be read, now or by the last sync: then nothing is said of what it would list.
    pub unread: Vec<String>,
}

impl Audit {
    /// Whether nothing was found.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        let found = self.missing.count + self.extra.count + self.stale.count + self.corrupt.count;
        found == 0 && self.unread.is_empty() && self.cache.is_empty()
    }
}
