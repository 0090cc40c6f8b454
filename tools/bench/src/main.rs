//! Measures us and our peers in the same run, in pairs, and prints medians and ratios.
//!
//! ```text
//! bench POOLS POOLHOUSE [ROUNDS]      reading
//! bench write FOLDER [ROUNDS [MIB]]   the engine's writing and reading (`engine_speed.rs`)
//! bench streams FOLDER [ROUNDS [MIB [BLOCKS]]]
//!                                     streams against reading and writing (`stream_speed.rs`)
//! bench hold FOLDER MOUNT             a pool on files in FOLDER, mounted until standard input ends
//! bench mounts ROUNDS MIB FILES NAME=DIR ...
//!                                     file systems that are mounted, in turns (`mounts.rs`)
//! ```
//!
//! POOLS is a folder made by `bench/make-pools`: `small` and `large` (raidz2 of 6 files), `many`
//! (a directory of 100,000 files), `datasets` (300 file systems with 3,000 snapshots). POOLHOUSE
//! is the program. Missing ones are skipped and named. Peers: `zdb` (Debian: zfsutils-linux),
//! `cp`, and plain reads of the same images by as many threads.
//!
//! Everything is read once before it is timed, so that all files are warm; the two sides of a
//! pair alternate. Nothing is asserted.
#![forbid(unsafe_code)]

mod bench_pool;
mod comparison;
mod engine_speed;
mod mounts;
mod raw_read;
mod stream_speed;
mod timing;
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// As in the program.
#[global_allocator]
static ALLOCATOR: heap::Allocator = heap::Allocator;

use timing::{PairedTimes, can_run, median, time_command};

/// The goals of the issue, printed beside the figures.
const VERIFY_AGAINST_ZDB: f64 = 8.0;
const VERIFY_AGAINST_RAW: f64 = 0.5;
const GET_AGAINST_CP: f64 = 0.6;
const LIST_SECONDS: f64 = 0.5;
const OPEN_SECONDS: f64 = 1.0;

struct Bench {
    pools: PathBuf,
    program: PathBuf,
    rounds: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("write") => engine_speed::measure(words.get(1..).unwrap_or_default()),
        Some("streams") => stream_speed::measure(words.get(1..).unwrap_or_default()),
        Some("hold") => bench_pool::mount_until_stdin_closes(words.get(1..).unwrap_or_default()),
        Some("mounts") => mounts::measure(words.get(1..).unwrap_or_default()),
        _ => return run_read_benchmarks(words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run_read_benchmarks(words: Vec<String>) -> ExitCode {
    let mut arguments = words.into_iter();
    let (Some(pools), Some(program)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: bench POOLS POOLHOUSE [ROUNDS]");
        return ExitCode::from(2);
    };
    let rounds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let bench = Bench { pools: pools.into(), program: program.into(), rounds };
    for part in [
        Bench::measure_verify,
        Bench::measure_verify_against_raw,
        Bench::measure_get,
        Bench::measure_list,
        Bench::measure_open,
    ] {
        if let Err(why) = part(&bench) {
            println!("left out: {why}");
        }
    }
    ExitCode::SUCCESS
}

impl Bench {
    fn pool_dir(&self, name: &str) -> Result<String, String> {
        let folder = self.pools.join(name);
        let found = folder.join("d0.img").exists();
        let shown = folder.display().to_string();
        found.then_some(shown).ok_or_else(|| format!("no pool '{name}' (bench/make-pools)"))
    }

    fn command(&self, words: &[&str]) -> Vec<String> {
        let program = self.program.display().to_string();
        std::iter::once(program).chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Checking every block: the slope between a small and a large pool, so that what either
    /// program does before its first block does not count.
    fn measure_verify(&self) -> Result<(), String> {
        let (small, large) = (self.pool_dir("small")?, self.pool_dir("large")?);
        if !can_run("zdb") {
            return Err("zdb is not installed, so `verify` has no peer".to_owned());
        }
        let zdb =
            |folder: &str| ["zdb", "-e", "-p", folder, "-bcc", "tank"].map(str::to_owned).to_vec();
        let verify = |folder: &str| self.command(&["rescue", "verify", "-q", "-d", folder, "tank"]);
        let slope = |small_run: Vec<String>, large_run: Vec<String>| -> Result<f64, String> {
            Ok(time_command(&large_run)? - time_command(&small_run)?)
        };
        let pair = PairedTimes::measure(
            self.rounds,
            || slope(verify(&small), verify(&large)),
            || slope(zdb(&small), zdb(&large)),
        )?;
        let bytes = 960.0 * f64::from(1 << 20);
        println!(
            "verify, raidz2 of 6, logical bytes:  {:.2} GB/s   zdb -bcc {:.2} GB/s   {:.1} times \
             (wanted: {VERIFY_AGAINST_ZDB})",
            bytes / median(&pair.ours) / 1e9,
            bytes / median(&pair.theirs) / 1e9,
            pair.speedup(),
        );
        Ok(())
    }

    /// Checking against reading the same images without looking, by as many threads.
    fn measure_verify_against_raw(&self) -> Result<(), String> {
        let large = self.pool_dir("large")?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let images = raw_read::find_images(Path::new(&large))?;
        let bytes = raw_read::read_images(&images, threads)?.0;
        let verify = self.command(&["rescue", "verify", "-q", "-d", &large, "tank"]);
        let pair = PairedTimes::measure(
            self.rounds,
            || time_command(&verify),
            || raw_read::read_images(&images, threads).map(|read| read.1),
        )?;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let rate = |times: &[f64]| bytes as f64 / median(times) / 1e9;
        println!(
            "verify, bytes on the drives:         {:.2} GB/s   plain reads {:.2} GB/s   {:.2} of \
             them (wanted: {VERIFY_AGAINST_RAW})",
            rate(&pair.ours),
            rate(&pair.theirs),
            pair.speedup(),
        );
        Ok(())
    }

    /// Copying large files out, against `cp` of the same files from a plain folder.
    fn measure_get(&self) -> Result<(), String> {
        let large = self.pool_dir("large")?;
        let scratch = self.pools.join("scratch");
        let (plain, copy) = (scratch.join("plain"), scratch.join("copy"));
        let [plain_text, copy_text] = [&plain, &copy].map(|path| path.display().to_string());
        let fresh = |folder: &Path| -> Result<(), String> {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder)
                .map_err(|error| format!("{}: {error}", folder.display()))
        };
        fresh(&plain)?;
        let get = |to: &str| self.command(&["rescue", "get", "-q", "-d", &large, "tank:/", to]);
        time_command(&get(&plain_text))?;
        let cp = ["cp", "-r", &plain_text, &copy_text].map(str::to_owned).to_vec();
        let pair = PairedTimes::measure(
            self.rounds,
            || fresh(&copy).and_then(|()| time_command(&get(&copy_text))),
            || fresh(&copy).and_then(|()| time_command(&cp)),
        )?;
        let _ = std::fs::remove_dir_all(&scratch);
        println!(
            "get of 1 GiB in large files:         {:.2} s      cp {:.2} s   {:.2} of its speed \
             (wanted: {GET_AGAINST_CP})",
            median(&pair.ours),
            median(&pair.theirs),
            pair.speedup(),
        );
        Ok(())
    }

    fn measure_list(&self) -> Result<(), String> {
        let many = self.pool_dir("many")?;
        let list = self.command(&["rescue", "ls", "-l", "-d", &many, "tank:/many"]);
        let times: Result<Vec<f64>, String> =
            (0..=self.rounds).map(|_| time_command(&list)).collect();
        let time = median(&times?);
        println!("ls -l of 100,000 files:              {time:.2} s   (wanted: {LIST_SECONDS})");
        Ok(())
    }

    fn measure_open(&self) -> Result<(), String> {
        let datasets = self.pool_dir("datasets")?;
        for (what, kind) in [("300 file systems", "filesystem"), ("and 3,000 snapshots", "all")] {
            let list = self.command(&["rescue", "list", "-t", kind, "-d", &datasets, "tank"]);
            let times: Result<Vec<f64>, String> =
                (0..=self.rounds).map(|_| time_command(&list)).collect();
            let time = median(&times?);
            println!("open and list {what:<22} {time:.2} s   (wanted: {OPEN_SECONDS})");
        }
        Ok(())
    }
}
