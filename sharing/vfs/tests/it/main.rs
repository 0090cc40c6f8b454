//! Trees over real pools.

mod tree;
