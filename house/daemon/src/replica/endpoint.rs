//! The two kinds of targets: a pool that is imported here, and the `zfs` command of another host.

use std::io::{BufReader, BufWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use api::{AbortReceive, ReceiveStream};

use super::TargetAddress;
use crate::auth::Caller;
use crate::pools::Pools;
use crate::{Error, Result};

/// Bytes of a stream that are buffered.
const BUFFER_SIZE: usize = 1 << 20;
/// The most bytes of a reply of another host.
const MAX_ANSWER: u64 = 64 << 20;

/// Writes a stream.
pub(crate) type WriteStream<'a> = dyn FnMut(&mut dyn Write) -> Result<()> + 'a;

/// Where copies go.
pub(crate) trait ReplicaTarget: Sync {
    /// The guids of the snapshots of a dataset, the oldest first; `None`: the dataset does not
    /// exist.
    fn snapshots(&self, dataset: &str) -> Result<Option<Vec<(String, u64)>>>;

    /// The token of a receive that was cut.
    fn resume_token(&self, dataset: &str) -> Result<Option<String>>;

    /// Aborts an interrupted receive.
    fn abort_receive(&self, dataset: &str) -> Result<()>;

    /// Whether a copy was received raw: it is an encryption root of its own.
    fn is_raw(&self, dataset: &str) -> Result<bool>;

    /// Receives a stream. A new dataset is read-only, so that increments fit.
    fn receive(&self, dataset: &str, is_new: bool, send: &mut WriteStream<'_>) -> Result<()>;
}

/// A pool that is imported here.
pub(crate) struct LocalTarget {
    pub(crate) pools: Arc<Pools>,
    pub(crate) caller: Caller,
}

impl ReplicaTarget for LocalTarget {
    fn snapshots(&self, dataset: &str) -> Result<Option<Vec<(String, u64)>>> {
        let pool = self.pools.pool_of_dataset(dataset)?;
        match pool.handle.snapshots(dataset) {
            Ok(all) => Ok(Some(all.into_iter().map(|it| (it.name, it.guid)).collect())),
            Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    fn resume_token(&self, dataset: &str) -> Result<Option<String>> {
        let pool = self.pools.pool_of_dataset(dataset)?;
        match pool.handle.receive_resume_token(dataset) {
            Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    fn abort_receive(&self, dataset: &str) -> Result<()> {
        self.pools.abort_receive(&AbortReceive { target: dataset.to_owned() }).map(drop)
    }

    fn is_raw(&self, dataset: &str) -> Result<bool> {
        let pool = self.pools.pool_of_dataset(dataset)?;
        Ok(pool.handle.encryption_root(dataset)?.as_deref() == Some(dataset))
    }

    fn receive(&self, dataset: &str, is_new: bool, send: &mut WriteStream<'_>) -> Result<()> {
        let failed =
            |why: std::io::Error| Error::refused_error(format!("cannot open a pipe: {why}"));
        let (from, to) = std::io::pipe().map_err(failed)?;
        let call = ReceiveStream {
            target: dataset.to_owned(),
            no_mount: true,
            resumable: true,
            set_properties: if is_new { read_only() } else { Vec::new() },
            ..ReceiveStream::default()
        };
        let (sent, received) = thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let mut input = BufReader::with_capacity(BUFFER_SIZE, from);
                self.pools.receive_from(&call, &mut input, &self.caller)
            });
            let mut out = BufWriter::with_capacity(BUFFER_SIZE, to);
            let sent = send(&mut out).and_then(|()| out.flush().map_err(|why| broken_pipe(&why)));
            drop(out.into_parts());
            (sent, receiver.join().unwrap_or(Err(Error::Panicked {})))
        });
        match (sent, received) {
            (Ok(()), received) => received.map(drop),
            // the sender's pipe breaks when the receiver fails
            (Err(why), Err(first)) if is_broken_pipe(&why) => Err(first),
            (Err(why), _) => Err(why),
        }
    }
}

fn read_only() -> Vec<(String, String)> {
    vec![("readonly".to_owned(), "on".to_owned())]
}

fn broken_pipe(why: &std::io::Error) -> Error {
    Error::refused_error(format!("cannot transfer the stream: {why}"))
}

fn is_broken_pipe(why: &Error) -> bool {
    why.to_string().contains("Broken pipe")
}

/// Another host.
pub(crate) struct SshTarget {
    ssh: Vec<String>,
    host: String,
    port: Option<u16>,
}

impl SshTarget {
    /// The host of an address; `None` for an address of this host.
    pub(crate) fn new(address: &TargetAddress, ssh: &[String]) -> Option<Self> {
        let TargetAddress::Ssh { host, port, .. } = address else { return None };
        Some(Self { ssh: ssh.to_vec(), host: host.clone(), port: *port })
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let Some((program, options)) = self.ssh.split_first() else {
            return Err(Error::usage_error("the ssh command of the replica is empty"));
        };
        let mut command = Command::new(program);
        command.args(options).args(["-o", "BatchMode=yes"]);
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        // the other host's shell reads the line
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        command.arg("--").arg(&self.host).arg(words.join(" "));
        Ok(command)
    }

    fn spawn(&self, words: &[&str], input: Stdio) -> Result<Child> {
        let mut command = self.command(words)?;
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|why| {
            let program = self.ssh.first().cloned().unwrap_or_default();
            Error::refused_error(format!("cannot run '{program}': {why}"))
        })
    }

    /// Runs a command. Returns its output, or its last words as an error.
    fn run(&self, words: &[&str]) -> Result<String> {
        let child = self.spawn(words, Stdio::null())?;
        finish(child, &self.host)
    }
}

/// A word that a shell reads as it is.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Waits for a command. Returns its output, or its last words as an error.
fn finish(mut child: Child, host: &str) -> Result<String> {
    let (mut output, mut said) = (String::new(), String::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        scope.spawn(|| stderr.map(|it| it.take(MAX_ANSWER).read_to_string(&mut said)));
        let _ = stdout.map(|it| it.take(MAX_ANSWER).read_to_string(&mut output));
    });
    let failed = |why: String| Error::refused_error(format!("{host}: {why}"));
    let status = child.wait().map_err(|why| failed(why.to_string()))?;
    if status.success() {
        return Ok(output);
    }
    let said = said.trim();
    Err(failed(if said.is_empty() { status.to_string() } else { said.to_owned() }))
}

fn is_missing(why: &Error) -> bool {
    why.to_string().contains("dataset does not exist")
}

impl ReplicaTarget for SshTarget {
    fn snapshots(&self, dataset: &str) -> Result<Option<Vec<(String, u64)>>> {
        let columns = ["-o", "name,guid", "-s", "createtxg"];
        let words =
            [&["zfs", "list", "-Hp", "-d", "1", "-t", "snapshot"][..], &columns, &[dataset]];
        let text = match self.run(&words.concat()) {
            Ok(text) => text,
            Err(why) if is_missing(&why) => return Ok(None),
            Err(why) => return Err(why),
        };
        let read = |line: &str| {
            let (name, guid) = line.split_once('\t')?;
            Some((name.split_once('@')?.1.to_owned(), guid.trim().parse().ok()?))
        };
        let all: Option<Vec<_>> = text.lines().map(read).collect();
        let unread = || Error::refused_error(format!("{}: its list is not as expected", self.host));
        all.map(Some).ok_or_else(unread)
    }

    fn resume_token(&self, dataset: &str) -> Result<Option<String>> {
        let words = ["zfs", "get", "-Hp", "-o", "value", "receive_resume_token", dataset];
        match self.run(&words) {
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|it| it != "-" && !it.is_empty())),
            Err(why) if is_missing(&why) => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn abort_receive(&self, dataset: &str) -> Result<()> {
        self.run(&["zfs", "receive", "-A", dataset]).map(drop)
    }

    fn is_raw(&self, dataset: &str) -> Result<bool> {
        let root = self.run(&["zfs", "get", "-Hp", "-o", "value", "encryptionroot", dataset])?;
        Ok(root.trim() == dataset)
    }

    fn receive(&self, dataset: &str, is_new: bool, send: &mut WriteStream<'_>) -> Result<()> {
        let mut words = vec!["zfs", "receive", "-s", "-u"];
        if is_new {
            words.extend(["-o", "readonly=on"]);
        }
        words.push(dataset);
        let mut child = self.spawn(&words, Stdio::piped())?;
        let input = child.stdin.take();
        let host = self.host.clone();
        let (sent, received) = thread::scope(|scope| {
            let receiver = scope.spawn(move || finish(child, &host));
            let sent = input.map_or(Ok(()), |input| {
                let mut out = BufWriter::with_capacity(BUFFER_SIZE, input);
                let sent =
                    send(&mut out).and_then(|()| out.flush().map_err(|why| broken_pipe(&why)));
                drop(out.into_parts());
                sent
            });
            (sent, receiver.join().unwrap_or(Err(Error::Panicked {})))
        });
        match (sent, received) {
            (Ok(()), received) => received.map(drop),
            (Err(why), Err(first)) if is_broken_pipe(&why) => Err(first),
            (Err(why), _) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quote("tank/a b"), "'tank/a b'");
        assert_eq!(quote("it's"), "'it'\\''s'");
    }
}
