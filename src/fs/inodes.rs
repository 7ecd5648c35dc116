//! What inode numbers stand for, above those that the catalog gives out.
//!
//! `.versions` has a number for each name that there is or was; a moment has one for each directory of its tree,
//! under a number of its own. Files are versions, wherever they lie.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::control::DIRECTORY_INO;
use crate::catalog::{Inode, ROOT};

const VERSIONS: u64 = 1 << 58;
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
    Versions(i64),
    /// A directory of the tree as of a moment: the moment's number, and the name's.
    Moment(u32, i64),
}

impl Place {
    pub(super) fn of(ino: u64) -> Option<Self> {
        if ino >= DIRECTORY_INO {
            return Some(Self::Made);
        }
        let name = |bits: u64| i64::try_from(bits).ok().filter(|name| *name >= ROOT);
        if ino >= MOMENTS {
            let number = u32::try_from((ino - MOMENTS) >> NAME_BITS).ok()?;
            return Some(Self::Moment(number, name(ino & ((1 << NAME_BITS) - 1))?));
        }
        if ino >= VERSIONS {
            return Some(Self::Versions(name((ino - VERSIONS) >> 1)?));
        }
        Inode::from_ino(ino).map(Self::Tree)
    }
}

/// The number of what lies in `.versions` under a name; of `.versions` itself, for the root's.
pub(super) fn versions_ino(name: i64) -> u64 {
    VERSIONS | name.unsigned_abs() << 1
}

/// The number of a directory of the tree as of a moment.
pub(super) fn moment_ino(moment: u32, name: i64) -> u64 {
    MOMENTS | u64::from(moment) << NAME_BITS | name.unsigned_abs()
}

/// The moments whose trees the kernel knows of. A moment whose tree is not what it was gets a new number when it is
/// looked up again, so that here, too, an inode never changes.
#[derive(Debug, Default)]
pub struct Moments(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The moment of a number, and how often the kernel was given it.
    known: HashMap<u32, (i64, u64)>,
    /// The number that a moment has now.
    numbers: HashMap<i64, u32>,
    next: u32,
}

impl Moments {
    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of a moment, in nanoseconds; none if the kernel knows of too many. To be given to the kernel:
    /// it is kept until it is forgotten.
    pub(super) fn number(&self, moment: i64) -> Option<u32> {
        self.with(|inner| {
            if let Some(number) = inner.numbers.get(&moment).copied() {
                inner.given(number);
                return Some(number);
            }
            if inner.known.len() >= MOST_MOMENTS as usize {
                return None;
            }
            while inner.known.contains_key(&inner.next) {
                inner.next = (inner.next + 1) % MOST_MOMENTS;
            }
            let number = inner.next;
            inner.next = (inner.next + 1) % MOST_MOMENTS;
            inner.known.insert(number, (moment, 1));
            inner.numbers.insert(moment, number);
            Some(number)
        })
    }

    pub(super) fn moment(&self, number: u32) -> Option<i64> {
        self.with(|inner| inner.known.get(&number).map(|(moment, _)| *moment))
    }

    /// The kernel was given a directory of this moment's tree.
    pub(super) fn given(&self, number: u32) {
        self.with(|inner| inner.given(number));
    }

    /// The kernel forgets so many of them.
    pub(super) fn forget(&self, number: u32, lookups: u64) {
        self.with(|inner| {
            let Some((moment, given)) = inner.known.get_mut(&number) else { return };
            *given = given.saturating_sub(lookups);
            if *given == 0 {
                let moment = *moment;
                inner.known.remove(&number);
                if inner.numbers.get(&moment) == Some(&number) {
                    inner.numbers.remove(&moment);
                }
            }
        });
    }

    /// The trees of the moments from this one on are not what they were; returns those that were known.
    pub(super) fn renew(&self, since: i64) -> Vec<i64> {
        self.with(|inner| {
            let gone: Vec<i64> = inner.numbers.keys().copied().filter(|moment| *moment >= since).collect();
            inner.numbers.retain(|moment, _| *moment < since);
            gone
        })
    }
}

impl Inner {
    fn given(&mut self, number: u32) {
        if let Some((_, given)) = self.known.get_mut(&number) {
            *given += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_what_they_stand_for() {
        assert_eq!(Place::of(1), Some(Place::Tree(Inode::Directory(ROOT))));
        assert_eq!(Place::of(crate::catalog::version_ino(77)), Some(Place::Tree(Inode::Version(77))));
        for name in [ROOT, 8, (1 << NAME_BITS) - 1] {
            assert_eq!(Place::of(versions_ino(name)), Some(Place::Versions(name)));
            for number in [0, 1, MOST_MOMENTS - 1] {
                assert_eq!(Place::of(moment_ino(number, name)), Some(Place::Moment(number, name)));
            }
        }
        assert_eq!(Place::of(DIRECTORY_INO), Some(Place::Made));
        assert_eq!(Place::of(0), None);
    }

    #[test]
    fn a_moment_keeps_its_number_until_it_is_forgotten_or_renewed() {
        let moments = Moments::default();
        let first = moments.number(100).unwrap();
        assert_eq!(moments.number(100), Some(first));
        moments.forget(first, 1);
        assert_eq!(moments.moment(first), Some(100));
        assert_eq!(moments.renew(101), Vec::<i64>::new());
        assert_eq!(moments.renew(100), [100]);
        let second = moments.number(100).unwrap();
        assert_ne!(first, second);
        assert_eq!(moments.moment(first), Some(100), "who has it open goes on");
        moments.forget(first, 1);
        assert_eq!((moments.moment(first), moments.moment(second)), (None, Some(100)));
        assert_eq!(moments.number(100), Some(second));
    }
}
