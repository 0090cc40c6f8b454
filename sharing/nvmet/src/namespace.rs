//! A namespace: a logical unit with the names that hosts know it by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lun::{EventCallback, Lun, LunEvent, ReservationStore, VolumeGuids};
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};

/// Names of a namespace that stay the same: hosts find their disk again by them.
///
/// They come from the guids of the pool and of the volume, so that a pool that was split off has other namespaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NamespaceId([u8; 32]);

impl NamespaceId {
    /// The names of a volume.
    pub fn new(guids: &VolumeGuids) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"poolhouse namespace\0");
        hash.update(guids.pool.to_be_bytes());
        hash.update(guids.volume.to_be_bytes());
        Self(hash.finalize().into())
    }

    fn part<const N: usize>(self, at: usize) -> [u8; N] {
        let part = self.0.get(at..).and_then(|rest| rest.first_chunk());
        *part.expect("the names are parts of the hash")
    }

    /// The UUID: version 8, of a vendor's own form.
    pub fn uuid(self) -> [u8; 16] {
        let mut uuid: [u8; 16] = self.part(0);
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        uuid
    }

    /// The NGUID: 8 bytes of our own, then an EUI-64.
    pub fn nguid(self) -> [u8; 16] {
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&self.part::<8>(16));
        nguid[8..].copy_from_slice(&self.eui64());
        nguid
    }

    /// The EUI-64, which is assigned locally.
    pub fn eui64(self) -> [u8; 8] {
        let mut eui: [u8; 8] = self.part(24);
        eui[0] = eui[0] & 0xfc | 0x02;
        eui
    }

    /// The UUID as text: the name of files about the namespace.
    pub fn to_text(self) -> String {
        let digits: String = self.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        let ends = [0..8, 8..12, 12..16, 16..20, 20..32];
        ends.map(|part| digits[part].to_owned()).join("-")
    }
}

/// A namespace of a subsystem.
#[derive(Clone)]
pub struct SubsystemNamespace {
    /// The unit. It is read-only if its geometry says so.
    pub unit: Arc<dyn Lun>,
    /// The names that hosts know it by.
    pub id: NamespaceId,
    /// The name of the volume, for the status.
    pub volume: String,
    /// Where reservations are kept; none: hosts cannot have them kept over a restart.
    pub reservation_store: Option<ReservationStore>,
}

/// A function that tells controllers of an event of a unit.
pub(crate) type UnitWatcher = Arc<dyn Fn(&Arc<Namespace>, LunEvent) + Send + Sync>;

/// A namespace that is served.
pub(crate) struct Namespace {
    pub(crate) unit: Arc<dyn Lun>,
    pub(crate) id: NamespaceId,
    store: Option<ReservationStore>,
    /// Whether reservations are to outlast a restart (PTPL).
    keeps_reservations: AtomicBool,
    /// Held shared by each command from the check of the reservation to its end, and exclusively by changes of
    /// reservations: after a preemption no command of the other host writes any more.
    pub(crate) reservation_gate: RwLock<()>,
    /// The function that the unit calls, kept for as long as the namespace is served.
    subscription: Mutex<Option<EventCallback>>,
}

impl Namespace {
    pub(crate) fn new(config: &SubsystemNamespace, watcher: &UnitWatcher) -> Arc<Self> {
        // reservations that were loaded are to be kept up to date
        let is_reserved = !config.unit.reservations().report().registrations.is_empty();
        let namespace = Arc::new(Self {
            unit: Arc::clone(&config.unit),
            id: config.id,
            store: config.reservation_store.clone(),
            keeps_reservations: AtomicBool::new(is_reserved),
            reservation_gate: RwLock::new(()),
            subscription: Mutex::default(),
        });
        let (weak, watcher) = (Arc::downgrade(&namespace), Arc::clone(watcher));
        let callback: EventCallback = Arc::new(move |event| {
            if let Some(namespace) = weak.upgrade() {
                watcher(&namespace, event);
            }
        });
        namespace.unit.subscribe(&callback);
        *namespace.subscription.lock() = Some(callback);
        namespace
    }

    /// Whether this is the namespace of a configuration.
    pub(crate) fn is_of(&self, config: &SubsystemNamespace) -> bool {
        Arc::ptr_eq(&self.unit, &config.unit) && self.id == config.id
    }

    /// Whether reservations can be kept over a restart, and whether they are.
    pub(crate) fn persistence(&self) -> (bool, bool) {
        (self.store.is_some(), self.keeps_reservations.load(SeqCst))
    }

    /// Sets whether reservations are kept over a restart.
    pub(crate) fn set_persistence(&self, keeps: bool) {
        self.keeps_reservations.store(keeps, SeqCst);
    }

    /// Stores the reservations as they are now, or that none are kept. False: they could not be stored.
    pub(crate) fn store_reservations(&self) -> bool {
        let Some(store) = &self.store else { return true };
        if self.keeps_reservations.load(SeqCst) {
            store.save(Some(&self.unit.reservations().save()))
        } else {
            store.save(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_pool_and_volume() {
        let id = |pool, volume| NamespaceId::new(&VolumeGuids { pool, volume });
        assert_ne!(id(1, 2).nguid(), id(2, 2).nguid());
        assert_ne!(id(1, 2).eui64(), id(1, 3).eui64());
        assert_eq!(id(1, 2).uuid(), id(1, 2).uuid());
        let text = id(1, 2).to_text();
        assert_eq!(text.len(), 36);
        assert_eq!(&text[14..15], "8");
        assert_eq!(id(1, 2).nguid()[8] & 3, 2);
    }
}
