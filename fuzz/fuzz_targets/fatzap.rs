//! Fuzzes `fuzzing::fatzap`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::fatzap(data));
