//! `poolhouse rescue list`: datasets, snapshots, bookmarks and volumes, and their properties.

use crate::common::Common;
use crate::outcome::{Done, Failure};

/// List datasets, snapshots, bookmarks and volumes, and their properties
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse rescue list -d ~/images tank                   all there is
  poolhouse rescue list -d ~/images -t filesystem tank/a   one kind, below a dataset
  poolhouse rescue list -d ~/images -o name,used -p tank   exact figures
  poolhouse rescue list -d ~/images -o all tank/a          every property and its source")]
pub(crate) struct Args {
    /// The pool, by name or guid, or a dataset in it
    target: String,
    /// Only these: filesystem, volume, snapshot, bookmark, all
    #[arg(short = 't', long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<String>,
    /// These properties, native or user; `all`: a line for each property, with its source
    #[arg(short = 'o', value_name = "PROPERTY", value_delimiter = ',')]
    columns: Vec<String>,
    /// Exact numbers
    #[arg(short = 'p', long)]
    parsable: bool,
    /// No head, columns separated by tabs
    #[arg(short = 'H', long)]
    scripted: bool,
    /// Not deeper than this below the target
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// A line for each property, with its source
    #[arg(long)]
    properties: bool,
}

pub(crate) fn run(_args: &Args, _common: &Common) -> Done {
    Err(Failure::usage("not yet"))
}
