//! Examines a pool without trusting the writer: leaks, counts, reachability.
#![forbid(unsafe_code)]
