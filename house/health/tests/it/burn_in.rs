//! Burn-ins of drives that work, lie, fail and lose data.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use health::{
    BurnIn, BurnInEnd, BurnInError, BurnInObserver, BurnInPhase, BurnInTarget, Counter,
    DirectDrive, FaultKind, Grade,
};

const MIB: u64 = 1 << 20;
const SEED: [u8; 8] = *b"burn-in!";

/// A drive in memory with a defect.
struct FakeDrive {
    bytes: RefCell<Vec<u8>>,
    /// Bytes after which addresses begin again at 0.
    capacity: u64,
    /// Writes and reads that touch this byte fail.
    failing_byte: Option<u64>,
    /// Writes of this byte are confirmed and not stored.
    lost_byte: Option<u64>,
    flushes: Cell<u64>,
}

impl FakeDrive {
    fn new(size: u64) -> Self {
        Self {
            bytes: RefCell::new(vec![0; usize::try_from(size).unwrap()]),
            capacity: size,
            failing_byte: None,
            lost_byte: None,
            flushes: Cell::new(0),
        }
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let range = offset..offset + length as u64;
        let fails = self.failing_byte.is_some_and(|byte| range.contains(&byte));
        if fails { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn place(&self, offset: u64) -> usize {
        usize::try_from(offset % self.capacity).unwrap()
    }
}

impl BurnInTarget for FakeDrive {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        let mut stored = self.bytes.borrow_mut();
        for (sector, at) in bytes.chunks(4096).zip((offset..).step_by(4096)) {
            if self.lost_byte.is_none_or(|byte| byte / 4096 != at / 4096) {
                let place = self.place(at);
                stored[place..place + sector.len()].copy_from_slice(sector);
            }
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        for (sector, at) in bytes.chunks_mut(4096).zip((offset..).step_by(4096)) {
            let place = self.place(at);
            sector.copy_from_slice(&self.bytes.borrow()[place..place + sector.len()]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.set(self.flushes.get() + 1);
        Ok(())
    }
}

/// A drive that fails every request.
struct Dead;
impl BurnInTarget for Dead {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(5))
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Stops a burn-in after some chunks, and keeps the state that was saved.
struct StopAfter {
    chunks: u64,
    saved: Option<BurnIn>,
}

impl StopAfter {
    fn never() -> Self {
        Self { chunks: u64::MAX, saved: None }
    }
}

impl BurnInObserver for StopAfter {
    fn observe(&mut self, _: &BurnIn) -> ControlFlow<()> {
        self.chunks -= 1;
        if self.chunks == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn save(&mut self, state: &BurnIn) {
        self.saved = Some(state.clone());
    }
}

fn burn_in(drive: &FakeDrive, size: u64) -> BurnIn {
    let mut state = BurnIn::new(size, SEED, false).unwrap();
    assert_eq!(state.run(drive, &mut StopAfter::never()), BurnInEnd::Done);
    state
}

#[test]
fn sound_drive_passes() {
    let size = 9 * MIB + 512;
    let drive = FakeDrive::new(size);
    let mut state = burn_in(&drive, size);
    assert_eq!((state.write.bytes, state.read.bytes), (9 * MIB, 9 * MIB));
    assert_eq!(state.bytes_done(), 2 * state.pass_length());
    assert!(drive.flushes.get() > 0);
    let verdict = state.verdict();
    assert_eq!(verdict.grade, Grade::Ok);
    assert!(verdict.sentence.contains("whole drive") && verdict.sentence.contains("not known"));
    assert!(state.read.bytes_per_second().is_some());
    state.counters_before = BTreeMap::from([(Counter::PendingSectors, 0), (Counter::CrcErrors, 1)]);
    state.counters_after = state.counters_before.clone();
    assert!(state.verdict().sentence.contains("No SMART counter of errors grew"));
    state.counters_after.insert(Counter::CrcErrors, 3);
    assert_eq!(state.verdict().grade, Grade::Watch);
    state.counters_after.insert(Counter::PendingSectors, 8);
    let verdict = state.verdict();
    assert_eq!(verdict.grade, Grade::Failing);
    assert!(verdict.sentence.contains("Current_Pending_Sector (197) grew from 0 to 8"));
}

#[test]
fn drive_smaller_than_stated_is_found() {
    let mut drive = FakeDrive::new(16 * MIB);
    drive.capacity = 12 * MIB;
    let state = burn_in(&drive, 16 * MIB);
    let verdict = state.verdict();
    assert_eq!(state.faults[0].offset, 0);
    assert_eq!(state.faults[0].kind, FaultKind::Misplaced { written_at: 12 * MIB });
    assert_eq!(verdict.grade, Grade::Failing);
    assert!(verdict.sentence.contains("holds less than"), "{}", verdict.sentence);
}

#[test]
fn failing_place_is_reported_once() {
    let mut drive = FakeDrive::new(16 * MIB);
    drive.failing_byte = Some(9 * MIB);
    let state = burn_in(&drive, 16 * MIB);
    assert_eq!((state.fault_count, state.write.bytes), (1, 12 * MIB));
    assert_eq!(state.read.bytes, 12 * MIB, "the other places are compared");
    let verdict = state.verdict();
    assert!(
        verdict.sentence.starts_with("A write failed at byte 8388608: "),
        "{}",
        verdict.sentence
    );
}

#[test]
fn lost_write_is_found() {
    let mut drive = FakeDrive::new(8 * MIB);
    drive.lost_byte = Some(5 * MIB);
    let state = burn_in(&drive, 8 * MIB);
    assert_eq!((state.faults[0].offset, state.faults[0].length), (5 * MIB, 4096));
    assert_eq!(state.faults[0].kind, FaultKind::Lost);
    assert!(state.verdict().sentence.contains("lost it"));
}

#[test]
fn drive_without_answers_ends_early() {
    let size = 400 * MIB;
    let mut state = BurnIn::new(size, SEED, false).unwrap();
    assert_eq!(state.run(&Dead, &mut StopAfter::never()), BurnInEnd::Done);
    assert_eq!((state.fault_count, state.position), (32, 0));
    assert!(state.verdict().sentence.contains("ended after 32 faults"));
}

#[test]
fn interrupted_burn_in_continues() {
    let drive = FakeDrive::new(16 * MIB);
    let mut state = BurnIn::new(16 * MIB, SEED, false).unwrap();
    for (chunks, phase) in [(3, BurnInPhase::Write), (2, BurnInPhase::Read)] {
        let mut observer = StopAfter { chunks, saved: None };
        assert_eq!(state.run(&drive, &mut observer), BurnInEnd::Stopped);
        state = observer.saved.unwrap();
        assert_eq!(state.phase, phase);
        assert_eq!(state.verdict().grade, Grade::Unknown);
        state.check_unchanged(&drive).unwrap();
    }
    assert_eq!(state.position, 4 * MIB);
    // another program wrote to the drive meanwhile
    drive.bytes.borrow_mut()[0] ^= 1;
    assert!(matches!(state.check_unchanged(&drive), Err(BurnInError::Changed { offset: 0 })));
    drive.bytes.borrow_mut()[0] ^= 1;
    // nothing is known of a drive whose every place is faulty
    let mut faulty = state.clone();
    let kind = FaultKind::Lost;
    faulty.faults.push(health::Fault { offset: 0, length: 16 * MIB, kind });
    assert!(faulty.check_unchanged(&drive).is_err());
    assert_eq!(state.run(&drive, &mut StopAfter::never()), BurnInEnd::Done);
    assert_eq!((state.write.bytes, state.read.bytes), (16 * MIB, 16 * MIB));
    assert_eq!(state.verdict().grade, Grade::Ok);
}

#[test]
fn quick_burn_in_samples_a_drive_file() {
    let path = std::env::temp_dir().join(format!("poolhouse-burn-in-{}", std::process::id()));
    let size = 3000 * MIB + 512;
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(size).unwrap();
    let mut state = BurnIn::new(size, SEED, true).unwrap();
    assert_eq!(state.pass_length(), 1024 * MIB);
    let drive = DirectDrive::open(&path).unwrap();
    // the first region of the drive, and a part of the second
    let mut observer = StopAfter { chunks: 6, saved: None };
    assert_eq!(state.run(&drive, &mut observer), BurnInEnd::Stopped);
    state.check_unchanged(&drive).unwrap();
    let mut sector = [0; 512];
    std::os::unix::fs::FileExt::read_exact_at(&file_of(&path), &mut sector, 512).unwrap();
    assert_eq!(sector[8..16], 512_u64.to_le_bytes());
    let second = (size - 16 * MIB) / 63 / 4096 * 4096;
    std::os::unix::fs::FileExt::read_exact_at(&file_of(&path), &mut sector, second).unwrap();
    assert_eq!(sector[8..16], second.to_le_bytes());
    std::fs::remove_file(path).unwrap();
    assert!(BurnIn::new(100, SEED, false).is_err());
}

fn file_of(path: &std::path::Path) -> std::fs::File {
    std::fs::File::open(path).unwrap()
}
