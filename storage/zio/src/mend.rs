//! A block's journey to drives that lack it: read where it is whole, its checksum proved, and
//! written anew to those leaves that are to get their part, each copy and each piece of it.
//!
//! Proved by: `what_a_drive_missed_of_any_block_is_written_anew`.

use device::buffer;
use geometry::Block;
use ondisk::blkptr::Regular;
use ondisk::{Blkptr, Dva};
use units::{Place, Txg};
use vdev::{LeafFault, Outgoing, Wanting};

use crate::{Error, Reader};

/// Bytes of a gang header.
const HEADER: usize = 512;
/// A block of 16 MiB in the smallest of pieces, three to a header, is not deeper than this.
const DEEPEST: u32 = 12;

/// Blocks that are mended together.
pub struct Mending<'a> {
    reader: &'a Reader,
    wanting: Wanting<'a>,
    /// Copies to be written: the bytes of each are at the index.
    copies: Vec<(Dva, Txg, usize)>,
    blocks: Vec<Vec<u8>>,
}

impl<'a> Mending<'a> {
    /// `wanting` says which leaf is to get its part of a block of a txg.
    pub fn new(reader: &'a Reader, wanting: Wanting<'a>) -> Self {
        Self { reader, wanting, copies: Vec::new(), blocks: Vec::new() }
    }

    /// Reads a block if any leaf is to get a part of it. Gives how many bytes were read. An error
    /// where it cannot be read whole: then nothing of it is written.
    pub fn add(&mut self, block: &Regular, place: Place) -> Result<u64, Error> {
        self.add_deep(block, place, 0)
    }

    /// The same with a block, not in pieces, of which the stored bytes are known.
    pub fn give(&mut self, block: &Regular, stored: Vec<u8>) {
        // nothing is read, so nothing fails
        let _ = self.take(block, block.psize as usize, || Ok(stored));
    }

    fn add_deep(&mut self, block: &Regular, place: Place, depth: u32) -> Result<u64, Error> {
        let mut read = 0;
        if block.is_gang() && depth <= DEEPEST {
            let (bytes, header) = self.reader.gang_header_bytes(block, place)?;
            read += self.take(block, HEADER, || Ok(bytes))?;
            for piece in header.present() {
                if let Blkptr::Regular(piece) = piece {
                    read += self.add_deep(piece, place, depth + 1)?;
                }
            }
            return Ok(read);
        }
        let reader = self.reader;
        self.take(block, block.psize as usize, || reader.stored(block, place))
    }

    /// Takes in the copies of a block of so many bytes that are to be written.
    fn take(
        &mut self,
        block: &Regular,
        size: usize,
        read: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<u64, Error> {
        let (birth, index, before) = (block.birth_physical, self.blocks.len(), self.copies.len());
        for dva in block.copies() {
            let extent = Block { offset: dva.offset, size };
            if self.reader.tree().concerns(dva.vdev, extent, birth, self.wanting) {
                self.copies.push((dva, birth, index));
            }
        }
        if self.copies.len() == before {
            return Ok(0);
        }
        match read() {
            Ok(bytes) => {
                self.blocks.push(bytes);
                Ok(u64::try_from(size).unwrap_or(u64::MAX))
            }
            Err(error) => {
                self.copies.truncate(before);
                Err(error)
            }
        }
    }

    /// Writes what was read to the leaves that are to get it; gives how many bytes. Leaves that
    /// failed are added to `faults`.
    pub fn write(&mut self, faults: &mut Vec<LeafFault>) -> Result<u64, vdev::Error> {
        let blocks = std::mem::take(&mut self.blocks);
        let outgoing: Vec<Outgoing<'_>> = self
            .copies
            .drain(..)
            .map(|(dva, birth, index)| {
                let (vdev, offset, data) = (dva.vdev, dva.offset, &blocks[index][..]);
                Outgoing { vdev, offset, birth, data }
            })
            .collect();
        let written = self.reader.tree().mend(&outgoing, self.wanting, faults);
        drop(outgoing);
        blocks.into_iter().for_each(buffer::give);
        written
    }
}
