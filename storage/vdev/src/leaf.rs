//! A leaf: one device, and what is known of the time it was away.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::{Device, IoKind};
use geometry::{BOOT_SIZE, LABEL_START};
use parking_lot::{Mutex, RwLock};
use units::{Ashift, Guid, MinusOrZero, Txg};

use crate::node::NodeAddress;
use crate::queue::{IoClass, LeafQueue, QueueStats, QueuedIo, thread_class, with_class};
use crate::{DeviceError, TxgRanges};

/// Bytes of labels and boot area in front of the allocatable space.
pub(crate) const LABEL_START_SIZE: u64 = 4 << 20;

/// The birth of bytes of which it is not known: only leaves that lack nothing have them.
pub(crate) const UNKNOWN_BIRTH: Txg = Txg::new(u64::MAX);

/// Bytes of labels behind it; the device's end is rounded down to a whole label first.
const LABEL_END_SIZE: u64 = 512 << 10;
const LABEL_SIZE: u64 = 256 << 10;

/// Bytes of a device between its labels.
pub(crate) fn usable_space(device: &dyn Device) -> u64 {
    let whole = device.size() - device.size() % LABEL_SIZE;
    whole.minus_or_zero(LABEL_START_SIZE + LABEL_END_SIZE)
}

/// Why a leaf takes no part in its vdev although its device may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutOfService {
    /// `zpool offline` took it offline.
    Offline {
        /// Only until the pool is exported.
        temporary: bool,
    },
    /// `zpool offline -f` faulted it.
    Faulted {
        /// Only until the pool is exported.
        temporary: bool,
    },
    /// It had too many errors.
    TooManyErrors,
}

/// One device of a pool.
#[derive(Debug)]
pub struct Leaf {
    guid: AtomicU64,
    path: String,
    device: Option<Arc<dyn Device>>,
    ashift: Ashift,
    label_txg: AtomicU64,
    /// The newest txg of which it took the uberblock into a label, since it takes part.
    written_label_txg: AtomicU64,
    dtl: RwLock<TxgRanges>,
    /// How many times it missed something since it was opened.
    miss_count: AtomicU64,
    /// The newest txg of which it missed something by failing.
    last_missed_txg: AtomicU64,
    /// It has nothing newer than this txg, since it was away then, and still is.
    absent_since: AtomicU64,
    pending: Mutex<PendingWrites>,
    flush_lock: Mutex<()>,
    /// How many are writing to it.
    active_writes: AtomicUsize,
    /// The txgs of blocks of which a failed flush may have lost some.
    lost_by_flush: RwLock<TxgRanges>,
    checksum_errors: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    /// The last that was to be written was not.
    is_failing: AtomicBool,
    /// How many slow requests its device had when counts were last cleared.
    slow_baseline: AtomicU64,
    /// It takes nothing any more: the pool may be another host's.
    is_retired: AtomicBool,
    out_of_service: Option<OutOfService>,
    queue: LeafQueue,
}

/// What was written since the last flush.
#[derive(Debug, Default)]
struct PendingWrites {
    is_dirty: bool,
    /// The first and the last txg of blocks among it.
    births: Option<(Txg, Txg)>,
}

impl Leaf {
    /// `path` is what the pool's configuration calls it; `device` is none where it was not found;
    /// `synced` is the newest txg that its own labels know of.
    pub fn new(guid: Guid, path: String, device: Option<Arc<dyn Device>>, synced: Txg) -> Self {
        Self {
            guid: AtomicU64::new(guid.get()),
            path,
            device,
            ashift: Ashift::MIN,
            label_txg: AtomicU64::new(synced.get()),
            written_label_txg: AtomicU64::new(0),
            dtl: RwLock::default(),
            miss_count: AtomicU64::new(0),
            last_missed_txg: AtomicU64::new(0),
            absent_since: AtomicU64::new(u64::MAX),
            pending: Mutex::default(),
            flush_lock: Mutex::default(),
            active_writes: AtomicUsize::new(0),
            lost_by_flush: RwLock::default(),
            checksum_errors: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            slow_baseline: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
            out_of_service: None,
            queue: LeafQueue::default(),
        }
    }

    /// The same leaf without its device, out of service. It lacks all that its labels do not know up to
    /// the txg `last`.
    #[must_use]
    pub fn to_out_of_service(&self, why: Option<OutOfService>, last: Txg) -> Self {
        let leaf = Self::new(self.guid(), self.path.clone(), None, Txg::ZERO);
        let known = self.newest_known_txg().min(last);
        let mut missed = self.dtl();
        if self.device.is_some() {
            if known < last {
                missed.add(known.next(), last);
            }
            leaf.set_absent_since(last);
        } else {
            leaf.set_absent_since(Txg::new(self.absent_since.load(Ordering::Relaxed)));
        }
        leaf.set_dtl(missed);
        leaf.record_label_txg(known);
        Self { ashift: self.ashift, out_of_service: why, ..leaf }
    }

    /// Why it takes no part in its vdev, if a command or a diagnosis took it out of service.
    pub fn out_of_service(&self) -> Option<OutOfService> {
        self.out_of_service
    }

    /// The same, with the sector size of the vdev that it is part of.
    #[must_use]
    pub fn with_ashift(self, ashift: Ashift) -> Self {
        Self { ashift, ..self }
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        Guid::new(self.guid.load(Ordering::Acquire))
    }

    /// Gives it another: the last side of a top-level vdev takes over that one's.
    pub fn set_guid(&self, guid: Guid) {
        self.guid.store(guid.get(), Ordering::Release);
    }

    /// What the pool's configuration calls it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The device, where it was found.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// log2 of the sector size of the vdev that it is part of.
    pub fn ashift(&self) -> Ashift {
        self.ashift
    }

    /// The newest txg that its own labels know of.
    pub fn label_txg(&self) -> Txg {
        Txg::new(self.label_txg.load(Ordering::Relaxed))
    }

    /// The newest txg that its labels hold, as far as it is known here.
    fn newest_known_txg(&self) -> Txg {
        // labels of a leaf that takes part are counted as they are written
        let written = self.written_label_txg.load(Ordering::Relaxed);
        if written > 0 { Txg::new(written) } else { self.label_txg() }
    }

    /// The txgs that it lacks: those that it missed, and those after the newest that its labels know.
    pub(crate) fn stale_txgs(&self) -> TxgRanges {
        let mut stale = self.dtl();
        if let Some(next) = self.label_txg().get().checked_add(1) {
            stale.add(Txg::new(next), Txg::new(u64::MAX));
        }
        stale
    }

    /// Whether it is there and may be written.
    pub fn is_writable(&self) -> bool {
        !self.is_retired() && self.device.as_ref().is_some_and(|device| device.is_writable())
    }

    /// From now on nothing is written to it: every attempt fails, and is not held against it.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }

    /// Whether asking it to flush means waiting for hardware.
    pub(crate) fn may_block(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.may_block())
    }

    /// Says which txgs it missed (the pool's DTL).
    pub fn set_dtl(&self, ranges: TxgRanges) {
        *self.dtl.write() = ranges;
    }

    /// Lets it take part again from after `last` on: what its labels do not know up to then it
    /// missed. To be called for every leaf that is there before the pool is written.
    pub fn rejoin(&self, last: Txg) {
        let synced = Txg::new(self.label_txg.swap(u64::MAX, Ordering::Relaxed));
        self.record_label_txg(synced.min(last));
        if synced < last {
            self.dtl.write().add(synced.next(), last);
        }
    }

    /// Which txgs it missed: those it was told of, and those in which writing to it failed since.
    pub fn dtl(&self) -> TxgRanges {
        self.dtl.read().clone()
    }

    /// How many times it missed something since it was opened.
    pub fn miss_count(&self) -> u64 {
        self.miss_count.load(Ordering::Acquire)
    }

    /// It has now what it missed in those txgs, but for `lost`; unless it missed anything since it
    /// had `lapses`. Gives whether that is so.
    pub fn shrink_dtl(&self, gained: &TxgRanges, lost: &TxgRanges, lapses: u64) -> bool {
        let mut away = self.dtl.write();
        if self.miss_count() != lapses {
            return false;
        }
        gained.iter().for_each(|(first, last)| away.remove(first, last));
        lost.iter().for_each(|(first, last)| away.add(first, last));
        true
    }

    /// Notes that one of its labels has this txg.
    pub fn record_label_txg(&self, txg: Txg) {
        self.written_label_txg.fetch_max(txg.get(), Ordering::Relaxed);
    }

    /// Whether its labels may know of this txg: of one more than it took at most, if it took that and
    /// said it had not. Newer ones were written elsewhere.
    pub fn can_know_txg(&self, synced: Txg) -> bool {
        synced.get().minus_or_zero(1) <= self.written_label_txg.load(Ordering::Relaxed)
    }

    /// Its device came back, and its labels know of nothing newer than `synced`: what was written since,
    /// up to `last`, it missed.
    pub fn record_reopen(&self, synced: Txg, last: Txg) {
        self.is_failing.store(false, Ordering::Relaxed);
        if synced < last {
            self.record_miss(synced.next(), last);
        }
    }

    /// It missed something of these txgs.
    fn record_miss(&self, first: Txg, last: Txg) {
        let mut away = self.dtl.write();
        away.add(first, last);
        self.last_missed_txg.fetch_max(last.get(), Ordering::AcqRel);
        self.miss_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it failed to take or to keep something of this txg, and lacks it still.
    pub fn has_missed_txg(&self, txg: Txg) -> bool {
        self.last_missed_txg.load(Ordering::Acquire) >= txg.get() && self.dtl.read().contains(txg)
    }

    /// How many times its bytes were wrong, and how many times it could not be read.
    pub fn error_counts(&self) -> (u64, u64) {
        (self.checksum_errors.load(Ordering::Relaxed), self.read_errors.load(Ordering::Relaxed))
    }

    /// How many times it could not be written.
    pub fn write_errors(&self) -> u64 {
        self.write_errors.load(Ordering::Relaxed)
    }

    /// Whether the last that it was to write, or to keep, failed.
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Whether it fails since its device is not where it was any more.
    pub fn is_device_gone(&self) -> bool {
        self.is_failing() && self.device.as_ref().is_some_and(|device| device.is_gone())
    }

    /// Notes whether it wrote something, or kept it.
    fn record_write_result(&self, well: bool) {
        if !well {
            self.write_errors.fetch_add(1, Ordering::Relaxed);
        }
        if well == self.is_failing() {
            self.is_failing.store(!well, Ordering::Relaxed);
        }
    }

    /// How many requests took longer than half a minute.
    pub fn slow_requests(&self) -> u64 {
        let all = self.device.as_ref().map_or(0, |device| device.slow_requests());
        all.minus_or_zero(self.slow_baseline.load(Ordering::Relaxed))
    }

    /// Counts its errors, and slow requests, from 0 again.
    pub fn clear_errors(&self) {
        self.slow_baseline.fetch_add(self.slow_requests(), Ordering::Relaxed);
        for count in [&self.checksum_errors, &self.read_errors, &self.write_errors] {
            count.store(0, Ordering::Relaxed);
        }
        self.is_failing.store(false, Ordering::Relaxed);
    }

    /// Those of the txgs of which a failed flush may have lost blocks.
    pub(crate) fn txgs_lost_by_flush(&self, txgs: &TxgRanges) -> TxgRanges {
        self.lost_by_flush.read().intersection(txgs)
    }

    /// Whether it missed anything of these txgs.
    pub(crate) fn has_missed_any(&self, txgs: &TxgRanges) -> bool {
        !txgs.is_empty() && !self.dtl.read().intersection(txgs).is_empty()
    }

    /// Counts bytes that turned out wrong.
    pub(crate) fn count_checksum_error(&self) {
        self.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells that the device was away when this group was written, and still is.
    pub fn set_absent_since(&self, txg: Txg) {
        self.absent_since.store(txg.get(), Ordering::Relaxed);
    }

    /// Whether it is known to have nothing of what was written in `birth`, wherever it is.
    pub(crate) fn is_known_to_lack(&self, birth: Txg) -> bool {
        birth.get() > self.absent_since.load(Ordering::Relaxed) || self.dtl.read().contains(birth)
    }

    /// Whether it can hold what was written in `birth`.
    pub(crate) fn check_has_txg(&self, birth: Txg) -> Result<(), DeviceError> {
        if self.device.is_none() {
            return Err(DeviceError::Missing);
        }
        let away = self.dtl.read();
        let is_missed = |away: &TxgRanges| birth == UNKNOWN_BIRTH || away.contains(birth);
        if birth > self.label_txg() || (!away.is_empty() && is_missed(&away)) {
            return Err(DeviceError::Stale);
        }
        Ok(())
    }

    /// Fills `into` from `position`, counted from the device's first byte.
    pub(crate) fn read(&self, position: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let device = self.device.as_ref().ok_or(DeviceError::Missing)?;
        let bytes = units::to_u64(into.len());
        let io = QueuedIo { device: &**device, kind: IoKind::Read, bytes };
        self.queue.run(io, || device.read_at(position, into)).map_err(|_| {
            self.read_errors.fetch_add(1, Ordering::Relaxed);
            DeviceError::ReadFailed
        })
    }

    /// Fills the parts one after the other from `position`; whether that went well. Errors are not
    /// counted: whoever needs the bytes asks for them once more.
    pub(crate) fn read_parts(&self, position: u64, parts: &mut [&mut [u8]]) -> bool {
        let Some(device) = &self.device else { return false };
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let io = QueuedIo { device: &**device, kind: IoKind::Read, bytes };
        self.queue.run(io, || device.read_parts_at(position, parts).is_ok())
    }

    /// Writes bytes that belong to no block, such as labels, at `position`, counted from the
    /// device's first byte.
    pub fn write(&self, position: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.write_raw(None, position, &[from])
    }

    /// Writes parts of blocks one behind the other, at an address of the allocatable space or of the boot
    /// area. What fails it remembers to have missed.
    pub(crate) fn write_at(
        &self,
        address: NodeAddress,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        let NodeAddress { offset, birth, is_absolute, .. } = address;
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let space = self.device.as_ref().map_or(u64::MAX, |device| usable_space(&**device));
        // nothing but labels is ever written over labels, whatever an address says
        let boot = LABEL_START - BOOT_SIZE;
        let (first, limit) =
            if is_absolute { (offset.checked_sub(boot), BOOT_SIZE) } else { (Some(offset), space) };
        let fits =
            first.and_then(|first| first.checked_add(length)).is_some_and(|end| end <= limit);
        let position =
            if is_absolute { Some(offset) } else { offset.checked_add(LABEL_START_SIZE) };
        let result = match position.filter(|_| fits) {
            Some(position) => self.write_raw(Some(birth), position, parts),
            None => Err(DeviceError::WriteFailed),
        };
        if result.is_err() {
            self.record_miss(birth, birth);
        }
        result
    }

    /// Tells the device that a range of it is not in use, counted from its first byte.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn discard(&self, range: Range<u64>) -> Result<(), DeviceError> {
        let device = self.device.as_ref().ok_or(DeviceError::Missing)?;
        if self.is_retired() {
            return Err(DeviceError::WriteFailed);
        }
        assert!(range.start >= LABEL_START, "no label is discarded");
        let io = QueuedIo { device: &**device, kind: IoKind::Trim, bytes: range.end - range.start };
        self.queue.run(io, || device.discard(range)).map_err(|_| DeviceError::WriteFailed)
    }

    /// The counts of its queue.
    pub fn queue_stats(&self) -> QueueStats {
        self.queue.stats()
    }

    /// Waits for the turn of an I/O of so many bytes, before what users wait for is locked.
    pub(crate) fn await_turn(&self, class: IoClass, bytes: u64) {
        if let Some(device) = &self.device {
            self.queue.await_turn(&**device, class, bytes);
        }
    }

    /// Sets how many of a hundred I/Os are background I/Os while users have theirs.
    pub(crate) fn set_background_share(&self, percent: u64) {
        self.queue.set_share(percent);
    }

    /// Whether somebody is writing to it just now.
    pub(crate) fn is_busy(&self) -> bool {
        self.active_writes.load(Ordering::Relaxed) > 0
    }

    fn write_raw(
        &self,
        birth: Option<Txg>,
        position: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        let device = self.device.as_ref().ok_or(DeviceError::Missing)?;
        if self.is_retired() {
            return Err(DeviceError::WriteFailed);
        }
        assert!(
            birth.is_none() || position >= LABEL_START - BOOT_SIZE,
            "no block is written over labels"
        );
        // Rule W2: noted before, so that a flush at the same time that fails is known to have hit it, and
        // after, since such a flush may have come too early for it.
        self.pending.lock().record(birth);
        self.active_writes.fetch_add(1, Ordering::Relaxed);
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let io = QueuedIo { device: &**device, kind: IoKind::Write, bytes };
        // the txg, and whoever waits for it, waits for labels
        let is_label = birth.is_none() && thread_class() == IoClass::User;
        let class = if is_label { IoClass::Sync } else { thread_class() };
        let write = || self.queue.run(io, || device.write_parts_at(position, parts));
        let written = with_class(class, write);
        let active = self.active_writes.fetch_sub(1, Ordering::Relaxed);
        assert!(active > 0, "a write to leaf {} ends that began", self.guid());
        self.pending.lock().record(birth);
        self.record_write_result(written.is_ok());
        written.map_err(|_| DeviceError::WriteFailed)
    }

    /// Whether anything was written since the last flush began, or one is going on.
    pub(crate) fn needs_flush(&self) -> bool {
        self.pending.lock().is_dirty || self.flush_lock.is_locked()
    }

    /// Returns when all that was written before outlasts a power cut. If it fails, the leaf counts
    /// as having missed the txgs of all that was written since the last time.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let device = self.device.as_ref().ok_or(DeviceError::Missing)?;
        // Rule W2: a thread that comes while another flushes goes on when that is done. The marks are taken before
        // the flush: a write that begins during it is marked for the next one.
        let _turn = self.flush_lock.lock();
        let PendingWrites { is_dirty: anything, births } =
            std::mem::take(&mut *self.pending.lock());
        if !anything {
            return Ok(());
        }
        if self.is_retired() {
            return Err(DeviceError::WriteFailed);
        }
        let kept = device.flush();
        self.record_write_result(kept.is_ok());
        kept.map_err(|_| {
            if let Some((first, last)) = births {
                self.record_miss(first, last);
                self.lost_by_flush.write().add(first, last);
            }
            DeviceError::WriteFailed
        })
    }
}

impl PendingWrites {
    fn record(&mut self, birth: Option<Txg>) {
        self.is_dirty = true;
        if let Some(birth) = birth {
            let (first, last) = self.births.unwrap_or((birth, birth));
            self.births = Some((first.min(birth), last.max(birth)));
        }
    }
}
