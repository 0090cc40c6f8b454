//! Writing blocks in pieces, writing them again, and freeing them.

use metaslab::AllocRequest;
use ondisk::blkptr::{Protection, Regular};
use ondisk::gang::GangHeader;
use ondisk::{Blkptr, Checksum, Compression, Dva, ObjectType, Order};
use transform::checksum::embedded;
use units::{Level, Txg, Zbookmark};

use crate::Error;
use crate::gang::header_verifier;
use crate::writer::{MIN_BLOCK_SIZE, Writer};

/// Pieces that a header has room for.
const PIECES_PER_HEADER: u64 = 3;
/// A block of 16 MiB in sectors, three to a header, is less deep than this.
pub(crate) const MAX_DEPTH: u32 = 12;

impl Writer {
    /// Writes a block for which there is no place in one piece: a header, and what it names. All
    /// that is allocated is added to `taken`.
    pub(crate) fn write_gang(
        &self,
        want: &AllocRequest,
        block: &mut Regular,
        bytes: &[u8],
        zbookmark: Zbookmark,
        taken: &mut Vec<Dva>,
    ) -> Result<(), Error> {
        self.write_gang_at_depth(want, block, bytes, zbookmark, taken, 0)
    }

    fn write_gang_at_depth(
        &self,
        want: &AllocRequest,
        block: &mut Regular,
        bytes: &[u8],
        place: Zbookmark,
        taken: &mut Vec<Dva>,
        depth: u32,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::NoSpace { zbookmark: place, psize: want.psize });
        }
        // a header names much, so there are two of it even where one copy is wanted
        let headers = AllocRequest { psize: MIN_BLOCK_SIZE, copies: want.copies.max(2), ..*want };
        block.dvas = self.allocate(&headers, place)?;
        taken.extend(block.copies());
        for dva in block.dvas.iter_mut().flatten() {
            dva.gang = true;
        }
        let mut header = GangHeader { pieces: [Blkptr::EMPTY, Blkptr::EMPTY, Blkptr::EMPTY] };
        let mut rest = bytes;
        for (index, slot) in (0..PIECES_PER_HEADER).zip(&mut header.pieces) {
            let share =
                (rest.len() as u64 / (PIECES_PER_HEADER - index)).next_multiple_of(MIN_BLOCK_SIZE);
            let (now, later) = rest.split_at(rest.len().min(units::to_usize(share)));
            rest = later;
            if now.is_empty() {
                continue;
            }
            let piece = self.write_piece(want, block.checksum, now, place, taken, depth)?;
            add_piece_asize(block, &piece);
            *slot = Blkptr::Regular(Box::new(piece));
        }
        assert!(rest.is_empty(), "the pieces of a gang are the whole block");
        // Rule W2: the header comes after its pieces, and the pointer to the header after both. All are
        // flushed before the uberblock of the txg.
        self.write_header(block, &header, place)
    }

    fn write_piece(
        &self,
        want: &AllocRequest,
        method: Checksum,
        bytes: &[u8],
        place: Zbookmark,
        taken: &mut Vec<Dva>,
        depth: u32,
    ) -> Result<Regular, Error> {
        assert!(
            units::to_u64(bytes.len()).is_multiple_of(MIN_BLOCK_SIZE),
            "a piece is of whole sectors"
        );
        let mut piece = new_piece(bytes.len(), method, want.txg);
        let failed = |why| Error::Transform { zbookmark: place, why };
        piece.sum = self.checksum(&piece, bytes).map_err(failed)?;
        let want = AllocRequest { psize: bytes.len() as u64, ..*want };
        match self.allocate(&want, place) {
            Ok(dvas) => {
                taken.extend(dvas.iter().flatten());
                piece.dvas = dvas;
                self.write_copies(&piece, bytes, place)?;
            }
            Err(Error::NoSpace { .. }) if want.psize > MIN_BLOCK_SIZE => {
                self.write_gang_at_depth(&want, &mut piece, bytes, place, taken, depth + 1)?;
            }
            Err(error) => return Err(error),
        }
        Ok(piece)
    }

    fn write_header(
        &self,
        block: &Regular,
        header: &GangHeader,
        zbookmark: Zbookmark,
    ) -> Result<(), Error> {
        let mut bytes = header.encode();
        let (seed, half) = (header_verifier(block), block.has_half_sum());
        let sealed = embedded::seal(&mut bytes, &seed, Checksum::GangHeader, half);
        assert!(sealed.is_some(), "a header has room for its seal");
        self.write_copies(block, &bytes, zbookmark)
    }

    /// Writes a block where its predecessor of the same txg lies, which is as long.
    pub(crate) fn rewrite_in_place(
        &self,
        old: &Regular,
        block: &mut Regular,
        bytes: &[u8],
        place: Zbookmark,
    ) -> Result<(), Error> {
        // Rule W1: only a block of the txg that is written is overwritten. No uberblock leads to it before.
        assert_eq!(
            old.birth_physical, block.birth_physical,
            "a block of the same txg is rewritten"
        );
        assert_eq!(old.psize, block.psize, "a block is rewritten in the space that it has");
        block.dvas = old.dvas;
        if !block.is_gang() {
            return self.write_copies(block, bytes, place);
        }
        let mut header = self.read_gang_header(old, place)?;
        let mut rest = bytes;
        for piece in &mut header.pieces {
            let Blkptr::Regular(piece) = piece else { continue };
            let size = rest.len().min(piece.psize as usize);
            let (now, later) = rest.split_at(size);
            rest = later;
            let old = piece.clone();
            piece.checksum = block.checksum;
            piece.sum = self
                .checksum(piece, now)
                .map_err(|error| Error::Transform { zbookmark: place, why: error })?;
            self.rewrite_in_place(&old, piece, now, place)?;
        }
        self.write_header(block, &header, place)
    }

    /// Frees the copies of a block that is wanted no more, and the pieces that it consists of.
    pub fn free_copies(&self, block: &Regular, txg: Txg) {
        self.free_copies_at_depth(block, txg, 0);
    }

    fn free_copies_at_depth(&self, block: &Regular, txg: Txg, depth: u32) {
        let zbookmark = Zbookmark::default();
        if block.is_gang() && depth <= MAX_DEPTH {
            match self.read_gang_header(block, zbookmark) {
                Ok(header) => header.present_pieces().for_each(|piece| {
                    if let Blkptr::Regular(piece) = piece {
                        self.free_copies_at_depth(piece, txg, depth + 1);
                    }
                }),
                Err(error) => self.push_leak(error),
            }
        }
        for dva in block.copies() {
            let freed = self.allocator().free_block(&dva, block.birth_physical, txg);
            self.record_leak(zbookmark, freed);
        }
    }

    /// The header of a gang, from the first copy that can be read.
    fn read_gang_header(&self, block: &Regular, zbookmark: Zbookmark) -> Result<GangHeader, Error> {
        self.reader().gang_header(block, zbookmark)
    }
}

/// What a piece takes is charged to the address of its header.
fn add_piece_asize(block: &mut Regular, piece: &Regular) {
    for (whole, part) in block.dvas.iter_mut().zip(piece.dvas) {
        if let (Some(whole), Some(part)) = (whole, part) {
            whole.asize += part.asize;
        }
    }
}

/// A piece is of no kind and belongs to no object.
fn new_piece(psize: usize, checksum: Checksum, txg: Txg) -> Regular {
    let size = units::narrow::<u32>(psize);
    Regular {
        dvas: [None; 3],
        lsize: size,
        psize: size,
        compression: Compression::Off,
        checksum,
        kind: ObjectType::NONE,
        level: Level::new(0),
        dedup: false,
        order: Order::Little,
        birth: txg,
        birth_physical: txg,
        fill: 0,
        sum: [0; 4],
        protection: Protection::None,
    }
}

#[cfg(test)]
mod tests {
    use metaslab::{AllocRequest, Class};
    use ondisk::blkptr::Protection;
    use ondisk::gang::GangHeader;
    use ondisk::{Blkptr, Checksum};
    use units::{Ashift, Txg, Zbookmark};

    use super::new_piece;
    use crate::memory::MemoryVdevs;

    /// Zeros stand where a pointer has the code; the fixture `gang-encrypted` has such of OpenZFS.
    #[test]
    fn of_headers_of_what_is_encrypted_half_of_the_sum_is_kept() {
        let writer = MemoryVdevs::new(
            1,
            MemoryVdevs::device_size(8 << 20),
            Ashift::new(9).expect("a sector"),
        )
        .writer();
        let want = AllocRequest {
            psize: 512,
            copies: 2,
            class: Class::Normal,
            txg: Txg::new(9),
            preferred_vdev: None,
            avoided_vdev: None,
        };
        let mac = [0x5a; 16];
        for (protection, half) in [
            (Protection::None, false),
            (Protection::Objset, false),
            (Protection::Encrypted { salt: [1; 8], iv: [2; 12], mac }, true),
            (Protection::Authenticated { mac }, true),
            (Protection::Indirect { mac }, true),
        ] {
            let mut block = new_piece(512, Checksum::Fletcher4, want.txg);
            block.protection = protection;
            block.dvas = writer.allocate(&want, Zbookmark::default()).expect("room");
            let header = GangHeader { pieces: [Blkptr::EMPTY, Blkptr::EMPTY, Blkptr::EMPTY] };
            writer.write_header(&block, &header, Zbookmark::default()).expect("it is written");
            let (bytes, _) = writer
                .reader()
                .gang_header_bytes(&block, Zbookmark::default())
                .expect("it is read as it was written");
            assert_ne!(bytes[480..496], [0; 16], "{:?}", block.protection);
            assert_eq!(bytes[496..] == [0; 16], half, "{:?}", block.protection);
        }
    }
}
