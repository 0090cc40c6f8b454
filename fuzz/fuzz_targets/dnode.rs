//! Fuzzes `fuzzing::dnode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::dnode(data));
