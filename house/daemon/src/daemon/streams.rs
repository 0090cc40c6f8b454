//! Snapshots sent and received: the bytes of a stream pass through a descriptor of the command.

use std::io::{BufReader, BufWriter, Write};

use engine::pool::{ReceiveRequest, SendRequest};

use super::{Daemon, empty_response, value_response};
use crate::cancel::Cancel;
use crate::descriptor::{CancellableFile, fetch};
use crate::{Error, ReceiveStream, ReceivedStream, Response, Result, SendStream};

/// Bytes of a stream that wait in memory.
const BUFFER_SIZE: usize = 1 << 20;

impl Daemon {
    /// Sends a snapshot to the command's descriptor.
    pub(super) fn send_stream(&self, wanted: &SendStream, cancel: &Cancel) -> Result<Response> {
        let pool = self.pool_of_dataset(&wanted.snapshot)?;
        let file = fetch(&wanted.descriptor)?;
        let mut out = BufWriter::with_capacity(BUFFER_SIZE, CancellableFile::new(file, cancel));
        let request = SendRequest {
            snapshot: wanted.snapshot.clone(),
            base: wanted.base.clone(),
            large_blocks: wanted.large_blocks,
            embedded: wanted.embedded,
            compressed: wanted.compressed,
        };
        pool.handle.send(&request, &mut out)?;
        out.flush().map_err(|why| Error::file_error(&wanted.descriptor, &why))?;
        empty_response(())
    }

    /// Receives a stream from the command's descriptor, and mounts a file system that is new.
    pub(super) fn receive_stream(
        &self,
        wanted: &ReceiveStream,
        cancel: &Cancel,
    ) -> Result<Response> {
        let pool = self.pool_of_dataset(&wanted.target)?;
        let file = fetch(&wanted.descriptor)?;
        let mut input = BufReader::with_capacity(BUFFER_SIZE, CancellableFile::new(file, cancel));
        let (target, part) = match wanted.target.split_once('@') {
            Some((target, part)) => (target, Some(part.to_owned())),
            None => (wanted.target.as_str(), None),
        };
        let request = ReceiveRequest {
            target: target.to_owned(),
            snapshot: part,
            force: wanted.force,
            dry_run: wanted.dry_run,
        };
        let done = pool.handle.receive(&request, &mut input)?;
        let is_new = !done.is_incremental && !wanted.dry_run;
        let not_mounted = if is_new && !wanted.no_mount {
            let _changing = pool.dataset_lock.lock();
            pool.mount_created(&[target.to_owned()])
        } else {
            Vec::new()
        };
        value_response(&ReceivedStream {
            snapshot: done.snapshot,
            is_incremental: done.is_incremental,
            bytes: done.bytes,
            not_mounted,
        })
    }
}
