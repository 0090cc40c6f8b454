//! Fuzzes `fuzzing::iscsi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::iscsi(data));
