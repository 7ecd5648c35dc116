//! The suite published at <https://github.com/json-patch/json-patch-tests>, and on npm as `json-patch-test-suite`.
//!
//! It is not copied here. `JSON_PATCH_TESTS` names the directory that has its two files; without it, nothing is run.

use super::{Kind, apply};
use serde_json::Value;
use std::path::Path;

#[test]
fn published_suite() {
    let Some(directory) = std::env::var_os("JSON_PATCH_TESTS") else {
        eprintln!("not run: JSON_PATCH_TESTS does not name a directory");
        return;
    };
    let mut run = 0;
    for file in ["tests.json", "spec_tests.json"] {
        let text = std::fs::read_to_string(Path::new(&directory).join(file)).unwrap();
        let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
        for case in cases.iter().filter(|case| case["disabled"] != true && case.get("patch").is_some()) {
            run += 1;
            let (doc, patch) = (case["doc"].to_string(), case["patch"].to_string());
            let result = apply(Kind::JsonPatch, doc.as_bytes(), patch.as_bytes(), &mut |_| true);
            match case.get("expected") {
                Some(expected) => {
                    let result: Value =
                        serde_json::from_slice(&result.unwrap_or_else(|e| panic!("{e}: {case}"))).unwrap();
                    assert_eq!(&result, expected, "{case}");
                }
                None if case.get("error").is_some() => {
                    let error = result.expect_err(&case.to_string());
                    assert!(!error.to_string().is_empty());
                }
                None => assert!(result.is_ok(), "{result:?}: {case}"),
            }
        }
    }
    assert!(run >= 90, "only {run} cases were run");
    println!("{run} cases were run");
}
