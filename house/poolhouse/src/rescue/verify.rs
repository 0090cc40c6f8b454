//! `poolhouse rescue verify`: reads every block, each copy of it and its parity, and says what is wrong.

use crate::common::Common;
use crate::outcome::{Done, Failure};

/// Read and check every block, copy and parity
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue verify -d ~/images tank")]
pub(crate) struct Args {
    /// The pool, by name or guid
    pub(crate) pool: String,
    /// How many at a time; 0: as many as suits this machine
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) jobs: usize,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn run(_args: &Args, _common: &Common) -> Done {
    Err(Failure::usage("this version has no `rescue verify` yet"))
}
