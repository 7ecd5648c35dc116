//! The published suite of JSON Patch, <https://github.com/json-patch/json-patch-tests>, as the `json-patch` crate has it
//! in its package.

use super::{Kind, apply};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Where cargo has the package of that crate.
fn package() -> PathBuf {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let told = Command::new(cargo).arg("-vV").output().expect("cargo runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let host = told.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo says what it runs on");
    let output = Command::new(cargo)
        // What other platforms need was never fetched.
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("cargo metadata: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    let packages = metadata["packages"].as_array().expect("packages");
    let found = packages.iter().find(|package| package["name"] == "json-patch").expect("json-patch is a dependency");
    let manifest = PathBuf::from(found["manifest_path"].as_str().expect("a path"));
    manifest.parent().expect("its folder").join("specs")
}

#[test]
fn published_suite() {
    let directory = package();
    let mut run = 0;
    for file in ["tests.json", "spec_tests.json"] {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
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
}
