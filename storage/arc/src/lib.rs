//! The read cache: recent, frequent, and their ghosts.
#![forbid(unsafe_code)]
