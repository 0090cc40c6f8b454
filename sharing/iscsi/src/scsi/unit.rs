//! A logical unit with the state that SCSI adds to it: unit attentions, mode parameters, and
//! RESERVE(6).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lun::{EventCallback, Lun, LunEvent, Nexus, OpenUnit, ReservationCallback, ReservationLoss};
use parking_lot::Mutex;

use super::Sense;
use super::copy::CopyStatus;
use super::thin_threshold::ThinThreshold;
use crate::notices::{Notice, NoticeQueue};
use crate::target::UnitId;

/// The number of a session, which no other session of the server has or had.
pub(crate) type SessionId = u64;

/// Unit attentions that wait for one session. The oldest is dropped for the newest.
const MAX_ATTENTIONS: usize = 16;

/// Copies of one session whose state is held. The oldest is dropped for the newest.
const MAX_COPIES: usize = 16;

/// A logical unit of targets.
pub(crate) struct LogicalUnit {
    pub(crate) unit: Arc<dyn Lun>,
    pub(crate) id: UnitId,
    /// The name of the volume, for the status.
    pub(crate) volume: String,
    sessions: Mutex<BTreeMap<SessionId, UnitSession>>,
    /// The session that reserved the unit by RESERVE(6).
    reserved_by: Mutex<Option<SessionId>>,
    has_write_cache: AtomicBool,
    is_write_protected: AtomicBool,
    threshold: ThinThreshold,
    /// The functions that the unit and its reservations call, kept for as long as the unit is served.
    subscriptions: Mutex<Option<(EventCallback, ReservationCallback)>>,
}

/// A session, as a unit knows it.
struct UnitSession {
    nexus: Nexus,
    /// The encoded LUN by which it knows the unit.
    lun: [u8; 8],
    notices: NoticeQueue,
    attentions: VecDeque<Sense>,
    copies: VecDeque<CopyStatus>,
}

impl LogicalUnit {
    pub(crate) fn new(open: &OpenUnit) -> Arc<Self> {
        let logical = Arc::new(Self {
            unit: Arc::clone(&open.lun),
            id: UnitId::new(&open.guids),
            volume: open.volume.clone(),
            sessions: Mutex::default(),
            reserved_by: Mutex::default(),
            has_write_cache: AtomicBool::new(true),
            is_write_protected: AtomicBool::new(false),
            threshold: ThinThreshold::default(),
            subscriptions: Mutex::default(),
        });
        let weak = Arc::downgrade(&logical);
        let on_event: EventCallback = Arc::new(move |event| {
            let Some(logical) = weak.upgrade() else { return };
            match event {
                LunEvent::Resized { .. } => logical.announce(Sense::CAPACITY_CHANGED),
                LunEvent::Reverted => logical.announce(Sense::MEDIUM_MAY_HAVE_CHANGED),
                // each command says so
                LunEvent::Gone => {}
            }
        });
        let weak = Arc::downgrade(&logical);
        let on_loss: ReservationCallback = Arc::new(move |loss, nexuses| {
            let Some(logical) = weak.upgrade() else { return };
            logical.raise_for(
                nexuses,
                match loss {
                    ReservationLoss::RegistrationPreempted => Sense::REGISTRATIONS_PREEMPTED,
                    ReservationLoss::Cleared => Sense::RESERVATIONS_PREEMPTED,
                    ReservationLoss::Released => Sense::RESERVATIONS_RELEASED,
                },
            );
        });
        logical.unit.subscribe(&on_event);
        logical.unit.reservations().subscribe(&on_loss);
        *logical.subscriptions.lock() = Some((on_event, on_loss));
        logical
    }

    /// Whether this is the unit of a configuration.
    pub(crate) fn is_of(&self, open: &OpenUnit) -> bool {
        Arc::ptr_eq(&self.unit, &open.lun) && self.id == UnitId::new(&open.guids)
    }

    /// Adds a session, which gets a unit attention that the unit may have been reset. The session knows the unit by
    /// an encoded LUN, and has a queue for notices.
    pub(crate) fn add_session(
        &self,
        session: SessionId,
        nexus: &Nexus,
        (lun, notices): ([u8; 8], &NoticeQueue),
    ) {
        self.sessions.lock().entry(session).or_insert_with(|| UnitSession {
            nexus: nexus.clone(),
            lun,
            notices: notices.clone(),
            attentions: VecDeque::from([Sense::POWER_ON]),
            copies: VecDeque::new(),
        });
    }

    /// Removes a session and its state.
    pub(crate) fn remove_session(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
        self.release(session);
    }

    /// Notifies all sessions of a change, except the one that made it.
    pub(crate) fn raise(&self, attention: Sense, by: Option<SessionId>) {
        for (session, row) in &mut *self.sessions.lock() {
            if Some(*session) != by {
                row.push(attention);
            }
        }
    }

    /// Notifies all sessions of a change by a unit attention and by an asynchronous message.
    pub(crate) fn announce(&self, change: Sense) {
        for row in self.sessions.lock().values_mut() {
            row.push(change);
            row.notices.push(Notice::Unit { lun: row.lun, sense: change });
        }
    }

    /// Warns the initiators if the pool fills. Looks at the space of the pool once in an interval.
    pub(crate) fn check_space(&self, percent: u8, interval: Duration) {
        if self.threshold.is_reached(&*self.unit, percent, interval) {
            self.announce(Sense::THIN_PROVISIONING_THRESHOLD);
        }
    }

    /// Notifies the sessions of some nexuses of a change.
    fn raise_for(&self, nexuses: &[Nexus], attention: Sense) {
        for row in self.sessions.lock().values_mut() {
            if nexuses.contains(&row.nexus) {
                row.push(attention);
            }
        }
    }

    /// The oldest unit attention of a session; it is then reported.
    pub(crate) fn take_attention(&self, session: SessionId) -> Option<Sense> {
        self.sessions.lock().get_mut(&session)?.attentions.pop_front()
    }

    /// Holds the state of a copy of a session.
    pub(crate) fn hold_copy(&self, session: SessionId, copy: CopyStatus) {
        let mut sessions = self.sessions.lock();
        let Some(row) = sessions.get_mut(&session) else { return };
        row.copies.retain(|held| held.list != copy.list);
        if row.copies.len() == MAX_COPIES {
            row.copies.pop_front();
        }
        row.copies.push_back(copy);
    }

    /// The state of a copy of a session, by its list identifier.
    pub(crate) fn copy_status(&self, session: SessionId, list: u8) -> Option<CopyStatus> {
        let sessions = self.sessions.lock();
        sessions.get(&session)?.copies.iter().find(|copy| copy.list == list).copied()
    }

    /// The sessions of some nexuses.
    pub(crate) fn sessions_of(&self, nexuses: &[Nexus]) -> Vec<SessionId> {
        let sessions = self.sessions.lock();
        let found = sessions.iter().filter(|(_, row)| nexuses.contains(&row.nexus));
        found.map(|(session, _)| *session).collect()
    }

    /// Whether writes are acknowledged before they are durable.
    pub(crate) fn has_write_cache(&self) -> bool {
        self.has_write_cache.load(SeqCst)
    }

    /// Whether initiators, the volume or the share forbid writes.
    pub(crate) fn is_write_protected(&self) -> bool {
        self.is_write_protected.load(SeqCst) || self.unit.geometry().is_read_only
    }

    /// Whether an initiator forbade writes (SWP).
    pub(crate) fn has_software_write_protection(&self) -> bool {
        self.is_write_protected.load(SeqCst)
    }

    /// Sets the mode parameters that can be changed; the other sessions are notified.
    pub(crate) fn set_mode(&self, write_cache: bool, write_protection: bool, by: SessionId) {
        let cache = self.has_write_cache.swap(write_cache, SeqCst);
        let protection = self.is_write_protected.swap(write_protection, SeqCst);
        if (cache, protection) != (write_cache, write_protection) {
            self.raise(Sense::MODE_PARAMETERS_CHANGED, Some(by));
        }
    }

    /// Whether another session has reserved the unit by RESERVE(6).
    pub(crate) fn is_reserved_from(&self, session: SessionId) -> bool {
        self.reserved_by.lock().is_some_and(|holder| holder != session)
    }

    /// Reserves the unit (RESERVE(6)). False: another session has it.
    pub(crate) fn reserve(&self, session: SessionId) -> bool {
        let mut holder = self.reserved_by.lock();
        let is_free = holder.is_none_or(|holder| holder == session);
        if is_free {
            *holder = Some(session);
        }
        is_free
    }

    /// Releases the unit, if the session has it.
    pub(crate) fn release(&self, session: SessionId) {
        let mut holder = self.reserved_by.lock();
        if *holder == Some(session) {
            *holder = None;
        }
    }

    /// A reset of the unit: initiators lose their settings, and are notified.
    pub(crate) fn reset(&self) {
        *self.reserved_by.lock() = None;
        self.has_write_cache.store(true, SeqCst);
        self.is_write_protected.store(false, SeqCst);
        self.raise(Sense::UNIT_RESET, None);
    }
}

impl UnitSession {
    fn push(&mut self, attention: Sense) {
        if self.attentions.contains(&attention) {
            return;
        }
        if self.attentions.len() == MAX_ATTENTIONS {
            self.attentions.pop_front();
        }
        self.attentions.push_back(attention);
    }
}
