//! Fuzzes `fuzzing::objset`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::objset(data));
