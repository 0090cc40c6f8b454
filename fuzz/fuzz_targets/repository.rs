//! Fuzzes `fuzzing::repository`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::repository(data));
