//! `zfs receive`.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::PathBuf;

use api::{AbortReceive, ReceiveNaming, ReceiveStream, ReceivedSnapshot};

use super::select::canonical_properties;
use crate::daemon::DaemonArgs;
use crate::keys::read_receive_key;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;
use crate::property_values::parse_assignment;

/// Receive a stream from standard input
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A full stream creates a file system or volume, an incremental stream a snapshot of an
existing one. A damaged or interrupted stream changes nothing, unless -s keeps the received part.

Examples:
  poolhouse zfs receive tank/photos <photos.zstream
  ssh nas zfs send -i @monday tank/photos@tuesday | poolhouse zfs receive -F tank/photos
  ssh nas zfs send -R tank@monday | poolhouse zfs receive -Fdu backup
  ssh nas zfs send tank/photos@one | poolhouse zfs receive -o encryption=on -o keyformat=hex
      -o keylocation=file:///root/key tank/private        encrypts what was not encrypted
  poolhouse zfs receive -s tank/photos <photos.zstream   can be resumed: zfs send -t TOKEN
  poolhouse zfs receive -A tank/photos                   discards the received part
  ssh nas zfs send -w tank/photos@one | poolhouse zfs receive -cv tank/photos@one   heals damaged blocks"
)]
#[command(disable_help_flag = true)]
#[expect(clippy::struct_excessive_bools, reason = "options, each on its own")]
pub(super) struct ReceiveArgs {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Roll back to the newest snapshot first; destroy what the sender destroyed (-R streams)
    #[arg(short = 'F')]
    force: bool,
    /// Do not mount new file systems
    #[arg(short = 'u')]
    no_mount: bool,
    /// Only check whether the stream could be received
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print what was received
    #[arg(short = 'v')]
    verbose: bool,
    /// Keep the partial state of an interrupted stream, so that its receive_resume_token can resume
    /// it
    #[arg(short = 's')]
    resumable: bool,
    /// Abort a resumable receive: its partial state is destroyed
    #[arg(short = 'A', conflicts_with_all = ["resumable", "force", "dry_run"])]
    abort: bool,
    /// The sent name without its pool goes below the target
    #[arg(short = 'd', conflicts_with = "last_element")]
    drop_pool: bool,
    /// The last element of the sent name goes below the target
    #[arg(short = 'e')]
    last_element: bool,
    /// Leave out the holds of the stream
    #[arg(short = 'h')]
    skip_holds: bool,
    /// Set a property, overriding the stream's value
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = parse_assignment)]
    properties: Vec<(String, String)>,
    /// Leave out a property of the stream
    #[arg(short = 'x', value_name = "PROPERTY")]
    excluded: Vec<String>,
    /// Receive nothing: heal damaged blocks of a snapshot from a stream of the same snapshot. With -n, only count them
    #[arg(short = 'c', conflicts_with_all = ["force", "resumable", "abort", "drop_pool",
          "last_element", "properties", "excluded"])]
    corrective: bool,
    #[command(flatten)]
    _accepted: AcceptedOptions,
    /// FS, VOLUME or FS@NAME
    target: String,
}

/// Options of zfs-receive(8) that need nothing.
#[derive(clap::Args, Debug)]
struct AcceptedOptions {
    /// Mounted file systems stay mounted, so that nothing need be forced
    #[arg(short = 'M', hide = true)]
    _force_unmount: bool,
}

impl ReceiveArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        if self.abort {
            return asking.execute(&AbortReceive { target: self.target.clone() });
        }
        let input = std::io::stdin();
        if input.is_terminal() {
            return Err(Failure::usage(
                "a stream cannot be read from a terminal; redirect standard input",
            ));
        }
        let properties = canonical_properties(&self.properties)?;
        let secret = if self.dry_run { None } else { read_receive_key(&self.target, &properties)? };
        let offered = asking.offer_descriptor(input.as_fd().try_clone_to_owned()?)?;
        let call = ReceiveStream {
            set_properties: properties,
            secret,
            ..self.call(offered.path().to_owned())
        };
        let done = asking.request(&call)?;
        if asking.json {
            match &done.healed {
                Some(healed) => print::json(healed)?,
                None => print::json(&done.snapshots)?,
            }
        } else if self.verbose {
            done.snapshots.iter().try_for_each(|one| self.report(one))?;
        }
        if let Some(healed) = done.healed.as_ref().filter(|_| self.verbose && !asking.json) {
            print::line(&format!(
                "{}: {} blocks examined, {} damaged, {} healed",
                healed.snapshot, healed.examined, healed.damaged, healed.healed
            ))?;
        }
        for why in done.warnings.iter().chain(&done.not_mounted) {
            print::error(why);
        }
        // as with OpenZFS, a property that this pool cannot have is no failure
        Ok(Outcome::complete_unless(!done.not_mounted.is_empty()))
    }

    /// The call without the properties that are to be set.
    fn call(&self, descriptor: PathBuf) -> ReceiveStream {
        ReceiveStream {
            target: self.target.clone(),
            naming: match (self.drop_pool, self.last_element) {
                (true, _) => ReceiveNaming::DropPool,
                (_, true) => ReceiveNaming::LastElement,
                _ => ReceiveNaming::Exact,
            },
            force: self.force,
            no_mount: self.no_mount,
            dry_run: self.dry_run,
            resumable: self.resumable,
            corrective: self.corrective,
            skip_holds: self.skip_holds,
            excluded_properties: self
                .excluded
                .iter()
                .flat_map(|it| it.split(','))
                .map(str::to_owned)
                .collect(),
            descriptor,
            ..ReceiveStream::default()
        }
    }

    /// Shows a snapshot that was received, in the words of zfs-receive(8).
    fn report(&self, one: &ReceivedSnapshot) -> std::io::Result<()> {
        if one.existed {
            return print::line(&format!("snap {} already exists; ignoring", one.snapshot));
        }
        let verb = if self.dry_run { "would receive" } else { "receiving" };
        let kind = if one.is_incremental { "incremental" } else { "full" };
        print::line(&format!("{verb} {kind} stream of {} into {}", one.sent, one.snapshot))?;
        if self.dry_run {
            return Ok(());
        }
        let (seconds, thousandths) = (one.milliseconds / 1000, one.milliseconds % 1000);
        let rate = one.bytes.saturating_mul(1000) / one.milliseconds.max(1);
        let [size, rate] = [one.bytes, rate].map(units::human_space);
        let size = if one.bytes < 1024 { format!("{size}B") } else { size };
        let hundredths = thousandths / 10;
        print::line(&format!(
            "received {size} stream in {seconds}.{hundredths:02} seconds ({rate}/sec)"
        ))
    }
}
