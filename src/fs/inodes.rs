//! What inode numbers stand for, above those that the catalog gives out.
//!
//! `.versions` has a number for each name that there is or was; a moment has one for each directory of its tree,
//! under a number of its own. Files are versions, wherever they lie.

use parking_lot::Mutex;

use crate::document::Datetime;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use super::control::DIRECTORY_INO;
use crate::catalog::{Inode, NameId, ROOT};

const VERSIONS: u64 = 1 << 58;
const LINKS: u64 = 1 << 59;
const COLLECTIONS: u64 = 1 << 60;
/// The number of `.resourcesync/uris`, above all collections.
pub(super) const URIS: u64 = COLLECTIONS + (1 << 50);
const MOMENTS: u64 = 1 << 61;
const NAME_BITS: u32 = 40;
/// The most moments that the kernel may know of at once.
const MOST_MOMENTS: u32 = 1 << 20;

/// What an inode number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The current tree, and every version.
    Tree(Inode),
    /// `.resourcesync`, and the files that are made when they are looked up.
    Made,
    /// `.versions`, or what lies in it under a name that there is or was: a directory, or a resource's versions.
    Versions(NameId),
    /// A directory of the tree as of a moment: the moment's number, and the name's.
    Moment(u32, NameId),
    /// What lies in `.resourcesync/links` under a name: a directory, or the links of a resource.
    Links(NameId),
    /// `.resourcesync/collections`, or one of them.
    Collection(u64),
    /// `.resourcesync/uris`.
    Uris,
}

impl Place {
    pub(super) fn of(ino: u64) -> Option<Self> {
        if ino >= DIRECTORY_INO {
            return Some(Self::Made);
        }
        let name = |bits: u64| i64::try_from(bits).ok().map(NameId::new).filter(|name| *name >= ROOT);
        if ino >= MOMENTS {
            let number = u32::try_from((ino - MOMENTS) >> NAME_BITS).ok()?;
            return Some(Self::Moment(number, name(ino & ((1 << NAME_BITS) - 1))?));
        }
        if ino == URIS {
            return Some(Self::Uris);
        }
        if ino >= COLLECTIONS {
            return Some(Self::Collection(ino - COLLECTIONS));
        }
        if ino >= LINKS {
            return Some(Self::Links(name(ino - LINKS)?));
        }
        if ino >= VERSIONS {
            return Some(Self::Versions(name((ino - VERSIONS) >> 1)?));
        }
        Inode::from_ino(ino).map(Self::Tree)
    }
}

/// The number of what lies in `.versions` under a name; of `.versions` itself, for the root's.
pub(super) fn versions_ino(name: NameId) -> u64 {
    VERSIONS | name.number().unsigned_abs() << 1
}

/// The number of what lies in `.resourcesync/links` under a name.
pub(super) fn links_ino(name: NameId) -> u64 {
    LINKS | name.number().unsigned_abs()
}

/// The number of `.resourcesync/collections`, or of one of them.
pub(super) fn collection_ino(collection: u64) -> u64 {
    COLLECTIONS | collection
}

/// The number of a directory of the tree as of a moment.
pub(super) fn moment_ino(moment: u32, name: NameId) -> u64 {
    MOMENTS | u64::from(moment) << NAME_BITS | name.number().unsigned_abs()
}

/// The moments whose trees the kernel knows of, and the directories of each that it was given.
#[derive(Debug, Default)]
pub struct Moments(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<u32, Known>,
    /// The number that a moment has now.
    numbers: HashMap<Datetime, u32>,
}

#[derive(Debug)]
struct Known {
    moment: Datetime,
    /// How often the kernel was given each of its directories.
    given: HashMap<NameId, u64>,
}

impl Moments {
    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.0.lock())
    }

    /// The number of a moment, in nanoseconds; none if the kernel knows of too many. Its root is given to the kernel,
    /// and kept until that forgets it.
    pub(super) fn number(&self, moment: Datetime) -> Option<u32> {
        self.with(|inner| {
            if let Some(number) = inner.numbers.get(&moment).copied() {
                inner.given(number, ROOT);
                return Some(number);
            }
            if inner.known.len() >= MOST_MOMENTS as usize {
                return None;
            }
            // Numbers of an earlier process may still be held by somebody: they are not likely to mean another moment.
            let mut number = u32::try_from(RandomState::new().hash_one(moment) % u64::from(MOST_MOMENTS)).unwrap_or(0);
            while inner.known.contains_key(&number) {
                number = (number + 1) % MOST_MOMENTS;
            }
            inner.known.insert(number, Known { moment, given: HashMap::from([(ROOT, 1)]) });
            inner.numbers.insert(moment, number);
            Some(number)
        })
    }

    pub(super) fn moment(&self, number: u32) -> Option<Datetime> {
        self.with(|inner| inner.known.get(&number).map(|known| known.moment))
    }

    /// The kernel was given a directory of this moment's tree.
    pub(super) fn given(&self, number: u32, name: NameId) {
        self.with(|inner| inner.given(number, name));
    }

    /// The kernel forgets one, having been given it so often.
    pub(super) fn forget(&self, number: u32, name: NameId, lookups: u64) {
        self.with(|inner| {
            let Some(known) = inner.known.get_mut(&number) else { return };
            if let Some(given) = known.given.get_mut(&name) {
                *given = given.saturating_sub(lookups);
                if *given == 0 {
                    known.given.remove(&name);
                }
            }
            if known.given.is_empty() {
                let moment = known.moment;
                inner.known.remove(&number);
                inner.numbers.remove(&moment);
            }
        });
    }

    /// The directories that the kernel knows of the trees of the moments from this one on.
    pub(super) fn since(&self, moment: Datetime) -> Vec<u64> {
        self.with(|inner| {
            let later = inner.known.iter().filter(|(_, known)| known.moment >= moment);
            later.flat_map(|(number, known)| known.given.keys().map(|name| moment_ino(*number, *name))).collect()
        })
    }
}

impl Inner {
    fn given(&mut self, number: u32, name: NameId) {
        if let Some(known) = self.known.get_mut(&number) {
            *known.given.entry(name).or_insert(0) += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_what_they_stand_for() {
        assert_eq!(Place::of(1), Some(Place::Tree(Inode::Directory(ROOT))));
        let version = crate::catalog::VersionId::new(77);
        assert_eq!(Place::of(crate::catalog::version_ino(version)), Some(Place::Tree(Inode::Version(version))));
        for name in [ROOT, NameId::new(8), NameId::new((1 << NAME_BITS) - 1)] {
            assert_eq!(Place::of(versions_ino(name)), Some(Place::Versions(name)));
            for number in [0, 1, MOST_MOMENTS - 1] {
                assert_eq!(Place::of(moment_ino(number, name)), Some(Place::Moment(number, name)));
            }
        }
        assert_eq!(Place::of(DIRECTORY_INO), Some(Place::Made));
        assert_eq!(Place::of(0), None);
        assert_eq!(Place::of(links_ino(ROOT)), Some(Place::Links(ROOT)));
        assert_eq!(Place::of(links_ino(NameId::new(1 << 40))), Some(Place::Links(NameId::new(1 << 40))));
        assert_eq!(Place::of(collection_ino((1 << 40) - 1)), Some(Place::Collection((1 << 40) - 1)));
    }

    #[test]
    fn a_moment_keeps_its_number_until_all_of_it_is_forgotten() {
        let moments = Moments::default();
        let first = moments.number(Datetime::from_nanos(100)).unwrap();
        assert_eq!(moments.number(Datetime::from_nanos(100)), Some(first));
        moments.given(first, NameId::new(77));
        assert_eq!(moments.since(Datetime::from_nanos(101)), Vec::<u64>::new());
        let mut known = moments.since(Datetime::from_nanos(100));
        known.sort_unstable();
        assert_eq!(known, [moment_ino(first, ROOT), moment_ino(first, NameId::new(77))]);
        moments.forget(first, ROOT, 2);
        assert_eq!(
            (moments.moment(first), moments.since(Datetime::from_nanos(0))),
            (Some(Datetime::from_nanos(100)), vec![moment_ino(first, NameId::new(77))])
        );
        moments.forget(first, NameId::new(77), 1);
        assert_eq!((moments.moment(first), moments.since(Datetime::from_nanos(0))), (None, Vec::new()));
    }
}
