//! Fuzzes `fuzzing::microzap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::microzap(data));
