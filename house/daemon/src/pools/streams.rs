//! Snapshots sent: the bytes of a stream pass through a descriptor of the command.

use std::io::{BufWriter, Write};

use api::{AbortReceive, PlanSend, PlannedSend, SendStream};
use engine::pool::{SendRequest, busy_head_error, sent_head};

use super::Pools;
use crate::auth::Caller;
use crate::descriptor::{CancellableFile, fetch};
use crate::{Error, Result};

/// Bytes of a stream that are buffered in memory.
pub(super) const BUFFER_SIZE: usize = 1 << 20;

impl Pools {
    /// Sends snapshots to the command's descriptor.
    pub(crate) fn send_stream(&self, call: &SendStream, caller: &Caller) -> Result<()> {
        let (pool, request) = self.send_request(call)?;
        let file = CancellableFile::new(fetch(&call.descriptor, caller.peer.uid)?, &caller.cancel);
        let mut out = BufWriter::with_capacity(BUFFER_SIZE, file);
        pool.handle.streams().send(&request, &mut out)?;
        out.flush().map_err(|why| Error::file_error(&call.descriptor, &why))
    }

    /// The snapshots that a stream will have.
    pub(crate) fn plan_send(&self, call: &PlanSend) -> Result<Vec<PlannedSend>> {
        let (pool, request) = self.send_request(&call.send)?;
        let plan = pool.handle.streams().plan_send(&request)?;
        let is_short = request.replicate || request.intermediates;
        let reported = |step: &engine::pool::SendStep| {
            // bases of the same file system go by their short names, as with OpenZFS
            let part = |base: &str| base.split_once('@').map(|(_, part)| part.to_owned());
            let short = |base: &str| part(base).filter(|_| is_short && !step.is_from_origin);
            PlannedSend {
                snapshot: step.snapshot.clone(),
                base: step
                    .base
                    .as_deref()
                    .map(|base| short(base).unwrap_or_else(|| base.to_owned())),
                bytes: step.bytes,
            }
        };
        Ok(plan.steps().iter().map(reported).collect())
    }

    /// Destroys the partial state of a resumable receive.
    pub(crate) fn abort_receive(&self, call: &AbortReceive) -> Result<()> {
        self.change_dataset(&call.target, |pool| {
            Ok(pool.handle.streams().abort_receive(&call.target)?)
        })
    }

    /// The pool and the snapshots of a stream. A resume token names its file system on the sender.
    fn send_request(
        &self,
        call: &SendStream,
    ) -> Result<(std::sync::Arc<super::ManagedPool>, SendRequest)> {
        let request = SendRequest {
            snapshot: call.snapshot.clone(),
            base: call.base.clone(),
            intermediates: call.intermediates,
            replicate: call.replicate,
            properties: call.properties,
            skip_missing: call.skip_missing,
            large_blocks: call.large_blocks,
            embedded: call.embedded,
            compressed: call.compressed,
            raw: call.raw,
            excluded: call.excluded.clone(),
            backup: call.backup,
            holds: call.holds,
            redact: call.redact.clone(),
            saved: call.saved,
            resume: call.resume_token.clone(),
        };
        let name = match &call.resume_token {
            Some(token) => engine::stream::resume_token_snapshot(token)?,
            None => call.snapshot.clone(),
        };
        let pool = self.pool_of_dataset(&name)?;
        if let Some(head) = sent_head(&name).filter(|_| !call.saved)
            && pool.is_mounted(head)
            && !pool.handle.is_read_only()
        {
            return Err(busy_head_error(head).into());
        }
        Ok((pool, request))
    }
}
