//! What a transaction remembers of what it did.

use crate::catalog::model::ids::{NameId, VersionId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use crate::catalog::model::mementos::Memento;
use crate::catalog::model::record::Record;

/// Names of resources whose versions a transaction changed, if any archive is known to remember versions at all.
#[derive(Debug, Default)]
pub(in crate::catalog) struct Remembered {
    pub(in crate::catalog) any: Option<bool>,
    pub(in crate::catalog) names: HashSet<NameId>,
    /// By resource, what entries link to that may not be known yet: all of a resource is compared with what is known at once.
    pub(in crate::catalog) linked: BTreeMap<NameId, Vec<Memento>>,
    /// How many these are.
    pub(in crate::catalog) count: usize,
}

/// Resources that this step, or the one before it, brought into the tree: what they are, so that a manifest that says the same
/// of them needs no look into the tables.
#[derive(Debug, Default)]
pub struct Recent {
    /// Whether anything is kept.
    pub(in crate::catalog) wanted: bool,
    pub(in crate::catalog) keys: RandomState,
    pub(in crate::catalog) known: HashMap<u64, (VersionId, u64)>,
}

/// Beyond this number, the tables are looked into.
const MOST_RECENT: usize = 300_000;

impl Recent {
    /// For a step that another one follows which wants to know.
    #[must_use]
    pub fn wanted() -> Self {
        Self { wanted: true, ..Self::default() }
    }

    pub(in crate::catalog) fn add(&mut self, record: &Record, version: VersionId) {
        if self.wanted && self.known.len() < MOST_RECENT {
            let key = self.keys.hash_one(&record.uri);
            self.known.insert(key, (version, record.fingerprint(&self.keys)));
        }
    }

    /// The new version of the resource of a record, if all that the record says of its bytes was said of it.
    pub(in crate::catalog) fn same(&self, record: &Record) -> Option<VersionId> {
        let (version, fingerprint) = self.known.get(&self.keys.hash_one(&record.uri))?;
        let says_something = record.size.is_some() || !record.hashes.is_empty() || record.dated == 1;
        (says_something && *fingerprint == record.fingerprint(&self.keys)).then_some(*version)
    }
}
