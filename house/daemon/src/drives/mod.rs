//! The drive monitor: it reads the health of every drive at an interval, and keeps the results.
//!
//! A thread of its own reads the drives one after the other; a drive that hangs delays the others,
//! and nothing else. All others read the last results from memory. Histories are in the folder
//! `drives` of the state directory.

pub(crate) mod burn_in;
mod config;
mod locate;
mod placement;
mod power;
mod schedule;
mod system_use;

use std::sync::Arc;
use std::time::Instant;

use api::{
    Drive, DriveDetails, DriveList, DrivePlace, DrivePower, LocateDrive, LocateMethod, NoteDrive,
    PoolReport, TestDrive,
};
use health::{
    BayMap, BlockDevice, Counter, Evidence, History, HistoryStore, Host, HungDrives, Note,
    Placement, Reading, Sample, SmartReport, assess,
};
use parking_lot::{Condvar, Mutex};

use burn_in::BurnIns;
pub(crate) use config::HealthConfig;
pub(crate) use power::{PowerConfig, PowerMonitor};

use crate::events::unix_seconds;
use crate::log::Log;
use crate::{Error, Result, StateDir};

use locate::Locator;
use system_use::SystemUse;

/// The monitor of drives.
pub(crate) struct DriveMonitor {
    host: Host,
    store: HistoryStore,
    hung: HungDrives,
    locator: Locator,
    /// The burn-ins of drives.
    pub(crate) burn_ins: BurnIns,
    log: Arc<Log>,
    state: Mutex<State>,
    /// Wakes the thread, and those that wait for a reading.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    config: HealthConfig,
    bays: BayMap,
    drives: Vec<WatchedDrive>,
    /// The number of requested readings, and of finished ones.
    requested: u64,
    done: u64,
    is_stopped: bool,
}

/// A drive as it was seen last.
#[derive(Clone)]
struct WatchedDrive {
    device: BlockDevice,
    report: Option<SmartReport>,
    is_asleep: bool,
    /// Why it could not be read at the last look.
    unreadable: Option<String>,
    read_at: Option<u64>,
    history: History,
}

impl WatchedDrive {
    fn new(device: BlockDevice) -> Self {
        Self {
            device,
            report: None,
            is_asleep: false,
            unreadable: None,
            read_at: None,
            history: History::default(),
        }
    }

    fn serial(&self) -> Option<&String> {
        let reported = self.report.as_ref().and_then(|report| report.serial.as_ref());
        reported.or(self.device.serial.as_ref())
    }

    /// The name of its history.
    fn id(&self) -> &str {
        self.serial().unwrap_or(&self.device.name)
    }
}

impl DriveMonitor {
    pub(crate) fn new(state_dir: &StateDir, log: Arc<Log>) -> Self {
        let store = HistoryStore::new(state_dir.drive_histories());
        let state = Mutex::new(State { requested: 1, ..State::default() });
        let (host, hung, locator) = <(Host, HungDrives, Locator)>::default();
        let burn_ins = BurnIns::load(state_dir.burn_ins(), Arc::clone(&log));
        Self { host, store, hung, locator, burn_ins, log, state, changed: Condvar::new() }
    }

    /// Sets the configuration, and reads all drives if it changed.
    pub(crate) fn configure(&self, config: HealthConfig) {
        let mut state = self.state.lock();
        if state.config != config {
            state.config = config;
            state.requested += 1;
            self.changed.notify_all();
        }
    }

    /// Sets the map of bays.
    pub(crate) fn set_bays(&self, bays: BayMap) {
        self.state.lock().bays = bays;
    }

    /// Looks at the drives until [`Self::stop`].
    pub(crate) fn run(&self) {
        loop {
            let mut state = self.state.lock();
            let due = Instant::now() + state.config.interval();
            while state.requested == state.done && !state.is_stopped {
                if self.changed.wait_until(&mut state, due).timed_out() {
                    state.requested += 1;
                }
            }
            if state.is_stopped {
                return;
            }
            let (look, config) = (state.requested, state.config.clone());
            drop(state);
            self.read_drives(&config);
            self.start_due_self_test(&config);
            self.state.lock().done = look;
            self.changed.notify_all();
        }
    }

    /// Ends the thread at its next drive.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.locator.stop();
        self.changed.notify_all();
    }

    /// Looks at all drives now, and waits for that.
    pub(crate) fn check_now(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.requested += 1;
        let look = state.requested;
        self.changed.notify_all();
        while state.done < look && !state.is_stopped {
            self.changed.wait(&mut state);
        }
        if state.is_stopped {
            return Err(Error::refused_error("the daemon is shutting down"));
        }
        Ok(())
    }

    fn read_drives(&self, config: &HealthConfig) {
        let devices: Vec<_> = self.host.drives().into_iter().chain(config.drives()).collect();
        let smartctl = config.smartctl(&self.hung);
        let is_present = |watched: &WatchedDrive| {
            devices.iter().any(|device| is_same_drive(device, &watched.device))
        };
        self.state.lock().drives.retain(is_present);
        for device in devices {
            if self.state.lock().is_stopped {
                return;
            }
            let reading = smartctl.read(&device);
            let known =
                self.state.lock().drives.iter().find(|it| it.device.name == device.name).cloned();
            let mut watched = known.unwrap_or_else(|| WatchedDrive::new(device.clone()));
            watched.device = device;
            watched.is_asleep = matches!(reading, Ok(Reading::Asleep));
            match reading {
                Ok(Reading::Report(report)) => self.take_report(&mut watched, *report),
                Ok(Reading::Asleep) => watched.unreadable = None,
                Err(why) => watched.unreadable = Some(why.to_string()),
            }
            let mut state = self.state.lock();
            match state.drives.iter_mut().find(|it| it.device.name == watched.device.name) {
                Some(slot) => {
                    // the owner may have noted something during the look
                    if slot.serial() == watched.serial() && slot.report.is_some() {
                        watched.history.notes.clone_from(&slot.history.notes);
                    }
                    *slot = watched;
                }
                None => state.drives.push(watched),
            }
        }
    }

    /// Stores a report, and adds it to the history.
    fn take_report(&self, watched: &mut WatchedDrive, report: SmartReport) {
        let now = unix_seconds();
        // another drive may be in the place of one whose serial number the kernel does not know
        let is_first = watched.report.as_ref().is_none_or(|old| old.serial != report.serial);
        watched.read_at = Some(now);
        watched.unreadable = None;
        let (counters, temperature) = (report.counters.clone(), report.temperature);
        watched.report = Some(report);
        if is_first {
            watched.history = self.store.load(watched.id()).unwrap_or_else(|why| {
                self.log.write_line(&format!("{why}; a new history begins"));
                History::default()
            });
        }
        if watched.history.add(Sample { time: now, temperature, counters }) {
            self.save(watched.id(), &watched.history);
        }
    }

    fn save(&self, id: &str, history: &History) {
        if let Err(why) = self.store.save(id, history) {
            self.log.write_line(&why.to_string());
        }
    }

    /// The drives as they were at the last look, with their places in pools.
    pub(crate) fn list(&self, pools: &[PoolReport]) -> DriveList {
        let state = self.state.lock();
        let (watched, bays) = (state.drives.clone(), state.bays.clone());
        let price = state.config.kilowatt_hour;
        let is_complete = state.done > 0;
        drop(state);
        let devices: Vec<_> = watched.iter().map(|it| it.device.clone()).collect();
        let mut places = placement::places(pools, &devices, &self.host);
        let system = SystemUse::read();
        let describe = |it: &WatchedDrive| Drive {
            is_used_by_system: system.has(&it.device.name),
            is_in_burn_in: self.burn_ins.is_running(it.id()),
            ..describe(it, places.remove(&it.device.name), &bays)
        };
        let mut drives: Vec<_> = watched.iter().map(describe).collect();
        // drives in bays come first, in the order of the bays
        drives.sort_by_key(|drive| {
            let bay = drive.serial.as_deref().and_then(|serial| bays.bay_of(serial));
            (bay.is_none(), bay)
        });
        let power = estimate_power(&drives, price);
        DriveList { drives, bays, is_complete, power }
    }

    /// A drive of a list with its history.
    pub(crate) fn details(&self, list: &DriveList, name: &str) -> Result<DriveDetails> {
        let drive = find(list, name)?;
        let samples = self.watched(&drive.name)?.history.samples;
        let burn_in = self.burn_ins.report(drive.id());
        Ok(DriveDetails { drive, samples, burn_in })
    }

    /// Reads the SMART report of a drive now, for its verdict as well; none: it cannot be read.
    pub(crate) fn read_report(&self, name: &str) -> Option<SmartReport> {
        let mut watched = self.watched(name).ok()?;
        let smartctl = self.state.lock().config.smartctl(&self.hung);
        let Ok(Reading::Report(report)) = smartctl.read(&watched.device) else { return None };
        self.take_report(&mut watched, (*report).clone());
        let mut state = self.state.lock();
        if let Some(slot) = state.drives.iter_mut().find(|it| it.device == watched.device) {
            *slot = watched;
        }
        Some(*report)
    }

    /// Sends a drive to standby.
    pub(crate) fn send_to_standby(&self, name: &str) -> Result<()> {
        let device = self.watched(name)?.device;
        let smartctl = self.state.lock().config.smartctl(&self.hung);
        let sent = smartctl.send_to_standby(&device);
        sent.map_err(|why| Error::refused_error(why.to_string()))?;
        self.set_asleep(name, true);
        Ok(())
    }

    /// Notes that a drive sleeps or not. The next look at it decides.
    pub(crate) fn set_asleep(&self, name: &str, is_asleep: bool) {
        let mut state = self.state.lock();
        if let Some(watched) = state.drives.iter_mut().find(|it| it.device.name == name) {
            watched.is_asleep = is_asleep;
        }
    }

    fn watched(&self, name: &str) -> Result<WatchedDrive> {
        let state = self.state.lock();
        let found = state.drives.iter().find(|it| it.device.name == name).cloned();
        found.ok_or_else(|| no_such_drive(name))
    }

    /// Starts a self-test.
    pub(crate) fn start_self_test(&self, call: &TestDrive) -> Result<()> {
        let drive = find(&self.list(&[]), &call.drive)?;
        let device = self.watched(&drive.name)?.device;
        let smartctl = self.state.lock().config.smartctl(&self.hung);
        let started = smartctl.start_self_test(&device, call.kind);
        started.map_err(|why| Error::refused_error(format!("drive {}: {why}", drive.id())))
    }

    /// Lets the light of a drive blink, or ends that.
    pub(crate) fn locate(&self, call: &LocateDrive) -> Result<LocateMethod> {
        let drive = find(&self.list(&[]), &call.drive)?;
        let device = self.watched(&drive.name)?.device;
        self.locator.locate(&self.host, &device, call.seconds, &self.log)
    }

    /// Starts the self-test that is due by the schedule. One drive at a look: all at once would slow the pools.
    fn start_due_self_test(&self, config: &HealthConfig) {
        let now = unix_seconds();
        let is_awake = |watched: &&WatchedDrive| {
            watched.report.is_some() && !watched.is_asleep && watched.unreadable.is_none()
        };
        let due = |watched: &WatchedDrive| {
            let kind = config.schedule().due(&watched.history, now)?;
            Some((watched.device.clone(), watched.id().to_owned(), kind))
        };
        let found = self.state.lock().drives.iter().filter(is_awake).find_map(due);
        let Some((device, id, kind)) = found else { return };
        let line = match config.smartctl(&self.hung).start_self_test(&device, kind) {
            Ok(()) => format!("drive {id}: the {} self-test of the schedule begins", kind.as_str()),
            Err(why) => format!("drive {id}: no {} self-test: {why}", kind.as_str()),
        };
        self.log.write_line(&line);
        // a drive that cannot test itself is tried again when the next test is due
        let mut state = self.state.lock();
        let watched = state.drives.iter_mut().find(|it| it.device.name == device.name);
        if let Some(watched) = watched {
            watched.history.self_tests.insert(kind.as_str().to_owned(), now);
            self.save(&id, &watched.history);
        }
    }

    /// Notes the findings of a drive, or forgets the notes.
    pub(crate) fn note(&self, call: &NoteDrive, pools: &[PoolReport]) -> Result<Drive> {
        let drive = find(&self.list(pools), &call.drive)?;
        let now = unix_seconds();
        let mut state = self.state.lock();
        let found = state.drives.iter_mut().find(|it| it.device.name == drive.name);
        let watched = found.ok_or_else(|| no_such_drive(&call.drive))?;
        watched.history.notes.clear();
        if !call.forget {
            for finding in &drive.verdict.findings {
                let note = Note { value: finding.value, grade: finding.grade, time: now };
                watched.history.notes.insert(finding.key.clone(), note);
            }
        }
        let saved = self.store.save(watched.id(), &watched.history);
        drop(state);
        saved.map_err(|why| Error::refused_error(why.to_string()))?;
        find(&self.list(pools), &call.drive)
    }
}

pub(crate) fn find(list: &DriveList, name: &str) -> Result<Drive> {
    let found = list.drives.iter().find(|drive| drive.matches(name));
    found.cloned().ok_or_else(|| no_such_drive(name))
}

fn no_such_drive(name: &str) -> Error {
    Error::refused_error(format!("there is no drive '{name}'; see: poolhouse drives list"))
}

/// Whether a device at the same name is still the same drive: another one may have come in its place.
fn is_same_drive(now: &BlockDevice, before: &BlockDevice) -> bool {
    now.name == before.name && now.serial == before.serial && now.path == before.path
}

/// A drive as the API shows it, with its verdict.
fn describe(watched: &WatchedDrive, place: Option<DrivePlace>, bays: &BayMap) -> Drive {
    let WatchedDrive { device, report, is_asleep, unreadable, read_at, history } = watched;
    let serial = watched.serial().cloned();
    let report = report.as_ref();
    let mut counters = report.map(|report| report.counters.clone()).unwrap_or_default();
    if let Some(place) = &place {
        counters.extend([
            (Counter::PoolReadErrors, place.read_errors),
            (Counter::PoolWriteErrors, place.write_errors),
            (Counter::PoolChecksumErrors, place.checksum_errors),
        ]);
    }
    let verdict = assess(&Evidence {
        drive: watched.id(),
        report,
        unreadable: unreadable.as_deref(),
        place: place.as_ref().map(|it| Placement { pool: &it.pool, device: &it.device }),
        counters: &counters,
        history,
        now: unix_seconds(),
    });
    let of_report = |field: fn(&SmartReport) -> Option<String>| report.and_then(field);
    Drive {
        name: device.name.clone(),
        path: device.path.clone(),
        ids: device.ids.clone(),
        model: of_report(|it| it.model.clone()).or_else(|| device.model.clone()),
        wwn: of_report(|it| it.wwn.clone()),
        firmware: of_report(|it| it.firmware.clone()),
        size: report.and_then(|it| it.size).unwrap_or(device.size),
        kind: kind(device, report).to_owned(),
        temperature: report.and_then(|it| it.temperature),
        power_on_hours: report.and_then(|it| it.power_on_hours),
        is_asleep: *is_asleep,
        read_at: *read_at,
        bay: serial.as_deref().and_then(|serial| bays.bay_of(serial)).map(|bay| bay.to_string()),
        place,
        is_used_by_system: false,
        is_in_burn_in: false,
        verdict,
        self_test: report.and_then(|it| it.self_test.clone()),
        attributes: report.map(|it| it.attributes.clone()).unwrap_or_default(),
        serial,
    }
}

/// The power of drives, by their kinds. The price of a kilowatt-hour is in thousandths.
fn estimate_power(drives: &[Drive], price: u64) -> DrivePower {
    let of = |drive: &Drive| health::estimated_milliwatts(&drive.kind, drive.is_asleep);
    let milliwatts: u64 = drives.iter().map(of).sum();
    // hours of a year, over milliwatts of a kilowatt and thousandths of the currency
    let cost = u128::from(milliwatts) * u128::from(price) * 8766 / 1_000_000_000;
    let cost_of_year = u64::try_from(cost).ok().filter(|_| price > 0);
    let asleep = drives.iter().filter(|drive| drive.is_asleep).count();
    DrivePower { milliwatts, asleep, cost_of_year }
}

fn kind(device: &BlockDevice, report: Option<&SmartReport>) -> &'static str {
    let is_nvme = report.is_some_and(|report| report.protocol == health::Protocol::Nvme);
    let rotates = report.and_then(|report| report.rotation_rate).map(|rate| rate > 0);
    match rotates.unwrap_or(device.is_rotational) {
        _ if is_nvme || device.name.starts_with("nvme") => "NVMe",
        true => "HDD",
        false => "SSD",
    }
}
