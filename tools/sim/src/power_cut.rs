//! The content of drives after a power failure.

use device::{Device, MemoryDevice};

use crate::journal::{Event, EventKind};
use crate::{Random, SECTOR};

/// The drives at a point of the journal: the durable content of their media, and the writes
/// that may have reached them.
#[derive(Debug)]
pub(crate) struct JournalCursor {
    position: usize,
    disks: Vec<DiskState>,
}

/// One drive at a point of the journal.
#[derive(Debug)]
struct DiskState {
    /// The durable content.
    durable: MemoryDevice,
    /// The writes since, as indices into the journal.
    unflushed: Vec<usize>,
    /// How many of those were there when a flush failed.
    failed_flush_count: usize,
}

impl JournalCursor {
    pub(crate) fn new(start: &[MemoryDevice]) -> Self {
        let reached = |disk: &MemoryDevice| DiskState {
            durable: disk.clone(),
            unflushed: Vec::new(),
            failed_flush_count: 0,
        };
        Self { position: 0, disks: start.iter().map(reached).collect() }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// Continues to the point after the first `at` requests.
    pub(crate) fn advance(&mut self, events: &[Event], at: usize) {
        for (index, event) in events.iter().enumerate().take(at).skip(self.position) {
            let Some(disk) = self.disks.get_mut(event.disk) else { continue };
            match event.kind {
                EventKind::Write { .. } => disk.unflushed.push(index),
                EventKind::FailedFlush => disk.failed_flush_count = disk.unflushed.len(),
                EventKind::Flush => disk.flush(events),
            }
        }
        self.position = at;
    }

    /// One way in which the drives could be found now.
    pub(crate) fn cut_power(&self, events: &[Event], seed: u64) -> Vec<MemoryDevice> {
        let mut chance = Random::new(seed);
        self.disks.iter().map(|disk| disk.cut_power(events, seed, &mut chance)).collect()
    }
}

impl DiskState {
    /// Open writes are durable from now on; of those before a failed flush, some never will be.
    fn flush(&mut self, events: &[Event]) {
        for (order, index) in self.unflushed.drain(..).enumerate() {
            let lost =
                order < self.failed_flush_count && Random::new(index as u64).chance_percent(50);
            if let (false, EventKind::Write { offset, bytes }) = (lost, &events[index].kind) {
                apply_write(&self.durable, *offset, bytes);
            }
        }
        self.failed_flush_count = 0;
    }

    fn cut_power(&self, events: &[Event], seed: u64, chance: &mut Random) -> MemoryDevice {
        let found = self.durable.clone();
        // the share that survives differs from drive to drive
        let percent = [0, 10, 50, 90, 100][usize::try_from(chance.next_below(5)).unwrap_or(0)];
        for index in &self.unflushed {
            let EventKind::Write { offset, bytes } = &events[*index].kind else { continue };
            match seed {
                0 => {}
                1 => apply_write(&found, *offset, bytes),
                _ if chance.chance_percent(20) => apply_torn_write(&found, *offset, bytes, chance),
                _ if chance.chance_percent(percent) => apply_write(&found, *offset, bytes),
                _ => {}
            }
        }
        found
    }
}

/// Repeats the writes that the journal accepted before.
fn apply_write(disk: &MemoryDevice, offset: u64, bytes: &[u8]) {
    let written = disk.write_at(offset, bytes);
    assert!(written.is_ok(), "the journal holds nothing beyond a drive's end");
}

/// Writes some of its sectors.
fn apply_torn_write(disk: &MemoryDevice, offset: u64, bytes: &[u8], chance: &mut Random) {
    let percent = 10 + chance.next_below(81);
    for (at, sector) in split_sectors(offset, bytes) {
        if chance.chance_percent(percent) {
            apply_write(disk, at, sector);
        }
    }
}

/// The bytes in whole sectors of the drive, but for the ends.
pub(crate) fn split_sectors(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
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
