//! File systems that are mounted, one against the others, in turns.
//!
//! The first is ours. All get the same workloads through plain system calls, one thread, in requests
//! of 1 MiB or 4 KiB; what is read was put out of the kernel's memory before.

use std::fs::File;
use std::io::Read;

use crate::figure::{Measured, Side, tell, turns};
use crate::work::Place;
use crate::{rig, work};

/// One of the figures of many files.
type Step = (&'static str, fn(&Place) -> Result<f64, String>);

/// What is wanted against the peers by name.
struct Wanted {
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
    let places: Vec<(String, Place)> = places
        .into_iter()
        .map(|(name, dir)| (name.to_owned(), Place { dir: dir.into(), mib: mib.into(), files }))
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
        let mut sides: Vec<Measured<'_>> = Vec::new();
        for (name, place) in &places {
            let noise = &noise;
            sides.push((name.clone(), Box::new(move || work(place, noise))));
        }
        let wishes = [("btrfs", wanted.btrfs), ("zfs-fuse", wanted.zfs_fuse)];
        let wishes: Vec<(&str, f64)> =
            wishes.into_iter().filter_map(|(name, wish)| Some((name, wish?))).collect();
        tell(what, unit, &turns(rounds, &mut sides), &wishes);
        if let Some((most, now)) = server.and_then(rig::memory) {
            println!("{:<34} peak {most} MiB, now {now} MiB", "  memory of our process");
        }
    }
    if only.is_empty() || only.contains("files") {
        many(rounds, &places);
    }
    Ok(())
}

type Workload = (&'static str, &'static str, fn(&Place, &[u8]) -> Result<f64, String>, Wanted);

const fn wanted(btrfs: Option<f64>, zfs_fuse: Option<f64>) -> Wanted {
    Wanted { btrfs, zfs_fuse }
}

const WORKLOADS: [Workload; 5] = [
    ("mounted, sequential write", "GB/s", Place::write, wanted(Some(3.0), Some(3.0))),
    ("mounted, sequential read", "GB/s", |p, _| p.read(), wanted(Some(0.7), Some(3.0))),
    ("mounted, random 4 KiB read", "/s", |p, _| p.random_read(), wanted(None, Some(3.0))),
    ("mounted, random 4 KiB write", "/s", Place::random_write, wanted(None, Some(3.0))),
    ("mounted, fsynced 4 KiB write", "/s", Place::safe_write, wanted(None, Some(3.0))),
];

/// The number of the step before which the kernel forgets what it knows.
const LOOKED_AT: usize = 1;

/// Many files are made, looked at and removed, three figures a round.
fn many(rounds: usize, places: &[(String, Place)]) {
    let steps: [Step; 3] = [
        ("mounted, files made", Place::create),
        ("mounted, files looked at", Place::stat),
        ("mounted, files removed", Place::delete),
    ];
    let mut all: [Vec<Side>; 3] = Default::default();
    for _ in 0..rounds.max(1) {
        for (number, (step, found)) in steps.iter().zip(&mut all).enumerate() {
            if number == LOOKED_AT {
                // once for all sides, or those before would be forgotten when they are removed
                work::forget(places.iter().map(|(_, place)| &*place.dir));
            }
            for (name, place) in places {
                match step.1(place) {
                    Ok(figure) => match found.iter_mut().find(|side| side.name == *name) {
                        Some(side) => side.figures.push(figure),
                        None => found.push(Side { name: name.clone(), figures: vec![figure] }),
                    },
                    Err(why) => println!("left out: {name}: {why}"),
                }
            }
        }
    }
    for (step, sides) in steps.iter().zip(&all) {
        tell(step.0, "/s", sides, &[("zfs-fuse", 3.0)]);
    }
}
