//! `poolhouse rescue mount`: mounts a pool, read-only.

use crate::common::Common;
use crate::outcome::{Done, Failure};

/// Mount a pool read-only, its datasets and snapshots in place
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  poolhouse rescue mount -d ~/images tank /mnt")]
pub(crate) struct Args {
    /// POOL[/FS][@SNAP]
    pub(crate) target: String,
    /// Where; the folder must be there
    pub(crate) dir: std::path::PathBuf,
    /// Let other users see it
    #[arg(long)]
    pub(crate) allow_other: bool,
}

pub(crate) fn run(_args: &Args, _common: &Common) -> Done {
    Err(Failure::usage("this version has no `rescue mount` yet"))
}
