//! Which record goes into which log block.

use ondisk::Order;
use ondisk::zil::{Body, Chain, Record, Write};
use units::Txg;

use crate::pending::Item;

/// The smallest log block, and what their sizes are multiples of.
pub(crate) const SMALLEST: u32 = 4096;
/// The largest.
pub(crate) const LARGEST: u32 = 128 << 10;
/// Bytes of a write's record before its data.
const WRITE_HEADER: usize = 192;
/// A write is not cut for less room than this.
const LEAST: usize = 1024;

/// The records of one block.
#[derive(Default)]
pub(crate) struct Filled {
    /// One after the other.
    pub(crate) records: Vec<u8>,
    /// The last txg that one of them belongs to.
    pub(crate) newest: Txg,
}

/// Fills blocks, of which the first is as large as it is and the others as large as they need be.
pub(crate) struct Plan {
    pub(crate) blocks: Vec<Filled>,
    /// Room in the block that is being filled.
    room: usize,
    seq: u64,
}

impl Plan {
    /// `first` is the size of the block that is there; `seq` the number of the last record.
    pub(crate) fn new(first: u32, seq: u64) -> Self {
        Self { blocks: vec![Filled::default()], room: room(first), seq }
    }

    /// The number of the last record.
    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn add(&mut self, txg: Txg, item: Item) {
        let Item { body, fold_case, .. } = item;
        match body {
            Body::Write(write) if write.data.is_some() => self.add_write(txg, *write),
            body => self.put(txg, fold_case, body),
        }
    }

    /// A write may be cut: into what is left of this block, and the next ones.
    fn add_write(&mut self, txg: Txg, write: Write) {
        let Write { object, offset, length, pointer, data } = write;
        let data = data.unwrap_or_default();
        if data.is_empty() || data.len() as u64 != length {
            return;
        }
        let (mut rest, mut offset) = (&data[..], offset);
        while !rest.is_empty() {
            let here = self.left().saturating_sub(WRITE_HEADER);
            let whole = rest.len().next_multiple_of(8);
            let count = match here {
                here if whole <= here => rest.len(),
                // multiples of 8, so that no part is longer than its record
                here if here >= LEAST => here & !7,
                _ => {
                    self.next_block();
                    continue;
                }
            };
            let (now, later) = rest.split_at(count);
            let (length, data) = (now.len() as u64, Some(now.to_vec()));
            let part = Write { object, offset, length, pointer: pointer.clone(), data };
            self.put(txg, false, Body::Write(Box::new(part)));
            offset += length;
            rest = later;
        }
    }

    fn put(&mut self, txg: Txg, fold_case: bool, body: Body) {
        self.seq += 1;
        let record = Record { txg, seq: self.seq, fold_case, order: Order::Little, body };
        let bytes = record.encode();
        if bytes.len() > self.left() {
            self.next_block();
        }
        assert!(bytes.len() <= self.left(), "a record fits the largest of log blocks");
        if let Some(block) = self.blocks.last_mut() {
            block.records.extend_from_slice(&bytes);
            block.newest = block.newest.max(txg);
        }
    }

    fn left(&self) -> usize {
        self.blocks.last().map_or(0, |block| self.room - block.records.len())
    }

    fn next_block(&mut self) {
        self.blocks.push(Filled::default());
        self.room = room(LARGEST);
    }
}

/// Bytes for records in a block of so many bytes.
pub(crate) const fn room(size: u32) -> usize {
    size as usize - Chain::SIZE
}

/// How large a block for so many bytes of records must be.
pub(crate) fn size_for(records: usize) -> u32 {
    let size = u32::try_from(records + Chain::SIZE).unwrap_or(LARGEST);
    size.next_multiple_of(SMALLEST).min(LARGEST)
}

#[cfg(test)]
mod tests {
    use ondisk::zil::{Body, Record, Write};
    use ondisk::{Blkptr, Order, Reader};
    use units::{ObjectId, Txg};

    use super::{LARGEST, Plan, SMALLEST, room, size_for};
    use crate::pending::Item;

    fn write(offset: u64, length: usize) -> Item {
        let object = ObjectId::new(7);
        let data = Some((offset..).take(length).map(|at| at.to_le_bytes()[0]).collect());
        let (length, pointer) = (length as u64, Blkptr::EMPTY);
        Item::of_object(Body::Write(Box::new(Write { object, offset, length, pointer, data })))
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_by_cutting(
            lengths in proptest::collection::vec(1_usize..300_000, 1..6), first in 1_u32..33,
        ) {
            let mut plan = Plan::new(first * SMALLEST, 10);
            let mut at = 0;
            for length in &lengths {
                plan.add(Txg::new(5), write(at, *length));
                at += *length as u64;
            }
            let (mut seq, mut next) = (10, 0_u64);
            for (index, block) in plan.blocks.iter().enumerate() {
                let size = if index == 0 { first * SMALLEST } else { size_for(block.records.len()) };
                assert!(size <= LARGEST && block.records.len() <= room(size));
                let mut reader = Reader::new("test", &block.records, Order::Little);
                while reader.left() > 0 {
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
            assert_eq!((seq, next), (plan.seq(), at));
        }
    }
}
