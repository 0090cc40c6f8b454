//! The poolhouse command.
//!
//! `cli` and the modules below it define the commands, one file each: its arguments, and `run`,
//! which calls the engine and prints the result. The engine writes the sentences of errors.
#![forbid(unsafe_code)]
// the comments on arguments are the help that users read, where POOL/FS[@SNAP] is not a link
#![allow(rustdoc::broken_intra_doc_links)]

mod alerts;
mod backup;
mod bench;
mod cli;
mod config;
#[cfg(test)]
mod coverage;
mod daemon;
mod drives;
mod events;
mod fans;
mod files;
mod generate;
mod inspect;
mod interrupt;
mod jobs;
mod json;
mod keys;
mod mount_zfs;
mod outcome;
mod parallel;
mod pictures;
mod plan;
mod policy;
mod pool_args;
mod print;
mod progress;
mod property_values;
mod replicate;
mod rescue;
mod sanoid;
mod share;
mod stream;
mod table;
mod time;
mod timemachine;
mod ups;
mod usage;
mod user;
mod version;
mod web;
mod zfs;
mod zpool;

use std::process::ExitCode;

/// The system's own allocator returns memory that many threads allocate and free in pieces of all
/// sizes to the kernel, and requests it again with every txg.
#[global_allocator]
static ALLOCATOR: heap::Allocator = heap::Allocator;

fn main() -> ExitCode {
    let cli = cli::Cli::from_args();
    if cli.is_zfs_command() {
        print::use_plain_messages();
    }
    match cli.run() {
        Ok(outcome) => outcome.exit_code(),
        Err(failure) => ExitCode::from(cli.exit_status(&failure)),
    }
}
