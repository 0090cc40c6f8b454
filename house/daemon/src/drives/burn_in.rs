//! Burn-ins of drives, as jobs. One file a drive holds the progress and the results.
//!
//! ```text
//! STATE/burn-in/SERIAL.json   api::BurnInReport: state, job, results, verdict
//! running                     a daemon that starts continues it, once the drive is there
//! stopped                     cancelled, or it could not continue: `drives burn-in --continue`
//! done                        the results stay until the next burn-in of the drive
//! ```
//!
//! The daemon holds the drive exclusively while a burn-in writes to it, so that no pool can take it meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use api::{BurnInDrive, BurnInReport, BurnInState, Drive, DriveList, JobProgress};
use engine::pool::open_unused_drive;
use health::{
    BurnIn, BurnInEnd, BurnInError, BurnInObserver, BurnInPhase, BurnInTarget, DirectDrive, Grade,
    SmartReport, drive_file_name,
};
use parking_lot::Mutex;

use super::find;
use crate::context::Context;
use crate::events::unix_seconds;
use crate::jobs::{JobControl, RunningJob};
use crate::log::Log;
use crate::{Error, Result, environment, state_file};

/// How often a starting daemon looks for the first readings of the drives.
const READY_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The time that an ending daemon waits for requests that hang in a drive.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The burn-ins of all drives.
pub(crate) struct BurnIns {
    dir: PathBuf,
    log: Arc<Log>,
    is_stopping: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest report of each drive, by its id.
    reports: BTreeMap<String, BurnInReport>,
    running: BTreeMap<String, (Arc<Control>, JoinHandle<()>)>,
}

/// The control of the job of a burn-in.
#[derive(Default)]
struct Control {
    is_cancelled: AtomicBool,
    results: Mutex<BurnIn>,
}

impl JobControl for Control {
    fn progress(&self) -> JobProgress {
        let results = self.results.lock();
        let (done, total) = (results.bytes_done(), 2 * results.pass_length());
        JobProgress { done, total, unit: "bytes".to_owned() }
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }
}

impl BurnIns {
    /// Reads the files of a directory. A file that is damaged is left out.
    pub(crate) fn load(dir: PathBuf, log: Arc<Log>) -> Self {
        let mut reports = BTreeMap::new();
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = fs::read(&path).map_err(|why| why.to_string()).and_then(|bytes| {
                serde_json::from_slice::<BurnInReport>(&bytes).map_err(|why| why.to_string())
            });
            match read {
                Ok(report) => drop(reports.insert(report.drive.clone(), report)),
                Err(why) => log.write_line(&format!("'{}' cannot be read: {why}", path.display())),
            }
        }
        let state = Mutex::new(State { reports, running: BTreeMap::new() });
        Self { dir, log, is_stopping: Arc::default(), state }
    }

    /// Whether a burn-in of the drive runs.
    pub(crate) fn is_running(&self, drive: &str) -> bool {
        let state = self.state.lock();
        state.running.get(drive).is_some_and(|(_, thread)| !thread.is_finished())
    }

    /// The newest burn-in of a drive.
    pub(crate) fn report(&self, drive: &str) -> Option<BurnInReport> {
        let state = self.state.lock();
        let mut report = state.reports.get(drive)?.clone();
        if let Some((control, thread)) = state.running.get(drive)
            && !thread.is_finished()
        {
            report.results = control.results.lock().clone();
            report.verdict = report.results.verdict();
        }
        Some(report)
    }

    /// Stops the running ones. The next daemon continues them.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let running = std::mem::take(&mut self.state.lock().running);
        let end = Instant::now() + STOP_TIMEOUT;
        for (_, thread) in running.into_values() {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Stores a report in memory and in its file. A file that cannot be written costs the progress after a restart.
    fn save(&self, report: &BurnInReport) {
        self.state.lock().reports.insert(report.drive.clone(), report.clone());
        let path = self.dir.join(drive_file_name(&report.drive));
        let saved = fs::create_dir_all(&self.dir)
            .and_then(|()| serde_json::to_vec_pretty(report).map_err(Into::into))
            .map_err(|why| Error::file_error(&path, &why))
            .and_then(|bytes| state_file::replace(&path, &bytes));
        if let Err(why) = saved {
            self.log.write_line(&why.to_string());
        }
    }
}

/// The newest burn-in of a drive that a user names. The drive need not be there any more.
pub(crate) fn report(context: &Context, name: &str) -> Result<BurnInReport> {
    let found = find(&context.drives.list(&[]), name);
    let id = found.as_ref().map_or(name, Drive::id);
    context.drives.burn_ins.report(id).ok_or_else(|| {
        found.err().unwrap_or_else(|| {
            Error::refused_error(format!(
                "drive {name} had no burn-in yet; start one: poolhouse drives burn-in {name}"
            ))
        })
    })
}

/// Starts a burn-in, or continues the one that was cancelled.
pub(crate) fn start(context: &Arc<Context>, call: &BurnInDrive, uid: u32) -> Result<BurnInReport> {
    let list = context.drives.list(&context.overview.latest().pools);
    let drive = find_only(&list, &call.drive)?;
    if call.confirm != drive.id() {
        return Err(Error::usage_error(format!(
            "a burn-in overwrites all data of drive {}: confirm it with '{}'",
            drive.name,
            drive.id()
        )));
    }
    check_unused(&drive)?;
    let device = open_unused_drive(&drive.path, call.force || call.resume)?;
    let target = DirectDrive::open(&drive.path).map_err(|why| refusal(&drive, &why))?;
    let report = if call.resume {
        let known = context.drives.burn_ins.report(drive.id());
        let stopped = known.filter(|report| report.state == BurnInState::Stopped);
        stopped.ok_or_else(|| {
            let what =
                format!("no burn-in of drive {} was cancelled; nothing to continue", drive.name);
            Error::refused_error(what)
        })?
    } else {
        let mut seed = [0; 8];
        environment::fill_random(&mut seed)
            .map_err(|why| Error::refused_error(format!("no random numbers: {why}")))?;
        let results = BurnIn::new(device.size(), seed, call.quick);
        BurnInReport {
            drive: drive.id().to_owned(),
            model: drive.model.clone(),
            started: unix_seconds(),
            uid,
            results: results.map_err(|why| refusal(&drive, &why))?,
            ..BurnInReport::default()
        }
    };
    launch(context, &drive, report, OpenedDrive { target, size: device.size(), _claim: device })
}

/// The drive of a name. A name that several drives have is refused: the wrong one would be overwritten.
fn find_only(list: &DriveList, name: &str) -> Result<Drive> {
    let drive = find(list, name)?;
    match list.drives.iter().filter(|drive| drive.matches(name)).count() {
        0 | 1 => Ok(drive),
        count => Err(Error::refused_error(format!(
            "{count} drives have the name '{name}'; name the device: poolhouse drives list"
        ))),
    }
}

/// Refuses to continue where the drive might be another one: several have the serial number, or nothing of the pattern
/// is on it yet by which it is recognized.
fn check_continuable(list: &DriveList, report: &BurnInReport) -> Result<()> {
    find_only(list, &report.drive)?;
    if report.results.bytes_done() > 0 {
        return Ok(());
    }
    Err(Error::refused_error(format!(
        "nothing of the burn-in of drive {} was saved; start a new one, without --continue",
        report.drive
    )))
}

/// Refuses a drive that something uses.
fn check_unused(drive: &Drive) -> Result<()> {
    let name = &drive.name;
    let why = if let Some(place) = &drive.place {
        format!("drive {name} is in pool '{}'", place.pool)
    } else if drive.is_used_by_system {
        format!("the system uses drive {name}: a file system, swap or another device is on it")
    } else if drive.is_in_burn_in {
        format!("a burn-in of drive {name} runs already")
    } else {
        return Ok(());
    };
    Err(Error::refused_error(format!("{why}; nothing was written")))
}

fn refusal(drive: &Drive, why: &BurnInError) -> Error {
    Error::refused_error(format!("no burn-in of drive {}: {why}", drive.name))
}

/// A drive under test. Fields are dropped in their order: closing the target releases the record lock of the claim.
struct OpenedDrive {
    target: DirectDrive,
    size: u64,
    _claim: engine::pool::Drive,
}

/// Starts the thread and the job of a burn-in.
fn launch(
    context: &Arc<Context>,
    drive: &Drive,
    mut report: BurnInReport,
    opened: OpenedDrive,
) -> Result<BurnInReport> {
    if opened.size != report.results.size {
        return Err(Error::refused_error(format!(
            "drive {} has {} bytes, and had {} before; start a new burn-in",
            drive.name, opened.size, report.results.size
        )));
    }
    report.results.check_unchanged(&opened.target).map_err(|why| refusal(drive, &why))?;
    let control = Arc::new(Control::default());
    *control.results.lock() = report.results.clone();
    let job = context.jobs.start("burn-in", drive.id(), report.uid, Arc::clone(&control) as _);
    report.state = BurnInState::Running;
    (report.job, report.finished, report.note) = (job.id(), None, None);
    report.verdict = report.results.verdict();
    context.drives.burn_ins.save(&report);
    let work = Work {
        context: Arc::clone(context),
        control: Arc::clone(&control),
        report: report.clone(),
        drive: drive.name.clone(),
    };
    let thread = Builder::new().name(format!("burn-in {}", drive.name));
    let thread = thread.spawn(move || work.run(&opened, job));
    let thread = thread.map_err(|why| Error::refused_error(format!("no thread: {why}")))?;
    let mut state = context.drives.burn_ins.state.lock();
    state.running.insert(report.drive.clone(), (control, thread));
    Ok(report)
}

/// Continues the burn-ins that ran when the last daemon ended.
pub(crate) fn continue_all(context: &Arc<Context>) {
    let burn_ins = &context.drives.burn_ins;
    let is_running = |report: &&BurnInReport| report.state == BurnInState::Running;
    let interrupted: Vec<_> =
        burn_ins.state.lock().reports.values().filter(is_running).cloned().collect();
    if interrupted.is_empty() {
        return;
    }
    while !context.drives.list(&[]).is_complete {
        if burn_ins.is_stopping() {
            return;
        }
        thread::sleep(READY_CHECK_INTERVAL);
    }
    for mut report in interrupted {
        if let Err(why) = continue_one(context, &report) {
            let line = format!("the burn-in of drive {} does not continue: {why}", report.drive);
            burn_ins.log.write_line(&line);
            report.state = BurnInState::Stopped;
            report.note = Some(why.to_string());
            burn_ins.save(&report);
        }
    }
}

fn continue_one(context: &Arc<Context>, report: &BurnInReport) -> Result<()> {
    let list = context.drives.list(&context.overview.latest().pools);
    check_continuable(&list, report)?;
    let drive = find_only(&list, &report.drive)?;
    check_unused(&drive)?;
    // the pattern that is on the drive is compared before anything is written
    let device = open_unused_drive(&drive.path, true)?;
    let target = DirectDrive::open(&drive.path).map_err(|why| refusal(&drive, &why))?;
    let opened = OpenedDrive { target, size: device.size(), _claim: device };
    launch(context, &drive, report.clone(), opened).map(drop)
}

/// The work of the thread of a burn-in.
struct Work {
    context: Arc<Context>,
    control: Arc<Control>,
    report: BurnInReport,
    /// The kernel's name of the drive.
    drive: String,
}

impl Work {
    fn run(mut self, opened: &OpenedDrive, job: RunningJob) {
        let mut results = self.report.results.clone();
        if results.bytes_done() == 0
            && let Some(smart) = self.context.drives.read_report(&self.drive)
        {
            results.temperature = smart.temperature;
            results.counters_before = smart.counters;
        }
        let end = results.run(&opened.target as &dyn BurnInTarget, &mut self);
        if end == BurnInEnd::Done {
            self.add_last_report(&mut results);
        }
        let verdict = results.verdict();
        self.report.results = results;
        self.report.verdict = verdict.clone();
        if end == BurnInEnd::Done {
            (self.report.state, self.report.finished) = (BurnInState::Done, Some(unix_seconds()));
        } else if !self.context.drives.burn_ins.is_stopping() {
            self.report.state = BurnInState::Stopped;
            self.report.note = Some("A user cancelled it.".to_owned());
        }
        self.context.drives.burn_ins.save(&self.report);
        match (self.report.state, verdict.grade) {
            (BurnInState::Done, Grade::Failing) => job.fail(verdict.sentence),
            (BurnInState::Done, _) => job.finish_with(verdict.sentence),
            (BurnInState::Running, _) => {
                job.cancelled("The daemon ended. The burn-in continues when it starts.".to_owned());
            }
            (BurnInState::Stopped, _) => job.cancelled(format!(
                "Cancelled. `poolhouse drives burn-in --continue {}` continues it.",
                self.report.drive
            )),
        }
    }

    /// Adds the SMART report after the passes, with the verdict of the monitor on it.
    fn add_last_report(&self, results: &mut BurnIn) {
        let Some(SmartReport { counters, temperature, .. }) =
            self.context.drives.read_report(&self.drive)
        else {
            return;
        };
        results.counters_after = counters;
        results.temperature = results.temperature.max(temperature);
        let drive = find(&self.context.drives.list(&[]), &self.drive);
        results.grade_after = drive.ok().map(|drive| drive.verdict.grade);
    }
}

impl BurnInObserver for Work {
    fn observe(&mut self, state: &BurnIn) -> ControlFlow<()> {
        self.control.results.lock().clone_from(state);
        let is_ending = self.control.is_cancelled.load(Ordering::Acquire)
            || self.context.drives.burn_ins.is_stopping();
        if is_ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn save(&mut self, state: &BurnIn) {
        // the last state is saved with the verdict
        if state.phase != BurnInPhase::Done {
            self.report.results.clone_from(state);
            self.context.drives.burn_ins.save(&self.report);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{BurnInReport, Drive, DriveList};

    use super::{check_continuable, find_only};

    #[test]
    fn ambiguous_drives_are_not_overwritten() {
        let drive = |name: &str, serial: &str| Drive {
            name: name.to_owned(),
            serial: Some(serial.to_owned()),
            ..Drive::default()
        };
        let drives = vec![drive("sda", "S1"), drive("sdb", "S1"), drive("sdc", "S2")];
        let list = DriveList { drives, ..DriveList::default() };
        assert_eq!(find_only(&list, "sdb").unwrap().name, "sdb");
        assert!(find_only(&list, "S1").unwrap_err().to_string().contains("2 drives"));
        let mut report = BurnInReport { drive: "S2".to_owned(), ..BurnInReport::default() };
        report.results.size = 1 << 20;
        assert!(check_continuable(&list, &report).is_err(), "nothing is written yet");
        report.results.position = 4096;
        assert!(check_continuable(&list, &report).is_ok());
        report.drive = "S1".to_owned();
        assert!(check_continuable(&list, &report).is_err(), "two drives have the number");
    }
}
