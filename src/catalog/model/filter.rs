//! Which of a Source's resources a mirror shows.
//!
//! The catalog has all of them, so that a filter can be changed without asking the Source anything, but for sitemaps of 2012 whose
//! index says that they list nothing of what is selected (0.1, 3.2): what is left out is in no
//! directory, and its content is never fetched, but its versions are known and follow changes as all others do. Of a name,
//! `hidden` says so: 1 of a file that is left out, and of a directory how many of its live names are not shown.

use globset::GlobBuilder;
use globset::GlobSet;
use globset::GlobSetBuilder;

use crate::catalog::model::collection::{Collection, absolute};
use crate::catalog::model::record::Extra;
use crate::document::{Datetime, Entry};

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
    pub(in crate::catalog) fn text(&self) -> String {
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
pub(in crate::catalog) struct Seen<'r> {
    pub(in crate::catalog) path: &'r str,
    pub(in crate::catalog) media: Option<&'r str>,
    /// In nanoseconds.
    pub(in crate::catalog) modified: Datetime,
    pub(in crate::catalog) extra: Option<&'r str>,
    /// What links are relative to.
    pub(in crate::catalog) uri: &'r str,
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

    pub(in crate::catalog) fn admits(&self, seen: &Seen<'_>) -> bool {
        let Wish { include, types, collections, newer, .. } = &self.wish;
        (include.is_empty() || self.include.is_match(seen.path))
            && !self.exclude.is_match(seen.path)
            && (types.is_empty() || seen.media.is_some_and(|media| types.iter().any(|kind| is_of_type(media, kind))))
            && newer.is_none_or(|newer| seen.modified >= newer)
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

pub(in crate::catalog) fn is_of_type(media: &str, wanted: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim();
    match wanted.strip_suffix("/*") {
        _ if wanted == "*" => true,
        Some("*") => true,
        Some(kind) => essence.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(kind)),
        None => essence.eq_ignore_ascii_case(wanted.trim()),
    }
}

/// Whether a resource is in one of these collections, or has one of these categories (0.1, 3.1.7).
pub(in crate::catalog) fn is_member(seen: &Seen<'_>, wanted: &[String]) -> bool {
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
