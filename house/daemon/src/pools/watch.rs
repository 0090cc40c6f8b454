//! The thread that watches the pools: it retries imports, reopens devices, and turns changes of the engine's
//! status into events and jobs. The engine reports no events of its own yet, so that the thread polls.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Event, JobProgress};
use engine::pool::{PoolStatus, ScanKind, ScanStatus, VdevStatus};

use super::{ManagedPool, Pools};
use crate::jobs::{JobControl, RunningJob};

/// The time between two looks at the pools.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time between two looks whether the daemon ends.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The user id of work that the daemon starts by itself.
const NO_USER: u32 = 0;

/// A pool at the last look.
struct WatchedPool {
    state: String,
    /// Names and states of its leaf vdevs, by guid.
    devices: BTreeMap<u64, (String, String)>,
    scan: Option<ScanStatus>,
    /// Failed devices that no spare stands in for.
    failed: Vec<u64>,
    /// The job of the scan that runs.
    job: Option<RunningJob>,
}

impl WatchedPool {
    fn new(status: &PoolStatus) -> Self {
        let mut devices = BTreeMap::new();
        status.vdevs.iter().for_each(|vdev| collect_leaves(vdev, &mut devices));
        let (state, scan) = (status.state.clone(), status.scan.clone());
        Self { state, devices, scan, failed: Vec::new(), job: None }
    }
}

impl Pools {
    /// Watches the pools until the daemon ends.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut waited = Duration::ZERO;
        let mut seen = HashMap::new();
        let mut watched = HashMap::new();
        while !self.shutting_down.load(Ordering::Acquire) {
            std::thread::sleep(POLL_INTERVAL);
            waited += POLL_INTERVAL;
            if waited >= INTERVAL {
                waited = Duration::ZERO;
                if self.unsaved_warning().is_some() {
                    self.save_pools();
                }
                self.write_cachefiles();
                self.retry_unavailable();
                self.reopen_drives(&mut seen);
                self.watch_pools(&mut watched);
            }
        }
        // a scan that the end of the daemon stops is interrupted, not failed
        watched.into_values().filter_map(|pool| pool.job).for_each(std::mem::forget);
    }

    /// Compares the pools with the last look.
    fn watch_pools(self: &Arc<Self>, watched: &mut HashMap<u64, WatchedPool>) {
        let here = self.imported_names();
        let is_here = |guid: &u64| here.iter().any(|(_, other)| other == guid);
        for (_, gone) in watched.extract_if(|guid, _| !is_here(guid)) {
            if let Some(job) = gone.job {
                job.cancelled("The pool was exported or destroyed.".to_owned());
            }
        }
        for (name, _) in &here {
            // one pool at a time: a slow device of one does not keep another from being exported
            let Ok(pool) = self.pool(name) else { continue };
            pool.forget_ended_mounts();
            self.diagnose_devices(&pool);
            self.expand_grown_devices(&pool);
            let now = pool.handle.status();
            let mut next = WatchedPool::new(&now);
            next.failed = pool.handle.drives().failed();
            if let Some(before) = watched.remove(&now.guid) {
                self.events.record(&changes(&now.name, &before, &next, now.error.as_deref()));
                next.job = before.job;
                self.replace_failed(&pool, &before.failed, &next.failed);
            }
            self.follow_scan(&pool, &mut next);
            watched.insert(now.guid, next);
        }
    }

    /// Attaches hot spares to devices that failed at the last look and still do: one that comes back at once
    /// needs none.
    fn replace_failed(&self, pool: &ManagedPool, before: &[u64], now: &[u64]) {
        let failed: Vec<u64> = now.iter().filter(|guid| before.contains(guid)).copied().collect();
        if failed.is_empty() {
            return;
        }
        if let Err(why) = self.activate_spares(pool, &failed) {
            let name = pool.handle.name();
            self.log.write_line(&format!("pool '{name}': no spare could be attached: {why}"));
        }
    }

    /// Starts the job of a scan that runs, and ends that of one that ended.
    fn follow_scan(&self, pool: &Arc<ManagedPool>, watched: &mut WatchedPool) {
        let Some(scan) = &watched.scan else { return };
        if scan.is_scanning() {
            if watched.job.is_none() {
                let control = Arc::new(ScanControl { pool: Arc::downgrade(pool), scan: scan.scan });
                let kind = scan_word(scan.scan);
                watched.job = Some(self.jobs.start(kind, pool.handle.name(), NO_USER, control));
            }
            return;
        }
        let Some(job) = watched.job.take() else { return };
        match scan.state.as_str() {
            "finished" => job.finish(),
            "canceled" => job.cancelled("The scan was stopped.".to_owned()),
            "paused" => job.cancelled("The scan was paused.".to_owned()),
            _ => job.fail(scan.damage.join("; ")),
        }
    }
}

/// The events that lead from one look at a pool to the next.
fn changes(pool: &str, before: &WatchedPool, now: &WatchedPool, error: Option<&str>) -> Vec<Event> {
    let mut events = Vec::new();
    let pool = || pool.to_owned();
    if now.state == "SUSPENDED" && before.state != now.state {
        let reason = error.unwrap_or_default().to_owned();
        events.push(Event::PoolSuspended { pool: pool(), reason });
    }
    for (guid, (device, state)) in &now.devices {
        if before.devices.get(guid).is_some_and(|(_, old)| old != state) {
            let (device, state) = (device.clone(), state.clone());
            events.push(Event::DeviceStateChanged { pool: pool(), device, state });
        }
    }
    let Some(scan) = &now.scan else { return events };
    let known = before.scan.as_ref().filter(|old| old.started == scan.started);
    let word = || scan_word(scan.scan).to_owned();
    if known.is_none() {
        events.push(Event::ScanStarted { pool: pool(), scan: word() });
    }
    if !scan.is_active() && known.is_none_or(ScanStatus::is_active) {
        let (state, errors) = (scan.state.clone(), scan.errors);
        events.push(Event::ScanFinished { pool: pool(), scan: word(), state, errors });
    }
    events
}

const fn scan_word(scan: ScanKind) -> &'static str {
    match scan {
        ScanKind::Resilver => "resilver",
        ScanKind::Scrub => "scrub",
        ScanKind::ErrorScrub => "error scrub",
    }
}

fn collect_leaves(vdev: &VdevStatus, leaves: &mut BTreeMap<u64, (String, String)>) {
    if vdev.children.is_empty() {
        leaves.insert(vdev.guid, (vdev.name.clone(), vdev.state.clone()));
    }
    vdev.children.iter().for_each(|child| collect_leaves(child, leaves));
}

/// A scan as the work of a job. It does not keep the devices of an exported pool open.
struct ScanControl {
    pool: Weak<ManagedPool>,
    scan: ScanKind,
}

impl JobControl for ScanControl {
    fn progress(&self) -> JobProgress {
        let scan = self.pool.upgrade().and_then(|pool| pool.handle.scans().status());
        let scan = scan.filter(|status| status.scan == self.scan);
        let (done, total) = scan.map_or((0, 0), |status| (status.scanned, status.total));
        let unit = if self.scan == ScanKind::ErrorScrub { "blocks" } else { "bytes" };
        JobProgress { done, total, unit: unit.to_owned() }
    }

    fn cancel(&self) {
        if let Some(pool) = self.pool.upgrade() {
            // it may have ended meanwhile
            let _ = pool.handle.scans().stop_scrub();
        }
    }

    fn cancel_refusal(&self) -> Option<&'static str> {
        let why =
            "the pool needs its resilver; `poolhouse zpool detach` takes the new device out again";
        (self.scan == ScanKind::Resilver).then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Weak;

    use api::Event;
    use engine::pool::{ScanKind, ScanStatus};

    use super::{JobControl, ScanControl, WatchedPool, changes};

    fn watched_pool(state: &str, device: &str, scan: Option<(u64, &str)>) -> WatchedPool {
        let scan = scan.map(|(started, state)| ScanStatus {
            scan: ScanKind::Scrub,
            state: state.to_owned(),
            started,
            ended: started,
            paused: 0,
            scanned: 0,
            issued: 0,
            total: 0,
            scan_rate: 0,
            issue_rate: 0,
            read: 0,
            written: 0,
            errors: 0,
            damage: Vec::new(),
            rebuild: None,
        });
        let devices = BTreeMap::from([(1, ("a".to_owned(), device.to_owned()))]);
        WatchedPool { state: state.to_owned(), devices, scan, failed: Vec::new(), job: None }
    }

    fn kinds(before: &WatchedPool, now: &WatchedPool) -> Vec<String> {
        changes("tank", before, now, Some("why")).iter().map(Event::kind).collect()
    }

    #[test]
    fn resilvers_cannot_be_cancelled() {
        let control = |scan| ScanControl { pool: Weak::new(), scan };
        assert!(control(ScanKind::Resilver).cancel_refusal().unwrap().contains("zpool detach"));
        assert_eq!(control(ScanKind::Scrub).cancel_refusal(), None);
    }

    #[test]
    fn differences_between_looks_are_events() {
        let well = || watched_pool("ONLINE", "ONLINE", None);
        assert!(kinds(&well(), &well()).is_empty());
        let suspended = watched_pool("SUSPENDED", "FAULTED", None);
        assert_eq!(kinds(&well(), &suspended), ["pool_suspended", "device_state_changed"]);
        assert!(kinds(&suspended, &suspended).is_empty());
        let scrub = |state| watched_pool("ONLINE", "ONLINE", Some((5, state)));
        assert_eq!(kinds(&well(), &scrub("scanning")), ["scan_started"]);
        assert!(kinds(&scrub("scanning"), &scrub("scanning")).is_empty());
        assert_eq!(kinds(&scrub("scanning"), &scrub("finished")), ["scan_finished"]);
        // a short scrub ran between two looks
        assert_eq!(kinds(&well(), &scrub("finished")), ["scan_started", "scan_finished"]);
        assert!(kinds(&scrub("finished"), &scrub("finished")).is_empty());
    }
}
