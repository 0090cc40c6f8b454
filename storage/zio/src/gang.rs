//! A block in pieces: where no free space was large enough, a header holds pointers to up to three
//! parts, each of which may be in pieces itself.
//!
//! A header's sum is sealed with the address of its first copy and its txg. That of a block of an
//! encrypted dataset is cut to half, as the one in the block's pointer is, and the other half is 0,
//! although headers hold no code; its parts are of no dataset, and so are the headers of those.
//!
//! Learnt from: OpenZFS 2.3.2's `zio_checksum.c`, and `zdb`, which reads no other.

use device::buffer;
use ondisk::blkptr::Regular;
use ondisk::gang::GangHeader;
use ondisk::{Blkptr, Checksum, Dva, Order};
use transform::checksum::embedded;
use units::Zbookmark;
use vdev::{LeafError, ReadRequest};

use crate::reader::Reader;

/// Bytes of a header.
const HEADER_SIZE: usize = 512;
/// A block of 16 MiB in the smallest of pieces, three to a header, is not deeper than this.
const MAX_DEPTH: u32 = 12;

/// A gang that is to be put together.
pub(crate) struct GangReader<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) zbookmark: Zbookmark,
    /// Whether every copy of each part is to be read.
    pub(crate) verify_all: bool,
    pub(crate) faults: &'a mut Vec<LeafError>,
    /// Where the pieces lie.
    pub(crate) pieces: &'a mut Vec<Dva>,
}

impl GangReader<'_> {
    /// Appends the content below the block's header at `dva` to `into`, which may grow to `limit` bytes.
    pub(crate) fn read(
        &mut self,
        dva: Dva,
        block: &Regular,
        limit: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), vdev::Error> {
        self.read_at_depth(dva, block, limit, into, 0)
    }

    fn read_at_depth(
        &mut self,
        dva: Dva,
        block: &Regular,
        limit: usize,
        into: &mut Vec<u8>,
        depth: u32,
    ) -> Result<(), vdev::Error> {
        if depth > MAX_DEPTH {
            return Err(vdev::Error::InvalidAddress("a gang block is too deep".to_owned()));
        }
        let (_, header) = self.read_header(dva, block)?;
        for part in header.present_pieces() {
            let Blkptr::Regular(part) = part else {
                return Err(vdev::Error::InvalidAddress(
                    "a part of a gang block is none".to_owned(),
                ));
            };
            let size = part.psize as usize;
            if self.verify_all {
                self.pieces.extend(part.copies());
            }
            if into.len() + size > limit {
                return Err(vdev::Error::InvalidAddress(
                    "a gang block's parts are too long".to_owned(),
                ));
            }
            if part.is_gang() {
                let end = into.len() + size;
                self.read_nested(part, end, into, depth)?;
                if into.len() != end {
                    return Err(vdev::Error::ChecksumMismatch);
                }
            } else {
                let bytes = self.read_part(part)?;
                into.extend_from_slice(&bytes);
                buffer::recycle(bytes);
            }
        }
        Ok(())
    }

    /// A part that is a gang itself, by whichever copy of its header can be read.
    fn read_nested(
        &mut self,
        part: &Regular,
        end: usize,
        into: &mut Vec<u8>,
        depth: u32,
    ) -> Result<(), vdev::Error> {
        let start = into.len();
        let mut result = Err(vdev::Error::ChecksumMismatch);
        for dva in part.copies() {
            into.truncate(start);
            result = self.read_at_depth(dva, part, end, into, depth + 1);
            if result.is_ok() && self.reader.is_valid(part, &into[start..]) {
                return Ok(());
            }
        }
        result.and(Err(vdev::Error::ChecksumMismatch))
    }

    fn read_part(&mut self, part: &Regular) -> Result<Vec<u8>, vdev::Error> {
        if self.verify_all {
            let examined = self.reader.verify_regular_block(part, self.zbookmark);
            self.faults.extend(examined.faults());
            return examined.bytes.ok_or(vdev::Error::ChecksumMismatch);
        }
        let mut bytes = buffer::alloc(part.psize as usize);
        let read = self.reader.read_copies(part, self.zbookmark, &mut bytes, self.faults);
        match read {
            Ok(()) => Ok(bytes),
            Err(copies) => {
                buffer::recycle(bytes);
                let first = copies.into_iter().next();
                Err(first.map_or(vdev::Error::ChecksumMismatch, |copy| copy.why))
            }
        }
    }

    /// The block's header at `dva`, its bytes too.
    pub(crate) fn read_header(
        &mut self,
        dva: Dva,
        block: &Regular,
    ) -> Result<(Vec<u8>, GangHeader), vdev::Error> {
        let seed = header_verifier(block);
        let half = block.has_half_sum();
        let judge = |bytes: &[u8]| embedded::verify(bytes, &seed, Checksum::GangHeader, half);
        let request = ReadRequest {
            offset: dva.offset,
            size: HEADER_SIZE,
            birth: block.birth_physical,
            is_valid: &judge,
            has_checksum: true,
            must_exist: true,
        };
        let mut bytes = vec![0; HEADER_SIZE];
        let tree = self.reader.tree();
        if self.verify_all {
            tree.verify_block(dva.vdev, &request, &mut bytes, self.faults)?;
        } else {
            tree.read(dva.vdev, &request, &mut bytes, self.faults)?;
        }
        let order = header_byte_order(&bytes);
        let header = GangHeader::parse(&bytes, order)
            .map_err(|error| vdev::Error::InvalidAddress(format!("gang header: {error}")))?;
        Ok((bytes, header))
    }
}

/// What ties a header to its place: the address of its first copy, and its txg.
pub(crate) fn header_verifier(block: &Regular) -> [u64; 4] {
    let (vdev, offset) = block.dvas[0].map_or((0, 0), |dva| (dva.vdev.get(), dva.offset));
    [vdev.into(), offset, block.birth_physical.get(), 0]
}

/// The byte order of a header, told by the magic number before its checksum.
fn header_byte_order(header: &[u8]) -> Order {
    const MAGIC: [u8; 8] = 0x0210_da7a_b10c_7a11_u64.to_be_bytes();
    match header.get(HEADER_SIZE - 40..HEADER_SIZE - 32) {
        Some(magic) if *magic == MAGIC => Order::Big,
        _ => Order::Little,
    }
}
