//! Scans of an imported pool: scrubs, error scrubs and resilvers. One at a time, as an activity
//! ([`Background::run_activities`](crate::pool::Background::run_activities)). The pool keeps how far a scan
//! has come, so that it goes on after an export.

use std::collections::HashMap;
use std::sync::Arc;

use job::Job;
use ondisk::rebuild::RebuildPhase;
use ondisk::scan::{ErrorScrubPhys, ScanFunction, ScanPhase, ScanPhys};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use units::{MinusOrZero as _, Txg, Zbookmark};

use super::Pool;
use super::activity::{Activity, POLL_INTERVAL, Step, Work};
use super::activity_status::{ActivityStatus, LongWork, refuse};
use super::data_errors::DataErrors;
use super::drive_recovery::DriveRecovery;
use crate::pool::handles::Scans;
use crate::{Error, Result};
pub use spa::ScanProgress;

/// The outcome of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanResult {
    /// It came to its end.
    pub complete: bool,
    /// The number of rounds: more than one where space ran short.
    pub rounds: u64,
    /// Blocks that it looked at.
    pub blocks: u64,
    /// Bytes that it read.
    pub read: u64,
    /// Bytes that it wrote to drives that lacked them.
    pub written: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// The damage by them: files, and their byte ranges.
    pub damage: Vec<String>,
}

/// The purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanKind {
    /// Leaves get what they missed.
    Resilver,
    /// Everything is read, verified and repaired.
    Scrub,
    /// The blocks of the error log are read again.
    ErrorScrub,
}

/// Which blocks a scrub reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScrubRange {
    /// All blocks.
    #[default]
    All,
    /// The blocks of the error log.
    Errors,
    /// Those born after the last scrub that finished.
    SinceLastScrub,
}

/// How far a scan has come, or the outcome of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanStatus {
    /// Its kind.
    pub scan: ScanKind,
    /// "scanning", "paused", "finished", "canceled" or "failed".
    pub state: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended; now, if it has not.
    pub ended: u64,
    /// When it was paused, in seconds since 1970; 0 if it is not.
    #[serde(default)]
    pub paused: u64,
    /// Bytes of blocks that the walk has found, with all copies and parity; of an error scrub, blocks read.
    pub scanned: u64,
    /// Bytes of the blocks before the bookmark that the pool keeps: all of them are read.
    #[serde(default)]
    pub issued: u64,
    /// Bytes allocated when it began; of an error scrub, blocks to read.
    pub total: u64,
    /// Bytes found, and read, a second since the scan was started or resumed.
    #[serde(default)]
    pub scan_rate: u64,
    /// Bytes read a second since the scan was started or resumed.
    #[serde(default)]
    pub issue_rate: u64,
    /// Bytes of blocks that it read since it was started or resumed.
    pub read: u64,
    /// Bytes that it wrote to leaves: repaired, or resilvered.
    pub written: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// The damaged files, when it has ended, and which bytes of them.
    pub damage: Vec<String>,
    /// The vdev, if it is rebuilt sequentially: "mirror-0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<String>,
}

impl ScanStatus {
    /// Whether it goes on, and is not paused.
    pub fn is_scanning(&self) -> bool {
        self.state == "scanning"
    }

    /// Whether it goes on, or is paused.
    pub fn is_active(&self) -> bool {
        self.is_scanning() || self.state == "paused"
    }
}

/// The scans of a pool: one at a time.
#[derive(Default)]
pub(super) struct ScanControl {
    state: Mutex<ScanState>,
    changed: Condvar,
    pub(super) data_errors: Mutex<DataErrors>,
}

/// A scan that runs as an activity.
#[derive(Clone)]
struct RunningScan {
    kind: ScanKind,
    watch: Arc<ScanProgress>,
    /// When it was started or resumed, in seconds since 1970.
    started: u64,
    /// Bytes that were scanned before.
    base: u64,
}

#[derive(Default)]
struct ScanState {
    requested: Option<ScanKind>,
    running: Option<RunningScan>,
    /// Why the last scan failed.
    failure: Option<(ScanKind, String, u64)>,
    /// When the scrub was paused, or the pool with a paused scrub imported.
    paused: u64,
    /// Why blocks could not be repaired.
    reasons: HashMap<Zbookmark, String>,
}

/// Scans, as an activity.
#[derive(Default)]
pub(super) struct ScanActivity(Mutex<ResilverCauses>);

/// The causes of a resilver that no command requested.
#[derive(Default)]
struct ResilverCauses {
    had_checkpoint: bool,
    recovery: DriveRecovery,
}

impl Activity for ScanActivity {
    fn work(&self) -> Work {
        Work::Scan
    }

    fn is_due(&self, pool: &Pool) -> bool {
        let mut causes = self.0.lock();
        let has_checkpoint = pool.0.spa.checkpoint_status().is_some();
        // leaves that were replaced while there was a checkpoint could not be detached
        let is_discarded =
            causes.had_checkpoint && !has_checkpoint && pool.scans().needs_resilver();
        causes.had_checkpoint = has_checkpoint;
        if is_discarded || causes.recovery.find_recovered(pool) {
            pool.request_scan(ScanKind::Resilver);
        }
        pool.0.scan_control.state.lock().requested.is_some()
    }

    fn step(&self, pool: &Pool, job: &Arc<Job>) -> Result<Step> {
        let scans = &pool.0.scan_control;
        let mut state = scans.state.lock();
        let Some(kind) = state.requested.take() else { return Ok(Step::Done) };
        let watch = ScanProgress::of_job(job, pool.0.background_gates.lock().scan.clone());
        let (started, base) = (pool.unix_seconds(), pool.0.spa.scan_record().examined);
        let running = RunningScan { kind, watch: Arc::clone(&watch), started, base };
        let earlier = state.running.replace(running);
        assert!(earlier.is_none(), "a pool is scanned once at a time");
        state.failure = None;
        drop(state);
        if kind == ScanKind::Resilver {
            self.0.lock().recovery.begin_resilver(pool);
        }
        let done = match kind {
            ScanKind::Resilver => pool.scans().resilver(&watch),
            ScanKind::Scrub => pool.scans().scrub(&watch),
            ScanKind::ErrorScrub => pool.error_scrub(&watch),
        };
        let mut state = scans.state.lock();
        state.running = None;
        // `zpool status` shows it with the scan
        state.failure = done.err().map(|why| (kind, why.to_string(), pool.unix_seconds()));
        scans.changed.notify_all();
        Ok(Step::Done)
    }

    fn describe(&self, pool: &Pool) -> Vec<ActivityStatus> {
        pool.scans().status().and_then(|status| status.progress()).into_iter().collect()
    }

    fn pause(&self, pool: &Pool, work: LongWork) -> Result<()> {
        match work {
            LongWork::Scrub | LongWork::ErrorScrub => pool.scans().pause_scrub(),
            _ => Err(refuse(pool, "pause", work)),
        }
    }

    fn cancel(&self, pool: &Pool, work: LongWork) -> Result<()> {
        match work {
            LongWork::Scrub | LongWork::ErrorScrub => pool.scans().stop_scrub(),
            _ => Err(refuse(pool, "cancel", work)),
        }
    }
}

impl Scans<'_> {
    /// Whether a present leaf lacks something, or was replaced and is still there.
    pub fn needs_resilver(self) -> bool {
        self.pool.0.spa.needs_resilver()
    }

    /// Writes to all present leaves what they missed, until that is done or the watch is cancelled; replaced
    /// leaves are detached. Blocks that could not be repaired stay in the DTLs. For a thread of its own, one
    /// at a time.
    pub fn resilver(self, watch: &ScanProgress) -> Result<ScanResult> {
        let is_rebuild = !self.pool.0.spa.rebuilding_vdevs().is_empty();
        if is_rebuild {
            let is_complete =
                self.pool.0.spa.rebuild(watch).map_err(|error| self.pool.explain_error(&error))?;
            self.pool.finish_replacements()?;
            if !is_complete || !self.pool.0.spa.has_outdated_leaves() {
                return Ok(self.pool.rebuild_result(watch, is_complete));
            }
        }
        let mended =
            self.pool.0.spa.resilver(watch).map_err(|error| self.pool.explain_error(&error))?;
        self.pool.finish_replacements()?;
        Ok(self.pool.describe_result(mended))
    }
}

impl Pool {
    /// The outcome of sequential rebuilds. The scrub that follows them begins, if the scheduler runs.
    fn rebuild_result(&self, watch: &ScanProgress, complete: bool) -> ScanResult {
        let scan = self.0.spa.scan_record();
        let mut state = self.0.scan_control.state.lock();
        if complete && state.requested.is_none() && scan.is_running() && !scan.is_paused() {
            state.requested = Some(ScanKind::Scrub);
        }
        ScanResult {
            complete,
            read: watch.bytes_read(),
            written: watch.bytes_written(),
            errors: watch.errors(),
            ..ScanResult::default()
        }
    }
}

impl Scans<'_> {
    /// Reads everything in the pool, each copy on each leaf and parity, and repairs what is wrong where others
    /// are right, until that is done or the watch is cancelled. For a thread of its own, one at a time.
    pub fn scrub(self, watch: &ScanProgress) -> Result<ScanResult> {
        let mended =
            self.pool.0.spa.scrub(watch).map_err(|error| self.pool.explain_error(&error))?;
        Ok(self.pool.describe_result(mended))
    }
}

impl Pool {
    fn error_scrub(&self, watch: &ScanProgress) -> Result<ScanResult> {
        let mended = self.0.spa.error_scrub(watch).map_err(|error| self.explain_error(&error))?;
        Ok(self.describe_result(mended))
    }

    fn describe_result(&self, mended: spa::ScanResult) -> ScanResult {
        let reasons = mended.damaged_blocks.iter().map(|one| (one.zbookmark, one.why.clone()));
        self.0.scan_control.state.lock().reasons.extend(reasons);
        let spa::ScanResult {
            is_complete: complete,
            rounds,
            blocks,
            bytes_read: read,
            bytes_written: written,
            errors,
            damaged_blocks: damage,
        } = mended;
        let lost = damage.into_iter().map(|one| (one.zbookmark, one.why)).collect();
        ScanResult { complete, rounds, blocks, read, written, errors, damage: self.name_lost(lost) }
    }

    /// Requests the scan that an export or a crash interrupted, or the resilver that leaves need.
    pub(super) fn request_interrupted_scan(&self) {
        let record = self.0.spa.scan_record();
        let error_scrub = self.0.spa.error_scrub_record();
        self.0.scan_control.state.lock().paused = self.unix_seconds();
        let is_resilver = record.is_running() && record.function == ScanFunction::Resilver;
        let is_rebuild = !self.0.spa.rebuilding_vdevs().is_empty();
        if self.0.spa.is_read_only() {
            return;
        }
        if is_resilver || is_rebuild || self.scans().needs_resilver() {
            self.request_scan(ScanKind::Resilver);
        } else if record.is_running() && !record.is_paused() {
            self.request_scan(ScanKind::Scrub);
        } else if error_scrub.is_running() && error_scrub.paused == 0 {
            self.request_scan(ScanKind::ErrorScrub);
        }
    }
}

impl Scans<'_> {
    /// Has leaves get what they lack, as soon as the scheduler comes to it. A resilver that goes on begins
    /// anew where it must, and a scrub ends.
    pub fn start_resilver(self) {
        self.pool.request_scan(ScanKind::Resilver);
    }

    /// Starts a scrub, or resumes a paused one. Refused while the pool is scanned already.
    pub fn start_scrub(self, range: ScrubRange) -> Result<()> {
        self.pool.check_writable()?;
        let record = self.pool.0.spa.scan_record();
        let error_scrub = self.pool.0.spa.error_scrub_record();
        let pending = self.pool.0.scan_control.state.lock().requested;
        let refuse = |why: spa::ScanError| Err(Error::Usage { what: why.to_string() });
        let explain = |error: spa::Error| match error {
            spa::Error::Scan(why) => Error::Usage { what: why.to_string() },
            other => self.pool.explain_error(&other),
        };
        if range == ScrubRange::Errors {
            self.pool.scans().sync_with_errors()?;
            if self.pool.0.spa.start_error_scrub().map_err(explain)? {
                self.pool.request_scan(ScanKind::ErrorScrub);
            }
            return Ok(());
        }
        if error_scrub.is_running() {
            return refuse(if error_scrub.paused == 0 {
                spa::ScanError::ErrorScrubbing
            } else {
                spa::ScanError::ErrorScrubPaused
            });
        }
        if record.is_paused() && range == ScrubRange::SinceLastScrub {
            return refuse(spa::ScanError::Paused);
        } else if record.is_paused() {
            self.pool.0.spa.set_scan_paused(false).map_err(explain)?;
        } else if pending == Some(ScanKind::Resilver) {
            return refuse(spa::ScanError::Resilvering);
        } else if record.is_running() {
            let is_scrub = record.function == ScanFunction::Scrub;
            let (scrub, other) = (spa::ScanError::Scrubbing, spa::ScanError::Resilvering);
            return refuse(if is_scrub { scrub } else { other });
        } else {
            let since = match range {
                ScrubRange::SinceLastScrub => {
                    self.pool.0.spa.last_scrubbed_txg().map_err(explain)?
                }
                _ => Txg::ZERO,
            };
            self.pool.0.spa.start_scrub_after(since).map_err(explain)?;
        }
        self.pool.request_scan(ScanKind::Scrub);
        Ok(())
    }

    /// Pauses the scrub or error scrub, until it is started again. If there is none, nothing happens, as with
    /// OpenZFS.
    pub fn pause_scrub(self) -> Result<()> {
        let spa = &self.pool.0.spa;
        let record = spa.scan_record();
        let is_error_scrub = spa.error_scrub_record().is_running();
        let is_scrub = record.is_running() && record.function == ScanFunction::Scrub;
        if !is_error_scrub && !is_scrub {
            return Ok(());
        }
        let paused =
            if is_error_scrub { spa.pause_error_scrub() } else { spa.set_scan_paused(true) };
        paused.map_err(|error| match error {
            spa::Error::Scan(why) => Error::Usage { what: why.to_string() },
            other => self.pool.explain_error(&other),
        })?;
        self.pool.0.scan_control.state.lock().paused = self.pool.unix_seconds();
        self.pool.interrupt_scan();
        Ok(())
    }

    /// Ends a scrub or error scrub; what it repaired stays so.
    pub fn stop_scrub(self) -> Result<()> {
        let spa = &self.pool.0.spa;
        let record = spa.scan_record();
        let is_error_scrub = spa.error_scrub_record().is_running();
        let is_scrub = record.is_running() && record.function == ScanFunction::Scrub;
        if !is_error_scrub && !is_scrub {
            return Err(Error::Usage { what: spa::ScanError::NotScrubbing.to_string() });
        }
        self.pool.interrupt_scan();
        let ended = if is_error_scrub { spa.end_error_scrub(false) } else { spa.cancel_scan() };
        ended.map_err(|error| self.pool.explain_error(&error))
    }
}

impl Pool {
    /// Has the scan leave a scrub or error scrub, and waits for that.
    fn interrupt_scan(&self) {
        let mut state = self.0.scan_control.state.lock();
        if state.requested.is_some_and(|kind| kind != ScanKind::Resilver) {
            state.requested = None;
        }
        while let Some(running) = &state.running {
            if running.kind == ScanKind::Resilver {
                return;
            }
            running.watch.job().cancel.cancel();
            self.0.scan_control.changed.wait_for(&mut state, POLL_INTERVAL);
            if self.is_suspended() {
                return;
            }
        }
    }

    pub(super) fn request_scan(&self, kind: ScanKind) {
        let mut state = self.0.scan_control.state.lock();
        if let Some(running) = &state.running {
            running.watch.job().cancel.cancel();
        }
        state.requested = Some(kind);
        drop(state);
        self.0.scheduler.wake(Work::Scan);
    }
}

impl Scans<'_> {
    /// The scan that goes on, or the last one, as the pool keeps it.
    pub fn status(self) -> Option<ScanStatus> {
        if let Some(rebuild) = self.pool.last_rebuild().filter(ScanStatus::is_scanning) {
            return Some(rebuild);
        }
        let record = self.pool.0.spa.scan_record();
        let error_scrub = self.pool.0.spa.error_scrub_record();
        let state = self.pool.0.scan_control.state.lock();
        let shows_errors = error_scrub.function == ScanFunction::ErrorScrub
            && error_scrub.start_time >= record.start_time;
        let mut status = if shows_errors {
            error_scrub_status(&error_scrub)
        } else {
            self.pool.record_status(&record, &state)?
        };
        match status.state.as_str() {
            "paused" => status.paused = state.paused,
            "scanning" => status.ended = self.pool.unix_seconds(),
            _ => {}
        }
        if let Some((kind, why, time)) = &state.failure
            && *kind == status.scan
            && status.is_scanning()
        {
            (status.state, status.ended) = ("failed".to_owned(), *time);
            status.damage = vec![why.clone()];
        }
        Some(status)
    }
}

impl Pool {
    /// The sequential rebuild that goes on, or the last one.
    pub(super) fn last_rebuild(&self) -> Option<ScanStatus> {
        let found = self.0.spa.rebuild_status()?;
        let record = found.record;
        let (state, ended) = match record.phase {
            RebuildPhase::None => return None,
            RebuildPhase::Active => ("scanning", self.unix_seconds()),
            RebuildPhase::Canceled => ("canceled", record.end_time),
            RebuildPhase::Complete => ("finished", record.end_time),
        };
        let config = self.0.spa.config();
        let mut tops = config.tree.iter().flat_map(|root| &root.children);
        let top = tops.find(|top| top.id == found.vdev)?;
        let seconds = (record.scan_time / 1000).max(1);
        Some(ScanStatus {
            state: state.to_owned(),
            started: record.start_time,
            ended,
            scanned: record.bytes_scanned,
            issued: record.bytes_issued,
            total: record.bytes_est,
            scan_rate: record.bytes_scanned / seconds,
            issue_rate: record.bytes_issued / seconds,
            read: record.bytes_issued,
            written: record.bytes_rebuilt,
            errors: record.errors,
            rebuild: Some(crate::summary::vdev_name(top)),
            ..empty_status()
        })
    }

    fn record_status(&self, record: &ScanPhys, state: &ScanState) -> Option<ScanStatus> {
        let running = state.running.as_ref().map(|running| running.kind);
        let is_resilver_due = [running, state.requested].contains(&Some(ScanKind::Resilver));
        let has_resilver = record.is_running() && record.function == ScanFunction::Resilver;
        if is_resilver_due && !has_resilver {
            // the resilver is not in the pool yet
            return Some(ScanStatus { started: self.unix_seconds(), ..empty_status() });
        }
        let scan = match record.function {
            ScanFunction::Scrub => ScanKind::Scrub,
            ScanFunction::Resilver => ScanKind::Resilver,
            ScanFunction::None | ScanFunction::ErrorScrub => return None,
        };
        let mut status = ScanStatus {
            scan,
            state: phase_word(record.phase, record.is_paused()).to_owned(),
            started: record.start_time,
            ended: record.end_time,
            scanned: record.examined,
            issued: record.examined,
            total: record.to_examine,
            written: record.processed,
            errors: record.errors,
            ..empty_status()
        };
        if let Some(running) = state.running.as_ref().filter(|_| record.is_running()) {
            let seconds = self.unix_seconds().minus_or_zero(running.started).max(1);
            status.read = running.watch.bytes_read();
            status.scanned = running.watch.job().progress.bytes_done().max(record.examined);
            // the record has what is before the position; blocks behind it are read too
            let issued = running.base + running.watch.bytes_issued();
            status.issued = status.issued.max(issued.min(status.scanned));
            status.scan_rate = status.scanned.minus_or_zero(running.base) / seconds;
            status.issue_rate = status.issued.minus_or_zero(running.base) / seconds;
        }
        Some(status)
    }

    /// Why blocks could not be repaired, as far as this daemon saw it.
    pub(super) fn damage_reasons(&self) -> HashMap<Zbookmark, String> {
        self.0.scan_control.state.lock().reasons.clone()
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        (self.0.environment.now)().0
    }
}

const fn phase_word(phase: ScanPhase, is_paused: bool) -> &'static str {
    match phase {
        ScanPhase::Scanning | ScanPhase::ErrorScrubbing if is_paused => "paused",
        ScanPhase::Scanning | ScanPhase::ErrorScrubbing => "scanning",
        ScanPhase::Finished => "finished",
        ScanPhase::Canceled | ScanPhase::None => "canceled",
    }
}

fn error_scrub_status(record: &ErrorScrubPhys) -> ScanStatus {
    ScanStatus {
        scan: ScanKind::ErrorScrub,
        state: phase_word(record.phase, record.paused != 0).to_owned(),
        started: record.start_time,
        ended: record.end_time,
        scanned: record.examined,
        issued: record.examined,
        total: record.to_examine,
        errors: record.errors,
        ..empty_status()
    }
}

fn empty_status() -> ScanStatus {
    ScanStatus {
        scan: ScanKind::Resilver,
        state: "scanning".to_owned(),
        started: 0,
        ended: 0,
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
    }
}
