//! Gang header: a block without contiguous space is the concatenation of the blocks named here.
//!
//! ```text
//! offset  size  field      meaning
//!      0   384  blkptr[3]  the pieces, in order; unused ones are holes; one may be a gang again
//!    384    88  pad        0
//!    472     8  magic      0x0210da7ab10c7a11, in the order of its writer
//!    480    32  checksum   seeded with the header's own address and txg
//!    512
//! ```
//!
//! Must hold: the sizes of the pieces sum to the size of the block.
//!
//! Learnt from: the `gang` fixture. Proved by: `golden_gang_header`.

use crate::writer::FixedWriter;
use crate::{Blkptr, Order, Reader, Result};

/// The head of a block in pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GangHeader {
    /// The pieces; holes where there are fewer.
    pub pieces: [Blkptr; 3],
}

/// The magic number in front of a checksum that stands within its block.
pub const EMBEDDED_CHECKSUM_MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Bytes of magic and checksum at the end of a block that has its checksum within.
pub const EMBEDDED_CHECKSUM_SIZE: usize = 40;

impl GangHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 512;

    /// Reads the header; its checksum is the reader's of the block to check.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("gang header", bytes, order);
        let header = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(header)
    }

    /// Reads the header from a cursor.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let pieces = [Blkptr::read(reader)?, Blkptr::read(reader)?, Blkptr::read(reader)?];
        reader.skip(88)?;
        let magic = reader.u64()?;
        if magic != EMBEDDED_CHECKSUM_MAGIC {
            return Err(reader.corrupt_field(8, "the magic number is there", magic));
        }
        reader.skip(32)?;
        Ok(Self { pieces })
    }

    /// The header's bytes, with no checksum yet: that is sealed where the address is known.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut room = FixedWriter::new(&mut bytes);
        for piece in &self.pieces {
            room.bytes(&piece.encode());
        }
        room.zeros(88).u64(EMBEDDED_CHECKSUM_MAGIC).zeros(32);
        bytes
    }

    /// The pieces that are there.
    pub fn present_pieces(&self) -> impl Iterator<Item = &Blkptr> {
        self.pieces.iter().filter(|piece| !piece.is_hole())
    }
}

#[cfg(test)]
mod tests {
    use super::{EMBEDDED_CHECKSUM_MAGIC, GangHeader};
    use crate::Order;

    #[test]
    fn gang_header_requires_its_magic() {
        let mut bytes = vec![0; 512];
        bytes[0] = 1;
        bytes[128..136].copy_from_slice(&2_u64.to_le_bytes());
        assert!(GangHeader::parse(&bytes, Order::Little).is_err());
        bytes[472..480].copy_from_slice(&EMBEDDED_CHECKSUM_MAGIC.to_le_bytes());
        assert_eq!(GangHeader::parse(&bytes, Order::Little).unwrap().present_pieces().count(), 2);
        assert!(GangHeader::parse(&bytes, Order::Big).is_err());
        assert!(GangHeader::parse(&bytes[..511], Order::Little).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = GangHeader::parse(&bytes, Order::Big);
        }
    }
}
