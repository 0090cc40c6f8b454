//! Walks over a held pool: giving drives what they missed, and mending what is wrong. One at a
//! time, on a thread that somebody lends ([`Held::keep_mended`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::Held;
use crate::{Error, Result};
pub use spa::Watch;

/// So often it is looked whether the thread is to end.
const LOOK: Duration = Duration::from_millis(200);

/// What came of a walk over a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// It came to its end.
    pub complete: bool,
    /// In so many rounds: more than one where room ran short.
    pub rounds: u64,
    /// Blocks that it looked at.
    pub blocks: u64,
    /// Bytes that it read.
    pub read: u64,
    /// Bytes that it wrote to drives that lacked them.
    pub written: u64,
    /// Blocks that could not be mended.
    pub errors: u64,
    /// What is lost with some of them: files, and which bytes of them.
    pub damage: Vec<String>,
}

/// What a walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scan {
    /// Drives get what they missed.
    Resilver,
    /// All is read, and mended where it is wrong.
    Scrub,
}

/// How far a walk has come, or what came of the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanStatus {
    /// What it is for.
    pub scan: Scan,
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
    /// Blocks that could not be mended.
    pub errors: u64,
    /// What is lost with some of them, when it has ended: files, and which bytes of them.
    pub damage: Vec<String>,
}

/// The walk of a pool.
#[derive(Default)]
pub(super) struct Scans {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody lends a thread.
    served: bool,
    closed: bool,
    wanted: Option<Scan>,
    running: Option<(Scan, Arc<Watch>, u64)>,
    last: Option<ScanStatus>,
}

impl Held {
    /// Whether a drive that is there lacks what it missed, or was replaced and is still there.
    pub fn wants_resilver(&self) -> bool {
        self.0.owned.wants_resilver()
    }

    /// Gives all drives that are there what they missed while they were away, or failed; until
    /// that is done, or the watch says stop; drives that were replaced go. What could not be mended
    /// stays noted. Everything else goes on meanwhile. For a thread of its own, one at a time.
    pub fn resilver(&self, watch: &Watch) -> Result<Mended> {
        let mended = self.0.owned.resilver(watch).map_err(|why| self.explain(&why))?;
        self.finish_replacing()?;
        Ok(self.said_of(mended))
    }

    /// Reads all that is in the pool, each copy on each drive and parity, and mends what is wrong
    /// where others have it; until that is done, or the watch says stop. For a thread of its own,
    /// one at a time.
    pub fn scrub(&self, watch: &Watch) -> Result<Mended> {
        Ok(self.said_of(self.0.owned.scrub(watch).map_err(|why| self.explain(&why))?))
    }

    fn said_of(&self, mended: spa::Mended) -> Mended {
        let spa::Mended { complete, rounds, blocks, read, written, errors, damage } = mended;
        let damage = self.name_lost(damage);
        Mended { complete, rounds, blocks, read, written, errors, damage }
    }

    /// What is lost with blocks, as people know it.
    fn name_lost(&self, lost: Vec<spa::Damage>) -> Vec<String> {
        let _pin = self.pin();
        let plain = |one: &spa::Damage| format!("{}: {}", one.place, one.why);
        let Ok(tree) = self.tree() else { return lost.iter().map(plain).collect() };
        let lost = lost.into_iter().map(|one| (one.place, one.why)).collect();
        let found = ::check::name_lost(&self.0.owned.look(), &tree, lost);
        found.iter().map(crate::check::say_lost).collect()
    }

    /// Walks over the pool whenever that is wanted, and at once if a drive lacks something, until
    /// told to stop. For a thread of its own.
    pub fn keep_mended(&self, stop: &AtomicBool) {
        let scans = &self.0.scans;
        scans.state.lock().served = true;
        if self.wants_resilver() {
            self.want(Scan::Resilver);
        }
        while !stop.load(Ordering::Acquire) && !self.0.owned.groups().is_stopped() {
            let mut state = scans.state.lock();
            if state.closed {
                break;
            }
            let Some(scan) = state.wanted.take() else {
                scans.changed.wait_for(&mut state, LOOK);
                continue;
            };
            let watch = Watch::new();
            state.running = Some((scan, Arc::clone(&watch), self.seconds()));
            drop(state);
            let done = match scan {
                Scan::Resilver => self.resilver(&watch),
                Scan::Scrub => self.scrub(&watch),
            };
            self.ended(done);
        }
        scans.state.lock().served = false;
    }

    fn ended(&self, done: Result<Mended>) {
        let mut state = self.0.scans.state.lock();
        let Some(status) = self.describe(&state) else { return };
        let (word, damage) = match done {
            Ok(mended) if mended.complete => ("finished", mended.damage),
            Ok(mended) => ("canceled", mended.damage),
            Err(why) => ("failed", vec![why.to_string()]),
        };
        state.last = Some(ScanStatus { state: word.to_owned(), damage, ..status });
        state.running = None;
        self.0.scans.changed.notify_all();
    }

    /// Has drives get what they lack, as soon as the thread for that comes to it. One that is going
    /// on begins anew, and a scrub ends.
    pub fn start_resilver(&self) {
        self.want(Scan::Resilver);
    }

    /// Has all read and mended. Refused while the pool is walked over already.
    pub fn start_scrub(&self) -> Result<()> {
        self.judge_change()?;
        let mut state = self.0.scans.state.lock();
        let busy = state.running.as_ref().map(|running| running.0).or(state.wanted);
        if let Some(scan) = busy {
            let scan = if scan == Scan::Scrub { "scrubbed" } else { "resilvered" };
            let what = format!("pool '{}' is being {scan} already", self.name());
            return Err(Error::Usage { what });
        }
        state.wanted = Some(Scan::Scrub);
        self.0.scans.changed.notify_all();
        Ok(())
    }

    /// Ends a scrub; what it mended stays so.
    pub fn stop_scrub(&self) -> Result<()> {
        let mut state = self.0.scans.state.lock();
        match &state.running {
            Some((Scan::Scrub, watch, _)) => watch.job.cancel.cancel(),
            _ if state.wanted == Some(Scan::Scrub) => state.wanted = None,
            _ => {
                let what = format!("pool '{}' is not being scrubbed", self.name());
                return Err(Error::Usage { what });
            }
        }
        Ok(())
    }

    fn want(&self, scan: Scan) {
        let mut state = self.0.scans.state.lock();
        if let Some((_, watch, _)) = &state.running {
            watch.job.cancel.cancel();
        }
        state.wanted = Some(scan);
        self.0.scans.changed.notify_all();
    }

    /// Ends the walk, and has none begun any more.
    pub(super) fn end_scans(&self) {
        let mut state = self.0.scans.state.lock();
        state.closed = true;
        state.wanted = None;
        while let Some((_, watch, _)) = &state.running {
            watch.job.cancel.cancel();
            // one whose pool stands still ends when that is given up
            let timed_out = self.0.scans.changed.wait_for(&mut state, LOOK).timed_out();
            if timed_out && self.is_standing_still() {
                return;
            }
        }
        self.0.scans.changed.notify_all();
    }

    /// The walk that goes on, or the last.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        let state = self.0.scans.state.lock();
        self.describe(&state).or_else(|| state.last.clone())
    }

    fn describe(&self, state: &State) -> Option<ScanStatus> {
        let begins = |scan| (scan, Watch::new(), self.seconds());
        let running = state.running.clone().or_else(|| state.wanted.map(begins));
        let (scan, watch, started) = running?;
        let progress = &watch.job.progress;
        Some(ScanStatus {
            scan,
            state: "scanning".to_owned(),
            started,
            ended: self.seconds(),
            scanned: progress.bytes_done(),
            total: progress.bytes_total(),
            read: watch.read(),
            written: watch.written(),
            errors: watch.errors(),
            damage: Vec::new(),
        })
    }

    fn seconds(&self) -> u64 {
        (self.0.world.now)().0
    }
}
