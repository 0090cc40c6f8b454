//! The daemon's events: a ring of the latest ones, which outlasts the daemon in a file, and the services that follow
//! them.
//!
//! A change of a pool has two stages. [`Events::prepare`] announces the coming events to every
//! service, so that it can close the affected objects, or refuse. After the change
//! [`Events::publish`] announces that they happened; if it failed, [`Events::abandon`] announces
//! that they did not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{Event, EventPage, EventRecord, MountOverrides};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use units::MinusOrZero as _;

use crate::event_file::EventFile;
use crate::log::Log;
use crate::pools::mounts::is_within;
use crate::services::Service;
use crate::{Result, StateDir};

/// The number of events that the daemon keeps.
const CAPACITY: usize = 4096;
/// A daemon's first sequence number is the second of its start times this: so numbers grow over restarts,
/// and stay below 2^53, which every JSON parser can read.
const SEQUENCES_PER_SECOND: u64 = 1_000_000;

/// How a change treats programs that use what changes, and mounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeOptions {
    /// Programs that have files open get errors; without it the change is refused.
    pub(crate) force: bool,
    /// Neither mount nor unmount anything.
    pub(crate) keep_mounts: bool,
    /// Mount options for this time.
    pub(crate) overrides: MountOverrides,
}

/// The events of a daemon.
pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// Locked before the ring, so that readers of the ring do not wait for a disk.
    file: Mutex<Option<EventFile>>,
    /// The last sequence number; wakes calls that wait.
    last: watch::Sender<u64>,
    services: RwLock<Vec<Arc<dyn Service>>>,
}

struct Ring {
    records: VecDeque<EventRecord>,
    last: u64,
    is_closed: bool,
}

impl Events {
    /// The events of the last daemon of a state directory, and those to come.
    pub(crate) fn load(state_dir: &StateDir, log: &Arc<Log>) -> Self {
        let (file, records) = EventFile::load(state_dir.events(), CAPACITY, Arc::clone(log));
        Self::with_records(records, Some(file))
    }

    /// Events that end with the process.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::with_records(VecDeque::new(), None)
    }

    fn with_records(records: VecDeque<EventRecord>, file: Option<EventFile>) -> Self {
        let kept = records.back().map_or(0, |record| record.sequence);
        // the clock may have gone back
        let last = kept.max(unix_seconds() * SEQUENCES_PER_SECOND);
        let ring = Ring { records, last, is_closed: false };
        let (sender, _) = watch::channel(last);
        let (ring, file) = (Mutex::new(ring), Mutex::new(file));
        Self { ring, file, last: sender, services: RwLock::default() }
    }

    /// Sets the services that follow the events.
    pub(crate) fn set_services(&self, services: Vec<Arc<dyn Service>>) {
        *self.services.write() = services;
    }

    /// The services that follow the events.
    pub(crate) fn services(&self) -> Vec<Arc<dyn Service>> {
        self.services.read().clone()
    }

    /// Announces coming events to the services. If one refuses, none happens.
    pub(crate) fn prepare(&self, coming: &[Event], options: &ChangeOptions) -> Result<()> {
        // a service uses objects of the services before it: shares are ended before their mounts
        let services = self.services();
        for (at, service) in services.iter().enumerate().rev() {
            if let Err(why) = service.prepare(coming, options) {
                for prepared in services.iter().skip(at + 1) {
                    prepared.abandon(coming);
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Announces to the services that the events do not happen after all.
    pub(crate) fn abandon(&self, coming: &[Event]) {
        for service in self.services() {
            service.abandon(coming);
        }
    }

    /// Records events, and has the services follow them. Returns a sentence for each thing that a service
    /// could not do.
    pub(crate) fn publish(&self, events: &[Event], options: &ChangeOptions) -> Vec<String> {
        self.record(events);
        self.follow(events, options)
    }

    /// Has the services follow events that are recorded already. Returns a sentence for each thing that a service
    /// could not do.
    pub(crate) fn follow(&self, events: &[Event], options: &ChangeOptions) -> Vec<String> {
        self.services().iter().flat_map(|service| service.on_events(events, options)).collect()
    }

    /// Records events that no service follows.
    pub(crate) fn record(&self, events: &[Event]) {
        let time = unix_seconds();
        let mut file = self.file.lock();
        let mut ring = self.ring.lock();
        let mut added = VecDeque::new();
        for event in events {
            ring.last += 1;
            let record = EventRecord { sequence: ring.last, time, event: event.clone() };
            if ring.records.len() == CAPACITY {
                ring.records.pop_front();
            }
            ring.records.push_back(record.clone());
            added.push_back(record);
        }
        self.last.send_replace(ring.last);
        drop(ring);
        if let Some(file) = file.as_mut() {
            file.append(&added, || self.ring.lock().records.clone());
        }
    }

    /// The latest events, the oldest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<EventRecord> {
        let ring = self.ring.lock();
        ring.records.iter().skip(ring.records.len().minus_or_zero(count)).cloned().collect()
    }

    /// The events after a sequence number; none: all that are kept.
    pub(crate) fn after(&self, sequence: Option<u64>) -> EventPage {
        let ring = self.ring.lock();
        let first = ring.records.front().map_or(ring.last, |record| record.sequence - 1);
        let from = sequence.unwrap_or(first);
        let events = ring.records.iter().filter(|record| record.sequence > from).cloned();
        EventPage { events: events.collect(), last: ring.last, missed: from < first }
    }

    /// Waits for an event after a sequence number, or until the daemon ends.
    pub(crate) async fn wait(&self, after: u64) {
        let mut last = self.last.subscribe();
        while !self.ring.lock().is_closed {
            if *last.borrow_and_update() > after || last.changed().await.is_err() {
                return;
            }
        }
    }

    /// Has nothing wait any more.
    pub(crate) fn close(&self) {
        self.ring.lock().is_closed = true;
        self.last.send_modify(|_| ());
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// The file system or volume of a snapshot, or the dataset itself.
pub(crate) fn head_of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Whether a coming event removes the content of a dataset or snapshot from under its users.
pub(crate) fn takes_away(event: &Event, name: &str) -> bool {
    match event {
        Event::DatasetDestroyed { dataset } => head_of(name) == dataset,
        Event::SnapshotDestroyed { snapshot } => name == snapshot,
        Event::PoolExported { pool: dataset }
        | Event::PoolDestroyed { pool: dataset }
        | Event::KeyUnloaded { dataset } => is_within(head_of(name), dataset),
        _ => false,
    }
}

/// Whether after an event other file systems and volumes can be used than before, or by other names.
pub(crate) fn changes_datasets(event: &Event) -> bool {
    matches!(
        event,
        Event::PoolCreated { .. }
            | Event::PoolImported { .. }
            | Event::PoolExported { .. }
            | Event::PoolDestroyed { .. }
            | Event::DatasetCreated { .. }
            | Event::DatasetDestroyed { .. }
            | Event::DatasetRenamed { .. }
            | Event::DatasetRolledBack { .. }
            | Event::KeyLoaded { .. }
            | Event::KeyUnloaded { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::sync::Arc;

    use api::Event;

    use super::{CAPACITY, Events};
    use crate::StateDir;
    use crate::log::Log;

    fn snapshot(number: usize) -> Event {
        Event::SnapshotCreated { snapshot: format!("tank@{number}") }
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        let events = Events::new();
        events.record(&[snapshot(0), snapshot(1)]);
        let page = events.after(None);
        assert_eq!((page.events.len(), page.missed), (2, false));
        assert_eq!(page.events[1].sequence, page.last);
        assert_eq!(page.events[1].event, snapshot(1));
        assert!(events.after(Some(page.last)).events.is_empty());
        events.record(&[snapshot(2)]);
        let next = events.after(Some(page.last));
        assert_eq!((next.events.len(), next.last, next.missed), (1, page.last + 1, false));
    }

    #[test]
    fn a_reader_learns_that_it_missed_events() {
        let events = Events::new();
        events.record(&[snapshot(0)]);
        let first = events.after(None).last;
        let all: Vec<_> = (1..CAPACITY + 2).map(snapshot).collect();
        events.record(&all);
        let page = events.after(Some(first));
        assert_eq!((page.events.len(), page.missed), (CAPACITY, true));
        assert!(!events.after(Some(page.last - 1)).missed);
    }

    #[test]
    fn events_outlast_the_daemon() {
        let dir = std::env::temp_dir().join(format!("poolhouse-events-{}", std::process::id()));
        let state_dir = StateDir::from_dir(&dir).unwrap();
        state_dir.create_dirs().unwrap();
        let log = Arc::new(Log::open(&state_dir, false).unwrap());
        let load = || Events::load(&state_dir, &log);
        let first = load();
        first.record(&[snapshot(0), snapshot(1)]);
        let seen = first.after(None).last;
        drop(first);
        // as where the power fails during a write
        let torn = fs::OpenOptions::new().append(true).open(state_dir.events());
        torn.unwrap().write_all(b"{\"sequence\": 17").unwrap();
        let second = load();
        let kept: Vec<_> = second.after(None).events.into_iter().map(|it| it.event).collect();
        assert_eq!(kept, [snapshot(0), snapshot(1)]);
        second.record(&[snapshot(2)]);
        let page = load().after(Some(seen));
        assert_eq!((page.events.len(), page.missed), (1, false));
        assert!(page.events[0].sequence > seen && page.events[0].event == snapshot(2));
        for round in 0..4 {
            let many: Vec<_> =
                (0..CAPACITY - 1).map(|at| snapshot(round * CAPACITY + at)).collect();
            second.record(&many);
        }
        let lines = fs::read_to_string(state_dir.events()).unwrap().lines().count();
        assert!(lines <= 3 * CAPACITY, "{lines}");
        assert_eq!(load().after(None).events, second.after(None).events);
        assert_eq!(load().latest(2), second.after(None).events[CAPACITY - 2..]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let events = Arc::new(Events::new());
        let last = events.after(None).last;
        let waiting = Arc::clone(&events);
        let reader = tokio::spawn(async move { waiting.wait(last).await });
        tokio::task::yield_now().await;
        events.record(&[snapshot(0)]);
        reader.await.unwrap();
        assert_eq!(events.after(Some(last)).events.len(), 1);
        // the daemon ends: nothing waits any more
        events.close();
        events.wait(u64::MAX).await;
    }
}
