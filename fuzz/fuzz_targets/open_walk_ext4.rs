//! Damages a small ext4 volume as the input says, then checks, opens, walks, reads and changes it.
#![no_main]

// The tests use parts of it that this target has no need of.
#[allow(dead_code)]
#[path = "../../crates/tidegate-ext4/tests/it/fuzz_body.rs"]
mod fuzz_body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| drop(fuzz_body::run(input)));
