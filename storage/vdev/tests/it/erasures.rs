//! Every set of drives that parity allows to be missing, for all usual arrays.

use geometry::Block;

use crate::array::{
    DRIVE_SIZE, SharedBytes, TestArray, array_tree, noise, read_block, write_block,
};

/// The sets of `missing` of `count` drives.
fn combinations(count: usize, missing: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..missing {
        let longer = |set: &Vec<usize>| {
            let first = set.last().map_or(0, |last| last + 1);
            (first..count).map(|next| [&set[..], &[next]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Reads a block of an array without each set of drives; returns how many sets there were.
fn read_without_each_set(width: u32, parity: u32, ashift: u64) -> usize {
    let shape = TestArray::raidz_with_ashift(width, parity, ashift);
    let unit = 1_usize << ashift;
    // more than a row, so that columns differ in length, and the last sector is not full
    let size = (width - parity) as usize * unit + unit / 2;
    let block = Block { offset: 3 << ashift, size };
    let data = noise(size, u64::from(width * 10 + parity));
    let junk = noise(DRIVE_SIZE, 7);
    let drives = write_block(vec![junk; width as usize], &shape.column_map(block), &data);
    let sets: Vec<_> =
        (0..=parity).flat_map(|n| combinations(width as usize, n as usize)).collect();
    for missing in &sets {
        let keep = |(index, bytes): (usize, &SharedBytes)| {
            (!missing.contains(&index)).then(|| bytes.clone())
        };
        let tree = array_tree(&shape, drives.iter().enumerate().map(keep).collect());
        let read = read_block(&tree, 0, block, &data, &mut Vec::new()).unwrap();
        assert!(read == data, "raidz{parity} of {width}, ashift {ashift}, without {missing:?}");
    }
    sets.len()
}

#[test]
fn every_erasure_pattern_up_to_parity_is_read() {
    let arrays = (1..=3_u32).flat_map(|parity| (parity + 1..=24).map(move |width| (width, parity)));
    let arrays: Vec<(u32, u32)> = arrays.collect();
    let sets = std::thread::scope(|scope| {
        let runs = [9, 12].map(|ashift| {
            let arrays = &arrays;
            let read =
                move |(width, parity): &(u32, u32)| read_without_each_set(*width, *parity, ashift);
            scope.spawn(move || arrays.iter().map(read).sum::<usize>())
        });
        runs.map(|run| run.join().unwrap())
    });
    // sums of binomial coefficients: none is left out
    let binomial = |n: u64, k: u64| (0..k).fold(1, |product, i| product * (n - i) / (i + 1));
    let of = |(width, parity): &(u32, u32)| -> u64 {
        (0..=u64::from(*parity)).map(|missing| binomial((*width).into(), missing)).sum()
    };
    let expected: u64 = arrays.iter().map(of).sum();
    assert_eq!(sets.map(|sets| sets as u64), [expected; 2]);
    assert!(expected > 15_000);
}
