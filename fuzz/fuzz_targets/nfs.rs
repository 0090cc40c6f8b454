//! Fuzzes `fuzzing::nfs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::nfs(data));
