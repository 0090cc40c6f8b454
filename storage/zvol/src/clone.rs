//! A range of a volume becomes the same as one of another volume of the pool, without a copy: blocks are shared.
//!
//! The source is this volume, another one, or a snapshot. Blocks can be shared where both volumes have the same
//! volblocksize and the range is whole blocks of both. Dirty blocks cannot be shared yet.

use std::ops::Range;

use dmu::{Object, Objset};
use parking_lot::RwLockWriteGuard;
use txg::Tx;
use units::BlockId;

use crate::{Error, Result, Volume, WritableVolume};

/// The most blocks that are shared within one transaction.
const MAX_TX_CLONED_BLOCKS: u64 = 1024;

/// The volume whose blocks are shared.
#[derive(Clone, Copy, Debug)]
pub enum CloneSource<'a> {
    /// A volume that can be changed.
    Volume(&'a WritableVolume),
    /// A snapshot.
    Snapshot(&'a Volume),
}

impl CloneSource<'_> {
    fn object(&self) -> &Object {
        match self {
            Self::Volume(volume) => &volume.data,
            Self::Snapshot(volume) => volume.object(),
        }
    }
}

/// The locks of the target and of the source, if it is another volume, with the bytes of both.
struct CloneLocks<'a> {
    _locks: [Option<RwLockWriteGuard<'a, u64>>; 2],
    target_size: u64,
    source_size: u64,
}

impl WritableVolume {
    /// Shares as many blocks from the start of a range of the source as possible, with the blocks from byte `to` on.
    /// Returns the number of bytes; the rest must be copied. `begin_tx` begins a transaction that clones blocks of
    /// the source; it returns `None` if the source is not there any more. The intent log has no record of the
    /// clone: a flush waits for the txg.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn clone_blocks(
        &self,
        source: CloneSource<'_>,
        from: Range<u64>,
        to: u64,
        begin_tx: impl Fn(&Objset) -> Result<Option<Tx>>,
    ) -> Result<u64> {
        let size = u64::from(self.block_size());
        let object = source.object();
        let is_alike =
            object.block_size() == self.block_size() && object.objset().has_same_key(&self.objset);
        let is_aligned = from.start.is_multiple_of(size) && to.is_multiple_of(size);
        let is_overlaid = matches!(source, CloneSource::Snapshot(volume) if volume.is_overlaid());
        if !is_alike || !is_aligned || is_overlaid || from.end < from.start {
            return Ok(0);
        }
        let length = from.end - from.start;
        let blocks = length.checked_div(size).unwrap_or(0);
        let mut done = 0;
        while done < blocks {
            let next = (done + MAX_TX_CLONED_BLOCKS).min(blocks);
            let locks = self.lock_for_clone(source);
            let out_of_range = |offset| Error::OutOfRange { objset: self.objset.id(), offset };
            if from.end > locks.source_size {
                return Err(out_of_range(from.start));
            }
            if to.checked_add(length).is_none_or(|end| end > locks.target_size) {
                return Err(out_of_range(to));
            }
            let Some(tx) = begin_tx(object.objset())? else { break };
            let first = (block_of(from.start, size), block_of(to, size));
            let reached = self.clone_block_run(&tx, object, first, done..next)?;
            assert!((done..=next).contains(&reached), "only blocks that were asked for are shared");
            let is_whole = reached == next;
            done = reached;
            if !is_whole {
                break;
            }
        }
        Ok(done * size)
    }

    /// Shares these blocks, counted from the first of the source and of the target. Returns the first block that
    /// could not be shared.
    fn clone_block_run(
        &self,
        tx: &Tx,
        source: &Object,
        (first, target): (u64, u64),
        blocks: Range<u64>,
    ) -> Result<u64> {
        let start = blocks.start;
        let mut reached = start;
        let mut shared = Ok(());
        for block in blocks {
            let (from, to) = (BlockId::new(first + block), BlockId::new(target + block));
            match self.data.clone_block(tx, to, (source, from)) {
                Ok(true) => reached = block + 1,
                Ok(false) => break,
                Err(why) => {
                    shared = Err(why);
                    break;
                }
            }
        }
        if reached > start {
            self.log.add_unlogged(tx);
        }
        shared?;
        Ok(reached)
    }

    /// Locks both volumes against changes, in the order of the numbers of their object sets.
    fn lock_for_clone<'a>(&'a self, source: CloneSource<'a>) -> CloneLocks<'a> {
        let other = match source {
            CloneSource::Volume(volume) if !volume.objset.is_same(&self.objset) => volume,
            CloneSource::Volume(_) => {
                let own = self.size.write();
                let size = *own;
                return CloneLocks {
                    _locks: [Some(own), None],
                    target_size: size,
                    source_size: size,
                };
            }
            CloneSource::Snapshot(snapshot) => {
                let own = self.size.write();
                let (target_size, source_size) = (*own, snapshot.size());
                return CloneLocks { _locks: [Some(own), None], target_size, source_size };
            }
        };
        let (own, others) = if other.objset.id() < self.objset.id() {
            let others = other.size.write();
            (self.size.write(), others)
        } else {
            (self.size.write(), other.size.write())
        };
        let (target_size, source_size) = (*own, *others);
        CloneLocks { _locks: [Some(own), Some(others)], target_size, source_size }
    }
}

/// The block that holds a byte.
fn block_of(byte: u64, size: u64) -> u64 {
    byte.checked_div(size).unwrap_or(0)
}
