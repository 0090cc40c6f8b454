//! Blocks on arrays in memory: written by the map, read back in every kind of trouble.

mod array;
mod erasures;
mod mirror;
mod raidz;
mod reflow;
mod removed;
mod repair;
mod write;
