//! Trees over real pools.

mod doors;
mod handles;
mod pool;
mod tree;
