//! What the directories of several sets are called.

use std::collections::HashSet;

use super::{NAME_MAX, escape, extension, long_form, own};

/// The names of the directories of sets, given the URLs that stand for them: the last segment of the
/// URL that tells them all apart, without its extension.
#[must_use]
pub fn set_labels(keys: &[&str]) -> Vec<String> {
    let segments: Vec<Vec<&str>> = keys.iter().map(|key| segments(key)).collect();
    let depth = segments.iter().map(Vec::len).min().unwrap_or(0);
    let distinct = |labels: &[String]| labels.iter().collect::<HashSet<_>>().len() == labels.len();
    let labels = (0..depth)
        .map(|from_end| segments.iter().map(|all| name(all[all.len() - 1 - from_end])).collect::<Vec<_>>())
        .find(|labels| distinct(labels))
        .unwrap_or_else(|| segments.iter().map(|all| name(all.last().copied().unwrap_or_default())).collect());
    let mut taken = HashSet::new();
    labels
        .into_iter()
        .map(|label| {
            let mut unique = label.clone();
            let mut number = 2;
            while !taken.insert(unique.clone()) {
                unique = format!("{label}-{number}");
                number += 1;
            }
            unique
        })
        .collect()
}

/// Host, path segments, and query.
fn segments(url: &str) -> Vec<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).filter(|segment| !segment.is_empty()).collect()
}

fn name(segment: &str) -> String {
    let decoded = escape::decode_segment(segment);
    let stem = decoded.strip_suffix(extension(&decoded)).filter(|stem| !stem.is_empty()).unwrap_or(&decoded);
    let name = own(if stem.is_empty() { "set".to_owned() } else { stem.to_owned() }, true);
    if name.len() > NAME_MAX { long_form(&name, segment) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_by_what_tells_them_apart() {
        for (keys, expected) in [
            (
                ["http://e.com/capabilitylist1.xml", "http://e.com/capabilitylist2.xml"],
                ["capabilitylist1", "capabilitylist2"],
            ),
            (
                ["http://e.com/dataset1/capabilitylist.xml", "http://e.com/dataset2/capabilitylist.xml"],
                ["dataset1", "dataset2"],
            ),
            (["http://e.com/a/v1/c.xml", "http://e.com/b/v1/c.xml"], ["a", "b"]),
            (["http://a.com/c.xml", "http://b.com/c.xml"], ["a", "b"]),
            (["http://e.com/x?set=1", "http://e.com/x?set=2"], ["set=1", "set=2"]),
            (["http://e.com/c.xml", "http://e.com/c.json"], ["c", "c-2"]),
            (["http://e.com/..", "http://e.com/.versions"], ["%2E%2E", "%2Eversions"]),
        ] {
            assert_eq!(set_labels(&keys), expected, "{keys:?}");
        }
    }
}
