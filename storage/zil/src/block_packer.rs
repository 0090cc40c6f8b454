//! Which record goes into which log block.

use ondisk::Order;
use ondisk::zil::{Body, Chain, Record, Write};
use units::{MinusOrZero, Txg};

use crate::itxs::Itx;

/// The smallest log block, and what their sizes are multiples of.
pub(crate) const MIN_BLOCK_SIZE: u32 = 4096;
/// The largest.
pub(crate) const MAX_BLOCK_SIZE: u32 = 128 << 10;
/// Bytes of a write's record before its data.
const WRITE_HEADER: usize = 192;
/// A write is not split for less free space than this.
const MIN_WRITE_PART: usize = 1024;

/// The records of one block.
#[derive(Default)]
pub(crate) struct PackedBlock {
    /// One after the other.
    pub(crate) records: Vec<u8>,
    /// The highest txg among its records.
    pub(crate) newest_txg: Txg,
}

/// Fills blocks, of which the first is as large as it is and the others as large as they need be.
pub(crate) struct BlockPacker {
    pub(crate) blocks: Vec<PackedBlock>,
    /// Free bytes in the current block.
    capacity: usize,
    last_seq: u64,
    /// A record points to blocks that were written for it.
    has_pointers: bool,
}

impl BlockPacker {
    /// `first` is the size of the existing block; `seq` the number of the last record.
    pub(crate) fn new(first: u32, last_seq: u64) -> Self {
        let blocks = vec![PackedBlock::default()];
        Self { blocks, capacity: record_capacity(first), last_seq, has_pointers: false }
    }

    /// The number of the last record.
    pub(crate) const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Whether a record points to blocks that were written for it: they must be durable before it.
    pub(crate) const fn has_pointers(&self) -> bool {
        self.has_pointers
    }

    pub(crate) fn add_itx(&mut self, txg: Txg, item: Itx) {
        let Itx { body, fold_case, .. } = item;
        match body {
            Body::Write(write) if write.data.is_some() => self.add_write(txg, *write),
            Body::Write(write) => {
                self.has_pointers = true;
                self.add_record(txg, fold_case, Body::Write(write));
            }
            body => self.add_record(txg, fold_case, body),
        }
    }

    /// A write may be split across the rest of this block and the next ones.
    fn add_write(&mut self, txg: Txg, write: Write) {
        let Write { object, offset, length, pointer, data } = write;
        let data = data.unwrap_or_default();
        // A record with less data than its length would be dropped here, and its commit acknowledged.
        assert_eq!(units::to_u64(data.len()), length, "a write has all its data");
        let end = offset + length;
        let (mut rest, mut offset) = (&data[..], offset);
        while !rest.is_empty() {
            let here = self.remaining().minus_or_zero(WRITE_HEADER);
            let whole = rest.len().next_multiple_of(8);
            let count = match here {
                here if whole <= here => rest.len(),
                // multiples of 8, so that no part is longer than its record
                here if here >= MIN_WRITE_PART => here & !7,
                _ => {
                    self.start_block();
                    continue;
                }
            };
            let (now, later) = rest.split_at(count);
            let (length, data) = (now.len() as u64, Some(now.to_vec()));
            let part = Write { object, offset, length, pointer: pointer.clone(), data };
            self.add_record(txg, false, Body::Write(Box::new(part)));
            offset += length;
            rest = later;
        }
        assert_eq!(offset, end, "the parts of a write are the whole write");
    }

    fn add_record(&mut self, txg: Txg, fold_case: bool, body: Body) {
        self.last_seq += 1;
        let record = Record { txg, seq: self.last_seq, fold_case, order: Order::Little, body };
        let bytes = record.encode();
        if bytes.len() > self.remaining() {
            self.start_block();
        }
        assert!(bytes.len() <= self.remaining(), "a record fits the largest of log blocks");
        if let Some(block) = self.blocks.last_mut() {
            block.records.extend_from_slice(&bytes);
            block.newest_txg = block.newest_txg.max(txg);
        }
    }

    fn remaining(&self) -> usize {
        self.blocks.last().map_or(0, |block| self.capacity - block.records.len())
    }

    fn start_block(&mut self) {
        self.blocks.push(PackedBlock::default());
        self.capacity = record_capacity(MAX_BLOCK_SIZE);
    }
}

/// Bytes for records in a block of this size.
pub(crate) const fn record_capacity(size: u32) -> usize {
    size as usize - Chain::SIZE
}

/// The block size for this many bytes of records.
pub(crate) fn block_size_for(records: usize) -> u32 {
    let size = units::narrow::<u32>((records + Chain::SIZE).min(units::to_usize(MAX_BLOCK_SIZE)));
    size.next_multiple_of(MIN_BLOCK_SIZE).min(MAX_BLOCK_SIZE)
}

#[cfg(test)]
mod tests {
    use ondisk::zil::{Body, Record, Write};
    use ondisk::{Blkptr, Order, Reader};
    use units::{ObjectId, Txg};

    use super::{BlockPacker, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, block_size_for, record_capacity};
    use crate::itxs::Itx;

    fn write(offset: u64, length: usize) -> Itx {
        let object = ObjectId::new(7);
        let data = Some((offset..).take(length).map(|at| at.to_le_bytes()[0]).collect());
        let (length, pointer) = (length as u64, Blkptr::EMPTY);
        Itx::new_per_object(Body::Write(Box::new(Write { object, offset, length, pointer, data })))
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_by_cutting(
            lengths in proptest::collection::vec(1_usize..300_000, 1..6), first in 1_u32..33,
        ) {
            let mut plan = BlockPacker::new(first * MIN_BLOCK_SIZE, 10);
            let mut at = 0;
            for length in &lengths {
                plan.add_itx(Txg::new(5), write(at, *length));
                at += *length as u64;
            }
            let (mut seq, mut next) = (10, 0_u64);
            for (index, block) in plan.blocks.iter().enumerate() {
                let size = if index == 0 { first * MIN_BLOCK_SIZE } else { block_size_for(block.records.len()) };
                assert!(size <= MAX_BLOCK_SIZE && block.records.len() <= record_capacity(size));
                let mut reader = Reader::new("test", &block.records, Order::Little);
                while reader.remaining() > 0 {
                    let record = Record::read(&mut reader).unwrap();
                    seq += 1;
                    assert_eq!(record.seq, seq);
                    let Body::Write(write) = record.body else { panic!("a write") };
                    let data = write.data.unwrap();
                    assert_eq!((write.offset, write.length), (next, data.len() as u64));
                    assert!(data.iter().zip(next..).all(|(byte, at)| *byte == at.to_le_bytes()[0]));
                    next += write.length;
                }
            }
            assert_eq!((seq, next), (plan.last_seq(), at));
        }
    }
}
