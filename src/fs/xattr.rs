//! What the Source said of a resource, as extended attributes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::Asked;
use crate::catalog::{CatalogError, MementoRow, NameId, Reader, VersionId, VersionRow};
use crate::document::Datetime;
use crate::printable;

/// Extended attributes by their names.
pub(super) type Attributes = BTreeMap<String, Vec<u8>>;

/// The most recently used attributes. A program that reads one attribute of a file usually reads all of them, and each read
/// would parse all links of the entry.
#[derive(Debug)]
pub(super) struct Recent(Mutex<LruCache<VersionId, Known>>);

#[derive(Debug)]
struct Known {
    /// The number of commits of the catalog when they were read.
    commits: u64,
    verified: Option<bool>,
    attributes: Arc<Attributes>,
}

impl Recent {
    /// The number of versions. The attributes of one can be as large as its entry.
    const MOST: usize = 8;

    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(Self::MOST).unwrap_or(NonZeroUsize::MIN))))
    }

    /// The attributes of a version, unless the catalog has committed or the content was verified since they were read.
    pub(super) fn get(&self, version: VersionId, commits: u64, verified: Option<bool>) -> Option<Arc<Attributes>> {
        let mut known = self.0.lock();
        let known = known.get(&version).filter(|known| (known.commits, known.verified) == (commits, verified))?;
        Some(Arc::clone(&known.attributes))
    }

    /// Keeps the attributes of a version, read when the catalog had this number of commits.
    pub(super) fn put(&self, version: VersionId, commits: u64, verified: Option<bool>, attributes: &Arc<Attributes>) {
        let known = Known { commits, verified, attributes: Arc::clone(attributes) };
        self.0.lock().put(version, known);
    }
}

const OURS: &str = "user.resourcesync.";
const ORIGIN: &str = "user.xdg.origin.url";
const TERMS: &str = "http://www.openarchives.org/rs/terms/";
/// The longest value that Linux takes.
const VALUE_MAX: usize = 65_536;
/// The longest name that Linux takes.
const NAME_MAX: usize = 255;
/// The most bytes of all names together, with a NUL after each, that listxattr(2) returns.
const LIST_MAX: usize = 65_536;
/// What the daemon itself reports of a version. What the Source lists under these names is `listed.NAME`.
const RESERVED: [&str; 6] = ["asked", "datetime", "error", "omitted", "original", "verified"];
/// What every program that verifies a file asks for.
const LISTED_FIRST: [&str; 4] = ["hash", "lastmod", "length", "encoding"];
/// The attributes of a link that are shown beside its `href` (core 7), whatever its relation.
const OF_LINKS: [&str; 7] = ["datetime", "hash", "length", "modified", "path", "pri", "type"];
/// How many attributes there is no room for.
const OMITTED: &str = "user.resourcesync.omitted";

/// What is known of the other versions of a version's resource.
#[derive(Debug, Default)]
pub(super) struct OtherVersions {
    mementos: Vec<MementoRow>,
    timemaps: Vec<String>,
    timegates: Vec<String>,
}

impl OtherVersions {
    fn of_resource(reader: &Reader, resource: NameId) -> Result<Self, CatalogError> {
        Ok(Self {
            mementos: Vec::new(),
            timemaps: reader.linked_from(resource, "timemap")?,
            timegates: reader.linked_from(resource, "timegate")?,
        })
    }
}

/// What the catalog knows of a version.
pub(super) fn facts(reader: &Reader, version: VersionId) -> Result<Option<(VersionRow, OtherVersions)>, CatalogError> {
    let Some(mut row) = reader.version(version)? else { return Ok(None) };
    if row.media.is_none() {
        // Of content that is here, its server's.
        row.media = reader.known_content(version)?.and_then(|known| known.media);
    }
    // The entry of a current version says itself what there is.
    let links = if row.current {
        OtherVersions::default()
    } else {
        OtherVersions::of_resource(reader, reader.ever(row.name)?.resource)?
    };
    let mementos = reader.mementos(version)?;
    Ok(Some((row, OtherVersions { mementos, ..links })))
}

/// Of the directory of a resource's versions: what they are asked of, and what came of it.
pub(super) fn of_history(reader: &Reader, resource: NameId, asked: &Asked) -> Result<Attributes, CatalogError> {
    let links = OtherVersions::of_resource(reader, resource)?;
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            all.insert(format!("{OURS}{name}"), value);
        }
    };
    put("timemap", links.timemaps.join("\n"));
    put("timegate", links.timegates.join("\n"));
    put("asked", asked.when.map(|when| when.to_string()).unwrap_or_default());
    put("error", asked.trouble.as_deref().map(|trouble| printable::line(trouble).into_owned()).unwrap_or_default());
    all.insert(ORIGIN.to_owned(), reader.resource_uri(resource)?);
    Ok(fitting(all))
}

/// Of a directory of the tree as of a moment.
pub(super) fn of_moment(moment: Option<Datetime>) -> Attributes {
    let moment = moment.map(|moment| moment.to_string());
    fitting(moment.map(|moment| (format!("{OURS}datetime"), moment)).into_iter().collect())
}

/// All extended attributes of a version. `verified` is `None` where its content is not here.
pub(super) fn attributes(row: &VersionRow, links: &OtherVersions, verified: Option<bool>) -> Attributes {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |name: &str, values: &mut dyn Iterator<Item = &str>| {
        let known = all.entry(format!("{OURS}{name}")).or_default();
        for value in values {
            if !known.lines().any(|line| line == value) {
                known.push_str(if known.is_empty() { "" } else { "\n" });
                known.push_str(value);
            }
        }
    };
    for link in &row.extra.links {
        let (Some(rels), Some(href)) = (link.get("rel"), link.get("href")) else { continue };
        for rel in rels.split_ascii_whitespace() {
            add(&listed(rel.strip_prefix(TERMS).unwrap_or(rel)), &mut std::iter::once(href.as_str()));
        }
    }
    let there = || links.mementos.iter().filter(|memento| !memento.gone);
    add("memento", &mut there().map(|memento| memento.url.as_str()));
    // Of an archive that rewrites pages, the bytes are those that it has of the original.
    add("original", &mut there().filter(|memento| memento.original).map(|memento| memento.url.as_str()));
    add("timemap", &mut links.timemaps.iter().map(String::as_str));
    add("timegate", &mut links.timegates.iter().map(String::as_str));
    all.retain(|_, value| !value.is_empty());
    all.extend(of_links(row));
    all.insert(format!("{OURS}datetime"), row.begin.to_string());
    for (name, value) in &row.extra.md {
        all.insert(format!("{OURS}{}", listed(name)), value.clone());
    }
    let mut own = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            all.insert(format!("{OURS}{name}"), value);
        }
    };
    own("hash", (!row.hashes.is_empty()).then(|| row.hashes.to_string()));
    own("lastmod", row.extra.lastmod.clone().or_else(|| (row.dated == 1).then(|| row.mtime.to_string())));
    own("changefreq", row.extra.changefreq.clone());
    own("encoding", row.extra.encoding.clone());
    let listed = row.size.filter(|_| !row.settled && row.extra.encoding.is_none());
    own("length", row.extra.length.or(listed).map(|length| length.to_string()));
    own("verified", verified.map(|yes| if yes { "yes" } else { "no" }.to_owned()));
    if let Some(media) = &row.media {
        all.insert("user.mime_type".to_owned(), media.clone());
    }
    all.insert(ORIGIN.to_owned(), row.uri.clone());
    fitting(all)
}

/// The attributes of links: `REL.hash` and its like have a line for each target of `REL`, in the same order, which is empty where
/// the link says nothing.
fn of_links(row: &VersionRow) -> BTreeMap<String, String> {
    let mut links: BTreeMap<&str, Vec<&BTreeMap<String, String>>> = BTreeMap::new();
    for link in &row.extra.links {
        let (Some(rels), Some(href)) = (link.get("rel"), link.get("href")) else { continue };
        for rel in rels.split_ascii_whitespace() {
            let known = links.entry(rel.strip_prefix(TERMS).unwrap_or(rel)).or_default();
            if !known.iter().any(|other| other.get("href") == Some(href)) {
                known.push(link);
            }
        }
    }
    let mut all = BTreeMap::new();
    for (rel, links) in links {
        for name in OF_LINKS.iter().filter(|name| links.iter().any(|link| link.contains_key(**name))) {
            let values: Vec<&str> =
                links.iter().map(|link| link.get(*name).map(String::as_str).unwrap_or_default()).collect();
            all.insert(format!("{OURS}{}.{name}", listed(rel)), values.join("\n"));
        }
    }
    all
}

/// The name of what a Source lists: another one where it is one of ours.
fn listed(name: &str) -> Cow<'_, str> {
    match RESERVED.contains(&name) || name.starts_with("listed.") {
        true => Cow::Owned(format!("listed.{name}")),
        false => Cow::Borrowed(name),
    }
}

/// What Linux takes: of names that are too many for one list, what the daemon reports comes first, and the longest names of
/// the Source are left out.
fn fitting(mut all: BTreeMap<String, String>) -> Attributes {
    all.retain(|name, _| name.len() <= NAME_MAX && !name.contains('\0'));
    let size = |name: &str| name.len() + 1;
    let mut total: usize = all.keys().map(|name| size(name)).sum();
    if total > LIST_MAX {
        let is_own = |name: &&String| {
            let own = name.strip_prefix(OURS);
            own.is_none_or(|own| RESERVED.contains(&own) || LISTED_FIRST.contains(&own))
        };
        let mut names: Vec<String> = all.keys().filter(|name| !is_own(name)).cloned().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        let mut omitted = 0_usize;
        for name in names {
            if total + size(OMITTED) <= LIST_MAX {
                break;
            }
            total -= size(&name);
            all.remove(&name);
            omitted += 1;
        }
        all.insert(OMITTED.to_owned(), omitted.to_string());
    }
    all.into_iter()
        .map(|(name, mut value)| {
            let mut end = value.len().min(VALUE_MAX);
            while !value.is_char_boundary(end) {
                end -= 1;
            }
            value.truncate(end);
            (name, value.into_bytes())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_names_fits_and_what_is_ours_is_in_it() {
        let mut all: BTreeMap<String, String> =
            (0..400).map(|number| (format!("{OURS}{number:0>200}"), "x".to_owned())).collect();
        for name in ["user.resourcesync.verified", "user.resourcesync.hash", ORIGIN, "user.mime_type"] {
            all.insert(name.to_owned(), "x".to_owned());
        }
        let fits = fitting(all);
        let size: usize = fits.keys().map(|name| name.len() + 1).sum();
        assert!(size <= LIST_MAX && size > LIST_MAX - 300, "{size}");
        let omitted: usize = String::from_utf8(fits[OMITTED].clone()).unwrap().parse().unwrap();
        assert_eq!(fits.len() + omitted, 405);
        assert!(fits.contains_key("user.resourcesync.verified") && fits.contains_key("user.resourcesync.hash"));
        assert_eq!(
            (listed("verified"), listed("listed.verified")),
            ("listed.verified".into(), "listed.listed.verified".into())
        );
        assert_eq!(listed("hash"), "hash");
    }
}
