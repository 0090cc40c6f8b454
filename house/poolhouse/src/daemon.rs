//! The options of all commands that call a daemon; and `poolhouse serve`, which is one.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ::daemon::{Client, Mode, OfferedDescriptor, StateDir};
use api::{Call, Mounting, Reply, StopDaemon};

use crate::bench::path::parse_size;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// The options of all commands that call a daemon.
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
    /// Makes a call to the daemon, and starts one if none runs. Warnings go to standard error.
    pub(crate) fn request<C: Call>(&self, call: &C) -> Result<C::Response, Failure> {
        let program = std::env::current_exe()?;
        let client = Client::with_autostart(self.state_dir()?, program);
        let Reply { value, warnings } = client.recording(command_line()).call(call)?;
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
        Ok(OfferedDescriptor::new(&self.state_dir()?, descriptor)?)
    }

    /// Makes a call whose failure does not matter; none: the daemon does not run or refuses.
    pub(crate) fn try_request<C: Call>(&self, call: &C) -> Option<C::Response> {
        Client::new(self.state_dir().ok()?).peek(call)
    }

    /// The state directory of the daemon.
    pub(crate) fn state_dir(&self) -> Result<StateDir, Failure> {
        Ok(StateDir::find(self.state.as_deref())?)
    }

    /// Makes a call whose reply has no value.
    pub(crate) fn execute(&self, call: &impl Call<Response = ()>) -> CommandResult {
        self.request(call)?;
        Ok(Outcome::Complete)
    }

    /// Makes a call that creates or changes a file system and mounts it. `created` is printed if that is done and
    /// it could not be mounted.
    pub(crate) fn create_mounted(
        &self,
        call: &impl Call<Response = Mounting>,
        created: &str,
    ) -> CommandResult {
        let Mounting { failed } = self.request(call)?;
        for why in &failed {
            print::error(why);
        }
        if !failed.is_empty() {
            print::error(&created);
        }
        Ok(Outcome::complete_unless(!failed.is_empty()))
    }
}

/// The command line without the program, for the histories of pools.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Import pools, mount file systems, and serve commands
#[derive(clap::Args, Debug)]
#[command(
    after_help = "It imports the pools again that it had when it ended. Ctrl-C, SIGTERM and --stop
end it cleanly: all changes are synced, and the pools stay imported by this
host. The commands `poolhouse zpool` and `poolhouse zfs` start one in
the background if none runs.

Its folders: for root /run/poolhouse and /var/lib/poolhouse, for users
$XDG_RUNTIME_DIR/poolhouse and $XDG_STATE_HOME/poolhouse (~/.local/state), or the
one folder that --state or POOLHOUSE_STATE names. Every local user may read the state;
changes are for root and the user that runs it. Programs use its HTTP API, which
/api/v1/openapi.json describes:

Examples:
  poolhouse serve --state ~/nas
  curl --unix-socket ~/nas/socket http://localhost/api/v1/pools
  poolhouse serve --state ~/nas --stop"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Memory that may be used, such as 2G: half of it for cached reads, a quarter for dirty data.
    /// Without it, a quarter of the memory of the machine or the cgroup
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

/// Ends the daemon, and waits until it has ended.
fn stop_daemon(place: StateDir) -> CommandResult {
    let client = Client::new(place);
    if !client.is_running()? {
        print::warning(&"no daemon runs there");
        return Ok(Outcome::Complete);
    }
    client.call(&StopDaemon {})?;
    client.wait_for_exit();
    Ok(Outcome::Complete)
}
