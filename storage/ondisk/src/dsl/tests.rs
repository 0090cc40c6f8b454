//! Golden values: numbers that `zdb` prints, laid out by the drawings.

use super::{Bookmark, Bpobj, Bptree, BptreeEntry, Dataset, Deadlist, Dir};
use super::{RedactedBlocks, RedactionList};
use crate::Order;

fn laid(words: &[u64], order: Order) -> Vec<u8> {
    let bytes = |w: &u64| match order {
        Order::Little => w.to_le_bytes(),
        Order::Big => w.to_be_bytes(),
    };
    words.iter().flat_map(bytes).collect()
}

fn counted(words: u64) -> Vec<u64> {
    (0..words).map(|word| 1000 + word).collect()
}

#[test]
fn golden_dir() {
    for order in [Order::Little, Order::Big] {
        let dir = Dir::parse(&laid(&counted(32), order), order).unwrap();
        assert_eq!((dir.head.get(), dir.children.get()), (1001, 1004));
        assert_eq!((dir.used, dir.reserved, dir.properties.get()), (1005, 1009, 1010));
        assert_eq!((dir.breakdown.head, dir.breakdown.refreservation), (1013, 1017));
        assert_eq!(dir.clones.get(), 1018);
        assert!(!dir.has_breakdown());
        assert!(Dir::parse(&laid(&counted(31), order), order).is_err());
    }
}

#[test]
fn golden_dataset() {
    let mut words = counted(40);
    words[15] = 0b1101;
    words[16..32].fill(0);
    let dataset = Dataset::parse(&laid(&words, Order::Big), Order::Big).unwrap();
    assert_eq!((dataset.dir.get(), dataset.previous.get()), (1000, 1001));
    assert_eq!((dataset.creation_time, dataset.deadlist.get()), (1006, 1008));
    assert_eq!((dataset.unique, dataset.guid.get()), (1012, 1014));
    assert_eq!((dataset.next_clones.get(), dataset.holds.get()), (1032, 1034));
    assert!(dataset.is_inconsistent() && dataset.is_unique_accurate());
    assert!(dataset.is_defer_destroy() && dataset.root.is_hole());
    assert!(Dataset::parse(&laid(&counted(39), Order::Big), Order::Big).is_err());
}

#[test]
fn golden_lists() {
    let bytes = laid(&counted(40), Order::Little);
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
    let entry = BptreeEntry::parse(&laid(&entry[..21], Order::Big), Order::Big).unwrap();
    assert_eq!((entry.birth.get(), entry.resume), (7, [54, 9, 2, u64::MAX]));
}

#[test]
fn golden_bookmarks() {
    let words = counted(12);
    let short = Bookmark::from_words(&words[..3]).unwrap();
    assert_eq!((short.guid.get(), short.creation_time, short.flags), (1000, 1002, 0));
    let long = Bookmark::from_words(&words).unwrap();
    assert_eq!((long.redaction.get(), long.flags), (1003, 1004));
    assert_eq!((long.referenced, long.ivset_guid), (1005, 1011));
    assert!(Bookmark::from_words(&words[..2]).is_err());
    assert!(Bookmark::from_words(&words[..8]).is_err());

    let list = [u64::MAX, u64::MAX, 5, 2, 77, 78, 0];
    let list = RedactionList::parse(&laid(&list, Order::Big), Order::Big).unwrap();
    assert_eq!(list.snaps.iter().map(|guid| guid.get()).collect::<Vec<_>>(), [77, 78]);
    let cut = laid(&[0, 0, 5, 3, 77, 78], Order::Big);
    assert!(RedactionList::parse(&cut, Order::Big).is_err());

    let run = [9, 4, (256 << 48) | 3, 0];
    let run = RedactedBlocks::parse(&laid(&run, Order::Little), Order::Little).unwrap();
    assert_eq!((run.count, run.block_size), (3, 131_072));
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
