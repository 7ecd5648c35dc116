//! Which parts of a file are there.

use serde::{Deserialize, Serialize};

/// A set of byte offsets, as ranges that neither touch nor overlap, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::sync) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds the offsets from `begin` up to and without `end`.
    pub(in crate::sync) fn add(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let first = self.0.partition_point(|(_, known_end)| *known_end < begin);
        let last = self.0.partition_point(|(known_begin, _)| *known_begin <= end);
        let mut merged = (begin, end);
        for (known_begin, known_end) in &self.0[first..last] {
            merged = (merged.0.min(*known_begin), merged.1.max(*known_end));
        }
        self.0.splice(first..last, [merged]);
    }

    /// Removes the offsets from `begin` up to and without `end`.
    pub(in crate::sync) fn remove(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        let cut = |(known_begin, known_end): &(u64, u64)| {
            let (left, right) = ((*known_begin, (*known_end).min(begin)), ((*known_begin).max(end), *known_end));
            [left, right].into_iter().filter(|(begin, end)| begin < end)
        };
        self.0 = self.0.iter().flat_map(cut).collect();
    }

    /// Whether all offsets from `begin` up to and without `end` are in.
    pub(in crate::sync) fn contains(&self, begin: u64, end: u64) -> bool {
        begin >= end || self.0.iter().any(|(known_begin, known_end)| *known_begin <= begin && end <= *known_end)
    }

    /// The first gap at or after `from`, below `total`.
    pub(in crate::sync) fn gap(&self, from: u64, total: u64) -> Option<(u64, u64)> {
        let mut begin = from;
        for (known_begin, known_end) in &self.0 {
            if *known_begin > begin {
                return (begin < total).then_some((begin, (*known_begin).min(total)));
            }
            begin = begin.max(*known_end);
        }
        (begin < total).then_some((begin, total))
    }

    /// How many offsets are in.
    pub(in crate::sync) fn len(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end - begin).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_offsets(parts in prop::collection::vec((0_u64..60, 0_u64..20, prop::bool::weighted(0.7)), 0..12)) {
            let mut ranges = Ranges::default();
            let mut model = [false; 100];
            for (begin, len, adds) in parts {
                match adds {
                    true => ranges.add(begin, begin + len),
                    false => ranges.remove(begin, begin + len),
                }
                model[begin as usize..(begin + len) as usize].fill(adds);
                prop_assert_eq!(ranges.len(), model.iter().filter(|there| **there).count() as u64);
                for from in 0..90_usize {
                    let gap = (from..90).find(|at| !model[*at]);
                    prop_assert_eq!(ranges.gap(from as u64, 90).map(|(begin, _)| begin as usize), gap);
                    prop_assert_eq!(ranges.contains(from as u64, from as u64 + 5), model[from..from + 5].iter().all(|there| *there));
                }
            }
        }
    }
}
