//! Intent logs: blocks that no tree refers to, only a chain.

use ondisk::Blkptr;
use ondisk::Checksum;
use ondisk::blkptr::Regular;
use ondisk::objset::LogHeader;
use ondisk::zil::{Chain, Record, RecordBlocks, Verifier};
use units::{BlockId, Level, ObjectId, ObjsetId, Zbookmark};
use zio::Reader;

use super::round::{Round, ScanBlock};
use super::walk::BlockBatch;

/// More blocks than any log has.
const MAX_LOG_BLOCKS: u64 = 1 << 22;
/// The level under which log blocks are named in places.
pub(super) const LOG_LEVEL: Level = Level::new(254);

impl Round<'_> {
    /// Has the blocks of a log that hold something mended, and those that its writes point to, as
    /// far as they are of the txg that is walked.
    pub(super) fn scan_log(&self, id: ObjsetId, header: &LogHeader, gathered: &mut BlockBatch) {
        let claimed = !header.claim_txg.is_zero();
        let (mut next, mut last) = (header.chain.clone(), 0);
        for _ in 0..MAX_LOG_BLOCKS {
            let Blkptr::Regular(block) = &next else { return };
            let verifier = Verifier::from_pointer(block);
            let past = claimed && verifier.seq > header.claim_block_seq;
            if past || block.birth > self.txg || self.is_stopping() {
                return;
            }
            let place = Zbookmark::new(id, ObjectId::META, LOG_LEVEL, BlockId::new(verifier.seq));
            let stored = match self.scan.reader.read_stored(block, place) {
                Ok(stored) => stored,
                Err(error) => {
                    // one that was made beforehand and not written yet is the end of the log
                    if claimed && !header.can_end_at(verifier.seq, last) {
                        let item = ScanBlock { zbookmark: place, block: **block };
                        self.scan.record_block_error(&item, &error);
                    }
                    return;
                }
            };
            self.queue_block(ScanBlock { zbookmark: place, block: **block }, gathered);
            let chain = self.scan_log_records(id, block, &stored, (header, &mut last), gathered);
            Reader::recycle(stored);
            match chain.map(|chain| chain.next) {
                Some(Blkptr::Regular(after))
                    if Verifier::from_pointer(&after) == verifier.next() =>
                {
                    next = Blkptr::Regular(after);
                }
                _ => return,
            }
        }
    }

    /// Takes in what the records of a log block point to, and the number of the last one; gives what
    /// comes next.
    fn scan_log_records(
        &self,
        id: ObjsetId,
        block: &Regular,
        stored: &[u8],
        (header, last): (&LogHeader, &mut u64),
        gathered: &mut BlockBatch,
    ) -> Option<Chain> {
        let front = block.checksum == Checksum::Zilog2;
        let (chain, records) = Chain::split(stored, block.order, front).ok()?;
        let mut reader = ondisk::Reader::new("log block", records, block.order);
        while reader.remaining() > 0 {
            *last = Record::peek(&reader).map_or(*last, |(seq, _)| seq);
            match Record::read_blocks(&mut reader) {
                Ok(RecordBlocks::None) => {}
                // what is older is in the tree, or freed
                Ok(RecordBlocks::Written(data)) if data.birth < header.claim_txg => {}
                Ok(RecordBlocks::Written(data)) => self.queue_log_data(id, &data, header, gathered),
                Ok(RecordBlocks::Cloned(blocks)) => {
                    for data in &blocks {
                        self.queue_log_data(id, data, header, gathered);
                    }
                }
                Err(_) => break,
            }
        }
        Some(chain)
    }

    /// A block that a record has: nobody does before it is claimed.
    fn queue_log_data(
        &self,
        id: ObjsetId,
        data: &Regular,
        header: &LogHeader,
        gathered: &mut BlockBatch,
    ) {
        let place = Zbookmark::new(id, ObjectId::META, LOG_LEVEL, BlockId::new(u64::MAX));
        if header.claim_txg.is_zero() || data.birth > self.txg {
            return;
        }
        self.queue_block(ScanBlock { zbookmark: place, block: *data }, gathered);
    }
}
