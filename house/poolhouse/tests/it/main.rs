//! The command as users run it: on pools made by real OpenZFS, and on what is no pool.

mod bench;
mod browser;
mod copying;
mod daemon;
mod fixtures;
mod list;
mod looking;
mod manifest;
mod poolhouse;
mod trouble;
