//! Fuzzes `fuzzing::dataset`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::dataset(data));
