//! Fuzzes `fuzzing::acl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::acl(data));
