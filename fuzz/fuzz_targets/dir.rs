//! Fuzzes `fuzzing::dir`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::dir(data));
