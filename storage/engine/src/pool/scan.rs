//! Scans of an imported pool: resilver and scrub. One at a time, on a thread of the caller
//! ([`Pool::run_scans`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::Pool;
use crate::{Error, Result};
pub use spa::ScanProgress;

/// So often it is looked whether the thread is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The result of a scan.
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

/// The kind of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanKind {
    /// Resilver: drives get the data that they missed.
    Resilver,
    /// Scrub: everything is read, and repaired if damaged.
    Scrub,
}

/// The progress of a scan, or the result of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanStatus {
    /// Its kind.
    pub scan: ScanKind,
    /// "scanning", "finished", "canceled" or "failed".
    pub state: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended; now, if it has not.
    pub ended: u64,
    /// Bytes that it looked at, with all copies and parity.
    pub scanned: u64,
    /// Bytes that were in use when it began.
    pub total: u64,
    /// Bytes of blocks that it read.
    pub read: u64,
    /// Bytes that it wrote to drives that lacked them.
    pub written: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// The damage by them, at its end: files, and their byte ranges.
    pub damage: Vec<String>,
}

/// The walk of a pool.
#[derive(Default)]
pub(super) struct ScanControl {
    state: Mutex<ScanState>,
    changed: Condvar,
}

#[derive(Default)]
struct ScanState {
    /// A thread runs scans.
    has_thread: bool,
    is_closed: bool,
    requested: Option<ScanKind>,
    running: Option<(ScanKind, Arc<ScanProgress>, u64)>,
    last: Option<ScanStatus>,
}

impl Pool {
    /// Whether a drive lacks data that it missed, or a replacement is not finished.
    pub fn needs_resilver(&self) -> bool {
        self.0.spa.needs_resilver()
    }

    /// Resilvers all drives that missed data, until all is done or the watch stops it. Replaced
    /// drives are then detached. Blocks that could not be repaired stay in the DTLs. The pool is in
    /// use meanwhile. For a thread of its own, one at a time.
    pub fn resilver(&self, watch: &ScanProgress) -> Result<ScanResult> {
        let mended = self.0.spa.resilver(watch).map_err(|error| self.explain_error(&error))?;
        self.finish_replacements()?;
        Ok(self.describe_result(mended))
    }

    /// Reads everything in the pool, each copy on each drive and parity, and repairs damaged
    /// blocks from the others, until all is done or the watch stops it. For a thread of its own,
    /// one at a time.
    pub fn scrub(&self, watch: &ScanProgress) -> Result<ScanResult> {
        Ok(self
            .describe_result(self.0.spa.scrub(watch).map_err(|error| self.explain_error(&error))?))
    }

    fn describe_result(&self, mended: spa::ScanResult) -> ScanResult {
        let spa::ScanResult {
            is_complete: complete,
            rounds,
            blocks,
            bytes_read: read,
            bytes_written: written,
            errors,
            damaged_blocks: damage,
        } = mended;
        let damage = self.describe_damage(damage);
        ScanResult { complete, rounds, blocks, read, written, errors, damage }
    }

    /// The damage, by file names.
    fn describe_damage(&self, lost: Vec<spa::DamagedBlock>) -> Vec<String> {
        let _pin = self.pin();
        let plain = |one: &spa::DamagedBlock| format!("{}: {}", one.zbookmark, one.why);
        let Ok(tree) = self.tree() else { return lost.iter().map(plain).collect() };
        let lost = lost.into_iter().map(|one| (one.zbookmark, one.why)).collect();
        let found = ::check::name_lost_blocks(&self.0.spa.synced_mos(), &tree, lost);
        found.iter().map(crate::check::format_damage).collect()
    }

    /// Runs requested scans, and at once a resilver if a drive lacks data, until
    /// stopped. For a thread of its own.
    pub fn run_scans(&self, stop: &AtomicBool) {
        let scans = &self.0.scan_control;
        scans.state.lock().has_thread = true;
        if self.needs_resilver() {
            self.request_scan(ScanKind::Resilver);
        }
        let mut had_checkpoint = false;
        while !stop.load(Ordering::Acquire) && !self.0.spa.txgs().is_stopped() {
            let has_checkpoint = self.0.spa.checkpoint_status().is_some();
            if had_checkpoint && !has_checkpoint && self.needs_resilver() {
                // leaves that were replaced meanwhile could not be detached
                self.request_scan(ScanKind::Resilver);
            }
            had_checkpoint = has_checkpoint;
            let mut state = scans.state.lock();
            if state.is_closed {
                break;
            }
            let Some(scan) = state.requested.take() else {
                scans.changed.wait_for(&mut state, POLL_INTERVAL);
                continue;
            };
            let watch = ScanProgress::new();
            state.running = Some((scan, Arc::clone(&watch), self.unix_seconds()));
            drop(state);
            let done = match scan {
                ScanKind::Resilver => self.resilver(&watch),
                ScanKind::Scrub => self.scrub(&watch),
            };
            self.finish_scan(done);
        }
        scans.state.lock().has_thread = false;
    }

    fn finish_scan(&self, done: Result<ScanResult>) {
        let mut state = self.0.scan_control.state.lock();
        let Some(status) = self.running_status(&state) else { return };
        let (word, damage) = match done {
            Ok(mended) if mended.complete => ("finished", mended.damage),
            Ok(mended) => ("canceled", mended.damage),
            Err(error) => ("failed", vec![error.to_string()]),
        };
        state.last = Some(ScanStatus { state: word.to_owned(), damage, ..status });
        state.running = None;
        self.0.scan_control.changed.notify_all();
    }

    /// Requests a resilver, which the thread starts at once. A running one starts again, and a
    /// scrub ends.
    pub fn start_resilver(&self) {
        self.request_scan(ScanKind::Resilver);
    }

    /// Requests a scrub. Refused while a scan runs already.
    pub fn start_scrub(&self) -> Result<()> {
        self.check_writable()?;
        let mut state = self.0.scan_control.state.lock();
        let busy = state.running.as_ref().map(|running| running.0).or(state.requested);
        if let Some(scan) = busy {
            let scan = if scan == ScanKind::Scrub { "scrubbed" } else { "resilvered" };
            let what = format!("pool '{}' is being {scan} already", self.name());
            return Err(Error::Usage { what });
        }
        state.requested = Some(ScanKind::Scrub);
        self.0.scan_control.changed.notify_all();
        Ok(())
    }

    /// Ends a scrub; its repairs stay.
    pub fn stop_scrub(&self) -> Result<()> {
        let mut state = self.0.scan_control.state.lock();
        match &state.running {
            Some((ScanKind::Scrub, watch, _)) => watch.job.cancel.cancel(),
            _ if state.requested == Some(ScanKind::Scrub) => state.requested = None,
            _ => {
                let what = format!("pool '{}' is not being scrubbed", self.name());
                return Err(Error::Usage { what });
            }
        }
        Ok(())
    }

    pub(super) fn request_scan(&self, scan: ScanKind) {
        let mut state = self.0.scan_control.state.lock();
        if let Some((_, watch, _)) = &state.running {
            watch.job.cancel.cancel();
        }
        state.requested = Some(scan);
        self.0.scan_control.changed.notify_all();
    }

    /// Ends the walk, and has none begun any more.
    pub(super) fn stop_scans(&self) {
        let mut state = self.0.scan_control.state.lock();
        state.is_closed = true;
        state.requested = None;
        while let Some((_, watch, _)) = &state.running {
            watch.job.cancel.cancel();
            // the scan of a suspended pool ends when the pool is closed
            let timed_out =
                self.0.scan_control.changed.wait_for(&mut state, POLL_INTERVAL).timed_out();
            if timed_out && self.is_suspended() {
                return;
            }
        }
        self.0.scan_control.changed.notify_all();
    }

    /// The running scan, or the last one.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        let state = self.0.scan_control.state.lock();
        self.running_status(&state).or_else(|| state.last.clone())
    }

    fn running_status(&self, state: &ScanState) -> Option<ScanStatus> {
        let begins = |scan| (scan, ScanProgress::new(), self.unix_seconds());
        let running = state.running.clone().or_else(|| state.requested.map(begins));
        let (scan, watch, started) = running?;
        let progress = &watch.job.progress;
        Some(ScanStatus {
            scan,
            state: "scanning".to_owned(),
            started,
            ended: self.unix_seconds(),
            scanned: progress.bytes_done(),
            total: progress.bytes_total(),
            read: watch.bytes_read(),
            written: watch.bytes_written(),
            errors: watch.errors(),
            damage: Vec::new(),
        })
    }

    fn unix_seconds(&self) -> u64 {
        (self.0.environment.now)().0
    }
}
