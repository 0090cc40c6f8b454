//! A place outside of the pool for reservations that are to outlast a restart.

use std::fmt;
use std::sync::Arc;

/// The guids of a volume, or of a snapshot of one, and of its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct VolumeGuids {
    /// The guid of the pool.
    pub pool: u64,
    /// The guid of the volume or snapshot.
    pub volume: u64,
}

/// As hexadecimal digits, the pool first: the name of files about the volume.
impl fmt::Display for VolumeGuids {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{:016x}", self.pool, self.volume)
    }
}

/// A place for the reservations of a unit that are to outlast a restart (SCSI: APTPL; NVMe: PTPL).
#[derive(Clone)]
pub struct ReservationStore(Arc<StoreFunction>);

type StoreFunction = dyn Fn(Option<&[u8]>) -> bool + Send + Sync;

impl ReservationStore {
    /// A place with a function that keeps bytes, or removes what was kept (none), durably. It returns whether it
    /// has done so. The bytes are those of [`crate::Reservations::load`].
    pub fn new(save: impl Fn(Option<&[u8]>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(save))
    }

    /// Keeps bytes, or removes what was kept. False: it could not be done.
    pub fn save(&self, bytes: Option<&[u8]>) -> bool {
        (self.0)(bytes)
    }
}
