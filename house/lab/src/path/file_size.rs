//! Chooses the file's size, so that runs are long enough and no cache can serve the reads.

use std::time::Duration;

use units::human_bytes;

use super::Options;
use crate::mount::Mount;
use crate::number::{per_second, to_duration, to_u64};
use crate::progress::Progress;
use crate::scratch_dir::ScratchDir;
use crate::target::FileTarget;
use crate::timed_run::{Operation, Order, Task};
use crate::workload::SEQUENTIAL_BLOCK_SIZE;
use crate::{Error, Machine, System};

/// The largest trial: far more than can be written in its time.
const MAX_PROBE_SIZE: u64 = 1 << 36;

/// A file's size and the speed at which it may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileSize {
    pub(crate) bytes: u64,
    pub(crate) write_rate: f64,
}

impl FileSize {
    /// How long it takes to go through the file once.
    pub(crate) fn pass_duration(self) -> Duration {
        to_duration(crate::number::to_f64(self.bytes) / self.write_rate.max(1.0))
    }
}

/// Chooses it; none if the work was stopped.
pub(super) fn choose_size(
    folder: &ScratchDir,
    wish: &Options,
    mount: &Mount,
    course: &Progress<'_>,
    system: &System,
) -> Result<Option<FileSize>, Error> {
    let free = folder.free_bytes()?;
    let room = |wanted: u64| Error::NoSpace {
        subject: format!("'{}'", mount.point.display()),
        available: human_bytes(free),
        needed: human_bytes(wanted),
    };
    if let Some(wanted) = wish.size.filter(|wanted| *wanted > free) {
        return Err(room(wanted));
    }
    let Some(rate) = measure_write_rate(folder, wish, free, course, system)? else {
        return Ok(None);
    };
    let bytes = wish.size.unwrap_or_else(|| {
        let mut wanted = to_u64(rate * wish.run_time.as_secs_f64()).max(wish.min_size);
        if !folder.is_direct() || mount.kind == "zfs" {
            // more than the cache can hold, unless it is to be quick
            let memory = Machine::read(system).memory_bytes;
            wanted = wanted.max(if is_quick(wish) { 0 } else { 2 * memory });
        }
        wanted.min(free / 2)
    });
    let bytes = bytes / SEQUENTIAL_BLOCK_SIZE * SEQUENTIAL_BLOCK_SIZE;
    if bytes < SEQUENTIAL_BLOCK_SIZE {
        Err(room(SEQUENTIAL_BLOCK_SIZE))
    } else {
        Ok(Some(FileSize { bytes, write_rate: rate }))
    }
}

/// The write rate of a new file, with this much `free`; none if the work was stopped.
pub(crate) fn measure_write_rate(
    place: &dyn FileTarget,
    wish: &Options,
    free: u64,
    course: &Progress<'_>,
    system: &System,
) -> Result<Option<f64>, Error> {
    let time = (wish.run_time / 10).min(Duration::from_secs(1)).max(Duration::from_millis(20));
    course.start_step("how fast it is", time);
    let task = Task {
        operation: Operation::Write,
        order: Order::Sequential,
        block_size: SEQUENTIAL_BLOCK_SIZE,
        queue_depth: 1,
        range: 0..MAX_PROBE_SIZE.min(wish.size.unwrap_or(free / 4)).max(SEQUENTIAL_BLOCK_SIZE),
        time_limit: Some(time),
        use_zeros: wish.use_zeros,
        seed: 0,
    };
    let tried = task.run(&*place.create_block_file("try")?, course, system)?;
    place.remove_file("try")?;
    Ok(tried.map(|ran| per_second(ran.bytes, ran.duration)))
}

pub(crate) fn is_quick(wish: &Options) -> bool {
    wish.run_time < Duration::from_secs(5)
}

/// The notes about a file of that size.
pub(super) fn notes(
    folder: &ScratchDir,
    wish: &Options,
    mount: &Mount,
    bytes: u64,
    system: &System,
) -> Vec<String> {
    let mut notes = Vec::new();
    if wish.use_zeros {
        notes.push("Zeros were written: with compression, hardly any of it reaches drives.".into());
    }
    if is_quick(wish) {
        notes.push("A quick look: runs this short say little about drives with caches.".into());
    }
    if !folder.is_direct() {
        let why = if wish.buffered { "as requested" } else { "as direct I/O does not work here" };
        notes.push(format!(
            "Through the page cache, {why}; it was emptied of the file before every read."
        ));
    }
    let memory = Machine::read(system).memory_bytes;
    if let Some(cache) = mount.external_cache() {
        let fits =
            if bytes < 2 * memory { ", and the file fits into a memory of its size" } else { "" };
        notes.push(format!(
            "What is read may have been kept by {cache}{fits}: --size {} is safe from the memory \
             of this machine.",
            human_bytes(2 * memory)
        ));
    }
    if !wish.files.is_empty() && !wish.drop_caches {
        notes.push(
            "Names and attributes of small files were cached, because they were just created (--drop-caches drops the caches; only root may)."
                .into(),
        );
    }
    notes
}
