//! Each guarantee once, by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use metaslab::{
    AllocRequest, Allocator, Class, Error, MapReader, MetaslabGroupSpec, RangeSet, RemapFn,
};
use ondisk::Dva;
use units::{Ashift, MetaslabId, Txg, VdevId};

use crate::vdevs::{SECTOR, empty_allocator, vdev_spec};

const TXG: Txg = Txg::new(10);

fn allocate_one(allocator: &Allocator, want: &AllocRequest) -> Dva {
    allocator.allocate(want).unwrap()[0].unwrap()
}

fn sync_txg(allocator: &Allocator, txg: Txg) {
    allocator.drain_changes(txg);
    allocator.mark_synced(txg);
}

#[test]
fn freed_space_waits_for_three_txgs() {
    let allocator = empty_allocator(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let dva = allocate_one(&allocator, &AllocRequest::new(1 << 20, TXG));
    allocator.free(&dva, Txg::new(11)).unwrap();
    assert!(matches!(allocator.free(&dva, Txg::new(11)), Err(Error::NotAllocated { .. })));
    for now in 10..13 {
        let full = allocator.allocate(&AllocRequest::new(SECTOR, Txg::new(14)));
        assert_eq!(full, Err(Error::NoSpace { psize: SECTOR }));
        sync_txg(&allocator, Txg::new(now));
    }
    assert_eq!(allocator.class_usage(Class::Normal).deferred, 1 << 20);
    sync_txg(&allocator, Txg::new(13));
    allocate_one(&allocator, &AllocRequest::new(1 << 20, Txg::new(14)));
}

#[test]
fn pinned_frees_are_not_reused() {
    let allocator = empty_allocator(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let half = AllocRequest::new(512 << 10, TXG);
    let (before, under) = (allocate_one(&allocator, &half), allocate_one(&allocator, &half));
    allocator.free(&before, Txg::new(10)).unwrap();
    sync_txg(&allocator, TXG);
    let pin = allocator.pin(TXG);
    allocator.free(&under, Txg::new(11)).unwrap();
    for now in 11..20 {
        assert!(!pin.is_release_requested() || now > 13);
        sync_txg(&allocator, Txg::new(now));
    }
    assert!(pin.is_release_requested(), "space is short");
    let again = allocate_one(&allocator, &AllocRequest::new(512 << 10, Txg::new(20)));
    assert_eq!(again, before, "blocks that the pin does not protect");
    assert!(allocator.allocate(&AllocRequest::new(SECTOR, Txg::new(20))).is_err());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| allocator.wait_for_pins());
        while !waits.is_finished() && !pin.is_release_requested() {
            std::thread::yield_now();
        }
        drop(pin);
    });
    allocator.wait_for_pins();
    sync_txg(&allocator, Txg::new(20));
    assert_eq!(allocate_one(&allocator, &AllocRequest::new(512 << 10, Txg::new(21))), under);
}

#[test]
fn copies_lie_on_different_vdevs_or_else_apart() {
    let several =
        empty_allocator((0..3).map(|vdev| vdev_spec(vdev, Class::Normal, 32 << 20)).collect());
    let want = AllocRequest { copies: 3, ..AllocRequest::new(SECTOR, TXG) };
    for _ in 0..100 {
        let copies = several.allocate(&want).unwrap();
        let mut vdevs: Vec<_> = copies.iter().flatten().map(|dva| dva.vdev).collect();
        vdevs.sort_unstable();
        assert_eq!(vdevs, [0, 1, 2].map(VdevId::new));
    }
    let single = empty_allocator(vec![vdev_spec(0, Class::Normal, 32 << 20)]);
    for _ in 0..100 {
        let [Some(a), Some(b), Some(c)] = single.allocate(&want).unwrap() else { panic!("three") };
        for (one, other) in [(a, b), (a, c), (b, c)] {
            assert!(one.offset.abs_diff(other.offset) >= 3 << 20, "{one} {other}");
        }
    }
}

#[test]
fn all_copies_or_none() {
    let allocator = empty_allocator(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let want = AllocRequest { copies: 3, ..AllocRequest::new(400 << 10, TXG) };
    assert!(allocator.allocate(&want).is_err());
    assert_eq!(allocator.class_usage(Class::Normal).allocated, 0);
    assert_eq!(allocator.drain_changes(TXG), []);
    assert_eq!(allocator.largest_free_block(Class::Normal), 1 << 20);
}

#[test]
fn full_pool_uses_the_last_sector() {
    let allocator = empty_allocator(vec![
        vdev_spec(0, Class::Normal, 2 << 20),
        vdev_spec(1, Class::Normal, 3 << 20),
    ]);
    let sizes = [31, 7, 64, 1, 17, 3].map(|sectors| sectors * SECTOR);
    for size in sizes.into_iter().cycle().take(400) {
        let _ = allocator.allocate(&AllocRequest::new(size, TXG));
    }
    let mut largest = allocator.largest_free_block(Class::Normal);
    while largest > 0 {
        allocate_one(&allocator, &AllocRequest::new(largest, TXG));
        largest = allocator.largest_free_block(Class::Normal);
    }
    assert_eq!(allocator.class_usage(Class::Normal).allocated, 5 << 20);
    assert_eq!(allocator.allocate(&AllocRequest::new(1, TXG)), Err(Error::NoSpace { psize: 1 }));
}

#[test]
fn vdevs_fill_up_together() {
    let allocator = empty_allocator(vec![
        vdev_spec(0, Class::Normal, 512 << 20),
        vdev_spec(1, Class::Normal, 2 << 30),
    ]);
    for _ in 0..640 {
        allocate_one(&allocator, &AllocRequest::new(1 << 20, TXG));
    }
    let used = |vdev| allocator.vdev_usage(VdevId::new(vdev)).unwrap();
    let percent = |vdev| used(vdev).allocated * 100 / used(vdev).capacity;
    assert!(percent(0).abs_diff(percent(1)) <= 3, "{} % and {} %", percent(0), percent(1));
}

#[test]
fn vdevs_of_unlike_width_fill_up_together() {
    let wide = MetaslabGroupSpec { data_width: 16, ..vdev_spec(0, Class::Normal, 1536 << 20) };
    let narrow = MetaslabGroupSpec { data_width: 4, ..vdev_spec(1, Class::Normal, 512 << 20) };
    let allocator = empty_allocator(vec![wide, narrow]);
    for _ in 0..640 {
        allocate_one(&allocator, &AllocRequest::new(1 << 20, TXG));
    }
    let used = |vdev| allocator.vdev_usage(VdevId::new(vdev)).unwrap();
    let percent = |vdev| used(vdev).allocated * 100 / used(vdev).capacity;
    assert!(percent(0).abs_diff(percent(1)) <= 3, "{} % and {} %", percent(0), percent(1));
}

#[test]
fn a_closed_vdev_gets_nothing_but_may_free() {
    let allocator = empty_allocator(vec![
        vdev_spec(0, Class::Normal, 1 << 20),
        vdev_spec(1, Class::Normal, 1 << 20),
    ]);
    let hint = Some(VdevId::new(0));
    let dva = allocate_one(
        &allocator,
        &AllocRequest { preferred_vdev: hint, ..AllocRequest::new(SECTOR, TXG) },
    );
    assert_eq!(dva.vdev, VdevId::new(0));
    allocator.set_allocatable(dva.vdev, false).unwrap();
    let other = allocate_one(
        &allocator,
        &AllocRequest { preferred_vdev: hint, ..AllocRequest::new(SECTOR, TXG) },
    );
    assert_eq!(other.vdev, VdevId::new(1));
    allocator.free(&dva, TXG).unwrap();
    let changes = allocator.drain_changes(TXG);
    assert_eq!(changes.len(), 1, "a range allocated and freed in a txg is left out: {changes:?}");
}

#[test]
fn classes_fall_back_and_embedded_logs_do_not() {
    let normal = vdev_spec(0, Class::Normal, 65 << 20);
    let allocator = empty_allocator(vec![
        normal,
        vdev_spec(1, Class::Log, 1 << 20),
        vdev_spec(2, Class::Special, 1 << 20),
    ]);
    let of = |class| AllocRequest { class, ..AllocRequest::new(1 << 20, TXG) };
    let embedded = allocator.class_usage(Class::EmbeddedLog);
    assert_eq!(
        (embedded.capacity, allocator.class_usage(Class::Normal).capacity),
        (1 << 20, 64 << 20)
    );
    let places: Vec<_> = (0..3).map(|_| allocate_one(&allocator, &of(Class::Log))).collect();
    assert_eq!(places.iter().map(|dva| dva.vdev.get()).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(allocator.class_usage(Class::EmbeddedLog).allocated, 1 << 20);
    let special = [
        allocate_one(&allocator, &of(Class::Dedup)),
        allocate_one(&allocator, &of(Class::Special)),
    ];
    assert_eq!(special.map(|dva| dva.vdev.get()), [2, 0]);
    for dva in &places {
        allocator.free(dva, TXG).unwrap();
    }
    for txg in 10..13 {
        sync_txg(&allocator, Txg::new(txg));
    }
    while allocator.allocate(&of(Class::Normal)).is_ok() {}
    let log = allocate_one(&allocator, &of(Class::EmbeddedLog));
    assert_eq!(log.offset, places[1].offset, "a normal block never got there");
}

#[test]
fn unloaded_metaslabs_are_the_last_choice() {
    let allocator = Allocator::new(vec![vdev_spec(0, Class::Normal, 2 << 20)]);
    let (vdev, first, second) = (VdevId::new(0), MetaslabId::new(0), MetaslabId::new(1));
    allocator.set_metaslab_hints(vdev, &[(1 << 19, None), (SECTOR, None)]).unwrap();
    assert_eq!(allocator.unloaded_metaslabs(), [(vdev, second), (vdev, first)]);
    let missing = allocator.allocate(&AllocRequest::new(1 << 19, TXG));
    assert_eq!(missing, Err(Error::NotLoaded { vdev, metaslab: second }));
    allocator
        .load_metaslab(vdev, first, RangeSet::from_range(1 << 19..1 << 20), Txg::new(9))
        .unwrap();
    let dva = allocate_one(&allocator, &AllocRequest::new(1 << 19, TXG));
    assert_eq!(dva.offset, 1 << 19);
    let missing = allocator.allocate(&AllocRequest::new(SECTOR, TXG));
    assert_eq!(missing, Err(Error::NotLoaded { vdev, metaslab: second }));
    let too_large = allocator.allocate(&AllocRequest::new(1 << 20, TXG));
    assert_eq!(too_large, Err(Error::NoSpace { psize: 1 << 20 }), "it has not so much");
}

#[test]
fn rows_larger_than_a_metaslab_do_not_fit() {
    for row in [3 << 20, u64::MAX / 2 + 1, u64::MAX] {
        let allocator = empty_allocator(vec![MetaslabGroupSpec {
            alignment: row,
            ..vdev_spec(0, Class::Normal, 2 << 20)
        }]);
        let none = allocator.allocate(&AllocRequest::new(SECTOR, TXG));
        assert_eq!(none, Err(Error::NoSpace { psize: SECTOR }), "{row}");
    }
}

/// A map reader: everything but the first sector of each metaslab is free; of the middle
/// one only once it is readable.
#[derive(Default)]
struct TestMaps {
    is_readable: AtomicBool,
    reads: AtomicUsize,
}

impl MapReader for TestMaps {
    fn read_free_ranges(&self, _: VdevId, metaslab: MetaslabId) -> Option<(RangeSet, Txg)> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let start = u64::from(metaslab.get()) << 20;
        let is_there = metaslab.get() != 1 || self.is_readable.load(Ordering::Relaxed);
        is_there.then(|| (RangeSet::from_range(start + SECTOR..start + (1 << 20)), TXG))
    }
}

#[test]
fn maps_are_read_when_they_are_needed() {
    let allocator = Allocator::new(vec![vdev_spec(0, Class::Normal, 3 << 20)]);
    let maps = Arc::new(TestMaps::default());
    allocator.set_map_reader(Arc::clone(&maps) as Arc<dyn MapReader>);
    let mut want = AllocRequest::new((1 << 20) - SECTOR, TXG);
    let found = [allocate_one(&allocator, &want).offset, allocate_one(&allocator, &want).offset];
    assert_eq!(found, [SECTOR, (2 << 20) + SECTOR]);
    want.psize = SECTOR;
    let none = allocator.allocate(&want);
    assert_eq!(none, Err(Error::NoSpace { psize: SECTOR }), "the map in the middle is unreadable");
    maps.is_readable.store(true, Ordering::Relaxed);
    assert!(allocator.allocate(&want).is_err(), "it is not tried each time");
    allocator.retry_unreadable_maps();
    assert_eq!(allocate_one(&allocator, &want).offset, (1 << 20) + SECTOR);
}

#[test]
fn unreadable_map_is_retried_and_not_used() {
    let allocator = Allocator::new(vec![vdev_spec(0, Class::Normal, 3 << 20)]);
    let maps = Arc::new(TestMaps::default());
    allocator.set_map_reader(Arc::clone(&maps) as Arc<dyn MapReader>);
    let out_of_reach = || allocator.class_usage(Class::Normal).unreadable;
    allocator.ensure_loaded_free(Class::Normal, 1, TXG);
    assert_eq!((allocator.unloaded_metaslabs().len(), out_of_reach()), (2, 0), "one is enough");
    let all = 3 << 20;
    allocator.ensure_loaded_free(Class::Normal, all, TXG);
    assert_eq!((allocator.unloaded_metaslabs().len(), out_of_reach()), (1, 1 << 20));
    // once more in the next txg, in vain, and then in the second after that
    for (txg, reads) in [(10, 3), (11, 4), (12, 4), (13, 5), (14, 5), (16, 5), (17, 6)] {
        allocator.ensure_loaded_free(Class::Normal, all, Txg::new(txg));
        assert_eq!(maps.reads.load(Ordering::Relaxed), reads, "{txg}");
    }
    maps.is_readable.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        allocate_one(&allocator, &AllocRequest::new((1 << 20) - SECTOR, Txg::new(18)));
    }
    let want = AllocRequest::new(SECTOR, Txg::new(24));
    assert!(allocator.allocate(&want).is_err(), "it is not time yet");
    let want = AllocRequest::new(SECTOR, Txg::new(25));
    assert_eq!(allocate_one(&allocator, &want).offset, (1 << 20) + SECTOR);
    assert_eq!(out_of_reach(), 0);
}

#[test]
fn rewritten_map_excludes_later_changes() {
    let allocator = empty_allocator(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let (vdev, metaslab) = (VdevId::new(0), MetaslabId::new(0));
    let early = allocate_one(&allocator, &AllocRequest::new(SECTOR, TXG));
    let late = allocate_one(&allocator, &AllocRequest::new(SECTOR, Txg::new(11)));
    let brief = allocate_one(&allocator, &AllocRequest::new(SECTOR, Txg::new(11)));
    allocator.free(&brief, Txg::new(11)).unwrap();
    allocator.drain_changes(TXG);
    allocator.free(&early, Txg::new(11)).unwrap();
    let free = allocator.free_as_written(vdev, metaslab).unwrap().unwrap();
    assert!(free.overlaps(&(late.offset..late.offset + SECTOR)));
    assert_eq!(free.total(), (1 << 20) - SECTOR);
    assert_eq!(allocator.drain_changes(Txg::new(11)).len(), 1);
    let free = allocator.free_as_written(vdev, metaslab).unwrap().unwrap();
    assert_eq!(free.intersection(&(0..1 << 20)).len(), 2, "around the late one");
    let counts = allocator.histogram(vdev, metaslab).unwrap().unwrap();
    assert_eq!(counts.iter().sum::<u64>(), 3, "early, brief, and all behind");
}

#[test]
fn frees_before_the_load_are_deferred_too() {
    let allocator = Allocator::new(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let (vdev, metaslab) = (VdevId::new(0), MetaslabId::new(0));
    allocator.set_metaslab_hints(vdev, &[(1 << 20, None)]).unwrap();
    let dva = Dva { vdev, offset: 0, asize: 1 << 19, gang: false };
    allocator.free(&dva, TXG).unwrap();
    assert!(matches!(allocator.claim(&dva, TXG), Err(Error::NotLoaded { .. })));
    sync_txg(&allocator, TXG);
    let all = || RangeSet::from_range(0..1 << 20);
    // the map as of that txg has it free, and so is the other half
    allocator.load_metaslab(vdev, metaslab, all(), TXG).unwrap();
    assert_eq!(allocate_one(&allocator, &AllocRequest::new(1 << 19, Txg::new(11))).offset, 1 << 19);
    assert!(allocator.allocate(&AllocRequest::new(SECTOR, Txg::new(11))).is_err());
    assert_eq!(allocator.free_as_written(vdev, metaslab).unwrap(), Some(all()));

    let late = Allocator::new(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    late.set_metaslab_hints(vdev, &[(1 << 19, None)]).unwrap();
    late.free(&dva, TXG).unwrap();
    for txg in 10..13 {
        sync_txg(&late, Txg::new(txg));
    }
    let stale = late.load_metaslab(vdev, metaslab, RangeSet::new(), Txg::new(9));
    assert_eq!(stale, Err(Error::StaleMap { vdev, metaslab }));
    late.load_metaslab(vdev, metaslab, RangeSet::from_range(0..1 << 19), TXG).unwrap();
    assert_eq!(allocate_one(&late, &AllocRequest::new(1 << 19, Txg::new(13))).offset, 0);
}

#[test]
fn claims_take_just_that() {
    let allocator = empty_allocator(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let dva = Dva { vdev: VdevId::new(0), offset: 5 * SECTOR, asize: 2 * SECTOR, gang: false };
    allocator.claim(&dva, TXG).unwrap();
    assert!(matches!(allocator.claim(&dva, TXG), Err(Error::NotFree { .. })));
    let changes = allocator.drain_changes(TXG);
    assert_eq!(changes[0].allocated, vec![5 * SECTOR..7 * SECTOR]);
    assert_eq!(allocator.largest_free_block(Class::Normal), (1 << 20) - 7 * SECTOR);
    for (offset, asize) in [(1 << 20, SECTOR), ((1 << 20) - SECTOR, 2 * SECTOR), (0, 0)] {
        let wrong = Dva { offset, asize, ..dva };
        assert!(matches!(allocator.claim(&wrong, TXG), Err(Error::InvalidRange { .. })));
        assert!(matches!(allocator.free(&wrong, TXG), Err(Error::InvalidRange { .. })));
    }
}

#[test]
fn gang_header_frees_only_its_own_space() {
    let allocator = empty_allocator(vec![vdev_spec(0, Class::Normal, 1 << 20)]);
    let dva = allocate_one(&allocator, &AllocRequest::new(512, TXG));
    assert_eq!(dva.asize, SECTOR);
    allocator.free(&Dva { asize: 1 << 19, gang: true, ..dva }, TXG).unwrap();
    assert_eq!(allocator.class_usage(Class::Normal).deferred, SECTOR);
}

#[test]
fn metaslabs_of_a_draid_begin_with_a_row() {
    let row = 3 * SECTOR;
    let cost = Arc::new(move |psize: u64, _| psize.next_multiple_of(row));
    let allocator = empty_allocator(vec![MetaslabGroupSpec {
        alignment: row,
        asize_fn: cost,
        ..vdev_spec(0, Class::Normal, 2 << 20)
    }]);
    let second = allocator.extent(VdevId::new(0), MetaslabId::new(1)).unwrap();
    assert_eq!((second.start % row, second.end % row), (0, 0));
    assert!(second.start >= 1 << 20 && second.end <= 2 << 20);
    while let Ok([Some(dva), ..]) = allocator.allocate(&AllocRequest::new(SECTOR, TXG)) {
        assert_eq!(dva.offset % row, 0);
    }
    let usage = allocator.class_usage(Class::Normal);
    assert_eq!(usage.allocated, usage.capacity);
}

/// A removed vdev whose data is on another in segments of 64 KiB, in reverse order.
fn reversed_remap(other: u32) -> RemapFn {
    const PIECE_SIZE: u64 = 64 << 10;
    Arc::new(move |range: std::ops::Range<u64>| {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at / PIECE_SIZE + 1) * PIECE_SIZE;
            let number = 7_u64.checked_sub(at / PIECE_SIZE)?;
            let to = number * PIECE_SIZE + at % PIECE_SIZE;
            pieces.push((VdevId::new(other), to..to + end.min(range.end) - at));
            at = end;
        }
        Some(pieces)
    })
}

#[test]
fn block_on_removed_vdev_frees_its_mapped_space() {
    const KIB: u64 = 1 << 10;
    let allocator = empty_allocator(vec![vdev_spec(2, Class::Normal, 1 << 20)]);
    let all = allocate_one(&allocator, &AllocRequest::new(512 * KIB, TXG));
    assert_eq!((all.vdev, all.offset), (VdevId::new(2), 0));
    sync_txg(&allocator, TXG);
    let ashift = Ashift::new(9).unwrap();
    allocator.add_removed_vdev(VdevId::new(0), ashift, reversed_remap(1));
    allocator.add_removed_vdev(VdevId::new(1), ashift, reversed_remap(2));
    // twice round is where it was
    let (txg, later) = (Txg::new(11), Txg::new(12));
    let dva = Dva { vdev: VdevId::new(0), offset: 32 * KIB, asize: 64 * KIB, gang: false };
    allocator.free(&dva, txg).unwrap();
    let header = Dva { vdev: VdevId::new(1), offset: 0, asize: 300 * KIB, gang: true };
    allocator.free(&header, later).unwrap();
    assert!(matches!(allocator.free(&dva, later), Err(Error::NotAllocated { .. })));
    let beyond = Dva { offset: 600 * KIB, ..dva };
    assert!(matches!(allocator.free(&beyond, later), Err(Error::InvalidRange { .. })));

    let freed = |txg| -> Vec<_> {
        allocator.drain_changes(txg).into_iter().flat_map(|change| change.freed).collect()
    };
    let quarter = 32 * KIB..96 * KIB;
    assert!(freed(txg).into_iter().eq([quarter]));
    let sector = 448 * KIB..448 * KIB + 512;
    assert!(freed(later).into_iter().eq([sector]), "a gang header has one sector");
    let obsolete = |txg| -> Vec<_> {
        let all = allocator.drain_obsolete(txg).into_iter();
        all.flat_map(|(vdev, ranges)| ranges.iter().map(|r| (vdev.get(), r)).collect::<Vec<_>>())
            .collect()
    };
    let [above, below] = [384 * KIB..416 * KIB, 480 * KIB..512 * KIB];
    assert_eq!(obsolete(txg), [(0, 32 * KIB..96 * KIB), (1, above), (1, below)]);
    assert_eq!(obsolete(later), [(1, 0..512)]);
    assert_eq!(obsolete(txg), []);
}
