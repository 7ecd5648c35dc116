//! In which order the changes of a list happened (core 12.1), and which of them are in the tree already.
//!
//! Position is the order. A list that runs backwards in time throughout is reversed whole. `datetime` sorts only where every
//! entry has one inside the interval of the list. `lastmod` is the time of the resource, not of the change, and never sorts (but
//! in the drafts where it is the time of the change): it only shows that a list runs backwards. Entries dated outside the interval
//! take no part in that.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use sha2::{Digest as _, Sha256};

use super::align;
use super::align::{Continues, align, overlap};
use super::fetch::Budget;
use super::spooled::{About, Spooled, digest_entry};
use super::staged::{Staged, Staging};
use crate::bounds::{self, Beyond};
use crate::catalog::{Beginning, Feed};
use crate::document::{Change, Datetime, DocumentError, Entry, Facts, Warnings};
use crate::store::Store;

/// The most changes of one moment that are gone through again when more of that moment is told.
const MOST_AGAIN: usize = 10_000;
/// The most entries of a list without times that are compared with its edition before.
const MOST_EDITION: usize = 100_000;

/// Yields the processor every eight entries. Reading a long list takes seconds; without this, a reader of the mount waits
/// until the thread has used its time slice, which is several ms.
fn yield_between_entries(number: usize) {
    if number.is_multiple_of(8) {
        std::thread::yield_now();
    }
}

/// What a first look through a list finds.
#[derive(Debug)]
pub(in crate::sync) struct Survey {
    /// How many entries it has, as far as it can be read.
    pub(in crate::sync) entries: u64,
    /// What tells these entries from others.
    pub(in crate::sync) digest: [u8; 32],
    /// The beginning of it that is known to be in the tree.
    pub(in crate::sync) known: Option<Beginning>,
    /// The order in which its changes happened.
    pub(in crate::sync) order: Order,
    /// So many changes, in that order, are in the tree.
    pub(in crate::sync) done: u64,
    /// The time of the newest of those.
    pub(in crate::sync) before: Option<Datetime>,
    /// The number of changes, in that order, before the lists that the tree was made from. Those after `done` that have a time
    /// are not in the history yet.
    pub(in crate::sync) before_lists: u64,
    /// Bytes of the resources that are left, as far as they are listed, and how many those are.
    pub(in crate::sync) bytes: u64,
    /// A digest of each entry, from the oldest change to the newest, if it has changes without a time, or no interval.
    pub(in crate::sync) edition: Vec<u64>,
    /// How it continues the edition before it.
    pub(in crate::sync) continues: Continues,
    /// Whether it does not tell any more of a change that came after others of which it does.
    pub(in crate::sync) withdrawn: bool,
    /// From here on, in that order, changes without a time have happened since the edition before.
    pub(in crate::sync) new_from: u64,
    /// Its entries.
    staged: Staged,
    /// Why it cannot be read to its end.
    cut: Option<String>,
}

impl Survey {
    /// Why nothing of it may be applied: what cannot be read of a list in another order than that of its changes happened
    /// before some that can, and a tree that lacks it is none that the Source ever had.
    pub(in crate::sync) fn unusable(&self) -> Option<&str> {
        self.cut.as_deref().filter(|_| self.order != Order::AsWritten)
    }

    /// Why it cannot be read to its end.
    pub(in crate::sync) fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Whether it was read to its end, and has no entry.
    pub(in crate::sync) fn is_empty(&self) -> bool {
        self.entries == 0 && self.cut.is_none()
    }

    /// Changes that may be new.
    pub(in crate::sync) fn left(&self) -> u64 {
        self.entries.saturating_sub(self.done)
    }
}

/// The order in which the changes of a list happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sync) enum Order {
    AsWritten,
    Backwards,
    /// Places in the list, from the oldest change to the newest.
    Sorted(Vec<u32>),
}

/// The times of one entry, and what shows that its list does not run backwards.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    datetime: Option<Datetime>,
    lastmod: Option<Datetime>,
    change: Option<Change>,
    /// The latest time that `datetime` can mean.
    latest: Option<Datetime>,
    /// A hash of the URI.
    resource: u64,
}

/// Why a list could not be looked through.
#[derive(Debug, thiserror::Error)]
pub(in crate::sync) enum Unsurveyed {
    #[error("{0}")]
    Disk(#[from] std::io::Error),
    #[error(transparent)]
    Beyond(#[from] Beyond),
}

/// Looks through a list. What is older than `covered` is in the tree; so is what `feed` remembers of it.
///
/// # Errors
/// If it cannot be read from the disk, or the step reads too much.
pub(in crate::sync) fn survey(
    document: &Spooled,
    feed: &Feed,
    covered: Option<Datetime>,
    budget: &Budget,
    store: &Store,
) -> Result<Survey, Unsurveyed> {
    let Entries { times, digests, bytes, known, digest, staged, cut } = read(document, feed, budget, store)?;
    // An edition is compared with the next one of the same list alone.
    let before = if feed.edition.url == document.row.url { feed.edition.entries.as_slice() } else { &[] };
    // Where each change has its time, that tells which are known; the interval tells whether changes are missing before them.
    let is_dated = times.iter().all(|times| times.datetime.is_some());
    let order = match order(&times, &document.about) {
        Order::Backwards if !is_dated && grows_at_its_end(before, &digests) => Order::AsWritten,
        order => order,
    };
    let is_bounded = document.about.from.is_some() || document.about.by_lastmod;
    let edition: Vec<u64> = match is_dated && is_bounded || times.len() > MOST_EDITION {
        true => Vec::new(),
        false => order.walk(&digests).copied().collect(),
    };
    let alignment = align(before, &edition);
    // All entries are new in a list that was empty when it began at this time or earlier.
    let was_empty = feed.edition.url == document.row.url
        && feed.edition.entries.is_empty()
        && feed.edition.from.is_some()
        && feed.edition.from <= document.about.from;
    let oldest = order.walk(&times).find_map(|one| one.datetime).filter(|_| is_dated);
    let reaches_back = known.is_some() || oldest.is_some() && oldest < feed.cursor;
    let whole = times.len() as u64;
    // In another order than the written one, only all of it says which changes those are.
    let in_order = |known: &Beginning| order == Order::AsWritten || known.entries == whole;
    let older_than = |moment: Option<Datetime>| moment.map_or(0, |moment| older(&times, &order, moment));
    let (old, before_lists) = (older_than(feed.read_from(covered)), older_than(covered));
    // After lists changed the tree, what is known of an edition is applied again.
    let of_edition = if feed.read.is_empty() || is_dated { 0 } else { alignment.done };
    let done = known.filter(in_order).map_or(0, |known| known.entries).max(old).max(of_edition);
    let (done, before) = to_the_beginning_of_a_moment(&times, &order, done);
    Ok(Survey {
        entries: whole,
        digest,
        known,
        before,
        order,
        done,
        before_lists,
        bytes,
        edition,
        continues: match alignment.continues {
            Continues::Nothing if reaches_back => Continues::Known,
            other => other,
        },
        withdrawn: alignment.withdrawn && cut.is_none(),
        new_from: if was_empty { 0 } else { alignment.new_from },
        staged,
        cut,
    })
}

/// The entries of a list.
struct Entries {
    /// Of each.
    times: Vec<Times>,
    /// Of each of the first [`MOST_EDITION`].
    digests: Vec<u64>,
    /// The length of what those list that are not known.
    bytes: u64,
    /// The longest beginning that is known.
    known: Option<Beginning>,
    /// Of all.
    digest: [u8; 32],
    staged: Staged,
    /// Why it breaks off, if it does.
    cut: Option<String>,
}

/// Reads all entries of a list. What is wrong with them, and where the list breaks off, is reported when they are applied.
fn read(document: &Spooled, feed: &Feed, budget: &Budget, store: &Store) -> Result<Entries, Unsurveyed> {
    let (mut times, mut digests, mut bytes) = (Vec::new(), Vec::new(), 0_u64);
    let mut known = None;
    // A list that was given another name begins where it did; two lists of the same few words do not.
    let mut hasher = Sha256::new();
    match document.about.from {
        Some(from) => hasher.update(from.nanos().to_le_bytes()),
        None => hasher.update(&document.row.url),
    }
    let resources = RandomState::new();
    let mut skipped = Warnings::default();
    let mut staging = Staging::new(store)?;
    let (mut reader, mut broken) = match document.entries(&document.row.url) {
        Ok(reader) => (Some(reader), None),
        Err(error) => (None, Some(error)),
    };
    while let Some(reader) = &mut reader {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) => {
                broken = Some(error);
                break;
            }
        };
        staging.add(&entry)?;
        budget.take()?;
        yield_between_entries(times.len());
        if times.len() as u64 >= document.bounds.changes {
            return Err(bounds::CHANGES.passed("the number of changes of one list", &document.bounds).into());
        }
        let facts = Facts::of_entry(&entry, &mut skipped);
        times.push(Times {
            datetime: facts.datetime.or(facts.lastmod.filter(|_| document.about.by_lastmod)),
            lastmod: facts.lastmod,
            change: facts.change,
            latest: facts.datetime.map(|datetime| latest(&entry, datetime)),
            resource: resources.hash_one(&entry.loc),
        });
        bytes = bytes.saturating_add(facts.length.unwrap_or(0));
        let mut own = Sha256::new();
        digest_entry(&mut own, &entry);
        let own: [u8; 32] = own.finalize().into();
        hasher.update(own);
        if times.len() <= MOST_EDITION {
            digests.push(align::digest(Sha256::digest(&entry.loc).into(), own));
        }
        let entries = times.len() as u64;
        if feed.read.iter().any(|beginning| beginning.entries == entries) {
            let beginning = Beginning { entries, digest: hasher.clone().finalize().into() };
            if feed.read.contains(&beginning) {
                known = Some(beginning);
                bytes = 0;
            }
        }
    }
    let cut = broken.as_ref().map(ToString::to_string);
    let staged = staging.finish(broken)?;
    Ok(Entries { times, digests, bytes, known, digest: hasher.finalize().into(), staged, cut })
}

/// The latest time that a change of this `datetime` can have: a date without a time of day is a day long.
pub(in crate::sync) fn latest(entry: &Entry, datetime: Datetime) -> Datetime {
    const DAY: i64 = 86_400_000_000_000;
    match entry.md.get("datetime").is_some_and(|text| text.trim().len() == "2013-01-03".len()) {
        true => Datetime::from_nanos(datetime.nanos().saturating_add(DAY - 1)),
        false => datetime,
    }
}

impl Order {
    /// What stands at the places of a list, from the oldest change to the newest.
    fn walk<'t, T>(&'t self, times: &'t [T]) -> Box<dyn Iterator<Item = &'t T> + 't> {
        match self {
            Self::AsWritten => Box::new(times.iter()),
            Self::Backwards => Box::new(times.iter().rev()),
            Self::Sorted(places) => Box::new(places.iter().filter_map(|place| times.get(*place as usize))),
        }
    }
}

/// Everything before the first change that is not older than `floor`, up to the last of it that says it is.
fn older(times: &[Times], order: &Order, floor: Datetime) -> u64 {
    let mut old = 0;
    for (place, times) in (1..).zip(order.walk(times)) {
        match times.latest.or(times.datetime) {
            Some(moment) if moment < floor => old = place,
            Some(_) => break,
            None => {}
        }
    }
    old
}

/// How much of what is known need not be gone through again, and the time of the newest of that. If the first change that is new
/// has the time of the last ones that are known, all changes of that time are gone through again: only together do they tell what
/// came last.
fn to_the_beginning_of_a_moment(times: &[Times], order: &Order, done: u64) -> (u64, Option<Datetime>) {
    let known = usize::try_from(done).unwrap_or(usize::MAX);
    let mut moments: Vec<Option<Datetime>> =
        order.walk(times).take(known.saturating_add(1)).map(|one| one.datetime).collect();
    let next = if moments.len() > known { moments.pop().flatten() } else { None };
    let again = moments.iter().rev().take_while(|one| one.is_some() && **one == next).count();
    let again = if again <= MOST_AGAIN { again } else { 0 };
    moments.truncate(moments.len() - again);
    (done - again as u64, moments.into_iter().flatten().max())
}

fn order(times: &[Times], about: &About) -> Order {
    let is_inside = |moment: &Datetime| {
        about.from.is_none_or(|from| from <= *moment) && about.until.is_none_or(|until| *moment <= until)
    };
    let inside: Vec<Datetime> = times.iter().filter_map(|times| times.datetime).filter(is_inside).collect();
    if inside.len() == times.len() {
        return by(inside.into_iter());
    }
    let is_backwards = match times.iter().all(|times| times.datetime.is_none()) {
        false => runs_backwards(&inside),
        true => {
            let lastmods: Vec<Datetime> = times.iter().filter_map(|times| times.lastmod).collect();
            lastmods.len() == times.len() && runs_backwards(&lastmods) && !contradicts(times.iter().rev())
        }
    };
    if is_backwards { Order::Backwards } else { Order::AsWritten }
}

/// Whether a list, in the order in which it is written, continues the edition before: then it does not run backwards, whatever
/// times of restored files look like.
fn grows_at_its_end(before: &[u64], written: &[u64]) -> bool {
    let reversed: Vec<u64> = written.iter().rev().copied().collect();
    !before.is_empty() && !written.is_empty() && overlap(before, written) > overlap(before, &reversed)
}

fn runs_backwards(moments: &[Datetime]) -> bool {
    moments.windows(2).all(|pair| pair[0] >= pair[1]) && moments.first() > moments.last()
}

/// Whether changes in this order say of a resource that it was created when it was there, or changed when it was not.
fn contradicts<'t>(mut times: impl Iterator<Item = &'t Times>) -> bool {
    let mut is_there = HashMap::new();
    times.any(|one| {
        let change = one.change.unwrap_or(Change::Updated);
        let before = is_there.insert(one.resource, change != Change::Deleted);
        before.is_some_and(|was_there| was_there == (change == Change::Created))
    })
}

fn by(keys: impl Iterator<Item = Datetime>) -> Order {
    let keys: Vec<Datetime> = keys.collect();
    if keys.windows(2).all(|pair| pair[0] <= pair[1]) {
        return Order::AsWritten;
    }
    if keys.windows(2).all(|pair| pair[0] >= pair[1]) {
        return Order::Backwards;
    }
    let mut places: Vec<u32> = (0..u32::try_from(keys.len()).unwrap_or(u32::MAX)).collect();
    // Stable: position decides where the time does not.
    places.sort_by_key(|place| keys.get(*place as usize).copied());
    Order::Sorted(places)
}

/// Why not all entries of a list were visited.
#[derive(Debug)]
pub(in crate::sync) enum Interrupted<E> {
    /// They cannot be read from the disk.
    Disk(std::io::Error),
    /// The visitor failed.
    Visitor(E),
}

impl<E> Interrupted<E> {
    /// The error of the visitor, or what `disk` makes of an error of the disk.
    pub(in crate::sync) fn into_error(self, disk: impl FnOnce(std::io::Error) -> E) -> E {
        match self {
            Self::Disk(error) => disk(error),
            Self::Visitor(error) => error,
        }
    }
}

impl<E> From<std::io::Error> for Interrupted<E> {
    fn from(error: std::io::Error) -> Self {
        Self::Disk(error)
    }
}

/// Visits the entries of a list that are not known to be in the tree, in the order in which the changes
/// happened, until `visit` fails. Returns where the list breaks off.
///
/// # Errors
/// What `visit` returns, and if the entries cannot be read from the disk.
pub(in crate::sync) fn each<E>(
    survey: &Survey,
    warnings: &mut Warnings,
    mut visit: impl FnMut(Entry, &mut Warnings) -> Result<(), E>,
) -> Result<Option<DocumentError>, Interrupted<E>> {
    let (staged, done) = (&survey.staged, usize::try_from(survey.done).unwrap_or(usize::MAX));
    let mut visit_all = |entries: &mut dyn Iterator<Item = std::io::Result<Entry>>| {
        for (number, entry) in entries.enumerate() {
            yield_between_entries(number);
            visit(entry?, warnings).map_err(Interrupted::Visitor)?;
        }
        Ok::<(), Interrupted<E>>(())
    };
    match &survey.order {
        Order::AsWritten => visit_all(&mut staged.entries()?.skip(done))?,
        Order::Backwards => {
            let places = (0..u32::try_from(survey.entries).unwrap_or(u32::MAX)).rev();
            visit_all(&mut staged.at_places(places.skip(done))?)?;
        }
        Order::Sorted(places) => visit_all(&mut staged.at_places(places.iter().copied().skip(done))?)?,
    }
    Ok(staged.broken.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Datetime {
        Datetime::from_nanos(second * 1_000_000_000)
    }

    fn times(list: &[(Option<i64>, Option<i64>)]) -> Vec<Times> {
        let resources = 0..;
        let one = |(resource, (datetime, lastmod)): (u64, &(Option<i64>, Option<i64>))| Times {
            datetime: datetime.map(at),
            lastmod: lastmod.map(at),
            change: None,
            latest: None,
            resource,
        };
        resources.zip(list).map(one).collect()
    }

    fn within(from: Option<i64>, until: Option<i64>) -> About {
        About { from: from.map(at), until: until.map(at), ..About::default() }
    }

    #[test]
    fn position_is_the_order_unless_every_entry_is_dated_or_the_list_runs_backwards() {
        let lastmods = |list: &[i64]| times(&list.iter().map(|one| (None, Some(*one))).collect::<Vec<_>>());
        let datetimes = |list: &[i64]| times(&list.iter().map(|one| (Some(*one), None)).collect::<Vec<_>>());
        for (list, about, expected) in [
            (datetimes(&[1, 2, 2, 3]), within(None, None), Order::AsWritten),
            (datetimes(&[3, 2, 2, 1]), within(None, None), Order::Backwards),
            (datetimes(&[2, 1, 3, 1]), within(None, None), Order::Sorted(vec![1, 3, 0, 2])),
            // One that is dated outside the interval: nothing is sorted by times, and it does not count for the direction.
            (datetimes(&[5, 7, 2]), within(Some(4), None), Order::AsWritten),
            (datetimes(&[5, 2]), within(Some(4), None), Order::AsWritten),
            (datetimes(&[9, 7, 5, 2]), within(Some(4), None), Order::Backwards),
            // `lastmod` never sorts, and shows a direction alone.
            (lastmods(&[5, 3, 1]), within(Some(1), None), Order::Backwards),
            (lastmods(&[5, 3, 1]), within(None, None), Order::Backwards),
            (lastmods(&[5, 3]), within(Some(1), None), Order::Backwards),
            (lastmods(&[5, 1, 3]), within(Some(1), Some(5)), Order::AsWritten),
            (times(&[(None, Some(5)), (None, None), (None, Some(1))]), within(None, None), Order::AsWritten),
            // Some entries without a time: position, unless all that are dated run backwards.
            (times(&[(Some(3), None), (None, None), (Some(1), None)]), within(None, None), Order::Backwards),
            (times(&[(Some(1), None), (None, Some(9)), (Some(3), None)]), within(None, None), Order::AsWritten),
            (
                times(&[(Some(3), None), (None, None), (Some(1), None), (Some(2), None)]),
                within(None, None),
                Order::AsWritten,
            ),
            (times(&[(Some(3), None), (None, None)]), within(None, None), Order::AsWritten),
            (times(&[]), within(None, None), Order::AsWritten),
        ] {
            assert_eq!(order(&list, &about), expected, "{list:?}");
        }
    }

    #[test]
    fn what_happened_to_a_resource_shows_that_a_list_does_not_run_backwards() {
        let one = |lastmod: i64, change, resource| Times {
            lastmod: Some(at(lastmod)),
            change: Some(change),
            resource,
            ..Times::default()
        };
        let restored = [one(9, Change::Created, 1), one(8, Change::Created, 2), one(3, Change::Updated, 1)];
        assert_eq!(order(&restored, &within(None, None)), Order::AsWritten);
        let newest_first = [one(9, Change::Updated, 1), one(8, Change::Created, 2), one(3, Change::Created, 1)];
        assert_eq!(order(&newest_first, &within(None, None)), Order::Backwards);
        assert_eq!(order(&[newest_first[0], newest_first[2]], &within(None, None)), Order::Backwards);
    }

    #[test]
    fn a_moment_of_which_more_is_told_is_gone_through_again() {
        let list =
            times(&[(Some(1), None), (Some(2), None), (None, None), (Some(2), None), (Some(2), None), (Some(5), None)]);
        let again = |done| to_the_beginning_of_a_moment(&list, &Order::AsWritten, done);
        for (done, expected) in [
            (0, (0, None)),
            (1, (1, Some(1))),
            (2, (2, Some(2))),
            (4, (3, Some(2))),
            (5, (5, Some(2))),
            (6, (6, Some(5))),
        ] {
            assert_eq!(again(done), (expected.0, expected.1.map(at)), "{done}");
        }
        let long = times(&vec![(Some(1), None); MOST_AGAIN + 2]);
        let again = |done| to_the_beginning_of_a_moment(&long, &Order::AsWritten, done as u64);
        assert_eq!(again(MOST_AGAIN), (0, None));
        assert_eq!(again(MOST_AGAIN + 1), (MOST_AGAIN as u64 + 1, Some(at(1))));
    }

    #[test]
    fn what_stands_before_an_old_change_is_old() {
        let list = times(&[(Some(1), None), (None, None), (Some(2), None), (None, None), (Some(5), None)]);
        assert_eq!(older(&list, &Order::AsWritten, at(3)), 3);
        assert_eq!(older(&list, &Order::AsWritten, at(1)), 0);
        // One that comes late does not make those before it old.
        let late = times(&[(Some(1), None), (Some(5), None), (None, None), (Some(2), None)]);
        assert_eq!(older(&late, &Order::AsWritten, at(3)), 1);
        let backwards = times(&[(Some(5), None), (None, None), (Some(2), None), (Some(1), None)]);
        assert_eq!(older(&backwards, &Order::Backwards, at(5)), 2);
        let sorted = times(&[(Some(5), None), (Some(1), None), (Some(2), None)]);
        assert_eq!(older(&sorted, &Order::Sorted(vec![1, 2, 0]), at(5)), 2);
    }
}
