//! Fuzzes `fuzzing::l2arc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::l2arc(data));
