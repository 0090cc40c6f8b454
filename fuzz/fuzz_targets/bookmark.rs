//! Fuzzes `fuzzing::bookmark`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::bookmark(data));
