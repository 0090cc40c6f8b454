//! Fuzzes `fuzzing::gang`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::gang(data));
