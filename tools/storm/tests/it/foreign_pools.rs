//! Pools of OpenZFS, imported, changed, and cut. `POOLHOUSE_CUTS` gives the number of cuts of each
//! in the long test, `POOLHOUSE_SEED` the start of the random numbers.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{Device, MemoryDevice};
use fixtures::Fixture;
use sim::Random;
use storm::ForeignPool;

use crate::power_cuts::env_number;

/// The content of an image.
fn load_image(path: &Path) -> MemoryDevice {
    let mut file = std::fs::File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let memory = MemoryDevice::zeroed(path.display().to_string(), size);
    let mut piece = vec![0; 1 << 20];
    for at in (0..size).step_by(piece.len()) {
        let piece = &mut piece[..usize::try_from(size - at).unwrap().min(1 << 20)];
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(piece).unwrap();
        memory.write_at(at, piece).unwrap();
    }
    memory
}

/// All that is done to a pool here may wait for one group.
const ONE_TXG_MAX_DIRTY: u64 = 64 << 20;

/// Takes a pool over and changes it, if that can be.
fn import_fixture(fixture: &Fixture, seed: u64, dirty: u64) -> Result<Option<ForeignPool>, String> {
    let drives = fixture.images().iter().map(|image| load_image(image)).collect();
    ForeignPool::new(fixture.pool_name(), drives, seed, dirty)
}

/// Cuts a pool this many times; returns whether it could be imported, and files of it removed.
fn verify_cuts(fixture: &Fixture, cuts: u64, seed: u64) -> Result<bool, String> {
    let failed = |why| format!("{}, seed {seed}: {why}", fixture.name);
    let Some(taken) = import_fixture(fixture, seed, ONE_TXG_MAX_DIRTY).map_err(failed)? else {
        return Ok(false);
    };
    let mut chance = Random::new(seed);
    let moments = taken.cut_point_count() as u64;
    let mut at: Vec<u64> = (0..cuts).map(|_| chance.next_below(moments)).collect();
    at.sort_unstable();
    for at in at {
        let way = if chance.chance_percent(90) { chance.next_u64() } else { chance.next_below(2) };
        taken.verify_power_cut(usize::try_from(at).unwrap(), way).map_err(failed)?;
    }
    Ok(taken.removed_file_count() > 0)
}

/// Cuts each pool this many times.
fn verify_all_fixtures(cuts: u64) {
    let seed = env_number("POOLHOUSE_SEED").unwrap_or(0);
    let all: Vec<Fixture> = fixtures::all().collect();
    let (next, changed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let job = || {
        while let Some(fixture) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            match verify_cuts(fixture, cuts, seed) {
                Ok(true) => drop(changed.fetch_add(1, Ordering::Relaxed)),
                Ok(false) => println!("{}: not imported, or not changed", fixture.name),
                Err(why) => failures.lock().unwrap().push(why),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(job))));
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    let changed = changed.into_inner();
    assert!(changed >= 12, "only {changed} of {} were changed", all.len());
}

#[test]
fn openzfs_pools_survive_power_cuts() {
    verify_all_fixtures(4);
}

/// Blocks that a log shares stay until its replay: other logs remove the files that the
/// blocks are from.
#[test]
fn block_cloning_logs_survive_cuts_during_replay() {
    // in one group, and in many
    let names = ["clones-promised", "clones-claimed"];
    for (name, dirty) in names.into_iter().flat_map(|name| [(name, ONE_TXG_MAX_DIRTY), (name, 1)]) {
        let taken =
            import_fixture(&fixtures::load(name), 1, dirty).unwrap().expect("it can be imported");
        for at in (0..taken.import_cut_point_count())
            .step_by((taken.import_cut_point_count() / 25).max(1))
        {
            for way in [0, 1, at as u64] {
                taken
                    .verify_power_cut(at, way)
                    .unwrap_or_else(|why| panic!("{name} {dirty}: {why}"));
            }
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn openzfs_pools_survive_many_power_cuts() {
    verify_all_fixtures(env_number("POOLHOUSE_CUTS").unwrap_or(60));
}
