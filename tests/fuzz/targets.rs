//! What is read from outside, each as a function of bytes. Errors are fine; panics are bugs, and so is what is not as promised.

use std::io::Write as _;
use std::sync::Arc;

use resourcesync::bounds::Bounds;
use resourcesync::document::{Facts, Limits, Reader};
use resourcesync::patch::{self, Kind, Patch};
use resourcesync::path::Mapper;
use resourcesync::source::parse_link_header;
use resourcesync::store::archive::{Directory, Found, Partial};
use resourcesync::versions::Splitter;

/// What reads bytes from elsewhere, and its name.
type Target = (&'static str, fn(&[u8]));

/// The targets, by name; each has a folder of its name in `corpus`.
pub(crate) const TARGETS: &[Target] =
    &[("document", document), ("archive", archive), ("links", links), ("patch", apply_patch), ("path", path)];

/// A document of a Source: any of them, plain or compressed.
fn document(data: &[u8]) {
    let limits = Limits { document: 4 << 20, token: 64 << 10, entry: 256 << 10, links: 100, attributes: 50, depth: 16 };
    let Ok(mut reader) = Reader::open(data, "http://example.com/list", limits) else { return };
    let md = reader.head().md.clone();
    Facts::of_attributes(&md, 0, reader.warnings_mut());
    while let Ok(Some(entry)) = reader.next() {
        assert!(entry.links.len() <= 100);
        Facts::of_entry(&entry, reader.warnings_mut());
    }
    let _ = reader.warnings().lines();
}

/// A package of a dump: its directory, and members that a manifest might name.
fn archive(data: &[u8]) {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(data).expect("its bytes");
    let file = Arc::new(file);
    let partial = || Partial::new(Arc::clone(&file), data.len() as u64, |_, _| true);
    let Ok(mut directory) = Directory::read(partial(), &Bounds::default()) else { return };
    for name in ["manifest.xml", "a", "b", "resources/a", "resources/b", "../a", "/a", "dir/"] {
        let Found::Member(member) = directory.find(name) else { continue };
        let (begin, end) = member.extent();
        assert!(begin <= end && begin <= data.len() as u64, "{begin} {end} {}", data.len());
        if let Ok(content) = member.content(&file) {
            assert!(content.len() <= data.len() * 1100 + 64, "more than deflate can");
        }
    }
    let _ = directory.unused();
    let _ = Directory::find_one(partial(), "manifest.xml", &Bounds::default());
}

/// Link headers, and TimeMaps in link-format, that come in pieces: pieces make no difference.
fn links(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    for link in parse_link_header(&text) {
        let _ = (link.is("memento"), link.parameter("datetime").map(str::len));
    }
    let split = |size: usize| {
        let mut splitter = Splitter::default();
        let mut found = Vec::new();
        rest.chunks(size).for_each(|piece| found.extend(splitter.push(piece)));
        let (last, _) = splitter.finish();
        found.extend(last);
        found.into_iter().map(|link| format!("{link:?}")).collect::<Vec<_>>()
    };
    assert_eq!(split(usize::from(*first) + 1), split(rest.len().max(1)));
}

/// A patch of each kind, to a document.
fn apply_patch(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let kind = [Kind::JsonPatch, Kind::JsonMergePatch, Kind::XmlPatch][usize::from(*first) % 3];
    let Some(at) = rest.iter().position(|byte| *byte == 0) else { return };
    let (old, new) = (&rest[..at], &rest[at + 1..]);
    let mut asked = 0;
    let applied = patch::apply(old, Patch { kind, bytes: new }, None, &Bounds::default(), &mut |_| {
        asked += 1;
        asked > usize::from(*first) / 16
    });
    if let Ok(bytes) = applied {
        assert!(bytes.len() as u64 <= Bounds::default().patch, "{}", bytes.len());
    }
}

/// A URI, and the path that it has: names that a file system takes, that lead nowhere else, and that lead back.
fn path(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (base, uri) = text.split_once('\n').unwrap_or(("http://example.com/", text));
    let Ok(mapper) = Mapper::new(base, first.is_multiple_of(2)) else { return };
    let Ok(found) = mapper.path(uri) else { return };
    assert!(!found.names.is_empty());
    for name in &found.names {
        assert!(
            !name.is_empty() && name.len() <= 255 && name != "." && name != ".." && !name.contains(['/', '\0']),
            "{name:?}"
        );
    }
    assert_eq!(mapper.uri(&found.names).as_deref() == Some(uri), !found.needs_uri());
    let apart = found.apart(uri);
    assert!(apart.len() <= 255 && !apart.contains(['/', '\0']), "{apart:?}");
}
