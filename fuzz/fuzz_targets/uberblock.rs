//! Fuzzes `fuzzing::uberblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::uberblock(data));
