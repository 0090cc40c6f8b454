//! The ways to copy: a copier of ours, and the programs that people use.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::own;
use super::places::{Place, SSH};
use crate::Error;
use crate::course::Course;

/// A way to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// This program.
    Own,
    /// `cp -a`.
    Cp,
    /// `rsync -a`.
    Rsync,
    /// `rsync -a` through ssh.
    RsyncSsh,
}

/// How often a program is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

impl Way {
    /// All.
    pub const ALL: [Self; 4] = [Self::Own, Self::Cp, Self::Rsync, Self::RsyncSsh];

    /// Its name for programs.
    pub fn id(self) -> &'static str {
        match self {
            Self::Own => "poolhouse",
            Self::Cp => "cp",
            Self::Rsync => "rsync",
            Self::RsyncSsh => "rsync-ssh",
        }
    }

    /// By that name.
    pub fn by_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.id() == id)
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::RsyncSsh => "rsync over ssh",
            other => other.id(),
        }
    }

    /// Why it does not lead to a place, if it does not.
    pub(super) fn obstacle(self, place: &Place) -> Option<String> {
        let missing = |program: &str| {
            (!answers(program, &["--version"])).then(|| format!("{program} is not installed"))
        };
        match (self, place) {
            (Self::Own | Self::Cp | Self::Rsync, Place::There(_)) => {
                Some("it does not reach other machines by itself".to_owned())
            }
            (Self::Own, Place::Here(_)) => None,
            (Self::Cp, Place::Here(_)) => missing("cp"),
            (Self::Rsync, Place::Here(_)) => missing("rsync"),
            (Self::RsyncSsh, place) => missing("rsync").or_else(|| {
                let host = if let Place::There(there) = place { &there.host } else { "localhost" };
                let reaches = answers("ssh", &[&SSH[..], &[host, "true"]].concat());
                (!reaches)
                    .then(|| format!("ssh does not reach {host} without being asked anything"))
            }),
        }
    }

    /// Copies a tree into the place's empty folder. Whether it came to its end, which it does not
    /// if it takes longer than `limit` or is to stop.
    pub(super) fn copy(
        self,
        source: &Path,
        place: &Place,
        limit: Option<Duration>,
        course: &Course<'_>,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        let over = || course.stopped() || limit.is_some_and(|limit| began.elapsed() >= limit);
        let (target, far) = match place {
            Place::Here(here) => (here.target(), format!("localhost:{}", here.target().display())),
            Place::There(there) => {
                (there.target().into(), format!("{}:{}", there.host, there.target()))
            }
        };
        let contents = source.join(".");
        let mut command = match self {
            Self::Own => return own::copy(source, &target, &over),
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
                let ssh = format!("ssh {}", SSH.join(" "));
                command.args(["-a", "-s", "-e", &ssh, "--"]).arg(contents).arg(far);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let failed = |why: String| Error::Program { program: self.name().to_owned(), why };
        // all processes of the program are ended together
        let child = command.process_group(0).spawn().map_err(|error| failed(error.to_string()))?;
        wait(child, &over).map_err(failed)
    }

    /// The program and its version.
    pub(super) fn version(self) -> Option<(String, String)> {
        let (program, argument) = match self {
            Self::Own => return None,
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

fn answers(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Waits for a program, or ends it.
fn wait(mut child: Child, over: &dyn Fn() -> bool) -> Result<bool, String> {
    let said = child.stderr.take().map(|mut pipe| {
        // read as it comes, or a program with much to say would wait for ever
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
            None => std::thread::sleep(LOOK),
        }
    }
}
