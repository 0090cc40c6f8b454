//! The ways to copy: our own copier, and common programs.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::destination::{Destination, SSH_OPTIONS};
use super::parallel_copy;
use crate::Error;
use crate::progress::Progress;

/// A way to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMethod {
    /// This program.
    BuiltIn,
    /// `cp -a`.
    Cp,
    /// `rsync -a`.
    Rsync,
    /// `rsync -a` through ssh.
    RsyncSsh,
}

/// The interval at which a program's end is polled.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

impl CopyMethod {
    /// All.
    pub const ALL: [Self; 4] = [Self::BuiltIn, Self::Cp, Self::Rsync, Self::RsyncSsh];

    /// Its name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::BuiltIn => "poolhouse",
            Self::Cp => "cp",
            Self::Rsync => "rsync",
            Self::RsyncSsh => "rsync-ssh",
        }
    }

    /// By that name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.id() == id)
    }

    /// Its name for a user.
    pub fn name(self) -> &'static str {
        match self {
            Self::RsyncSsh => "rsync over ssh",
            other => other.id(),
        }
    }

    /// Why it does not lead to a place, if it does not.
    pub(super) fn unavailable_reason(self, place: &Destination) -> Option<String> {
        let missing = |program: &str| {
            (!can_run(program, &["--version"])).then(|| format!("{program} is not installed"))
        };
        match (self, place) {
            (Self::BuiltIn | Self::Cp | Self::Rsync, Destination::Remote(_)) => {
                Some("it does not reach other machines by itself".to_owned())
            }
            (Self::BuiltIn, Destination::Local(_)) => None,
            (Self::Cp, Destination::Local(_)) => missing("cp"),
            (Self::Rsync, Destination::Local(_)) => missing("rsync"),
            (Self::RsyncSsh, place) => missing("rsync").or_else(|| {
                let host =
                    if let Destination::Remote(there) = place { &there.host } else { "localhost" };
                let reaches = can_run("ssh", &[&SSH_OPTIONS[..], &[host, "true"]].concat());
                (!reaches).then(|| format!("ssh does not reach {host} without a prompt"))
            }),
        }
    }

    /// Copies a tree into the place's empty folder. Whether it came to its end, which it does not
    /// if it takes longer than `limit` or is to stop.
    pub(super) fn copy(
        self,
        source: &Path,
        place: &Destination,
        limit: Option<Duration>,
        course: &Progress<'_>,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        let over = || course.is_cancelled() || limit.is_some_and(|limit| began.elapsed() >= limit);
        let (target, far) = match place {
            Destination::Local(here) => {
                (here.run_dir(), format!("localhost:{}", here.run_dir().display()))
            }
            Destination::Remote(there) => {
                (there.run_dir().into(), format!("{}:{}", there.host, there.run_dir()))
            }
        };
        let contents = source.join(".");
        let mut command = match self {
            Self::BuiltIn => return parallel_copy::copy_tree(source, &target, &over),
            Self::Cp => {
                let mut command = Command::new("cp");
                command.args(["-a", "--reflink=never", "--"]).arg(contents).arg(target);
                command
            }
            Self::Rsync => {
                let mut command = Command::new("rsync");
                command.args(["-a", "--"]).arg(contents).arg(target);
                command
            }
            Self::RsyncSsh => {
                let mut command = Command::new("rsync");
                let ssh = format!("ssh {}", SSH_OPTIONS.join(" "));
                command.args(["-a", "-s", "-e", &ssh, "--"]).arg(contents).arg(far);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let failed = |why: String| Error::Program { program: self.name().to_owned(), why };
        // all processes of the program are ended together
        let child = command.process_group(0).spawn().map_err(|error| failed(error.to_string()))?;
        wait_or_kill(child, &over).map_err(failed)
    }

    /// The program and its version.
    pub(super) fn program_version(self) -> Option<(String, String)> {
        let (program, argument) = match self {
            Self::BuiltIn => return None,
            Self::Cp => ("cp", "--version"),
            Self::Rsync => ("rsync", "--version"),
            Self::RsyncSsh => ("ssh", "-V"),
        };
        let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next()?.trim().to_owned();
        Some((program.to_owned(), line))
    }
}

fn can_run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Waits for a program, or ends it.
fn wait_or_kill(mut child: Child, over: &dyn Fn() -> bool) -> Result<bool, String> {
    let said = child.stderr.take().map(|mut pipe| {
        // read at once: a full pipe would block the program forever
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(true),
            Some(status) => {
                let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
                return Err(format!("{status}: {}", said.lines().last().unwrap_or_default()));
            }
            None if over() => {
                // one that has just ended cannot be ended
                let group = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                child.wait().map_err(|error| error.to_string())?;
                return Ok(false);
            }
            None => std::thread::sleep(EXIT_POLL_INTERVAL),
        }
    }
}
