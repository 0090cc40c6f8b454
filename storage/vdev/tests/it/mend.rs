//! Drives that came back empty get what they should hold, and nothing else is written.

use std::sync::Arc;

use device::{Device, Memory};
use geometry::Block;
use proptest::prelude::*;
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{Kind, Leaf, Node, Outgoing, Tree, Trouble, TxgRanges};

use crate::array::{BIRTH, Shape, noise, read, request, tree_of};
use crate::write::{examine, places, shapes, sizes};

const SIZE: u64 = 36 << 20;
const TOP: VdevId = VdevId::new(0);

fn blanks(count: usize) -> Vec<Arc<Memory>> {
    (0..count).map(|index| Arc::new(Memory::blank(format!("d{index}"), SIZE))).collect()
}

fn node(index: usize, drive: &Arc<Memory>, away: bool) -> Node {
    let guid = Guid::new(index as u64 + 1);
    let device = Some(Arc::clone(drive) as Arc<dyn Device>);
    let leaf = Leaf::new(guid, String::new(), device, Txg::new(u64::MAX));
    let leaf = leaf.with_ashift(Ashift::new(12).unwrap());
    if away {
        leaf.set_away(TxgRanges::new([(BIRTH, BIRTH)]));
    }
    Node { guid, kind: Kind::Leaf(leaf.into()) }
}

fn array(shape: &Shape, drives: &[Arc<Memory>], away: &[usize]) -> Tree {
    let child = |(index, drive)| node(index, drive, away.contains(&index));
    tree_of(shape, drives.iter().enumerate().map(child).collect())
}

fn bytes(drive: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SIZE).unwrap()];
    drive.read_at(0, &mut bytes).unwrap();
    bytes
}

fn wanting(leaf: &Leaf, birth: Txg) -> bool {
    leaf.away().contains(birth)
}

/// Reads each block with the drives that are left, and has it mended.
fn mend(tree: &Tree, blocks: &[Block], contents: &[Vec<u8>]) -> u64 {
    let mut read_back = Vec::new();
    for (block, data) in blocks.iter().zip(contents) {
        let concerned = tree.concerns(TOP, *block, BIRTH, &wanting);
        if concerned {
            read_back.push((block.offset, read(tree, 0, *block, data, &mut Vec::new()).unwrap()));
        }
    }
    let out = |(offset, data)| Outgoing { vdev: TOP, offset, birth: BIRTH, data };
    let out: Vec<_> = read_back.iter().map(|(offset, data)| out((*offset, &data[..]))).collect();
    let mut faults = Vec::new();
    let written = tree.mend(&out, &wanting, &mut faults).unwrap();
    assert_eq!(faults, []);
    written
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 5))]

    #[test]
    fn blank_drives_of_arrays_get_all_that_they_missed(
        (shape, parity) in shapes(),
        sizes in sizes(),
        first in any::<prop::sample::Index>(),
    ) {
        let mut drives = blanks(shape.children());
        let tree = array(&shape, &drives, &[]);
        let blocks = places(&tree, &shape, &sizes);
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, 7)).collect();
        for (block, data) in blocks.iter().zip(&contents) {
            tree.write(TOP, block.offset, data, BIRTH, &mut Vec::new()).unwrap();
        }
        let first = first.index(shape.children());
        let lost: Vec<usize> = (0..parity).map(|i| (first + i) % shape.children()).collect();
        let before = drives.clone();
        for index in &lost {
            drives[*index] = Arc::new(Memory::blank("new", SIZE));
        }
        let written = mend(&array(&shape, &drives, &lost), &blocks, &contents);
        let whole = array(&shape, &drives, &[]);
        for (block, data) in blocks.iter().zip(&contents) {
            examine(&whole, *block, data);
        }
        for (before, now) in before.iter().zip(&drives) {
            prop_assert!(bytes(before) == bytes(now));
        }
        let any = lost.iter().any(|index| bytes(&drives[*index])[4 << 20..].iter().any(|b| *b != 0));
        // only the zeros that fill up a row of a dRAID are given, and leave no trace
        let fills = matches!(shape, Shape::Draid(_));
        prop_assert!((written > 0) == any || fills && !any);
    }
}

#[test]
fn a_side_that_is_to_get_nothing_is_not_written() {
    let drives = blanks(3);
    let sides = |away: bool| {
        let each = |(index, drive)| node(index, drive, away && index == 1);
        let pair = drives[1..].iter().enumerate().map(|(i, drive)| (i + 1, drive));
        let pair = Kind::Replacing(pair.map(each).collect());
        let kind =
            Kind::Mirror(vec![each((0, &drives[0])), Node { guid: Guid::new(9), kind: pair }]);
        Tree::new(vec![Node { guid: Guid::new(10), kind }])
    };
    let block = Block { offset: 1 << 20, size: 5000 };
    let data = noise(block.size, 1);
    sides(false).write(TOP, block.offset, &data, BIRTH, &mut Vec::new()).unwrap();
    let hole = vec![0; 8192];
    drives[1].write_at((4 << 20) + block.offset, &hole).unwrap();
    drives[2].write_at((4 << 20) + block.offset, &hole).unwrap();
    assert_eq!(mend(&sides(true), &[block], std::slice::from_ref(&data)), 8192);
    assert!(bytes(&drives[1]) == bytes(&drives[0]));
    assert!(bytes(&drives[2]).iter().all(|byte| *byte == 0));
}

#[test]
fn a_leaf_that_misses_more_meanwhile_is_not_taken_for_whole() {
    let leaf = Leaf::new(Guid::new(1), String::new(), None, Txg::ZERO);
    let txg = Txg::new;
    let missed = TxgRanges::new([(txg(3), txg(9))]);
    leaf.set_away(missed.clone());
    let lapses = leaf.lapses();
    assert!(leaf.recover(&missed, &TxgRanges::new([(txg(5), txg(5))]), lapses));
    assert_eq!(leaf.away(), TxgRanges::new([(txg(5), txg(5))]));
    let tree = Tree::new(vec![Node { guid: Guid::new(1), kind: Kind::Leaf(leaf.into()) }]);
    assert!(tree.write(TOP, 0, &[1; 512], txg(12), &mut Vec::new()).is_err());
    let leaf = tree.leaf(Guid::new(1)).unwrap();
    assert!(!leaf.recover(&leaf.away(), &TxgRanges::default(), lapses));
    assert!(leaf.away().contains(txg(12)) && leaf.lapses() > lapses);
}

/// Where a distributed spare stands in for a drive, what it holds lies on other drives: a wrong part is
/// theirs, and is written anew there.
#[test]
fn what_a_distributed_spare_has_wrong_is_mended_on_the_drive_that_lends_its_space() {
    let shape = Shape::draid(7, 2, 1, 1);
    let Shape::Draid(draid) = &shape else { unreachable!() };
    let block = Block { offset: 0, size: 96 << 10 };
    let data = noise(block.size, 21);
    let map = shape.map(block);
    // parity, and both columns of data
    for column in map.rows().flat_map(geometry::Row::columns) {
        let drives = blanks(7);
        let gone = Leaf::new(Guid::new(300), String::new(), None, Txg::new(u64::MAX));
        let gone = Node { guid: Guid::new(300), kind: Kind::Leaf(gone.into()) };
        let spare = Node { guid: Guid::new(200), kind: Kind::DistributedSpare(0) };
        let pair = Node { guid: Guid::new(100), kind: Kind::Spare(vec![gone, spare]) };
        let mut children: Vec<_> =
            drives.iter().enumerate().map(|(index, drive)| node(index, drive, false)).collect();
        children[column.child] = pair;
        let tree = tree_of(&shape, children);
        tree.write(TOP, block.offset, &data, BIRTH, &mut Vec::new()).unwrap();
        let before: Vec<_> = drives.iter().map(|drive| bytes(drive)).collect();
        let lender = draid.spare_child(0, column.offset).unwrap();
        drives[lender].write_at(column.device_offset(), &noise(column.size, 5)).unwrap();

        let (mut into, mut faults) = (Vec::new(), Vec::new());
        let judge = |found: &[u8]| *found == data[..];
        tree.examine(TOP, &request(block, &judge), &mut into, &mut faults).unwrap();
        let wrong = faults.iter().filter(|fault| fault.trouble == Trouble::Wrong);
        let wrong: Vec<_> = wrong.map(|fault| fault.leaf).collect();
        assert_eq!(wrong, [Guid::new(lender as u64 + 1)]);
        let wants = |leaf: &Leaf, _: Txg| wrong.contains(&leaf.guid());
        let out = Outgoing { vdev: TOP, offset: block.offset, birth: BIRTH, data: &into };
        tree.mend(&[out], &wants, &mut Vec::new()).unwrap();
        for (before, now) in before.iter().zip(&drives) {
            assert!(*before == bytes(now));
        }
    }
}
