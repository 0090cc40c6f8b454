//! Fuzzes `fuzzing::nvlist`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::nvlist(data));
