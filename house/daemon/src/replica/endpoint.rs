//! The two kinds of targets: a pool that is imported here, and the `zfs` command of another host.

use std::io::{BufReader, BufWriter, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use api::{AbortReceive, ReceiveStream};

use super::ssh::{SshHost, finish, is_missing};
use crate::auth::Caller;
use crate::pools::Pools;
use crate::{Error, Result};

/// Bytes of a stream that are buffered.
pub(super) const BUFFER_SIZE: usize = 1 << 20;

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
        match pool.handle.snapshots().list(dataset) {
            Ok(all) => Ok(Some(all.into_iter().map(|it| (it.name, it.guid)).collect())),
            Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    fn resume_token(&self, dataset: &str) -> Result<Option<String>> {
        let pool = self.pools.pool_of_dataset(dataset)?;
        match pool.handle.streams().resume_token(dataset) {
            Err(engine::Error::NoSuchDataset { .. }) => Ok(None),
            found => Ok(found?),
        }
    }

    fn abort_receive(&self, dataset: &str) -> Result<()> {
        self.pools.abort_receive(&AbortReceive { target: dataset.to_owned() }).map(drop)
    }

    fn is_raw(&self, dataset: &str) -> Result<bool> {
        let pool = self.pools.pool_of_dataset(dataset)?;
        Ok(pool.handle.keys().encryption_root(dataset)?.as_deref() == Some(dataset))
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

pub(super) fn broken_pipe(why: &std::io::Error) -> Error {
    Error::refused_error(format!("cannot transfer the stream: {why}"))
}

fn is_broken_pipe(why: &Error) -> bool {
    why.to_string().contains("Broken pipe")
}

impl ReplicaTarget for SshHost {
    fn snapshots(&self, dataset: &str) -> Result<Option<Vec<(String, u64)>>> {
        let Some(rows) = self.list(dataset, ("snapshot", "name,guid"))? else { return Ok(None) };
        let read = |row: Vec<String>| {
            let [name, guid] = <[String; 2]>::try_from(row).ok()?;
            Some((name.split_once('@')?.1.to_owned(), guid.parse().ok()?))
        };
        let all: Option<Vec<_>> = rows.into_iter().map(read).collect();
        all.map(Some).ok_or_else(|| self.unreadable())
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
