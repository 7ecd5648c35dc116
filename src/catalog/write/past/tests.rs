//! Archives compared with a model: which versions were current, and how they are laid out in directories.

use crate::catalog::model::ids::{DocumentId, NameId, SetId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::catalog::{Filter, Node, ROOT, Reader, SetState, SyncResult, Wish, Writer};
use crate::path::Mapper;

const PATHS: [&str; 6] = ["a", "a/b", "a/b/c", "a/d", "b/", "c/d/e"];
/// When the list was made that the mirror was first filled from.
const FIRST: i64 = 100;

/// Of each path, what it was from a moment on: its size, or nothing.
type History = BTreeMap<usize, BTreeMap<i64, Option<u64>>>;

fn history() -> impl Strategy<Value = History> {
    let event = prop_oneof![2 => (10_u64..13).prop_map(Some), 1 => Just(None)];
    let events = prop::collection::btree_map(1..FIRST, event, 1..6);
    prop::collection::btree_map(0..PATHS.len(), events, 1..PATHS.len())
}

fn truth(history: &History, moment: i64) -> BTreeMap<usize, (i64, u64)> {
    let last = |events: &BTreeMap<i64, Option<u64>>| {
        let (begin, what) = events.range(..=moment).next_back()?;
        what.map(|size| (*begin, size))
    };
    history.iter().filter_map(|(path, events)| Some((*path, last(events)?))).collect()
}

fn record(mapper: &Mapper, path: usize, (begin, size): (i64, u64)) -> Record {
    let uri = format!("http://example.com/{}", PATHS[path]);
    Record {
        path: mapper.path(&uri).unwrap(),
        uri,
        begin: Datetime::from_nanos(begin),
        mtime: Datetime::from_nanos(begin),
        dated: 1,
        size: Some(size),
        hashes: Hashes::parse(&format!("md5:{size:032x}"), &mut Vec::new()),
        media: None,
        coded: false,
        extra: None,
        mementos: Vec::new(),
        targets: Vec::new(),
    }
}

fn names(mapper: &Mapper, path: usize) -> String {
    mapper.path(&format!("http://example.com/{}", PATHS[path])).unwrap().names.join("/")
}

/// The names expected where these versions are current, less those that the filter leaves out.
fn layout(
    mapper: &Mapper,
    there: &BTreeMap<usize, (i64, u64)>,
    hides: impl Fn(&str) -> bool,
) -> BTreeSet<(String, u64)> {
    let is_prefix = |path: &str| there.keys().any(|other| names(mapper, *other).starts_with(&format!("{path}/")));
    there
        .iter()
        .map(|(path, (_, size))| (names(mapper, *path), *size))
        .filter(|(path, _)| !hides(path))
        .map(|(path, size)| if is_prefix(&path) { (format!("{path}/@self"), size) } else { (path, size) })
        .collect()
}

fn walk(writer: &Writer, directory: NameId, moment: i64, at: &str, found: &mut BTreeSet<(String, u64)>) {
    let mut below = Vec::new();
    let list = |reader: &Reader| {
        reader.list_at(directory, Datetime::from_nanos(moment), None, |entry| {
            below.push(entry);
            true
        })
    };
    writer.readers().ask(list).unwrap();
    for entry in below {
        let same = writer
            .readers()
            .ask(|reader| reader.lookup_at(directory, &entry.name, Datetime::from_nanos(moment)))
            .unwrap();
        assert_eq!(same.map(|node| node.ino()), Some(entry.node.ino()), "{at}/{} at {moment}", entry.name);
        let path = if at.is_empty() { entry.name.clone() } else { format!("{at}/{}", entry.name) };
        match entry.node {
            Node::File { size, .. } => drop(found.insert((path, size.unwrap()))),
            Node::Directory { .. } => walk(writer, NameId::new(entry.cookie), moment, &path, found),
        }
    }
}

fn shown(writer: &Writer, moment: i64) -> BTreeSet<(String, u64)> {
    let mut found = BTreeSet::new();
    walk(writer, ROOT, moment, "", &mut found);
    found
}

/// Reads a list of the current edition, as a sync does.
fn sync(writer: &mut Writer, rset: SetId, mapper: &Mapper, there: &BTreeMap<usize, (i64, u64)>, at: i64) {
    let mut transaction = writer.begin(false).unwrap();
    let records: Vec<Record> = there.iter().map(|(path, facts)| record(mapper, *path, *facts)).collect();
    transaction.upsert_all(rset, ROOT, DocumentId::new(at), &records).unwrap();
    let at = Datetime::from_nanos(at);
    transaction.delete_unseen(rset, at).unwrap();
    let result =
        SyncResult { state: SetState::Complete, cursor: Some(at), at: Some(at), held: None, held_edition: None };
    transaction.finish_set(rset, &result).unwrap();
    transaction.commit().unwrap();
}

/// Tells the changes of a moment.
fn told_then(transaction: &mut Transaction<'_>, past: &mut Past, mapper: &Mapper, history: &History, moment: i64) {
    for (path, events) in history {
        let Some(what) = events.get(&moment) else { continue };
        let kind = match (what, truth(history, moment - 1).contains_key(path)) {
            (Some(_), true) => Change::Updated,
            (Some(_), false) => Change::Created,
            (None, true) => Change::Deleted,
            (None, false) => continue,
        };
        let record = record(mapper, *path, (moment, what.unwrap_or(0)));
        let version = transaction.changed_then(past, &record, kind).unwrap();
        assert_eq!(version.is_some(), kind != Change::Deleted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// A mirror is made, archives are read, and it goes on.
    #[test]
    fn what_archives_tell_is_seen_as_of_its_time(
        history in history(),
        lists in prop::collection::btree_set(1..FIRST, 1..4),
        changes in any::<bool>(),
        filtered in any::<bool>(),
        next in prop::collection::btree_map(0..PATHS.len(), 20_u64..23, 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
        let mut writer = Writer::open(folder.path(), Arc::clone(&mapper)).unwrap();
        if filtered {
            let wish = Wish { exclude: vec!["/a/b".to_owned(), "e".to_owned()], ..Wish::default() };
            writer.set_filter(Arc::new(Filter::new(wish).unwrap()));
        }
        let hides = |path: &str| filtered && (path == "a/b" || path.starts_with("a/b/") || path.ends_with("/e"));
        let mut transaction = writer.begin(false).unwrap();
        let rset = transaction.set("k", "l", false).unwrap();
        transaction.commit().unwrap();
        sync(&mut writer, rset, &mapper, &truth(&history, FIRST), FIRST);
        let before = shown(&writer, FIRST);
        let mut past = Past::new(rset, ROOT, &writer.readers().ask(|reader| reader.reach(rset)).unwrap());
        let happened = |moment: &i64| changes && history.values().any(|events| events.contains_key(moment));
        for moment in (0..FIRST).filter(|moment| lists.contains(moment) || happened(moment)) {
            let mut transaction = writer.begin(false).unwrap();
            if lists.contains(&moment) {
                past.begin_list();
                let at = Datetime::from_nanos(moment);
                for (path, facts) in truth(&history, moment) {
                    transaction.listed_then(&mut past, at, &record(&mapper, path, facts)).unwrap();
                }
                let mut after = Some(NameId::default());
                while let Some(last) = after {
                    after = transaction.absent_then(&mut past, at, last).unwrap();
                }
            }
            if changes {
                told_then(&mut transaction, &mut past, &mapper, &history, moment);
            }
            transaction.commit().unwrap();
            let found = writer.readers().ask(|reader| reader.check()).unwrap();
            prop_assert_eq!(found, Vec::<String>::new(), "at {}", moment);
        }
        prop_assert_eq!(&shown(&writer, FIRST), &before, "the present is another");
        let known: BTreeSet<i64> = if changes { (0..=FIRST).collect() } else { lists.clone() };
        for moment in &known {
            let expected = layout(&mapper, &truth(&history, *moment), hides);
            prop_assert_eq!(shown(&writer, *moment), expected, "at {}", moment);
        }
        // What comes next makes files of directories, and directories of files.
        let next: BTreeMap<usize, (i64, u64)> = next.into_iter().map(|(path, size)| (path, (FIRST + 5, size))).collect();
        sync(&mut writer, rset, &mapper, &next, FIRST + 10);
        let found = writer.readers().ask(|reader| reader.check()).unwrap();
        prop_assert_eq!(found, Vec::<String>::new());
        prop_assert_eq!(shown(&writer, FIRST + 10), layout(&mapper, &next, hides));
        for moment in known {
            let expected = layout(&mapper, &truth(&history, moment), hides);
            prop_assert_eq!(shown(&writer, moment), expected, "at {}, later", moment);
        }
    }
}

#[test]
fn what_a_filter_leaves_out_of_the_past_stays_left_out_when_a_file_becomes_a_directory() {
    let history: History =
        BTreeMap::from([(1, BTreeMap::from([(1, Some(10))])), (2, BTreeMap::from([(1, Some(10)), (2, None)]))]);
    let folder = tempfile::tempdir().unwrap();
    let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
    let mut writer = Writer::open(folder.path(), Arc::clone(&mapper)).unwrap();
    let wish = Wish { exclude: vec!["/a/b".to_owned()], ..Wish::default() };
    writer.set_filter(Arc::new(Filter::new(wish).unwrap()));
    let mut transaction = writer.begin(false).unwrap();
    let rset = transaction.set("k", "l", false).unwrap();
    transaction.commit().unwrap();
    sync(&mut writer, rset, &mapper, &truth(&history, FIRST), FIRST);
    let mut past = Past::new(rset, ROOT, &writer.readers().ask(|reader| reader.reach(rset)).unwrap());
    let mut transaction = writer.begin(false).unwrap();
    past.begin_list();
    let at = Datetime::from_nanos(1);
    for (path, facts) in truth(&history, 1) {
        transaction.listed_then(&mut past, at, &record(&mapper, path, facts)).unwrap();
    }
    let mut after = Some(NameId::default());
    while let Some(last) = after {
        after = transaction.absent_then(&mut past, at, last).unwrap();
    }
    transaction.commit().unwrap();
    assert_eq!(shown(&writer, 1), BTreeSet::new());
    sync(&mut writer, rset, &mapper, &BTreeMap::new(), FIRST + 10);
    assert_eq!(shown(&writer, 1), BTreeSet::new(), "gone");
    sync(&mut writer, rset, &mapper, &BTreeMap::from([(2, (FIRST + 15, 20))]), FIRST + 20);
    assert_eq!(writer.readers().ask(|reader| reader.check()).unwrap(), Vec::<String>::new());
    assert_eq!(shown(&writer, 1), BTreeSet::new(), "directory");
}
