//! The allocator against the plainest model there is: the state of every sector.

use std::collections::HashMap;
use std::ops::Range;

use metaslab::{AllocRequest, Allocator, Class, Error, RangeSet};
use ondisk::Dva;
use proptest::prelude::*;
use units::{MetaslabId, Txg, VdevId};

use crate::vdevs::{self, SECTOR, vdev_spec};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sector {
    Free,
    Used,
    /// Freed in that txg.
    Deferred(u64),
}

#[derive(Clone, Debug)]
enum Step {
    /// Sectors, copies, and whether it is of the txg that is being synced.
    Allocate(u64, u8, bool),
    /// Which of the live blocks.
    Free(usize, bool),
    /// Undo the youngest allocation.
    Unallocate,
    /// A txg goes to disk.
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..40_u64, 1..4_u8, any::<bool>())
            .prop_map(|(sectors, copies, late)| Step::Allocate(sectors, copies, late)),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, late)| Step::Free(which, late)),
        1 => Just(Step::Unallocate),
        1 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 0..400)
}

/// The allocator, the model, and the content of space maps.
struct ModelTest {
    allocator: Allocator,
    sectors: HashMap<VdevId, Vec<Sector>>,
    live: Vec<(Dva, u64)>,
    synced_maps: HashMap<(VdevId, MetaslabId), RangeSet>,
    open_txg: u64,
}

impl ModelTest {
    fn new() -> Self {
        let tops = vec![vdev_spec(0, Class::Normal, 4 << 20), vdev_spec(1, Class::Normal, 3 << 20)];
        let sectors = tops.iter().map(|top| {
            let count = usize::try_from(top.asize / SECTOR).unwrap();
            (top.vdev, vec![Sector::Free; count])
        });
        let sectors = sectors.collect();
        let allocator = vdevs::empty_allocator(tops);
        Self { allocator, sectors, live: Vec::new(), synced_maps: HashMap::new(), open_txg: 10 }
    }

    fn sectors_of(&mut self, dva: &Dva) -> &mut [Sector] {
        let at = |offset: u64| usize::try_from(offset / SECTOR).unwrap();
        let all = self.sectors.get_mut(&dva.vdev).unwrap();
        &mut all[at(dva.offset)..at(dva.offset + dva.asize)]
    }

    /// The open txg, or the one before, which is being synced.
    fn txg(&self, late: bool) -> Txg {
        Txg::new(self.open_txg - u64::from(late))
    }

    fn allocate(&mut self, sectors: u64, copies: u8, late: bool) {
        let txg = self.txg(late);
        let want = AllocRequest { copies, ..AllocRequest::new(sectors * SECTOR, txg) };
        match self.allocator.allocate(&want) {
            Ok(found) => {
                let found: Vec<Dva> = found.into_iter().flatten().collect();
                assert_eq!(found.len(), usize::from(copies));
                for dva in found {
                    assert_eq!(dva.asize, sectors * SECTOR);
                    assert_eq!(dva.offset >> 20, (dva.offset + dva.asize - 1) >> 20);
                    for sector in self.sectors_of(&dva) {
                        assert_eq!(*sector, Sector::Free);
                        *sector = Sector::Used;
                    }
                    self.live.push((dva, txg.get()));
                }
            }
            // several copies may not find places at once where one does
            Err(Error::NoSpace { .. }) if copies > 1 => {}
            Err(Error::NoSpace { .. }) => assert!(self.longest_free_run() < sectors),
            Err(error) => panic!("{error}"),
        }
    }

    /// Sectors of the longest free run within a metaslab.
    fn longest_free_run(&self) -> u64 {
        let runs = self
            .sectors
            .values()
            .flat_map(|all| all.chunks(256))
            .flat_map(|slab| slab.split(|sector| *sector != Sector::Free).map(<[Sector]>::len));
        u64::try_from(runs.max().unwrap()).unwrap()
    }

    fn free(&mut self, which: usize, late: bool) {
        if self.live.is_empty() {
            return;
        }
        let (dva, born) = self.live.swap_remove(which % self.live.len());
        let txg = self.txg(late && born < self.open_txg);
        self.allocator.free(&dva, txg).unwrap();
        self.sectors_of(&dva).fill(Sector::Deferred(txg.get()));
        let again = self.allocator.free(&dva, txg);
        assert!(matches!(again, Err(Error::NotAllocated { .. })));
    }

    fn unallocate_last(&mut self) {
        let Some((dva, born)) = self.live.last().copied() else { return };
        // a drained allocation can only be freed
        if born == self.open_txg {
            self.live.pop();
            self.allocator.unallocate(&dva, Txg::new(born)).unwrap();
            self.sectors_of(&dva).fill(Sector::Free);
        }
    }

    fn sync(&mut self) {
        let txg = self.open_txg - 1;
        loop {
            let changes = self.allocator.drain_changes(Txg::new(txg));
            if changes.is_empty() {
                break;
            }
            for change in changes {
                let map = self.synced_maps.entry((change.vdev, change.metaslab)).or_default();
                for range in change.allocated {
                    assert!(!map.overlaps(&range), "allocated twice");
                    map.insert(range);
                }
                for range in change.freed {
                    assert!(map.containing(&range).is_some(), "freed, and was not allocated");
                    map.remove(&range);
                }
            }
        }
        self.allocator.mark_synced(Txg::new(txg));
        for sector in self.sectors.values_mut().flatten() {
            if matches!(sector, Sector::Deferred(of) if *of + 2 <= txg) {
                *sector = Sector::Free;
            }
        }
        self.open_txg += 1;
    }

    fn compare(&self) {
        let count = |wanted: fn(&Sector) -> bool| {
            let all = self.sectors.values().flatten().filter(|sector| wanted(sector));
            u64::try_from(all.count()).unwrap() * SECTOR
        };
        let usage = self.allocator.class_usage(Class::Normal);
        assert_eq!(usage.capacity, 7 << 20);
        assert_eq!(usage.allocated, count(|sector| *sector == Sector::Used));
        assert_eq!(usage.deferred, count(|sector| matches!(sector, Sector::Deferred(_))));
        assert_eq!(
            self.allocator.largest_free_block(Class::Normal),
            self.longest_free_run() * SECTOR
        );
    }

    /// The content of the space maps equals the allocator's rewrite.
    fn compare_with_maps(&self) {
        for vdev in self.sectors.keys() {
            for metaslab in self.allocator.metaslabs(*vdev).unwrap() {
                let mut free =
                    RangeSet::from_range(self.allocator.extent(*vdev, metaslab).unwrap());
                let used =
                    self.synced_maps.get(&(*vdev, metaslab)).into_iter().flat_map(RangeSet::iter);
                used.for_each(|range: Range<u64>| free.remove(&range));
                let said = self.allocator.free_as_written(*vdev, metaslab).unwrap();
                assert_eq!(said, Some(free));
            }
        }
    }
}

proptest! {
    #[test]
    fn every_sector_equals_the_model(steps in steps()) {
        let mut trial = ModelTest::new();
        for step in steps {
            match step {
                Step::Allocate(sectors, copies, late) => trial.allocate(sectors, copies, late),
                Step::Free(which, late) => trial.free(which, late),
                Step::Unallocate => trial.unallocate_last(),
                Step::Sync => {
                    trial.sync();
                    trial.compare_with_maps();
                }
            }
            trial.compare();
        }
    }

    #[test]
    fn a_set_of_ranges_is_a_set(
        steps in prop::collection::vec((any::<bool>(), 0..200_u64, 0..40_u64), 0..100),
    ) {
        let (mut ranges, mut bits) = (RangeSet::new(), [false; 256]);
        for (put, start, length) in steps {
            let range = start..start + length;
            let here = &mut bits[usize::try_from(start).unwrap()..][..usize::try_from(length).unwrap()];
            prop_assert_eq!(ranges.overlaps(&range), here.contains(&true));
            let around = ranges.containing(&range).is_some();
            prop_assert!(length == 0 || around != here.contains(&false));
            let common: u64 = ranges.intersection(&range).iter().map(|part| part.end - part.start).sum();
            prop_assert_eq!(common, here.iter().filter(|bit| **bit).count() as u64);
            here.fill(put);
            if put { ranges.insert(range) } else { ranges.remove(&range) }
            prop_assert_eq!(ranges.total(), bits.iter().filter(|bit| **bit).count() as u64);
            let runs = bits.split(|bit| !bit).filter(|run| !run.is_empty()).count();
            prop_assert_eq!((ranges.len(), ranges.is_empty()), (runs, runs == 0));
            let inside = |at: usize| ranges.iter().any(|range| range.contains(&(at as u64)));
            prop_assert!((0..256).all(|at| inside(at) == bits[at]));
        }
    }
}
