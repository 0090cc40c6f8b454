//! The client of the daemon, which starts a daemon if none runs.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api::{Call, EncodedCall, GetDaemon, Refusal, Reply};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use units::MinusOrZero as _;

use crate::{Error, Result, StateDir};

/// The pause between two tries to reach a daemon that was just started.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The number of tries to reach a daemon that listens and does not reply.
const MAX_SILENT_RETRIES: usize = 250;
/// The bytes at the end of the log that an error shows if the daemon does not start.
const LOG_TAIL_BYTES: usize = 2000;

/// A directory that exists while systemd runs, below the root.
const SYSTEMD_RUNS: &str = "run/systemd/system";
/// The files of the unit of the system's daemon, below the root: of a package, and of an administrator.
const UNIT_PATHS: [&str; 3] = [
    "etc/systemd/system/poolhouse.service",
    "usr/lib/systemd/system/poolhouse.service",
    "lib/systemd/system/poolhouse.service",
];

/// A client of the daemon of a state directory.
#[derive(Clone, Debug)]
pub struct Client {
    state_dir: StateDir,
    program: Option<PathBuf>,
    command: Option<String>,
}

impl Client {
    /// A client that starts `program serve` if no daemon runs.
    pub fn with_autostart(state_dir: StateDir, program: PathBuf) -> Self {
        Self { program: Some(program), ..Self::new(state_dir) }
    }

    /// A client that starts no daemon.
    pub fn new(state_dir: StateDir) -> Self {
        Self { state_dir, program: None, command: None }
    }

    /// Has the daemon record this command line in the histories of the pools that calls change.
    #[must_use]
    pub fn recording(self, command: String) -> Self {
        Self { command: Some(command), ..self }
    }

    /// Whether a daemon runs.
    pub fn is_running(&self) -> Result<bool> {
        Ok(self.try_call(&GetDaemon {})?.is_some())
    }

    /// Waits until the daemon has ended and released its lock.
    pub fn wait_for_exit(&self) {
        while matches!(self.state_dir.lock(), Err(Error::Running { .. })) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Makes a call.
    pub fn call<C: Call>(&self, call: &C) -> Result<Reply<C::Response>> {
        // on a busy machine a liveness check costs more than the call itself
        if !C::CHANGES
            && let Some(reply) = self.try_repeatable(call)?
        {
            return Ok(reply);
        }
        // a call that changes something is not sent to a daemon that is ending: whether it was done
        // would be unknown
        if !self.is_answering()? {
            if let Some(value) = call.response_without_daemon().filter(|_| !self.state_dir.is_own())
            {
                return Ok(value.into());
            }
            self.start_daemon()?;
        }
        self.try_call(call)?.ok_or_else(|| self.unresponsive_error("it ended".to_owned()))
    }

    /// Makes a call if a daemon runs; none if it does not run or does not reply.
    pub fn peek<C: Call>(&self, call: &C) -> Option<C::Response> {
        Some(self.try_call(call).ok()??.value)
    }

    /// Makes a call that may be repeated; none: no daemon replies.
    fn try_repeatable<C: Call>(&self, call: &C) -> Result<Option<Reply<C::Response>>> {
        match self.try_call(call) {
            Err(Error::Unresponsive { .. }) => Ok(None),
            known => known,
        }
    }

    /// Whether a daemon runs. The socket of one that was killed stays open a moment longer.
    fn is_answering(&self) -> Result<bool> {
        let mut left = MAX_SILENT_RETRIES;
        loop {
            match self.is_running() {
                Err(Error::Unresponsive { .. }) if left > 0 => left -= 1,
                known => return known,
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Makes a call; nothing: no daemon listens.
    fn try_call<C: Call>(&self, call: &C) -> Result<Option<Reply<C::Response>>> {
        let failed = |why| self.unresponsive_error(why);
        let sent = api::encode(call).map_err(Error::usage_error)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| failed(engine::error::io_error_text(&why)))?;
        let answered = runtime.block_on(async {
            let stream = match UnixStream::connect(self.state_dir.socket()).await {
                Ok(stream) => stream,
                Err(why) => {
                    let none = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
                    return if none.contains(&why.kind()) {
                        Ok(None)
                    } else {
                        Err(engine::error::io_error_text(&why))
                    };
                }
            };
            let method = C::METHOD.as_str();
            exchange(stream, method, sent, self.command.as_deref()).await.map(Some)
        });
        let Some((ok, body)) = answered.map_err(failed)? else { return Ok(None) };
        if ok {
            let reply = serde_json::from_slice(&body);
            let other = |why| failed(format!("it is of another version: {why}"));
            return reply.map(Some).map_err(other);
        }
        let refusal = serde_json::from_slice(&body).unwrap_or_else(|_| Refusal {
            error: String::from_utf8_lossy(&body).into_owned(),
            status: 1,
        });
        Err(Error::Reported { message: refusal.error, status: refusal.status })
    }

    fn unresponsive_error(&self, why: String) -> Error {
        Error::Unresponsive { socket: self.state_dir.socket().display().to_string(), why }
    }

    /// Starts a daemon and waits until it replies.
    fn start_daemon(&self) -> Result<()> {
        let Some(program) = self.program.as_ref().filter(|_| self.state_dir.is_own()) else {
            return Err(self.unresponsive_error("no daemon runs".to_owned()));
        };
        self.state_dir.create_dirs()?;
        let path = self.state_dir.log();
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.map_err(|why| Error::file_error(&path, &why))?;
        let begins = log.metadata().map_or(0, |facts| facts.len());
        let same = log.try_clone().map_err(|why| Error::file_error(&path, &why))?;
        let mut command = self.start_command(program, Path::new("/"));
        command.stdin(Stdio::null()).stdout(same).stderr(log).current_dir("/");
        let mut child = command.spawn().map_err(|why| Error::file_error(program, &why))?;
        loop {
            if self.try_call(&GetDaemon {})?.is_some() {
                return Ok(());
            }
            if self.has_exited(&mut child)? {
                return Err(self.not_started_error(begins));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The command that starts the daemon. Where systemd has the unit of the system's daemon, systemd
    /// starts it: a daemon in a user's session would end with that session. `root`: `/`, but in tests.
    fn start_command(&self, program: &Path, root: &Path) -> Command {
        let has_unit = || UNIT_PATHS.iter().any(|path| root.join(path).exists());
        if self.state_dir.is_system() && root.join(SYSTEMD_RUNS).exists() && has_unit() {
            let mut command = Command::new("systemctl");
            command.args(["start", "poolhouse.service"]);
            return command;
        }
        let mut command = Command::new(program);
        command.args(["serve", "--background"]);
        if let Some(folder) = self.state_dir.named_dir() {
            command.arg("--state").arg(folder);
        }
        command
    }

    /// Whether the daemon ended and no other replies: of two that start at once, one ends.
    fn has_exited(&self, child: &mut Child) -> Result<bool> {
        let ended = child.try_wait().is_ok_and(|ended| ended.is_some());
        if !ended {
            return Ok(false);
        }
        // the daemon that has the lock may not listen yet
        std::thread::sleep(POLL_INTERVAL);
        Ok(self.try_call(&GetDaemon {})?.is_none() && self.state_dir.lock().is_ok())
    }

    fn not_started_error(&self, begins: u64) -> Error {
        let path = self.state_dir.log();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let begins = units::to_usize(begins);
        let begins = begins.max(bytes.len().minus_or_zero(LOG_TAIL_BYTES));
        let tail = String::from_utf8_lossy(bytes.get(begins..).unwrap_or_default());
        Error::NotStarted { log: path.display().to_string(), tail: tail.trim_end().to_owned() }
    }
}

/// Sends a request; returns whether it succeeded, and the body of the reply.
async fn exchange(
    stream: UnixStream,
    method: &str,
    call: EncodedCall,
    command: Option<&str>,
) -> std::result::Result<(bool, Bytes), String> {
    let said = |why: hyper::Error| why.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    tokio::spawn(connection);
    let mut request =
        Request::builder().method(method).uri(call.target).header(header::HOST, "poolhouse");
    if let Some(command) = command {
        request = request.header(api::COMMAND_HEADER, api::encode_command(command));
    }
    let request = request.body(Full::new(Bytes::from(call.body))).map_err(|why| why.to_string())?;
    let response = sender.send_request(request).await.map_err(said)?;
    let ok = response.status().is_success();
    let body = response.into_body().collect().await.map_err(said)?.to_bytes();
    Ok((ok, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_starts_the_daemon_of_the_system() {
        let root = std::env::temp_dir().join(format!("poolhouse-unit-{}", std::process::id()));
        let started = |state_dir: StateDir| {
            let command = Client::new(state_dir).start_command(Path::new("/bin/poolhouse"), &root);
            command.get_program().to_owned()
        };
        std::fs::create_dir_all(root.join(SYSTEMD_RUNS)).expect("a directory");
        assert_eq!(started(StateDir::system_dirs()), "/bin/poolhouse", "there is no unit");
        std::fs::create_dir_all(root.join("etc/systemd/system")).expect("a directory");
        std::fs::write(root.join(UNIT_PATHS[0]), "").expect("a file");
        assert_eq!(started(StateDir::system_dirs()), "systemctl");
        let named = StateDir::from_dir(Path::new("/nas")).expect("a short path");
        assert_eq!(started(named), "/bin/poolhouse", "systemd knows nothing of a named directory");
        std::fs::remove_dir_all(&root).expect("the directory goes");
    }
}
