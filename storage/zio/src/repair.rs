//! A block's journey to drives that lack it: read where it is whole, its checksum proved, and
//! written anew to those leaves that are to get their part, each copy and each piece of it.
//!
//! Proved by: `missed_parts_of_any_block_are_repaired`.

use device::buffer;
use geometry::Block;
use ondisk::blkptr::Regular;
use ondisk::{Blkptr, Dva};
use units::{Txg, Zbookmark};
use vdev::{BlockWrite, LeafError, RepairFilter};

use crate::{Error, Reader};

/// Bytes of a gang header.
const HEADER_SIZE: usize = 512;
/// A block of 16 MiB in the smallest of pieces, three to a header, is not deeper than this.
const MAX_DEPTH: u32 = 12;

/// Blocks that are mended together.
pub struct BlockRepair<'a> {
    reader: &'a Reader,
    filter: RepairFilter<'a>,
    /// Copies to be written: the bytes of each are at the index.
    copies: Vec<(Dva, Txg, usize)>,
    block_data: Vec<Vec<u8>>,
}

impl<'a> BlockRepair<'a> {
    /// `wanting` says which leaf is to get its part of a block of a txg.
    pub fn new(reader: &'a Reader, filter: RepairFilter<'a>) -> Self {
        Self { reader, filter, copies: Vec::new(), block_data: Vec::new() }
    }

    /// Reads a block if any leaf is to get a part of it. Gives how many bytes were read. An error
    /// where it cannot be read whole: then nothing of it is written.
    pub fn add(&mut self, block: &Regular, zbookmark: Zbookmark) -> Result<u64, Error> {
        self.add_at_depth(block, zbookmark, 0)
    }

    /// The same with a block, not in pieces, of which the stored bytes are known.
    pub fn add_with_data(&mut self, block: &Regular, stored: Vec<u8>) {
        // nothing is read, so nothing fails
        let _ = self.queue_copies(block, block.psize as usize, || Ok(stored));
    }

    fn add_at_depth(
        &mut self,
        block: &Regular,
        zbookmark: Zbookmark,
        depth: u32,
    ) -> Result<u64, Error> {
        let mut read = 0;
        if block.is_gang() && depth <= MAX_DEPTH {
            let (bytes, header) = self.reader.gang_header_bytes(block, zbookmark)?;
            read += self.queue_copies(block, HEADER_SIZE, || Ok(bytes))?;
            for piece in header.present_pieces() {
                if let Blkptr::Regular(piece) = piece {
                    read += self.add_at_depth(piece, zbookmark, depth + 1)?;
                }
            }
            return Ok(read);
        }
        let reader = self.reader;
        self.queue_copies(block, block.psize as usize, || reader.read_stored(block, zbookmark))
    }

    /// Takes in the copies of a block of so many bytes that are to be written.
    fn queue_copies(
        &mut self,
        block: &Regular,
        size: usize,
        read: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<u64, Error> {
        let (birth, index, before) =
            (block.birth_physical, self.block_data.len(), self.copies.len());
        for dva in block.copies() {
            let extent = Block { offset: dva.offset, size };
            if self.reader.tree().needs_repair(dva.vdev, extent, birth, self.filter) {
                self.copies.push((dva, birth, index));
            }
        }
        if self.copies.len() == before {
            return Ok(0);
        }
        match read() {
            Ok(bytes) => {
                assert_eq!(bytes.len(), size, "a repair writes the whole block");
                self.block_data.push(bytes);
                Ok(units::to_u64(size))
            }
            Err(error) => {
                self.copies.truncate(before);
                Err(error)
            }
        }
    }

    /// Writes what was read to the leaves that are to get it; gives how many bytes. Leaves that
    /// failed are added to `faults`.
    pub fn write_repairs(&mut self, faults: &mut Vec<LeafError>) -> Result<u64, vdev::Error> {
        let blocks = std::mem::take(&mut self.block_data);
        let outgoing: Vec<BlockWrite<'_>> = self
            .copies
            .drain(..)
            .map(|(dva, birth, index)| {
                let (vdev, offset, data) = (dva.vdev, dva.offset, &blocks[index][..]);
                BlockWrite { vdev, offset, birth, data }
            })
            .collect();
        let written = self.reader.tree().repair_blocks(&outgoing, self.filter, faults);
        drop(outgoing);
        blocks.into_iter().for_each(buffer::recycle);
        written
    }
}
