//! Snapshots sent and received: the bytes of a stream pass through a descriptor of the command.

use std::io::{BufReader, BufWriter, Write};

use api::{Event, ReceiveStream, ReceivedStream, SendStream};
use engine::pool::{ReceiveRequest, SendRequest};

use super::{ManagedPool, Pools};
use crate::auth::Caller;
use crate::descriptor::{CancellableFile, fetch};
use crate::events::ChangeOptions;
use crate::{Error, Result};

/// Bytes of a stream that are buffered in memory.
const BUFFER_SIZE: usize = 1 << 20;

impl Pools {
    /// Sends a snapshot to the command's descriptor.
    pub(crate) fn send_stream(&self, call: &SendStream, caller: &Caller) -> Result<()> {
        let pool = self.pool_of_dataset(&call.snapshot)?;
        let file = CancellableFile::new(fetch(&call.descriptor)?, &caller.cancel);
        let mut out = BufWriter::with_capacity(BUFFER_SIZE, file);
        let request = SendRequest {
            snapshot: call.snapshot.clone(),
            base: call.base.clone(),
            large_blocks: call.large_blocks,
            embedded: call.embedded,
            compressed: call.compressed,
        };
        pool.handle.send(&request, &mut out)?;
        out.flush().map_err(|why| Error::file_error(&call.descriptor, &why))
    }

    /// Receives a stream from the command's descriptor, and mounts a new file system.
    pub(crate) fn receive_stream(
        &self,
        call: &ReceiveStream,
        caller: &Caller,
    ) -> Result<ReceivedStream> {
        let (target, snapshot) = match call.target.split_once('@') {
            Some((target, snapshot)) => (target, Some(snapshot.to_owned())),
            None => (call.target.as_str(), None),
        };
        let pool = self.pool_of_dataset(target)?;
        let file = CancellableFile::new(fetch(&call.descriptor)?, &caller.cancel);
        let mut input = BufReader::with_capacity(BUFFER_SIZE, file);
        let request = ReceiveRequest {
            target: target.to_owned(),
            snapshot,
            force: call.force,
            dry_run: call.dry_run,
        };
        let done = pool.handle.receive(&request, &mut input)?;
        let mut not_mounted = Vec::new();
        if !call.dry_run {
            let mut happened = vec![Event::SnapshotCreated { snapshot: done.snapshot.clone() }];
            if !done.is_incremental {
                happened.insert(0, Event::DatasetCreated { dataset: target.to_owned() });
            }
            let options = ChangeOptions { keep_mounts: call.no_mount, ..ChangeOptions::default() };
            // receiving takes long, so the lock of the datasets is taken for the mount alone
            let follow = |pool: &ManagedPool| {
                // the doors of the target see what was received
                let follow = || pool.filesystems.replace_content(target, || Ok(()));
                self.change(&happened, &options, follow)
            };
            ((), not_mounted) = self.change_dataset(target, follow)?;
        }
        Ok(ReceivedStream {
            snapshot: done.snapshot,
            is_incremental: done.is_incremental,
            bytes: done.bytes,
            not_mounted,
        })
    }
}
