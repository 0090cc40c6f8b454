//! Sides that lie, slept, or are gone.

use geometry::Block;
use units::{Guid, Txg, VdevId};
use vdev::{DeviceError, Error, NodeKind, ReadRequest, VdevNode, VdevTree};

use crate::array::{BIRTH, DRIVE_SIZE, SharedBytes, leaf_node, noise, read_block, read_request};

const BLOCK: Block = Block { offset: 8192, size: 4096 };

fn drive_with_block(data: &[u8]) -> SharedBytes {
    let mut bytes = vec![0; DRIVE_SIZE];
    let at = (4 << 20) + 8192;
    bytes[at..at + data.len()].copy_from_slice(data);
    SharedBytes::new(bytes)
}

fn mirror_tree(sides: Vec<VdevNode>) -> VdevTree {
    VdevTree::new(vec![VdevNode { guid: Guid::new(100), kind: NodeKind::Mirror(sides) }])
}

#[test]
fn one_good_child_is_enough_others_are_named() {
    let data = noise(BLOCK.size, 5);
    let always = Txg::new(u64::MAX);
    for good in 0..3 {
        let sides = (0..3).map(|index| {
            let bytes = if index == good {
                drive_with_block(&data)
            } else {
                drive_with_block(&noise(BLOCK.size, 6))
            };
            leaf_node(index, Some(bytes), always)
        });
        let tree = mirror_tree(sides.collect());
        assert_eq!(read_block(&tree, 0, BLOCK, &data, &mut Vec::new()).unwrap(), data);
        let judge = |bytes: &[u8]| bytes == data;
        let (mut into, mut faults) = (Vec::new(), Vec::new());
        tree.verify_block(VdevId::new(0), &read_request(BLOCK, &judge), &mut into, &mut faults)
            .unwrap();
        assert_eq!(into, data);
        assert_eq!(faults.len(), 2);
        assert!(
            faults
                .iter()
                .all(|f| f.error == DeviceError::Corrupt && f.leaf.get() != good as u64 + 1)
        );
    }
}

#[test]
fn outdated_child_is_unused_without_checksum() {
    let (now, then) = (noise(BLOCK.size, 8), noise(BLOCK.size, 9));
    let slept = Txg::new(BIRTH.get() - 1);
    let any = |_: &[u8]| true;
    let request = ReadRequest { has_checksum: false, ..read_request(BLOCK, &any) };
    for first in [true, false] {
        let mut sides = vec![
            leaf_node(0, Some(drive_with_block(&then)), slept),
            leaf_node(1, Some(drive_with_block(&now)), Txg::new(u64::MAX)),
        ];
        if !first {
            sides.reverse();
        }
        let mut into = vec![0; BLOCK.size];
        mirror_tree(sides).read(VdevId::new(0), &request, &mut into, &mut Vec::new()).unwrap();
        assert_eq!(into, now);
    }
    let mut into = vec![0; BLOCK.size];
    let alone = mirror_tree(vec![
        leaf_node(0, Some(drive_with_block(&then)), slept),
        leaf_node(1, None, Txg::ZERO),
    ]);
    let result = alone.read(VdevId::new(0), &request, &mut into, &mut Vec::new());
    assert_eq!(result, Err(Error::Unavailable { missing: 2, redundancy: 1 }));
}

#[test]
fn outdated_child_is_used_with_checksum() {
    let data = noise(BLOCK.size, 10);
    let slept = Txg::new(BIRTH.get() - 1);
    let tree = mirror_tree(vec![
        leaf_node(0, Some(drive_with_block(&data)), slept),
        leaf_node(1, None, Txg::ZERO),
    ]);
    assert_eq!(read_block(&tree, 0, BLOCK, &data, &mut Vec::new()).unwrap(), data);
}

/// The missing one may have it.
#[test]
fn outdated_child_does_not_replace_a_missing_one() {
    let (data, other) = (noise(BLOCK.size, 14), noise(BLOCK.size, 15));
    let slept = Txg::new(BIRTH.get() - 1);
    let error = |second| {
        let tree = mirror_tree(vec![leaf_node(0, Some(drive_with_block(&other)), slept), second]);
        read_block(&tree, 0, BLOCK, &data, &mut Vec::new()).unwrap_err()
    };
    assert_eq!(
        error(leaf_node(1, None, Txg::ZERO)),
        Error::Unavailable { missing: 2, redundancy: 1 }
    );
    assert_eq!(error(leaf_node(1, Some(drive_with_block(&other)), slept)), Error::ChecksumMismatch);
}

#[test]
fn truncated_drive_is_an_error() {
    let data = noise(BLOCK.size, 11);
    let cut = SharedBytes::new(drive_with_block(&data)[..(4 << 20) + 9000].to_vec());
    let tree = mirror_tree(vec![leaf_node(0, Some(cut), Txg::new(u64::MAX))]);
    let mut faults = Vec::new();
    let result = read_block(&tree, 0, BLOCK, &data, &mut faults);
    assert_eq!(result, Err(Error::Unavailable { missing: 1, redundancy: 0 }));
    assert_eq!(faults[0].error, DeviceError::ReadFailed);
}

/// A label may have such a size; labels are untrusted.
#[test]
fn a_mirror_without_sides_has_nothing() {
    let any = |_: &[u8]| true;
    let (mut into, mut faults) = (vec![0; BLOCK.size], Vec::new());
    let result = mirror_tree(Vec::new()).read(
        VdevId::new(0),
        &read_request(BLOCK, &any),
        &mut into,
        &mut faults,
    );
    assert_eq!(result, Err(Error::Unavailable { missing: 0, redundancy: 0 }));
}

#[test]
fn unwritten_block_is_not_a_fault() {
    let (data, other) = (noise(BLOCK.size, 12), noise(BLOCK.size, 13));
    let leaf = leaf_node(0, Some(drive_with_block(&other)), Txg::new(u64::MAX));
    let tree = mirror_tree(vec![leaf]);
    let is_data = |bytes: &[u8]| bytes == data;
    for (expected, counted) in [(false, 0), (true, 1)] {
        let request = ReadRequest { must_exist: expected, ..read_request(BLOCK, &is_data) };
        let (mut into, mut faults) = (vec![0; BLOCK.size], Vec::new());
        let result = tree.read(VdevId::new(0), &request, &mut into, &mut faults);
        assert_eq!(result, Err(Error::ChecksumMismatch));
        let wrong: u64 = tree.leaves().iter().map(|leaf| leaf.error_counts().0).sum();
        assert_eq!((wrong, faults.len()), (counted, usize::try_from(counted).unwrap()));
    }
}
