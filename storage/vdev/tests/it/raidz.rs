//! Every set of lost and lying columns that parity allows, and one more.

use geometry::Block;
use units::{Txg, VdevId};
use vdev::{DeviceError, Error};

use crate::array::{
    BIRTH, DRIVE_SIZE, SharedBytes, TestArray, array_tree, leaf_node, noise, read_block,
    read_request, tree_with_children, write_block,
};

fn arrays() -> Vec<(TestArray, usize)> {
    vec![
        (TestArray::raidz(3, 1), 1),
        (TestArray::raidz(5, 1), 1),
        (TestArray::raidz(5, 2), 2),
        (TestArray::raidz(6, 3), 3),
        (TestArray::expanded_raidz(5, 1), 1),
        (TestArray::expanded_raidz(6, 2), 2),
        (TestArray::draid(7, 3, 2, 1), 2),
    ]
}

fn test_blocks(shape: &TestArray) -> Vec<Block> {
    let offset = match shape {
        TestArray::Raidz(_) => 3 << 10,
        TestArray::Draid(draid) => 3 * draid.row_size(),
    };
    [512, 1024, 2560, 5120, 9728].map(|size| Block { offset, size }).to_vec()
}

/// All sets of up to `most` of `count` things.
fn subsets(count: usize, most: usize) -> Vec<Vec<usize>> {
    (0..1_usize << count)
        .filter(|mask| mask.count_ones() as usize <= most)
        .map(|mask| (0..count).filter(|bit| mask >> bit & 1 == 1).collect())
        .collect()
}

#[test]
fn any_drives_up_to_parity_may_be_missing() {
    let junk = noise(DRIVE_SIZE, 7);
    for (shape, parity) in arrays() {
        for block in test_blocks(&shape) {
            let data = noise(block.size, block.size as u64);
            let drives = write_block(
                vec![junk.clone(); shape.child_count()],
                &shape.column_map(block),
                &data,
            );
            for missing in subsets(shape.child_count(), parity) {
                let keep = |(index, bytes): (usize, &SharedBytes)| {
                    (!missing.contains(&index)).then(|| bytes.clone())
                };
                let tree = array_tree(&shape, drives.iter().enumerate().map(keep).collect());
                let mut faults = Vec::new();
                assert_eq!(
                    read_block(&tree, 0, block, &data, &mut faults).unwrap(),
                    data,
                    "{missing:?}"
                );
                assert!(faults.iter().all(|fault| fault.error == DeviceError::Missing
                    && missing.contains(&(usize::try_from(fault.leaf.get()).unwrap() - 1))));
            }
        }
    }
}

#[test]
fn wrong_drives_up_to_parity_are_named() {
    let lies = SharedBytes::new(vec![0xdb; DRIVE_SIZE]);
    for (shape, parity) in arrays() {
        let block = *test_blocks(&shape).last().unwrap();
        let data = noise(block.size, 1);
        let map = shape.column_map(block);
        let drives = write_block(vec![vec![0; DRIVE_SIZE]; shape.child_count()], &map, &data);
        for liars in subsets(shape.child_count(), parity) {
            let lie = |(index, bytes): (usize, &SharedBytes)| {
                Some(if liars.contains(&index) { SharedBytes::clone(&lies) } else { bytes.clone() })
            };
            let tree = array_tree(&shape, drives.iter().enumerate().map(lie).collect());
            let mut faults = Vec::new();
            assert_eq!(read_block(&tree, 0, block, &data, &mut faults).unwrap(), data, "{liars:?}");
            // an examination also finds drives with wrong parity only
            let used = |child: &usize| {
                map.rows().any(|row| row.columns().iter().any(|c| c.child == *child && c.size > 0))
            };
            let expected: Vec<u64> =
                liars.iter().filter(|child| used(child)).map(|child| *child as u64 + 1).collect();
            let judge = |bytes: &[u8]| bytes == data;
            let (mut found, mut into) = (Vec::new(), Vec::new());
            tree.verify_block(VdevId::new(0), &read_request(block, &judge), &mut into, &mut found)
                .unwrap();
            let mut named: Vec<u64> = found.iter().map(|fault| fault.leaf.get()).collect();
            named.sort_unstable();
            named.dedup();
            assert_eq!((into, named), (data.clone(), expected), "{liars:?}");
        }
    }
}

#[test]
fn loss_beyond_parity_is_an_error() {
    let lies = SharedBytes::new(vec![0xdb; DRIVE_SIZE]);
    for (shape, parity) in arrays() {
        let block = *test_blocks(&shape).last().unwrap();
        let data = noise(block.size, 2);
        let map = shape.column_map(block);
        let drives = write_block(vec![vec![0; DRIVE_SIZE]; shape.child_count()], &map, &data);
        let row = map.rows().next().unwrap();
        let hit: Vec<usize> = row.data()[..1].iter().chain(row.parity()).map(|c| c.child).collect();
        assert_eq!(hit.len(), parity + 1);
        let gone =
            |(index, bytes): (usize, &SharedBytes)| (!hit.contains(&index)).then(|| bytes.clone());
        let missing = array_tree(&shape, drives.iter().enumerate().map(gone).collect());
        let result = read_block(&missing, 0, block, &data, &mut Vec::new());
        assert!(
            matches!(result, Err(Error::Unavailable { redundancy, .. }) if redundancy == parity)
        );
        let lie = |(index, bytes): (usize, &SharedBytes)| {
            Some(if hit.contains(&index) { SharedBytes::clone(&lies) } else { bytes.clone() })
        };
        let lying = array_tree(&shape, drives.iter().enumerate().map(lie).collect());
        assert_eq!(
            read_block(&lying, 0, block, &data, &mut Vec::new()),
            Err(Error::ChecksumMismatch)
        );
    }
}

/// Data newer than the outdated drives is lost only if another drive is missing too.
#[test]
fn drives_that_slept_are_not_missing() {
    let shape = TestArray::raidz(3, 1);
    let block = Block { offset: 0, size: 4096 };
    let data = noise(block.size, 4);
    let blank = || Some(SharedBytes::new(vec![0; DRIVE_SIZE]));
    let (slept, always) = (Txg::new(BIRTH.get() - 1), Txg::new(u64::MAX));
    let error = |drives: [(Option<SharedBytes>, Txg); 3]| {
        let each = |(index, (bytes, synced))| leaf_node(index, bytes, synced);
        let tree = tree_with_children(&shape, drives.into_iter().enumerate().map(each).collect());
        read_block(&tree, 0, block, &data, &mut Vec::new()).unwrap_err()
    };
    let behind = error([(blank(), slept), (blank(), slept), (blank(), always)]);
    assert_eq!(behind, Error::ChecksumMismatch);
    let one_is_gone = error([(blank(), slept), (None, always), (blank(), always)]);
    assert_eq!(one_is_gone, Error::Unavailable { missing: 2, redundancy: 1 });
    // one that was gone before has not got it either
    let long_gone = leaf_node(1, None, always);
    long_gone.leaves()[0].set_absent_since(Txg::new(BIRTH.get() - 1));
    let children = vec![leaf_node(0, blank(), slept), long_gone, leaf_node(2, blank(), always)];
    let tree = tree_with_children(&shape, children);
    assert_eq!(read_block(&tree, 0, block, &data, &mut Vec::new()), Err(Error::ChecksumMismatch));
}

#[test]
fn unchecksummed_block_is_read_or_rebuilt() {
    let shape = TestArray::raidz(4, 1);
    let block = Block { offset: 0, size: 4096 };
    let data = noise(block.size, 3);
    let drives = write_block(vec![vec![0; DRIVE_SIZE]; 4], &shape.column_map(block), &data);
    let mut some: Vec<_> = drives.into_iter().map(Some).collect();
    some[2] = None;
    let tree = array_tree(&shape, some);
    let any = |_: &[u8]| true;
    let request = vdev::ReadRequest { has_checksum: false, ..read_request(block, &any) };
    let mut into = vec![0; block.size];
    tree.read(VdevId::new(0), &request, &mut into, &mut Vec::new()).unwrap();
    assert_eq!(into, data);
}
