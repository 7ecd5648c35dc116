//! In which order the changes of a list happened (core 12.1), and which of them are in the tree already.
//!
//! Position is the order. A list that runs backwards throughout is reversed whole. `datetime` reorders only
//! where every entry has one; `lastmod`, which may be years old for a resource just created, only where no
//! entry has a `datetime` and all lie in the interval of the list.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};

use sha2::{Digest as _, Sha256};

use super::lists::{About, Budget, Spooled};
use crate::bounds::{self, Beyond};
use crate::catalog::{Beginning, Feed};
use crate::document::{Datetime, DocumentError, Entry, Facts, Reader, Warnings};
use crate::store::Store;

/// The most changes of one moment that are gone through again when more of that moment is told.
const MOST_AGAIN: usize = 10_000;

/// Yields the processor every eight entries. Reading a long list takes seconds; without this, a reader of the mount waits
/// until the thread has used its time slice, which is several ms.
fn yield_between_entries(number: usize) {
    if number.is_multiple_of(8) {
        std::thread::yield_now();
    }
}

/// What a first look through a list finds.
#[derive(Debug)]
pub(super) struct Survey {
    /// How many entries it has, as far as it can be read.
    pub(super) entries: u64,
    /// What tells these entries from others.
    pub(super) digest: [u8; 32],
    /// The beginning of it that is known to be in the tree.
    pub(super) known: Option<Beginning>,
    /// The order in which its changes happened.
    pub(super) order: Order,
    /// Whether `lastmod` is when a change happened.
    pub(super) by_lastmod: bool,
    /// So many changes, in that order, are in the tree.
    pub(super) done: u64,
    /// The time of the newest of those.
    pub(super) before: Option<Datetime>,
    /// Bytes of the resources that are left, as far as they are listed, and how many those are.
    pub(super) bytes: u64,
    /// Why it cannot be read to its end.
    cut: Option<String>,
}

impl Survey {
    /// Why nothing of it may be applied: what cannot be read of a list in another order than that of its changes happened
    /// before some that can, and a tree that lacks it is none that the Source ever had.
    pub(super) fn unusable(&self) -> Option<&str> {
        self.cut.as_deref().filter(|_| self.order != Order::AsWritten)
    }

    /// Why it cannot be read to its end.
    pub(super) fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Changes that may be new.
    pub(super) fn left(&self) -> u64 {
        self.entries.saturating_sub(self.done)
    }
}

/// The order in which the changes of a list happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AsWritten,
    Backwards,
    /// Places in the list, from the oldest change to the newest.
    Sorted(Vec<u32>),
}

/// The times of one entry.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    datetime: Option<Datetime>,
    lastmod: Option<Datetime>,
}

/// Why a list could not be looked through.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsurveyed {
    #[error("{0}")]
    Disk(#[from] std::io::Error),
    #[error(transparent)]
    Beyond(#[from] Beyond),
}

/// Looks through a list. What is older than `floor` is in the tree; so is what `feed` remembers of it.
///
/// # Errors
/// If it cannot be read from the disk, or the step reads too much.
pub(super) fn survey(
    document: &Spooled,
    feed: &Feed,
    floor: Option<Datetime>,
    budget: &Budget,
) -> Result<Survey, Unsurveyed> {
    let file = File::open(&document.path)?;
    let mut times = Vec::new();
    let mut lengths = 0_u64;
    // A list that was given another name begins where it did; two lists of the same few words do not.
    let mut hasher = Sha256::new();
    match document.about.from {
        Some(from) => hasher.update(from.nanos().to_le_bytes()),
        None => hasher.update(&document.row.url),
    }
    let mut known = None;
    let mut skipped = Warnings::default();
    let mut cut = None;
    // Whoever applies the entries says what is wrong with them, and where the list breaks off.
    if let Ok(mut reader) = document.reader(&file, &document.row.url) {
        loop {
            let entry = match reader.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error) => {
                    cut = Some(error.to_string());
                    break;
                }
            };
            budget.take()?;
            yield_between_entries(times.len());
            if times.len() as u64 >= document.bounds.changes {
                return Err(bounds::CHANGES.passed("the number of changes of one list", &document.bounds).into());
            }
            let facts = Facts::of_entry(&entry, &mut skipped);
            let datetime = facts.datetime.or(facts.lastmod.filter(|_| document.about.by_lastmod));
            times.push(Times { datetime, lastmod: facts.lastmod });
            lengths = lengths.saturating_add(facts.length.unwrap_or(0));
            digest(&mut hasher, &entry);
            let entries = times.len() as u64;
            if feed.read.iter().any(|beginning| beginning.entries == entries) {
                let beginning = Beginning { entries, digest: hasher.clone().finalize().into() };
                if feed.read.contains(&beginning) {
                    known = Some(beginning);
                    lengths = 0;
                }
            }
        }
    }
    let (order, by_lastmod) = order(&times, &document.about);
    let by_lastmod = by_lastmod || document.about.by_lastmod;
    let whole = times.len() as u64;
    // In another order than the written one, only all of it says which changes those are.
    let in_order = |known: &Beginning| order == Order::AsWritten || known.entries == whole;
    let old = floor.map_or(0, |floor| older(&times, &order, by_lastmod, floor));
    let done = known.filter(in_order).map_or(0, |known| known.entries).max(old);
    let (done, before) = to_the_beginning_of_a_moment(&times, &order, by_lastmod, done);
    Ok(Survey {
        entries: times.len() as u64,
        digest: hasher.finalize().into(),
        known,
        before,
        order,
        by_lastmod,
        done,
        bytes: lengths,
        cut,
    })
}

impl Order {
    /// What stands at the places of a list, from the oldest change to the newest.
    fn walk<'t>(&'t self, times: &'t [Times]) -> Box<dyn Iterator<Item = &'t Times> + 't> {
        match self {
            Self::AsWritten => Box::new(times.iter()),
            Self::Backwards => Box::new(times.iter().rev()),
            Self::Sorted(places) => Box::new(places.iter().filter_map(|place| times.get(*place as usize))),
        }
    }
}

/// When a change happened, if its entry says so.
fn moment(times: &Times, by_lastmod: bool) -> Option<Datetime> {
    times.datetime.or(times.lastmod.filter(|_| by_lastmod))
}

/// Everything before the first change that is not older than `floor`, up to the last of it that says it is.
fn older(times: &[Times], order: &Order, by_lastmod: bool, floor: Datetime) -> u64 {
    let mut old = 0;
    for (place, times) in (1..).zip(order.walk(times)) {
        match moment(times, by_lastmod) {
            Some(moment) if moment < floor => old = place,
            Some(_) => break,
            None => {}
        }
    }
    old
}

/// How much of what is known need not be gone through again, and the time of the newest of that. What came last at one moment
/// only all that happened at that moment tells: a list that was read up to its middle is read from there.
fn to_the_beginning_of_a_moment(
    times: &[Times],
    order: &Order,
    by_lastmod: bool,
    done: u64,
) -> (u64, Option<Datetime>) {
    let known = usize::try_from(done).unwrap_or(usize::MAX);
    let mut moments: Vec<Option<Datetime>> =
        order.walk(times).take(known.saturating_add(1)).map(|one| moment(one, by_lastmod)).collect();
    let next = if moments.len() > known { moments.pop().flatten() } else { None };
    let again = moments.iter().rev().take_while(|one| one.is_some() && **one == next).count();
    let again = if again <= MOST_AGAIN { again } else { 0 };
    moments.truncate(moments.len() - again);
    (done - again as u64, moments.into_iter().flatten().max())
}

fn order(times: &[Times], about: &About) -> (Order, bool) {
    let dated = times.iter().filter(|times| times.datetime.is_some()).count();
    if dated == times.len() {
        return (by(times.iter().filter_map(|times| times.datetime)), false);
    }
    let inside = |moment: Datetime| {
        about.from.is_some_and(|from| from <= moment) && about.until.is_none_or(|until| moment <= until)
    };
    if dated == 0 && times.iter().all(|times| times.lastmod.is_some_and(inside)) {
        return (by(times.iter().filter_map(|times| times.lastmod)), true);
    }
    let known: Vec<Datetime> = times.iter().filter_map(|times| times.datetime).collect();
    let backwards = known.windows(2).all(|pair| pair[0] >= pair[1]) && known.first() > known.last();
    (if backwards { Order::Backwards } else { Order::AsWritten }, false)
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

fn digest(hasher: &mut Sha256, entry: &Entry) {
    let mut add = |text: &str| {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    add(&entry.loc);
    add(entry.lastmod.as_deref().unwrap_or_default());
    let mut pairs = |attributes: &crate::document::Attributes| {
        attributes.iter().for_each(|(name, value)| {
            add(name);
            add(value);
        });
        add("");
    };
    pairs(&entry.md);
    entry.links.iter().for_each(|link| pairs(&link.0));
}

/// Why changes could not be read on.
#[derive(Debug)]
pub(super) enum Broken {
    /// The list breaks off.
    Document(DocumentError),
    /// It could not be brought into order here.
    Disk(std::io::Error),
}

/// Visits the entries of a list that are not known to be in the tree, in the order in which the changes
/// happened, until `visit` fails.
///
/// # Errors
/// What `visit` returns. Where the list breaks off is the second part of the answer.
pub(super) fn each<E>(
    document: &Spooled,
    survey: &Survey,
    store: &Store,
    warnings: &mut Warnings,
    mut visit: impl FnMut(Entry, &mut Warnings) -> Result<(), E>,
) -> Result<Option<Broken>, E> {
    let file = match File::open(&document.path) {
        Ok(file) => file,
        Err(error) => return Ok(Some(Broken::Disk(error))),
    };
    let mut reader = match document.reader(&file, &document.row.url) {
        Ok(reader) => reader,
        Err(error) => return Ok(Some(Broken::Document(error))),
    };
    let places = match &survey.order {
        Order::AsWritten => None,
        Order::Backwards => Some((0..u32::try_from(survey.entries).unwrap_or(u32::MAX)).rev().collect()),
        Order::Sorted(places) => Some(places.clone()),
    };
    let Some(places) = places else {
        let mut place = 0;
        return loop {
            match reader.next() {
                Ok(None) => break Ok(None),
                Err(error) => break Ok(Some(Broken::Document(error))),
                Ok(Some(entry)) => {
                    yield_between_entries(place);
                    place += 1;
                    if place as u64 > survey.done {
                        visit(entry, warnings)?;
                    }
                }
            }
        };
    };
    let mut staged = match Staged::new(store, &mut reader) {
        Ok(staged) => staged,
        Err(error) => return Ok(Some(Broken::Disk(error))),
    };
    let done = usize::try_from(survey.done).unwrap_or(usize::MAX);
    for (number, place) in places.into_iter().enumerate().skip(done) {
        yield_between_entries(number);
        match staged.entry(place) {
            Ok(Some(entry)) => visit(entry, warnings)?,
            Ok(None) => {}
            Err(error) => return Ok(Some(Broken::Disk(error))),
        }
    }
    Ok(staged.broken.map(Broken::Document))
}

/// The entries of a list on the disk, so that they can be read in another order than they were written in.
struct Staged {
    lines: BufReader<File>,
    offsets: Vec<u64>,
    broken: Option<DocumentError>,
}

impl Staged {
    fn new(store: &Store, reader: &mut Reader<'_>) -> std::io::Result<Self> {
        let mut file = BufWriter::new(store.spool()?.into_file());
        let mut offsets = Vec::new();
        let mut offset = 0;
        let broken = loop {
            match reader.next() {
                Ok(None) => break None,
                Err(error) => break Some(error),
                Ok(Some(entry)) => {
                    let mut line = serde_json::to_vec(&entry)?;
                    line.push(b'\n');
                    file.write_all(&line)?;
                    offsets.push(offset);
                    offset += line.len() as u64;
                }
            }
        };
        let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok(Self { lines: BufReader::new(file), offsets, broken })
    }

    fn entry(&mut self, place: u32) -> std::io::Result<Option<Entry>> {
        let Some(offset) = self.offsets.get(place as usize) else { return Ok(None) };
        self.lines.seek(SeekFrom::Start(*offset))?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(Some(serde_json::from_str(&line)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Datetime {
        Datetime::from_nanos(second * 1_000_000_000)
    }

    fn times(list: &[(Option<i64>, Option<i64>)]) -> Vec<Times> {
        list.iter().map(|(datetime, lastmod)| Times { datetime: datetime.map(at), lastmod: lastmod.map(at) }).collect()
    }

    fn within(from: Option<i64>, until: Option<i64>) -> About {
        About { from: from.map(at), until: until.map(at), ..About::default() }
    }

    #[test]
    fn position_is_the_order_unless_every_entry_is_dated_or_the_list_runs_backwards() {
        let lastmods = |list: &[i64]| times(&list.iter().map(|one| (None, Some(*one))).collect::<Vec<_>>());
        let datetimes = |list: &[i64]| times(&list.iter().map(|one| (Some(*one), None)).collect::<Vec<_>>());
        for (list, about, expected, by_lastmod) in [
            (datetimes(&[1, 2, 2, 3]), within(None, None), Order::AsWritten, false),
            (datetimes(&[3, 2, 2, 1]), within(None, None), Order::Backwards, false),
            (datetimes(&[2, 1, 3, 1]), within(None, None), Order::Sorted(vec![1, 3, 0, 2]), false),
            // `lastmod` counts only within the interval of the list.
            (lastmods(&[5, 3, 1]), within(Some(1), None), Order::Backwards, true),
            (lastmods(&[5, 1, 3]), within(Some(1), Some(5)), Order::Sorted(vec![1, 2, 0]), true),
            (lastmods(&[5, 3, 1]), within(Some(2), None), Order::AsWritten, false),
            (lastmods(&[5, 3, 1]), within(Some(1), Some(4)), Order::AsWritten, false),
            (lastmods(&[5, 3, 1]), within(None, None), Order::AsWritten, false),
            // Some entries without a time: position, unless all that are dated run backwards.
            (times(&[(Some(3), None), (None, None), (Some(1), None)]), within(None, None), Order::Backwards, false),
            (times(&[(Some(1), None), (None, Some(9)), (Some(3), None)]), within(None, None), Order::AsWritten, false),
            (
                times(&[(Some(3), None), (None, None), (Some(1), None), (Some(2), None)]),
                within(None, None),
                Order::AsWritten,
                false,
            ),
            (times(&[(Some(3), None), (None, None)]), within(None, None), Order::AsWritten, false),
            (times(&[]), within(None, None), Order::AsWritten, false),
        ] {
            assert_eq!(order(&list, &about), (expected, by_lastmod), "{list:?}");
        }
    }

    #[test]
    fn a_moment_of_which_more_is_told_is_gone_through_again() {
        let list =
            times(&[(Some(1), None), (Some(2), None), (None, None), (Some(2), None), (Some(2), None), (Some(5), None)]);
        let again = |done| to_the_beginning_of_a_moment(&list, &Order::AsWritten, false, done);
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
        let again = |done| to_the_beginning_of_a_moment(&long, &Order::AsWritten, false, done as u64);
        assert_eq!(again(MOST_AGAIN), (0, None));
        assert_eq!(again(MOST_AGAIN + 1), (MOST_AGAIN as u64 + 1, Some(at(1))));
    }

    #[test]
    fn what_stands_before_an_old_change_is_old() {
        let list = times(&[(Some(1), None), (None, None), (Some(2), None), (None, None), (Some(5), None)]);
        assert_eq!(older(&list, &Order::AsWritten, false, at(3)), 3);
        assert_eq!(older(&list, &Order::AsWritten, false, at(1)), 0);
        // One that comes late does not make those before it old.
        let late = times(&[(Some(1), None), (Some(5), None), (None, None), (Some(2), None)]);
        assert_eq!(older(&late, &Order::AsWritten, false, at(3)), 1);
        let backwards = times(&[(Some(5), None), (None, None), (Some(2), None), (Some(1), None)]);
        assert_eq!(older(&backwards, &Order::Backwards, false, at(5)), 2);
        let sorted = times(&[(Some(5), None), (Some(1), None), (Some(2), None)]);
        assert_eq!(older(&sorted, &Order::Sorted(vec![1, 2, 0]), false, at(5)), 2);
    }
}
