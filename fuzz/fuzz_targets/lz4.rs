//! Fuzzes `fuzzing::lz4`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::lz4(data));
