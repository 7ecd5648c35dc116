//! The fuzzer: libFuzzer's arguments, and the target's name in `FUZZ_TARGET`.

#![no_main]

mod targets;

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET");
        targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target").1
    });
    target(data);
});
