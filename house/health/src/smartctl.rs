//! Runs smartctl. A sleeping drive stays asleep, and a drive that does not answer costs a time limit only.
//!
//! ```text
//! smartctl --json -x -n standby,3 [-d TYPE] DEVICE
//! exit status   bit 0   the command line is wrong, or the type of the device is not known
//!               bit 1   the device could not be opened
//!               bits 2..7  facts about the drive, which the JSON has as well
//!               3       it sleeps (bits 0 and 1 never come together otherwise)
//! ```

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::parse_report;
use crate::{BlockDevice, SmartReport};

/// The exit status for a drive that sleeps.
const ASLEEP: i32 = 3;
/// The bits of the exit status that mean that nothing was read.
const NOT_READ: i32 = 0b11;
/// The longest output that is read, in bytes: a full report has about 100 KB.
const MAX_OUTPUT: u64 = 4 << 20;
/// Directories that are searched after those in PATH.
const SYSTEM_DIRS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// The runner of smartctl.
#[derive(Clone, Debug)]
pub struct Smartctl {
    /// The program.
    pub program: PathBuf,
    /// The time that one run may take.
    pub time_limit: Duration,
    /// The drives at which a run hangs.
    pub hung: HungDrives,
}

/// The drives at which a run of smartctl hangs in the kernel, past its end. No other run is started there, so
/// that processes and threads do not pile up.
#[derive(Clone, Debug, Default)]
pub struct HungDrives(Arc<Mutex<BTreeSet<PathBuf>>>);

impl HungDrives {
    fn contains(&self, drive: &Path) -> bool {
        self.0.lock().is_ok_and(|drives| drives.contains(drive))
    }

    fn set(&self, drive: &Path, is_hung: bool) {
        let Ok(mut drives) = self.0.lock() else { return };
        if is_hung {
            drives.insert(drive.to_owned());
        } else {
            drives.remove(drive);
        }
    }
}

impl Default for Smartctl {
    fn default() -> Self {
        Self {
            program: "smartctl".into(),
            time_limit: Duration::from_mins(1),
            hung: HungDrives::default(),
        }
    }
}

/// The result of reading a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A report.
    Report(Box<SmartReport>),
    /// The drive sleeps and was not woken.
    Asleep,
}

/// Why a drive could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmartctlError {
    /// The program is missing.
    #[error(
        "smartctl is not installed, so that the health of drives is not known; install the package smartmontools"
    )]
    NotInstalled {},
    /// The program cannot be run.
    #[error("'{program}' cannot be run: {why}; correct health.smartctl in config.toml")]
    NotRunnable {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// The time limit passed.
    #[error(
        "the drive did not respond to smartctl within {seconds} seconds; look at its cable and at dmesg"
    )]
    TimedOut {
        /// The limit in seconds.
        seconds: u64,
    },
    /// The daemon's user may not open the drive.
    #[error("the daemon may not read the drive; run it as root")]
    NotPermitted {},
    /// The drive has no SMART data, or smartctl cannot reach it.
    #[error("no SMART data: {why}")]
    NoReport {
        /// The reason in smartctl's words.
        why: String,
    },
    /// The output is not JSON.
    #[error("the output of '{program}' is not JSON; smartctl 7.0 or newer is needed")]
    Malformed {
        /// The program.
        program: PathBuf,
    },
}

/// A self-test that the drive runs by itself while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SelfTestKind {
    /// About two minutes.
    Short,
    /// Reads the whole surface: many hours on a large drive.
    Long,
}

impl SelfTestKind {
    /// The word of `smartctl -t`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

impl Smartctl {
    /// Reads the report of a drive, unless it sleeps.
    pub fn read(&self, drive: &BlockDevice) -> Result<Reading, SmartctlError> {
        let (status, json) = self.run(&["--json", "-x", "-n", "standby,3"], drive)?;
        if status == ASLEEP {
            return Ok(Reading::Asleep);
        }
        match parse_report(&json) {
            Some(report) if status & NOT_READ == 0 => Ok(Reading::Report(Box::new(report))),
            _ => Err(failure(&json)),
        }
    }

    /// Starts a self-test. The drive wakes up for it.
    pub fn start_self_test(
        &self,
        drive: &BlockDevice,
        kind: SelfTestKind,
    ) -> Result<(), SmartctlError> {
        let (status, json) = self.run(&["--json", "-t", kind.as_str()], drive)?;
        // bit 2: the drive refused a command
        if status & (NOT_READ | 0b100) == 0 { Ok(()) } else { Err(failure(&json)) }
    }

    /// Sends an ATA drive to standby at once (STANDBY IMMEDIATE): it stops to turn until its next request.
    pub fn send_to_standby(&self, drive: &BlockDevice) -> Result<(), SmartctlError> {
        let (status, json) = self.run(&["--json", "-s", "standby,now"], drive)?;
        if status & (NOT_READ | 0b100) == 0 { Ok(()) } else { Err(failure(&json)) }
    }

    /// Runs smartctl for a drive. Returns its exit status and its JSON.
    fn run(&self, options: &[&str], drive: &BlockDevice) -> Result<(i32, Value), SmartctlError> {
        let timed_out = || SmartctlError::TimedOut { seconds: self.time_limit.as_secs() };
        if self.hung.contains(&drive.path) {
            return Err(timed_out());
        }
        let mut command = Command::new(self.find_program());
        command.args(options).env("LC_ALL", "C");
        if let Some(kind) = &drive.smartctl_type {
            command.args(["-d", kind]);
        }
        command.arg("--").arg(&drive.path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| match why.kind() {
            std::io::ErrorKind::NotFound if self.is_default() => SmartctlError::NotInstalled {},
            _ => SmartctlError::NotRunnable { program: self.program.clone(), why: why.to_string() },
        })?;
        let output = self.wait(&mut child);
        if output.is_none() {
            let _ = child.kill();
            self.hung.set(&drive.path, true);
        }
        // a process that hangs in the kernel cannot be waited for here
        let reaper = thread::Builder::new().name("smartctl".to_owned());
        let (sender, status) = mpsc::channel();
        let (hung, path) = (self.hung.clone(), drive.path.clone());
        let _ = reaper.spawn(move || {
            let ended = child.wait();
            hung.set(&path, false);
            sender.send(ended)
        });
        let output = output.ok_or_else(timed_out)?;
        let status = status.recv_timeout(self.time_limit).ok().and_then(Result::ok);
        let status = status.and_then(|status| status.code()).ok_or_else(timed_out)?;
        let json = serde_json::from_slice(&output);
        let json = json.map_err(|_| SmartctlError::Malformed { program: self.program.clone() })?;
        Ok((status, json))
    }

    /// Reads the output until the program closes it; nothing if the time limit passed.
    fn wait(&self, child: &mut Child) -> Option<Vec<u8>> {
        let stdout = child.stdout.take()?;
        let (sender, output) = mpsc::channel();
        let reader = thread::Builder::new().name("smartctl output".to_owned());
        reader
            .spawn(move || {
                let mut bytes = Vec::new();
                let read = stdout.take(MAX_OUTPUT).read_to_end(&mut bytes);
                // nothing waits any more if the time limit passed
                let _ = sender.send(read.map(|_| bytes));
            })
            .ok()?;
        output.recv_timeout(self.time_limit).ok()?.ok()
    }

    fn is_default(&self) -> bool {
        self.program == Path::new("smartctl")
    }

    /// The program: of the usual name also in the directories that are not in every user's PATH.
    fn find_program(&self) -> PathBuf {
        let candidates = SYSTEM_DIRS.iter().map(|dir| Path::new(dir).join(&self.program));
        let in_path = std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|dir| dir.join(&self.program).is_file())
        });
        if in_path || !self.is_default() {
            return self.program.clone();
        }
        candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| self.program.clone())
    }
}

/// The error in smartctl's messages.
fn failure(json: &Value) -> SmartctlError {
    let messages = json.pointer("/smartctl/messages").and_then(Value::as_array);
    let texts = messages.into_iter().flatten().filter_map(|it| it.get("string")?.as_str());
    let why = texts.collect::<Vec<_>>().join("; ");
    if why.contains("Permission denied") || why.contains("Operation not permitted") {
        return SmartctlError::NotPermitted {};
    }
    let why = if why.is_empty() { "the drive does not report any".to_owned() } else { why };
    SmartctlError::NoReport { why }
}
