//! The poolhouse command.
//!
//! What it can do is defined in `cli` and below it, one file a command: its arguments, and `run`,
//! which asks the engine and prints what it says. Sentences about errors come from the engine.
#![forbid(unsafe_code)]
// the comments on arguments are the help that users read, where POOL/FS[@SNAP] is no link
#![allow(rustdoc::broken_intra_doc_links)]

mod bench;
mod cli;
mod common;
mod daemon;
mod generate;
mod inspect;
mod keys;
mod ordered;
mod outcome;
mod pictures;
mod plan;
mod print;
mod progress;
mod rescue;
mod stop;
mod table;
mod time;
mod values;
mod zfs;
mod zpool;

use std::process::ExitCode;

/// What many threads take and give back in pieces of all sizes, the system's own gives back to the
/// kernel and asks for anew with every group that is written.
#[global_allocator]
static ALLOCATOR: heap::Allocator = heap::Allocator;

fn main() -> ExitCode {
    let cli = cli::Cli::of_process();
    match cli.run() {
        Ok(outcome) => outcome.code(),
        Err(failure) => ExitCode::from(cli.status(failure.report())),
    }
}
