//! Every example document of the specifications, read by us and by a generic XML parser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use resourcesync::document::{Limits, Reader};

/// A document as both parsers see it, in one form.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    root: String,
    capability: Option<String>,
    md: BTreeMap<String, String>,
    links: Vec<BTreeMap<String, String>>,
    entries: Vec<Entry>,
}

#[derive(Debug, Default, PartialEq)]
struct Entry {
    loc: String,
    lastmod: Option<String>,
    changefreq: Option<String>,
    md: BTreeMap<String, String>,
    links: Vec<BTreeMap<String, String>>,
}

fn by_us(name: &str, text: &str) -> Result<Seen, String> {
    let mut reader = Reader::open(text.as_bytes(), name, Limits::default()).map_err(|e| e.to_string())?;
    let mut seen = Seen::default();
    while let Some(entry) = reader.next().map_err(|e| e.to_string())? {
        seen.entries.push(Entry {
            md: pairs(&entry.md),
            links: entry.links.iter().map(|link| pairs(&link.0)).collect(),
            loc: entry.loc,
            lastmod: entry.lastmod,
            changefreq: entry.changefreq,
        });
    }
    let head = reader.head();
    seen.root = head.kind.name().to_owned();
    seen.capability = head.md.get("capability").map(str::to_owned);
    seen.md = pairs(&head.md);
    seen.links = head.links.iter().map(|link| pairs(&link.0)).collect();
    Ok(seen)
}

fn pairs(attributes: &resourcesync::document::Attributes) -> BTreeMap<String, String> {
    attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn by_a_generic_parser(text: &str) -> Result<Seen, String> {
    let document = roxmltree::Document::parse(text).map_err(|e| e.to_string())?;
    let root = document.root_element();
    let rs = |node: &roxmltree::Node<'_, '_>, name: &str| {
        node.tag_name().name() == name
            && node.tag_name().namespace().is_some_and(|uri| uri.starts_with("http://www.openarchives.org/rs/"))
    };
    let attributes = |node: roxmltree::Node<'_, '_>| -> BTreeMap<String, String> {
        node.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())).collect()
    };
    let mut seen = Seen { root: root.tag_name().name().to_owned(), ..Seen::default() };
    for child in root.children().filter(|node| node.is_element()) {
        if rs(&child, "md") {
            seen.md = attributes(child);
        } else if rs(&child, "ln") {
            seen.links.push(attributes(child));
        } else if matches!(child.tag_name().name(), "url" | "sitemap") {
            let mut entry = Entry::default();
            for part in child.children().filter(|node| node.is_element()) {
                let text = part.text().unwrap_or_default().trim().to_owned();
                match part.tag_name().name() {
                    "loc" => entry.loc = text,
                    "lastmod" => entry.lastmod = Some(text),
                    "changefreq" => entry.changefreq = Some(text),
                    _ if rs(&part, "md") => entry.md = attributes(part),
                    _ if rs(&part, "ln") => entry.links.push(attributes(part)),
                    _ => {}
                }
            }
            seen.entries.push(entry);
        }
    }
    seen.capability = seen.md.get("capability").cloned();
    Ok(seen)
}

fn examples() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/examples");
    let mut examples: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|file| file.unwrap_or_else(|e| panic!("{e}")).path())
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap_or_else(|e| panic!("{e}")))
        })
        .collect();
    examples.sort();
    examples
}

/// Broken as they are printed in the specifications.
const ILL_FORMED: [&str; 8] = [
    "change-notification-example-1-continued",
    "change-notification-example-7",
    "dlib-figure-11",
    "v0.1-example-4.3",
    "v0.1-example-4.4",
    "v0.1-example-4.5",
    "v0.1-example-5.5",
    "v0.1-example-5.7",
];

/// Well-formed, but neither `urlset` nor `sitemapindex`.
const ATOM: [&str; 2] = ["dlib-figure-9", "dlib-figure-10"];

#[test]
fn every_example_reads_as_a_generic_parser_reads_it() {
    let (mut equal, mut refused) = (Vec::new(), Vec::new());
    for (name, text) in examples() {
        let generic = by_a_generic_parser(&text);
        if ILL_FORMED.contains(&name.as_str()) || ATOM.contains(&name.as_str()) {
            assert_eq!(generic.is_err(), ILL_FORMED.contains(&name.as_str()), "{name}: {generic:?}");
            let error = by_us(&name, &text).expect_err(&name);
            assert!(error.starts_with(&format!("{name}: line ")), "{error}");
            println!("refused  {error}");
            refused.push(name);
        } else {
            assert_eq!(by_us(&name, &text), generic, "{name}");
            println!("equal    {name}");
            equal.push(name);
        }
    }
    assert_eq!((equal.len(), refused.len()), (65, 10));
}

#[test]
fn any_prefix_and_any_order_read_alike() {
    let (_, usual) = examples().into_iter().find(|(name, _)| name == "core-example-14").expect("an example");
    let other = usual
        .replace("xmlns=", "xmlns:s=")
        .replace("xmlns:rs=", "xmlns:q=")
        .replace("<rs:", "<q:")
        .replace("</rs:", "</q:");
    let mut renamed = other;
    for element in ["urlset", "url", "loc", "lastmod"] {
        for end in ['>', '\n', ' '] {
            renamed = renamed.replace(&format!("<{element}{end}"), &format!("<s:{element}{end}"));
            renamed = renamed.replace(&format!("</{element}{end}"), &format!("</s:{element}{end}"));
        }
    }
    assert!(renamed.contains("<s:loc>") && renamed.contains("<q:md"), "{renamed}");
    assert_eq!(by_us("renamed", &renamed), by_us("usual", &usual));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    /// Errors are fine, panics are bugs.
    #[test]
    fn a_damaged_document_is_read_or_refused(
        which in 0_usize..1000,
        wounds in proptest::collection::vec((0.0_f64..1.0, proptest::prelude::any::<u8>(), 0_u8..4), 1..12),
    ) {
        let all = examples();
        let mut bytes = all[which % all.len()].1.clone().into_bytes();
        for (place, byte, kind) in wounds {
            let at = (place * bytes.len() as f64) as usize;
            match kind {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => bytes.insert(at.min(bytes.len()), b"<>&\"'/! ]"[usize::from(byte) % 9]),
                _ => {
                    let part = bytes[at.min(bytes.len())..].iter().copied().take(usize::from(byte)).collect::<Vec<_>>();
                    bytes.extend(part);
                }
            }
        }
        if let Ok(mut reader) = Reader::open(bytes.as_slice(), "damaged", Limits::default()) {
            while let Ok(Some(entry)) = reader.next() {
                resourcesync::document::Facts::of_entry(&entry, reader.warnings_mut());
            }
        }
    }
}
