//! `zfs send` and `zfs receive`.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use api::{ReceiveStream, SendStream};

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Send a snapshot as a stream to standard output
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The stream is OpenZFS's: `zfs receive` of either program takes it. With -i it holds
what changed since an older snapshot or bookmark, which the receiver must have.

Examples:
  poolhouse zfs send tank/photos@monday | ssh nas zfs receive backup/photos
  poolhouse zfs send -Lec -i @monday tank/photos@tuesday >photos.zstream"
)]
pub(super) struct SendArgs {
    /// Send what changed since this snapshot or bookmark: @NAME, #NAME or its full name
    #[arg(short = 'i', value_name = "BASE")]
    base: Option<String>,
    /// Send blocks above 128K whole
    #[arg(short = 'L', long = "large-block")]
    large_blocks: bool,
    /// Send blocks that are stored in their pointers as such
    #[arg(short = 'e', long = "embed")]
    embedded: bool,
    /// Send blocks as they are compressed on disk
    #[arg(short = 'c', long = "compressed")]
    compressed: bool,
    #[command(flatten)]
    missing: MissingSendOptions,
    /// FS@NAME
    snapshot: String,
}

/// Options of zfs-send(8) that are refused.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
struct MissingSendOptions {
    #[arg(short = 'R', long = "replicate", hide = true)]
    replicate: bool,
    #[arg(short = 'I', value_name = "BASE", hide = true)]
    intermediate: Option<String>,
    #[arg(short = 'p', long = "props", hide = true)]
    properties: bool,
    #[arg(short = 'b', long = "backup", hide = true)]
    backup: bool,
    #[arg(short = 'w', long = "raw", hide = true)]
    raw: bool,
    #[arg(short = 'n', long = "dryrun", hide = true)]
    dry_run: bool,
    #[arg(short = 'v', long = "verbose", hide = true)]
    verbose: bool,
    #[arg(short = 'P', long = "parsable", hide = true)]
    parsable: bool,
    #[arg(short = 's', long = "skip-missing", hide = true)]
    skip_missing: bool,
    #[arg(short = 'D', long = "dedup", hide = true)]
    dedup: bool,
    #[arg(short = 't', value_name = "TOKEN", hide = true)]
    token: Option<String>,
    #[arg(short = 'S', long = "saved", hide = true)]
    saved: bool,
    #[arg(short = 'X', long = "exclude", value_name = "FS", hide = true)]
    exclude: Option<String>,
    #[arg(long = "redact", value_name = "BOOKMARK", hide = true)]
    redact: Option<String>,
}

impl MissingSendOptions {
    fn check(&self) -> Result<(), Failure> {
        refuse(
            "send",
            &[
                ("-R", self.replicate),
                ("-I", self.intermediate.is_some()),
                ("-p", self.properties),
                ("-b", self.backup),
                ("-w", self.raw),
                ("-n", self.dry_run),
                ("-v", self.verbose),
                ("-P", self.parsable),
                ("-s", self.skip_missing),
                ("-D", self.dedup),
                ("-t", self.token.is_some()),
                ("-S", self.saved),
                ("-X", self.exclude.is_some()),
                ("--redact", self.redact.is_some()),
            ],
        )
    }
}

impl SendArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        self.missing.check()?;
        let out = std::io::stdout();
        if out.is_terminal() {
            return Err(Failure::usage(
                "a stream cannot be written to a terminal; redirect standard output",
            ));
        }
        let offered = asking.offer_descriptor(out.as_fd().try_clone_to_owned()?)?;
        let base = self.base.as_deref().map(|base| full_base_name(base, &self.snapshot));
        asking.request(&SendStream {
            snapshot: self.snapshot.clone(),
            base,
            large_blocks: self.large_blocks,
            embedded: self.embedded,
            compressed: self.compressed,
            descriptor: offered.path().to_owned(),
        })?;
        Ok(Outcome::Complete)
    }
}

/// The base of an incremental stream by its full name: `@NAME` is of the snapshot's file system, a bare
/// name too.
fn full_base_name(base: &str, snapshot: &str) -> String {
    let head = snapshot.split('@').next().unwrap_or_default();
    match base {
        short if short.starts_with(['@', '#']) => format!("{head}{short}"),
        full if full.contains(['@', '#', '/']) => full.to_owned(),
        bare => format!("{head}@{bare}"),
    }
}

/// Receive a stream from standard input
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A full stream makes a new file system or volume, an incremental stream a new snapshot of
one that is there. A stream that is damaged or cut changes nothing.

Examples:
  poolhouse zfs receive tank/photos <photos.zstream
  ssh nas zfs send -i @monday tank/photos@tuesday | poolhouse zfs receive -F tank/photos"
)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
pub(super) struct ReceiveArgs {
    /// Give up what was changed since the newest snapshot
    #[arg(short = 'F')]
    force: bool,
    /// Do not mount what is new
    #[arg(short = 'u')]
    no_mount: bool,
    /// Only check whether the stream could be received
    #[arg(short = 'n')]
    dry_run: bool,
    /// Tell what was received
    #[arg(short = 'v')]
    verbose: bool,
    #[command(flatten)]
    missing: MissingReceiveOptions,
    /// FS, VOLUME or FS@NAME
    target: String,
}

/// Options of zfs-receive(8) that are refused.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
struct MissingReceiveOptions {
    #[arg(short = 's', hide = true)]
    resumable: bool,
    #[arg(short = 'A', hide = true)]
    abort: bool,
    #[arg(short = 'd', hide = true)]
    drop_pool_name: bool,
    #[arg(short = 'e', hide = true)]
    last_name: bool,
    #[arg(short = 'M', hide = true)]
    force_unmount: bool,
    #[arg(short = 'c', hide = true)]
    corrective: bool,
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", hide = true)]
    properties: Vec<String>,
    #[arg(short = 'x', value_name = "PROPERTY", hide = true)]
    excluded: Vec<String>,
}

impl MissingReceiveOptions {
    fn check(&self) -> Result<(), Failure> {
        refuse(
            "receive",
            &[
                ("-s", self.resumable),
                ("-A", self.abort),
                ("-d", self.drop_pool_name),
                ("-e", self.last_name),
                ("-M", self.force_unmount),
                ("-c", self.corrective),
                ("-o", !self.properties.is_empty()),
                ("-x", !self.excluded.is_empty()),
            ],
        )
    }
}

impl ReceiveArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        self.missing.check()?;
        let input = std::io::stdin();
        if input.is_terminal() {
            return Err(Failure::usage(
                "a stream cannot be read from a terminal; redirect standard input",
            ));
        }
        let offered = asking.offer_descriptor(input.as_fd().try_clone_to_owned()?)?;
        let call = ReceiveStream {
            target: self.target.clone(),
            force: self.force,
            no_mount: self.no_mount,
            dry_run: self.dry_run,
            descriptor: offered.path().to_owned(),
        };
        let done = asking.request(&call)?;
        if self.verbose {
            let kind = if done.is_incremental { "incremental" } else { "full" };
            let verb = if self.dry_run { "would receive" } else { "received" };
            print::line(&format!(
                "{verb} {kind} stream of {} ({} bytes)",
                done.snapshot, done.bytes
            ))?;
        }
        for why in &done.not_mounted {
            print::error(why);
        }
        Ok(Outcome::complete_unless(!done.not_mounted.is_empty()))
    }
}

/// Refuses those options that were given.
fn refuse(command: &str, options: &[(&str, bool)]) -> Result<(), Failure> {
    let given: Vec<&str> =
        options.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if given.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!("zfs {command} {} is not supported yet", given.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::full_base_name;

    #[test]
    fn base_may_be_named_in_short() {
        let snapshot = "tank/a@two";
        for (base, full) in [
            ("@one", "tank/a@one"),
            ("#one", "tank/a#one"),
            ("one", "tank/a@one"),
            ("tank/b@one", "tank/b@one"),
        ] {
            assert_eq!(full_base_name(base, snapshot), full);
        }
    }
}
