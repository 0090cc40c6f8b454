//! A leaf: one device, and what is known of the time it was away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::Device;
use parking_lot::{Mutex, RwLock};
use units::{Ashift, Guid, Txg};

use crate::{Trouble, TxgRanges};

/// Bytes of labels and boot area in front of the allocatable space.
pub(crate) const FRONT: u64 = 4 << 20;

/// Bytes of labels behind it; the device's end is rounded down to a whole label first.
const BACK: u64 = 512 << 10;
const LABEL: u64 = 256 << 10;

/// Bytes of a device between its labels.
pub(crate) fn space(device: &dyn Device) -> u64 {
    let whole = device.size() - device.size() % LABEL;
    whole.saturating_sub(BACK).saturating_sub(FRONT)
}

/// One device of a pool.
#[derive(Debug)]
pub struct Leaf {
    guid: AtomicU64,
    path: String,
    device: Option<Arc<dyn Device>>,
    ashift: Ashift,
    synced: AtomicU64,
    /// The newest txg of which it took the uberblock into a label, since it takes part.
    labelled: AtomicU64,
    away: RwLock<TxgRanges>,
    /// How many times it missed something since it was opened.
    lapses: AtomicU64,
    /// The newest txg of which it missed something by failing.
    lapsed: AtomicU64,
    /// It has nothing newer than this txg, since it was away then, and still is.
    gone_since: AtomicU64,
    pending: Mutex<Pending>,
    flushing: Mutex<()>,
    /// How many are writing to it.
    writing: AtomicUsize,
    /// The txgs of blocks of which a failed flush may have lost some.
    doubtful: RwLock<TxgRanges>,
    wrong: AtomicU64,
    failed: AtomicU64,
    unwritten: AtomicU64,
    /// The last that was to be written was not.
    failing: AtomicBool,
    /// How many slow requests its device had when counts were last cleared.
    slow_before: AtomicU64,
    /// It takes nothing any more: the pool may be another host's.
    retired: AtomicBool,
}

/// What was written since the last flush.
#[derive(Debug, Default)]
struct Pending {
    anything: bool,
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
            synced: AtomicU64::new(synced.get()),
            labelled: AtomicU64::new(0),
            away: RwLock::default(),
            lapses: AtomicU64::new(0),
            lapsed: AtomicU64::new(0),
            gone_since: AtomicU64::new(u64::MAX),
            pending: Mutex::default(),
            flushing: Mutex::default(),
            writing: AtomicUsize::new(0),
            doubtful: RwLock::default(),
            wrong: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            slow_before: AtomicU64::new(0),
            retired: AtomicBool::new(false),
        }
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
    pub fn synced(&self) -> Txg {
        Txg::new(self.synced.load(Ordering::Relaxed))
    }

    /// Whether it is there and may be written.
    pub fn is_writable(&self) -> bool {
        !self.is_retired() && self.device.as_ref().is_some_and(|device| device.is_writable())
    }

    /// From now on nothing is written to it: every attempt fails, and is not held against it.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether asking it to flush means waiting for hardware.
    pub(crate) fn waits(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.waits())
    }

    /// Says which txgs it missed (the pool's DTL).
    pub fn set_away(&self, ranges: TxgRanges) {
        *self.away.write() = ranges;
    }

    /// Lets it take part again from after `last` on: what its labels do not know up to then it
    /// missed. To be called for every leaf that is there before the pool is written.
    pub fn rejoin(&self, last: Txg) {
        let synced = Txg::new(self.synced.swap(u64::MAX, Ordering::Relaxed));
        self.note_labelled(synced.min(last));
        let first = Txg::new(synced.get().saturating_add(1));
        if synced < last {
            self.away.write().add(first, last);
        }
    }

    /// Which txgs it missed: those it was told of, and those in which writing to it failed since.
    pub fn away(&self) -> TxgRanges {
        self.away.read().clone()
    }

    /// How many times it missed something since it was opened.
    pub fn lapses(&self) -> u64 {
        self.lapses.load(Ordering::Acquire)
    }

    /// It has now what it missed in those txgs, but for `lost`; unless it missed anything since it
    /// had `lapses`. Gives whether that is so.
    pub fn recover(&self, gained: &TxgRanges, lost: &TxgRanges, lapses: u64) -> bool {
        let mut away = self.away.write();
        if self.lapses() != lapses {
            return false;
        }
        gained.iter().for_each(|(first, last)| away.cut(first, last));
        lost.iter().for_each(|(first, last)| away.add(first, last));
        true
    }

    /// Notes that one of its labels has this txg.
    pub fn note_labelled(&self, txg: Txg) {
        self.labelled.fetch_max(txg.get(), Ordering::Relaxed);
    }

    /// Whether its labels may know of this txg: of one more than it took at most, if it took that and
    /// said it had not. Newer ones were written elsewhere.
    pub fn may_know(&self, synced: Txg) -> bool {
        synced.get() <= self.labelled.load(Ordering::Relaxed).saturating_add(1)
    }

    /// Its device came back, and its labels know of nothing newer than `synced`: what was written since,
    /// up to `last`, it missed.
    pub fn came_back(&self, synced: Txg, last: Txg) {
        self.failing.store(false, Ordering::Relaxed);
        if synced < last {
            self.lapse(Txg::new(synced.get().saturating_add(1)), last);
        }
    }

    /// It missed something of these txgs.
    fn lapse(&self, first: Txg, last: Txg) {
        let mut away = self.away.write();
        away.add(first, last);
        self.lapsed.fetch_max(last.get(), Ordering::AcqRel);
        self.lapses.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it failed to take or to keep something of this txg, and lacks it still.
    pub fn lapsed_in(&self, txg: Txg) -> bool {
        self.lapsed.load(Ordering::Acquire) >= txg.get() && self.away.read().contains(txg)
    }

    /// How many times its bytes were wrong, and how many times it could not be read.
    pub fn errors(&self) -> (u64, u64) {
        (self.wrong.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// How many times it could not be written.
    pub fn write_errors(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Whether the last that it was to write, or to keep, failed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    /// Whether it fails since its device is not where it was any more.
    pub fn is_gone(&self) -> bool {
        self.is_failing() && self.device.as_ref().is_some_and(|device| device.is_away())
    }

    /// Notes whether it wrote something, or kept it.
    fn note_written(&self, well: bool) {
        if !well {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        if well == self.is_failing() {
            self.failing.store(!well, Ordering::Relaxed);
        }
    }

    /// How many requests took longer than half a minute.
    pub fn slow_requests(&self) -> u64 {
        let all = self.device.as_ref().map_or(0, |device| device.slow_requests());
        all.saturating_sub(self.slow_before.load(Ordering::Relaxed))
    }

    /// Counts its errors, and slow requests, from 0 again.
    pub fn clear_errors(&self) {
        self.slow_before.fetch_add(self.slow_requests(), Ordering::Relaxed);
        for count in [&self.wrong, &self.failed, &self.unwritten] {
            count.store(0, Ordering::Relaxed);
        }
        self.failing.store(false, Ordering::Relaxed);
    }

    /// Those of the txgs of which a failed flush may have lost blocks.
    pub(crate) fn doubts(&self, txgs: &TxgRanges) -> TxgRanges {
        self.doubtful.read().common(txgs)
    }

    /// Whether it missed anything of these txgs.
    pub(crate) fn misses(&self, txgs: &TxgRanges) -> bool {
        !txgs.is_empty() && !self.away.read().common(txgs).is_empty()
    }

    /// Counts bytes that turned out wrong.
    pub(crate) fn count_wrong(&self) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells that the device was away when this group was written, and still is.
    pub fn set_gone_since(&self, txg: Txg) {
        self.gone_since.store(txg.get(), Ordering::Relaxed);
    }

    /// Whether it is known to have nothing of what was written in `birth`, wherever it is.
    pub(crate) fn cannot_have(&self, birth: Txg) -> bool {
        birth.get() > self.gone_since.load(Ordering::Relaxed) || self.away.read().contains(birth)
    }

    /// Whether it can hold what was written in `birth`.
    pub(crate) fn state(&self, birth: Txg) -> Result<(), Trouble> {
        if self.device.is_none() {
            return Err(Trouble::Missing);
        }
        let away = self.away.read();
        if birth > self.synced() || (!away.is_empty() && away.contains(birth)) {
            return Err(Trouble::Stale);
        }
        Ok(())
    }

    /// Fills `into` from `position`, counted from the device's first byte.
    pub(crate) fn read(&self, position: u64, into: &mut [u8]) -> Result<(), Trouble> {
        let device = self.device.as_ref().ok_or(Trouble::Missing)?;
        device.read_at(position, into).map_err(|_| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            Trouble::Unreadable
        })
    }

    /// Fills the parts one after the other from `position`; whether that went well. Errors are not
    /// counted: whoever needs the bytes asks for them once more.
    pub(crate) fn read_parts(&self, position: u64, parts: &mut [&mut [u8]]) -> bool {
        self.device.as_ref().is_some_and(|device| device.read_parts_at(position, parts).is_ok())
    }

    /// Writes bytes that belong to no block, such as labels, at `position`, counted from the
    /// device's first byte.
    pub fn write(&self, position: u64, from: &[u8]) -> Result<(), Trouble> {
        self.put(None, position, &[from])
    }

    /// Writes parts of blocks one behind the other, from `offset` on, counted from the end of the
    /// front labels. What fails it remembers to have missed.
    pub(crate) fn write_parts(
        &self,
        birth: Txg,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), Trouble> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let room = self.device.as_ref().map_or(u64::MAX, |device| space(&**device));
        // nothing but labels is ever written over labels, whatever an address says
        let result = match offset.checked_add(length) {
            Some(end) if end <= room => self.put(Some(birth), offset.saturating_add(FRONT), parts),
            _ => Err(Trouble::Unwritten),
        };
        if result.is_err() {
            self.lapse(birth, birth);
        }
        result
    }

    /// Whether somebody is writing to it just now.
    pub(crate) fn is_busy(&self) -> bool {
        self.writing.load(Ordering::Relaxed) > 0
    }

    fn put(&self, birth: Option<Txg>, position: u64, parts: &[&[u8]]) -> Result<(), Trouble> {
        let device = self.device.as_ref().ok_or(Trouble::Missing)?;
        if self.is_retired() {
            return Err(Trouble::Unwritten);
        }
        // noted before, so that a flush at the same time that fails is known to have hit it, and
        // after, since such a flush may have come too early for it
        self.pending.lock().note(birth);
        self.writing.fetch_add(1, Ordering::Relaxed);
        let written = device.write_parts_at(position, parts);
        self.writing.fetch_sub(1, Ordering::Relaxed);
        self.pending.lock().note(birth);
        self.note_written(written.is_ok());
        written.map_err(|_| Trouble::Unwritten)
    }

    /// Whether anything was written since the last flush began, or one is going on.
    pub(crate) fn wants_flush(&self) -> bool {
        self.pending.lock().anything || self.flushing.is_locked()
    }

    /// Returns when all that was written before outlasts a power cut. If it fails, the leaf counts
    /// as having missed the txgs of all that was written since the last time.
    pub fn flush(&self) -> Result<(), Trouble> {
        let device = self.device.as_ref().ok_or(Trouble::Missing)?;
        // who comes while another flushes may only go on when that is done
        let _turn = self.flushing.lock();
        let Pending { anything, births } = std::mem::take(&mut *self.pending.lock());
        if !anything {
            return Ok(());
        }
        if self.is_retired() {
            return Err(Trouble::Unwritten);
        }
        let kept = device.flush();
        self.note_written(kept.is_ok());
        kept.map_err(|_| {
            if let Some((first, last)) = births {
                self.lapse(first, last);
                self.doubtful.write().add(first, last);
            }
            Trouble::Unwritten
        })
    }
}

impl Pending {
    fn note(&mut self, birth: Option<Txg>) {
        self.anything = true;
        if let Some(birth) = birth {
            let (first, last) = self.births.unwrap_or((birth, birth));
            self.births = Some((first.min(birth), last.max(birth)));
        }
    }
}
