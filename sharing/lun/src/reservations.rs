//! Persistent reservations of one unit: which initiators may read and write it (SPC-4 5.12; NVMe reservations).
//!
//! Cluster software (Windows failover clusters, Pacemaker, vSphere) fences a node by them: each node registers a
//! key, one of them reserves the unit, and a survivor preempts the key of a node that no longer answers.
//!
//! ```text
//! type                                    read by           written by        held by
//! write exclusive                         all               holder            holder
//! exclusive access                        holder            holder            holder
//! write exclusive, registrants only       all               registrants       holder
//! exclusive access, registrants only      registrants       registrants       holder
//! write exclusive, all registrants        all               registrants       all registrants
//! exclusive access, all registrants       registrants       registrants       all registrants
//! ```
//!
//! All protocols that serve a unit share one [`Reservations`]: a key that an iSCSI initiator registers keeps NVMe hosts
//! out, and the reverse. A change waits for the commands that were admitted before it, reports the initiators that have
//! lost something to the protocols, and saves the state if initiators asked for that (APTPL, PTPL).

mod state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::ReservationStore;

/// A path from an initiator: in iSCSI the initiator's name and ISID, in NVMe the host identifier. Opaque bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Nexus(pub Vec<u8>);

impl Nexus {
    /// The identifier of an NVMe host. None: an initiator of another protocol, whose names have another length.
    pub fn nvme_host(&self) -> Option<[u8; 16]> {
        self.0.as_slice().try_into().ok()
    }
}

/// A key that an initiator registers; 0 is not a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReservationKey(pub u64);

impl ReservationKey {
    /// No key: unregisters, or names all registrants.
    pub const NONE: Self = Self(0);
}

/// The type of a reservation, by its SCSI code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 3,
    /// Registrants write.
    WriteExclusiveRegistrantsOnly = 5,
    /// Registrants read and write.
    ExclusiveAccessRegistrantsOnly = 6,
    /// Registrants write, and all of them hold the reservation.
    WriteExclusiveAllRegistrants = 7,
    /// Registrants read and write, and all of them hold the reservation.
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// All types.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The type of a SCSI code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }

    /// The SCSI code.
    pub fn code(self) -> u8 {
        self as u8
    }

    fn is_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    fn is_for_holder_alone(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    fn lets_all_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive
                | Self::WriteExclusiveRegistrantsOnly
                | Self::WriteExclusiveAllRegistrants
        )
    }
}

/// The access of a request to a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// It reads data.
    Read,
    /// It changes data, or the unit's state.
    Write,
}

/// The holder of a reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// One nexus.
    One(Nexus),
    /// All registrants.
    AllRegistrants,
}

/// The state, for PERSISTENT RESERVE IN.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReservationReport {
    /// How often registrations have changed (PRGENERATION), modulo 2^32.
    pub generation: u32,
    /// The registered initiators and their keys.
    pub registrations: BTreeMap<Nexus, ReservationKey>,
    /// The reservation, if there is one.
    pub reservation: Option<(Holder, ReservationType)>,
}

/// A request is refused because of a reservation (status RESERVATION CONFLICT).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the unit is reserved by another initiator")]
pub struct ReservationConflict;

/// Why a reservation request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReservationError {
    /// The initiator is not registered with this key, or another one holds the reservation.
    #[error(transparent)]
    Conflict(#[from] ReservationConflict),
    /// The holder releases a reservation of another type than it has.
    #[error("the reservation is of another type")]
    InvalidRelease,
    /// A key of zero is not possible here.
    #[error("a key of zero matches no registration")]
    InvalidKey,
    /// The bytes are not saved reservations.
    #[error("the saved reservations are damaged")]
    Damaged,
    /// The new state holds, and could not be saved: it does not outlast a restart.
    #[error("the reservations could not be saved, and end with the next restart")]
    NotSaved,
}

/// The initiators that have lost something by a request; each gets a unit attention.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Preempted {
    /// Their registrations were removed.
    pub unregistered: Vec<Nexus>,
    /// They are still registered, and the reservation that let them in was released.
    pub released: Vec<Nexus>,
}

/// The loss that a change of reservations means for some initiators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReservationLoss {
    /// Another initiator removed their registrations (PREEMPT).
    RegistrationPreempted,
    /// Another initiator removed all registrations (CLEAR).
    Cleared,
    /// They are still registered, and the reservation that let them in was released.
    Released,
}

/// A function that is called for each loss, with the initiators. It must not call the unit and must not wait.
pub type ReservationCallback = Arc<dyn Fn(ReservationLoss, &[Nexus]) + Send + Sync>;

type Subscriber = Weak<dyn Fn(ReservationLoss, &[Nexus]) + Send + Sync>;

/// The persistent reservations of one unit.
#[derive(Default)]
pub struct Reservations {
    state: Mutex<ReservationReport>,
    /// Held shared by each command from its check to its end, and exclusively by changes: after a preemption no
    /// command of the other initiator writes any more.
    gate: RwLock<()>,
    /// Whether the state is to outlast a restart (APTPL, PTPL).
    is_persistent: AtomicBool,
    store: Option<ReservationStore>,
    subscribers: Mutex<Vec<Subscriber>>,
}

/// The permission for a command. Reservations do not change while it is held.
#[must_use = "the command may run only while this is held"]
pub struct Admitted<'a>(#[expect(dead_code, reason = "held for its lock")] RwLockReadGuard<'a, ()>);

type Outcome<T> = Result<T, ReservationError>;

impl Reservations {
    /// Reservations that initiators can have saved (APTPL, PTPL) in a store.
    #[must_use]
    pub fn with_store(mut self, store: ReservationStore) -> Self {
        self.store = Some(store);
        self
    }

    /// The state now.
    pub fn report(&self) -> ReservationReport {
        self.state.lock().clone()
    }

    /// Whether there is a store for the state.
    pub fn can_persist(&self) -> bool {
        self.store.is_some()
    }

    /// Whether the state is saved at each change.
    pub fn is_persistent(&self) -> bool {
        self.is_persistent.load(SeqCst)
    }

    /// Sets whether the state is saved at each change, and saves or forgets it.
    ///
    /// # Errors
    /// If the state could not be saved.
    pub fn set_persistence(&self, persistence: bool) -> Outcome<()> {
        let loss = ReservationLoss::RegistrationPreempted;
        let done = self.change(Some(persistence), loss, |_| Ok(Preempted::default()));
        done.map(drop)
    }

    /// Has `callback` called for each loss, for as long as the caller keeps it.
    pub fn subscribe(&self, callback: &ReservationCallback) {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|known| known.strong_count() > 0);
        subscribers.push(Arc::downgrade(callback));
    }

    /// Waits for the commands that are admitted, changes the state, notifies the protocols, and saves the new state.
    /// `persistence` sets whether the state is saved from now on; none: as before.
    fn change(
        &self,
        persistence: Option<bool>,
        loss: ReservationLoss,
        act: impl FnOnce(&mut ReservationReport) -> Outcome<Preempted>,
    ) -> Outcome<Preempted> {
        let _exclusive = self.gate.write();
        let preempted = act(&mut self.state.lock())?;
        if let Some(persistence) = persistence {
            self.is_persistent.store(persistence, SeqCst);
        }
        let subscribers = self.subscribers.lock().clone();
        for subscriber in subscribers.iter().filter_map(Weak::upgrade) {
            for (loss, nexuses) in
                [(loss, &preempted.unregistered), (ReservationLoss::Released, &preempted.released)]
            {
                if !nexuses.is_empty() {
                    subscriber(loss, nexuses);
                }
            }
        }
        let Some(store) = &self.store else { return Ok(preempted) };
        let bytes = self.is_persistent().then(|| self.save());
        if store.save(bytes.as_deref()) { Ok(preempted) } else { Err(ReservationError::NotSaved) }
    }

    /// Registers a key, changes it, or unregisters ([`ReservationKey::NONE`]). `current` is the key that the
    /// initiator believes to have; none: it does not matter (REGISTER AND IGNORE EXISTING KEY). `persistence` sets
    /// whether the state is to outlast a restart; none: as before.
    ///
    /// # Errors
    /// If the initiator has another key, or the state could not be saved.
    pub fn register(
        &self,
        nexus: &Nexus,
        current: Option<ReservationKey>,
        new: ReservationKey,
        persistence: Option<bool>,
    ) -> Outcome<Preempted> {
        self.change(persistence, ReservationLoss::RegistrationPreempted, |state| {
            state.register(nexus, current, new)
        })
    }

    /// Reserves the unit.
    ///
    /// # Errors
    /// If the initiator is not registered, another one holds the unit, or the state could not be saved.
    pub fn reserve(
        &self,
        nexus: &Nexus,
        key: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<()> {
        let done = self.change(None, ReservationLoss::RegistrationPreempted, |state| {
            state.reserve(nexus, key, kind).map(|()| Preempted::default())
        });
        done.map(drop)
    }

    /// Releases the reservation, if the initiator holds it. Returns the initiators that were notified.
    ///
    /// # Errors
    /// If the initiator is not registered, the type is another, or the state could not be saved.
    pub fn release(
        &self,
        nexus: &Nexus,
        key: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<Preempted> {
        self.change(None, ReservationLoss::RegistrationPreempted, |state| {
            state.release(nexus, key, kind)
        })
    }

    /// Removes the reservation and all registrations.
    ///
    /// # Errors
    /// If the initiator is not registered, or the state could not be saved.
    pub fn clear(&self, nexus: &Nexus, key: ReservationKey) -> Outcome<Preempted> {
        self.change(None, ReservationLoss::Cleared, |state| state.clear(nexus, key))
    }

    /// Removes the registrations of a key, and takes the reservation if that key holds it. For
    /// PREEMPT AND ABORT the protocol also aborts the requests of the returned initiators.
    ///
    /// # Errors
    /// If the initiator is not registered, the key is nobody's, or the state could not be saved.
    pub fn preempt(
        &self,
        nexus: &Nexus,
        key: ReservationKey,
        victim: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<Preempted> {
        self.change(None, ReservationLoss::RegistrationPreempted, |state| {
            state.preempt(nexus, key, victim, kind)
        })
    }

    /// Admits a command of an initiator. Changes of reservations wait until the result is dropped; a thread must not
    /// hold two.
    ///
    /// # Errors
    /// If a reservation keeps the initiator out.
    pub fn admit(
        &self,
        nexus: &Nexus,
        access: AccessKind,
    ) -> Result<Admitted<'_>, ReservationConflict> {
        let guard = self.gate.read();
        self.check(nexus, access)?;
        Ok(Admitted(guard))
    }

    /// Whether a command of an initiator may run now.
    ///
    /// # Errors
    /// If a reservation keeps the initiator out.
    pub fn check(&self, nexus: &Nexus, access: AccessKind) -> Result<(), ReservationConflict> {
        let state = self.state.lock();
        let Some((_, kind)) = &state.reservation else { return Ok(()) };
        let is_registrant = state.registrations.contains_key(nexus);
        let is_allowed = state.is_holder(nexus)
            || access == AccessKind::Read && kind.lets_all_read()
            || is_registrant && !kind.is_for_holder_alone();
        if is_allowed { Ok(()) } else { Err(ReservationConflict) }
    }

    /// The state as bytes, to be kept with the configuration of the unit.
    pub fn save(&self) -> Vec<u8> {
        crate::reservation_record::encode(&self.state.lock())
    }

    /// The state that [`Reservations::save`] gave. It is saved again at each change.
    ///
    /// # Errors
    /// If the bytes are damaged.
    pub fn load(bytes: &[u8]) -> Outcome<Self> {
        let state = crate::reservation_record::decode(bytes).ok_or(ReservationError::Damaged)?;
        let is_persistent = AtomicBool::new(!state.registrations.is_empty());
        Ok(Self { state: Mutex::new(state), is_persistent, ..Self::default() })
    }
}

#[cfg(test)]
mod tests;
