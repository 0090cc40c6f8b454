//! Cuts of short and of long workloads. `POOLHOUSE_CUTS` gives their number, `POOLHOUSE_SEED` the
//! start of the random numbers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::Random;
use storm::{BasePool, Failure, PoolLayout, PowerCut, Run, Workload};

pub(crate) fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn base_pools() -> Vec<(PoolLayout, BasePool)> {
    PoolLayout::ALL.map(|shape| (shape, shape.create_base().unwrap())).into()
}

/// Makes this many cuts of a workload, at random moments and in all ways, or at each moment.
fn verify_cuts(
    shape: PoolLayout,
    base: &BasePool,
    workload: Workload,
    cuts: u64,
) -> Result<u64, Failure> {
    let failed = |why| Failure {
        cut: PowerCut { layout: shape, workload, after_requests: 0, seed: 0 },
        reason: why,
    };
    let run = Run::new(shape, base, workload).map_err(failed)?;
    let moments = run.cut_point_count() as u64;
    let mut chance = Random::new(moments ^ cuts);
    let mut at: Vec<u64> = if cuts < moments {
        (0..cuts).map(|_| chance.next_below(moments)).collect()
    } else {
        (0..cuts).map(|index| index % moments).collect()
    };
    // cuts at rising moments are cheap
    at.sort_unstable();
    for at in at {
        let way = if chance.chance_percent(90) { chance.next_u64() } else { chance.next_below(2) };
        run.verify_power_cut(usize::try_from(at).unwrap(), way)?;
    }
    Ok(cuts)
}

/// Makes cuts of all of these, on all cores.
fn run_workloads(work: &[(usize, Workload, u64)]) {
    let bases = base_pools();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let job = || {
        while let Some((shape, workload, cuts)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (shape, base) = &bases[shape % bases.len()];
            if let Err(failure) = verify_cuts(*shape, base, *workload, *cuts) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(job))));
    let failures = failures.into_inner().unwrap();
    let shown: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), shown.join("\n"));
}

/// Workloads for this many cuts: three of four are short ones, spread over all of them.
fn workloads(cuts: u64, each: u64) -> Vec<(usize, Workload, u64)> {
    let seed = env_number("POOLHOUSE_SEED").unwrap_or(0);
    let mut chance = Random::new(seed);
    let count = cuts.div_ceil(each);
    let shorts = (count * 3 / 4).max(1);
    let short = |index: u64| {
        Workload::Short((seed + index * Workload::SHORT_COUNT / shorts) % Workload::SHORT_COUNT)
    };
    // at random, because in turn each kind would meet every other shape only
    let long = |_| {
        let kind = match chance.next_below(4) {
            0 => Workload::Long,
            1 => Workload::Xattrs,
            2 => Workload::Checkpoints,
            _ => Workload::Unlogged,
        };
        kind(chance.next_u64() >> 32)
    };
    let all = (0..shorts).map(short).chain((shorts..count).map(long));
    (0..).zip(all).map(|(index, workload)| (index, workload, each)).collect()
}

/// Changes without log record waited for their txg, and later changes were in the log already when
/// the power failed: the replay then had later changes without earlier ones.
#[test]
fn unlogged_changes_precede_later_logged_changes() {
    verify_fixed_cuts(&[
        "mirror:x145586440:489:10488848775300518267",
        "single:u544182070:329:4360404038414478395",
        "raidz1:u1614150861:932:10076580350260734674",
    ]);
}

#[test]
fn synced_data_survives_power_cuts() {
    run_workloads(&workloads(env_number("POOLHOUSE_CUTS").unwrap_or(2_000), 10));
}

#[test]
fn checkpoints_survive_power_cuts() {
    let seed = env_number("POOLHOUSE_SEED").unwrap_or(0);
    let workload = |index| Workload::Checkpoints(seed + index);
    let each = env_number("POOLHOUSE_CUTS").unwrap_or(400) / 20;
    let work: Vec<_> = (0..).zip((0..20).map(workload)).map(|(at, it)| (at, it, each)).collect();
    run_workloads(&work);
}

#[test]
fn clones_across_datasets_survive_power_cuts() {
    let seed = env_number("POOLHOUSE_SEED").unwrap_or(0);
    let each = env_number("POOLHOUSE_CUTS").unwrap_or(200) / 20;
    let work: Vec<_> = (0..)
        .zip((0..20).map(|index| Workload::Clones(seed + index)))
        .map(|(at, it)| (at, it, each))
        .collect();
    run_workloads(&work);
}

#[test]
#[ignore = "takes minutes"]
fn synced_data_survives_many_power_cuts() {
    run_workloads(&workloads(env_number("POOLHOUSE_CUTS").unwrap_or(200_000), 50));
}

/// Space freed in a txg is not reused before two more are on the drives: so far back everything is
/// there, whatever was done since.
#[test]
fn pool_rewinds_by_one_or_two_txgs() {
    let bases = base_pools();
    let mut chance = Random::new(env_number("POOLHOUSE_SEED").unwrap_or(0));
    let mut taken_back = 0;
    for (shape, base) in bases.iter().cycle().take(48) {
        let seed = chance.next_u64() >> 32;
        let kinds = [Workload::Long, Workload::Xattrs, Workload::Unlogged, Workload::Checkpoints];
        for workload in kinds.map(|kind| kind(seed)) {
            let run = Run::new(*shape, base, workload).unwrap();
            for groups in [1, 2] {
                let way = chance.next_u64();
                let done = run.verify_rewind(groups, way);
                let done =
                    done.unwrap_or_else(|why| panic!("{shape}:{workload}, {groups}, {way}: {why}"));
                taken_back += u64::from(done);
            }
        }
    }
    assert!(taken_back > 200, "only {taken_back} were");
}

/// Two logs were dropped with a group each, and the power failed between them.
#[test]
fn one_txg_drops_records_of_all_logs() {
    let (run, _) = reproduce_run("mirror:r2349629329:0:0");
    assert!(run.verify_rewind(1, 6_243_199_324_902_294_182).unwrap());
}

/// The run that a failure has named, and its cut.
fn reproduce_run(text: &str) -> (Run, PowerCut) {
    let cut: PowerCut = text.parse().unwrap();
    (Run::new(cut.layout, &cut.layout.create_base().unwrap(), cut.workload).unwrap(), cut)
}

/// Cuts that found something once find nothing.
fn verify_fixed_cuts(texts: &[&str]) {
    for text in texts {
        let (run, cut) = reproduce_run(text);
        run.verify_power_cut(cut.after_requests, cut.seed)
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A log block was on one child of a mirror and not on the other when the power failed.
#[test]
fn half_mirrored_log_record_is_not_damage() {
    verify_fixed_cuts(&[
        "mirror:r1474588020:143:13554265149156241409",
        "mirror:r935310252:599:6836381650963062158",
        "mirror:r2022825917:329:12850748194282116638",
        "mirror:r3119501114:1749:689984665896976302",
        "mirror:r3502193355:840:7447079315033604829",
    ]);
}

/// Two drives of three had not got the last uberblock when the power failed, and the end of the log
/// was not written: no drive is missing for that.
#[test]
fn outdated_devices_are_not_missing() {
    verify_fixed_cuts(&[
        "raidz1:e3153:172:14186493978876774257",
        "raidz1:e3467:185:6337178602891590211",
        "raidz1:e3539:180:5275711739090122",
    ]);
}

/// A snapshot of the present state had the root block of a head of the checkpoint, whose log only
/// the checkpoint still had.
#[test]
fn logs_of_a_checkpoint_are_not_leaks() {
    verify_fixed_cuts(&["degraded:k2458742573:2877:10050760091087770724"]);
    let (run, _) = reproduce_run("raidz1:k879159712:0:0");
    assert!(run.verify_rewind(1, 10_619_068_946_664_148_859).unwrap());
}

/// A pool without features has no checkpoint; the rest of the row is done on it all the same.
#[test]
fn pools_without_features_survive_rows_with_checkpoints() {
    let (run, cut) = reproduce_run("plain:k1:0:4");
    assert!(run.ops().any(|op| format!("{op:?}") == "ToggleCheckpoint"));
    run.verify_power_cut(run.cut_point_count() - 1, cut.seed)
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn reproduce_power_cut_from_environment() {
    let Ok(text) = std::env::var("POOLHOUSE_STORM") else { return };
    let (run, cut) = reproduce_run(&text);
    for op in run.ops() {
        println!("{op:?}");
    }
    if let Err(failure) = run.verify_power_cut(cut.after_requests, cut.seed) {
        panic!("{failure}");
    }
}
