//! The command as users run it: on pools made by real OpenZFS, and on what is no pool.

mod bench;
mod browser;
mod command;
mod daemon;
mod drives;
mod errors;
mod fixtures;
mod keys;
mod list;
mod memory;
mod mounts;
mod name_conflicts;
mod partial_datasets;
mod readonly;
mod rescue_get;
mod rescue_manifest;
mod rescue_scan;
mod rewind;
mod status;
mod streams;
mod syncing;
mod test_nas;
mod write_protected;
mod zfs_syntax;
