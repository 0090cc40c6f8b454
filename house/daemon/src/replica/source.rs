//! The two kinds of sources: a pool that is imported here, and the `zfs` command of another host.

use std::io::{BufReader, Read, Write};
use std::process::Stdio;
use std::sync::Arc;

use engine::pool::{Bookmark, SendRequest, Snapshot};

use super::SafeCopy;
use super::endpoint::{BUFFER_SIZE, broken_pipe};
use super::ssh::{SshHost, finish};
use crate::pools::Pools;
use crate::pools::datasets::list_head_names;
use crate::{Error, Result};

/// Where snapshots come from.
pub(crate) trait ReplicaSource: Sync {
    /// The file system or volume, and those below it if `recursive`.
    fn datasets(&self, top: &str, recursive: bool) -> Result<Vec<String>>;

    /// The snapshots of a dataset, the oldest first.
    fn snapshots(&self, dataset: &str) -> Result<Vec<Snapshot>>;

    /// The bookmarks of a dataset.
    fn bookmarks(&self, dataset: &str) -> Result<Vec<Bookmark>>;

    /// Whether a dataset is encrypted.
    fn is_encrypted(&self, dataset: &str) -> Result<bool>;

    /// Whether a dataset has an encryption key of its own, as one has that was received raw.
    fn is_encryption_root(&self, dataset: &str) -> Result<bool>;

    /// The estimated bytes of a stream; 0: unknown. Fails if the stream cannot be sent.
    fn estimate(&self, request: &SendRequest) -> Result<u64>;

    /// Writes a stream.
    fn send(&self, request: &SendRequest, out: &mut dyn Write) -> Result<()>;

    /// Lets a bookmark of the replica follow the newest snapshot that it has, so that the next increment can start there
    /// when the snapshot is gone.
    fn mark(&self, dataset: &str, replica: &str, copy: &SafeCopy) -> Result<()>;
}

/// A pool that is imported here.
pub(crate) struct LocalSource(pub(crate) Arc<Pools>);

impl LocalSource {
    fn pool_of_request(&self, request: &SendRequest) -> Result<Arc<crate::pools::ManagedPool>> {
        let (dataset, _) = request.snapshot.split_once('@').unwrap_or((&request.snapshot, ""));
        self.0.pool_of_dataset(dataset)
    }
}

impl ReplicaSource for LocalSource {
    fn datasets(&self, top: &str, recursive: bool) -> Result<Vec<String>> {
        let mut heads = list_head_names(&self.0.pool_of_dataset(top)?.handle, top)?;
        if !recursive {
            heads.truncate(1);
        }
        Ok(heads)
    }

    fn snapshots(&self, dataset: &str) -> Result<Vec<Snapshot>> {
        Ok(self.0.pool_of_dataset(dataset)?.handle.snapshots().list(dataset)?)
    }

    fn bookmarks(&self, dataset: &str) -> Result<Vec<Bookmark>> {
        Ok(self.0.pool_of_dataset(dataset)?.handle.snapshots().bookmarks(dataset)?)
    }

    fn is_encrypted(&self, dataset: &str) -> Result<bool> {
        Ok(self.0.pool_of_dataset(dataset)?.handle.keys().encryption_root(dataset)?.is_some())
    }

    fn is_encryption_root(&self, dataset: &str) -> Result<bool> {
        let root = self.0.pool_of_dataset(dataset)?.handle.keys().encryption_root(dataset)?;
        Ok(root.as_deref() == Some(dataset))
    }

    fn estimate(&self, request: &SendRequest) -> Result<u64> {
        let plan = self.pool_of_request(request)?.handle.streams().plan_send(request)?;
        Ok(plan.steps().iter().map(|step| step.bytes).sum())
    }

    fn send(&self, request: &SendRequest, mut out: &mut dyn Write) -> Result<()> {
        let pool = self.pool_of_request(request)?;
        let plan = pool.handle.streams().plan_send(request)?;
        Ok(pool.handle.streams().send_planned(&plan, &mut out).map(drop)?)
    }

    fn mark(&self, dataset: &str, replica: &str, copy: &SafeCopy) -> Result<()> {
        self.0.move_replica_bookmark(dataset, replica, &copy.snapshot)
    }
}

/// A pool of another host.
pub(crate) struct SshSource(pub(crate) SshHost);

impl SshSource {
    fn encryption_root(&self, dataset: &str) -> Result<String> {
        self.0.run(&["zfs", "get", "-Hp", "-o", "value", "encryptionroot", dataset])
    }

    fn send_words(request: &SendRequest) -> Vec<&str> {
        let mut words = vec!["zfs", "send"];
        if let Some(token) = &request.resume {
            words.extend(["-t", token]);
            return words;
        }
        let flags = [
            ("-L", request.large_blocks),
            ("-e", request.embedded),
            ("-c", request.compressed),
            ("-w", request.raw),
        ];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag));
        if let Some(base) = &request.base {
            words.extend([if request.intermediates { "-I" } else { "-i" }, base]);
        }
        words.push(&request.snapshot);
        words
    }
}

impl ReplicaSource for SshSource {
    fn datasets(&self, top: &str, recursive: bool) -> Result<Vec<String>> {
        if !recursive {
            return Ok(vec![top.to_owned()]);
        }
        let words = ["zfs", "list", "-H", "-r", "-t", "filesystem,volume", "-o", "name", top];
        Ok(self.0.run(&words)?.lines().map(str::to_owned).collect())
    }

    fn snapshots(&self, dataset: &str) -> Result<Vec<Snapshot>> {
        let rows = self.0.list(dataset, ("snapshot", "name,guid,creation,createtxg"))?;
        let rows = rows.ok_or_else(|| {
            Error::refused_error(format!("{}: '{dataset}' does not exist", self.0.host))
        })?;
        let read = |row: Vec<String>| {
            let [name, guid, created, txg] = <[String; 4]>::try_from(row).ok()?;
            let name = name.split_once('@')?.1.to_owned();
            let numbers = (guid.parse().ok()?, created.parse().ok()?, txg.parse().ok()?);
            Some(Snapshot { name, id: 0, guid: numbers.0, created: numbers.1, txg: numbers.2 })
        };
        let all: Option<Vec<_>> = rows.into_iter().map(read).collect();
        all.ok_or_else(|| self.0.unreadable())
    }

    fn bookmarks(&self, dataset: &str) -> Result<Vec<Bookmark>> {
        let rows = self.0.list(dataset, ("bookmark", "name,guid,createtxg"))?.unwrap_or_default();
        let read = |row: Vec<String>| {
            let [name, guid, txg] = <[String; 3]>::try_from(row).ok()?;
            let name = name.split_once('#')?.1.to_owned();
            Some(Bookmark { name, guid: guid.parse().ok()?, txg: txg.parse().ok()? })
        };
        let all: Option<Vec<_>> = rows.into_iter().map(read).collect();
        all.ok_or_else(|| self.0.unreadable())
    }

    fn is_encrypted(&self, dataset: &str) -> Result<bool> {
        let root = self.encryption_root(dataset)?;
        Ok(!matches!(root.trim(), "" | "-"))
    }

    fn is_encryption_root(&self, dataset: &str) -> Result<bool> {
        Ok(self.encryption_root(dataset)?.trim() == dataset)
    }

    fn estimate(&self, request: &SendRequest) -> Result<u64> {
        let mut words = Self::send_words(request);
        words.splice(2..2, ["-n", "-P"]);
        let text = self.0.run(&words)?;
        let size = text.lines().filter_map(|line| line.strip_prefix("size\t")).next_back();
        Ok(size.and_then(|size| size.trim().parse().ok()).unwrap_or(0))
    }

    fn send(&self, request: &SendRequest, out: &mut dyn Write) -> Result<()> {
        let mut child = self.0.spawn(&Self::send_words(request), Stdio::null())?;
        let copied = match child.stdout.take() {
            Some(stream) => copy_stream(BufReader::with_capacity(BUFFER_SIZE, stream), out),
            None => Ok(()),
        };
        if copied.is_err() {
            // the command that has not ended would wait for a reader
            let _ = child.kill();
        }
        let ended = finish(child, &self.0.host);
        copied.and(ended.map(drop))
    }

    /// The new bookmark is there before the old ones go: the snapshots of the other host can be destroyed at any time. So
    /// its name has the guid of the snapshot.
    fn mark(&self, dataset: &str, replica: &str, copy: &SafeCopy) -> Result<()> {
        let part = |guid: u64| format!("replica_{replica}_{guid}");
        let there = self.bookmarks(dataset)?;
        if !there.iter().any(|mark| mark.name == part(copy.guid)) {
            let snapshot = format!("{dataset}@{}", copy.snapshot);
            let bookmark = format!("{dataset}#{}", part(copy.guid));
            self.0.run(&["zfs", "bookmark", &snapshot, &bookmark])?;
        }
        for old in there {
            if old.guid != copy.guid && old.name == part(old.guid) {
                self.0.run(&["zfs", "destroy", &format!("{dataset}#{}", old.name)])?;
            }
        }
        Ok(())
    }
}

/// Copies a stream to its end.
fn copy_stream(mut from: impl Read, out: &mut dyn Write) -> Result<()> {
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(broken_pipe(&why)),
        };
        out.write_all(buffer.get(..length).unwrap_or_default()).map_err(|why| broken_pipe(&why))?;
    }
}

#[cfg(test)]
mod tests {
    use engine::pool::SendRequest;

    use super::SshSource;

    #[test]
    fn send_options_are_those_of_zfs() {
        let request = SendRequest {
            snapshot: "tank/a@two".to_owned(),
            base: Some("tank/a@one".to_owned()),
            intermediates: true,
            compressed: true,
            raw: true,
            ..SendRequest::default()
        };
        let words = SshSource::send_words(&request);
        assert_eq!(words, ["zfs", "send", "-c", "-w", "-I", "tank/a@one", "tank/a@two"]);
        let resumed = SendRequest { resume: Some("1-a".to_owned()), ..request };
        assert_eq!(SshSource::send_words(&resumed), ["zfs", "send", "-t", "1-a"]);
    }
}
