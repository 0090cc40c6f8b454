//! Tests of the file-system contract and its implementations.

mod cloning;
mod conformance;
mod contract;
mod doors;
mod handles;
mod pool;
mod shadow;
mod tree;
