//! Fuzzes `fuzzing::sa`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::sa(data));
