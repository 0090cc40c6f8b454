//! Asking a daemon, which is started if none runs.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request as HttpRequest, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use crate::{Error, Request, Response, Result, StateDir};

/// How often to look whether a daemon that was started answers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// So many times a daemon that listens, and does not answer, is asked again.
const MAX_SILENT_RETRIES: usize = 250;
/// So many of the log's last bytes are shown if it does not start.
const LOG_TAIL_BYTES: usize = 2000;

/// Asks the daemon at a place.
#[derive(Clone, Debug)]
pub struct Client {
    state_dir: StateDir,
    program: Option<PathBuf>,
}

impl Client {
    /// Of the daemon at a place. If none runs there, `program serve` is started.
    pub fn with_autostart(state_dir: StateDir, program: PathBuf) -> Self {
        Self { state_dir, program: Some(program) }
    }

    /// Of the daemon at a place, if one runs there.
    pub fn new(state_dir: StateDir) -> Self {
        Self { state_dir, program: None }
    }

    /// Whether a daemon runs there.
    pub fn is_running(&self) -> Result<bool> {
        Ok(self.try_request(&Request::Hello {})?.is_some())
    }

    /// Waits until the daemon has ended and left its place to others.
    pub fn wait_for_exit(&self) {
        while matches!(self.state_dir.lock(), Err(Error::Running { .. })) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks, and gives the answer and what it warns of.
    pub fn request<T: DeserializeOwned>(&self, ask: &Request) -> Result<(T, Vec<String>)> {
        let answer = match self.look(ask)? {
            Some(answer) => answer,
            None => self.ask_living(ask)?,
        };
        let value = serde_json::from_value(answer.value);
        let value = value
            .map_err(|why| self.unresponsive_error(format!("it is of another version: {why}")))?;
        Ok((value, answer.warnings))
    }

    /// Asks a daemon that is known to run, or that need not; `None`: it does not run, or does not answer.
    pub fn peek<T: DeserializeOwned>(&self, ask: &Request) -> Option<T> {
        let answer = self.try_request(ask).ok()??;
        serde_json::from_value(answer.value).ok()
    }

    /// Asks what changes nothing without a hello before: on a busy machine each exchange costs more than
    /// the answer. `None`: that it changes nothing is not sure, or nobody answers.
    fn look(&self, ask: &Request) -> Result<Option<Response>> {
        if !only_looks(ask) {
            return Ok(None);
        }
        match self.try_request(ask) {
            Err(Error::Unresponsive { .. }) => Ok(None),
            known => known,
        }
    }

    /// Asks after a hello, so that what changes something is not sent to a daemon that is dying: nobody
    /// could tell whether it was done.
    fn ask_living(&self, ask: &Request) -> Result<Response> {
        if !self.is_answering()? {
            self.start_daemon()?;
        }
        self.try_request(ask)?.ok_or_else(|| self.unresponsive_error("it ended".to_owned()))
    }

    /// Whether a daemon runs there. One that was killed listens a moment longer than it lives.
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

    /// Asks; none: nobody listens.
    fn try_request(&self, ask: &Request) -> Result<Option<Response>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|why| self.unresponsive_error(engine::error::io_error_text(&why)))?;
        runtime.block_on(async {
            let stream = match UnixStream::connect(self.state_dir.socket()).await {
                Ok(stream) => stream,
                Err(why) => {
                    let none = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
                    return if none.contains(&why.kind()) {
                        Ok(None)
                    } else {
                        Err(self.unresponsive_error(engine::error::io_error_text(&why)))
                    };
                }
            };
            let talked = exchange(stream, ask).await;
            let (ok, body) = talked.map_err(|why| self.unresponsive_error(why))?;
            if !ok {
                let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
                let status = body.get("status").and_then(Value::as_u64);
                return Err(Error::Reported {
                    message: text("error").unwrap_or_else(|| body.to_string()),
                    status: status.and_then(|status| status.try_into().ok()).unwrap_or(1),
                });
            }
            let answer = serde_json::from_value(body);
            answer.map(Some).map_err(|why| self.unresponsive_error(why.to_string()))
        })
    }

    fn unresponsive_error(&self, why: String) -> Error {
        Error::Unresponsive { socket: self.state_dir.socket().display().to_string(), why }
    }

    /// Starts a daemon and waits until it answers.
    fn start_daemon(&self) -> Result<()> {
        let Some(program) = &self.program else {
            return Err(self.unresponsive_error("none runs there".to_owned()));
        };
        self.state_dir.create_dirs()?;
        let path = self.state_dir.log();
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let log = log.map_err(|why| Error::file_error(&path, &why))?;
        let begins = log.metadata().map_or(0, |facts| facts.len());
        let same = log.try_clone().map_err(|why| Error::file_error(&path, &why))?;
        let mut command = Command::new(program);
        command.args(["serve", "--background"]);
        if let Some(folder) = self.state_dir.named_dir() {
            command.arg("--state").arg(folder);
        }
        command.stdin(Stdio::null()).stdout(same).stderr(log).current_dir("/");
        let mut child = command.spawn().map_err(|why| Error::file_error(program, &why))?;
        loop {
            if self.try_request(&Request::Hello {})?.is_some() {
                return Ok(());
            }
            if self.has_exited(&mut child)? {
                return Err(self.not_started_error(begins));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether it ended, and nobody else answers: of two that start at once, one ends.
    fn has_exited(&self, child: &mut Child) -> Result<bool> {
        let ended = child.try_wait().is_ok_and(|ended| ended.is_some());
        if !ended {
            return Ok(false);
        }
        // whoever has the lock may not listen yet
        std::thread::sleep(POLL_INTERVAL);
        Ok(self.try_request(&Request::Hello {})?.is_none() && self.state_dir.lock().is_ok())
    }

    fn not_started_error(&self, begins: u64) -> Error {
        let path = self.state_dir.log();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let begins = usize::try_from(begins).unwrap_or(usize::MAX);
        let begins = begins.max(bytes.len().saturating_sub(LOG_TAIL_BYTES));
        let tail = String::from_utf8_lossy(bytes.get(begins..).unwrap_or_default());
        Error::NotStarted { log: path.display().to_string(), tail: tail.trim_end().to_owned() }
    }
}

/// Whether an ask changes nothing, so that it may be sent again.
fn only_looks(ask: &Request) -> bool {
    matches!(
        ask,
        Request::Pools { .. }
            | Request::Datasets(_)
            | Request::Mounts {}
            | Request::PoolProperties { .. }
    )
}

/// Sends what is asked; gives whether it was done, and the answer's body.
async fn exchange(stream: UnixStream, ask: &Request) -> std::result::Result<(bool, Value), String> {
    let said = |why: hyper::Error| why.to_string();
    let ask = serde_json::to_value(ask).map_err(|why| why.to_string())?;
    let (verb, fields) = ask.as_object().and_then(|ask| ask.iter().next()).unzip();
    let (Some(verb), Some(fields)) = (verb, fields) else {
        return Err("nothing is asked".to_owned());
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    tokio::spawn(connection);
    let request = HttpRequest::builder()
        .method(Method::POST)
        .uri(format!("/v1/{verb}"))
        .header(header::HOST, "poolhouse")
        .body(Full::new(Bytes::from(fields.to_string())))
        .map_err(|why| why.to_string())?;
    let response = sender.send_request(request).await.map_err(said)?;
    let ok = response.status().is_success();
    let body = response.into_body().collect().await.map_err(said)?.to_bytes();
    let body = serde_json::from_slice(&body).map_err(|why| why.to_string())?;
    Ok((ok, body))
}
