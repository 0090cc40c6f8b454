//! What is found on drives after the power has failed.

use device::{Device, MemoryDevice};

use crate::journal::{Event, What};
use crate::{SECTOR, Seed};

/// The drives at a point of the journal: what has reached their media for good, and which writes
/// may have reached them.
#[derive(Debug)]
pub(crate) struct Sweep {
    at: usize,
    disks: Vec<Reached>,
}

/// One drive at a point of the journal.
#[derive(Debug)]
struct Reached {
    /// What lasts.
    lasting: MemoryDevice,
    /// The writes since, as indices into the journal.
    open: Vec<usize>,
    /// How many of those were there when a flush failed.
    doubtful: usize,
}

impl Sweep {
    pub(crate) fn new(start: &[MemoryDevice]) -> Self {
        let reached =
            |disk: &MemoryDevice| Reached { lasting: disk.clone(), open: Vec::new(), doubtful: 0 };
        Self { at: 0, disks: start.iter().map(reached).collect() }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Goes on to after the first `at` requests.
    pub(crate) fn advance(&mut self, events: &[Event], at: usize) {
        for (index, event) in events.iter().enumerate().take(at).skip(self.at) {
            let Some(disk) = self.disks.get_mut(event.disk) else { continue };
            match event.what {
                What::Write { .. } => disk.open.push(index),
                What::FailedFlush => disk.doubtful = disk.open.len(),
                What::Flush => disk.flush(events),
            }
        }
        self.at = at;
    }

    /// One way in which the drives could be found now.
    pub(crate) fn cut(&self, events: &[Event], seed: u64) -> Vec<MemoryDevice> {
        let mut chance = Seed::new(seed);
        self.disks.iter().map(|disk| disk.cut(events, seed, &mut chance)).collect()
    }
}

impl Reached {
    /// What is open lasts from now on; of what a flush failed for, some never will.
    fn flush(&mut self, events: &[Event]) {
        for (order, index) in self.open.drain(..).enumerate() {
            let lost = order < self.doubtful && Seed::new(index as u64).percent(50);
            if let (false, What::Write { offset, bytes }) = (lost, &events[index].what) {
                put(&self.lasting, *offset, bytes);
            }
        }
        self.doubtful = 0;
    }

    fn cut(&self, events: &[Event], seed: u64, chance: &mut Seed) -> MemoryDevice {
        let found = self.lasting.clone();
        // more of it is there on one drive, less on another
        let percent = [0, 10, 50, 90, 100][usize::try_from(chance.below(5)).unwrap_or(0)];
        for index in &self.open {
            let What::Write { offset, bytes } = &events[*index].what else { continue };
            match seed {
                0 => {}
                1 => put(&found, *offset, bytes),
                _ if chance.percent(20) => tear(&found, *offset, bytes, chance),
                _ if chance.percent(percent) => put(&found, *offset, bytes),
                _ => {}
            }
        }
        found
    }
}

/// Writes what the journal accepted before.
fn put(disk: &MemoryDevice, offset: u64, bytes: &[u8]) {
    let written = disk.write_at(offset, bytes);
    assert!(written.is_ok(), "the journal holds nothing beyond a drive's end");
}

/// Writes some of its sectors.
fn tear(disk: &MemoryDevice, offset: u64, bytes: &[u8], chance: &mut Seed) {
    let percent = 10 + chance.below(81);
    for (at, sector) in sectors(offset, bytes) {
        if chance.percent(percent) {
            put(disk, at, sector);
        }
    }
}

/// The bytes in whole sectors of the drive, but for the ends.
pub(crate) fn sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let (mut rest, mut at) = (bytes, offset);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let within = usize::try_from(at % SECTOR as u64).unwrap_or(0);
        let (sector, later) = rest.split_at(rest.len().min(SECTOR - within));
        let found = (at, sector);
        at += sector.len() as u64;
        rest = later;
        Some(found)
    })
}
