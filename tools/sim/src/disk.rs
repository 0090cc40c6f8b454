//! A drive that writes down what is asked of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::{Device, Error, MemoryDevice};

use crate::cut::sectors;
use crate::fault::{Fault, overlap};
use crate::{Event, Journal, Seed, What};

/// Several drives with one journal.
#[derive(Debug)]
pub struct Storm {
    disks: Vec<Arc<Disk>>,
    journal: Journal,
}

impl Storm {
    /// Empty drives of these sizes, in bytes.
    pub fn new(sizes: &[u64]) -> Self {
        let blank =
            |(index, size): (usize, &u64)| MemoryDevice::zeroed(format!("disk{index}"), *size);
        Self::from_memory(sizes.iter().enumerate().map(blank).collect())
    }

    /// Drives that hold something already, such as what a cut has left.
    pub fn from_memory(start: Vec<MemoryDevice>) -> Self {
        let journal = Journal::new(start.clone());
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

    /// All that was asked of them.
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

    /// Puts everything right again, but not what was done to the medium.
    pub fn mend(&self) {
        self.faults().clear();
    }

    /// Changes one bit in each of `sectors` sectors of the range (bytes) on the medium.
    pub fn rot(&self, range: std::ops::Range<u64>, sectors: u32, seed: &mut Seed) {
        let end = range.end.min(self.memory.size());
        for _ in 0..sectors {
            let at = range.start + seed.below(end.saturating_sub(range.start).max(1));
            let mut byte = [0];
            if self.memory.read_at(at, &mut byte).is_ok() {
                byte[0] ^= 1 << seed.below(8);
                self.write(at, &byte);
            }
        }
    }

    /// What it holds now.
    pub fn memory(&self) -> MemoryDevice {
        self.memory.clone()
    }

    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn any(&self, hit: impl Fn(&Fault) -> bool) -> bool {
        self.faults().iter().any(hit)
    }

    fn note(&self, what: What) {
        self.journal.record().events.push(Event { disk: self.index, what });
    }

    /// Writes and notes it, as far as there is room.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let room = self.memory.size().saturating_sub(offset);
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if self.memory.write_at(offset, bytes).is_ok() && !bytes.is_empty() {
            self.note(What::Write { offset, bytes: bytes.into() });
        }
    }

    /// Writes about half of the sectors.
    fn write_some(&self, offset: u64, bytes: &[u8]) {
        let mut chance = Seed::new(self.journal.len() as u64);
        for (at, sector) in sectors(offset, bytes) {
            if chance.percent(50) {
                self.write(at, sector);
            }
        }
    }

    fn end(&self, offset: u64, length: usize) -> Result<(), Error> {
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

const REASON: &str = "the storm said so";

impl Device for Disk {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn name(&self) -> &str {
        self.memory.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let length = into.len();
        let range = offset..offset.saturating_add(length as u64);
        if self.any(|fault| fault.fails_read(&range)) {
            let (device, reason) = (self.name().to_owned(), REASON.to_owned());
            return Err(Error::Read { device, offset, length, reason });
        }
        self.memory.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.end(offset, from.len())?;
        let range = offset..offset.saturating_add(from.len() as u64);
        if self.any(|fault| fault.fails_write(&range)) {
            if !self.any(|fault| matches!(fault, Fault::Gone | Fault::Short(_))) {
                self.write_some(offset, from);
            }
            let (device, reason) = (self.name().to_owned(), REASON.to_owned());
            return Err(Error::Write { device, offset, length: from.len(), reason });
        }
        let lost = |fault: &Fault| matches!(fault, Fault::Lost(hit) if overlap(hit, &range));
        if self.any(lost) {
            return Ok(());
        }
        let astray = self.faults().iter().find_map(|fault| match fault {
            Fault::Astray(hit, by) if hit.contains(&offset) => Some(*by),
            _ => None,
        });
        self.write(offset.saturating_add(astray.unwrap_or(0)), from);
        Ok(())
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        // one request, as for a real drive
        self.write_at(offset, &parts.concat())
    }

    fn flush(&self) -> Result<(), Error> {
        if self.any(Fault::fails_flush) {
            self.note(What::FailedFlush);
            let (device, reason) = (self.name().to_owned(), REASON.to_owned());
            return Err(Error::Flush { device, reason });
        }
        self.note(What::Flush);
        Ok(())
    }
}
