//! The names of resources.

use crate::catalog::db::naming::Named;
use crate::catalog::db::tree::NameRow;
use crate::catalog::error::CatalogError;
use crate::catalog::model::ids::NameId;
use crate::catalog::model::record::Record;
use crate::catalog::write::transaction::Transaction;

type Result<T> = std::result::Result<T, CatalogError>;

impl Transaction<'_> {
    /// The row of the name that a resource has, or had, without making anything.
    pub(in crate::catalog) fn find(&mut self, directory: NameId, record: &Record) -> Result<Option<NameRow>> {
        match self.tree.find(&self.transaction, directory, record.path.above())? {
            Some(parent) => Ok(Named::find(&self.transaction, parent, &record.path, &record.uri)?.row),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::model::ids::{DocumentId, SetId};
    use crate::path::Naming;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{Outcome, ROOT, Writer};
    use crate::document::{Datetime, Hashes};
    use crate::path::Mapper;

    fn record(mapper: &Mapper, uri: &str) -> Record {
        Record {
            path: mapper.path(uri).unwrap(),
            uri: uri.to_owned(),
            begin: Datetime::from_nanos(1),
            mtime: Datetime::from_nanos(1),
            dated: 1,
            size: Some(1),
            hashes: Hashes::default(),
            media: None,
            coded: false,
            extra: None,
            mementos: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// The resources of one set, as one list after another has them.
    struct Mirror {
        writer: Writer,
        mapper: Arc<Mapper>,
        rset: SetId,
        moment: i64,
        _folder: tempfile::TempDir,
    }

    impl Mirror {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mapper = Arc::new(Mapper::new("http://example.com/", false).unwrap());
            let mut writer = Writer::open(folder.path(), Arc::clone(&mapper)).unwrap();
            let mut transaction = writer.begin(false).unwrap();
            let rset = transaction.set("k", "l", false).unwrap();
            transaction.commit().unwrap();
            Self { writer, mapper, rset, moment: 1, _folder: folder }
        }

        /// Reads a list; returns how many resources are new.
        fn list(&mut self, uris: &[String]) -> usize {
            self.moment += 1;
            let records: Vec<Record> = uris.iter().map(|uri| record(&self.mapper, uri)).collect();
            let mut transaction = self.writer.begin(false).unwrap();
            let came = transaction.upsert_all(self.rset, ROOT, DocumentId::new(self.moment), &records).unwrap();
            transaction.delete_unseen(self.rset, Datetime::from_nanos(self.moment)).unwrap();
            transaction.commit().unwrap();
            came.iter().filter(|came| came.outcome == Outcome::Added).count()
        }

        /// The path of a resource, without a final `@self`.
        fn path(&self, uri: &str) -> Option<String> {
            let path = self.writer.readers().ask(|reader| reader.path_of_uri(uri, NameId::default())).unwrap()?;
            Some(path.strip_suffix("/@self").map(str::to_owned).unwrap_or(path))
        }
    }

    fn uri(path: &str) -> String {
        format!("http://example.com/{path}")
    }

    #[test]
    fn every_spelling_of_a_name_has_the_plain_one_unless_another_resource_has_it() {
        let mut mirror = Mirror::new();
        let first = ["f%281%29.pdf", "caf%c3%a9/x y.txt", "%41", "B"].map(uri);
        assert_eq!(mirror.list(&first), 4);
        let paths = first.clone().map(|uri| mirror.path(&uri).unwrap());
        assert_eq!(paths, ["f(1).pdf", "café/x y.txt", "A", "B"]);
        // Other spellings get long names, also after a deletion; no file is renamed.
        let later = ["f(1).pdf", "caf%C3%A9/x%20y.txt", "A", "%42", "B"].map(uri);
        assert_eq!(mirror.list(&later), 4);
        for (uri, plain) in later[..4].iter().zip(["f(1)", "café/x y", "A", "B"]) {
            let path = mirror.path(uri).unwrap();
            assert!(path.starts_with(&format!("{plain}~")), "{uri} {path}");
        }
        assert_eq!(mirror.list(&first), 3);
        assert_eq!(first.clone().map(|uri| mirror.path(&uri).unwrap()), paths);
    }

    #[test]
    fn a_cache_keeps_the_long_names_that_it_gave_once() {
        let mut mirror = Mirror::new();
        let spelled = uri("a%28b%29.txt");
        // As every URI was named that is not written as its name encodes to.
        let mut old = record(&mirror.mapper, &spelled);
        old.path.names = vec![old.path.apart(&spelled).into_owned()];
        old.path.naming = Naming::Digest;
        let long = old.path.to_string();
        let mut transaction = mirror.writer.begin(false).unwrap();
        transaction.upsert(mirror.rset, ROOT, DocumentId::new(1), &old).unwrap();
        transaction.commit().unwrap();
        assert_eq!(mirror.list(std::slice::from_ref(&spelled)), 0);
        assert_eq!(mirror.path(&spelled), Some(long));
    }

    fn spelling() -> impl Strategy<Value = String> {
        let atom = prop::sample::select(vec!["a", "%61", "/", "b", "%62", "%28", "(", ".x", "?", "%3F", "é", "%C3%A9"]);
        prop::collection::vec(atom, 1..5).prop_map(|atoms| uri(&atoms.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_resource_keeps_its_path_and_shares_it_with_none(
            lists in prop::collection::vec(prop::collection::vec(spelling(), 0..30), 1..6),
        ) {
            let mut mirror = Mirror::new();
            let mut known: BTreeMap<String, String> = BTreeMap::new();
            for list in &lists {
                let there: BTreeSet<&String> = list.iter().collect();
                let before = known.len();
                let back = there.iter().filter(|uri| known.contains_key(**uri) && mirror.path(uri).is_none()).count();
                let added = mirror.list(list);
                for uri in &there {
                    let path = mirror.path(uri);
                    prop_assert!(path.is_some(), "{} has no path", uri);
                    let path = path.unwrap_or_default();
                    let first = known.entry((*uri).clone()).or_insert_with(|| path.clone());
                    prop_assert_eq!(&path, &*first, "{} was renamed", uri);
                }
                prop_assert_eq!(known.len() - before + back, added);
                let paths: BTreeSet<&String> = known.values().collect();
                prop_assert_eq!(paths.len(), known.len(), "two share a path: {:?}", known);
                prop_assert_eq!(mirror.writer.readers().ask(|reader| reader.check()).unwrap(), Vec::<String>::new());
            }
        }
    }
}
