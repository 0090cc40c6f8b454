//! Every set of lost and lying columns that parity allows, and one more.

use geometry::Block;
use units::{Txg, VdevId};
use vdev::{Error, Trouble};

use crate::array::{BIRTH, Bytes, DRIVE, Shape, leaf, noise, read, request, tree, tree_of, write};

fn shapes() -> Vec<(Shape, usize)> {
    vec![
        (Shape::raidz(3, 1), 1),
        (Shape::raidz(5, 1), 1),
        (Shape::raidz(5, 2), 2),
        (Shape::raidz(6, 3), 3),
        (Shape::widened(5, 1), 1),
        (Shape::widened(6, 2), 2),
        (Shape::draid(7, 3, 2, 1), 2),
    ]
}

fn blocks(shape: &Shape) -> Vec<Block> {
    let offset = match shape {
        Shape::Raidz(_) => 3 << 10,
        Shape::Draid(draid) => 3 * draid.row_size(),
    };
    [512, 1024, 2560, 5120, 9728].map(|size| Block { offset, size }).to_vec()
}

/// All sets of up to `most` of `count` things.
fn sets(count: usize, most: usize) -> Vec<Vec<usize>> {
    (0..1_usize << count)
        .filter(|mask| mask.count_ones() as usize <= most)
        .map(|mask| (0..count).filter(|bit| mask >> bit & 1 == 1).collect())
        .collect()
}

#[test]
fn any_drives_up_to_parity_may_be_missing() {
    let junk = noise(DRIVE, 7);
    for (shape, parity) in shapes() {
        for block in blocks(&shape) {
            let data = noise(block.size, block.size as u64);
            let drives = write(vec![junk.clone(); shape.children()], &shape.map(block), &data);
            for missing in sets(shape.children(), parity) {
                let keep = |(index, bytes): (usize, &Bytes)| {
                    (!missing.contains(&index)).then(|| bytes.clone())
                };
                let tree = tree(&shape, drives.iter().enumerate().map(keep).collect());
                let mut faults = Vec::new();
                assert_eq!(read(&tree, 0, block, &data, &mut faults).unwrap(), data, "{missing:?}");
                assert!(faults.iter().all(|fault| fault.trouble == Trouble::Missing
                    && missing.contains(&(usize::try_from(fault.leaf.get()).unwrap() - 1))));
            }
        }
    }
}

#[test]
fn any_drives_up_to_parity_may_lie_and_are_named() {
    let lies = Bytes::new(vec![0xdb; DRIVE]);
    for (shape, parity) in shapes() {
        let block = *blocks(&shape).last().unwrap();
        let data = noise(block.size, 1);
        let map = shape.map(block);
        let drives = write(vec![vec![0; DRIVE]; shape.children()], &map, &data);
        for liars in sets(shape.children(), parity) {
            let lie = |(index, bytes): (usize, &Bytes)| {
                Some(if liars.contains(&index) { Bytes::clone(&lies) } else { bytes.clone() })
            };
            let tree = tree(&shape, drives.iter().enumerate().map(lie).collect());
            let mut faults = Vec::new();
            assert_eq!(read(&tree, 0, block, &data, &mut faults).unwrap(), data, "{liars:?}");
            // an examination finds also those of which only parity was hit
            let used = |child: &usize| {
                map.rows().any(|row| row.columns().iter().any(|c| c.child == *child && c.size > 0))
            };
            let expected: Vec<u64> =
                liars.iter().filter(|child| used(child)).map(|child| *child as u64 + 1).collect();
            let judge = |bytes: &[u8]| bytes == data;
            let (mut found, mut into) = (Vec::new(), Vec::new());
            tree.examine(VdevId::new(0), &request(block, &judge), &mut into, &mut found).unwrap();
            let mut named: Vec<u64> = found.iter().map(|fault| fault.leaf.get()).collect();
            named.sort_unstable();
            named.dedup();
            assert_eq!((into, named), (data.clone(), expected), "{liars:?}");
        }
    }
}

#[test]
fn one_more_than_parity_is_an_error_and_never_data() {
    let lies = Bytes::new(vec![0xdb; DRIVE]);
    for (shape, parity) in shapes() {
        let block = *blocks(&shape).last().unwrap();
        let data = noise(block.size, 2);
        let map = shape.map(block);
        let drives = write(vec![vec![0; DRIVE]; shape.children()], &map, &data);
        let row = map.rows().next().unwrap();
        let hit: Vec<usize> = row.data()[..1].iter().chain(row.parity()).map(|c| c.child).collect();
        assert_eq!(hit.len(), parity + 1);
        let gone = |(index, bytes): (usize, &Bytes)| (!hit.contains(&index)).then(|| bytes.clone());
        let missing = tree(&shape, drives.iter().enumerate().map(gone).collect());
        let result = read(&missing, 0, block, &data, &mut Vec::new());
        assert!(matches!(result, Err(Error::Unavailable { spare, .. }) if spare == parity));
        let lie = |(index, bytes): (usize, &Bytes)| {
            Some(if hit.contains(&index) { Bytes::clone(&lies) } else { bytes.clone() })
        };
        let lying = tree(&shape, drives.iter().enumerate().map(lie).collect());
        assert_eq!(read(&lying, 0, block, &data, &mut Vec::new()), Err(Error::Mismatch));
    }
}

/// What drives have not that are behind the others is nowhere, unless a drive is missing besides.
#[test]
fn drives_that_slept_are_not_missing() {
    let shape = Shape::raidz(3, 1);
    let block = Block { offset: 0, size: 4096 };
    let data = noise(block.size, 4);
    let blank = || Some(Bytes::new(vec![0; DRIVE]));
    let (slept, always) = (Txg::new(BIRTH.get() - 1), Txg::new(u64::MAX));
    let error = |drives: [(Option<Bytes>, Txg); 3]| {
        let each = |(index, (bytes, synced))| leaf(index, bytes, synced);
        let tree = tree_of(&shape, drives.into_iter().enumerate().map(each).collect());
        read(&tree, 0, block, &data, &mut Vec::new()).unwrap_err()
    };
    let behind = error([(blank(), slept), (blank(), slept), (blank(), always)]);
    assert_eq!(behind, Error::Mismatch);
    let one_is_gone = error([(blank(), slept), (None, always), (blank(), always)]);
    assert_eq!(one_is_gone, Error::Unavailable { missing: 2, spare: 1 });
    // one that was gone before has not got it either
    let long_gone = leaf(1, None, always);
    long_gone.leaves()[0].set_gone_since(Txg::new(BIRTH.get() - 1));
    let children = vec![leaf(0, blank(), slept), long_gone, leaf(2, blank(), always)];
    let tree = tree_of(&shape, children);
    assert_eq!(read(&tree, 0, block, &data, &mut Vec::new()), Err(Error::Mismatch));
}

#[test]
fn without_a_checksum_what_is_read_is_taken_and_what_is_lost_is_rebuilt() {
    let shape = Shape::raidz(4, 1);
    let block = Block { offset: 0, size: 4096 };
    let data = noise(block.size, 3);
    let drives = write(vec![vec![0; DRIVE]; 4], &shape.map(block), &data);
    let mut some: Vec<_> = drives.into_iter().map(Some).collect();
    some[2] = None;
    let tree = tree(&shape, some);
    let any = |_: &[u8]| true;
    let request = vdev::Request { strict: false, ..request(block, &any) };
    let mut into = vec![0; block.size];
    tree.read(VdevId::new(0), &request, &mut into, &mut Vec::new()).unwrap();
    assert_eq!(into, data);
}
