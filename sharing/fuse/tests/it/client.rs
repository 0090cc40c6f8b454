//! Programs that use a mount of this process, each with a time limit.
//!
//! The server is in this process, so a system call of it on the mount may wait for itself. A
//! separate program can be killed, and its test fails instead of hanging.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a program is looked after.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a killed program may take to end. One that waits in the kernel may not end at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Gives a test of this program its words, a line each, when it is run as a client.
const ARGUMENTS_VARIABLE: &str = "FUSE_TEST_CLIENT";

/// A program that runs. It is killed when this is dropped.
pub(crate) struct Client {
    child: RefCell<Child>,
    output: PathBuf,
}

impl Client {
    /// Starts a program that writes to the file `output`.
    pub(crate) fn start(command: &mut Command, output: &Path) -> Self {
        let file = File::create(output).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap().into(), output: output.to_owned() }
    }

    /// Starts a test of this program, one that is ignored otherwise.
    pub(crate) fn start_test(name: &str, words: &[&str], output: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(ARGUMENTS_VARIABLE, words.join("\n"));
        Self::start(&mut command, output)
    }

    /// Waits until something is so; false: it is not within `limit`, and the program may have ended.
    pub(crate) fn wait_until(&self, limit: Duration, is_so: impl Fn() -> bool) -> bool {
        let last = Instant::now() + limit;
        while !is_so() {
            if Instant::now() > last || self.exit_status().is_some() {
                return is_so();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// How it ended; none: it did not within `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        self.wait_until(limit, || self.exit_status().is_some());
        self.exit_status()
    }

    fn exit_status(&self) -> Option<ExitStatus> {
        self.child.borrow_mut().try_wait().unwrap()
    }

    /// All that it wrote.
    pub(crate) fn output_text(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.borrow_mut().kill();
        self.wait(KILL_TIMEOUT);
    }
}

/// Runs a test of this program, one that is ignored otherwise, in a process of its own, and wants it to succeed
/// within `limit`.
pub(crate) fn run_test(name: &str, words: &[&str], limit: Duration, output: &Path) {
    let client = Client::start_test(name, words, output);
    let status = client.wait(limit);
    let said = client.output_text();
    assert!(status.is_some_and(|status| status.success()), "{name} ended with {status:?}:\n{said}");
}

/// The words with which the test was started; none: the test runner runs it.
pub(crate) fn arguments() -> Option<Vec<String>> {
    let words = std::env::var(ARGUMENTS_VARIABLE).ok()?;
    Some(words.lines().map(str::to_owned).collect())
}
