//! Blocks on arrays in memory: written by the map, read back in every kind of trouble.

mod array;
mod erasures;
mod mirror;
mod raidz;
mod rebuild;
mod reflow;
mod removed;
mod repair;
mod stuck_drive;
mod write;
