//! Properties: agreement with other implementations, nothing lost where nothing is done, and no panic on rubbish.

use super::{Kind, apply};
use proptest::prelude::*;
use serde_json::{Value, json};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        "[a-c/~é\"\\\\\u{1}]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[ab/~é]{0,2}", inner), 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

fn pointer() -> impl Strategy<Value = String> {
    let step = prop_oneof![Just("a"), Just("b"), Just("0"), Just("1"), Just("-"), Just("~0"), Just("é"), Just("")];
    prop::collection::vec(step, 0..4).prop_map(|steps| steps.iter().flat_map(|step| ["/", step]).collect())
}

fn operation() -> impl Strategy<Value = Value> {
    prop_oneof![
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "replace", "path": path, "value": value})),
        pointer().prop_map(|path| json!({"op": "remove", "path": path})),
        // The model does not move the root to itself.
        (pointer().prop_filter("a place", |from| !from.is_empty()), pointer())
            .prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
        (pointer(), pointer()).prop_map(|(from, path)| json!({"op": "copy", "from": from, "path": path})),
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "test", "path": path, "value": value})),
    ]
}

fn text(value: &Value, pretty: bool) -> Vec<u8> {
    if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) }.unwrap()
}

/// An XML element with all that may be in one, written in many ways.
fn element() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("x:c")];
    let leaf = prop_oneof![
        "[ a-z\u{e9}\n]{0,4}",
        Just("&amp;&#233;&unknown;".to_owned()),
        Just("<![CDATA[<]]>".to_owned()),
        Just("<!-- c -->".to_owned()),
        Just("<?p i?>".to_owned()),
        Just("\r\n\t".to_owned()),
        Just("<b/>".to_owned()),
    ];
    let tag = prop_oneof![Just(""), Just(" "), Just(" k='1'"), Just("\n k = \"&gt;'\" x:l='&e;' ")];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        (name.clone(), tag.clone(), prop::collection::vec(inner, 0..4)).prop_map(|(name, tag, children)| {
            if children.is_empty() {
                format!("<{name}{tag}/>")
            } else {
                format!("<{name}{tag}>{}</{name} >", children.concat())
            }
        })
    })
}

const OLD_XML: &str = "<?xml version='1.0'?>\n<a xmlns='u' xmlns:x='v'>\n <b k='1'>t<x:c/>u</b>\n <!--c--><b/>\n</a>\n";
const PATCH_XML: &str = "<p:d xmlns:p='q' xmlns='u' xmlns:y='v'><p:add sel=\"a/b[@k='1']/y:c\" pos='before'><y:d y:k='2'><e/></y:d>t</p:add>\
    <p:replace sel='*/b[2]'><b>&#233;</b></p:replace><p:remove sel='a/comment()' ws='before'/>\
    <p:add sel='a' type='namespace::z'>w</p:add><p:replace sel='a/b[1]/@k'>3</p:replace></p:d>";
const PATCH_JSON: &str = r#"[{"op":"add","path":"/a/0","value":[1.0,{"\u00e9":null}]},{"op":"move","from":"/b","path":"/a/-"},
    {"op":"copy","from":"/a","path":"/c"},{"op":"test","path":"/c/1","value":1e0},{"op":"remove","path":"/c/0"}]"#;

/// A text with some of its bytes cut out, doubled or changed.
fn mutated(base: &'static str) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0usize..8, any::<u8>(), 0u8..3), 1..6).prop_map(
        move |changes| {
            let mut bytes = base.as_bytes().to_vec();
            for (at, length, byte, how) in changes {
                let at = at.index(bytes.len() + 1);
                let end = (at + length).min(bytes.len());
                match how {
                    0 => drop(bytes.drain(at..end)),
                    1 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
                    _ => bytes.splice(at..end, [byte]).for_each(drop),
                }
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn json_patch_does_as_the_model(doc in value(), operations in prop::collection::vec(operation(), 0..4), pretty: bool) {
        let mut model = doc.clone();
        let patch: Value = operations.into();
        // Not `patch`, which panics where it fails to undo a move to the root.
        let expected = json_patch::patch_unsafe(&mut model, &serde_json::from_value::<json_patch::Patch>(patch.clone()).unwrap());
        let found = apply(Kind::JsonPatch, &text(&doc, pretty), &text(&patch, false), &mut |_| true);
        match expected {
            Ok(()) => {
                let found = found.unwrap();
                prop_assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), model);
            }
            Err(error) => prop_assert!(found.is_err(), "{error} {doc} {patch}"),
        }
    }

    #[test]
    fn every_way_to_write_json_has_the_same_value(doc in value(), operations in prop::collection::vec(operation(), 0..3)) {
        let mut values = Vec::new();
        let patch = text(&operations.into(), false);
        let _ = apply(Kind::JsonPatch, &text(&doc, true), &patch, &mut |bytes| {
            values.push(serde_json::from_slice::<Value>(bytes).unwrap());
            false
        });
        prop_assert!(values.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn merge_patch_does_as_the_model(doc in value(), patch in value()) {
        let mut model = doc.clone();
        json_patch::merge(&mut model, &patch);
        let found = apply(Kind::JsonMergePatch, &text(&doc, true), &text(&patch, false), &mut |_| true).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), model);
    }

    #[test]
    fn json_to_which_nothing_is_done_stays(doc in value(), space in "[ \n\t\r]{0,3}") {
        let all = String::from_utf8(text(&doc, false)).unwrap().replace(',', &format!(",{space}")).replace(':', &format!("{space}:"));
        // Keys and strings have no commas or colons here, so this is white space only.
        prop_assert_eq!(apply(Kind::JsonPatch, all.as_bytes(), b"[]", &mut |_| true).unwrap(), all.as_bytes());
    }

    #[test]
    fn xml_to_which_nothing_is_done_stays(inner in element(), head in prop_oneof![Just(""), Just("<?xml version='1.0'?>\n<!DOCTYPE r [<!ENTITY e 'x'>]>\n<!--c--> ")]) {
        let all = format!("{head}<r xmlns:x=\"u\">{inner}</r>\r\n");
        let same = apply(Kind::XmlPatch, all.as_bytes(), b"<p/>", &mut |_| true);
        prop_assert_eq!(same.unwrap(), all.as_bytes());
    }

    #[test]
    fn what_is_added_to_xml_can_be_taken_out(inner in element()) {
        let old = "<r xmlns:x='u'><z/></r>";
        let content = inner.replace("&unknown;", "").replace("&e;", "");
        let patch = format!("<p xmlns:x='u'><add sel='r/z' pos='before'><w>{content}</w></add><remove sel='r/w'/></p>");
        let same = apply(Kind::XmlPatch, old.as_bytes(), patch.as_bytes(), &mut |_| true);
        prop_assert_eq!(same.unwrap(), old.as_bytes());
    }

    #[test]
    fn rubbish_does_no_harm(json in mutated(PATCH_JSON), xml in mutated(PATCH_XML), old in mutated(OLD_XML)) {
        let _ = apply(Kind::JsonPatch, br#"{"a":[1],"b":{}}"#, &json, &mut |_| false);
        let _ = apply(Kind::JsonPatch, &json, &json, &mut |_| true);
        let _ = apply(Kind::JsonMergePatch, &json, &json, &mut |_| false);
        let _ = apply(Kind::XmlPatch, OLD_XML.as_bytes(), &xml, &mut |_| false);
        let _ = apply(Kind::XmlPatch, &old, PATCH_XML.as_bytes(), &mut |_| false);
        let _ = apply(Kind::XmlPatch, &old, &xml, &mut |_| true);
    }
}

#[test]
fn the_texts_that_are_mutated_are_good() {
    let json = apply(Kind::JsonPatch, br#"{"a":[1],"b":{}}"#, PATCH_JSON.as_bytes(), &mut |_| true);
    assert_eq!(
        json.as_deref(),
        Ok(&br#"{"a":[[1.0,{"\u00e9":null}],1,{}],"c":[1,{}]}"#[..]).map(|_| json.as_deref().unwrap())
    );
    let xml = apply(Kind::XmlPatch, OLD_XML.as_bytes(), PATCH_XML.as_bytes(), &mut |_| true).unwrap();
    assert_eq!(
        String::from_utf8(xml).unwrap(),
        "<?xml version='1.0'?>\n<a xmlns='u' xmlns:x='v' xmlns:z='w'>\n <b k='3'>t<x:d x:k='2'><e/></x:d>t<x:c/>u</b><b>&#233;</b>\n</a>\n"
    );
}
