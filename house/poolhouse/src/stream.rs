//! `poolhouse stream`: send streams in files.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Look at send streams in files
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse stream dump -v photos.zstream")]
pub(crate) struct Stream {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the records of a stream, and verify its checksums
    Dump(DumpArgs),
}

/// Show the records of a stream, and verify its checksums
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse stream dump photos.zstream
  poolhouse zfs send tank/photos@monday | poolhouse stream dump -v -")]
struct DumpArgs {
    /// Show every record
    #[arg(short = 'v', long)]
    verbose: bool,
    /// The stream; - is standard input
    file: PathBuf,
}

impl Stream {
    /// Does what was asked for.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Dump(args) => args.run(),
        }
    }
}

impl DumpArgs {
    fn run(&self) -> CommandResult {
        let mut show = print::line;
        if self.file.as_os_str() == "-" {
            engine::stream::dump_stream(&mut std::io::stdin().lock(), self.verbose, &mut show)?;
            return Ok(Outcome::Complete);
        }
        let opened = File::open(&self.file)
            .map_err(|why| Failure::unreadable(&self.file, &engine::error::io_error_text(&why)))?;
        engine::stream::dump_stream(&mut BufReader::new(opened), self.verbose, &mut show)?;
        Ok(Outcome::Complete)
    }
}
