//! Fuzzes `fuzzing::zil`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::zil(data));
