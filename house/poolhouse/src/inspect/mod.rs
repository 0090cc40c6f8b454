//! `poolhouse inspect`: the structures on disk, as a person wants to read them.

use crate::common::Common;
use crate::outcome::{Done, Failure};

/// Look at the structures on disk
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse inspect labels disk0.img
  poolhouse inspect history -d ~/images tank", subcommand_required = true)]
pub(crate) struct Inspect {
    #[command(flatten)]
    common: Common,
}

impl Inspect {
    pub(crate) fn run(&self) -> Done {
        Err(Failure::usage("not yet"))
    }
}
