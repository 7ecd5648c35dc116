//! The versions the demo Source keeps of what changes.
//!
//! A version is known by the second it was made in, as Memento knows no finer time. There is one for each second:
//! a later one takes the place of an earlier one.

use std::collections::{HashMap, VecDeque};

use super::{Make, Resource};
use crate::document::Datetime;

/// How many versions of a resource are kept.
pub(super) const KEPT: usize = 50;
/// How many deleted resources are remembered.
pub(super) const DELETED: usize = 200;

/// What is kept of each resource that changes, and of those that were deleted.
#[derive(Default)]
pub(super) struct Versions {
    /// In the order of their seconds, and never empty.
    kept: HashMap<String, VecDeque<Resource>>,
    /// The longest deleted comes first.
    deleted: VecDeque<String>,
}

/// The second of a moment, counted from the epoch.
pub(super) fn second(at: Datetime) -> i64 {
    at.nanos().div_euclid(1_000_000_000)
}

impl Versions {
    /// The first versions of those resources that will change.
    pub(super) fn of_all(resources: &HashMap<String, Resource>) -> Self {
        let mut versions = Self::default();
        for (path, resource) in resources.iter().filter(|(_, resource)| matches!(resource.make, Make::Bytes(_))) {
            versions.keep(path, resource.clone());
        }
        versions
    }

    /// The versions of a resource; none if there never was such a one, or it is forgotten.
    pub(super) fn of(&self, path: &str) -> Option<&VecDeque<Resource>> {
        self.kept.get(path)
    }

    pub(super) fn keep(&mut self, path: &str, version: Resource) {
        self.deleted.retain(|one| one != path);
        let kept = self.kept.entry(path.to_owned()).or_default();
        let made = second(version.modified);
        // The clock may have been set back meanwhile.
        let at = kept.partition_point(|earlier| second(earlier.modified) < made);
        match kept.get_mut(at).filter(|same| second(same.modified) == made) {
            Some(same) => *same = version,
            None => kept.insert(at, version),
        }
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// The resource is no more; its versions stay until many others are deleted too.
    pub(super) fn deleted(&mut self, path: &str) {
        self.deleted.push_back(path.to_owned());
        if self.deleted.len() > DELETED
            && let Some(oldest) = self.deleted.pop_front()
        {
            self.kept.remove(&oldest);
        }
    }
}
