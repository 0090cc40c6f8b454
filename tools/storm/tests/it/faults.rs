//! Drives that fail while a workload runs: the pool goes on while redundancy lasts, and is
//! suspended with nothing lost when it does not.

use sim::{Fault, Seed, Storm};
use storm::{Run, Shape, Workload};

/// Bytes of a drive.
const DRIVE: u64 = 64 << 20;

/// Some fault that a pool bears on one drive.
fn fault(chance: &mut Seed) -> Fault {
    match chance.below(4) {
        0 => Fault::Gone,
        1 => Fault::Flush,
        2 => Fault::Write(0..DRIVE),
        // all but the labels
        _ => Fault::Write(4 << 20..DRIVE - (1 << 20)),
    }
}

/// Puts a fault on one drive from some operation of a long workload on, and takes it away again
/// at another.
fn harm(seed: u64, disk: usize) -> impl Fn(usize, &Storm) {
    let mut chance = Seed::new(seed);
    let (fault, first) = (fault(&mut chance), 1 + chance.below(20));
    let last = first + chance.below(30);
    move |place, storm| {
        if place as u64 == first {
            storm.disks()[disk].add_fault(fault.clone());
        }
        if place as u64 == last {
            storm.disks()[disk].mend();
        }
    }
}

#[test]
fn a_pool_goes_on_while_redundancy_lasts() {
    for (shape, drives) in [(Shape::Mirror, 2), (Shape::Raidz1, 3)] {
        let base = shape.base().unwrap();
        let mut missed = 0;
        for seed in 0..20_u64 {
            let bad = usize::try_from(seed).unwrap() % drives;
            let name =
                format!("{shape}, seed {seed}, disk {bad}, {:?}", fault(&mut Seed::new(seed)));
            let run = Run::with_faults(shape, &base, Workload::Long(seed), &harm(seed, bad));
            let (run, trouble) = run.unwrap();
            assert_eq!(trouble, None, "{name}");
            let all: Vec<usize> = (0..drives).collect();
            missed += run.aftermath(&all).unwrap_or_else(|why| panic!("{name}: {why}"));
            let others: Vec<usize> = (0..drives).filter(|disk| *disk != bad).collect();
            run.aftermath(&others).unwrap_or_else(|why| panic!("{name}, which is gone: {why}"));
        }
        assert!(missed > 0, "{shape}: what drives missed is noted");
    }
}

#[test]
fn beyond_redundancy_a_pool_stops_and_loses_nothing() {
    for (shape, drives) in [(Shape::Single, 1), (Shape::Mirror, 2), (Shape::Raidz1, 3)] {
        let base = shape.base().unwrap();
        let mut suspended = 0;
        for seed in 0..20_u64 {
            let bad = drives.min(2);
            let harms: Vec<_> = (0..bad).map(|disk| harm(seed, disk)).collect();
            let all =
                |place: usize, storm: &Storm| harms.iter().for_each(|harm| harm(place, storm));
            let run = Run::with_faults(shape, &base, Workload::Long(seed), &all);
            let name = format!("{shape}, seed {seed}, {:?}", fault(&mut Seed::new(seed)));
            let (run, trouble) = run.unwrap();
            suspended += u32::from(trouble.is_some());
            let drives: Vec<usize> = (0..drives).collect();
            run.aftermath(&drives).unwrap_or_else(|why| panic!("{name}, {trouble:?}: {why}"));
        }
        assert!(suspended > 10, "{shape}: suspended {suspended} times");
    }
}
