//! Fuzzes `fuzzing::znode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::znode(data));
