//! Fuzzes `fuzzing::label`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::label(data));
