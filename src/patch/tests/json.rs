//! JSON Patch and JSON Merge Patch: operations, errors, style, bounds.

use super::{Kind, Patch, PatchError, apply, first, tries};
use serde_json::Value;

/// The examples of RFC 7396, appendix A: original, patch, result.
#[test]
fn merge_patch_appendix_a() {
    for (old, patch, new) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
        (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        tries(Kind::JsonMergePatch, old, patch, new);
        let value: Value = serde_json::from_str(&first(Kind::JsonMergePatch, old, patch).unwrap()).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(new).unwrap(), "{old} {patch}");
    }
}

/// What is written first: old version, patch, new version.
#[test]
fn style_is_kept() {
    let pretty = "{\n  \"b\": 1.0,\n  \"a\": [\n    1e5,\n    12345678901234567890123\n  ],\n  \"e\": {}\n}\n";
    for (old, patch, new) in [
        // Numbers and the order of keys stay, and what is new is indented.
        (
            pretty,
            r#"[{"op":"add","path":"/c","value":{"x":[1,2],"y":{}}}]"#,
            "{\n  \"b\": 1.0,\n  \"a\": [\n    1e5,\n    12345678901234567890123\n  ],\n  \"e\": {},\n  \"c\": {\n    \"x\": [\n      1,\n      2\n    ],\n    \"y\": {}\n  }\n}\n",
        ),
        (
            pretty,
            r#"[{"op":"remove","path":"/b"},{"op":"remove","path":"/a/1"}]"#,
            "{\n  \"a\": [\n    1e5\n  ],\n  \"e\": {}\n}\n",
        ),
        (
            pretty,
            r#"[{"op":"remove","path":"/a/0"},{"op":"remove","path":"/a/0"}]"#,
            "{\n  \"b\": 1.0,\n  \"a\": [],\n  \"e\": {}\n}\n",
        ),
        (pretty, r#"[{"op":"add","path":"/e/k","value":"é"}]"#, &pretty.replace("{}", "{\n    \"k\": \"é\"\n  }")),
        (pretty, r#"[{"op":"add","path":"/a/0","value":"é"}]"#, &pretty.replace("1e5", "\"é\",\n    1e5")),
        // A move goes to the end, as in Python's and JavaScript's maps.
        (r#"{"a": 1, "b": 2, "c": 3}"#, r#"[{"op":"move","from":"/a","path":"/d"}]"#, r#"{"b": 2, "c": 3, "d": 1}"#),
        (r#"{"a": 1, "b": 2}"#, r#"[{"op":"replace","path":"/a","value":[1,{}]}]"#, r#"{"a": [1, {}], "b": 2}"#),
        // Sorted keys stay sorted.
        (
            r#"{"a":1,"c":2}"#,
            r#"[{"op":"add","path":"/b","value":{"y":2,"z":1}}]"#,
            r#"{"a":1,"b":{"y":2,"z":1},"c":2}"#,
        ),
    ] {
        assert_eq!(first(Kind::JsonPatch, old, patch).as_deref(), Ok(new), "{old} {patch}");
    }
}

/// The same, of strings and of what is not touched.
#[test]
fn escapes_and_odd_styles_are_kept() {
    for (old, patch, new) in [
        // Escapes of old strings stay; new ones get those of the old version.
        (
            r#"["\u00E9\/",""]"#,
            r#"[{"op":"add","path":"/-","value":"ü/\u0007"}]"#,
            r#"["\u00E9\/","","\u00FC\/\u0007"]"#,
        ),
        (r#"["é\u000a",""]"#, r#"[{"op":"add","path":"/0","value":"\u00fc\n"}]"#, r#"["ü\u000a","é\u000a",""]"#),
        (
            r#"["\u003cb\u003e",""]"#,
            r#"[{"op":"add","path":"/0","value":"a&b"}]"#,
            r#"["a\u0026b","\u003cb\u003e",""]"#,
        ),
        // Mixed styles: what is not touched stays as it is.
        (
            "{ \"a\":[1,2 ,3],\r\n\t\"b\" : {\"c\":[ ]} }",
            r#"[{"op":"replace","path":"/b/c","value":0}]"#,
            "{ \"a\":[1,2 ,3],\r\n\t\"b\" : {\"c\":0} }",
        ),
        ("[1,2\n,3\n,4]", r#"[{"op":"add","path":"/3","value":9}]"#, "[1,2\n,3\n,9,4]"),
        ("\u{feff}\n[ 1 ]\r\n", r#"[{"op":"replace","path":"/0","value":2}]"#, "\u{feff}\n[ 2 ]\r\n"),
        // Of two equal keys the last is meant, and with it goes the other.
        (r#"{"a":1,"a":2,"b":3}"#, r#"[{"op":"replace","path":"/a","value":4}]"#, r#"{"a":1,"a":4,"b":3}"#),
        (r#"{"a":1,"a":2,"b":3}"#, r#"[{"op":"remove","path":"/a"}]"#, r#"{"b":3}"#),
        (
            r#"{"a/b":1,"m~n":2}"#,
            r#"[{"op":"remove","path":"/a~1b"},{"op":"replace","path":"/m~0n","value":3}]"#,
            r#"{"m~n":3}"#,
        ),
        (r#"{"\u0061":1}"#, r#"[{"op":"test","path":"/a","value":1.0}]"#, r#"{"\u0061":1}"#),
    ] {
        assert_eq!(first(Kind::JsonPatch, old, patch).as_deref(), Ok(new), "{old} {patch}");
    }
}

/// What is found later: old version, patch, new version, the most tries.
#[test]
fn other_styles_are_found() {
    for (old, patch, new, most) in [
        (r#"{"a": 1}"#, r#"[{"op":"add","path":"/b","value":"é"}]"#, r#"{"a": 1, "b": "\u00e9"}"#, 2),
        (r#"{"a": 1}"#, r#"[{"op":"add","path":"/b","value":1.50}]"#, r#"{"a": 1, "b": 1.5}"#, 2),
        (r#"{"a": 1}"#, r#"[{"op":"add","path":"/b","value":1E5}]"#, r#"{"a": 1, "b": 100000.0}"#, 2),
        (r#"{"a": 1}"#, r#"[{"op":"add","path":"/b","value":1e22}]"#, r#"{"a": 1, "b": 1e+22}"#, 2),
        (r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":1.0}]"#, r#"{"a":1,"b":1}"#, 4),
        (r#"{"a": 1, "c": 2}"#, r#"[{"op":"add","path":"/b","value":3}]"#, r#"{"a": 1, "c": 2, "b": 3}"#, 3),
        ("{\n \"a\": 1\n}", r#"[{"op":"add","path":"/b","value":[1,2]}]"#, "{\n \"a\": 1,\n \"b\": [1, 2]\n}", 3),
    ] {
        let count = tries(Kind::JsonPatch, old, patch, new);
        assert!(count <= most, "{count} tries for {new}");
    }
}

/// Errors, each with a word of its text.
#[test]
fn errors() {
    for (old, patch, word) in [
        ("[1", "[]", "the old version, line 1"),
        ("\n\n[1,]", "[]", "the old version, line 3"),
        ("[]", "[\n01]", "the patch, line 2"),
        ("[]", "{}", "an array of operations"),
        ("[]", "[1]", "operation 1"),
        ("[]", "[{}]", "\"op\" is missing"),
        ("[]", r#"[{"op":"add"}]"#, "\"path\" is missing"),
        ("[]", r#"[{"op":"add","path":"/0"}]"#, "\"value\" is missing"),
        ("[]", r#"[{"op":"add","path":"0","value":1}]"#, "begins with a slash"),
        ("[]", r#"[{"op":"add","path":"/~2","value":1}]"#, "neither 0 nor 1"),
        ("[]", r#"[{"op":"add","path":"/1","value":1}]"#, "no place in an array of 0"),
        ("[]", r#"[{"op":"add","path":"/00","value":1}]"#, "no place"),
        ("[]", r#"[{"op":"remove","path":""}]"#, "cannot be removed"),
        ("[]", r#"[{"op":"remove","path":"/-"}]"#, "nothing to remove"),
        (
            "{}",
            r#"[{"op":"test","path":"","value":{}},{"op":"replace","path":"/a/b","value":1}]"#,
            "operation 2, replace at \"/a/b\": there is nothing at \"/a\"",
        ),
        ("{}", r#"[{"op":"spam","path":""}]"#, "no such operation"),
        ("{}", r#"[{"op":"add","op":"add","path":"","value":1}]"#, "twice"),
        (r#"{"a":{}}"#, r#"[{"op":"move","from":"/a","path":"/a/b"}]"#, "into itself"),
        ("[1]", r#"[{"op":"test","path":"/0","value":"1"}]"#, "not the one expected"),
        ("[\"\t\"]", "[]", "control character"),
        (r#"["\x"]"#, "[]", "no escape"),
    ] {
        let error = first(Kind::JsonPatch, old, patch).expect_err(patch).to_string();
        assert!(error.contains(word), "{error:?} for {old} {patch}");
    }
    let error = apply(Kind::JsonPatch, b"\"\xFF\"", b"[]", &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("not UTF-8"), "{error}");
}

/// `test` has numbers equal that are the same number (RFC 6902, section 4.6).
#[test]
fn numbers_are_compared_by_worth() {
    for (one, other, equal) in [
        ("1", "1.0", true),
        ("100", "1e2", true),
        ("0", "-0.0e7", true),
        ("12345678901234567890123", "12345678901234567890124", false),
        ("1E400", "10e399", true),
        ("0.1", "0.10000000000000001", false),
        ("1", "-1", false),
        ("1", "true", false),
        ("1e99999999999999999999", "1", false),
        (r#"{"a":[1,{"b":2}],"c":3}"#, r#"{"c":3.0,"a":[1e0,{"b":2}]}"#, true),
        (r#""\u00e9""#, r#""é""#, true),
        (r#""1""#, "1", false),
    ] {
        let patch = format!(r#"[{{"op":"test","path":"","value":{other}}}]"#);
        assert_eq!(first(Kind::JsonPatch, one, &patch).is_ok(), equal, "{one} {other}");
    }
}

#[test]
fn bounds() {
    let doubling = vec![r#"{"op":"copy","from":"","path":"/-"}"#; 64].join(",");
    let deep = format!("{}{}", "[".repeat(600), "]".repeat(600));
    let nesting = vec![r#"{"op":"copy","from":"","path":"/0"}"#; 30].join(",");
    let wrap = r#"{"op":"add","path":"/a","value":[]},"#.to_owned()
        + &(0..600)
            .map(|depth| format!(r#"{{"op":"add","path":"/a{}","value":[]}}"#, "/0".repeat(depth)))
            .collect::<Vec<_>>()
            .join(",");
    for (old, patch) in [
        ("[\"aaaaaaaaaaaaaaaa\"]", format!("[{doubling}]")),
        (deep.as_str(), "[]".to_owned()),
        ("[]", deep.clone()),
        ("[1]", format!("[{nesting}]")),
        ("{}", format!("[{wrap}]")),
    ] {
        let error = first(Kind::JsonPatch, old, &patch);
        assert!(matches!(error, Err(PatchError::TooLarge { .. })), "{error:?}");
    }
    let error = apply(Kind::JsonMergePatch, b"{}", deep.as_bytes(), &mut |_| true);
    assert!(matches!(error, Err(PatchError::TooLarge { .. })), "{error:?}");
}

/// White space that no writer makes, and a result that is far from the length looked for, cost little.
#[test]
fn white_space_is_no_bomb() {
    let old = format!("[\n{}1]", " ".repeat(1 << 20));
    let patch = format!("[{{\"op\":\"add\",\"path\":\"/-\",\"value\":[{}1]}}]", "1,".repeat(200_000));
    let began = std::time::Instant::now();
    let mut longest = 0;
    let error = apply(Kind::JsonPatch, old.as_bytes(), patch.as_bytes(), &mut |candidate| {
        longest = longest.max(candidate.len());
        false
    });
    assert!(matches!(error, Err(PatchError::NoFit { .. })), "{error:?}");
    assert!(longest <= 2 * crate::bounds::count(crate::bounds::Bounds::default().patch), "{longest}");
    let deep = format!("{}{}{}", "[".repeat(250), "1,".repeat(100_000) + "1", "]".repeat(250));
    let error = super::super::apply(
        b"{}",
        Patch { kind: Kind::JsonMergePatch, bytes: deep.as_bytes() },
        Some(10),
        &crate::bounds::Bounds::default(),
        &mut |_| true,
    );
    assert!(matches!(error, Err(PatchError::NoFit { .. })), "{error:?}");
    // Not a measure: what is bounded takes a moment, and what is not takes hours.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}
