//! Every example document of the specifications, read by us and by a generic XML parser.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use resourcesync::document::{Limits, Reader};

use crate::support::examples;

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
    match seen.root.as_str() {
        "feed" | "resync" => return Ok(by_a_generic_parser_not_a_sitemap(root)),
        _ => {}
    }
    if let Some(kind) = root.attribute((TERMS, "type")) {
        assert_eq!(kind, "changeset");
        seen.md.insert("capability".to_owned(), "changelist".to_owned());
    }
    let is_0_1 = !seen.md.is_empty() || text.contains(XHTML);
    for child in root.children().filter(|node| node.is_element()) {
        if child.tag_name().namespace() == Some(XHTML) {
            match child.tag_name().name() {
                "link" => seen.links.push(attributes(child)),
                _ => drop(seen.md.insert("modified".to_owned(), child.attribute("content").unwrap().to_owned())),
            }
        } else if rs(&child, "md") {
            seen.md = attributes(child);
        } else if rs(&child, "ln") {
            seen.links.push(attributes(child));
        } else if matches!(child.tag_name().name(), "url" | "sitemap") {
            let mut entry = Entry::default();
            for part in child.children().filter(|node| node.is_element()) {
                let text = part.text().unwrap_or_default().trim().to_owned();
                let mut say = |name: &str, value: String, between: &str| {
                    let said = entry.md.entry(name.to_owned()).or_default();
                    *said = if said.is_empty() { value } else { format!("{said}{between}{value}") };
                };
                match part.tag_name().name() {
                    "loc" => {
                        part.attribute((TERMS, "protocol"))
                            .into_iter()
                            .for_each(|to| say("protocol", to.to_owned(), ""));
                        entry.loc = text;
                    }
                    "lastmod" => {
                        part.attribute((TERMS, "type")).into_iter().for_each(|kind| say("change", kind.to_owned(), ""));
                        entry.lastmod = Some(text);
                    }
                    "expires" if is_0_1 => {
                        say("expires", text, "");
                        say("change", "deleted".to_owned(), "");
                    }
                    "fixity" => say("hash", hexadecimal(part.attribute("type").unwrap(), &text), " "),
                    "size" => say("length", text, ""),
                    "mimetype" => say("type", text, ""),
                    "contentencoding" => say("encoding", text, ""),
                    "path" => say("path", text, ""),
                    "meta" => say(part.attribute("name").unwrap(), part.attribute("content").unwrap().to_owned(), "\n"),
                    "link" => entry.links.push(attributes(part)),
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

const TERMS: &str = "http://www.openarchives.org/rs/terms/";
const XHTML: &str = "http://www.w3.org/1999/xhtml";

/// A digest as `hash` has it; what is none stays as it is.
fn hexadecimal(algorithm: &str, base64: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64);
    match bytes.ok().filter(|bytes| bytes.len() == 16) {
        Some(bytes) => bytes.iter().fold(format!("{algorithm}:"), |text, byte| format!("{text}{byte:02x}")),
        None => format!("{algorithm}:{base64}"),
    }
}

/// An Atom feed, or the form that the D-Lib article calls its own.
fn by_a_generic_parser_not_a_sitemap(root: roxmltree::Node<'_, '_>) -> Seen {
    let attributes = |node: roxmltree::Node<'_, '_>| -> BTreeMap<String, String> {
        node.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())).collect()
    };
    let updated = |node: roxmltree::Node<'_, '_>| {
        node.children().find(|one| one.has_tag_name("updated")).and_then(|one| one.text()).map(str::to_owned)
    };
    let mut seen = Seen { root: "urlset".to_owned(), capability: Some("changelist".to_owned()), ..Seen::default() };
    seen.md.insert("capability".to_owned(), "changelist".to_owned());
    let modified = root.attribute("modified").map(str::to_owned).or_else(|| updated(root)).unwrap();
    seen.md.insert("modified".to_owned(), modified);
    for child in root.children().filter(|node| node.is_element()) {
        match (child.tag_name().name(), seen.entries.last_mut()) {
            ("link", None) => seen.links.push(attributes(child)),
            ("link", Some(entry)) => entry.links.push(attributes(child)),
            ("item", _) => {
                let mut md = attributes(child);
                let (loc, lastmod) = (md.remove("href").unwrap(), md.remove("modified"));
                seen.entries.push(Entry { loc, lastmod, md, ..Entry::default() });
            }
            ("entry", _) => {
                let mut entry = Entry { lastmod: updated(child), ..Entry::default() };
                for part in child.children().filter(|node| node.has_tag_name("link") || node.has_tag_name("content")) {
                    let mut md = attributes(part);
                    if part.attribute("rel").is_some_and(|rel| rel != "canonical alternate") {
                        entry.links.push(md);
                    } else {
                        md.remove("rel");
                        entry.loc = md.remove("href").or_else(|| md.remove("src")).unwrap().trim().to_owned();
                        entry.md = md;
                    }
                }
                seen.entries.push(entry);
            }
            _ => {}
        }
    }
    seen
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

#[test]
fn every_example_reads_as_a_generic_parser_reads_it() {
    let (mut equal, mut refused) = (Vec::new(), Vec::new());
    for (name, text) in examples() {
        let generic = by_a_generic_parser(&text);
        if ILL_FORMED.contains(&name.as_str()) {
            assert!(generic.is_err(), "{name}: {generic:?}");
            let error = by_us(&name, &text).expect_err(&name);
            assert!(error.starts_with(&format!("{name}: line ")), "{error}");
            println!("refused  {error}");
            refused.push(name.clone());
        }
        let mended = examples::mended(&name, &text);
        if mended.is_empty() {
            assert!(name.starts_with("change-notification"), "{name}");
        } else {
            assert_eq!(by_us(&name, &mended), by_a_generic_parser(&mended), "{name}");
            println!("equal    {name}");
            equal.push(name);
        }
    }
    assert_eq!((equal.len(), refused.len()), (73, 8));
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

#[test]
fn what_only_looks_like_a_draft_is_none() {
    let sitemap = |head: &str, entry: &str| {
        format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='{TERMS}' xmlns:xhtml='{XHTML}' xmlns:atom='http://www.w3.org/2005/Atom'>\
             {head}<url><loc>http://example.com/a</loc>{entry}</url></urlset>"
        )
    };
    let dialect = |text: &str| Reader::open(text.as_bytes(), "d", Limits::default()).unwrap().head().dialect.name();
    let news = "<feed xmlns='http://www.w3.org/2005/Atom'><title>News</title><entry><link rel='alternate' href='http://example.com/1'/></entry></feed>";
    assert!(by_us("news", news).unwrap_err().contains("neither urlset nor sitemapindex"));
    for (head, entry) in [
        ("<xhtml:link rel='stylesheet' href='x.css'/>", "<expires>2001-01-01</expires>"),
        ("", "<xhtml:link rel='alternate' hreflang='de' href='http://example.com/de'/>"),
        (
            "<atom:link rel='self' href='http://example.com/s'/>",
            "<atom:link rel='duplicate' href='http://example.com/x'/>",
        ),
        ("", "<lastmod type='updated'>2001-01-01</lastmod>"),
    ] {
        let text = sitemap(head, entry);
        assert_eq!(dialect(&text), "sitemap", "{text}");
        let seen = by_us("plain", &text).unwrap();
        assert!(seen.links.is_empty() && seen.entries[0].links.is_empty() && seen.entries[0].md.is_empty(), "{seen:?}");
    }
    // What elements of a draft said gives way to what the specification in force says.
    let modified = "<xhtml:meta name='DCTERMS.modified' content='2013-01-01'/>";
    let text =
        sitemap(&format!("{modified}<rs:md capability='changelist' from='2013-01-02'/>"), "<rs:md change='updated'/>");
    let seen = by_us("both", &text).unwrap();
    assert_eq!((dialect(&text), seen.md.get("from").map(String::as_str)), ("1.1", Some("2013-01-02")));
    // A category has no say in what the resource is.
    let text = sitemap(
        modified,
        "<rs:size>5</rs:size><xhtml:meta name='length' content='6'/><xhtml:meta name='topic' content='x'/>",
    );
    let seen = by_us("category", &text).unwrap();
    assert_eq!(
        seen.entries[0].md.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect::<Vec<_>>(),
        [("length", "5"), ("topic", "x")]
    );
    // Much that is said costs no more than it should, and a long document of the form `resync` is no long entry.
    let many: String =
        (0..20_000).map(|n| format!("<xhtml:meta name='n{}' content='x'/>", if n % 2 == 0 { n } else { 1 })).collect();
    assert!(by_us("many", &sitemap(modified, &many)).unwrap().entries[0].md.len() < 1000);
    let items: String = (0..30_000)
        .map(|n| {
            format!(
                "<item change='updated' href='http://example.com/{n}' modified='2013-01-01T00:00:00Z' hash='md5:x'/>"
            )
        })
        .collect();
    let resync = format!(
        "<resync xmlns='http://www.openarchives.org/rs/' rstype='http://www.openarchives.org/rs/changelist' modified='2013-01-01T00:00:00Z'>{items}</resync>"
    );
    assert_eq!(by_us("resync", &resync).unwrap().entries.len(), 30_000);
}
