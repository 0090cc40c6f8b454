//! `poolhouse backup send`: a snapshot of a repository as a stream, for `zfs receive`.

use std::io::{self, BufWriter, Write};

use engine::backup::RepositorySend;

use super::RepositoryArgs;
use crate::outcome::{CommandResult, Outcome};
use crate::zfs::send::{BlockFormat, full_base_name, refuse_terminal};

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
pub(super) struct Args {
    #[command(flatten)]
    repository: RepositoryArgs,
    /// FS@SNAPSHOT
    #[arg(required_unless_present = "token")]
    snapshot: Option<String>,
    /// Send what changed since this snapshot, which the receiver must have: @NAME or its full name
    #[arg(short = 'i', value_name = "BASE", conflicts_with = "token")]
    base: Option<String>,
    #[command(flatten)]
    format: BlockFormat,
    /// Resume an interrupted stream: the receive_resume_token of the receiver
    #[arg(short = 't', value_name = "TOKEN")]
    token: Option<String>,
}

impl Args {
    pub(super) fn run(&self) -> CommandResult {
        let out = io::stdout();
        refuse_terminal(&out)?;
        let repository = self.repository.open()?;
        let mut out = BufWriter::with_capacity(1 << 20, out.lock());
        repository.send(&self.request(), &mut out)?;
        out.flush()?;
        Ok(Outcome::Complete)
    }

    fn request(&self) -> RepositorySend {
        let snapshot = self.snapshot.clone().unwrap_or_default();
        RepositorySend {
            base: self.base.as_ref().map(|base| full_base_name(base, &snapshot)),
            large_blocks: self.format.large_blocks,
            embedded: self.format.embedded,
            compressed: self.format.compressed,
            raw: self.format.raw,
            resume: self.token.clone(),
            snapshot,
        }
    }
}
