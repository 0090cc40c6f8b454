//! Commits: threads that wait at the same time share one write of the log, and long writes are not
//! copied into it.
//!
//! ```text
//! thread    queue the request ─▶ wait for the turn ─▶ committed by another thread: done
//!                                                  └▶ commit all queued requests
//! commit    records of all requests
//!            ├ long writes   dirty blocks ─▶ their final places; the records have the pointers
//!            ├ most of what is dirty would be copied: wait for the txg instead
//!            └ the chain     one write, one flush, for all requests
//! ```
//!
//! Learnt from: `zil_commit` and `zfs_log_write` of OpenZFS 2.3.2. A long write has a record of its
//! own for each block there, too (`WR_INDIRECT`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use ondisk::Blkptr;
use ondisk::zil::{Body, Write};
use parking_lot::Mutex;
use txg::Tx;
use units::{ObjectId, Txg};
use zio::Class;

use crate::itxs::Itx;
use crate::log::ChainWriter;
use crate::{Error, IntentLog};

/// The least bytes of data for which a txg of their own can pay off.
const MIN_SYNC_BYTES: u64 = 8 << 20;
/// Bytes of a write that fits no log block, so that its commit flushes twice in any case.
const MIN_LONG_WRITE: u64 = 128 << 10;

/// The requests that wait for a commit.
#[derive(Default)]
pub(crate) struct CommitQueue(Mutex<Vec<Arc<CommitRequest>>>);

/// A request of a thread.
struct CommitRequest {
    /// The object whose records are wanted beside the ordered ones; none: those of all objects.
    object: Option<ObjectId>,
    /// Set by the thread that commits the request.
    outcome: OnceLock<Outcome>,
}

/// The result of a commit.
#[derive(Clone, Copy)]
enum Outcome {
    /// The log, or an earlier txg, has all records on the drives.
    Durable,
    /// This txg brings the changes.
    WithTxg(Txg),
}

impl CommitRequest {
    fn complete(&self, outcome: Outcome) {
        let is_first = self.outcome.set(outcome).is_ok();
        assert!(is_first, "a request is committed once");
    }
}

/// The objects of several requests.
pub(crate) enum CommitScope {
    All,
    Objects(BTreeSet<ObjectId>),
}

impl CommitQueue {
    fn push(&self, object: Option<ObjectId>) -> Arc<CommitRequest> {
        let request = Arc::new(CommitRequest { object, outcome: OnceLock::new() });
        self.0.lock().push(Arc::clone(&request));
        request
    }

    fn drain(&self) -> Vec<Arc<CommitRequest>> {
        std::mem::take(&mut self.0.lock())
    }
}

impl CommitScope {
    fn of(requests: &[Arc<CommitRequest>]) -> Self {
        let objects: Option<BTreeSet<ObjectId>> =
            requests.iter().map(|request| request.object).collect();
        objects.map_or(Self::All, Self::Objects)
    }
}

impl IntentLog {
    /// Returns when all earlier records that are ordered or belong to `object` (`None`: to any) are
    /// durable. The caller must not hold a txg.
    pub fn commit(&self, object: Option<ObjectId>) -> Result<(), Error> {
        self.wait_for_closed_txgs(object);
        // Rule Z3: the request is queued before the turn. The thread whose turn it is commits all queued requests
        // and drains their records after that, so that each request covers its caller's earlier changes.
        let request = self.commits.push(object);
        let mut turn = self.chain_writer.lock();
        if request.outcome.get().is_none() {
            let requests = self.commits.drain();
            let outcome = self.commit_together(&mut turn, &CommitScope::of(&requests));
            for request in &requests {
                request.complete(outcome);
            }
        }
        drop(turn);
        // a thread that panicked during the commit has left the request without an outcome
        let lost = || Outcome::WithTxg(self.txgs.open_txg());
        match request.outcome.get().copied().unwrap_or_else(lost) {
            Outcome::Durable => Ok(()),
            Outcome::WithTxg(txg) if self.txgs.wait_txg_synced(txg) => Ok(()),
            Outcome::WithTxg(_) => Err(Error::Stopped),
        }
    }

    /// Waits for closed txgs that have much of the data of a commit: their sync is under way, and
    /// the log would only write the data once more.
    fn wait_for_closed_txgs(&self, object: Option<ObjectId>) {
        let open = self.txgs.open_txg();
        let bytes = self.pending.lock().write_bytes_before(open, object);
        if bytes >= MIN_SYNC_BYTES {
            // the commit reports why a txg cannot be synced
            let _ = self.txgs.wait_txg_synced(Txg::new(open.get() - 1));
        }
    }

    fn commit_together(&self, turn: &mut ChainWriter, scope: &CommitScope) -> Outcome {
        let mut pending = self.pending.lock();
        let (items, untold) = (pending.drain(scope), pending.unlogged_txg());
        drop(pending);
        // Rule Z4: after a failed commit all later ones wait for the txg that has its records. Written to the log,
        // they would be replayed after a crash without the changes that they build on.
        let must_wait = self.state.lock().fallback_txg.max(untold) > self.txgs.synced_txg();
        if items.is_empty() && !must_wait {
            return Outcome::Durable;
        }
        let is_ready = matches!(self.ensure_chain(), Ok(true)) && !must_wait;
        if is_ready && self.write_records(turn, items).is_ok_and(|is_written| is_written) {
            return Outcome::Durable;
        }
        let open = self.txgs.open_txg();
        self.state.lock().fallback_txg = open;
        Outcome::WithTxg(open)
    }

    /// Writes records along the chain. False: a sync of their txg costs less.
    fn write_records(&self, turn: &mut ChainWriter, items: Vec<(Txg, Itx)>) -> Result<bool, Error> {
        let before = data_bytes(&items);
        let items = merge_writes(items);
        assert_eq!(data_bytes(&items), before, "merged writes are as long as the single ones");
        let items = self.store_long_writes(items)?;
        assert_eq!(data_bytes(&items), before, "each byte of a long write is in one of its parts");
        if self.is_sync_cheaper(&items) {
            return Ok(false);
        }
        self.write_itxs(turn, items).map(|()| true)
    }

    /// Whether the records are such a large part of the dirty data that syncing the txg costs less
    /// than the commit, which writes them twice.
    fn is_sync_cheaper(&self, items: &[(Txg, Itx)]) -> bool {
        let bytes = items.iter().map(|(_, item)| copied_bytes(item)).sum::<u64>();
        bytes >= MIN_SYNC_BYTES && bytes * 2 >= self.txgs.dirty_bytes()
    }

    /// Writes the dirty blocks of long writes to their final places. Their records have pointers
    /// instead of data then. A log device gets the data itself: it is faster than the pool.
    fn store_long_writes(&self, items: Vec<(Txg, Itx)>) -> Result<Vec<(Txg, Itx)>, Error> {
        let is_long = |item: &Itx| copied_bytes(item) >= MIN_LONG_WRITE;
        if !items.iter().any(|(_, item)| is_long(item)) || self.uses_log_devices() {
            return Ok(items);
        }
        // the blocks belong to the open txg: its sync must not begin before they have their places
        let tx = self.txgs.begin_tx().ok_or(Error::Stopped)?;
        let mut stored = Vec::with_capacity(items.len());
        for (txg, item) in items {
            match item.body {
                Body::Write(ref write) if txg == tx.txg() && is_long(&item) => {
                    let parts = self.store_write(&tx, write)?;
                    let part = |part| (txg, Itx { body: Body::Write(Box::new(part)), ..item });
                    stored.extend(parts.into_iter().map(part));
                }
                body => stored.push((txg, Itx { body, ..item })),
            }
        }
        Ok(stored)
    }

    /// Whether records go to log devices.
    fn uses_log_devices(&self) -> bool {
        let has_devices = || self.writer.allocator().class_usage(Class::Log).capacity > 0;
        !self.is_throughput.load(Ordering::Relaxed) && has_devices()
    }

    /// The parts of a write: blocks at their places, and what lies between them.
    fn store_write(&self, tx: &Tx, write: &Write) -> Result<Vec<Write>, Error> {
        let object = match self.objset.object(write.object) {
            Ok(object) => object,
            // the record is dropped where it would get its data
            Err(dmu::Error::NoSuchObject { .. }) => return Ok(vec![write.clone()]),
            Err(error) => return Err(error.into()),
        };
        let (mut parts, mut at, end) = (Vec::new(), write.offset, write.offset + write.length);
        let part = |offset, end: u64, pointer| {
            let (object, length) = (write.object, end - offset);
            (length > 0).then_some(Write { object, offset, length, pointer, data: None })
        };
        for block in object.write_for_log(tx, &(at..end))? {
            let block_end = block.offset + block.length;
            assert!(at <= block.offset && block_end <= end, "a block lies within its write");
            parts.extend(part(at, block.offset, Blkptr::EMPTY));
            parts.extend(part(block.offset, block_end, block.pointer));
            at = block_end;
        }
        parts.extend(part(at, end, Blkptr::EMPTY));
        Ok(parts)
    }
}

/// Bytes that the records write, in the log or in blocks of their own.
fn data_bytes(items: &[(Txg, Itx)]) -> u64 {
    let length = |(_, item): &(Txg, Itx)| match &item.body {
        Body::Write(write) => write.length,
        _ => 0,
    };
    items.iter().map(length).sum()
}

/// Bytes of data that the log gets with a record.
fn copied_bytes(item: &Itx) -> u64 {
    match &item.body {
        Body::Write(write) if write.pointer.is_hole() => write.length,
        _ => 0,
    }
}

/// Merges each write with the one before it that ends where it begins, if both get their data at the
/// commit.
fn merge_writes(items: Vec<(Txg, Itx)>) -> Vec<(Txg, Itx)> {
    let mut merged: Vec<(Txg, Itx)> = Vec::with_capacity(items.len());
    for (txg, item) in items {
        if let (Some((last_txg, last)), Body::Write(write)) = (merged.last_mut(), &item.body)
            && *last_txg == txg
            && let Body::Write(last) = &mut last.body
            && has_no_data(last)
            && has_no_data(write)
            && last.object == write.object
            && last.offset.checked_add(last.length) == Some(write.offset)
        {
            last.length += write.length;
            continue;
        }
        merged.push((txg, item));
    }
    merged
}

fn has_no_data(write: &Write) -> bool {
    write.data.is_none() && write.pointer.is_hole()
}
