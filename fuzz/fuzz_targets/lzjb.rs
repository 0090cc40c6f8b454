//! Fuzzes `fuzzing::lzjb`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::lzjb(data));
