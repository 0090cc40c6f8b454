//! A leaf: one device, and what is known of the time it was away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::Device;
use parking_lot::RwLock;
use units::{Guid, Txg};

use crate::Trouble;

/// Bytes of labels and boot area in front of the allocatable space.
pub(crate) const FRONT: u64 = 4 << 20;

/// Txgs as sorted ranges, first and last included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxgRanges(Vec<(Txg, Txg)>);

impl TxgRanges {
    /// From any ranges (first, last).
    pub fn new(ranges: impl IntoIterator<Item = (Txg, Txg)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        Self(ranges)
    }

    /// Whether `txg` is in one of them.
    pub fn contains(&self, txg: Txg) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&txg))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (Txg, Txg)> + '_ {
        self.0.iter().copied()
    }
}

/// One device of a pool.
#[derive(Debug)]
pub struct Leaf {
    guid: Guid,
    path: String,
    device: Option<Arc<dyn Device>>,
    synced: Txg,
    away: RwLock<TxgRanges>,
    wrong: AtomicU64,
    failed: AtomicU64,
}

impl Leaf {
    /// `path` is what the pool's configuration calls it; `device` is none where it was not found;
    /// `synced` is the newest txg that its own labels know of.
    pub fn new(guid: Guid, path: String, device: Option<Arc<dyn Device>>, synced: Txg) -> Self {
        let away = RwLock::default();
        Self {
            guid,
            path,
            device,
            synced,
            away,
            wrong: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// What the pool's configuration calls it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The device, where it was found.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// The newest txg that its own labels know of.
    pub fn synced(&self) -> Txg {
        self.synced
    }

    /// Says which txgs it missed (the pool's DTL).
    pub fn set_away(&self, ranges: TxgRanges) {
        *self.away.write() = ranges;
    }

    /// Which txgs it missed.
    pub fn away(&self) -> TxgRanges {
        self.away.read().clone()
    }

    /// How many times its bytes were wrong, and how many times it could not be read.
    pub fn errors(&self) -> (u64, u64) {
        (self.wrong.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Counts bytes that turned out wrong.
    pub(crate) fn count_wrong(&self) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it can hold what was written in `birth`.
    pub(crate) fn state(&self, birth: Txg) -> Result<(), Trouble> {
        if self.device.is_none() {
            return Err(Trouble::Missing);
        }
        let away = self.away.read();
        if birth > self.synced || (!away.is_empty() && away.contains(birth)) {
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
}
