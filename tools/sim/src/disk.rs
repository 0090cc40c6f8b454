//! A drive that records its requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{Device, Error, MemoryDevice};

use crate::fault::{Fault, ranges_overlap};
use crate::power_cut::split_sectors;
use crate::{Event, EventKind, Journal, Random};

/// Several drives with one journal.
#[derive(Debug)]
pub struct DiskArray {
    disks: Vec<Arc<Disk>>,
    journal: Journal,
}

impl DiskArray {
    /// Empty drives of these sizes, in bytes.
    pub fn new(sizes: &[u64]) -> Self {
        let blank =
            |(index, size): (usize, &u64)| MemoryDevice::zeroed(format!("disk{index}"), *size);
        Self::from_memory(sizes.iter().enumerate().map(blank).collect())
    }

    /// Drives with existing content, such as that after a cut.
    pub fn from_memory(start: Vec<MemoryDevice>) -> Self {
        let journal = Journal::new(start.clone());
        Self::with_journal(start, journal)
    }

    /// The same for tests that cut no power: their requests are counted only, which takes less time and memory.
    pub fn without_journal(start: Vec<MemoryDevice>) -> Self {
        Self::with_journal(start, Journal::of_counts())
    }

    fn with_journal(start: Vec<MemoryDevice>, journal: Journal) -> Self {
        let disk = |(index, memory)| {
            let journal = journal.clone();
            Arc::new(Disk { index, memory, journal, faults: Mutex::default() })
        };
        let disks = start.into_iter().enumerate().map(disk).collect();
        Self { disks, journal }
    }

    /// The drives, as what runs on them sees them.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
    }

    /// The drives, to put faults on them.
    pub fn disks(&self) -> &[Arc<Disk>] {
        &self.disks
    }

    /// All requests to them.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

/// A drive.
#[derive(Debug)]
pub struct Disk {
    index: usize,
    memory: MemoryDevice,
    journal: Journal,
    faults: Mutex<Vec<Fault>>,
}

impl Disk {
    /// Adds something that is wrong with it.
    pub fn add_fault(&self, fault: Fault) {
        self.faults().push(fault);
    }

    /// Removes all faults, but not their effects on the medium.
    pub fn clear_faults(&self) {
        self.faults().clear();
    }

    /// Changes one bit in each of `sectors` sectors of the range (bytes) on the medium.
    pub fn flip_bits(&self, range: std::ops::Range<u64>, sectors: u32, seed: &mut Random) {
        let end = range.end.min(self.memory.size());
        for _ in 0..sectors {
            let at = range.start + seed.next_below(end.saturating_sub(range.start).max(1));
            let mut byte = [0];
            if self.memory.read_at(at, &mut byte).is_ok() {
                byte[0] ^= 1 << seed.next_below(8);
                self.write_and_record(at, &byte);
            }
        }
    }

    /// Its present content.
    pub fn memory(&self) -> MemoryDevice {
        self.memory.clone()
    }

    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_fault(&self, hit: impl Fn(&Fault) -> bool) -> bool {
        self.faults().iter().any(hit)
    }

    /// Takes as long as a slow drive does.
    fn delay(&self) {
        let slow = self.faults().iter().find_map(|fault| match fault {
            Fault::Slow(time) => Some(*time),
            _ => None,
        });
        if let Some(time) = slow {
            std::thread::sleep(time);
        }
    }

    fn record_event(&self, what: impl FnOnce() -> EventKind) {
        self.journal.record(|| Event { disk: self.index, kind: what() });
    }

    /// Writes and records it, as far as it fits.
    fn write_and_record(&self, offset: u64, bytes: &[u8]) {
        let room = self.memory.size().saturating_sub(offset);
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if self.memory.write_at(offset, bytes).is_ok() && !bytes.is_empty() {
            self.record_event(|| EventKind::Write { offset, bytes: bytes.into() });
        }
    }

    /// Writes about half of the sectors.
    fn write_torn(&self, offset: u64, bytes: &[u8]) {
        let mut chance = Random::new(self.journal.len() as u64);
        for (at, sector) in split_sectors(offset, bytes) {
            if chance.chance_percent(50) {
                self.write_and_record(at, sector);
            }
        }
    }

    fn check_range(&self, offset: u64, length: usize) -> Result<(), Error> {
        let size = self.memory.size();
        match offset.checked_add(length as u64) {
            Some(end) if end <= size => Ok(()),
            _ => {
                let device = self.memory.name().to_owned();
                Err(Error::OutOfRange { device, offset, length, size })
            }
        }
    }
}

const FAULT_REASON: &str = "a fault of the simulation";

impl Device for Disk {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn name(&self) -> &str {
        self.memory.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.delay();
        let length = into.len();
        let range = offset..offset.saturating_add(length as u64);
        if self.has_fault(|fault| fault.fails_read(&range)) {
            let (device, reason) = (self.name().to_owned(), FAULT_REASON.to_owned());
            return Err(Error::Read { device, offset, length, reason });
        }
        self.memory.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.delay();
        self.check_range(offset, from.len())?;
        let range = offset..offset.saturating_add(from.len() as u64);
        if self.has_fault(|fault| fault.fails_write(&range)) {
            if !self.has_fault(|fault| matches!(fault, Fault::Removed | Fault::Truncated(_))) {
                self.write_torn(offset, from);
            }
            let (device, reason) = (self.name().to_owned(), FAULT_REASON.to_owned());
            return Err(Error::Write { device, offset, length: from.len(), reason });
        }
        let lost =
            |fault: &Fault| matches!(fault, Fault::LostWrite(hit) if ranges_overlap(hit, &range));
        if self.has_fault(lost) {
            return Ok(());
        }
        let astray = self.faults().iter().find_map(|fault| match fault {
            Fault::MisdirectedWrite(hit, by) if hit.contains(&offset) => Some(*by),
            _ => None,
        });
        self.write_and_record(offset.saturating_add(astray.unwrap_or(0)), from);
        Ok(())
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        // one request, as for a real drive
        self.write_at(offset, &parts.concat())
    }

    fn flush(&self) -> Result<(), Error> {
        if self.has_fault(Fault::fails_flush) {
            self.record_event(|| EventKind::FailedFlush);
            let (device, reason) = (self.name().to_owned(), FAULT_REASON.to_owned());
            return Err(Error::Flush { device, reason });
        }
        self.record_event(|| EventKind::Flush);
        Ok(())
    }
}
