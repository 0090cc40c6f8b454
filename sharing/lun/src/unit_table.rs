//! The volumes that are served: each is open once, for all protocols.
//!
//! ```text
//! UnitTable ── guids ──► SharedVolume (locks, reservations, events)
//!                          ├ VolumeLun, blocks of 512 bytes      iSCSI, NBD
//!                          └ VolumeLun, blocks of 4096 bytes     NVMe/TCP
//! ```
//!
//! The table keeps no volume open: a volume is closed with the last [`OpenUnit`] of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use engine::pool::Pool;
use parking_lot::Mutex;

use crate::volume::SharedVolume;
use crate::{Error, Lun, LunOptions, Reservations, Result, SnapshotLun, VolumeGuids, VolumeLun};

/// An open volume, or snapshot of one, as a protocol serves it.
#[derive(Clone)]
pub struct OpenUnit {
    /// The unit. It is read-only if its geometry says so.
    pub lun: Arc<dyn Lun>,
    /// The guids, from which protocols make the names that initiators know the unit by.
    pub guids: VolumeGuids,
    /// The name of the volume, for the status.
    pub volume: String,
}

impl OpenUnit {
    /// Whether both are the same view of one volume. A rename does not matter.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.lun, &other.lun) && self.guids == other.guids
    }

    /// Whether the volume was destroyed, or its pool exported.
    pub fn is_gone(&self) -> bool {
        matches!(self.lun.space(), Err(Error::Gone))
    }
}

/// A function that gives the saved reservations of a volume, with its guids and its name.
type LoadReservations = dyn Fn(&VolumeGuids, &str) -> Reservations + Send + Sync;

/// The volumes that are open.
pub struct UnitTable {
    load_reservations: Box<LoadReservations>,
    open: Mutex<BTreeMap<VolumeGuids, Entry>>,
}

#[derive(Default)]
struct Entry {
    volume: Weak<SharedVolume>,
    views: BTreeMap<LunOptions, Weak<dyn Lun>>,
}

impl Entry {
    fn is_open(&self) -> bool {
        self.views.values().any(|view| view.strong_count() > 0)
    }
}

impl UnitTable {
    /// An empty table. `load_reservations` gives the saved reservations of a volume that is opened.
    pub fn new(
        load_reservations: impl Fn(&VolumeGuids, &str) -> Reservations + Send + Sync + 'static,
    ) -> Self {
        Self { load_reservations: Box::new(load_reservations), open: Mutex::default() }
    }

    /// Opens a volume, or a snapshot of one (VOLUME@NAME), by its full name. A view that is open with the same options
    /// is used again.
    ///
    /// # Errors
    /// If there is no such volume, or it cannot have such blocks.
    pub fn open(&self, pool: &Pool, name: &str, options: LunOptions) -> Result<OpenUnit> {
        let mut open = self.open.lock();
        open.retain(|_, entry| entry.is_open());
        let unit = |lun, volume| {
            let guids = VolumeGuids { pool: pool.guid(), volume };
            OpenUnit { lun, guids, volume: name.to_owned() }
        };
        if name.contains('@') {
            let snapshot = SnapshotLun::open(pool, name, options)?;
            let guid = snapshot.guid();
            let new = unit(Arc::new(snapshot), guid);
            return Ok(open.entry(new.guids).or_default().share(options, new));
        }
        // the guid is known when the volume is open, and the reservations belong to it from the start
        let opened = pool.volumes().open(name);
        let guid = opened.map_err(|why| Error::Open { why: why.to_string() })?.0.guid();
        let guids = VolumeGuids { pool: pool.guid(), volume: guid };
        let entry = open.entry(guids).or_default();
        let shared = entry.volume.upgrade().filter(|shared| !shared.is_gone());
        let view = if let Some(shared) = shared {
            VolumeLun::view(shared, options)?
        } else {
            // views of a volume that is gone belong to an earlier import of the pool
            entry.views.clear();
            let reservations = (self.load_reservations)(&guids, name);
            VolumeLun::open(pool, name, options, reservations)?
        };
        entry.volume = Arc::downgrade(view.shared());
        Ok(entry.share(options, unit(Arc::new(view), guid)))
    }
}

impl Entry {
    /// The view that is open with these options, or a new one.
    fn share(&mut self, options: LunOptions, new: OpenUnit) -> OpenUnit {
        let known = self.views.get(&options).and_then(Weak::upgrade);
        let known = known.filter(|lun| !matches!(lun.space(), Err(Error::Gone)));
        let lun = known.unwrap_or(new.lun);
        self.views.insert(options, Arc::downgrade(&lun));
        OpenUnit { lun, ..new }
    }
}
