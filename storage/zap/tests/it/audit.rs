//! Looks at every byte of a table that has a meaning, apart from the reader.

use std::collections::BTreeSet;

use dmu::Object;
use ondisk::zap::fat::{Header, Table};
use ondisk::zap::leaf::Leaf;
use ondisk::zap::{HEADER, block_kind, pointers};
use units::BlockId;

/// Panics where the table breaks a rule of the format; gives how many entries it has.
pub(crate) fn audit(object: &Object) -> u64 {
    let zero = object.block(BlockId::new(0)).unwrap().unwrap();
    if block_kind(&zero, zero.order()).unwrap() != HEADER {
        return zap::Zap::open(object.clone()).unwrap().count().unwrap();
    }
    let header = Header::parse(&zero, zero.order()).unwrap();
    let mut used = BTreeSet::from([0]);
    let table: Vec<u64> =
        (0..header.table_len()).map(|index| leaf_at_index(object, &header, index)).collect();
    if let Table::External { first, blocks, next } = &header.table {
        used.extend(first.get()..first.get() + blocks);
        if let Some((next, copied)) = next {
            used.extend(next.get()..next.get() + 2 * blocks);
            let words = 1 << header.block_shift;
            for (index, leaf) in table.iter().enumerate().take(to_usize(*copied) * words) {
                for twin in [2 * index, 2 * index + 1] {
                    assert_eq!(
                        read_word(object, next.get(), words, twin),
                        *leaf,
                        "the larger table"
                    );
                }
            }
        }
    }
    let (mut index, mut entries, mut leaves) = (0, 0, 0);
    while index < table.len() {
        let number = table[index];
        assert!(used.insert(number), "block {number} is used twice");
        let block = object.block(BlockId::new(number)).unwrap().unwrap();
        let leaf = Leaf::parse(&block, block.order()).unwrap();
        let run = 1_usize << (header.table_shift - leaf.prefix_bits);
        assert_eq!(to_usize(leaf.prefix) * run, index, "the prefix of leaf {number}");
        assert!(table[index..][..run].iter().all(|other| *other == number), "run of {number}");
        assert_eq!(leaf.sorted, !header.normalization.is_none());
        entries += audit_leaf(&block, &leaf);
        leaves += 1;
        index += run;
    }
    assert_eq!((header.entries, header.leaves), (entries, leaves));
    assert!(used.iter().all(|block| *block < header.free_block.get()), "free block {header:?}");
    entries
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

fn leaf_at_index(object: &Object, header: &Header, index: u64) -> u64 {
    match &header.table {
        Table::Embedded => {
            let zero = object.block(BlockId::new(0)).unwrap().unwrap();
            let place = header.embedded_start() + to_usize(index);
            pointers::read_pointer(&zero, zero.order(), place).unwrap().get()
        }
        Table::External { first, .. } => {
            read_word(object, first.get(), 1 << header.block_shift, to_usize(index))
        }
    }
}

fn read_word(object: &Object, first: u64, words: usize, index: usize) -> u64 {
    let block = BlockId::new(first + (index / words) as u64);
    let block = object.block(block).unwrap().unwrap();
    pointers::read_pointer(&block, block.order(), index % words).unwrap().get()
}

/// Every chunk is in the free list, or in one entry or one array of one entry.
fn audit_leaf(bytes: &[u8], leaf: &Leaf<'_>) -> u64 {
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let chunks = 48 + bytes.len() / 16;
    let count = (bytes.len() - chunks) / 24;
    let mut seen = vec![false; count];
    let mut mark = |chunk: u16, kind: u8| {
        let at = chunks + usize::from(chunk) * 24;
        assert_eq!(bytes[at], kind, "the type of chunk {chunk}");
        assert!(!std::mem::replace(&mut seen[usize::from(chunk)], true), "chunk {chunk} twice");
        at
    };
    let mut free = u16_at(34);
    let mut free_count = 0;
    while free != 0xffff {
        let at = mark(free, 253);
        assert!(bytes[at + 1..at + 22].iter().all(|byte| *byte == 0), "a free chunk is clean");
        free = u16_at(at + 22);
        free_count += 1;
    }
    assert_eq!(leaf.free_chunks, free_count);
    let mut entries = 0;
    let mut known = BTreeSet::new();
    for entry in leaf.entries() {
        let entry = entry.unwrap();
        assert!(known.insert((entry.hash, entry.collision)), "two entries are one");
        assert!(leaf.covers(entry.hash));
        assert!(leaf.chain(entry.hash).any(|other| other.unwrap() == entry), "the wrong chain");
        mark(entry.number, 252);
        let words = leaf.name(&entry).is_err();
        assert!(!words || leaf.key(&entry).is_ok());
        for mut chunk in [entry.name_chunk, entry.value_chunk] {
            while chunk != 0xffff {
                chunk = u16_at(mark(chunk, 251) + 22);
            }
        }
        let chain = leaf.chain(entry.hash).map(|other| other.unwrap().collision);
        assert!(chain.is_sorted(), "a chain in the order of its numbers");
        entries += 1;
    }
    assert_eq!(u64::from(leaf.entry_count), entries);
    assert!(seen.iter().all(|seen| *seen), "a lost chunk");
    entries
}
