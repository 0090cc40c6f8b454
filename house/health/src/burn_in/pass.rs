//! One pass over the drive: chunks are written, or read and compared, and their speed is measured.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::{
    ALIGNMENT, BurnIn, BurnInObserver, BurnInPhase, BurnInTarget, FLUSH_INTERVAL, Fault, FaultKind,
    MAX_FAULTS, PassSpeed, ZONES, pattern,
};

/// Memory at an address that direct I/O takes.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(super) fn new(length: u64) -> Self {
        let bytes = vec![0; units::to_usize(length + ALIGNMENT)];
        let start = bytes.as_ptr().align_offset(units::to_usize(ALIGNMENT));
        Self { bytes, start }
    }

    /// The first bytes of it. The length is at most that of [`Buffer::new`].
    pub(super) fn bytes(&mut self, length: u64) -> &mut [u8] {
        let range = self.start..self.start + units::to_usize(length);
        &mut self.bytes[range]
    }
}

impl BurnIn {
    /// Runs the present pass to its end. `Break`: the observer stopped it; the state is saved.
    pub(super) fn run_pass(
        &mut self,
        target: &dyn BurnInTarget,
        observer: &mut dyn BurnInObserver,
        buffer: &mut Buffer,
    ) -> ControlFlow<()> {
        let mut unsaved = 0;
        while self.position < self.pass_length() && !self.has_given_up() {
            let (offset, length) = self.chunk_at(self.position);
            let bytes = buffer.bytes(length);
            match self.phase {
                BurnInPhase::Write => self.write_chunk(target, offset, bytes),
                BurnInPhase::Read | BurnInPhase::Done => self.read_chunk(target, offset, bytes),
            }
            self.position += length;
            unsaved += length;
            let flow = observer.observe(self);
            if unsaved >= FLUSH_INTERVAL || flow.is_break() {
                unsaved = 0;
                self.flush(target);
                observer.save(self);
            }
            flow?;
        }
        self.flush(target);
        ControlFlow::Continue(())
    }

    fn write_chunk(&mut self, target: &dyn BurnInTarget, offset: u64, bytes: &mut [u8]) {
        pattern::fill(self.seed, offset, bytes);
        let start = Instant::now();
        let written = target.write_at(offset, bytes);
        let (size, length) = (self.size, bytes.len() as u64);
        match written {
            Ok(()) => self.write.add(size, (offset, length), start.elapsed()),
            Err(why) => self.add_fault(failed("write", (offset, length), &why)),
        }
    }

    fn read_chunk(&mut self, target: &dyn BurnInTarget, offset: u64, bytes: &mut [u8]) {
        let length = bytes.len() as u64;
        // the fault of the write pass is known
        let is_unwritten = |fault: &Fault| {
            fault.offset == offset && matches!(fault.kind, FaultKind::Failed { .. })
        };
        if self.faults.iter().any(is_unwritten) {
            return;
        }
        let start = Instant::now();
        match target.read_at(offset, bytes) {
            Ok(()) => {
                let size = self.size;
                self.read.add(size, (offset, length), start.elapsed());
                if let Some(fault) = pattern::compare(self.seed, offset, bytes) {
                    self.add_fault(fault);
                }
            }
            Err(why) => self.add_fault(failed("read", (offset, length), &why)),
        }
    }

    fn flush(&mut self, target: &dyn BurnInTarget) {
        if self.phase != BurnInPhase::Write {
            return;
        }
        let start = Instant::now();
        let flushed = target.flush();
        // the data that a cache took are on the medium only now
        self.write.nanoseconds += nanoseconds(start.elapsed());
        if let Err(why) = flushed {
            self.add_fault(failed("flush", (self.position, 0), &why));
        }
    }

    fn add_fault(&mut self, fault: Fault) {
        if self.fault_count < MAX_FAULTS {
            self.faults.push(fault);
        }
        self.fault_count += 1;
    }
}

fn failed(request: &str, (offset, length): (u64, u64), why: &io::Error) -> Fault {
    let kind = FaultKind::Failed { request: request.to_owned(), why: why.to_string() };
    Fault { offset, length, kind }
}

fn nanoseconds(time: Duration) -> u64 {
    units::narrow(time.as_nanos())
}

impl PassSpeed {
    /// Adds a request to the drive of `size` bytes.
    fn add(&mut self, size: u64, (offset, length): (u64, u64), took: Duration) {
        let took = nanoseconds(took);
        self.bytes += length;
        self.nanoseconds += took;
        self.slowest = self.slowest.max(took);
        let zone = u128::from(offset) * u128::from(ZONES) / u128::from(size);
        let zone = units::narrow::<usize>(zone);
        if self.zones.len() <= zone {
            self.zones.resize(zone + 1, (0, 0));
        }
        if let Some((bytes, nanoseconds)) = self.zones.get_mut(zone) {
            *bytes += length;
            *nanoseconds += took;
        }
    }

    /// Bytes a second; none before the first request.
    pub fn bytes_per_second(&self) -> Option<u64> {
        rate(self.bytes, self.nanoseconds)
    }

    /// Bytes a second of each twentieth of the drive's length that was reached.
    pub fn zone_speeds(&self) -> Vec<Option<u64>> {
        self.zones.iter().map(|(bytes, nanoseconds)| rate(*bytes, *nanoseconds)).collect()
    }
}

fn rate(bytes: u64, nanoseconds: u64) -> Option<u64> {
    let rate = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(nanoseconds))?;
    u64::try_from(rate).ok()
}
