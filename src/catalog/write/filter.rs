//! Applies a filter to what is there.

use crate::catalog::db::numbers::own;
use crate::catalog::model::ids::{NameId, SetId};
use crate::document::Datetime;
use rusqlite::params;

use crate::catalog::db::meta::{KEY, meta, selected_key, set_meta};
use crate::catalog::db::names::names;
use crate::catalog::error::CatalogError;
use crate::catalog::model::filter::Seen;
use crate::catalog::model::inode::ROOT;
use crate::catalog::model::record::Record;
use crate::catalog::write::transaction::Transaction;
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// How many names are looked at in one go.
pub(in crate::catalog) const PAGE: i64 = 10_000;

impl Transaction<'_> {
    /// Notes for which selection lists of a set were left alone; none if all were read.
    pub fn note_selected(&self, rset: SetId, selected: &[String]) -> Result<()> {
        set_meta(self.connection(), &selected_key(rset), &selected.join("\n"))
    }

    /// Whether the filter leaves a resource out that is called `name` in its directory. `directory` is its set's.
    pub(in crate::catalog) fn leaves_out(&mut self, directory: NameId, name: &str, record: &Record) -> Result<bool> {
        if self.filter.is_for_all() {
            return Ok(false);
        }
        let mut path = if directory == ROOT { Vec::new() } else { names(self.connection(), directory, ROOT)? };
        path.extend(record.path.above().iter().cloned());
        path.push(if name == SELF { record.path.leaf() } else { name }.to_owned());
        Ok(!self.filter.admits(&Seen {
            path: &path.join("/"),
            media: record.media.as_deref(),
            modified: record.mtime,
            extra: record.extra.as_deref(),
            uri: &record.uri,
        }))
    }

    /// Shows a file, or leaves it out, by what its current version is.
    pub(in crate::catalog) fn judge(&mut self, name: NameId) -> Result<()> {
        if self.filter.is_for_all() {
            return Ok(());
        }
        let Some(file) = self.files_from(name.number() - 1, 1)?.pop().filter(|file| file.id == name && file.live)
        else {
            return Ok(());
        };
        let left_out = self.is_left_out(&file)?;
        self.show(file.rset, (file.parent, &file.name), file.id, left_out)
    }

    fn is_left_out(&self, file: &File) -> Result<bool> {
        let mut path = names(self.connection(), file.id, ROOT)?;
        path.pop_if(|last| last == SELF);
        // Only the links of collections are relative to it.
        let uri = if self.filter.wish().collections.is_empty() {
            String::new()
        } else {
            self.uri_of_resource(file.resource)?
        };
        Ok(!self.filter.admits(&Seen {
            path: &path.join("/"),
            media: file.media.as_deref(),
            modified: file.modified,
            extra: file.extra.as_deref(),
            uri: &uri,
        }))
    }

    /// Shows a live file, or leaves it out.
    pub(in crate::catalog) fn show(
        &mut self,
        rset: SetId,
        (parent, name): (NameId, &str),
        id: NameId,
        left_out: bool,
    ) -> Result<()> {
        let before: i64 = self
            .connection()
            .prepare_cached("SELECT hidden FROM name WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        if (before > 0) == left_out {
            return Ok(());
        }
        self.mark(rset, parent, id, left_out)?;
        // So it is as of all moments, and wherever else its name is known.
        self.tree.changes.from(Datetime::MIN);
        self.tree.changes.too_many = true;
        self.tree.count(&self.transaction, parent, name, 0)
    }

    /// Notes of a live file that it is left out, or is not any more.
    pub(in crate::catalog) fn mark(&mut self, rset: SetId, parent: NameId, id: NameId, left_out: bool) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE name SET hidden = ?2 WHERE id = ?1")?
            .execute(params![id, left_out])?;
        self.hide(rset, parent, if left_out { 1 } else { -1 })
    }

    /// So many more live files of a directory are left out.
    pub(in crate::catalog) fn hide(&mut self, rset: SetId, parent: NameId, count: i64) -> Result<()> {
        self.tree.hide(&self.transaction, parent, count)?;
        *self.left_out.entry(rset).or_insert(0) += count;
        Ok(())
    }

    /// Shows what the filter of this step admits, and nothing else, if that is not so already. Returns whether anything was
    /// to be done.
    pub fn refilter(&mut self) -> Result<bool> {
        let wanted = self.filter.wish().text();
        let known = meta(self.connection(), KEY)?.unwrap_or_default();
        if known == wanted {
            return Ok(false);
        }
        let mut after = 0;
        loop {
            let page = self.files_from(after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.id.number();
            for file in page {
                let left_out = self.is_left_out(&file)?;
                if file.live {
                    self.show(file.rset, (file.parent, &file.name), file.id, left_out)?;
                    continue;
                }
                let flipped = self
                    .connection()
                    .prepare_cached("UPDATE name SET hidden = ?2 WHERE id = ?1 AND hidden != ?2")?
                    .execute(params![file.id, left_out])?;
                if flipped > 0 {
                    self.tree.changes.too_many = true;
                    self.tree.count(&self.transaction, file.parent, &file.name, 0)?;
                }
            }
        }
        set_meta(self.connection(), KEY, &wanted)?;
        self.tree.changes.from(Datetime::MIN);
        Ok(true)
    }

    /// Names after this one that are, or last were, files. What was in force last of a resource that is a directory by now lies
    /// with that, or with `@self` in it.
    fn files_from(&self, after: i64, limit: i64) -> Result<Vec<File>> {
        let mut statement = self.connection().prepare_cached(concat!(
            "SELECT n.id, n.parent, n.name, n.rset, n.version IS NOT NULL, v.mtime, t.type, v.extra
             FROM name n JOIN version v ON v.id = COALESCE(n.version,
                 (SELECT id FROM version WHERE name = n.id AND until IS NOT NULL AND ",
            own!("change"),
            "
                  ORDER BY begin DESC, id DESC LIMIT 1),
                 (SELECT id FROM version WHERE n.name = ?3 AND name = n.parent AND until IS NOT NULL
                  AND ",
            own!("change"),
            " ORDER BY begin DESC, id DESC LIMIT 1))
             LEFT JOIN media t ON t.id = v.media
             WHERE n.id > ?1 AND n.live = 0 ORDER BY n.id LIMIT ?2"
        ))?;
        let rows = statement.query_map(params![after, limit, SELF], |row| {
            let (id, parent, name): (NameId, NameId, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(File {
                id,
                parent,
                resource: if name == SELF { parent } else { id },
                name,
                rset: row.get(3)?,
                live: row.get(4)?,
                modified: row.get(5)?,
                media: row.get(6)?,
                extra: row.get(7)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// A name that is a file, or was one.
pub(in crate::catalog) struct File {
    id: NameId,
    parent: NameId,
    /// The number that its resource goes by.
    resource: NameId,
    name: String,
    rset: SetId,
    live: bool,
    modified: Datetime,
    media: Option<String>,
    extra: Option<String>,
}

#[cfg(test)]
mod tests {
    use crate::catalog::model::filter::{Filter, Wish, is_member, is_of_type};
    use crate::catalog::model::ids::DocumentId;
    use crate::document::Datetime;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::{Node, Writer, directory_ino};
    use crate::document::Hashes;
    use crate::path::Mapper;

    fn filter(include: &[&str], exclude: &[&str], types: &[&str], newer: Option<i64>) -> Filter {
        let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let wish = Wish {
            include: texts(include),
            exclude: texts(exclude),
            types: texts(types),
            collections: Vec::new(),
            newer: newer.map(Datetime::from_nanos),
        };
        Filter::new(wish).unwrap()
    }

    #[test]
    fn patterns_are_as_in_a_shell() {
        for (pattern, matches, others) in [
            ("*.pdf", vec!["a.pdf", "a/b/c.pdf", "a.pdf/x"], vec!["a.pdfx", "pdf"]),
            ("data", vec!["data", "data/a", "x/data/a/b"], vec!["data2", "x/mydata"]),
            ("data/2013", vec!["data/2013", "data/2013/a/b"], vec!["x/data/2013", "data/20134"]),
            ("/data/", vec!["data/a"], vec!["x/data/a"]),
            ("data/*/a.xml", vec!["data/x/a.xml"], vec!["data/x/y/a.xml", "data/a.xml"]),
            ("data/**/a.xml", vec!["data/a.xml", "data/x/y/a.xml"], vec!["a.xml"]),
            ("[ab]?", vec!["a1", "x/b2"], vec!["c1", "a12"]),
            ("ä*", vec!["ärger"], vec!["a"]),
        ] {
            let filter = filter(&[pattern], &[], &[], None);
            let admits =
                |path| filter.admits(&Seen { path, media: None, modified: Datetime::EPOCH, extra: None, uri: "" });
            assert!(matches.iter().all(|path| admits(path)), "{pattern} {matches:?}");
            assert!(!others.iter().any(|path| admits(path)), "{pattern} {others:?}");
        }
        assert!(Filter::new(Wish { include: vec!["a[".to_owned()], ..Wish::default() }).is_err());
    }

    #[test]
    fn types_and_collections_are_named_as_people_name_them() {
        for (media, wanted, is) in [
            ("image/png", "image/*", true),
            ("image/png", "IMAGE/PNG", true),
            ("text/html; charset=utf-8", "text/html", true),
            ("imagery/png", "image/*", false),
            ("image/png", "image/p*", false),
        ] {
            assert_eq!(is_of_type(media, wanted), is, "{media} {wanted}");
        }
        let extra = r#"{"links":[{"rel":"up collection","href":"http://e.com/sets/One.html"},{"rel":"alternate","href":"http://e.com/x"}]}"#;
        for (wanted, is) in
            [("http://e.com/sets/One.html", true), ("One", true), ("one", false), ("x", false), ("sets", false)]
        {
            let seen =
                Seen { path: "", media: None, modified: Datetime::EPOCH, extra: Some(extra), uri: "http://e.com/x/y" };
            assert_eq!(is_member(&seen, &[wanted.to_owned()]), is, "{wanted}");
        }
    }

    /// What a directory has, with all below it.
    fn walk(writer: &Writer, directory: NameId, at: &str, found: &mut BTreeSet<String>) {
        let mut below = Vec::new();
        writer
            .readers()
            .ask(|reader| {
                reader.list(directory, None, |entry| {
                    below.push(entry);
                    true
                })
            })
            .unwrap();
        assert!(!below.is_empty() || at.is_empty(), "{at} is shown, and nothing of it");
        for entry in below {
            let path = if at.is_empty() { entry.name.clone() } else { format!("{at}/{}", entry.name) };
            // What is found by its name is what is listed.
            let same = writer.readers().ask(|reader| reader.lookup(directory, &entry.name)).unwrap().unwrap();
            assert_eq!(same.ino(), entry.node.ino(), "{path}");
            match entry.node {
                Node::File { .. } => drop(found.insert(path)),
                Node::Directory { .. } => {
                    assert_eq!(entry.node.ino(), directory_ino(NameId::new(entry.cookie)));
                    walk(writer, NameId::new(entry.cookie), &path, found);
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// The resources of a list, each with a type and a time.
        List(BTreeMap<usize, (bool, i64)>),
        Filter(usize),
    }

    const PATHS: [&str; 8] = ["a", "a/b", "a/b/c", "a/d", "b", "b/", "c/d/e", "c/d/f"];

    fn filters() -> [Filter; 6] {
        [
            Filter::default(),
            filter(&["a"], &[], &[], None),
            filter(&[], &["b"], &[], None),
            filter(&["c/d/*"], &["f"], &[], None),
            filter(&[], &[], &["x/y"], None),
            filter(&[], &[], &["x/*"], Some(5)),
        ]
    }

    /// What a list of the moment `now` says: whether a media type, and when it was modified.
    fn record(mapper: &Mapper, path: usize, now: i64, (typed, mtime): (bool, i64)) -> Record {
        let uri = format!("http://example.com/{}", PATHS[path]);
        Record {
            path: mapper.path(&uri).unwrap(),
            uri,
            begin: Datetime::from_nanos(now),
            mtime: Datetime::from_nanos(mtime),
            dated: 1,
            size: None,
            hashes: Hashes::default(),
            media: typed.then(|| "x/y".to_owned()),
            coded: false,
            extra: None,
            mementos: Vec::new(),
            targets: Vec::new(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn what_is_shown_is_what_is_there_and_admitted(
            steps in prop::collection::vec(
                prop_oneof![
                    prop::collection::btree_map(0..PATHS.len(), (any::<bool>(), 0..10_i64), 0..7).prop_map(Step::List),
                    (0..filters().len()).prop_map(Step::Filter),
                ],
                1..12,
            ),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mapper = std::sync::Arc::new(Mapper::new("http://example.com/", false).unwrap());
            let mut writer = Writer::open(folder.path(), std::sync::Arc::clone(&mapper)).unwrap();
            let mut transaction = writer.begin(false).unwrap();
            let rset = transaction.set("k", "l", false).unwrap();
            transaction.commit().unwrap();
            let (mut there, mut now) = (BTreeMap::new(), 100);
            let mut wanted = Filter::default();
            for step in steps {
                now += 1;
                match step {
                    Step::List(entries) => {
                        let mut transaction = writer.begin(false).unwrap();
                        let records: Vec<Record> =
                            entries.iter().map(|(path, facts)| record(&mapper, *path, now, *facts)).collect();
                        transaction.upsert_all(rset, ROOT, DocumentId::new(now), &records).unwrap();
                        transaction.delete_unseen(rset, Datetime::from_nanos(now)).unwrap();
                        transaction.commit().unwrap();
                        there = entries;
                    }
                    Step::Filter(which) => {
                        wanted = filters()[which].clone();
                        writer.set_filter(std::sync::Arc::new(wanted.clone()));
                        let mut transaction = writer.begin(false).unwrap();
                        transaction.refilter().unwrap();
                        transaction.commit().unwrap();
                    }
                }
                prop_assert_eq!(writer.readers().ask(|reader| reader.check()).unwrap(), Vec::<String>::new());
                let names = |path: &str| mapper.path(&format!("http://example.com/{path}")).unwrap().names.join("/");
                let is_prefix = |path: &str| there.keys().any(|other| PATHS[*other].starts_with(&format!("{path}/")));
                let expected: BTreeSet<String> = there
                    .iter()
                    .filter(|(path, (typed, modified))| {
                        let path = names(PATHS[**path]);
                        wanted.admits(&Seen { path: &path, media: typed.then_some("x/y"), modified: Datetime::from_nanos(*modified), extra: None, uri: "" })
                    })
                    .map(|(path, _)| {
                        let path = PATHS[*path];
                        if is_prefix(path) { format!("{}/@self", names(path)) } else { names(path) }
                    })
                    .collect();
                let mut shown = BTreeSet::new();
                walk(&writer, ROOT, "", &mut shown);
                prop_assert_eq!(&shown, &expected);
                let set = writer.sets().unwrap().remove(0);
                prop_assert_eq!((set.resources, set.shown()), (there.len() as u64, expected.len() as u64));
            }
        }
    }
}
