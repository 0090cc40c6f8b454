//! The hash of a name: the CRC-64 of ECMA-182, reflected, begun with the table's salt.
//!
//! Only the first 28 bits count (48 in a table with 64-bit hashes), so that a hash and the number
//! that tells equal ones apart fit one word of a directory cookie. A name's NUL is not hashed. A
//! binary key's words are hashed from their least significant byte up, on every machine; where the
//! key is random already, its first word is the hash.
//!
//! Learnt from: zap_micro.c. Proved by: the real leaves in the tests of zap, whose entries say their hash.

use super::fat::Flags;

/// The polynomial, reflected.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

static TABLE: [u64; 256] = table();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated at compile time: a fault would be a compile error"
)]
const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ ((crc & 1).wrapping_neg() & POLYNOMIAL);
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

fn step(crc: u64, byte: u8) -> u64 {
    let low = crc.to_le_bytes()[0] ^ byte;
    (crc >> 8) ^ TABLE.get(usize::from(low)).copied().unwrap_or(0)
}

/// The hash of a name of bytes, without its NUL, and normalized if the table wants it.
pub fn hash_name(salt: u64, flags: Flags, name: &[u8]) -> u64 {
    flags.hash_mask() & name.iter().fold(salt, |crc, byte| step(crc, *byte))
}

/// The hash of a key of 64-bit words.
pub fn hash_words(salt: u64, flags: Flags, words: &[u64]) -> u64 {
    let hash = if flags.pre_hashed() {
        words.first().copied().unwrap_or(0)
    } else {
        words.iter().flat_map(|word| word.to_le_bytes()).fold(salt, step)
    };
    flags.hash_mask() & hash
}

/// The place in a table of 2^`shift` that a hash leads to.
pub const fn index(hash: u64, shift: u32) -> u64 {
    match shift {
        0 => 0,
        64.. => hash,
        _ => hash >> (64_u32.wrapping_sub(shift)),
    }
}

#[cfg(test)]
mod tests {
    use super::{hash_name, hash_words, index};
    use crate::zap::fat::Flags;

    #[test]
    fn crc_matches_the_published_value() {
        // CRC-64/XZ of "123456789", which begins with and inverts all ones
        let all = Flags(1);
        let crc = "123456789".bytes().fold(u64::MAX, super::step);
        assert_eq!(!crc, 0x995d_c9bb_df19_39fa);
        assert_eq!(hash_name(u64::MAX, all, b"123456789"), crc & !0xffff);
        assert_eq!(hash_name(u64::MAX, Flags(0), b"123456789"), crc >> 36 << 36);
    }

    #[test]
    fn words_are_hashed_from_their_low_end() {
        let bytes = [8, 7, 6, 5, 4, 3, 2, 1];
        let (salt, flags) = (0x1234_5678_9abc_def1, Flags(0));
        assert_eq!(
            hash_words(salt, flags, &[0x0102_0304_0506_0708]),
            hash_name(salt, flags, &bytes)
        );
        assert_eq!(hash_words(salt, Flags(7), &[0x0102_0304_0506_0708, 5]), 0x0102_0304_0506_0000);
        assert_eq!(hash_words(salt, Flags(7), &[]), 0);
    }

    #[test]
    fn an_index_is_the_first_bits() {
        assert_eq!(index(u64::MAX, 0), 0);
        assert_eq!(index(0xf000_0000_0000_0000, 3), 7);
        assert_eq!(index(7, 64), 7);
    }
}
