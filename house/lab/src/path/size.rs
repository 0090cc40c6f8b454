//! How large the file must be, so that runs are long enough and no cache can answer them.

use std::time::Duration;

use units::human_bytes;

use super::Wish;
use crate::course::Course;
use crate::folder::Folder;
use crate::mount::Mount;
use crate::number::{per_second, seconds, whole};
use crate::store::Place;
use crate::timed::{Order, Task, Verb};
use crate::workload::LONG;
use crate::{Error, Machine, System};

/// How much is tried at most: what is written in the try's time by far.
const MOST_TRIED: u64 = 1 << 36;

/// A file's size and the speed at which it may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) rate: f64,
}

impl Size {
    /// How long it takes to go through the file once.
    pub(crate) fn pass(self) -> Duration {
        seconds(crate::number::float(self.bytes) / self.rate.max(1.0))
    }
}

/// Chooses it; none if the work was stopped.
pub(super) fn choose(
    folder: &Folder,
    wish: &Wish,
    mount: &Mount,
    course: &Course<'_>,
    system: &System,
) -> Result<Option<Size>, Error> {
    let free = folder.free_bytes()?;
    let room = |wanted: u64| Error::Room {
        subject: format!("'{}'", mount.point.display()),
        free: human_bytes(free),
        wanted: human_bytes(wanted),
    };
    if let Some(wanted) = wish.size.filter(|wanted| *wanted > free) {
        return Err(room(wanted));
    }
    let Some(rate) = rate(folder, wish, free, course, system)? else { return Ok(None) };
    let bytes = wish.size.unwrap_or_else(|| {
        let mut wanted = whole(rate * wish.time.as_secs_f64()).max(wish.least_size);
        if !folder.is_direct() || mount.kind == "zfs" {
            // more than the cache can hold, unless it is to be quick
            let memory = Machine::of(system).memory_bytes;
            wanted = wanted.max(if is_quick(wish) { 0 } else { 2 * memory });
        }
        wanted.min(free / 2)
    });
    let bytes = bytes / LONG * LONG;
    if bytes < LONG { Err(room(LONG)) } else { Ok(Some(Size { bytes, rate })) }
}

/// How fast a new file is written, where so much is `free`; none if the work was stopped.
pub(crate) fn rate(
    place: &dyn Place,
    wish: &Wish,
    free: u64,
    course: &Course<'_>,
    system: &System,
) -> Result<Option<f64>, Error> {
    let time = (wish.time / 10).min(Duration::from_secs(1)).max(Duration::from_millis(20));
    course.begin("how fast it is", time);
    let task = Task {
        verb: Verb::Write,
        order: Order::Once,
        block: LONG,
        depth: 1,
        span: 0..MOST_TRIED.min(wish.size.unwrap_or(free / 4)).max(LONG),
        time: Some(time),
        zeros: wish.zeros,
        seed: 0,
    };
    let tried = task.run(&*place.blocks("try")?, course, system)?;
    place.remove("try")?;
    Ok(tried.map(|ran| per_second(ran.bytes, ran.time)))
}

pub(crate) fn is_quick(wish: &Wish) -> bool {
    wish.time < Duration::from_secs(5)
}

/// What must be known about a file of that size.
pub(super) fn notes(
    folder: &Folder,
    wish: &Wish,
    mount: &Mount,
    bytes: u64,
    system: &System,
) -> Vec<String> {
    let mut notes = Vec::new();
    if wish.zeros {
        notes.push("Zeros were written: with compression, hardly any of it reaches drives.".into());
    }
    if is_quick(wish) {
        notes.push("A quick look: runs this short say little about drives with caches.".into());
    }
    if !folder.is_direct() {
        let why = if wish.buffered { "as was asked" } else { "as direct I/O does not work here" };
        notes.push(format!(
            "Through the page cache, {why}; it was emptied of the file before every read."
        ));
    }
    let memory = Machine::of(system).memory_bytes;
    if let Some(cache) = mount.other_cache() {
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
            "Names and attributes of small files were in memory when they were asked for, as they \
             had just been made (--drop-caches empties it; only root may)."
                .into(),
        );
    }
    notes
}
