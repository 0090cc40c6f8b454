//! Fuzzes `fuzzing::spacemap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::spacemap(data));
