//! Fuzzes `fuzzing::send_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::send_stream(data));
