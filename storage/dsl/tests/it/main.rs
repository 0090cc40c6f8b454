//! Changing the pool's datasets, against a model of sets of blocks.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod block_lists;
mod block_trees;
mod case_insensitive;
mod interrupted;
mod keys;
mod many_snapshots;
mod model;
mod new_pool;
mod old_deadlists;
mod properties;
mod random;
mod real_pools;
mod space_limits;
mod test_pool;
