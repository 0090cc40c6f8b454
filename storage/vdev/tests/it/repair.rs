//! Empty drives get their part of each block, and nothing else is written.

use std::sync::Arc;

use device::{Device, MemoryDevice};
use geometry::Block;
use proptest::prelude::*;
use units::{Ashift, Guid, Txg, VdevId};
use vdev::{BlockWrite, DeviceError, Leaf, NodeKind, TxgRanges, VdevNode, VdevTree};

use crate::array::{BIRTH, TestArray, noise, read_block, read_request, tree_with_children};
use crate::write::{arrays, block_sizes, lay_out_blocks, verify_block};

const DRIVE_SIZE: u64 = 36 << 20;
const TOP: VdevId = VdevId::new(0);

fn blank_drives(count: usize) -> Vec<Arc<MemoryDevice>> {
    (0..count)
        .map(|index| Arc::new(MemoryDevice::zeroed(format!("d{index}"), DRIVE_SIZE)))
        .collect()
}

fn leaf_node(index: usize, drive: &Arc<MemoryDevice>, away: bool) -> VdevNode {
    let guid = Guid::new(index as u64 + 1);
    let device = Some(Arc::clone(drive) as Arc<dyn Device>);
    let leaf = Leaf::new(guid, String::new(), device, Txg::new(u64::MAX));
    let leaf = leaf.with_ashift(Ashift::new(12).unwrap());
    if away {
        leaf.set_dtl(TxgRanges::new([(BIRTH, BIRTH)]));
    }
    VdevNode { guid, kind: NodeKind::Leaf(leaf.into()) }
}

fn array_tree(shape: &TestArray, drives: &[Arc<MemoryDevice>], away: &[usize]) -> VdevTree {
    let child = |(index, drive)| leaf_node(index, drive, away.contains(&index));
    tree_with_children(shape, drives.iter().enumerate().map(child).collect())
}

fn drive_bytes(drive: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(DRIVE_SIZE).unwrap()];
    drive.read_at(0, &mut bytes).unwrap();
    bytes
}

fn is_missing(leaf: &Leaf, birth: Txg) -> bool {
    leaf.dtl().contains(birth)
}

/// Reads each block with the remaining drives, and repairs it.
fn repair_all(tree: &VdevTree, blocks: &[Block], contents: &[Vec<u8>]) -> u64 {
    let mut read_back = Vec::new();
    for (block, data) in blocks.iter().zip(contents) {
        let concerned = tree.needs_repair(TOP, *block, BIRTH, &is_missing);
        if concerned {
            read_back
                .push((block.offset, read_block(tree, 0, *block, data, &mut Vec::new()).unwrap()));
        }
    }
    let out = |(offset, data)| BlockWrite { vdev: TOP, offset, birth: BIRTH, data };
    let out: Vec<_> = read_back.iter().map(|(offset, data)| out((*offset, &data[..]))).collect();
    let mut faults = Vec::new();
    let written = tree.repair_blocks(&out, &is_missing, &mut faults).unwrap();
    assert_eq!(faults, []);
    written
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 5))]

    #[test]
    fn blank_drives_of_arrays_are_repaired(
        (shape, parity) in arrays(),
        sizes in block_sizes(),
        first in any::<prop::sample::Index>(),
    ) {
        let mut drives = blank_drives(shape.child_count());
        let tree = array_tree(&shape, &drives, &[]);
        let blocks = lay_out_blocks(&tree, &shape, &sizes);
        let contents: Vec<Vec<u8>> = sizes.iter().map(|size| noise(*size, 7)).collect();
        for (block, data) in blocks.iter().zip(&contents) {
            tree.write(TOP, block.offset, data, BIRTH, &mut Vec::new()).unwrap();
        }
        let first = first.index(shape.child_count());
        let lost: Vec<usize> = (0..parity).map(|i| (first + i) % shape.child_count()).collect();
        let before = drives.clone();
        for index in &lost {
            drives[*index] = Arc::new(MemoryDevice::zeroed("new", DRIVE_SIZE));
        }
        let written = repair_all(&array_tree(&shape, &drives, &lost), &blocks, &contents);
        let whole = array_tree(&shape, &drives, &[]);
        for (block, data) in blocks.iter().zip(&contents) {
            verify_block(&whole, *block, data);
        }
        for (before, now) in before.iter().zip(&drives) {
            prop_assert!(drive_bytes(before) == drive_bytes(now));
        }
        let any = lost.iter().any(|index| drive_bytes(&drives[*index])[4 << 20..].iter().any(|b| *b != 0));
        // only the zeros that fill up a row of a dRAID are given, and leave no trace
        let fills = matches!(shape, TestArray::Draid(_));
        prop_assert!((written > 0) == any || fills && !any);
    }
}

#[test]
fn unselected_child_is_not_written() {
    let drives = blank_drives(3);
    let sides = |away: bool| {
        let each = |(index, drive)| leaf_node(index, drive, away && index == 1);
        let pair = drives[1..].iter().enumerate().map(|(i, drive)| (i + 1, drive));
        let pair = NodeKind::Replacing(pair.map(each).collect());
        let kind = NodeKind::Mirror(vec![
            each((0, &drives[0])),
            VdevNode { guid: Guid::new(9), kind: pair },
        ]);
        VdevTree::new(vec![VdevNode { guid: Guid::new(10), kind }])
    };
    let block = Block { offset: 1 << 20, size: 5000 };
    let data = noise(block.size, 1);
    sides(false).write(TOP, block.offset, &data, BIRTH, &mut Vec::new()).unwrap();
    let hole = vec![0; 8192];
    drives[1].write_at((4 << 20) + block.offset, &hole).unwrap();
    drives[2].write_at((4 << 20) + block.offset, &hole).unwrap();
    assert_eq!(repair_all(&sides(true), &[block], std::slice::from_ref(&data)), 8192);
    assert!(drive_bytes(&drives[1]) == drive_bytes(&drives[0]));
    assert!(drive_bytes(&drives[2]).iter().all(|byte| *byte == 0));
}

#[test]
fn leaf_that_misses_more_meanwhile_stays_incomplete() {
    let leaf = Leaf::new(Guid::new(1), String::new(), None, Txg::ZERO);
    let txg = Txg::new;
    let missed = TxgRanges::new([(txg(3), txg(9))]);
    leaf.set_dtl(missed.clone());
    let lapses = leaf.miss_count();
    assert!(leaf.shrink_dtl(&missed, &TxgRanges::new([(txg(5), txg(5))]), lapses));
    assert_eq!(leaf.dtl(), TxgRanges::new([(txg(5), txg(5))]));
    let tree =
        VdevTree::new(vec![VdevNode { guid: Guid::new(1), kind: NodeKind::Leaf(leaf.into()) }]);
    assert!(tree.write(TOP, 0, &[1; 512], txg(12), &mut Vec::new()).is_err());
    let leaf = tree.leaf(Guid::new(1)).unwrap();
    assert!(!leaf.shrink_dtl(&leaf.dtl(), &TxgRanges::default(), lapses));
    assert!(leaf.dtl().contains(txg(12)) && leaf.miss_count() > lapses);
}

/// A drive that is gone, and the distributed spare 0 in its place.
fn spared_child() -> VdevNode {
    let gone = Leaf::new(Guid::new(300), String::new(), None, Txg::new(u64::MAX));
    let gone = VdevNode { guid: Guid::new(300), kind: NodeKind::Leaf(gone.into()) };
    let spare = vdev::DistributedSpare::new(Guid::new(200), 0, String::new());
    let spare = VdevNode { guid: Guid::new(200), kind: NodeKind::DistributedSpare(spare) };
    VdevNode { guid: Guid::new(100), kind: NodeKind::Spare(vec![gone, spare]) }
}

/// A distributed spare lies on another drive in each slice, also where two blocks meet.
#[test]
fn distributed_spare_is_written_across_slices() {
    let shape = TestArray::draid(7, 2, 1, 1);
    let TestArray::Draid(draid) = &shape else { unreachable!() };
    let size = 64 << 10;
    let length = draid.asize(size as u64);
    // the last block of the first slice, and the first one of the second
    let end = draid.group_size() * u64::from(draid.shape().groups);
    let blocks = [end - length, end].map(|offset| Block { offset, size });
    let contents = [noise(size, 31), noise(size, 32)];
    let mut moved = 0;
    for gone in 0..7 {
        let drives = blank_drives(7);
        let mut children: Vec<_> = drives
            .iter()
            .enumerate()
            .map(|(index, drive)| leaf_node(index, drive, false))
            .collect();
        children[gone] = spared_child();
        let tree = tree_with_children(&shape, children);
        let holders = [draid.slice_size() - 1, draid.slice_size()];
        let holders = holders.map(|offset| draid.spare_child(0, offset).unwrap());
        moved += usize::from(holders[0] != holders[1] && !holders.contains(&gone));
        let writes: Vec<_> = blocks
            .iter()
            .zip(&contents)
            .map(|(block, data)| BlockWrite { vdev: TOP, offset: block.offset, birth: BIRTH, data })
            .collect();
        for repairs in [false, true] {
            if repairs {
                tree.repair_blocks(&writes, &|_, _| true, &mut Vec::new()).unwrap();
            } else {
                let written = tree.write_many(&writes, &mut Vec::new());
                assert!(written.iter().all(Result::is_ok), "{gone}");
            }
            for (block, data) in blocks.iter().zip(&contents) {
                let (mut into, mut faults) = (Vec::new(), Vec::new());
                let judge = |found: &[u8]| found == &data[..];
                let request = read_request(*block, &judge);
                tree.verify_block(TOP, &request, &mut into, &mut faults).unwrap();
                let wrong = faults.iter().any(|fault| fault.error == DeviceError::Corrupt);
                assert!(!wrong, "drive {gone}, {block:?}, repaired {repairs}: {faults:?}");
            }
        }
    }
    assert!(moved > 0, "the spare is on one drive in both slices");
}

/// A distributed spare's data is on other drives: a wrong part is theirs, and is rewritten there.
#[test]
fn distributed_spare_is_repaired_on_its_drive() {
    let shape = TestArray::draid(7, 2, 1, 1);
    let TestArray::Draid(draid) = &shape else { unreachable!() };
    let block = Block { offset: 0, size: 96 << 10 };
    let data = noise(block.size, 21);
    let map = shape.column_map(block);
    // parity, and both columns of data
    for column in map.rows().flat_map(geometry::Row::columns) {
        let drives = blank_drives(7);
        let pair = spared_child();
        let mut children: Vec<_> = drives
            .iter()
            .enumerate()
            .map(|(index, drive)| leaf_node(index, drive, false))
            .collect();
        children[column.child] = pair;
        let tree = tree_with_children(&shape, children);
        tree.write(TOP, block.offset, &data, BIRTH, &mut Vec::new()).unwrap();
        let before: Vec<_> = drives.iter().map(|drive| drive_bytes(drive)).collect();
        let lender = draid.spare_child(0, column.offset).unwrap();
        drives[lender].write_at(column.device_offset(), &noise(column.size, 5)).unwrap();

        let (mut into, mut faults) = (Vec::new(), Vec::new());
        let judge = |found: &[u8]| *found == data[..];
        tree.verify_block(TOP, &read_request(block, &judge), &mut into, &mut faults).unwrap();
        let wrong = faults.iter().filter(|fault| fault.error == DeviceError::Corrupt);
        let wrong: Vec<_> = wrong.map(|fault| fault.leaf).collect();
        assert_eq!(wrong, [Guid::new(lender as u64 + 1)]);
        let wants = |leaf: &Leaf, _: Txg| wrong.contains(&leaf.guid());
        let out = BlockWrite { vdev: TOP, offset: block.offset, birth: BIRTH, data: &into };
        tree.repair_blocks(&[out], &wants, &mut Vec::new()).unwrap();
        for (before, now) in before.iter().zip(&drives) {
            assert!(*before == drive_bytes(now));
        }
    }
}
