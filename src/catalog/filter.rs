//! Which of a Source's resources a mirror shows.
//!
//! The catalog has all of them, so that a filter can be changed without asking the Source anything, but for sitemaps of 2012 whose
//! index says that they list nothing of what is selected (0.1, 3.2): what is left out is in no
//! directory, and its content is never fetched, but its versions are known and follow changes as all others do. Of a name,
//! `hidden` says so: 1 of a file that is left out, and of a directory how many of its live names are not shown.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rusqlite::params;

use super::reader::{Reader, names};
use super::record::Extra;
use super::related::{Collection, absolute};
use super::transaction::Transaction;
use super::writer::set_meta;
use super::{CatalogError, ROOT, Record};
use crate::document::{Datetime, Entry};
use crate::path::SELF;

type Result<T> = std::result::Result<T, CatalogError>;

/// Where the filter is kept that the names are shown by.
const KEY: &str = "filter";
/// How many names are looked at in one go.
const PAGE: i64 = 10_000;

/// Whether a row `n` of `name` is shown, as SQL.
pub(super) const SHOWN: &str = "((n.version IS NOT NULL) + n.live > n.hidden)";
/// Whether a row `n` of `name` was left out as a file, be it live or not, as SQL.
pub(super) const LEFT_OUT: &str = "(n.live = 0 AND n.hidden > 0)";

/// What a user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Patterns of paths, of which one at least has to match.
    pub include: Vec<String>,
    /// Patterns of paths, of which none may match.
    pub exclude: Vec<String>,
    /// Media types, `image/*` among them.
    pub types: Vec<String>,
    /// Collections, by their URI or the last segment of it.
    pub collections: Vec<String>,
    /// When it was modified, at the earliest.
    pub newer: Option<Datetime>,
}

impl Wish {
    /// Whether nothing is left out.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        *self == Self::default()
    }

    /// The same wish in the same words, whatever the order of its parts.
    fn text(&self) -> String {
        let part = |name: &str, values: &[String]| {
            let mut values: Vec<String> = values.iter().map(|value| format!("{name}={value}\n")).collect();
            values.sort();
            values.concat()
        };
        let newer = self.newer.map(|newer| format!("newer={newer}\n")).unwrap_or_default();
        let Self { include, exclude, types, collections, .. } = self;
        part("include", include)
            + &part("exclude", exclude)
            + &part("type", types)
            + &part("collection", collections)
            + &newer
    }
}

/// What of a resource a filter looks at.
struct Seen<'r> {
    path: &'r str,
    media: Option<&'r str>,
    /// In nanoseconds.
    modified: i64,
    extra: Option<&'r str>,
    /// What links are relative to.
    uri: &'r str,
}

/// A wish, ready to be held against resources.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    wish: Wish,
    include: GlobSet,
    exclude: GlobSet,
}

impl Filter {
    /// Makes a filter of a wish.
    ///
    /// # Errors
    /// If a pattern is none, in words for people.
    pub fn new(wish: Wish) -> std::result::Result<Self, String> {
        let (include, exclude) = (patterns(&wish.include)?, patterns(&wish.exclude)?);
        if let Some(wrong) = wish.types.iter().find(|kind| *kind != "*" && !kind.contains('/')) {
            return Err(format!("{wrong:?} is no media type; give application/pdf, or image/*"));
        }
        Ok(Self { wish, include, exclude })
    }

    /// What it is made of.
    #[must_use]
    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    /// Whether nothing is left out.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.wish.is_for_all()
    }

    fn admits(&self, seen: &Seen<'_>) -> bool {
        let Wish { include, types, collections, newer, .. } = &self.wish;
        (include.is_empty() || self.include.is_match(seen.path))
            && !self.exclude.is_match(seen.path)
            && (types.is_empty() || seen.media.is_some_and(|media| types.iter().any(|kind| is_of_type(media, kind))))
            && newer.is_none_or(|newer| seen.modified >= newer.nanos())
            && (collections.is_empty() || is_member(seen, collections))
    }
}

/// Patterns as a shell has them: `*` stops at a slash, `**` does not. One without a slash is of the last name of a path; what
/// lies below what matches matches, too.
fn patterns(all: &[String]) -> std::result::Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in all {
        let plain = pattern.trim_start_matches("./").trim_matches('/');
        if plain.is_empty() {
            return Err(format!("{pattern:?} is no pattern of a path"));
        }
        let anywhere = if pattern.contains('/') { "" } else { "**/" };
        for below in ["", "/**"] {
            let glob = GlobBuilder::new(&format!("{anywhere}{plain}{below}")).literal_separator(true).build();
            set.add(glob.map_err(|error| format!("{pattern:?} is no pattern: {}", error.kind()))?);
        }
    }
    set.build().map_err(|error| error.to_string())
}

fn is_of_type(media: &str, wanted: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim();
    match wanted.strip_suffix("/*") {
        _ if wanted == "*" => true,
        Some("*") => true,
        Some(kind) => essence.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(kind)),
        None => essence.eq_ignore_ascii_case(wanted.trim()),
    }
}

/// Whether a resource is in one of these collections, or has one of these categories (0.1, 3.1.7).
fn is_member(seen: &Seen<'_>, wanted: &[String]) -> bool {
    let Some(text) = seen.extra else { return false };
    has_any(&serde_json::from_str(text).unwrap_or_default(), seen.uri, wanted)
}

/// Whether the entry of an index says that what its sitemap lists has categories, and none of these (0.1, 3.2).
#[must_use]
pub fn has_others_only(entry: &Entry, wanted: &[String]) -> bool {
    let extra = Extra::of_entry(entry);
    let by_link = extra.links.iter().filter_map(|link| link.get("rel"));
    let by_link = by_link.flat_map(|rel| rel.split_ascii_whitespace());
    !wanted.is_empty()
        && by_link.chain(extra.md.keys().map(String::as_str)).any(is_category)
        && !has_any(&extra, &entry.loc, wanted)
}

fn has_any(extra: &Extra, base: &str, wanted: &[String]) -> bool {
    let is_wanted = |text: &str| wanted.iter().any(|one| one == text);
    let by_link = extra.links.iter().any(|link| {
        let get = |name: &str| link.get(name).map(String::as_str).unwrap_or_default();
        let is_category = get("rel").split_ascii_whitespace().any(is_category);
        if !is_category && !get("rel").split_ascii_whitespace().any(|rel| rel == "collection") {
            return false;
        }
        let uri = absolute(base, get("href")).unwrap_or_else(|| get("href").to_owned());
        is_wanted(&uri)
            || is_category && is_wanted(get("title"))
            || Collection::labels(&uri).iter().any(|label| is_wanted(label))
    });
    by_link || extra.md.iter().any(|(name, values)| is_category(name) && values.lines().any(is_wanted))
}

/// Whether this is what a category is given by: `DC.subject`, `DCTERMS.subject`, `category`. The draft leaves the names open (0.1, 3.1.7).
fn is_category(name: &str) -> bool {
    let last = name.rsplit(['.', ':', '/', '#']).next().unwrap_or_default();
    ["subject", "category", "tag", "keyword", "keywords"].iter().any(|known| last.eq_ignore_ascii_case(known))
}

impl Reader {
    /// The collections and categories that are selected, in order; none if all are.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn selected(&self) -> Result<Vec<String>> {
        let text = self.meta(KEY)?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| line.strip_prefix("collection=")).map(str::to_owned).collect())
    }

    /// Whether the lists of a set were read for a selection that is not that of now, so that some were left alone.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn was_selected_otherwise(&self, rset: i64) -> Result<bool> {
        let noted = self.meta(&selected_key(rset))?.filter(|noted| !noted.is_empty());
        Ok(noted.is_some() && noted != Some(self.selected()?.join("\n")))
    }
}

/// Where the selection is kept for which some lists of a set were left alone.
fn selected_key(rset: i64) -> String {
    format!("selected {rset}")
}

impl Transaction<'_> {
    /// Notes for which selection lists of a set were left alone; none if all were read.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn note_selected(&self, rset: i64, selected: &[String]) -> Result<()> {
        set_meta(self.connection(), &selected_key(rset), &selected.join("\n"))
    }

    /// Whether the filter leaves a resource out that is called `name` in its directory. `directory` is its set's.
    pub(super) fn leaves_out(&mut self, directory: i64, name: &str, record: &Record) -> Result<bool> {
        if self.filter.is_for_all() {
            return Ok(false);
        }
        let mut path = if directory == ROOT { Vec::new() } else { names(self.connection(), directory, ROOT)? };
        path.extend(record.path.above().iter().cloned());
        path.push(if name == SELF { record.path.leaf() } else { name }.to_owned());
        Ok(!self.filter.admits(&Seen {
            path: &path.join("/"),
            media: record.media.as_deref(),
            modified: record.mtime.nanos(),
            extra: record.extra.as_deref(),
            uri: &record.uri,
        }))
    }

    /// Shows a file, or leaves it out, by what its current version is.
    pub(super) fn judge(&mut self, name: i64) -> Result<()> {
        if self.filter.is_for_all() {
            return Ok(());
        }
        let Some(file) = self.files_from(name - 1, 1)?.pop().filter(|file| file.id == name && file.live) else {
            return Ok(());
        };
        let left_out = self.is_left_out(&file)?;
        self.show(file.rset, (file.parent, &file.name), file.id, left_out)
    }

    fn is_left_out(&self, file: &File) -> Result<bool> {
        let mut path = names(self.connection(), file.id, ROOT)?;
        path.pop_if(|last| last == SELF);
        // Only the links of collections are relative to it.
        let uri =
            if self.filter.wish.collections.is_empty() { String::new() } else { self.uri_of_resource(file.resource)? };
        Ok(!self.filter.admits(&Seen {
            path: &path.join("/"),
            media: file.media.as_deref(),
            modified: file.modified,
            extra: file.extra.as_deref(),
            uri: &uri,
        }))
    }

    /// Shows a live file, or leaves it out.
    pub(super) fn show(&mut self, rset: i64, (parent, name): (i64, &str), id: i64, left_out: bool) -> Result<()> {
        let before: i64 = self
            .connection()
            .prepare_cached("SELECT hidden FROM name WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        if (before > 0) == left_out {
            return Ok(());
        }
        self.mark(rset, parent, id, left_out)?;
        // So it is as of all moments, and wherever else its name is known.
        self.tree.changes.from(i64::MIN);
        self.tree.changes.too_many = true;
        self.tree.count(&self.transaction, parent, name, 0)
    }

    /// Notes of a live file that it is left out, or is not any more.
    pub(super) fn mark(&mut self, rset: i64, parent: i64, id: i64, left_out: bool) -> Result<()> {
        self.connection()
            .prepare_cached("UPDATE name SET hidden = ?2 WHERE id = ?1")?
            .execute(params![id, left_out])?;
        self.hide(rset, parent, if left_out { 1 } else { -1 })
    }

    /// So many more live files of a directory are left out.
    pub(super) fn hide(&mut self, rset: i64, parent: i64, count: i64) -> Result<()> {
        self.tree.hide(&self.transaction, parent, count)?;
        *self.left_out.entry(rset).or_insert(0) += count;
        Ok(())
    }

    /// Shows what the filter of this step admits, and nothing else, if that is not so already. Returns whether anything was
    /// to be done.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn refilter(&mut self) -> Result<bool> {
        let wanted = self.filter.wish.text();
        let known = super::writer::meta(self.connection(), KEY)?.unwrap_or_default();
        if known == wanted {
            return Ok(false);
        }
        let mut after = 0;
        loop {
            let page = self.files_from(after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = last.id;
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
        super::writer::set_meta(self.connection(), KEY, &wanted)?;
        self.tree.changes.from(i64::MIN);
        Ok(true)
    }

    /// Names after this one that are, or last were, files. What was in force last of a resource that is a directory by now lies
    /// with that, or with `@self` in it.
    fn files_from(&self, after: i64, limit: i64) -> Result<Vec<File>> {
        let mut statement = self.connection().prepare_cached(
            "SELECT n.id, n.parent, n.name, n.rset, n.version IS NOT NULL, v.mtime, t.type, v.extra
             FROM name n JOIN version v ON v.id = COALESCE(n.version,
                 (SELECT id FROM version WHERE name = n.id AND until IS NOT NULL AND COALESCE(change, 0) < 16
                  ORDER BY begin DESC, id DESC LIMIT 1),
                 (SELECT id FROM version WHERE n.name = ?3 AND name = n.parent AND until IS NOT NULL
                  AND COALESCE(change, 0) < 16 ORDER BY begin DESC, id DESC LIMIT 1))
             LEFT JOIN media t ON t.id = v.media
             WHERE n.id > ?1 AND n.live = 0 ORDER BY n.id LIMIT ?2",
        )?;
        let rows = statement.query_map(params![after, limit, SELF], |row| {
            let (id, parent, name): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
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

impl Reader {
    /// What else has to be true of a version `v` for its content to be wanted, as SQL: nothing, where nothing is left out.
    pub(super) fn wanted(&self) -> Result<&'static str> {
        let filtered = self.meta(KEY)?.is_some_and(|filter| !filter.is_empty());
        Ok(if filtered { " AND NOT EXISTS (SELECT 1 FROM name n WHERE n.id = v.name AND n.hidden > 0)" } else { "" })
    }
}

impl Reader {
    /// Whether a version is of a resource that is left out.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn is_left_out(&self, version: i64) -> Result<bool> {
        let mut statement = self.connection().prepare_cached(&format!(
            "SELECT EXISTS (SELECT 1 FROM version v JOIN name n ON n.id = v.name WHERE v.id = ?1 AND {LEFT_OUT})"
        ))?;
        Ok(statement.query_row([version], |row| row.get(0))?)
    }
}

/// A name that is a file, or was one.
struct File {
    id: i64,
    parent: i64,
    /// The number that its resource goes by.
    resource: i64,
    name: String,
    rset: i64,
    live: bool,
    modified: i64,
    media: Option<String>,
    extra: Option<String>,
}

#[cfg(test)]
mod tests {
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
            let admits = |path| filter.admits(&Seen { path, media: None, modified: 0, extra: None, uri: "" });
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
            let seen = Seen { path: "", media: None, modified: 0, extra: Some(extra), uri: "http://e.com/x/y" };
            assert_eq!(is_member(&seen, &[wanted.to_owned()]), is, "{wanted}");
        }
    }

    /// What a directory has, with all below it.
    fn walk(writer: &Writer, directory: i64, at: &str, found: &mut BTreeSet<String>) {
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
                    assert_eq!(entry.node.ino(), directory_ino(entry.cookie));
                    walk(writer, entry.cookie, &path, found);
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
                        let records: Vec<Record> = entries.iter().map(|(path, (typed, mtime))| {
                            let uri = format!("http://example.com/{}", PATHS[*path]);
                            Record {
                                path: mapper.path(&uri).unwrap(),
                                uri,
                                begin: Datetime::from_nanos(now),
                                mtime: Datetime::from_nanos(*mtime),
                                dated: 1,
                                size: None,
                                hashes: Hashes::default(),
                                media: typed.then(|| "x/y".to_owned()),
                                coded: false,
                                extra: None,
                                mementos: Vec::new(),
                                targets: Vec::new(),
                            }
                        }).collect();
                        transaction.upsert_all(rset, ROOT, now, &records).unwrap();
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
                        wanted.admits(&Seen { path: &path, media: typed.then_some("x/y"), modified: *modified, extra: None, uri: "" })
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
