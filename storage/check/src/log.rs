//! Intent logs: blocks that no tree refers to, only a chain.

use std::sync::atomic::Ordering::Relaxed;

use ondisk::blkptr::Regular;
use ondisk::objset::LogHeader;
use ondisk::zil::{Chain, Pointed, Record, Verifier};
use ondisk::{Blkptr, Checksum, ObjectType};
use units::{BlockId, Level, ObjectId, ObjsetId, Place, Txg};
use zio::Reader;

use crate::Inner;
use crate::examine::Item;
use crate::tally::Tally;

/// More blocks than any log has.
const MOST_BLOCKS: u64 = 1 << 22;
/// The level under which log blocks are named in places.
pub(crate) const LEVEL: Level = Level::new(254);

impl Inner {
    /// Examines the blocks of a log that hold something, and those that its writes point to.
    pub(crate) fn log(&self, id: ObjsetId, header: &LogHeader, tally: &mut Tally) {
        let claimed = !header.claim_txg.is_zero();
        let lasting = if claimed { None } else { self.kept() };
        let (mut next, mut last) = (header.chain.clone(), 0);
        for _ in 0..MOST_BLOCKS {
            let Blkptr::Regular(block) = &next else { return };
            if lasting.is_some_and(|kept| block.birth > kept) {
                return;
            }
            let verifier = Verifier::of(block);
            if (claimed && verifier.seq > header.claim_block_seq) || self.job.cancel.is_cancelled()
            {
                return;
            }
            let place = Place::new(id, ObjectId::META, LEVEL, BlockId::new(verifier.seq));
            let item = Item { place, block: **block, shared: false };
            let promised = claimed && !header.may_end(verifier.seq, last);
            let Some(chain) = self.log_block(&item, promised, tally, &mut |seq, pointed, tally| {
                last = seq;
                self.log_record(id, pointed, header, tally);
            }) else {
                return;
            };
            match &chain.next {
                Blkptr::Regular(after) if Verifier::of(after) == verifier.next() => {}
                _ => return,
            }
            next = chain.next;
        }
    }

    /// The txg of the checkpoint that is being walked. Its logs that were not claimed are given up by
    /// who goes back to it, for their blocks may be used again: only those up to it are kept with it.
    fn kept(&self) -> Option<Txg> {
        let checkpoint = self.pool.checkpoint.as_ref().ok()?.as_ref()?;
        self.checkpoint.load(Relaxed).then_some(checkpoint.txg)
    }

    /// A block of the chain, which must be there if it is `promised`: what it says, with each record
    /// shown by its number. `None` where the chain ends.
    fn log_block(
        &self,
        item: &Item,
        promised: bool,
        tally: &mut Tally,
        show: &mut dyn FnMut(u64, &Pointed, &mut Tally),
    ) -> Option<Chain> {
        let Item { block, place, .. } = item;
        if self.is_log_known(block) {
            return None;
        }
        let written = self.reader.read_stored(block, *place).ok();
        let bytes = if promised || written.is_some() {
            self.inspect_promised(item, promised, tally)?
        } else {
            // made beforehand and not written yet: the end of the log
            self.hold(item, tally);
            return None;
        };
        if let Some(written) = written {
            Reader::recycle(written);
        }
        let front = block.checksum == Checksum::Zilog2;
        let split = Chain::split(&bytes, block.order, front);
        let Ok((chain, records)) = split else { return None };
        let mut reader = ondisk::Reader::new("log block", records, block.order);
        while reader.left() > 0 {
            let Ok((seq, _)) = Record::peek(&reader) else { break };
            let Ok(pointed) = Record::pointed(&mut reader) else { break };
            show(seq, &pointed, tally);
        }
        Some(chain)
    }

    /// What a record of the log has besides itself.
    fn log_record(&self, id: ObjsetId, has: &Pointed, header: &LogHeader, tally: &mut Tally) {
        match has {
            Pointed::Written(block) => self.log_write(id, block, header, tally),
            // counted as the log's when it is claimed
            Pointed::Shared(blocks) if !header.claim_txg.is_zero() => {
                let place = Place::new(id, ObjectId::META, LEVEL, BlockId::new(u64::MAX));
                for block in blocks {
                    let Some(item) = self.first_reference(block, place) else {
                        tally.count_again(block);
                        continue;
                    };
                    if let Some(bytes) = self.inspect(&item, tally) {
                        Reader::recycle(bytes);
                    }
                }
            }
            Pointed::Nothing | Pointed::Shared(_) => {}
        }
    }

    /// The block that a record of the log points to.
    fn log_write(&self, id: ObjsetId, block: &Regular, header: &LogHeader, tally: &mut Tally) {
        let claimed = !header.claim_txg.is_zero();
        // what is older is in the tree, or has been freed since
        let since = if claimed { header.claim_txg.get() } else { self.pool.allocated.get() + 1 };
        if block.birth.get() < since || block.kind == ObjectType::NONE {
            return;
        }
        let place = Place::new(id, ObjectId::META, LEVEL, BlockId::new(u64::MAX));
        let item = Item { place, block: *block, shared: false };
        if !claimed && self.reader.read_stored(block, place).is_err() {
            return;
        }
        if let Some(bytes) = self.inspect_promised(&item, claimed, tally) {
            Reader::recycle(bytes);
        }
    }

    fn is_log_known(&self, block: &Regular) -> bool {
        let first = block.dvas[0];
        let checkpoint = self.checkpoint.load(Relaxed);
        checkpoint && first.is_some_and(|dva| self.space.is_referenced(&self.pool.tree, dva))
    }

    /// Whether a block was written after the last txg, so that the space maps do not know it.
    fn is_after(&self, block: &Regular) -> bool {
        block.birth > self.pool.allocated
    }

    fn inspect_promised(&self, item: &Item, claimed: bool, tally: &mut Tally) -> Option<Vec<u8>> {
        let mut aside = Tally::default();
        let bytes = self.inspect(item, &mut aside);
        if !claimed {
            aside.excuse(
                "a block of an intent log is not on all of its drives: it was on its way when the \
                 power failed, or a drive has it wrong; the next import writes what it says anew",
            );
        }
        if self.is_after(&item.block) {
            // so that its space is not asked of the space maps
            for extent in aside.extents.drain(..) {
                self.space.promise(extent);
            }
        }
        tally.merge(aside);
        bytes
    }

    /// Notes the space of a log block that has not been written.
    fn hold(&self, item: &Item, tally: &mut Tally) {
        let tree = &self.pool.tree;
        let after = self.is_after(&item.block);
        for dva in item.block.copies() {
            let extent = self.space.extent(tree, dva, item.block.birth_physical, item.place);
            if after {
                self.space.promise(extent);
            } else {
                tally.extents.push(extent);
            }
        }
        if !after {
            tally.count(&item.block);
        }
    }
}
