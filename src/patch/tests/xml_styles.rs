//! The ways to write a patched XML document, and its encodings.

use super::{Kind, PatchError, apply, first, tries};

/// Old version, operations, new version, the most tries.
#[test]
fn other_styles_are_found() {
    for (old, operations, new, most) in [
        ("<a><b>x</b></a>", "<remove sel='a/b/text()'/>", "<a><b></b></a>", 4),
        ("<a><b>x</b></a>", "<remove sel='a/b/text()'/>", "<a><b /></a>", 3),
        ("<a><b>x</b><c></c></a>", "<remove sel='a/b/text()'/>", "<a><b></b><c></c></a>", 1),
        ("<a><c /></a>", "<add sel='a'><d/></add>", "<a><c /><d /></a>", 3),
        ("<a/>", "<add sel='a'><d k='1>'>x>y</d></add>", "<a><d k=\"1&gt;\">x&gt;y</d></a>", 3),
        ("<a/>", "<add sel='a'><d><![CDATA[x]]></d></add>", "<a><d>x</d></a>", 12),
        ("<a>&#233;</a>", "<add sel='a'>ü</add>", "<a>&#233;&#252;</a>", 2),
    ] {
        let count = tries(Kind::XmlPatch, old, &format!("<p>{operations}</p>"), new);
        assert!(count <= most, "{count} tries for {new}");
    }
}

#[test]
fn encodings() {
    let patch = "<p><add sel='a'>é☃</add></p>".as_bytes();
    let utf16 = |text: &str, big: bool, bom: bool| -> Vec<u8> {
        let units = bom.then_some(0xFEFF).into_iter().chain(text.encode_utf16());
        units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    let latin = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xFC\x85".to_vec();
    let ascii = b"<?xml version='1.0' encoding='us-ascii'?><a>".to_vec();
    let cyrillic = b"<?xml version='1.0' encoding='windows-1251'?><a>\xC6".to_vec();
    for (old, new) in [
        ([&latin[..], b"</a>"].concat(), [&latin[..], b"\xE9&#9731;</a>"].concat()),
        ([&ascii[..], b"</a>"].concat(), [&ascii[..], b"&#233;&#9731;</a>"].concat()),
        ([&cyrillic[..], b"</a>"].concat(), [&cyrillic[..], b"&#233;&#9731;</a>"].concat()),
        (utf16("<a/>", true, true), utf16("<a>é☃</a>", true, true)),
        (utf16("<a/>", false, true), utf16("<a>é☃</a>", false, true)),
        (utf16("<a/>", false, false), utf16("<a>é☃</a>", false, false)),
        (b"\xEF\xBB\xBF<a/>".to_vec(), "\u{feff}<a>é☃</a>".as_bytes().to_vec()),
    ] {
        let found = apply(Kind::XmlPatch, &old, patch, &mut |_| true);
        assert_eq!(found.as_ref(), Ok(&new), "{:?}", String::from_utf8_lossy(&new));
        let same = apply(Kind::XmlPatch, &old, b"<p/>", &mut |_| true);
        assert_eq!(same, Ok(old));
    }
    for old in [
        &b"<a>\xFF</a>"[..],
        b"<?xml version='1.0' encoding='us-ascii'?><a>\x80</a>",
        b"\xFF\xFE<\0a",
        b"<?xml version='1.0' encoding='x-none'?><a/>",
        b"\xFE\xFF\0<\xD8",
    ] {
        assert!(apply(Kind::XmlPatch, old, b"<p/>", &mut |_| true).is_err(), "{old:?}");
    }
}

#[test]
fn bounds() {
    let deep = format!("{}{}", "<a>".repeat(600), "</a>".repeat(600));
    let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
    let selector = vec!["a"; 400].join("/");
    for (old, patch) in [
        (deep.clone(), "<p/>".to_owned()),
        ("<a/>".to_owned(), deep.clone()),
        (nested(400), format!("<p><add sel='{selector}'>{}</add></p>", nested(400))),
    ] {
        let error = first(Kind::XmlPatch, &old, &patch);
        assert!(matches!(error, Err(PatchError::TooLarge { .. })), "{error:?}");
    }
    // A long prefix in the old version would make a short patch a long result.
    let prefix = "x".repeat(100_000);
    let old = format!("<{prefix}:a xmlns:{prefix}='u'/>");
    let patch = format!("<p xmlns:u='u'><add sel='u:a'>{}</add></p>", "<u:b/>".repeat(10_000));
    let error = first(Kind::XmlPatch, &old, &patch);
    assert!(matches!(error, Err(PatchError::TooLarge { .. })), "{:?}", error.map(|text| text.len()));
}
