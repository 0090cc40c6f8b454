//! What all commands that ask a daemon have in common; and `poolhouse serve`, which is one.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use ::daemon::{Client, Mode, Mounting, OfferedDescriptor, Request, StateDir};
use serde::de::DeserializeOwned;

use crate::bench::path::parse_size;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// The options of all commands that ask a daemon.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DaemonArgs {
    /// The folder with the daemon's socket, memory and log; without it POOLHOUSE_STATE, or the
    /// usual places
    #[arg(long, value_name = "DIR", global = true, help_heading = "Which daemon")]
    state: Option<PathBuf>,
    /// Print facts as JSON
    #[arg(short = 'j', long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
}

impl DaemonArgs {
    /// Asks the daemon, and starts one if none runs. What it warns of goes to standard error.
    pub(crate) fn request<T: DeserializeOwned>(&self, ask: &Request) -> Result<T, Failure> {
        let program = std::env::current_exe()?;
        let client = Client::with_autostart(StateDir::resolve(self.state.as_deref())?, program);
        let (value, warnings) = client.request(ask)?;
        for warning in warnings {
            print::warning(&warning);
        }
        Ok(value)
    }

    /// Offers a descriptor of this process to the daemon, for the bytes of a stream.
    pub(crate) fn offer_descriptor(
        &self,
        descriptor: OwnedFd,
    ) -> Result<OfferedDescriptor, Failure> {
        let place = StateDir::resolve(self.state.as_deref())?;
        Ok(OfferedDescriptor::new(&place, descriptor)?)
    }

    /// Asks the daemon something by the way; none: it does not run, or does not say.
    pub(crate) fn try_request<T: DeserializeOwned>(&self, ask: &Request) -> Option<T> {
        let place = StateDir::resolve(self.state.as_deref()).ok()?;
        Client::new(place).peek(ask)
    }

    /// Has the daemon do something.
    pub(crate) fn execute(&self, ask: &Request) -> CommandResult {
        // what leaves cannot be written to afterwards
        let leaves = matches!(ask, Request::ExportPool { .. } | Request::DestroyPool { .. });
        if leaves {
            self.record_command(ask);
        }
        self.request::<()>(ask)?;
        if !leaves {
            self.record_command(ask);
        }
        Ok(Outcome::Complete)
    }

    /// Has the daemon make something and mount it. What is made stays where that cannot be mounted: `made` says
    /// so.
    pub(crate) fn tell_mounting(&self, ask: &Request, made: &str) -> CommandResult {
        let Mounting { failed } = self.request(ask)?;
        self.record_command(ask);
        for why in &failed {
            print::error(why);
        }
        if !failed.is_empty() {
            print::error(&made);
        }
        Ok(Outcome::complete_unless(!failed.is_empty()))
    }

    /// Has the command written down in the history of the pool that it changes. It is done, whether
    /// that succeeds or not.
    fn record_command(&self, ask: &Request) {
        if let Some(pool) = ask.changed_pool() {
            self.record_command_in(pool);
        }
    }

    /// The same, in the history of that pool.
    pub(crate) fn record_command_in(&self, pool: &str) {
        let pool = pool.to_owned();
        let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
        let line = words.collect::<Vec<_>>().join(" ");
        let user = std::fs::metadata("/proc/self").map_or(0, |myself| myself.uid());
        let _ = self.try_request::<()>(&Request::RecordCommand { pool, command: line, uid: user });
    }
}

/// Own pools and their mounts, and answer commands
#[derive(clap::Args, Debug)]
#[command(
    after_help = "It takes over again the pools that it had when it ended, and ends cleanly when it
is told to (Ctrl-C, SIGTERM, --stop): what was changed is written, and the pools
stay this host's. The commands `poolhouse zpool` and `poolhouse zfs` start one in
the background if none runs.

Its place: for root /run/poolhouse and /var/lib/poolhouse, for users
$XDG_RUNTIME_DIR/poolhouse and $XDG_STATE_HOME/poolhouse (~/.local/state), or the
one folder that --state or POOLHOUSE_STATE names. Programs talk to it in HTTP:

Examples:
  poolhouse serve --state ~/nas
  curl --unix-socket ~/nas/socket http://localhost/v1/pools
  poolhouse serve --state ~/nas --stop"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Memory that may be used, such as 2G: half of it for what was read lately, a quarter for
    /// changes that wait to be written; without it, a quarter of what the machine or the cgroup has
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// End the daemon that runs there
    #[arg(long)]
    stop: bool,
    #[arg(long, hide = true)]
    background: bool,
}

impl Serve {
    pub(crate) fn run(&self) -> CommandResult {
        let place = StateDir::resolve(self.daemon.state.as_deref())?;
        if self.stop {
            return stop_daemon(place);
        }
        let manner = if self.background { Mode::Background } else { Mode::Foreground };
        let memory = self.memory.as_deref().map(parse_size).transpose()?;
        ::daemon::serve(&place, manner, memory, heap::return_free_memory)?;
        Ok(Outcome::Complete)
    }
}

/// Tells the daemon to end, and waits until it has.
fn stop_daemon(place: StateDir) -> CommandResult {
    let client = Client::new(place);
    if !client.is_running()? {
        print::warning(&"no daemon runs there");
        return Ok(Outcome::Complete);
    }
    let ((), _) = client.request(&Request::Stop {})?;
    client.wait_for_exit();
    Ok(Outcome::Complete)
}
