//! What the Source said of a resource, as extended attributes.

use std::collections::BTreeMap;

use crate::catalog::VersionRow;

const OURS: &str = "user.resourcesync.";
const TERMS: &str = "http://www.openarchives.org/rs/terms/";
/// The longest value that Linux takes.
const VALUE_MAX: usize = 65_536;
/// The longest name that Linux takes.
const NAME_MAX: usize = 255;

/// All extended attributes of a version. `verified` is `None` where its content is not here.
pub(super) fn attributes(row: &VersionRow, verified: Option<bool>) -> BTreeMap<String, Vec<u8>> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for link in &row.extra.links {
        let (Some(rels), Some(href)) = (link.get("rel"), link.get("href")) else { continue };
        for rel in rels.split_ascii_whitespace() {
            let name = format!("{OURS}{}", rel.strip_prefix(TERMS).unwrap_or(rel));
            let value = all.entry(name).or_default();
            if !value.is_empty() {
                value.push('\n');
            }
            value.push_str(href);
        }
    }
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
    all.insert("user.xdg.origin.url".to_owned(), row.uri.clone());
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
