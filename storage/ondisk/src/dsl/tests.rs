//! Golden values: numbers that `zdb` prints, laid out by the drawings.

use super::{Bookmark, Bpobj, Bptree, BptreeEntry, Dataset, Deadlist, Dir};
use super::{RedactedBlocks, RedactionList};
use crate::{Blkptr, Order};

fn encode_in_order(words: &[u64], order: Order) -> Vec<u8> {
    let bytes = |w: &u64| match order {
        Order::Little => w.to_le_bytes(),
        Order::Big => w.to_be_bytes(),
    };
    words.iter().flat_map(bytes).collect()
}

fn numbered_words(words: u64) -> Vec<u64> {
    (0..words).map(|word| 1000 + word).collect()
}

#[test]
fn golden_dir() {
    for order in [Order::Little, Order::Big] {
        let dir = Dir::parse(&encode_in_order(&numbered_words(32), order), order).unwrap();
        assert_eq!((dir.head.get(), dir.children.get()), (1001, 1004));
        assert_eq!((dir.used, dir.reserved, dir.properties.get()), (1005, 1009, 1010));
        assert_eq!((dir.breakdown.head, dir.breakdown.refreservation), (1013, 1017));
        assert_eq!(dir.clones.get(), 1018);
        assert!(!dir.has_breakdown());
        assert!(Dir::parse(&encode_in_order(&numbered_words(31), order), order).is_err());
    }
}

#[test]
fn golden_dataset() {
    let mut words = numbered_words(40);
    words[15] = 0b1101;
    words[16..32].fill(0);
    let dataset = Dataset::parse(&encode_in_order(&words, Order::Big), Order::Big).unwrap();
    assert_eq!((dataset.dir.get(), dataset.previous.get()), (1000, 1001));
    assert_eq!((dataset.creation_time, dataset.deadlist.get()), (1006, 1008));
    assert_eq!((dataset.unique, dataset.guid.get()), (1012, 1014));
    assert_eq!((dataset.next_clones.get(), dataset.holds.get()), (1032, 1034));
    assert!(dataset.is_inconsistent() && dataset.is_unique_accurate());
    assert!(dataset.is_defer_destroy() && dataset.root.is_hole());
    assert!(Dataset::parse(&encode_in_order(&numbered_words(39), Order::Big), Order::Big).is_err());
}

#[test]
fn golden_lists() {
    let bytes = encode_in_order(&numbered_words(40), Order::Little);
    assert_eq!(Deadlist::parse(&bytes, Order::Little).unwrap().uncompressed, 1002);
    let forms = [(16, 0, 0, 0), (32, 1003, 0, 0), (48, 1003, 1005, 0), (56, 1003, 1005, 1006)];
    for (size, uncompressed, sublists, freed) in forms {
        let list = Bpobj::parse(&bytes[..size], Order::Little).unwrap();
        assert_eq!((list.count, list.bytes), (1000, 1001));
        assert_eq!(list.uncompressed, uncompressed);
        assert_eq!((list.sublist_count, list.freed), (sublists, freed));
    }
    assert!(Bpobj::parse(&bytes[..15], Order::Little).is_err());
    assert_eq!(Bptree::parse(&bytes, Order::Little).unwrap().end, 1001);
    let mut entry = vec![0; 16];
    entry.extend([7, 54, 9, 2, u64::MAX]);
    let entry = BptreeEntry::parse(&encode_in_order(&entry[..21], Order::Big), Order::Big).unwrap();
    assert_eq!((entry.birth.get(), entry.resume), (7, [54, 9, 2, u64::MAX]));
}

#[test]
fn golden_bookmarks() {
    let words = numbered_words(12);
    let short = Bookmark::from_words(&words[..3]).unwrap();
    assert_eq!((short.guid.get(), short.creation_time, short.flags), (1000, 1002, 0));
    let long = Bookmark::from_words(&words).unwrap();
    assert_eq!((long.redaction.get(), long.flags), (1003, 1004));
    assert_eq!((long.referenced, long.ivset_guid), (1005, 1011));
    assert!(Bookmark::from_words(&words[..2]).is_err());
    assert!(Bookmark::from_words(&words[..8]).is_err());

    let list = [u64::MAX, u64::MAX, 5, 2, 77, 78, 0];
    let list = RedactionList::parse(&encode_in_order(&list, Order::Big), Order::Big).unwrap();
    assert_eq!(list.snaps.iter().map(|guid| guid.get()).collect::<Vec<_>>(), [77, 78]);
    let cut = encode_in_order(&[0, 0, 5, 3, 77, 78], Order::Big);
    assert!(RedactionList::parse(&cut, Order::Big).is_err());

    let run = [9, 4, (256 << 48) | 3, 0];
    let run = RedactedBlocks::parse(&encode_in_order(&run, Order::Little), Order::Little).unwrap();
    assert_eq!((run.count, run.block_size), (4, 131_072));
    assert_eq!(run.encode().to_vec(), encode_in_order(&[9, 4, (256 << 48) | 3, 0], Order::Little));
}

#[test]
fn records_survive_encoding() {
    let little = |words: u64, zeros: std::ops::Range<usize>| {
        let mut words = numbered_words(words);
        words[zeros].fill(0);
        encode_in_order(&words, Order::Little)
    };
    let dir = little(32, 19..32);
    assert_eq!(Dir::parse(&dir, Order::Little).unwrap().encode(), dir);
    let dataset = little(40, 16..32);
    let dataset = [&dataset[..280], &[0; 40]].concat();
    assert_eq!(Dataset::parse(&dataset, Order::Little).unwrap().encode(), dataset);
    let deadlist = little(40, 3..40);
    assert_eq!(Deadlist::parse(&deadlist, Order::Little).unwrap().encode(), deadlist);
    for size in [16, 32, 48, 56] {
        let list = &little(7, 0..0)[..size];
        assert_eq!(Bpobj::parse(list, Order::Little).unwrap().encode(size), list);
    }
    let tree = little(5, 0..0);
    assert_eq!(Bptree::parse(&tree, Order::Little).unwrap().encode(), tree);
    let entry = little(21, 0..16);
    assert_eq!(BptreeEntry::parse(&entry, Order::Little).unwrap().encode(), entry);
    let mut long = numbered_words(12);
    long[4] = Bookmark::HAS_SIZES;
    for words in [long, numbered_words(3)] {
        assert_eq!(Bookmark::from_words(&words).unwrap().to_words(), words);
    }
}

#[test]
fn bpobj_pointer_keeps_fields_needed_to_free() {
    let read = |words: &[u64; 16]| {
        Blkptr::parse(&encode_in_order(words, Order::Little), Order::Little).unwrap()
    };
    let kept = |pointer: &Blkptr, freed| {
        let bytes = Bpobj::encode_pointer(pointer, freed);
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        bytes.as_chunks::<8>().0.iter().map(word).collect::<Vec<u64>>()
    };
    // one sector of a plain file, fletcher4, at <0:200:200>, born in txg 5, with a checksum
    let mut words = [0_u64; 16];
    (words[0], words[1], words[6]) = (1, 1, (1 << 63) | (19 << 48) | (7 << 40) | (2 << 32));
    (words[10], words[11]) = (5, 1);
    words[12..].copy_from_slice(&[7, 8, 9, 10]);
    let mut expected = words;
    expected[11..].fill(0);
    assert_eq!(kept(&read(&words), false), expected);
    expected[11] = 1;
    assert_eq!(kept(&read(&words), true), expected);
    assert!(super::is_freed(&read(&expected)));
    // dedup finds the block by its checksum
    words[6] |= 1 << 62;
    assert_eq!(kept(&read(&words), false)[12..], [7, 8, 9, 10]);
    // of one that holds its block no more than its sizes and birth
    let mut embedded = numbered_words(16);
    (embedded[6], embedded[10]) = ((1 << 63) | (19 << 48) | (2 << 32) | (1 << 39) | (49 << 25), 5);
    let found = kept(&read(&embedded.clone().try_into().unwrap()), false);
    let mut expected = vec![0; 16];
    (expected[6], expected[10]) = (embedded[6], 5);
    assert_eq!(found, expected);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_structure_or_an_error(bytes in proptest::collection::vec(0_u8.., 0..400)) {
        let _ = Dir::parse(&bytes, Order::Big);
        let _ = Dataset::parse(&bytes, Order::Big);
        let _ = Bookmark::parse(&bytes, Order::Big);
        let _ = RedactionList::parse(&bytes, Order::Big);
        let _ = Bpobj::parse(&bytes, Order::Big);
    }
}
