//! Intent logs: blocks that no tree refers to, only a chain.

use std::sync::atomic::Ordering::Relaxed;

use ondisk::blkptr::Regular;
use ondisk::objset::LogHeader;
use ondisk::zil::{Chain, Record, RecordBlocks, Verifier};
use ondisk::{Blkptr, Checksum, ObjectType};
use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};
use zio::Reader;

use crate::CheckInner;
use crate::tally::Tally;
use crate::verify::CheckBlock;

/// More blocks than any log has.
const MAX_LOG_BLOCKS: u64 = 1 << 22;
/// The level under which log blocks are named in places.
pub(crate) const LOG_LEVEL: Level = Level::new(254);

impl CheckInner {
    /// Examines the used blocks of a log, and those that its writes point to.
    pub(crate) fn check_log(&self, id: ObjsetId, header: &LogHeader, tally: &mut Tally) {
        let claimed = !header.claim_txg.is_zero();
        let lasting = if claimed { None } else { self.checkpoint_txg() };
        let (mut next, mut last) = (header.chain.clone(), 0);
        for _ in 0..MAX_LOG_BLOCKS {
            let Blkptr::Regular(block) = &next else { return };
            if lasting.is_some_and(|kept| block.birth > kept) {
                return;
            }
            let verifier = Verifier::from_pointer(block);
            if (claimed && verifier.seq > header.claim_block_seq) || self.job.cancel.is_cancelled()
            {
                return;
            }
            let place = Zbookmark::new(id, ObjectId::META, LOG_LEVEL, BlockId::new(verifier.seq));
            let item = CheckBlock { zbookmark: place, block: **block, may_be_shared: false };
            let promised = claimed && !header.can_end_at(verifier.seq, last);
            let Some(chain) =
                self.check_log_block(&item, promised, tally, &mut |seq, pointed, tally| {
                    last = seq;
                    self.check_log_record(id, pointed, header, tally);
                })
            else {
                return;
            };
            match &chain.next {
                Blkptr::Regular(after) if Verifier::from_pointer(after) == verifier.next() => {}
                _ => return,
            }
            next = chain.next;
        }
    }

    /// The txg of the checkpoint that is being walked. A rewind to it discards its unclaimed logs,
    /// because their blocks may be overwritten: the checkpoint protects only blocks up to it.
    fn checkpoint_txg(&self) -> Option<Txg> {
        let checkpoint = self.pool.checkpoint.as_ref().ok()?.as_ref()?;
        self.in_checkpoint.load(Relaxed).then_some(checkpoint.txg)
    }

    /// A block of the chain, which must exist if it is `promised`. Returns its content and calls
    /// back with each record's number. `None` where the chain ends.
    fn check_log_block(
        &self,
        item: &CheckBlock,
        promised: bool,
        tally: &mut Tally,
        show: &mut dyn FnMut(u64, &RecordBlocks, &mut Tally),
    ) -> Option<Chain> {
        let CheckBlock { block, zbookmark: place, .. } = item;
        if self.is_log_block_checked(block) {
            return None;
        }
        let written = self.reader.read_stored(block, *place).ok();
        let bytes = if promised || written.is_some() {
            self.check_claimed_block(item, promised, tally)?
        } else {
            // made beforehand and not written yet: the end of the log
            self.record_unwritten_block(item, tally);
            return None;
        };
        if let Some(written) = written {
            Reader::recycle(written);
        }
        let front = block.checksum == Checksum::Zilog2;
        let split = Chain::split(&bytes, block.order, front);
        let Ok((chain, records)) = split else { return None };
        let mut reader = ondisk::Reader::new("log block", records, block.order);
        while reader.remaining() > 0 {
            let Ok((seq, _)) = Record::peek(&reader) else { break };
            let Ok(pointed) = Record::read_blocks(&mut reader) else { break };
            show(seq, &pointed, tally);
        }
        Some(chain)
    }

    /// The block that a record of the log points to.
    fn check_log_record(
        &self,
        id: ObjsetId,
        has: &RecordBlocks,
        header: &LogHeader,
        tally: &mut Tally,
    ) {
        match has {
            RecordBlocks::Written(block) => self.check_log_write(id, block, header, tally),
            // counted as the log's when it is claimed
            RecordBlocks::Cloned(blocks) if !header.claim_txg.is_zero() => {
                let zbookmark =
                    Zbookmark::new(id, ObjectId::META, LOG_LEVEL, BlockId::new(u64::MAX));
                for block in blocks {
                    let Some(item) = self.register_reference(block, zbookmark) else {
                        tally.count_extra_reference(block);
                        continue;
                    };
                    if let Some(bytes) = self.check_block(&item, tally) {
                        Reader::recycle(bytes);
                    }
                }
            }
            RecordBlocks::None | RecordBlocks::Cloned(_) => {}
        }
    }

    /// The block that a record of the log points to.
    fn check_log_write(
        &self,
        id: ObjsetId,
        block: &Regular,
        header: &LogHeader,
        tally: &mut Tally,
    ) {
        let claimed = !header.claim_txg.is_zero();
        // an older block is in the tree, or has been freed since
        let since =
            if claimed { header.claim_txg.get() } else { self.pool.allocated_txg.get() + 1 };
        if block.birth.get() < since || block.kind == ObjectType::NONE {
            return;
        }
        let place = Zbookmark::new(id, ObjectId::META, LOG_LEVEL, BlockId::new(u64::MAX));
        let item = CheckBlock { zbookmark: place, block: *block, may_be_shared: false };
        if !claimed && self.reader.read_stored(block, place).is_err() {
            return;
        }
        if let Some(bytes) = self.check_claimed_block(&item, claimed, tally) {
            Reader::recycle(bytes);
        }
    }

    fn is_log_block_checked(&self, block: &Regular) -> bool {
        let first = block.dvas[0];
        let checkpoint = self.in_checkpoint.load(Relaxed);
        checkpoint && first.is_some_and(|dva| self.space.is_referenced(&self.pool.tree, dva))
    }

    /// Whether a block was written after the last txg, so that the space maps do not know it.
    fn is_after_last_txg(&self, block: &Regular) -> bool {
        block.birth > self.pool.allocated_txg
    }

    fn check_claimed_block(
        &self,
        item: &CheckBlock,
        claimed: bool,
        tally: &mut Tally,
    ) -> Option<Vec<u8>> {
        let mut aside = Tally::default();
        let bytes = self.check_block(item, &mut aside);
        if !claimed {
            aside.demote_repairable(
                "a block of an intent log is not on all of its drives: it was being written when the power failed, or a drive has it wrong; the next import replays its records",
            );
        }
        if self.is_after_last_txg(&item.block) {
            // so that the space maps are not searched for it
            for extent in aside.extents.drain(..) {
                self.space.add_log_claim(extent);
            }
        }
        tally.merge(aside);
        bytes
    }

    /// Notes the space of a log block that has not been written.
    fn record_unwritten_block(&self, item: &CheckBlock, tally: &mut Tally) {
        let tree = &self.pool.tree;
        let after = self.is_after_last_txg(&item.block);
        for dva in item.block.copies() {
            let extent = self.space.extent(tree, dva, item.block.birth_physical, item.zbookmark);
            if after {
                self.space.add_log_claim(extent);
            } else {
                tally.extents.push(extent);
            }
        }
        if !after {
            tally.count(&item.block);
        }
    }
}
