//! Objects made of blocks, changed only inside a transaction.
#![forbid(unsafe_code)]
