//! The parts that an index lists, to detect that it has changed.

use sha2::{Digest as _, Sha256};

use super::spooled::OF_THE_REQUEST;
use crate::document::{Datetime, Facts};

/// The parts that an index lists, and their times, to detect that it has changed.
#[derive(Debug)]
pub(in crate::sync) struct Outline {
    /// Of their URLs, and of which times there are.
    digest: Sha256,
    /// The times of each.
    pub(in crate::sync) times: Vec<i64>,
    /// When the server answered.
    date: Datetime,
}

impl Outline {
    /// That of an index without entries.
    pub(in crate::sync) fn new(date: Datetime) -> Self {
        Self { digest: Sha256::new(), times: Vec::new(), date }
    }

    /// Adds a part.
    pub(in crate::sync) fn add(&mut self, url: &str, facts: &Facts) {
        self.digest.update(url);
        for time in [facts.at, facts.completed, facts.lastmod] {
            self.digest.update([0, u8::from(time.is_some())]);
            self.times.extend(time.map(Datetime::nanos));
        }
    }

    /// Whether this is the same index, read again: each time is the same, or has moved as far as the time of the request, in whatever
    /// zone it is written.
    pub(in crate::sync) fn is_that_of(&self, before: &Self) -> bool {
        let elapsed = self.date.nanos().saturating_sub(before.date.nanos());
        let goes_along = |now: i64, then: i64| {
            now.saturating_sub(then).abs_diff(elapsed) <= u64::try_from(OF_THE_REQUEST.as_nanos()).unwrap_or(u64::MAX)
        };
        self.digest.clone().finalize() == before.digest.clone().finalize()
            && self.times.iter().zip(&before.times).all(|(now, then)| now == then || goes_along(*now, *then))
    }
}
