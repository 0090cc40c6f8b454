//! The watchdog of the fans: a process that outlives the daemon, and sets full speed when
//! heartbeats stop.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time without a heartbeat after which the daemon counts as hung. The longest interval is a
/// minute.
const SILENCE: Duration = Duration::from_mins(3);

/// The daemon's end of the watchdog.
pub(super) struct Watchdog {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts the process. It is this program with another command, in a session of its own, so that signals for the
    /// daemon do not reach it.
    pub(super) fn start(pwms: &[PathBuf]) -> io::Result<Self> {
        // this program, also after an upgrade replaced its file
        let mut command = Command::new("/proc/self/exe");
        command.args(["fans", "watchdog", "--"]).args(pwms);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Sends the process a heartbeat. Returns whether it was received.
    pub(super) fn report_life(&mut self) -> bool {
        self.pipe.as_mut().is_some_and(|pipe| pipe.write_all(b".").is_ok())
    }
}

impl Drop for Watchdog {
    /// The end of the pipe makes the process set full speed and end.
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.child.wait();
    }
}

/// The watchdog process: reads heartbeats from standard input until they stop, and sets the
/// fans to full speed. Returns a sentence for each that could not be set.
pub fn watch(pwms: &[PathBuf]) -> Vec<String> {
    // it may lead a session already
    let _ = rustix::process::setsid();
    let stdin = io::stdin();
    let silence = Timespec::try_from(SILENCE).ok();
    loop {
        let mut polled = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        match poll(&mut polled, silence.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) | Ok(0) => break,
            Ok(_) => {
                let mut signs = [0; 64];
                if !matches!(stdin.lock().read(&mut signs), Ok(count) if count > 0) {
                    break;
                }
            }
        }
    }
    let failed = ::fans::set_full_speed(pwms);
    failed.iter().map(ToString::to_string).collect()
}
