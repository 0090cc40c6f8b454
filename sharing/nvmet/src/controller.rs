//! A controller: what one host has of one subsystem, from the Connect of its admin queue to the end of that connection.
//!
//! The controller has the properties that the host sets, its features, and its asynchronous events. A thread of the
//! admin connection (`Controller::wait_for_event`) sends the events, and finds hosts whose keep-alive timeout has
//! passed.
//! Every command of any queue counts as a heartbeat.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lun::Nexus;
use parking_lot::{Condvar, Mutex};

use crate::client::Client;
use crate::status::{ControllerStatus, SharedCounters};
use crate::subsystem::{ActiveSubsystem, Namespaces};
use crate::wire::connect::HostId;

/// Asynchronous event requests that a controller holds.
pub(crate) const MAX_EVENT_REQUESTS: usize = 4;
/// Reservation notifications that wait for the host.
const MAX_NOTIFICATIONS: usize = 64;
/// The unit of keep-alive timeouts in Identify Controller, and what a host has in addition to its timeout.
pub(crate) const KEEP_ALIVE_GRACE: Duration = Duration::from_secs(1);
/// The time between two looks at a controller without a keep-alive timeout.
const IDLE_WAIT: Duration = Duration::from_mins(1);

/// Bits of the asynchronous event configuration.
const NAMESPACE_NOTICES: u32 = 1 << 8;
const DISCOVERY_NOTICES: u32 = 1 << 31;

/// A controller.
pub(crate) struct Controller {
    pub(crate) id: u16,
    pub(crate) host: String,
    pub(crate) host_id: HostId,
    /// The subsystem; none: discovery.
    pub(crate) subsystem: Option<Arc<ActiveSubsystem>>,
    pub(crate) counters: SharedCounters,
    pub(crate) in_flight: AtomicU64,
    admin: Arc<Client>,
    since: Instant,
    has_write_cache: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The property CC.
    configuration: u32,
    is_shut_down: bool,
    is_ended: bool,
    keep_alive: Option<Duration>,
    last_command: Instant,
    /// The connections by their queues. The admin queue is 0.
    queues: BTreeMap<u16, Arc<Client>>,
    events: Events,
}

/// Asynchronous events, and the requests by which the host learns of them.
#[derive(Default)]
struct Events {
    enabled: u32,
    requests: VecDeque<u16>,
    changed_namespaces: BTreeSet<u32>,
    discovery_changed: bool,
    notifications: VecDeque<Notification>,
    notification_count: u64,
    /// Log pages that the host was told of and has not read.
    told: BTreeSet<u8>,
}

/// A change of reservations, which the log page reports to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Notification {
    /// The number of the notification, from 1.
    pub(crate) number: u64,
    pub(crate) kind: NotificationKind,
    pub(crate) namespace: u32,
    /// Notifications that follow.
    pub(crate) remaining: u8,
}

/// The kinds of reservation notifications, by their codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotificationKind {
    RegistrationPreempted = 1,
    ReservationReleased = 2,
}

/// The log pages of events.
pub(crate) const CHANGED_NAMESPACES_PAGE: u8 = 0x04;
pub(crate) const DISCOVERY_PAGE: u8 = 0x70;
pub(crate) const RESERVATION_PAGE: u8 = 0x80;

/// An event that is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// The asynchronous event request that it completes.
    pub(crate) request: u16,
    /// The result of the completion: type, information and log page.
    pub(crate) result: u64,
}

impl Events {
    /// The next event for the host.
    fn next(&mut self) -> Option<Event> {
        let notice = 2;
        let of_io_commands = 6;
        let pending = [
            (
                CHANGED_NAMESPACES_PAGE,
                self.enabled & NAMESPACE_NOTICES != 0 && !self.changed_namespaces.is_empty(),
                (notice, 0x00),
            ),
            (
                DISCOVERY_PAGE,
                self.enabled & DISCOVERY_NOTICES != 0 && self.discovery_changed,
                (notice, 0xf0),
            ),
            (RESERVATION_PAGE, !self.notifications.is_empty(), (of_io_commands, 0x00)),
        ];
        let told = &self.told;
        let next = pending.into_iter().find(|(page, is_due, _)| *is_due && !told.contains(page));
        let (page, _, (kind, information)) = next?;
        let request = self.requests.pop_front()?;
        self.told.insert(page);
        Some(Event { request, result: kind | information << 8 | u64::from(page) << 16 })
    }
}

/// The parts of a new controller.
pub(crate) struct NewController {
    pub(crate) host: String,
    pub(crate) host_id: HostId,
    pub(crate) subsystem: Option<Arc<ActiveSubsystem>>,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) admin: Arc<Client>,
}

impl Controller {
    pub(crate) fn new(id: u16, new: NewController) -> Self {
        let NewController { host, host_id, subsystem, keep_alive, admin } = new;
        let now = Instant::now();
        let state = State {
            configuration: 0,
            is_shut_down: false,
            is_ended: false,
            keep_alive,
            last_command: now,
            queues: BTreeMap::from([(0, Arc::clone(&admin))]),
            events: Events::default(),
        };
        Self {
            id,
            host,
            host_id,
            subsystem,
            counters: SharedCounters::default(),
            in_flight: AtomicU64::new(0),
            admin,
            since: now,
            has_write_cache: AtomicBool::new(true),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// The address of the host.
    pub(crate) fn address(&self) -> IpAddr {
        self.admin.address.ip()
    }

    /// The namespaces by their numbers.
    pub(crate) fn namespaces(&self) -> Arc<Namespaces> {
        self.subsystem.as_ref().map(|subsystem| subsystem.namespaces()).unwrap_or_default()
    }

    /// The host, as reservations know it.
    pub(crate) fn nexus(&self) -> Nexus {
        Nexus(self.host_id.to_vec())
    }

    /// Whether writes are answered before they are durable.
    pub(crate) fn has_write_cache(&self) -> bool {
        self.has_write_cache.load(SeqCst)
    }

    pub(crate) fn set_write_cache(&self, is_on: bool) {
        self.has_write_cache.store(is_on, SeqCst);
    }

    /// The properties CC and CSTS.
    pub(crate) fn properties(&self) -> (u32, u32) {
        let state = self.state.lock();
        let is_enabled = state.configuration & 1 != 0;
        let ready = u32::from(is_enabled && !state.is_shut_down);
        (state.configuration, ready | if state.is_shut_down { 2 << 2 } else { 0 })
    }

    /// Sets the property CC. A shutdown is complete at once: the caller flushes the namespaces before.
    pub(crate) fn configure(&self, configuration: u32) {
        let mut state = self.state.lock();
        let was_enabled = state.configuration & 1 != 0;
        state.configuration = configuration;
        state.is_shut_down = configuration >> 14 & 3 != 0;
        if was_enabled && configuration & 1 == 0 {
            // a reset: I/O queues are gone, and their hosts connect them again
            state.is_shut_down = false;
            state.queues.iter().filter(|(queue, _)| **queue > 0).for_each(|(_, queue)| queue.end());
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.properties().1 & 1 != 0
    }

    /// Adds the connection of an I/O queue. False: the queue is in use, or the controller has ended.
    pub(crate) fn add_queue(&self, queue: u16, client: &Arc<Client>) -> bool {
        let mut state = self.state.lock();
        if state.is_ended || state.queues.contains_key(&queue) {
            return false;
        }
        state.queues.insert(queue, Arc::clone(client));
        true
    }

    /// Removes the connection of a queue; that of the admin queue ends the controller. Returns whether none is left.
    pub(crate) fn remove_queue(&self, queue: u16) -> bool {
        if queue == 0 {
            self.end();
        }
        let mut state = self.state.lock();
        state.queues.remove(&queue);
        state.queues.is_empty()
    }

    /// Ends all connections after the commands that were read are answered. Does not wait.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        state.queues.values().for_each(|queue| queue.end());
        self.changed.notify_all();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().is_ended
    }

    /// Counts a heartbeat.
    pub(crate) fn touch(&self) {
        let mut state = self.state.lock();
        if state.keep_alive.is_some() {
            state.last_command = Instant::now();
        }
    }

    /// The keep-alive timeout.
    pub(crate) fn keep_alive(&self) -> Option<Duration> {
        self.state.lock().keep_alive
    }

    /// Sets the keep-alive timeout.
    pub(crate) fn set_keep_alive(&self, timeout: Option<Duration>) {
        self.state.lock().keep_alive = timeout;
        self.changed.notify_all();
    }

    /// Holds an asynchronous event request. False: there are too many.
    pub(crate) fn request_event(&self, request: u16) -> bool {
        let mut state = self.state.lock();
        if state.events.requests.len() >= MAX_EVENT_REQUESTS {
            return false;
        }
        state.events.requests.push_back(request);
        self.changed.notify_all();
        true
    }

    /// Waits for an event that is to be sent. None: the controller has ended, or the host has been silent for too long.
    pub(crate) fn wait_for_event(&self) -> Option<Event> {
        let mut state = self.state.lock();
        loop {
            if state.is_ended {
                return None;
            }
            if let Some(event) = state.events.next() {
                return Some(event);
            }
            let deadline = match state.keep_alive {
                Some(timeout) => state.last_command + timeout + KEEP_ALIVE_GRACE,
                None => Instant::now() + IDLE_WAIT,
            };
            let is_late = self.changed.wait_until(&mut state, deadline).timed_out();
            let is_silent = state
                .keep_alive
                .is_some_and(|timeout| state.last_command.elapsed() >= timeout + KEEP_ALIVE_GRACE);
            if is_late && is_silent {
                state.is_ended = true;
                state.queues.values().for_each(|queue| queue.abort());
                return None;
            }
        }
    }

    /// The events that the host wants to know of.
    pub(crate) fn enabled_events(&self) -> u32 {
        self.state.lock().events.enabled
    }

    pub(crate) fn enable_events(&self, enabled: u32) {
        self.state.lock().events.enabled = enabled;
        self.changed.notify_all();
    }

    /// Has the host told that namespaces have another size or content, or are others.
    pub(crate) fn report_changed_namespaces(&self, numbers: &[u32]) {
        self.state.lock().events.changed_namespaces.extend(numbers);
        self.changed.notify_all();
    }

    /// Has a discovery host told that there are other subsystems.
    pub(crate) fn report_discovery_change(&self) {
        self.state.lock().events.discovery_changed = true;
        self.changed.notify_all();
    }

    /// Has the host told of a change of reservations.
    pub(crate) fn report_reservation(&self, namespace: u32, kind: NotificationKind) {
        let mut state = self.state.lock();
        let events = &mut state.events;
        events.notification_count += 1;
        if events.notifications.len() == MAX_NOTIFICATIONS {
            events.notifications.pop_front();
        }
        let number = events.notification_count;
        events.notifications.push_back(Notification { number, kind, namespace, remaining: 0 });
        self.changed.notify_all();
    }

    /// The namespaces that have changed. `clears`: the host wants to be told of the next change.
    pub(crate) fn changed_namespaces(&self, clears: bool) -> Vec<u32> {
        let mut state = self.state.lock();
        let numbers = state.events.changed_namespaces.iter().copied().collect();
        if clears {
            state.events.changed_namespaces.clear();
            state.events.told.remove(&CHANGED_NAMESPACES_PAGE);
        }
        numbers
    }

    /// The host has read the discovery log page.
    pub(crate) fn clear_discovery_change(&self) {
        let mut state = self.state.lock();
        state.events.discovery_changed = false;
        state.events.told.remove(&DISCOVERY_PAGE);
    }

    /// The oldest reservation notification. `clears`: the host goes on to the next.
    pub(crate) fn notification(&self, clears: bool) -> Option<Notification> {
        let mut state = self.state.lock();
        let events = &mut state.events;
        let remaining = u8::try_from(events.notifications.len()).expect("they are at most 64");
        let oldest = *events.notifications.front()?;
        if clears {
            events.notifications.pop_front();
            events.told.remove(&RESERVATION_PAGE);
            self.changed.notify_all();
        }
        Some(Notification { remaining: remaining - 1, ..oldest })
    }

    pub(crate) fn status(&self) -> ControllerStatus {
        let queues = self.state.lock().queues.keys().filter(|queue| **queue > 0).count();
        ControllerStatus {
            address: self.admin.address,
            host: self.host.clone(),
            subsystem: self.subsystem.as_ref().map(|subsystem| subsystem.name.clone()),
            queues,
            connected: self.since.elapsed(),
            in_flight: self.in_flight.load(SeqCst),
            counters: self.counters.load(),
        }
    }
}
