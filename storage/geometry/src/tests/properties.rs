//! Properties of every layout, and invalid parameters.

use std::collections::BTreeSet;

use crate::draid::{DraidShape, ROW_HEIGHT};
use crate::{
    Block, Column, Draid, Error, Expandable, MAX_BLOCK, Map, Raidz, Reflow, ReflowPosition,
};
use proptest::prelude::*;
use units::{Ashift, Txg};

/// The sectors, as (child, sector, in the scratch copy), of columns; fails if one comes twice.
fn sectors(columns: impl Iterator<Item = Column>, ashift: Ashift) -> BTreeSet<(usize, u64, bool)> {
    let mut seen = BTreeSet::new();
    for column in columns {
        assert_eq!(column.offset % ashift.bytes(), 0);
        assert_eq!(column.size as u64 % ashift.bytes(), 0);
        for sector in 0..column.size as u64 / ashift.bytes() {
            let first = column.offset / ashift.bytes();
            assert!(seen.insert((column.child, first + sector, column.scratch)), "met twice");
        }
    }
    seen
}

fn all_sectors(map: &Map, ashift: Ashift) -> BTreeSet<(usize, u64, bool)> {
    let columns = map.rows().flat_map(|row| row.columns().iter().copied());
    sectors(columns.chain(map.padding().iter().copied()), ashift)
}

/// Whether the map's columns hold each byte of the block once, in rows as they must be.
fn check_rows(map: &Map, block: Block, parity: u32, ashift: Ashift) {
    assert_eq!(map.size() as u64, ashift.round_up(block.size as u64));
    let mut bytes = vec![0_u8; map.size()];
    for row in map.rows() {
        assert_eq!(row.parity().len(), parity as usize);
        assert!(row.height() > 0);
        assert!(row.parity().iter().all(|column| column.size == row.height()));
        let children: BTreeSet<_> = row.columns().iter().map(|column| column.child).collect();
        assert_eq!(children.len(), row.columns().len(), "a row has a drive once");
        for column in row.data() {
            assert!(column.size <= row.height());
            assert!(column.size as u64 + ashift.bytes() >= row.height() as u64);
            for byte in &mut bytes[column.data()] {
                *byte += 1;
            }
        }
    }
    assert!(bytes.iter().all(|count| *count == 1), "each byte is in one column");
}

/// The sectors that a run of the array's sectors has on `width` children.
fn run(first: u64, count: u64, width: u32) -> BTreeSet<(usize, u64, bool)> {
    let width = u64::from(width);
    (first..first + count)
        .map(|number| (usize::try_from(number % width).unwrap(), number / width, false))
        .collect()
}

prop_compose! {
    fn array()(parity in 1_u32..=3, extra in 1_u32..12, shift in 9_u64..=14) -> Raidz {
        Raidz::new(parity + extra, parity, Ashift::new(shift).unwrap()).unwrap()
    }
}

proptest! {
    #[test]
    fn raidz_blocks_fill_their_allocation(array in array(), at in 0_u64..1 << 20, size in 1_usize..300_000) {
        let ashift = array.ashift();
        let block = Block { offset: at << ashift.get(), size };
        let map = array.map(block).unwrap();
        check_rows(&map, block, array.parity(), ashift);
        let count = array.asize(size as u64) >> ashift.get();
        prop_assert_eq!(all_sectors(&map, ashift), run(at, count, array.width()));
        prop_assert_eq!(map.rows().len(), 1);
    }

    #[test]
    fn widened_raidz_blocks_fill_their_allocation(
        array in array(), added in 1_usize..4, at in 0_u64..1 << 20, size in 1_usize..200_000, birth in 0_u64..50,
    ) {
        let (ashift, parity) = (array.ashift(), array.parity());
        let now = Raidz::new(array.width() + u32::try_from(added).unwrap(), parity, ashift).unwrap();
        let finished: Vec<_> = (1..=added as u64).map(|count| Txg::new(count * 10)).collect();
        let grown = Expandable::new(now, &finished, None).unwrap();
        prop_assert_eq!(grown.original_width(), array.width());
        let birth = Txg::new(birth);
        let block = Block { offset: at << ashift.get(), size };
        let map = grown.map(block, birth).unwrap();
        check_rows(&map, block, parity, ashift);
        let count = grown.asize(size as u64, birth) >> ashift.get();
        prop_assert_eq!(all_sectors(&map, ashift), run(at, count, now.width()));
    }

    #[test]
    fn expansion_moves_rows_as_a_whole(
        array in array(), at in 0_u64..4000, size in 1_usize..200_000, done in 0_u64..5000, scratch: bool,
    ) {
        let (ashift, parity) = (array.ashift(), array.parity());
        let now = Raidz::new(array.width() + 1, parity, ashift).unwrap();
        let reflow = Reflow { offset: done << ashift.get(), scratch };
        let moving = Expandable::new(now, &[], Some(reflow)).unwrap();
        let block = Block { offset: at << ashift.get(), size };
        let map = moving.map(block, Txg::ZERO).unwrap();
        check_rows(&map, block, parity, ashift);
        // the same block, had the expansion not begun, and had it ended
        let count = array.asize(size as u64) >> ashift.get();
        let (old, new) = (run(at, count, array.width()), run(at, count, now.width()));
        for row in map.rows() {
            let of_row = sectors(row.columns().iter().copied(), ashift);
            let unscratched = of_row.iter().map(|(child, sector, _)| (*child, *sector, false));
            let of_row: BTreeSet<_> = unscratched.collect();
            prop_assert!(of_row.is_subset(&old) || of_row.is_subset(&new));
        }
        if done >= at + count + u64::from(array.width()) {
            for column in map.rows().flat_map(|row| row.columns().iter()) {
                let within = column.offset < crate::BOOT_SIZE;
                prop_assert_eq!(column.scratch, scratch && within);
            }
        }
        if done <= at {
            let found = map.rows().flat_map(|row| row.columns().iter().copied());
            prop_assert!(sectors(found, ashift).is_subset(&old));
        }
    }

    #[test]
    fn copied_sectors_are_written_at_both_widths(
        array in array(), at in 0_u64..4000, size in 1_usize..200_000,
        (synced, ahead, later) in (0_u64..5000, 0_u64..600, 0_u64..600), scratch: bool,
    ) {
        let (ashift, shift) = (array.ashift(), array.ashift().get());
        let now = Raidz::new(array.width() + 1, array.parity(), ashift).unwrap();
        let moving =
            Expandable::new(now, &[], Some(Reflow { offset: 0, scratch: false })).unwrap();
        let block = Block { offset: at << shift, size };
        let next = synced + ahead;
        let written = ReflowPosition { synced: synced << shift, next: next << shift, scratch };
        let written = moving.map_during(block, Txg::ZERO, Some(written)).unwrap();
        // what copying has not reached is copied from the columns' own places later
        let synced = (synced + later.min(ahead)) << shift;
        let read = ReflowPosition { synced, next: synced, scratch };
        let read = moving.map_during(block, Txg::ZERO, Some(read)).unwrap();
        for (row, (own, other)) in written.rows().zip(read.rows()).enumerate() {
            for (index, (own, other)) in own.columns().iter().zip(other.columns()).enumerate() {
                let shadow = written.shadows().iter().find(|s| s.row == row && s.index == index);
                let place = (other.child, other.offset, other.scratch);
                let is_shadow = shadow.is_some_and(|s| (s.child, s.offset, s.scratch) == place);
                prop_assert!(own.size == 0 || own == other || is_shadow);
            }
        }
    }

    #[test]
    fn draid_blocks_take_whole_rows(
        parity in 1_u32..=3, data in 1_u32..9, spares in 0_u32..4, extra in 0_u32..12,
        group in 0_u64..200, rows_left in 1_u64..40, size in 1_usize..600_000,
    ) {
        let children = (data + parity + spares + extra).max(2);
        let shape = DraidShape::with_fewest_groups(children, data, parity, spares);
        let ashift = Ashift::new(12).unwrap();
        let draid = Draid::new(shape, ashift).unwrap();
        // near the end of a group, so that many blocks cross into the next
        let offset = (group + 1) * draid.group_size() - rows_left * draid.row_size();
        let block = Block { offset, size };
        let map = draid.map(block).unwrap();
        check_rows(&map, block, parity, ashift);
        let mine = all_sectors(&map, ashift);
        let taken = draid.asize(size as u64);
        prop_assert_eq!(mine.len() as u64, taken >> 12);
        prop_assert_eq!(map.rows().len() == 2, taken > rows_left * draid.row_size());
        // neighbours have other sectors
        let next = draid.map(Block { offset: offset + taken, size: 100_000 }).unwrap();
        prop_assert!(mine.is_disjoint(&all_sectors(&next, ashift)));
        // and no distributed spare lies among them
        for column in map.rows().flat_map(|row| row.columns().iter()) {
            for spare in 0..spares {
                prop_assert_ne!(draid.spare_child(spare, column.offset), Some(column.child));
            }
        }
    }

    #[test]
    fn no_address_makes_a_panic(offset: u64, size: usize, birth: u64, done: u64, scratch: bool) {
        let ashift = Ashift::new(9).unwrap();
        let reflow = Some(Reflow { offset: done, scratch });
        let moving = Expandable::new(Raidz::new(6, 2, ashift).unwrap(), &[], reflow).unwrap();
        let size = size % (2 * MAX_BLOCK);
        for offset in [offset, offset & !511, offset & !511 & ((1 << 62) - 1)] {
            let _ = moving.map(Block { offset, size }, Txg::new(birth));
            let _ = moving.current().map(Block { offset, size });
        }
        let _ = moving.asize(offset, Txg::new(birth));
    }
}

#[test]
fn draid_slice_is_covered_exactly_once() {
    let ashift = Ashift::new(16).unwrap();
    let draid = Draid::new(DraidShape::with_fewest_groups(8, 3, 1, 1), ashift).unwrap();
    assert_eq!(draid.shape().groups, 7);
    let mut seen = BTreeSet::new();
    let mut offset = 0;
    while offset < 7 * draid.group_size() {
        let map = draid.map(Block { offset, size: 3 << 16 }).unwrap();
        for sector in all_sectors(&map, ashift) {
            assert!(seen.insert(sector));
        }
        offset += draid.row_size();
    }
    // the spare's drive is free, all others are full
    let depth = draid.slice_size() >> 16;
    assert_eq!(draid.slice_size(), 4 * ROW_HEIGHT);
    let spare = draid.spare_child(0, 0).unwrap();
    for child in (0..8).filter(|child| *child != spare) {
        assert!((0..depth).all(|sector| seen.contains(&(child, sector, false))));
    }
    assert_eq!(seen.len() as u64, 7 * depth);
}

#[test]
fn invalid_shapes_are_refused() {
    let ashift = Ashift::new(12).unwrap();
    for (children, parity) in [(0, 0), (3, 0), (1, 1), (3, 3), (5, 4), (256, 1)] {
        let refused = Err(Error::RaidzShape { children, parity });
        assert_eq!(Raidz::new(children, parity, ashift), refused);
    }
    let now = Raidz::new(4, 2, ashift).unwrap();
    let txgs = [Txg::new(1), Txg::new(2)];
    assert!(Expandable::new(now, &txgs[..1], None).is_ok());
    assert!(Expandable::new(now, &txgs, None).is_err());
    let good = DraidShape { children: 8, data: 3, parity: 1, spares: 1, groups: 7 };
    assert!(Draid::new(good, ashift).is_ok());
    for bad in [
        DraidShape { children: 256, ..good },
        DraidShape { data: 0, ..good },
        DraidShape { data: u32::MAX, ..good },
        DraidShape { parity: 4, ..good },
        DraidShape { spares: 5, ..good },
        DraidShape { groups: 6, ..good },
        DraidShape { groups: 0, ..good },
    ] {
        assert!(Draid::new(bad, ashift).is_err(), "{bad:?}");
    }
}

#[test]
fn invalid_addresses_are_refused() {
    let ashift = Ashift::new(12).unwrap();
    let raidz = Raidz::new(5, 2, ashift).unwrap();
    let refused = |offset, size| raidz.map(Block { offset, size }).unwrap_err();
    assert_eq!(refused(512, 512), Error::Unaligned { offset: 512, unit: 4096 });
    assert_eq!(refused(0, 0), Error::Size { size: 0 });
    assert_eq!(refused(0, MAX_BLOCK + 1), Error::Size { size: MAX_BLOCK + 1 });
    assert_eq!(refused(1 << 63, 512), Error::OffsetTooLarge { offset: 1 << 63 });
    let draid = Draid::new(DraidShape::with_fewest_groups(8, 3, 1, 1), ashift).unwrap();
    let error = draid.map(Block { offset: 4096, size: 512 }).unwrap_err();
    assert_eq!(error, Error::Unaligned { offset: 4096, unit: 4 << 12 });
    assert_eq!(draid.spare_child(1, 0), None);
}

#[test]
fn uberblock_reflow_word_is_decoded() {
    // as a real pool had it: state 4, offset 135790592
    let word = (4 << 55) | (135790592 >> 9);
    let reflow = Reflow { offset: 135790592, scratch: false };
    assert_eq!(Reflow::from_uberblock(word), reflow);
    let word = (1 << 55) | (14680064 >> 9);
    assert_eq!(Reflow::from_uberblock(word), Reflow { offset: 14680064, scratch: true });
}

#[test]
fn scratch_columns_lie_in_the_boot_area() {
    let now = Raidz::new(4, 1, Ashift::new(12).unwrap()).unwrap();
    let reflow = Reflow { offset: 4 * (7 << 19), scratch: true };
    let moving = Expandable::new(now, &[], Some(reflow)).unwrap();
    let map = moving.map(Block { offset: 0, size: 8192 }, Txg::ZERO).unwrap();
    let row = map.rows().next().unwrap();
    assert!(row.columns().iter().all(|column| column.device_offset() == 512 << 10));
    let far = moving.map(Block { offset: 4 * (7 << 19), size: 8192 }, Txg::ZERO).unwrap();
    let row = far.rows().next().unwrap();
    assert!(row.columns().iter().all(|column| column.device_offset() >= 4 << 20));
}
