//! The rules of persistent reservations, without locks: a request of an initiator changes the state.

use super::{
    Holder, Nexus, Outcome, Preempted, ReservationConflict, ReservationError, ReservationKey,
    ReservationReport, ReservationType,
};

fn holder_for(nexus: &Nexus, kind: ReservationType) -> Holder {
    if kind.is_all_registrants() { Holder::AllRegistrants } else { Holder::One(nexus.clone()) }
}

impl ReservationReport {
    /// Registers a key, changes it, or unregisters ([`ReservationKey::NONE`]). `current` is the key that the
    /// initiator believes to have; none: it does not matter (REGISTER AND IGNORE EXISTING KEY).
    pub(super) fn register(
        &mut self,
        nexus: &Nexus,
        current: Option<ReservationKey>,
        new: ReservationKey,
    ) -> Outcome<Preempted> {
        let registered = self.registrations.get(nexus).copied();
        let is_expected = |current| registered.unwrap_or(ReservationKey::NONE) == current;
        if !current.is_none_or(is_expected) {
            return Err(ReservationConflict.into());
        }
        let released = if new != ReservationKey::NONE {
            self.registrations.insert(nexus.clone(), new);
            Vec::new()
        } else if registered.is_some() {
            self.unregister(nexus)
        } else {
            return Ok(Preempted::default());
        };
        self.count_change();
        Ok(Preempted { unregistered: Vec::new(), released })
    }

    /// Reserves the unit.
    pub(super) fn reserve(
        &mut self,
        nexus: &Nexus,
        key: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<()> {
        self.check_registered(nexus, key)?;
        match &self.reservation {
            Some((_, held)) if *held != kind || !self.is_holder(nexus) => {
                return Err(ReservationConflict.into());
            }
            Some(_) => {}
            None => self.reservation = Some((holder_for(nexus, kind), kind)),
        }
        Ok(())
    }

    /// Releases the reservation, if the initiator holds it. Returns the initiators to notify.
    pub(super) fn release(
        &mut self,
        nexus: &Nexus,
        key: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<Preempted> {
        self.check_registered(nexus, key)?;
        match self.reservation {
            Some((_, held)) if self.is_holder(nexus) && held != kind => {
                Err(ReservationError::InvalidRelease)
            }
            Some(_) if self.is_holder(nexus) => {
                let released = self.end_reservation(nexus);
                Ok(Preempted { unregistered: Vec::new(), released })
            }
            _ => Ok(Preempted::default()),
        }
    }

    /// Removes the reservation and all registrations.
    pub(super) fn clear(&mut self, nexus: &Nexus, key: ReservationKey) -> Outcome<Preempted> {
        self.check_registered(nexus, key)?;
        self.reservation = None;
        let all = std::mem::take(&mut self.registrations).into_keys();
        self.count_change();
        let unregistered = all.filter(|other| other != nexus).collect();
        Ok(Preempted { unregistered, released: Vec::new() })
    }

    /// Removes the registrations of a key, and takes the reservation if that key holds it. For
    /// PREEMPT AND ABORT the protocol also aborts the requests of the returned initiators.
    pub(super) fn preempt(
        &mut self,
        nexus: &Nexus,
        key: ReservationKey,
        victim: ReservationKey,
        kind: ReservationType,
    ) -> Outcome<Preempted> {
        self.check_registered(nexus, key)?;
        let held = self.reservation.clone();
        let takes = match &held {
            Some((Holder::AllRegistrants, _)) => victim == ReservationKey::NONE,
            Some((Holder::One(holder), _)) => self.registrations.get(holder) == Some(&victim),
            None => false,
        };
        let is_victim = |other: &Nexus, its: &ReservationKey| {
            other != nexus && (*its == victim || victim == ReservationKey::NONE && takes)
        };
        if victim == ReservationKey::NONE && !takes {
            return Err(ReservationError::InvalidKey);
        }
        let gone = self.registrations.iter().filter(|(other, its)| is_victim(other, its));
        let unregistered: Vec<Nexus> = gone.map(|(other, _)| other.clone()).collect();
        let names_itself = self.registrations.get(nexus) == Some(&victim);
        if unregistered.is_empty() && !takes && !names_itself {
            return Err(ReservationConflict.into());
        }
        self.registrations.retain(|other, _| !unregistered.contains(other));
        let mut released = Vec::new();
        if takes {
            self.reservation = Some((holder_for(nexus, kind), kind));
            if held.is_some_and(|(_, before)| before != kind) {
                let others = self.registrations.keys().filter(|other| *other != nexus);
                released = others.cloned().collect();
            }
        } else if names_itself {
            // its own key may be that of the last of all registrants
            released = self.unregister(nexus);
        }
        self.count_change();
        Ok(Preempted { unregistered, released })
    }

    fn check_registered(&self, nexus: &Nexus, key: ReservationKey) -> Outcome<()> {
        match self.registrations.get(nexus) {
            Some(registered) if *registered == key => Ok(()),
            _ => Err(ReservationConflict.into()),
        }
    }

    pub(super) fn is_holder(&self, nexus: &Nexus) -> bool {
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
