//! Blocks of machines of the other byte order, turned into little-endian ones.
//!
//! Each block pointer records the byte order of its block. OpenZFS swaps a block by the type of its
//! object when it reads it, and writes all blocks in its own order. So a pool that was moved
//! between machines has blocks of both orders. Content that records its own order (system
//! attributes, packed lists, names and values in tables) and the data of files are not swapped.
//!
//! Learnt from: pools of OpenZFS's tests that sparc machines wrote. Proved by: the tests of these pools.

use crate::dnode::Dnode;
use crate::object_type::{Content, ObjectType};
use crate::znode::Znode;
use crate::{Blkptr, acl};

/// Turns a big-endian block of an object, or an indirect block of it, into a little-endian one.
pub fn to_little(kind: ObjectType, level: u8, bytes: &mut [u8]) {
    match (level, kind.content()) {
        (1.., _) => swap_words(bytes, 8),
        (0, Content::Dnodes) => swap_dnodes(bytes),
        (0, content) => swap_content(content, bytes),
    }
}

fn swap_content(content: Content, bytes: &mut [u8]) {
    match content {
        // a root block is parsed in the order in which it stands
        Content::Bytes | Content::Dnodes | Content::Objset => {}
        Content::Words16 => swap_words(bytes, 2),
        Content::Words32 => swap_words(bytes, 4),
        Content::Words64 => swap_words(bytes, 8),
        Content::Zap => swap_zap(bytes),
        Content::Znode => swap_znode(bytes),
        Content::OldAcl => swap_old_acl(bytes),
        Content::Acl => swap_new_acl(bytes),
    }
}

/// Turns numbers of `size` bytes each.
fn swap_words(bytes: &mut [u8], size: usize) {
    bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
}

/// Turns one number.
fn swap_word(bytes: &mut [u8], at: usize, size: usize) {
    if let Some(word) = at.checked_add(size).and_then(|end| bytes.get_mut(at..end)) {
        word.reverse();
    }
}

/// A dnode's fields, its pointers, its bonus by the bonus's type, and the spill pointer at its end.
fn swap_dnodes(bytes: &mut [u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let slots = usize::from(Dnode::peek_slots(rest).unwrap_or(1));
        let size = slots.saturating_mul(Dnode::SLOT).clamp(1, rest.len());
        let is_used = rest.first().is_some_and(|kind| *kind != 0);
        let (one, after) = rest.split_at_mut(size);
        if is_used {
            swap_dnode(one);
        }
        rest = after;
    }
}

fn swap_dnode(bytes: &mut [u8]) {
    const POINTERS: usize = 64;
    const SPILL: u8 = 4;
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let (pointers, kind, has_spill) = (byte(3), ObjectType(byte(4)), byte(7) & SPILL != 0);
    for (at, size) in [(8, 2), (10, 2), (16, 8), (24, 8)] {
        swap_word(bytes, at, size);
    }
    let length =
        bytes.get(10..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_le_bytes);
    let bonus = POINTERS.saturating_add(usize::from(pointers).saturating_mul(Blkptr::SIZE));
    if let Some(pointers) = bytes.get_mut(POINTERS..bonus.min(bytes.len())) {
        swap_words(pointers, 8);
    }
    let spill = bytes.len().saturating_sub(if has_spill { Blkptr::SIZE } else { 0 });
    if let Some(spill) = bytes.get_mut(spill..) {
        swap_words(spill, 8);
    }
    let end = bonus.saturating_add(length.into()).min(spill);
    if let Some(bonus) = bytes.get_mut(bonus..end) {
        swap_content(kind.content(), bonus);
    }
}

/// A legacy znode: numbers, and an ACL; the bytes after it are not swapped.
fn swap_znode(bytes: &mut [u8]) {
    const PADDING: usize = 152;
    const ACL: usize = 176;
    const ENTRIES: usize = ACL + 16;
    if let Some(numbers) = bytes.get_mut(..PADDING) {
        swap_words(numbers, 8);
    }
    for (at, size) in [(ACL, 8), (ACL + 8, 4), (ACL + 12, 2), (ACL + 14, 2)] {
        swap_word(bytes, at, size);
    }
    let is_old = bytes.get(ACL + 12..ACL + 14) == Some(&[0, 0]);
    if let Some(entries) = bytes.get_mut(ENTRIES..Znode::SIZE) {
        if is_old { swap_old_acl(entries) } else { swap_new_acl(entries) }
    }
}

/// Entries of 12 bytes: subject, mask, flags, kind.
fn swap_old_acl(bytes: &mut [u8]) {
    for entry in bytes.chunks_exact_mut(12) {
        for (at, size) in [(0, 4), (4, 4), (8, 2), (10, 2)] {
            swap_word(entry, at, size);
        }
    }
}

fn swap_new_acl(bytes: &mut [u8]) {
    let turned = acl::to_little(bytes);
    for (to, from) in bytes.iter_mut().zip(turned) {
        *to = from;
    }
}

/// A table: a micro ZAP, or a block of a fat one, whose first word tells the kind.
fn swap_zap(bytes: &mut [u8]) {
    const LEAF: u64 = 1 << 63;
    const MICRO: u64 = LEAF + 3;
    let kind = bytes.first_chunk().copied().map(u64::from_be_bytes);
    match kind {
        Some(MICRO) => swap_micro_zap(bytes),
        Some(LEAF) => swap_zap_leaf(bytes),
        // the head with its pointers, or a block of nothing but these
        _ => swap_words(bytes, 8),
    }
}

fn swap_micro_zap(bytes: &mut [u8]) {
    for at in [0, 8, 16] {
        swap_word(bytes, at, 8);
    }
    for entry in bytes.chunks_exact_mut(64).skip(1) {
        swap_word(entry, 0, 8);
        swap_word(entry, 8, 4);
    }
}

fn swap_zap_leaf(bytes: &mut [u8]) {
    const HEAD: usize = 48;
    const CHUNK: usize = 24;
    const ENTRY: u8 = 252;
    for (at, size) in [(0, 8), (8, 8), (16, 8), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2)] {
        swap_word(bytes, at, size);
    }
    // two bytes of the hash table for each 32 bytes of the block
    let chunks = HEAD.saturating_add(bytes.len() / 16);
    if let Some(hashes) = bytes.get_mut(HEAD..chunks) {
        swap_words(hashes, 2);
    }
    for chunk in bytes.get_mut(chunks..).unwrap_or_default().chunks_exact_mut(CHUNK) {
        let fields: &[(usize, usize)] = match chunk.first() {
            Some(&ENTRY) => &[(2, 2), (4, 2), (6, 2), (8, 2), (12, 4), (16, 8)],
            // a free chunk's next, or that of a name or value, whose bytes are big-endian in every pool
            _ => &[(22, 2)],
        };
        for (at, size) in fields {
            swap_word(chunk, *at, *size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::to_little;
    use crate::dnode::Dnode;
    use crate::object_type::ObjectType;
    use crate::zap::micro::Micro;
    use crate::{Order, Reader};

    #[test]
    fn swap_reverses_numbers_but_not_bytes() {
        let mut block = [1, 2, 3, 4, 5, 6, 7, 8];
        to_little(ObjectType::PLAIN_FILE, 0, &mut block);
        assert_eq!(block, [1, 2, 3, 4, 5, 6, 7, 8]);
        to_little(ObjectType::PLAIN_FILE, 1, &mut block);
        assert_eq!(block, [8, 7, 6, 5, 4, 3, 2, 1]);
        to_little(ObjectType::SPACE_MAP, 0, &mut block);
        assert_eq!(block, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn dnode_reads_the_same_in_both_orders() {
        let mut block = [0; Dnode::SLOT];
        (block[0], block[1], block[2], block[3], block[4]) = (16, 14, 1, 1, 16);
        block[8..12].copy_from_slice(&[0, 1, 1, 64]);
        block[23] = 3;
        block[192..512].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 7].repeat(40));
        let big = Dnode::parse(&block, Order::Big).unwrap().unwrap();
        to_little(ObjectType::DNODE, 0, &mut block);
        let little = Dnode::parse(&block, Order::Little).unwrap().unwrap();
        assert_eq!((big.block_size, big.max_block), (little.block_size, little.max_block));
        let first = |dnode: &Dnode| Reader::new("bonus", &dnode.bonus, dnode.order).u64();
        assert_eq!((first(&big), first(&little)), (Ok(7), Ok(7)));
    }

    #[test]
    fn micro_zap_reads_the_same_in_both_orders() {
        let mut block = vec![0; 512];
        block[..8].copy_from_slice(&((1_u64 << 63) + 3).to_be_bytes());
        block[64..72].copy_from_slice(&77_u64.to_be_bytes());
        block[78..82].copy_from_slice(b"name");
        to_little(ObjectType::OBJECT_DIRECTORY, 0, &mut block);
        let table = Micro::parse(&block, Order::Little).unwrap();
        let entry = table.entries().next().unwrap();
        assert_eq!((entry.value, entry.name), (77, b"name".as_slice()));
    }
}
