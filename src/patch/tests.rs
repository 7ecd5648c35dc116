//! Tests of the room as a whole, through [`apply`].
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod json;
mod properties;
mod suite;
mod xml;
mod xml_appendix;
mod xml_styles;

use super::{Condition, Kind, Patch, PatchError};
use crate::bounds::{self, Bounds};

/// As [`super::apply`], for a result of any length.
fn apply(kind: Kind, old: &[u8], patch: &[u8], fits: &mut dyn FnMut(&[u8]) -> bool) -> Result<Vec<u8>, PatchError> {
    super::apply(old, Patch { kind, bytes: patch }, None, &Bounds::default(), fits)
}

/// The first way to write the result.
fn first(kind: Kind, old: &str, patch: &str) -> Result<String, PatchError> {
    apply(kind, old.as_bytes(), patch.as_bytes(), &mut |_| true).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// Asserts that a result is found, and says at which try.
fn tries(kind: Kind, old: &str, patch: &str, new: &str) -> usize {
    let mut count = 0;
    let mut all = Vec::new();
    let found = apply(kind, old.as_bytes(), patch.as_bytes(), &mut |candidate| {
        count += 1;
        all.push(String::from_utf8_lossy(candidate).into_owned());
        candidate == new.as_bytes()
    });
    assert!(found.is_ok(), "{found:?} for {old:?} and {patch:?}; tried {all:#?}");
    count
}

#[test]
fn media_types() {
    for (name, kind) in [
        ("application/json-patch+json", Some(Kind::JsonPatch)),
        ("Application/JSON-Patch", Some(Kind::JsonPatch)),
        ("application/merge-patch+json; charset=utf-8", Some(Kind::JsonMergePatch)),
        (" application/xml-patch+xml ;charset=UTF-8", Some(Kind::XmlPatch)),
        ("application/patch-ops-error+xml", Some(Kind::XmlPatch)),
        ("application/json", None),
        ("", None),
    ] {
        assert_eq!(Kind::of_media_type(name), kind, "{name:?}");
    }
}

#[test]
fn no_fit_counts_different_ways() {
    let mut count = 0;
    // How this writer escapes, and where it ends a line, the old version does not show.
    let patch = r#"[{"op":"add","path":"/0","value":"é/"}]"#;
    let error = apply(Kind::JsonPatch, b"[]", patch.as_bytes(), &mut |_| {
        count += 1;
        false
    });
    assert_eq!(error, Err(PatchError::NoFit { tried: count }));
    assert!((5..=200).contains(&count), "{count}");
}

#[test]
fn oversize_is_refused() {
    let large = vec![b' '; bounds::count(Bounds::default().patch) + 1];
    for (old, patch) in [(&large[..], &b"[]"[..]), (b"1", &large)] {
        let error = apply(Kind::JsonPatch, old, patch, &mut |_| true);
        assert!(matches!(error, Err(PatchError::TooLarge { .. })), "{error:?}");
    }
}

/// What an XML error says.
fn condition(result: Result<String, PatchError>) -> Option<Condition> {
    match result {
        Err(PatchError::Xml { condition, .. }) => Some(condition),
        _ => None,
    }
}

/// The deepest documents that are taken are dealt with on half of the stack that a thread usually has.
#[test]
fn depth_fits_the_stack() {
    let run = || {
        let depth = super::MOST_DEPTH;
        let json = format!("{}{}", "{\"a\":\n[".repeat(depth / 2), "]}".repeat(depth / 2));
        let patch = format!(r#"[{{"op":"copy","from":"","path":"/b"}},{{"op":"test","path":"","value":{json}}}]"#);
        assert!(first(Kind::JsonPatch, &json, "[]").is_ok());
        assert!(first(Kind::JsonPatch, &json, &patch).is_err());
        let error = apply(Kind::JsonMergePatch, json.as_bytes(), json.replace(']', "1]").as_bytes(), &mut |_| false);
        assert!(matches!(error, Err(PatchError::NoFit { .. } | PatchError::Syntax { .. })), "{error:?}");
        let xml = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        let patch = format!("<p><add sel='a'>{}</add></p>", xml(depth - 2));
        let error = apply(Kind::XmlPatch, b"<a/>", patch.as_bytes(), &mut |_| false);
        assert!(matches!(error, Err(PatchError::NoFit { .. })), "{error:?}");
        assert!(first(Kind::XmlPatch, &xml(depth), "<p><remove sel='a/a'/></p>").is_ok());
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}
