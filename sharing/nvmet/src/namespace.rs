//! A namespace: a logical unit with the names that hosts know it by.

use std::sync::Arc;

use lun::{
    EventCallback, Lun, LunEvent, Nexus, OpenUnit, ReservationCallback, ReservationLoss,
    VolumeGuids,
};
use parking_lot::Mutex;
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

/// A function that notifies controllers of an event of a unit.
type OnEvent = dyn Fn(&Arc<Namespace>, LunEvent) + Send + Sync;
/// A function that notifies the controllers of some hosts of a loss.
type OnLoss = dyn Fn(&Arc<Namespace>, ReservationLoss, &[Nexus]) + Send + Sync;

/// The functions that notify controllers of events of a unit.
#[derive(Clone)]
pub(crate) struct UnitWatcher {
    pub(crate) on_event: Arc<OnEvent>,
    pub(crate) on_loss: Arc<OnLoss>,
}

/// A namespace that is served.
pub(crate) struct Namespace {
    pub(crate) unit: Arc<dyn Lun>,
    pub(crate) id: NamespaceId,
    /// The functions that the unit and its reservations call, kept for as long as the namespace is served.
    subscriptions: Mutex<Option<(EventCallback, ReservationCallback)>>,
}

impl Namespace {
    pub(crate) fn new(open: &OpenUnit, watcher: &UnitWatcher) -> Arc<Self> {
        let namespace = Arc::new(Self {
            unit: Arc::clone(&open.lun),
            id: NamespaceId::new(&open.guids),
            subscriptions: Mutex::default(),
        });
        let (weak, notify) = (Arc::downgrade(&namespace), Arc::clone(&watcher.on_event));
        let on_event: EventCallback = Arc::new(move |event| {
            if let Some(namespace) = weak.upgrade() {
                notify(&namespace, event);
            }
        });
        let (weak, notify) = (Arc::downgrade(&namespace), Arc::clone(&watcher.on_loss));
        let on_loss: ReservationCallback = Arc::new(move |loss, hosts| {
            if let Some(namespace) = weak.upgrade() {
                notify(&namespace, loss, hosts);
            }
        });
        namespace.unit.subscribe(&on_event);
        namespace.unit.reservations().subscribe(&on_loss);
        *namespace.subscriptions.lock() = Some((on_event, on_loss));
        namespace
    }

    /// Whether this is the namespace of a configuration.
    pub(crate) fn is_of(&self, open: &OpenUnit) -> bool {
        Arc::ptr_eq(&self.unit, &open.lun) && self.id == NamespaceId::new(&open.guids)
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
