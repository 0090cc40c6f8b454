//! Fuzzes `fuzzing::ddt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::ddt(data));
