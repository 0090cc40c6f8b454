//! The engine's sequential writing and reading against raw access to files of the same kind.
//!
//! Both sides move the same data in requests of 1 MiB with as many threads. Raw writing also writes
//! the bytes of parity, spread over six files, in requests of 1 MiB; the engine's time ends when
//! all is on the files, uberblock included. Raw reading is reported twice: with the bytes of
//! parity, as for writing, and of the data alone.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use engine::files::{Content, Time};
use engine::pool::{OpenFileSystem, Pool};
use posix::{Capability, ChangeContext, Credentials, NewInode, WriteOffset};
use units::ObjectId;

use crate::bench_pool;
use crate::comparison::{measure_in_turns, print_comparison};

const CHUNK_SIZE: usize = 1 << 20;
const GIGABYTE: f64 = 1e9;

/// Measures and prints.
pub(crate) fn measure(words: &[String]) -> Result<(), String> {
    let [folder, rest @ ..] = words else {
        return Err("usage: bench write FOLDER [ROUNDS [MIB]]".to_owned());
    };
    let number = |at: usize, usual: u64| rest.get(at).and_then(|w| w.parse().ok()).unwrap_or(usual);
    let (rounds, mib) = (number(0, 5), number(1, 512));
    let folder = Path::new(folder);
    let scene = EngineBench::new(folder, mib)?;
    bench_pool::with_txg_sync(&scene.pool, || {
        scene.run(usize::try_from(rounds).unwrap_or(5));
        Ok(())
    })?;
    scene.pool.export().map_err(|error| error.to_string())?;
    if let Some((most, now)) = bench_pool::process_memory("self") {
        println!("memory of the engine's process      peak {most} MiB, at the end {now} MiB");
    }
    Ok(())
}

/// All that is needed for measuring.
struct EngineBench {
    pool: Pool,
    filesystem: OpenFileSystem,
    raw_files: Vec<PathBuf>,
    size_mib: u64,
    /// Bytes that cannot be compressed; pieces of it are written from changing places.
    noise: Vec<u8>,
}

const NOISE_SIZE: usize = 64 << 20;

impl EngineBench {
    fn new(folder: &Path, mib: u64) -> Result<Self, String> {
        let failed = |error: engine::Error| error.to_string();
        // overwriting must not wait for the removal of old files
        let held = bench_pool::create_pool(folder, mib / 2 + 256)?;
        let files = held.datasets().filesystem(bench_pool::DATASET).map_err(failed)?;
        let each = mib * 6 / 4 / 6 + 1;
        let raw = bench_pool::create_warm_files(folder, "raw", each)?;
        let mut noise = vec![0; NOISE_SIZE + CHUNK_SIZE];
        let source = File::open("/dev/urandom");
        source.and_then(|mut source| source.read_exact(&mut noise)).map_err(|e| e.to_string())?;
        Ok(Self { pool: held, filesystem: files, raw_files: raw, size_mib: mib, noise })
    }

    fn noise_chunk(&self, index: u64) -> &[u8] {
        let at = usize::try_from(index * 0x3_5003 % (NOISE_SIZE as u64)).unwrap_or(0);
        self.noise.get(at..at + CHUNK_SIZE).unwrap_or_default()
    }

    fn run(&self, rounds: usize) {
        let name = |name: &str| name.to_owned();
        let written = measure_in_turns(
            rounds,
            &mut [
                (name("engine"), Box::new(|| self.measure_write())),
                (name("raw"), Box::new(|| self.measure_raw(true, 6))),
            ],
        );
        print_comparison("engine, sequential write, GB/s", "GB/s", &written, &[("raw", 0.7)]);
        let read = measure_in_turns(
            rounds,
            &mut [
                (name("engine"), Box::new(|| self.measure_read())),
                (name("raw"), Box::new(|| self.measure_raw(false, 6))),
                (name("raw without parity"), Box::new(|| self.measure_raw(false, 4))),
            ],
        );
        print_comparison("engine, sequential read, GB/s", "GB/s", &read, &[("raw", 0.8)]);
    }

    /// Does `work` for each MiB, shared out among the threads; gives logical GB a second.
    fn measure_throughput(
        &self,
        count: u64,
        finish: impl FnOnce() -> Result<(), String>,
        work: impl Fn(u64, &mut [u8]) -> Result<(), String> + Sync,
    ) -> Result<f64, String> {
        let next = AtomicU64::new(0);
        let begun = Instant::now();
        let failed: Result<(), String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..bench_pool::thread_count())
                .map(|_| {
                    scope.spawn(|| {
                        let mut buffer = vec![0; CHUNK_SIZE];
                        loop {
                            let at = next.fetch_add(1, Ordering::Relaxed);
                            if at >= count {
                                return Ok(());
                            }
                            work(at, &mut buffer)?;
                        }
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "panic")?)
        });
        failed?;
        finish()?;
        let time = begun.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        Ok((self.size_mib << 20) as f64 / time / GIGABYTE)
    }

    fn credentials() -> ChangeContext {
        let now = Time { seconds: 1_800_000_000, nanoseconds: 0 };
        ChangeContext {
            credentials: Credentials::new(0, 0).with_capability(Capability::FileSetId),
            now,
        }
    }

    fn root_object(&self) -> ObjectId {
        ObjectId::new(self.filesystem.reader().root_object())
    }

    fn large_file(&self) -> Result<Option<Content>, String> {
        let files = self.filesystem.reader();
        let found = files.find(b"large").map_err(|error| error.to_string())?;
        Ok(found.map(|file| file.content()))
    }

    /// Overwrites a large file, each thread a stream of its own part.
    fn measure_write(&self) -> Result<f64, String> {
        let failed = |error: engine::files::Error| error.to_string();
        let credentials = Self::credentials();
        if self.large_file()?.is_some() {
            self.filesystem.unlink(&credentials, self.root_object(), b"large").map_err(failed)?;
            // freed space can be allocated again when two more txgs are on the drives
            for _ in 0..3 {
                self.pool.sync().map_err(|error| error.to_string())?;
            }
        }
        let made = self
            .filesystem
            .create(&credentials, self.root_object(), b"large", &NewInode::default())
            .map_err(failed)?;
        let file = ObjectId::new(made.ino());
        self.measure_throughput(
            self.size_mib,
            || self.pool.sync().map_err(|error| error.to_string()),
            |at, _| {
                let position = WriteOffset::At(at << 20);
                let written =
                    self.filesystem.write(&credentials, file, position, self.noise_chunk(at));
                written.map(|_| ()).map_err(|error| error.to_string())
            },
        )
    }

    fn measure_read(&self) -> Result<f64, String> {
        let content = self.large_file()?.ok_or("the file is not there")?;
        self.measure_throughput(
            self.size_mib,
            || Ok(()),
            |at, buffer| {
                let count = content.read(at << 20, buffer).map_err(|error| error.to_string())?;
                (count == CHUNK_SIZE).then_some(()).ok_or_else(|| "it is too short".to_owned())
            },
        )
    }

    /// Writes or reads `sixths` sixths of the bytes plus parity, straight on the files.
    fn measure_raw(&self, write: bool, sixths: u64) -> Result<f64, String> {
        let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path);
        let files: Vec<File> = self
            .raw_files
            .iter()
            .map(open)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let count =
            self.size_mib * sixths / (bench_pool::DEVICE_COUNT - bench_pool::PARITY_COUNT) as u64;
        self.measure_throughput(
            count,
            || Ok(()),
            |at, buffer| {
                let drives = files.len() as u64;
                let file = usize::try_from(at % drives).ok().and_then(|index| files.get(index));
                let (file, offset) = (file.ok_or("no file")?, (at / drives) << 20);
                let done = if write {
                    file.write_all_at(self.noise_chunk(at), offset)
                } else {
                    file.read_exact_at(buffer, offset)
                };
                done.map_err(|error| error.to_string())
            },
        )
    }
}
