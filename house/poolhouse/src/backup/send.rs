//! `poolhouse backup send`: a snapshot of a repository as a stream, for `zfs receive`.

use std::io::{self, BufWriter, IsTerminal, Write};

use engine::backup::RepositorySend;

use super::RepositoryArgs;
use crate::outcome::{CommandResult, Failure, Outcome};

/// Send a snapshot of a repository as a stream to standard output
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The stream has OpenZFS's format: `zfs receive` of either program accepts it. It is the stream
that the pool itself would send. The pool need not exist any more. FS alone is its newest
snapshot. A stream carries no properties: give them to zfs receive with -o.

Examples:
  poolhouse backup send file:///mnt/usb/backup tank/home@monday | poolhouse zfs receive tank/home
  poolhouse backup send -w file:///mnt/usb/backup tank/secret@monday | ssh nas zfs receive tank/secret
  poolhouse backup send -c -i @monday file:///mnt/usb/backup tank/home@tuesday >home.zstream"
)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
pub(super) struct Args {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// FS@SNAPSHOT
    #[arg(required_unless_present = "token")]
    snapshot: Option<String>,
    /// Send what changed since this snapshot, which the receiver must have: @NAME or its full name
    #[arg(short = 'i', value_name = "BASE", conflicts_with = "token")]
    base: Option<String>,
    /// Send blocks above 128K whole
    #[arg(short = 'L', long = "large-block")]
    large_blocks: bool,
    /// Send blocks that are stored in their pointers as such
    #[arg(short = 'e', long = "embed")]
    embedded: bool,
    /// Send blocks as they are compressed
    #[arg(short = 'c', long = "compressed")]
    compressed: bool,
    /// Send encrypted file systems and volumes as they are stored; no key is needed. Others are sent as with
    /// -Lec
    #[arg(short = 'w', long = "raw")]
    raw: bool,
    /// Resume an interrupted stream: the receive_resume_token of the receiver
    #[arg(short = 't', value_name = "TOKEN")]
    token: Option<String>,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let out = io::stdout();
        if out.is_terminal() {
            return Err(Failure::usage(
                "a stream cannot be written to a terminal; redirect standard output",
            ));
        }
        let repository = self.repository.open()?;
        let mut out = BufWriter::with_capacity(1 << 20, out.lock());
        repository.send(&self.request(), &mut out)?;
        out.flush()?;
        Ok(Outcome::Complete)
    }

    fn request(&self) -> RepositorySend {
        let snapshot = self.snapshot.clone().unwrap_or_default();
        let head = snapshot.split('@').next().unwrap_or_default();
        let full_name = |base: &String| {
            if base.starts_with('@') {
                format!("{head}{base}")
            } else if base.contains('@') {
                base.clone()
            } else {
                format!("{head}@{base}")
            }
        };
        RepositorySend {
            base: self.base.as_ref().map(full_name),
            large_blocks: self.large_blocks,
            embedded: self.embedded,
            compressed: self.compressed,
            raw: self.raw,
            resume: self.token.clone(),
            snapshot,
        }
    }
}
