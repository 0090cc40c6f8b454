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
//! The state is in memory. [`Reservations::save`] gives it as bytes for a protocol that was asked to keep it over
//! power loss (APTPL), and [`Reservations::load`] takes them back.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A path from an initiator: in iSCSI the initiator's name and ISID, in NVMe the host identifier. Opaque bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Nexus(pub Vec<u8>);

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
}

/// The initiators that have lost something by a request; each gets a unit attention.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Preempted {
    /// Their registrations were removed.
    pub unregistered: Vec<Nexus>,
    /// They are still registered, and the reservation that let them in was released.
    pub released: Vec<Nexus>,
}

/// The persistent reservations of one unit.
#[derive(Default, Debug)]
pub struct Reservations(pub(crate) Mutex<ReservationReport>);

type Outcome<T> = Result<T, ReservationError>;

impl Reservations {
    /// The state now.
    pub fn report(&self) -> ReservationReport {
        self.0.lock().clone()
    }

    /// Registers a key, changes it, or unregisters ([`ReservationKey::NONE`]). `current` is the key that the
    /// initiator believes to have; none: it does not matter (REGISTER AND IGNORE EXISTING KEY).
    pub fn register(
        &self,
        nexus: &Nexus,
        current: Option<ReservationKey>,
        new: ReservationKey,
    ) -> Outcome<Preempted> {
        let mut state = self.0.lock();
        let registered = state.registrations.get(nexus).copied();
        let is_expected = |current| registered.unwrap_or(ReservationKey::NONE) == current;
        if !current.is_none_or(is_expected) {
            return Err(ReservationConflict.into());
        }
        let released = if new != ReservationKey::NONE {
            state.registrations.insert(nexus.clone(), new);
            Vec::new()
        } else if registered.is_some() {
            state.unregister(nexus)
        } else {
            return Ok(Preempted::default());
        };
        state.count_change();
        Ok(Preempted { unregistered: Vec::new(), released })
    }

    /// Reserves the unit.
    pub fn reserve(
        &self,
        nexus: &Nexus,
        key: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<()> {
        let mut state = self.0.lock();
        state.check_registered(nexus, key)?;
        match &state.reservation {
            Some((_, held)) if *held != kind || !state.is_holder(nexus) => {
                return Err(ReservationConflict.into());
            }
            Some(_) => {}
            None => state.reservation = Some((holder_for(nexus, kind), kind)),
        }
        Ok(())
    }

    /// Releases the reservation, if the initiator holds it. Returns the initiators to notify.
    pub fn release(
        &self,
        nexus: &Nexus,
        key: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<Preempted> {
        let mut state = self.0.lock();
        state.check_registered(nexus, key)?;
        match state.reservation {
            Some((_, held)) if state.is_holder(nexus) && held != kind => {
                Err(ReservationError::InvalidRelease)
            }
            Some(_) if state.is_holder(nexus) => {
                let released = state.end_reservation(nexus);
                Ok(Preempted { unregistered: Vec::new(), released })
            }
            _ => Ok(Preempted::default()),
        }
    }

    /// Removes the reservation and all registrations.
    pub fn clear(&self, nexus: &Nexus, key: ReservationKey) -> Outcome<Preempted> {
        let mut state = self.0.lock();
        state.check_registered(nexus, key)?;
        state.reservation = None;
        let all = std::mem::take(&mut state.registrations).into_keys();
        state.count_change();
        let unregistered = all.filter(|other| other != nexus).collect();
        Ok(Preempted { unregistered, released: Vec::new() })
    }

    /// Removes the registrations of a key, and takes the reservation if that key holds it. For
    /// PREEMPT AND ABORT the protocol also aborts the requests of the returned initiators.
    pub fn preempt(
        &self,
        nexus: &Nexus,
        key: ReservationKey,
        victim: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<Preempted> {
        let mut state = self.0.lock();
        state.check_registered(nexus, key)?;
        let held = state.reservation.clone();
        let takes = match &held {
            Some((Holder::AllRegistrants, _)) => victim == ReservationKey::NONE,
            Some((Holder::One(holder), _)) => state.registrations.get(holder) == Some(&victim),
            None => false,
        };
        let is_victim = |other: &Nexus, its: &ReservationKey| {
            other != nexus && (*its == victim || victim == ReservationKey::NONE && takes)
        };
        if victim == ReservationKey::NONE && !takes {
            return Err(ReservationError::InvalidKey);
        }
        let gone = state.registrations.iter().filter(|(other, its)| is_victim(other, its));
        let unregistered: Vec<Nexus> = gone.map(|(other, _)| other.clone()).collect();
        let names_itself = state.registrations.get(nexus) == Some(&victim);
        if unregistered.is_empty() && !takes && !names_itself {
            return Err(ReservationConflict.into());
        }
        state.registrations.retain(|other, _| !unregistered.contains(other));
        let mut released = Vec::new();
        if takes {
            state.reservation = Some((holder_for(nexus, kind), kind));
            if held.is_some_and(|(_, before)| before != kind) {
                let others = state.registrations.keys().filter(|other| *other != nexus);
                released = others.cloned().collect();
            }
        } else if names_itself {
            // its own key may be that of the last of all registrants
            released = state.unregister(nexus);
        }
        state.count_change();
        Ok(Preempted { unregistered, released })
    }

    /// Whether a request of an initiator may be done.
    pub fn check(&self, nexus: &Nexus, access: AccessKind) -> Result<(), ReservationConflict> {
        let state = self.0.lock();
        let Some((_, kind)) = &state.reservation else { return Ok(()) };
        let is_registrant = state.registrations.contains_key(nexus);
        let is_allowed = state.is_holder(nexus)
            || access == AccessKind::Read && kind.lets_all_read()
            || is_registrant && !kind.is_for_holder_alone();
        if is_allowed { Ok(()) } else { Err(ReservationConflict) }
    }

    /// The state as bytes, to be kept with the configuration of the unit.
    pub fn save(&self) -> Vec<u8> {
        crate::reservation_record::encode(&self.0.lock())
    }

    /// The state that [`Reservations::save`] gave.
    pub fn load(bytes: &[u8]) -> Outcome<Self> {
        let state = crate::reservation_record::decode(bytes).ok_or(ReservationError::Damaged)?;
        Ok(Self(Mutex::new(state)))
    }
}

fn holder_for(nexus: &Nexus, kind: ReservationType) -> Holder {
    if kind.is_all_registrants() { Holder::AllRegistrants } else { Holder::One(nexus.clone()) }
}

impl ReservationReport {
    fn check_registered(&self, nexus: &Nexus, key: ReservationKey) -> Outcome<()> {
        match self.registrations.get(nexus) {
            Some(registered) if *registered == key => Ok(()),
            _ => Err(ReservationConflict.into()),
        }
    }

    fn is_holder(&self, nexus: &Nexus) -> bool {
        match &self.reservation {
            Some((Holder::One(holder), _)) => holder == nexus,
            Some((Holder::AllRegistrants, _)) => self.registrations.contains_key(nexus),
            None => false,
        }
    }

    /// PRGENERATION wraps around by its definition.
    fn count_change(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Removes a registration; returns the others if a reservation that let them in ended with it.
    fn unregister(&mut self, nexus: &Nexus) -> Vec<Nexus> {
        let was_holder = self.is_holder(nexus);
        self.registrations.remove(nexus);
        let is_last = self.registrations.is_empty();
        match self.reservation {
            Some((Holder::One(_), _)) if was_holder => self.end_reservation(nexus),
            Some((Holder::AllRegistrants, _)) if is_last => self.end_reservation(nexus),
            _ => Vec::new(),
        }
    }

    /// Ends the reservation; returns the other registrants if it let them in.
    fn end_reservation(&mut self, nexus: &Nexus) -> Vec<Nexus> {
        let Some((_, kind)) = self.reservation.take() else { return Vec::new() };
        if kind.is_for_holder_alone() {
            return Vec::new();
        }
        self.registrations.keys().filter(|other| *other != nexus).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
