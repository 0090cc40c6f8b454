//! The pool: import, and what it knows about itself.
#![forbid(unsafe_code)]
