//! The `zfs` command of another host, run by ssh.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::DatasetAddress;
use crate::{Error, Result};

/// The most bytes of a reply of another host.
const MAX_ANSWER: u64 = 64 << 20;

/// Another host.
pub(crate) struct SshHost {
    ssh: Vec<String>,
    /// `USER@HOST` or `HOST`.
    pub(crate) host: String,
    port: Option<u16>,
}

impl SshHost {
    /// The host of an address; `None` for an address of this host.
    pub(crate) fn new(address: &DatasetAddress, ssh: &[String]) -> Option<Self> {
        let DatasetAddress::Ssh { host, port, .. } = address else { return None };
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

    pub(super) fn spawn(&self, words: &[&str], input: Stdio) -> Result<Child> {
        let mut command = self.command(words)?;
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|why| {
            let program = self.ssh.first().cloned().unwrap_or_default();
            Error::refused_error(format!("cannot run '{program}': {why}"))
        })
    }

    /// Lists snapshots or bookmarks of a dataset, the oldest first, as fields of `columns`; `None`: the dataset
    /// does not exist.
    pub(super) fn list(
        &self,
        dataset: &str,
        (kind, columns): (&str, &str),
    ) -> Result<Option<Vec<Vec<String>>>> {
        let words = [
            "zfs",
            "list",
            "-Hp",
            "-d",
            "1",
            "-t",
            kind,
            "-o",
            columns,
            "-s",
            "createtxg",
            dataset,
        ];
        let text = match self.run(&words) {
            Ok(text) => text,
            Err(why) if is_missing(&why) => return Ok(None),
            Err(why) => return Err(why),
        };
        let count = columns.split(',').count();
        let fields = |line: &str| -> Option<Vec<String>> {
            let fields: Vec<String> = line.split('\t').map(|it| it.trim().to_owned()).collect();
            (fields.len() == count).then_some(fields)
        };
        let rows: Option<Vec<_>> = text.lines().map(fields).collect();
        rows.map(Some).ok_or_else(|| self.unreadable())
    }

    /// The error about a reply that is not in the form of zfs(8).
    pub(super) fn unreadable(&self) -> Error {
        Error::refused_error(format!("{}: its `zfs list` printed an unexpected line", self.host))
    }

    /// Whether the host runs commands.
    pub(super) fn is_awake(&self) -> bool {
        self.run(&["zfs", "version"]).is_ok()
    }

    /// Runs a command. Returns its output, or its last words as an error.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String> {
        let child = self.spawn(words, Stdio::null())?;
        finish(child, &self.host)
    }
}

/// A word that a shell reads as it is.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Waits for a command. Returns its output, or its last words as an error.
pub(super) fn finish(mut child: Child, host: &str) -> Result<String> {
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

pub(super) fn is_missing(why: &Error) -> bool {
    why.to_string().contains("dataset does not exist")
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
