//! Fuzzes `fuzzing::history`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::history(data));
