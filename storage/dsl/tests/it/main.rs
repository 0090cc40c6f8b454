//! Changing the pool's datasets, against a model of sets of blocks.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod caseless;
mod keys;
mod leftovers;
mod lists;
mod many;
mod model;
mod old_deadlists;
mod random;
mod real;
mod room;
mod settings;
mod skeleton;
mod trees;
mod world;
