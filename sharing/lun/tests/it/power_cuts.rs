//! Power cuts: each sector of a volume has a value that it may have, and no other.
//!
//! A sector may have the value that was last made durable (a flush, or FUA) or any value that was written to it
//! since. Cuts are made at every kind of point: between requests and in the midst of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::Device;
use engine::pool::Pool;
use lun::{Durability, Lun, VolumeLun};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use sim::DiskArray;

use crate::volume_pool::{VOLUME_BLOCK, create_pool, environment};
use crate::volumes::open;

const SECTOR: u64 = 512;
/// Sectors that are written: a few blocks of the volume.
const SECTORS: u64 = 96;
const PER_BLOCK: u64 = VOLUME_BLOCK as u64 / SECTOR;

#[derive(Clone, Debug)]
enum Op {
    Write {
        fill: u8,
        is_durable: bool,
    },
    Zero {
        is_durable: bool,
    },
    Unmap,
    /// Copies the range to this sector, as far as the two do not overlap.
    Copy {
        to: u64,
        is_durable: bool,
    },
    Flush,
    Sync,
}

/// An operation on a range of sectors.
#[derive(Clone, Debug)]
struct Step {
    op: Op,
    first: u64,
    count: u64,
}

fn any_step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        6 => (1..=255_u8, any::<bool>()).prop_map(|(fill, is_durable)| Op::Write { fill, is_durable }),
        2 => any::<bool>().prop_map(|is_durable| Op::Zero { is_durable }),
        2 => Just(Op::Unmap),
        3 => (0..SECTORS, any::<bool>()).prop_map(|(to, is_durable)| Op::Copy { to, is_durable }),
        2 => Just(Op::Flush),
        1 => Just(Op::Sync),
    ];
    let range = (0..SECTORS, 1..40_u64, any::<bool>());
    (op, range).prop_map(|(mut op, (mut first, mut count, is_aligned))| {
        if let Op::Copy { to, .. } = &mut op {
            if is_aligned {
                // whole blocks, which are shared if they are on the drives
                let whole = |sectors: u64| sectors.next_multiple_of(PER_BLOCK);
                (first, *to, count) =
                    (first / PER_BLOCK * PER_BLOCK, *to / PER_BLOCK * PER_BLOCK, whole(count));
            }
            count = count.min(SECTORS - *to).min(first.abs_diff(*to));
        }
        Step { op, first, count: count.min(SECTORS - first) }
    })
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The values that each sector may have after a power cut, by its first byte.
type Possible = Vec<BTreeSet<u8>>;

/// The state before and after a request, by the length of the journal.
struct Point {
    start: usize,
    end: usize,
    /// In the midst of the request.
    during: Possible,
    /// After it.
    after: Possible,
}

fn durability(is_durable: bool) -> Durability {
    if is_durable { Durability::Durable } else { Durability::Cached }
}

/// Does a step. Returns the first sector that it changes, the new values, and whether those are durable.
fn run(step: &Step, latest: &[u8], unit: &VolumeLun, pool: &Pool) -> (u64, Vec<u8>, bool) {
    let sectors = step.first..step.first + step.count;
    let bytes = sectors.start * SECTOR..sectors.end * SECTOR;
    let values = |value| vec![value; index(step.count)];
    match step.op {
        Op::Write { fill, is_durable } => {
            let data = vec![fill; index(step.count * SECTOR)];
            unit.write(bytes.start, &data, durability(is_durable)).unwrap();
            (step.first, values(fill), is_durable)
        }
        Op::Zero { is_durable } => {
            unit.write_zeroes(bytes, durability(is_durable)).unwrap();
            (step.first, values(0), is_durable)
        }
        Op::Unmap => {
            unit.unmap(bytes).unwrap();
            let start = sectors.start.next_multiple_of(PER_BLOCK);
            let end = (sectors.end / PER_BLOCK * PER_BLOCK).max(start);
            (start, vec![0; index(end - start)], false)
        }
        Op::Copy { to, is_durable } => {
            lun::copy(unit, bytes, (unit, to * SECTOR), durability(is_durable)).unwrap();
            (to, latest[index(sectors.start)..index(sectors.end)].to_vec(), is_durable)
        }
        Op::Flush => {
            unit.flush().unwrap();
            (0, Vec::new(), false)
        }
        Op::Sync => {
            pool.sync().unwrap();
            (0, Vec::new(), false)
        }
    }
}

/// Does all steps, and records the possible content at each point.
fn run_all(steps: &[Step], storm: &DiskArray, unit: &VolumeLun, pool: &Pool) -> Vec<Point> {
    let mut possible: Possible = vec![BTreeSet::from([0]); index(SECTORS)];
    let mut latest = vec![0; index(SECTORS)];
    let mut points = Vec::new();
    for step in steps {
        let start = storm.journal().len();
        let (first, values, is_durable) = run(step, &latest, unit, pool);
        let end = storm.journal().len();
        for (sector, value) in (index(first)..).zip(&values) {
            possible[sector].insert(*value);
            latest[sector] = *value;
        }
        let sectors = first..first + u64::try_from(values.len()).unwrap();
        let during = possible.clone();
        let is_flush = matches!(step.op, Op::Flush | Op::Sync);
        for sector in 0..SECTORS {
            if is_flush || is_durable && sectors.contains(&sector) {
                possible[index(sector)] = BTreeSet::from([latest[index(sector)]]);
            }
        }
        points.push(Point { start, end, during, after: possible.clone() });
    }
    points
}

/// Imports the pool as a cut has left it, and looks at every sector.
fn check_cut(storm: &DiskArray, (at, way): (usize, u64), possible: &Possible) {
    let drives = storm.journal().cut_power(at, way).into_iter();
    let drives: Vec<Arc<dyn Device>> = drives.map(|drive| Arc::new(drive) as _).collect();
    let pool = engine::pool::import_devices(&drives, "tank", &environment()).expect("a pool");
    let unit = open(&pool);
    let mut bytes = vec![0; index(SECTORS * SECTOR)];
    unit.read(0, &mut bytes).unwrap();
    for (sector, (bytes, possible)) in bytes.chunks(512).zip(possible).enumerate() {
        let value = bytes[0];
        assert!(bytes.iter().all(|byte| *byte == value), "sector {sector} is torn");
        assert!(possible.contains(&value), "sector {sector}: {value}, and not of {possible:?}");
    }
    drop(unit);
    pool.close().unwrap();
}

/// Places of power cuts: a step, a place in the midst of it, and the way in which unflushed sectors are lost.
type Cuts = Vec<(Index, Index, u64)>;

fn any_cuts() -> impl Strategy<Value = Cuts> {
    proptest::collection::vec((any::<Index>(), any::<Index>(), 0..6_u64), 4)
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..25)
}

fn check_all(steps: &[Step], cuts: &Cuts) {
    let (storm, pool) = create_pool();
    let unit = open(&pool);
    let points = run_all(steps, &storm, &unit, &pool);
    for (which, place, way) in cuts {
        let point = &points[which.index(points.len())];
        check_cut(&storm, (point.end, *way), &point.after);
        let midst = point.start + place.index(point.end - point.start + 1);
        check_cut(&storm, (midst, *way), &point.during);
    }
    drop(unit);
    pool.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn power_cuts_lose_only_unflushed_writes(steps in any_steps(), cuts in any_cuts()) {
        check_all(&steps, &cuts);
    }
}

/// `POOLHOUSE_CUTS` gives the number of workloads, 1,000 without it.
#[test]
#[ignore = "takes minutes: 1,000 workloads"]
fn many_power_cuts_lose_only_unflushed_writes() {
    let cuts = std::env::var("POOLHOUSE_CUTS").ok().and_then(|text| text.parse().ok());
    let cases = cuts.unwrap_or(1_000).min(1_000);
    let config = ProptestConfig { cases, max_shrink_iters: 200, ..ProptestConfig::default() };
    let checked = TestRunner::new(config).run(&(any_steps(), any_cuts()), |(steps, cuts)| {
        check_all(&steps, &cuts);
        Ok(())
    });
    checked.unwrap();
}
