//! File systems that are mounted, one against the others, in turns.
//!
//! The first is ours. All get the same workloads through plain system calls, one thread, in
//! requests of 1 MiB or 4 KiB; read data was dropped from the page cache before.

use std::fs::File;
use std::io::Read;

use crate::comparison::{NamedMeasurement, Series, measure_in_turns, print_comparison};
use crate::workload::MountedDir;
use crate::{bench_pool, workload};

/// One of the figures of many files.
type FileBenchmark = (&'static str, fn(&MountedDir) -> Result<f64, String>);

/// The goals against the peers, by name.
struct TargetRatios {
    btrfs: Option<f64>,
    zfs_fuse: Option<f64>,
}

/// Measures and prints.
pub(crate) fn measure(words: &[String]) -> Result<(), String> {
    let usage = "usage: bench mounts ROUNDS MIB FILES [PID=...] NAME=DIR ...";
    let [rounds, mib, files, named @ ..] = words else { return Err(usage.to_owned()) };
    let number = |text: &String| text.parse::<u32>().map_err(|error| format!("{text}: {error}"));
    let (rounds, mib, files) = (number(rounds)? as usize, number(mib)?, number(files)?);
    let pairs = named.iter().filter_map(|pair| pair.split_once('='));
    let (server, places): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| *name == "PID");
    let places: Vec<(String, MountedDir)> = places
        .into_iter()
        .map(|(name, dir)| {
            (
                name.to_owned(),
                MountedDir { dir: dir.into(), size_mib: mib.into(), file_count: files },
            )
        })
        .collect();
    let mut noise = vec![0; 33 << 20];
    let source = File::open("/dev/urandom");
    source
        .and_then(|mut source| source.read_exact(&mut noise))
        .map_err(|error| error.to_string())?;
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let server = server.first().map(|(_, process)| *process);
    for (what, unit, work, wanted) in WORKLOADS {
        if !only.is_empty() && !only.split(',').any(|word| what.contains(word)) {
            continue;
        }
        let mut sides: Vec<NamedMeasurement<'_>> = Vec::new();
        for (name, place) in &places {
            let noise = &noise;
            sides.push((name.clone(), Box::new(move || work(place, noise))));
        }
        let wishes = [("btrfs", wanted.btrfs), ("zfs-fuse", wanted.zfs_fuse)];
        let wishes: Vec<(&str, f64)> =
            wishes.into_iter().filter_map(|(name, wish)| Some((name, wish?))).collect();
        print_comparison(what, unit, &measure_in_turns(rounds, &mut sides), &wishes);
        if let Some((most, now)) = server.and_then(bench_pool::process_memory) {
            println!("{:<34} peak {most} MiB, now {now} MiB", "  memory of our process");
        }
    }
    if only.is_empty() || only.contains("files") {
        measure_many_files(rounds, &places);
    }
    Ok(())
}

type Workload =
    (&'static str, &'static str, fn(&MountedDir, &[u8]) -> Result<f64, String>, TargetRatios);

const fn target_ratios(btrfs: Option<f64>, zfs_fuse: Option<f64>) -> TargetRatios {
    TargetRatios { btrfs, zfs_fuse }
}

const WORKLOADS: [Workload; 5] = [
    ("mounted, sequential write", "GB/s", MountedDir::write, target_ratios(Some(3.0), Some(3.0))),
    ("mounted, sequential read", "GB/s", |p, _| p.read(), target_ratios(Some(0.7), Some(3.0))),
    ("mounted, random 4 KiB read", "/s", |p, _| p.random_read(), target_ratios(None, Some(3.0))),
    ("mounted, random 4 KiB write", "/s", MountedDir::random_write, target_ratios(None, Some(3.0))),
    ("mounted, fsynced 4 KiB write", "/s", MountedDir::sync_write, target_ratios(None, Some(3.0))),
];

/// The number of the step before which the kernel's caches are dropped.
const STAT_STEP: usize = 1;

/// Many files are made, looked at and removed, three figures a round.
fn measure_many_files(rounds: usize, places: &[(String, MountedDir)]) {
    let steps: [FileBenchmark; 3] = [
        ("mounted, files made", MountedDir::create),
        ("mounted, files looked at", MountedDir::stat),
        ("mounted, files removed", MountedDir::delete),
    ];
    let mut all: [Vec<Series>; 3] = Default::default();
    for _ in 0..rounds.max(1) {
        for (number, (step, found)) in steps.iter().zip(&mut all).enumerate() {
            if number == STAT_STEP {
                // once for all sides, or those before would be forgotten when they are removed
                workload::drop_caches(places.iter().map(|(_, place)| &*place.dir));
            }
            for (name, place) in places {
                match step.1(place) {
                    Ok(figure) => match found.iter_mut().find(|side| side.name == *name) {
                        Some(side) => side.rates.push(figure),
                        None => found.push(Series { name: name.clone(), rates: vec![figure] }),
                    },
                    Err(why) => println!("left out: {name}: {why}"),
                }
            }
        }
    }
    for (step, sides) in steps.iter().zip(&all) {
        print_comparison(step.0, "/s", sides, &[("zfs-fuse", 3.0)]);
    }
}
