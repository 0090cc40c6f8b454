//! A block pointer's way back to its 128 bytes (drawn in the parent module).

use super::{Blkptr, Embedded, Hole, Protection, Regular};
use crate::Order;

const EMBEDDED: u64 = 1 << 39;
const REDACTED: u64 = 2 << 40;
const CRYPT: u64 = 1 << 61;
const DEDUP: u64 = 1 << 62;
const LITTLE_ENDIAN: u64 = 1 << 63;

impl Blkptr {
    /// The bytes as they stand in a little-endian block.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.words()) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// The words as they stand in a block of this machine's order.
    pub fn words(&self) -> [u64; 16] {
        match self {
            Self::Hole(hole) => hole_words(hole),
            Self::Redacted(hole) => {
                let mut words = hole_words(hole);
                words[6] |= EMBEDDED | REDACTED;
                words
            }
            Self::Regular(block) => regular_words(block),
            Self::Embedded(block) => embedded_words(block),
        }
    }
}

/// Bytes as sectors less one, as the format keeps sizes.
fn sectors(bytes: u32) -> u64 {
    u64::from((bytes >> 9).saturating_sub(1) & 0xffff)
}

fn flag(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

fn hole_words(hole: &Hole) -> [u64; 16] {
    let mut words = [0; 16];
    words[6] = sectors(hole.lsize)
        | (u64::from(hole.kind.0) << 48)
        | (u64::from(hole.level.get() & 0x1f) << 56);
    words[10] = hole.birth.get();
    words
}

fn regular_words(block: &Regular) -> [u64; 16] {
    for size in [block.lsize, block.psize] {
        // the mask would cut the size, and the block could not be read
        assert!(size.is_multiple_of(512) && size >> 9 <= 1 << 16, "a block has {size} bytes");
    }
    let mut words = [0; 16];
    let pairs = words.as_chunks_mut::<2>().0;
    for (pair, dva) in pairs.iter_mut().zip(block.dvas) {
        *pair = dva.map_or([0; 2], super::Dva::to_words);
    }
    words[6] = sectors(block.lsize)
        | (sectors(block.psize) << 16)
        | (u64::from(block.compression.number()) << 32)
        | (u64::from(block.checksum.number()) << 40)
        | (u64::from(block.kind.0) << 48)
        | (u64::from(block.level.get() & 0x1f) << 56)
        | flag(block.protection != Protection::None, CRYPT)
        | flag(block.dedup, DEDUP)
        | flag(block.order == Order::Little, LITTLE_ENDIAN);
    if block.birth_physical != block.birth {
        words[9] = block.birth_physical.get();
    }
    words[10] = block.birth.get();
    words[11] = block.fill;
    [words[12], words[13], words[14], words[15]] = block.sum;
    write_protection(&mut words, block);
    words
}

/// Stores salt, nonce and MAC in the fields of an encrypted dataset's block pointer.
fn write_protection(words: &mut [u64; 16], block: &Regular) {
    let order = block.order;
    match block.protection {
        Protection::None | Protection::Objset => {}
        Protection::Authenticated { mac } | Protection::Indirect { mac } => {
            [words[14], words[15]] = mac_words(mac, order);
        }
        Protection::Encrypted { salt, iv, mac } => {
            assert!(block.fill >> 32 == 0, "the fill {} has space beside the nonce", block.fill);
            let [a, b, c, d, e, f, g, h, rest @ ..] = iv;
            words[4] = word_from_bytes(salt, order);
            words[5] = word_from_bytes([a, b, c, d, e, f, g, h], order);
            let rest = match order {
                Order::Little => u32::from_le_bytes(rest),
                Order::Big => u32::from_be_bytes(rest),
            };
            words[11] = (block.fill & u64::from(u32::MAX)) | (u64::from(rest) << 32);
            [words[14], words[15]] = mac_words(mac, order);
        }
    }
}

fn embedded_words(block: &Embedded) -> [u64; 16] {
    let length = block.payload.len();
    assert!(length <= Blkptr::PAYLOAD, "a pointer holds a payload of {length} bytes");
    let mut payload = [0; Blkptr::PAYLOAD];
    payload.iter_mut().zip(&block.payload).for_each(|(to, from)| *to = *from);
    let mut payload = payload.as_chunks().0.iter();
    let mut words: [u64; 16] = std::array::from_fn(|index| match index {
        6 | 10 => 0,
        _ => payload.next().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
    });
    let psize = units::to_u64(block.payload.len()).saturating_sub(1);
    words[6] = (u64::from(block.lsize).saturating_sub(1) & 0x01ff_ffff)
        | ((psize & 0x7f) << 25)
        | (u64::from(block.compression.number()) << 32)
        | EMBEDDED
        | (u64::from(block.kind.0) << 48)
        | (u64::from(block.level.get() & 0x1f) << 56)
        | flag(block.order == Order::Little, LITTLE_ENDIAN);
    words[10] = block.birth.get();
    words
}

/// The two words of a code.
fn mac_words(mac: [u8; 16], order: Order) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = mac;
    [word_from_bytes([a, b, c, d, e, f, g, h], order), word_from_bytes(rest, order)]
}

/// Bytes as a machine of that order takes them for a word.
const fn word_from_bytes(bytes: [u8; 8], order: Order) -> u64 {
    match order {
        Order::Little => u64::from_le_bytes(bytes),
        Order::Big => u64::from_be_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::Blkptr;
    use crate::Order;

    proptest::proptest! {
        /// A parsed pointer encodes to the bytes that it was parsed from.
        #[test]
        fn any_pointer_survives_its_bytes(mut bytes: [u8; 128], shape in 0_u8..4) {
            match shape {
                // data within the pointer
                0 => { bytes[53] = 0; bytes[52] = 0x80 | 15; }
                1 => bytes[..16].fill(0),
                2 => { bytes[52] = 15; bytes[53] = 7; }
                _ => { bytes[52] = 15; bytes[53] = 7; bytes[54] = 19; bytes[55] |= 0x20; }
            }
            for order in [Order::Little, Order::Big] {
                if let Ok(pointer) = Blkptr::parse(&bytes, order) {
                    let again = Blkptr::parse(&pointer.encode(), Order::Little).unwrap();
                    proptest::prop_assert_eq!(again, pointer);
                }
            }
        }
    }
}
