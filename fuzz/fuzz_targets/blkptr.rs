//! Fuzzes `fuzzing::blkptr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::blkptr(data));
