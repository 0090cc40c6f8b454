//! `poolhouse stream`: send streams in files.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Look at send streams in files
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse stream dump -v photos.zstream
  poolhouse stream check photos.zstream       is the file complete?
  poolhouse stream token 1-c740b4779-...      where does a receive resume?")]
pub(crate) struct Stream {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the records of a stream, and verify its checksums
    Dump(DumpArgs),
    /// Verify the checksums of a stream; a damaged or cut one is an error
    Check(CheckArgs),
    /// Show the contents of a receive_resume_token
    Token(TokenArgs),
}

/// Verify the checksums of a stream; a damaged or cut one is an error
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse stream check photos.zstream")]
struct CheckArgs {
    /// The stream; - is standard input
    file: PathBuf,
}

/// Show the contents of a receive_resume_token
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  poolhouse stream token $(poolhouse zfs get -Ho value receive_resume_token tank/photos)")]
struct TokenArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The token
    token: String,
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
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Dump(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Token(args) => args.run(),
        }
    }
}

impl DumpArgs {
    fn run(&self) -> CommandResult {
        read_stream(&self.file, self.verbose, &mut print::line)?;
        Ok(Outcome::Complete)
    }
}

impl CheckArgs {
    fn run(&self) -> CommandResult {
        let mut snapshots = 0_u64;
        read_stream(&self.file, false, &mut |line| {
            snapshots += u64::from(line.starts_with("BEGIN snapshot"));
            Ok(())
        })?;
        print::line(&format!(
            "{}: the stream is whole; it has {snapshots} snapshots, and all checksums are right",
            self.file.display()
        ))?;
        Ok(Outcome::Complete)
    }
}

impl TokenArgs {
    fn run(&self) -> CommandResult {
        let facts = engine::stream::resume_token_facts(&self.token)?;
        if self.json {
            print::json(&facts)?;
            return Ok(Outcome::Complete);
        }
        // the form of `zstream token`
        print::line("resume token contents:")?;
        for (name, value) in [
            ("fromguid", facts.from_guid),
            ("object", facts.object),
            ("offset", facts.offset),
            ("bytes", facts.bytes),
            ("toguid", facts.to_guid),
        ] {
            print::line(&format!("\t{name} = {value:#x}"))?;
        }
        print::line(&format!("\ttoname = {}", facts.to_name))?;
        for (name, is_set) in [
            ("largeblockok", facts.large_blocks),
            ("embedok", facts.embedded),
            ("compressok", facts.compressed),
            ("rawok", facts.raw),
        ] {
            if is_set {
                print::line(&format!("\t{name}"))?;
            }
        }
        Ok(Outcome::Complete)
    }
}

/// Reads a stream to its end.
fn read_stream(
    file: &Path,
    all: bool,
    show: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> Result<(), Failure> {
    if file.as_os_str() == "-" {
        engine::stream::dump_stream(&mut std::io::stdin().lock(), all, show)?;
        return Ok(());
    }
    let opened = File::open(file)
        .map_err(|why| Failure::unreadable(file, &engine::error::io_error_text(&why)))?;
    engine::stream::dump_stream(&mut BufReader::new(opened), all, show)?;
    Ok(())
}
