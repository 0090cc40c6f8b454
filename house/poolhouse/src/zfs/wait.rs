//! `poolhouse zfs wait`.

use std::time::Duration;

use api::GetDeleteQueue;

use crate::daemon::DaemonArgs;
use crate::interrupt;
use crate::outcome::{CommandResult, Outcome};

/// How often to look whether the activity has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Wait until background activity of a file system has ended
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The only activity is deleteq: removed files, whose space is being freed or which programs still
have open.

Example:
  poolhouse zfs wait tank/photos"
)]
pub(super) struct WaitArgs {
    /// The activities, separated by commas; without it all
    #[arg(short = 't', value_name = "ACTIVITY,...", value_delimiter = ',', value_parser = ["deleteq"])]
    _activities: Vec<String>,
    /// The file system
    #[arg(value_name = "FILESYSTEM")]
    name: String,
}

impl WaitArgs {
    pub(super) fn run(&self, asking: &DaemonArgs) -> CommandResult {
        interrupt::install_handler();
        let call = GetDeleteQueue { name: self.name.clone() };
        while asking.request(&call)? {
            if interrupt::is_interrupted() {
                return Ok(Outcome::Interrupted);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(Outcome::Complete)
    }
}
