//! `zfs send`.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use api::{PlanSend, PlannedSend, SendStream};
use engine::stream::ResumeTokenFacts;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// Send snapshots as a stream to standard output
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The stream has OpenZFS's format: `zfs receive` of either program accepts it. With -i it has
the changes since an older snapshot or bookmark, which the receiver must have.

Examples:
  poolhouse zfs send tank/photos@monday | ssh nas zfs receive backup/photos
  poolhouse zfs send -Lec -i @monday tank/photos@tuesday >photos.zstream
  poolhouse zfs send -w tank/secret@monday | ssh nas zfs receive backup/secret   stays encrypted
  poolhouse zfs send -R -I @monday tank@tuesday | ssh nas zfs receive -Fdu backup
  poolhouse zfs send --redact public tank/patients@all >public.zstream    see zfs redact
  poolhouse zfs send -nv tank/photos@monday         how large would it be?
  poolhouse zfs send -t TOKEN | ssh nas zfs receive -s backup/photos"
)]
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
pub(super) struct SendArgs {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Send what changed since this snapshot or bookmark: @NAME, #NAME or its full name
    #[arg(short = 'i', value_name = "BASE", conflicts_with = "intermediates")]
    base: Option<String>,
    /// Send all snapshots since this one, each as an increment
    #[arg(short = 'I', value_name = "BASE")]
    intermediates: Option<String>,
    /// Send the file systems below, too, with their snapshots and properties
    #[arg(short = 'R', long = "replicate")]
    replicate: bool,
    /// Send the properties, too
    #[arg(short = 'p', long = "props")]
    properties: bool,
    /// With -R, leave out file systems that do not have the snapshot
    #[arg(short = 's', long = "skip-missing")]
    skip_missing: bool,
    #[command(flatten)]
    format: BlockFormat,
    /// Send properties as they were received, not as they were set here since. Implies -p
    #[arg(short = 'b', long = "backup")]
    backup: bool,
    /// Send the holds of the snapshots, too
    #[arg(short = 'h', long = "holds")]
    holds: bool,
    /// With -R, leave out these file systems and volumes, and all below them
    #[arg(
        short = 'X',
        long = "exclude",
        value_name = "DATASET",
        value_delimiter = ',',
        requires = "replicate"
    )]
    excluded: Vec<String>,
    /// Go on with a stream that was cut: the receive_resume_token of the receiver
    #[arg(short = 't', value_name = "TOKEN", conflicts_with_all = ["base", "intermediates",
          "replicate", "properties"])]
    token: Option<String>,
    /// Send nothing: with -v, show what would be sent and how large it is
    #[arg(short = 'n', long = "dryrun")]
    dry_run: bool,
    /// Show the contents of the stream, and its estimated size
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
    /// The same with exact numbers, and tabs between columns
    #[arg(short = 'P', long = "parsable")]
    parsable: bool,
    /// Leave out the blocks of this redaction bookmark, which `zfs redact` made of the snapshot
    #[arg(long = "redact", value_name = "BOOKMARK", conflicts_with_all = ["intermediates",
          "replicate", "properties", "raw", "backup", "holds", "token"])]
    redact: Option<String>,
    /// Send the saved part of an interrupted `zfs receive -s` into this file system or volume. Its receiver, with -s, goes
    /// on with `zfs send -t` of the first sender
    #[arg(short = 'S', long = "saved", conflicts_with_all = ["base", "intermediates", "replicate",
          "properties", "backup", "holds", "token", "redact"])]
    saved: bool,
    #[command(flatten)]
    _accepted: AcceptedOptions,
    /// FS@NAME; FS or VOLUME as it is now, which must not be mounted; with -S FS
    #[arg(required_unless_present = "token")]
    snapshot: Option<String>,
}

/// The form in which a stream has the blocks of a snapshot.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
pub(crate) struct BlockFormat {
    /// Send blocks above 128K whole
    #[arg(short = 'L', long = "large-block")]
    pub(crate) large_blocks: bool,
    /// Send blocks that are stored in their pointers as such
    #[arg(short = 'e', long = "embed")]
    pub(crate) embedded: bool,
    /// Send blocks as they are compressed on disk
    #[arg(short = 'c', long = "compressed")]
    pub(crate) compressed: bool,
    /// Send encrypted file systems and volumes as they are on disk. No key is needed, here or there. Others are
    /// sent as with -Lec
    #[arg(short = 'w', long = "raw")]
    pub(crate) raw: bool,
}

/// Refuses to write a stream to a terminal.
pub(crate) fn refuse_terminal(out: &io::Stdout) -> Result<(), Failure> {
    if out.is_terminal() {
        let what = "a stream cannot be written to a terminal; redirect standard output";
        return Err(Failure::usage(what));
    }
    Ok(())
}

/// Options of zfs-send(8) that need nothing.
#[derive(clap::Args, Debug)]
struct AcceptedOptions {
    /// Ignored: deduplicated streams no longer exist
    #[arg(short = 'D', long = "dedup", hide = true)]
    _dedup: bool,
}

impl SendArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        let (out, mut call) = (io::stdout(), self.call());
        let reports = self.verbose || self.parsable || asking.json;
        if self.dry_run || reports {
            let planned = asking.request(&PlanSend { send: call.clone() })?;
            match (self.dry_run, reports) {
                (true, true) if asking.json => print::json(&planned)?,
                (true, true) => self.report(&planned, &mut out.lock())?,
                (false, _) => self.report(&planned, &mut io::stderr().lock())?,
                (true, false) => {}
            }
        }
        if self.dry_run {
            return Ok(Outcome::Complete);
        }
        refuse_terminal(&out)?;
        let offered = asking.offer_descriptor(out.as_fd().try_clone_to_owned()?)?;
        offered.path().clone_into(&mut call.descriptor);
        asking.request(&call)?;
        Ok(Outcome::Complete)
    }

    fn call(&self) -> SendStream {
        let snapshot = self.snapshot.clone().unwrap_or_default();
        let base = self.base.as_ref().or(self.intermediates.as_ref());
        SendStream {
            base: base.map(|base| full_base_name(base, &snapshot)),
            snapshot,
            intermediates: self.intermediates.is_some(),
            replicate: self.replicate,
            properties: self.properties || self.backup || self.holds,
            skip_missing: self.skip_missing,
            resume_token: self.token.clone(),
            large_blocks: self.format.large_blocks,
            embedded: self.format.embedded,
            compressed: self.format.compressed,
            raw: self.format.raw,
            excluded: self.excluded.clone(),
            backup: self.backup,
            holds: self.holds,
            redact: self.redact.clone(),
            saved: self.saved,
            descriptor: PathBuf::new(),
        }
    }

    /// Prints the contents of the stream, in the words of zfs-send(8), which scripts read.
    fn report(&self, planned: &[PlannedSend], out: &mut dyn Write) -> Result<(), Failure> {
        if let Some(token) = &self.token {
            print_token(&engine::stream::resume_token_facts(token)?, out)?;
        }
        Ok(self.report_steps(planned, out)?)
    }

    fn report_steps(&self, planned: &[PlannedSend], out: &mut dyn Write) -> io::Result<()> {
        let total: u64 = planned.iter().map(|step| step.bytes).sum();
        for PlannedSend { snapshot, base, bytes } in planned {
            let size = units::human_space(*bytes);
            match base {
                Some(base) if self.parsable => {
                    writeln!(out, "incremental\t{base}\t{snapshot}\t{bytes}")?;
                }
                None if self.parsable => writeln!(out, "full\t{snapshot}\t{bytes}")?,
                Some(base) => {
                    let at = if base.contains(['@', '#']) { "" } else { "@" };
                    writeln!(out, "send from {at}{base} to {snapshot} estimated size is {size}")?;
                }
                None => writeln!(out, "full send of {snapshot} estimated size is {size}")?,
            }
        }
        if self.parsable {
            writeln!(out, "size\t{total}")
        } else {
            writeln!(out, "total estimated size is {}", units::human_space(total))
        }
    }
}

/// Prints a receive_resume_token in the form of nvlist_print(3), as zfs-send(8) does. Scripts read the names.
fn print_token(facts: &ResumeTokenFacts, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "resume token contents:\nnvlist version: 0")?;
    if facts.from_guid != 0 {
        writeln!(out, "\tfromguid = {:#x}", facts.from_guid)?;
    }
    let ResumeTokenFacts { object, offset, bytes, to_guid, to_name, .. } = facts;
    writeln!(out, "\tobject = {object:#x}\n\toffset = {offset:#x}\n\tbytes = {bytes:#x}")?;
    writeln!(out, "\ttoguid = {to_guid:#x}\n\ttoname = {to_name}")?;
    let flags = [
        ("largeblockok", facts.large_blocks),
        ("embedok", facts.embedded),
        ("compressok", facts.compressed),
        ("rawok", facts.raw),
    ];
    for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
        writeln!(out, "\t{name} = 1")?;
    }
    Ok(())
}

/// The base of an incremental stream by its full name: `@NAME` is of the snapshot's file system, a bare
/// name too.
pub(crate) fn full_base_name(base: &str, snapshot: &str) -> String {
    let head = snapshot.split('@').next().unwrap_or_default();
    match base {
        short if short.starts_with(['@', '#']) => format!("{head}{short}"),
        full if full.contains(['@', '#', '/']) => full.to_owned(),
        bare => format!("{head}@{bare}"),
    }
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
