//! What was found by fuzzing, and what it began from, goes through without a panic. `scripts/fuzz` looks for more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that panics has failed")]

#[path = "fuzz/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn nothing_in_the_corpora_is_a_panic() {
    for (name, target) in targets::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
        let mut count = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            target(&std::fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}
