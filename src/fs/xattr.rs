//! What the Source said of a resource, as extended attributes.

use std::collections::BTreeMap;

use super::Asked;
use crate::catalog::{CatalogError, MementoRow, Reader, VersionRow};
use crate::document::Datetime;

/// Extended attributes by their names.
pub(super) type Attributes = BTreeMap<String, Vec<u8>>;

const OURS: &str = "user.resourcesync.";
const ORIGIN: &str = "user.xdg.origin.url";
const TERMS: &str = "http://www.openarchives.org/rs/terms/";
/// The longest value that Linux takes.
const VALUE_MAX: usize = 65_536;
/// The longest name that Linux takes.
const NAME_MAX: usize = 255;

/// What is known of the other versions of a version's resource.
#[derive(Debug, Default)]
pub(super) struct Links {
    mementos: Vec<MementoRow>,
    timemaps: Vec<String>,
    timegates: Vec<String>,
}

impl Links {
    fn of_resource(reader: &Reader, resource: i64) -> Result<Self, CatalogError> {
        Ok(Self {
            mementos: Vec::new(),
            timemaps: reader.linked_from(resource, "timemap")?,
            timegates: reader.linked_from(resource, "timegate")?,
        })
    }
}

/// What the catalog knows of a version.
pub(super) fn facts(reader: &Reader, version: i64) -> Result<Option<(VersionRow, Links)>, CatalogError> {
    let Some(row) = reader.version(version)? else { return Ok(None) };
    // The entry of a current version says itself what there is.
    let links =
        if row.current { Links::default() } else { Links::of_resource(reader, reader.ever(row.name)?.resource)? };
    let mementos = reader.mementos(version)?;
    Ok(Some((row, Links { mementos, ..links })))
}

/// Of the directory of a resource's versions: what they are asked of, and what came of it.
pub(super) fn of_history(reader: &Reader, resource: i64, asked: &Asked) -> Result<Attributes, CatalogError> {
    let links = Links::of_resource(reader, resource)?;
    let mut all = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        if !value.is_empty() {
            all.insert(format!("{OURS}{name}"), value);
        }
    };
    put("timemap", links.timemaps.join("\n"));
    put("timegate", links.timegates.join("\n"));
    put("asked", asked.when.map(|when| when.to_string()).unwrap_or_default());
    put("error", asked.trouble.clone().unwrap_or_default());
    all.insert(ORIGIN.to_owned(), reader.resource_uri(resource)?);
    Ok(fitting(all))
}

/// Of a directory of the tree as of a moment.
pub(super) fn of_moment(moment: Option<i64>) -> Attributes {
    let moment = moment.map(|moment| Datetime::from_nanos(moment).to_string());
    fitting(moment.map(|moment| (format!("{OURS}datetime"), moment)).into_iter().collect())
}

/// All extended attributes of a version. `verified` is `None` where its content is not here.
pub(super) fn attributes(row: &VersionRow, links: &Links, verified: Option<bool>) -> Attributes {
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
            add(rel.strip_prefix(TERMS).unwrap_or(rel), &mut std::iter::once(href.as_str()));
        }
    }
    let there = || links.mementos.iter().filter(|memento| !memento.gone);
    add("memento", &mut there().map(|memento| memento.url.as_str()));
    // Of an archive that rewrites pages, the bytes are those that it has of the original.
    add("original", &mut there().filter(|memento| memento.original).map(|memento| memento.url.as_str()));
    add("timemap", &mut links.timemaps.iter().map(String::as_str));
    add("timegate", &mut links.timegates.iter().map(String::as_str));
    all.retain(|_, value| !value.is_empty());
    all.insert(format!("{OURS}datetime"), row.begin.to_string());
    for (name, value) in &row.extra.md {
        all.insert(format!("{OURS}{name}"), value.clone());
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

/// What Linux takes.
fn fitting(all: BTreeMap<String, String>) -> Attributes {
    all.into_iter()
        .filter(|(name, _)| name.len() <= NAME_MAX && !name.contains('\0'))
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
