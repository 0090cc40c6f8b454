//! Tests of the file-system contract and its implementations.
mod conformance;
mod contract;
mod tree;
