//! Blocks whose vdev was removed, in segments on mirrors.

use std::sync::Arc;

use geometry::Block;
use units::{Guid, Txg, VdevId};
use vdev::{Error, IndirectMapping, MappingSegment, NodeKind, VdevNode, VdevTree};

use crate::array::{DRIVE_SIZE, SharedBytes, leaf_node, noise, read_block, read_request};

const LABEL_START_SIZE: usize = 4 << 20;

#[test]
fn segments_are_read_from_the_right_children() {
    let data = noise(8192, 20);
    // the first half is right on drive 0 only, the second on drive 1 only
    let (mut first, mut second) = (vec![0; DRIVE_SIZE], vec![0; DRIVE_SIZE]);
    first[LABEL_START_SIZE + 4096..LABEL_START_SIZE + 8192].copy_from_slice(&data[..4096]);
    second[LABEL_START_SIZE + 65_536..LABEL_START_SIZE + 65_536 + 4096]
        .copy_from_slice(&data[4096..]);
    let always = Txg::new(u64::MAX);
    let sides = vec![
        leaf_node(0, Some(SharedBytes::new(first)), always),
        leaf_node(1, Some(SharedBytes::new(second)), always),
    ];
    let mirror = VdevNode { guid: Guid::new(50), kind: NodeKind::Mirror(sides) };
    let removed = |guid| VdevNode {
        guid: Guid::new(guid),
        kind: NodeKind::Indirect(vdev::Indirect::default()),
    };
    let tree = VdevTree::new(vec![removed(60), mirror, removed(61)]);
    let block = Block { offset: 1 << 20, size: 8192 };
    // nothing is known of it yet
    let missing = read_block(&tree, 2, block, &data, &mut Vec::new());
    assert_eq!(missing, Err(Error::NoVdev(VdevId::new(2))));
    let segment = |source, length, vdev, offset| MappingSegment {
        source,
        length,
        vdev: VdevId::new(vdev),
        offset,
    };
    // vdev 2 went to vdev 0, which went to vdev 1
    let outer = IndirectMapping::new(vec![segment(0, 4 << 20, 0, 0)]);
    let inner =
        vec![segment(1 << 20, 4096, 1, 4096), segment((1 << 20) + 4096, 1 << 16, 1, 65_536)];
    tree.set_mapping(VdevId::new(2), Arc::new(outer));
    tree.set_mapping(VdevId::new(0), Arc::new(IndirectMapping::new(inner)));
    assert_eq!(read_block(&tree, 2, block, &data, &mut Vec::new()).unwrap(), data);
    let elsewhere = Block { offset: 0, ..block };
    assert!(matches!(
        read_block(&tree, 2, elsewhere, &data, &mut Vec::new()),
        Err(Error::InvalidAddress(_))
    ));
}

#[test]
fn moved_blocks_are_examined_on_all_children() {
    let data = noise(8192, 20);
    let always = Txg::new(u64::MAX);
    // moved as a whole, and in two pieces
    for places in [vec![4096], vec![4096, 65_536]] {
        let mut right = vec![0; DRIVE_SIZE];
        let length = data.len() / places.len();
        for (place, part) in places.iter().zip(data.chunks(length)) {
            right[LABEL_START_SIZE + place..LABEL_START_SIZE + place + length]
                .copy_from_slice(part);
        }
        let mut rotten = right.clone();
        rotten[LABEL_START_SIZE + places[places.len() - 1] + 100] ^= 1;
        for (first, second, guilty) in
            [(&right, &right, vec![]), (&right, &rotten, vec![2]), (&rotten, &right, vec![1])]
        {
            let side = |index, bytes: &Vec<u8>| {
                leaf_node(index, Some(SharedBytes::new(bytes.clone())), always)
            };
            let sides = vec![side(0, first), side(1, second)];
            let mirror = VdevNode { guid: Guid::new(50), kind: NodeKind::Mirror(sides) };
            let kind = NodeKind::Indirect(vdev::Indirect::default());
            let tree = VdevTree::new(vec![VdevNode { guid: Guid::new(60), kind }, mirror]);
            let segment = |(index, place): (usize, &usize)| MappingSegment {
                source: (index * length) as u64,
                length: length as u64,
                vdev: VdevId::new(1),
                offset: *place as u64,
            };
            let segments = places.iter().enumerate().map(segment).collect();
            tree.set_mapping(VdevId::new(0), Arc::new(IndirectMapping::new(segments)));
            let (mut into, mut faults) = (Vec::new(), Vec::new());
            let judge = |found: &[u8]| *found == data[..];
            let block = Block { offset: 0, size: data.len() };
            tree.verify_block(VdevId::new(0), &read_request(block, &judge), &mut into, &mut faults)
                .unwrap();
            assert_eq!(into, data);
            let named: Vec<u64> = faults.iter().map(|fault| fault.leaf.get()).collect();
            assert_eq!(named, guilty, "{places:?}");
        }
    }
}

#[test]
fn removed_vdevs_that_point_to_one_another_end() {
    let removed = |guid| VdevNode {
        guid: Guid::new(guid),
        kind: NodeKind::Indirect(vdev::Indirect::default()),
    };
    let tree = VdevTree::new(vec![removed(1), removed(2)]);
    for (vdev, other) in [(0, 1), (1, 0)] {
        let whole =
            MappingSegment { source: 0, length: 1 << 20, vdev: VdevId::new(other), offset: 0 };
        tree.set_mapping(VdevId::new(vdev), Arc::new(IndirectMapping::new(vec![whole])));
    }
    let block = Block { offset: 0, size: 512 };
    assert!(matches!(
        read_block(&tree, 0, block, &[0; 512], &mut Vec::new()),
        Err(Error::InvalidAddress(_))
    ));
}
