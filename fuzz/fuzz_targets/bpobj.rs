//! Fuzzes `fuzzing::bpobj`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::bpobj(data));
