//! The command as users run it: on pools made by real OpenZFS, and on what is no pool.

mod bench;
mod browser;
mod copying;
mod daemon;
mod drives;
mod fixtures;
mod keys;
mod list;
mod looking;
mod manifest;
mod memory;
mod mounts;
mod names;
mod nas;
mod parts;
mod poolhouse;
mod protected;
mod readonly;
mod rewind;
mod status;
mod syncing;
mod trouble;
mod words;
