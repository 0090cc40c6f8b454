//! `poolhouse rescue scan`: what pools are there, and can they be read?

use crate::common::Common;
use crate::outcome::{Done, Failure};

/// Find pools and say what they are, and whether they can be read
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue scan -d ~/images -d /dev/sdb")]
pub(crate) struct Args {
    /// All uberblocks that stand, all features, all guids
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(_args: &Args, _common: &Common) -> Done {
    Err(Failure::usage("not yet"))
}
