//! Drives that fail while a workload runs: the pool works while redundancy lasts, and is
//! suspended with nothing lost when it does not.

use sim::{DiskArray, Fault, Random};
use storm::{PoolLayout, Run, Workload};

/// Bytes of a drive.
const DEVICE_SIZE: u64 = 64 << 20;

/// Some fault that a pool bears on one drive.
fn random_fault(chance: &mut Random) -> Fault {
    match chance.next_below(4) {
        0 => Fault::Removed,
        1 => Fault::Flush,
        2 => Fault::Write(0..DEVICE_SIZE),
        // all but the labels
        _ => Fault::Write(4 << 20..DEVICE_SIZE - (1 << 20)),
    }
}

/// Sets a fault on one drive from some operation of a long workload on, and removes it
/// at another.
fn inject_temporary_fault(seed: u64, disk: usize) -> impl Fn(usize, &DiskArray) {
    let mut chance = Random::new(seed);
    let (fault, first) = (random_fault(&mut chance), 1 + chance.next_below(20));
    let last = first + chance.next_below(30);
    move |place, storm| {
        if place as u64 == first {
            storm.disks()[disk].add_fault(fault.clone());
        }
        if place as u64 == last {
            storm.disks()[disk].clear_faults();
        }
    }
}

#[test]
fn pool_keeps_working_while_redundancy_lasts() {
    for (shape, drives) in [(PoolLayout::Mirror, 2), (PoolLayout::Raidz1, 3)] {
        let base = shape.create_base().unwrap();
        let mut missed = 0;
        for seed in 0..20_u64 {
            let bad = usize::try_from(seed).unwrap() % drives;
            let name = format!(
                "{shape}, seed {seed}, disk {bad}, {:?}",
                random_fault(&mut Random::new(seed))
            );
            let run = Run::with_faults(
                shape,
                &base,
                Workload::Long(seed),
                &inject_temporary_fault(seed, bad),
            );
            let (run, trouble) = run.unwrap();
            assert_eq!(trouble, None, "{name}");
            let all: Vec<usize> = (0..drives).collect();
            missed += run.verify_final_state(&all).unwrap_or_else(|why| panic!("{name}: {why}"));
            let others: Vec<usize> = (0..drives).filter(|disk| *disk != bad).collect();
            run.verify_final_state(&others)
                .unwrap_or_else(|why| panic!("{name}, which is gone: {why}"));
        }
        assert!(missed > 0, "{shape}: what drives missed is noted");
    }
}

#[test]
fn pool_suspends_without_loss_beyond_redundancy() {
    for (shape, drives) in
        [(PoolLayout::Single, 1), (PoolLayout::Mirror, 2), (PoolLayout::Raidz1, 3)]
    {
        let base = shape.create_base().unwrap();
        let mut suspended = 0;
        for seed in 0..20_u64 {
            let bad = drives.min(2);
            let harms: Vec<_> = (0..bad).map(|disk| inject_temporary_fault(seed, disk)).collect();
            let all =
                |place: usize, storm: &DiskArray| harms.iter().for_each(|harm| harm(place, storm));
            let run = Run::with_faults(shape, &base, Workload::Long(seed), &all);
            let name = format!("{shape}, seed {seed}, {:?}", random_fault(&mut Random::new(seed)));
            let (run, trouble) = run.unwrap();
            suspended += u32::from(trouble.is_some());
            let drives: Vec<usize> = (0..drives).collect();
            run.verify_final_state(&drives)
                .unwrap_or_else(|why| panic!("{name}, {trouble:?}: {why}"));
        }
        assert!(suspended > 10, "{shape}: suspended {suspended} times");
    }
}
