//! House keeping that is checked by tests: tidy, floors, fixtures.
#![forbid(unsafe_code)]
