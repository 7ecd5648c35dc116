//! Whether two documents speak of the same bytes.

use crate::catalog::model::record::Record;
use crate::document::{Datetime, Hashes};

/// What a document says of the bytes of a resource.
pub(in crate::catalog) struct Listed<'h> {
    pub(in crate::catalog) modified: Option<Datetime>,
    pub(in crate::catalog) size: Option<u64>,
    pub(in crate::catalog) hashes: &'h Hashes,
}

impl<'h> Listed<'h> {
    pub(in crate::catalog) fn of(record: &'h Record) -> Self {
        let modified = (record.dated == 1).then_some(record.mtime);
        Self { modified, size: record.size, hashes: &record.hashes }
    }

    /// Whether two documents speak of the same bytes, as far as both say something: a hash decides, else
    /// length and time, and where they have nothing in common, nobody knows.
    pub(in crate::catalog) fn compared_with(&self, other: &Listed<'_>) -> Sameness {
        fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<bool> {
            one.zip(other).map(|(one, other)| one != other)
        }
        let sizes_differ = differ(self.size, other.size);
        let common: Vec<bool> =
            self.hashes.iter().filter_map(|hash| other.hashes.get(hash.algorithm()).map(|same| same == hash)).collect();
        let times_differ = differ(self.modified, other.modified);
        match (common.is_empty(), sizes_differ, times_differ) {
            (_, Some(true), _) => Sameness::No,
            (false, _, _) if common.iter().all(|same| *same) => Sameness::Same,
            (false, _, _) | (true, _, Some(true)) => Sameness::No,
            (true, _, Some(false)) => Sameness::Same,
            (true, Some(false), None) => Sameness::InLength,
            (true, None, None) => Sameness::No,
        }
    }
}

/// Whether two documents speak of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::catalog) enum Sameness {
    /// By a hash, or by the time of modification.
    Same,
    /// As far as their length tells.
    InLength,
    /// No, or nobody knows.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_documents_speak_of_the_same_bytes() {
        let hashes = |text: &str| Hashes::parse(text, &mut Vec::new());
        let (none, one, other) = (
            Hashes::default(),
            hashes("md5:1584abdf8ebdc9802ac0c6a7402c03b6"),
            hashes("md5:1e0d5cb8ef6ba40c99b14c0237be735e"),
        );
        let stronger = hashes("sha-256:854f61290e2e197a11bc91063afce22e43f8ccc655237050ace766adc68dc784");
        let facts = |modified, size, hashes| Listed { modified, size, hashes };
        for (first, second, same) in [
            (facts(None, None, &none), facts(None, None, &none), Sameness::No),
            (facts(None, None, &one), facts(None, None, &one), Sameness::Same),
            (
                facts(Some(Datetime::from_nanos(1)), Some(5), &one),
                facts(Some(Datetime::from_nanos(2)), Some(5), &one),
                Sameness::Same,
            ),
            (
                facts(Some(Datetime::from_nanos(1)), Some(5), &one),
                facts(Some(Datetime::from_nanos(1)), Some(6), &one),
                Sameness::No,
            ),
            (
                facts(Some(Datetime::from_nanos(1)), Some(5), &one),
                facts(Some(Datetime::from_nanos(1)), Some(5), &other),
                Sameness::No,
            ),
            (
                facts(Some(Datetime::from_nanos(1)), Some(5), &one),
                facts(Some(Datetime::from_nanos(1)), Some(5), &stronger),
                Sameness::Same,
            ),
            (facts(None, None, &one), facts(None, None, &stronger), Sameness::No),
            (
                facts(Some(Datetime::from_nanos(1)), None, &none),
                facts(Some(Datetime::from_nanos(1)), None, &none),
                Sameness::Same,
            ),
            (
                facts(Some(Datetime::from_nanos(1)), Some(5), &none),
                facts(Some(Datetime::from_nanos(2)), Some(5), &none),
                Sameness::No,
            ),
            (
                facts(Some(Datetime::from_nanos(1)), Some(5), &none),
                facts(Some(Datetime::from_nanos(1)), Some(6), &none),
                Sameness::No,
            ),
            (facts(None, Some(5), &none), facts(Some(Datetime::from_nanos(1)), Some(5), &none), Sameness::InLength),
        ] {
            assert_eq!(first.compared_with(&second), same);
            assert_eq!(second.compared_with(&first), same);
        }
    }
}
