//! How a command ends: its exit status, and the words on standard error.

use std::io;
use std::path::Path;
use std::process::ExitCode;

/// How a command that did its work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was done.
    Complete,
    /// Something could not be read in full, was named, and the rest was done.
    Incomplete,
    /// The user stopped it; the results until then were printed.
    Interrupted,
}

impl Outcome {
    /// Complete unless something is wrong.
    pub(crate) fn complete_unless(wrong: bool) -> Self {
        if wrong { Self::Incomplete } else { Self::Complete }
    }

    /// The union of both.
    pub(crate) fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Complete, other) => other,
            (Self::Interrupted, _) | (_, Self::Interrupted) => Self::Interrupted,
            (Self::Incomplete, _) => Self::Incomplete,
        }
    }

    /// The exit status.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Complete => ExitCode::SUCCESS,
            Self::Incomplete => ExitCode::from(1),
            Self::Interrupted => ExitCode::from(130),
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the engine.
    Engine(engine::Error),
    /// Standard output does not take any more.
    Output(io::Error),
    /// Something cannot be measured.
    Lab(lab::Error),
    /// An error of the daemon.
    Daemon(::daemon::Error),
}

/// The result of a command.
pub(crate) type CommandResult = Result<Outcome, Failure>;

/// Does the same for each of several objects. A failure of one is printed and does not stop the
/// others; the failure of a single one is returned.
pub(crate) fn run_for_each<T>(
    all: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> CommandResult,
) -> CommandResult {
    let mut all = all.into_iter().peekable();
    let (mut outcome, mut done) = (Outcome::Complete, 0);
    while let Some(one) = all.next() {
        let is_single = done == 0 && all.peek().is_none();
        done += 1;
        match work(one) {
            Ok(came) => outcome = outcome.combine(came),
            Err(why) if is_single => return Err(why),
            Err(why) => {
                why.report();
                outcome = Outcome::Incomplete;
            }
        }
    }
    Ok(outcome)
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<lab::Error> for Failure {
    fn from(error: lab::Error) -> Self {
        Self::Lab(error)
    }
}

impl From<::daemon::Error> for Failure {
    fn from(error: ::daemon::Error) -> Self {
        Self::Daemon(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}

impl Failure {
    /// The command line is invalid.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::Engine(engine::Error::Usage { what: what.into() })
    }

    /// A file that cannot be used, and why.
    pub(crate) fn unreadable(path: &Path, reason: &str) -> Self {
        let (path, reason) = (path.display().to_string(), reason.to_owned());
        Self::Engine(engine::Error::UnusablePath { path, reason })
    }

    /// A file or folder to be written that could not.
    pub(crate) fn destination(path: &Path, error: &io::Error) -> Self {
        let (path, reason) = (path.display().to_string(), engine::error::io_error_text(error));
        Self::Engine(engine::Error::WriteFailed { path, reason })
    }

    /// The same with the subject before it ("cannot offline sdb"), unless the message begins with one.
    pub(crate) fn with_subject(self, subject: impl FnOnce() -> String) -> Self {
        match self {
            Self::Engine(why) => {
                let (message, status) = (why.to_string(), why.exit_status());
                Self::Daemon(::daemon::Error::Reported { message, status }).with_subject(subject)
            }
            Self::Daemon(::daemon::Error::Reported { message, status })
                if !["cannot ", "invalid vdev ", "pool '"]
                    .iter()
                    .any(|word| message.starts_with(word)) =>
            {
                let message = format!("{}: {message}", subject());
                Self::Daemon(::daemon::Error::Reported { message, status })
            }
            other => other,
        }
    }

    /// The message of a refusal; `None` for a mistake in the command line, and other failures. A vdev specification
    /// that cannot be is a refusal, as zpool(8) has it.
    pub(crate) fn refusal_message(&self) -> Option<String> {
        match self {
            Self::Daemon(error) => Some(error.to_string()),
            Self::Engine(engine::Error::Usage { what })
                if !what.starts_with("invalid vdev specification") =>
            {
                None
            }
            Self::Output(_) | Self::Lab(_) => None,
            Self::Engine(error) => Some(error.to_string()),
        }
    }

    /// Says why on standard error, and gives the exit status.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Self::Engine(error) => {
                crate::print::error(error);
                error.exit_status()
            }
            Self::Daemon(error) => {
                crate::print::error(error);
                error.status()
            }
            Self::Lab(error) => {
                crate::print::error(error);
                match error {
                    lab::Error::InvalidRequest { .. } => 2,
                    lab::Error::Refused { .. } => 11,
                    lab::Error::NoSpace { .. } => 13,
                    _ => 10,
                }
            }
            // the reader of our output has closed the pipe
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(error) => {
                crate::print::error(&format!("the output cannot be written: {error}"));
                13
            }
        }
    }
}
