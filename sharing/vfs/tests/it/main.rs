//! Tests of the file-system contract and its implementations.

mod conformance;
mod contract;
mod doors;
mod handles;
mod pool;
mod shadow;
mod tree;
