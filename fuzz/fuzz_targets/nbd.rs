//! Fuzzes `fuzzing::nbd`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::nbd(data));
