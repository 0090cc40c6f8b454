//! Workloads on a mounted file system, by plain system calls.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CHUNK_SIZE: usize = 1 << 20;
const SMALL_SIZE: usize = 4096;
/// Pages from one piece of noise to the next.
const NOISE_STRIDE: u64 = 53;
/// The duration of random work.
const RANDOM_DURATION: Duration = Duration::from_secs(2);

/// A mounted file system.
pub(crate) struct MountedDir {
    pub(crate) dir: PathBuf,
    pub(crate) size_mib: u64,
    pub(crate) file_count: u32,
}

type Rate = Result<f64, String>;

fn per_second(count: u64, begun: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = count as f64;
    count / begun.elapsed().as_secs_f64()
}

impl MountedDir {
    fn large_file(&self) -> PathBuf {
        self.dir.join("large")
    }

    fn error_formatter(&self) -> impl Fn(std::io::Error) -> String {
        let dir = self.dir.display().to_string();
        move |error| format!("{dir}: {error}")
    }

    /// A large file is overwritten, and durable at the end: GB/s.
    pub(crate) fn write(&self, noise: &[u8]) -> Rate {
        let _ = std::fs::remove_file(self.large_file());
        sync_filesystem(&self.dir);
        let begun = Instant::now();
        let mut file = File::create(self.large_file()).map_err(self.error_formatter())?;
        for at in 0..self.size_mib {
            file.write_all(noise_chunk(noise, at, CHUNK_SIZE)).map_err(self.error_formatter())?;
        }
        file.sync_all().map_err(self.error_formatter())?;
        Ok(per_second(self.size_mib << 20, begun) / 1e9)
    }

    /// It is read, from the drives and not from the kernel's memory: GB/s.
    pub(crate) fn read(&self) -> Rate {
        let file = self.open_uncached(&self.large_file())?;
        let mut buffer = vec![0; CHUNK_SIZE];
        let begun = Instant::now();
        for at in 0..self.size_mib {
            file.read_exact_at(&mut buffer, at << 20).map_err(self.error_formatter())?;
        }
        Ok(per_second(self.size_mib << 20, begun) / 1e9)
    }

    /// A file of which the kernel keeps nothing in memory.
    fn open_uncached(&self, path: &Path) -> Result<File, String> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(self.error_formatter())?;
        file.sync_all().map_err(self.error_formatter())?;
        let advice = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&file, 0, None, advice)
            .map_err(|why| self.error_formatter()(why.into()))?;
        Ok(file)
    }

    /// Reads of 4 KiB at random places of the large file: per second.
    pub(crate) fn random_read(&self) -> Rate {
        let file = self.open_uncached(&self.large_file())?;
        let random = rustix::fs::Advice::Random;
        rustix::fs::fadvise(&file, 0, None, random)
            .map_err(|why| self.error_formatter()(why.into()))?;
        let mut buffer = [0; SMALL_SIZE];
        self.repeat_at_random(|at| {
            file.read_exact_at(&mut buffer, at).map_err(self.error_formatter())
        })
    }

    /// Writes of 4 KiB at random places of the large file, safe at the end: per second.
    pub(crate) fn random_write(&self, noise: &[u8]) -> Rate {
        let file = self.open_uncached(&self.large_file())?;
        let begun = Instant::now();
        let mut pieces = (0..).map(|index| noise_chunk(noise, index, SMALL_SIZE));
        let rate = self.repeat_at_random(|at| {
            let bytes = pieces.next().unwrap_or_default();
            file.write_all_at(bytes, at).map_err(self.error_formatter())
        })?;
        let time = begun.elapsed().as_secs_f64();
        file.sync_all().map_err(self.error_formatter())?;
        Ok(rate * time / begun.elapsed().as_secs_f64())
    }

    /// Writes of 4 KiB, each safe before the next: per second.
    pub(crate) fn sync_write(&self, noise: &[u8]) -> Rate {
        let path = self.dir.join("safe");
        let mut file = File::create(&path).map_err(self.error_formatter())?;
        let mut pieces = (0..).map(|index| noise_chunk(noise, index, SMALL_SIZE));
        let rate = self.repeat_at_random(|_| {
            let bytes = pieces.next().unwrap_or_default();
            file.write_all(bytes).and_then(|()| file.sync_data()).map_err(self.error_formatter())
        });
        drop(file);
        let _ = std::fs::remove_file(path);
        rate
    }

    /// Does something at random places of the large file for a while: per second.
    fn repeat_at_random(&self, mut work: impl FnMut(u64) -> Result<(), String>) -> Rate {
        let pieces = (self.size_mib << 20) / SMALL_SIZE as u64;
        let (mut count, mut state) = (0_u64, 0x9e37_79b9_7f4a_7c15_u64);
        let begun = Instant::now();
        while begun.elapsed() < RANDOM_DURATION {
            for _ in 0..16 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                work(state % pieces * SMALL_SIZE as u64)?;
                count += 1;
            }
        }
        Ok(per_second(count, begun))
    }

    fn small_file(&self, index: u32) -> PathBuf {
        self.dir.join("many").join(format!("file-{index:06}"))
    }

    fn for_each_file(&self, work: impl Fn(&Path) -> std::io::Result<()>) -> Rate {
        let begun = Instant::now();
        for index in 0..self.file_count {
            work(&self.small_file(index)).map_err(self.error_formatter())?;
        }
        Ok(per_second(self.file_count.into(), begun))
    }

    /// Empty files are made: per second.
    pub(crate) fn create(&self) -> Rate {
        let _ = std::fs::create_dir(self.dir.join("many"));
        self.for_each_file(|path| File::create(path).map(|_| ()))
    }

    /// Reads of the attributes of each: per second.
    pub(crate) fn stat(&self) -> Rate {
        // like ls and find: without the birth time, which is a separate request on FUSE
        self.for_each_file(|path| Ok(rustix::fs::lstat(path).map(|_| ())?))
    }

    /// They are removed: per second.
    pub(crate) fn delete(&self) -> Rate {
        self.for_each_file(|path| std::fs::remove_file(path))
    }
}

/// Bytes that cannot be compressed, from changing places, and at a page's beginning, as programs that
/// copy have their buffers: the kernel cuts a MiB that lies askew in two.
fn noise_chunk(noise: &[u8], index: u64, length: usize) -> &[u8] {
    let first = noise.as_ptr().align_offset(SMALL_SIZE);
    let pages = noise.len().saturating_sub(first + length) / SMALL_SIZE;
    let page = usize::try_from(index * NOISE_STRIDE % pages.max(1) as u64).unwrap_or(0);
    let at = first + page * SMALL_SIZE;
    noise.get(at..at + length).unwrap_or_default()
}

/// Has the file system write out what waits.
fn sync_filesystem(dir: &Path) {
    if let Ok(dir) = File::open(dir) {
        let _ = rustix::fs::syncfs(&dir);
    }
}

/// So long after a change all sides have written it out by themselves.
const WRITEBACK_DELAY: Duration = Duration::from_secs(6);

/// Drops the kernel's caches, if that is allowed (root). Dirty data is on the drives then on all
/// sides, because not all can be synced separately.
pub(crate) fn drop_caches<'a>(dirs: impl IntoIterator<Item = &'a Path>) {
    dirs.into_iter().for_each(sync_filesystem);
    std::thread::sleep(WRITEBACK_DELAY);
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "2");
}
