//! The checkpoint of a pool: `zpool checkpoint`.

use std::sync::Arc;

use job::Job;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use units::MinusOrZero as _;

use super::Pool;
use super::activity::{Activity, Step, Work};
use super::activity_status::{ActivityStatus, LongWork};
use crate::pool::handles::Activities;
use crate::{Error, Result};

/// The checkpoint of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// "exists" or "discarding".
    pub state: String,
    /// The second of the state that it keeps, since 1970; 0 while it is discarded.
    pub time: u64,
    /// Bytes that only it uses, parity included.
    pub bytes: u64,
}

/// The discard of a checkpoint, as an activity.
#[derive(Default)]
pub(super) struct Discard(Mutex<Option<DiscardStart>>);

/// A discard as it was first seen.
#[derive(Clone, Copy)]
struct DiscardStart {
    /// In seconds since 1970.
    time: u64,
    /// Bytes that were to be freed.
    bytes: u64,
}

impl Discard {
    /// The discard that goes on, and the bytes that are still to be freed.
    fn remaining(&self, pool: &Pool) -> Option<(DiscardStart, u64)> {
        let mut start = self.0.lock();
        let Some(found) = pool.0.spa.checkpoint_status().filter(|found| found.is_discarding) else {
            *start = None;
            return None;
        };
        let seen = DiscardStart { time: pool.unix_seconds(), bytes: found.bytes };
        Some((*start.get_or_insert(seen), found.bytes))
    }
}

impl Activity for Discard {
    fn work(&self) -> Work {
        Work::Discard
    }

    fn is_due(&self, pool: &Pool) -> bool {
        !pool.is_read_only() && !pool.is_suspended() && self.remaining(pool).is_some()
    }

    fn step(&self, pool: &Pool, _: &Arc<Job>) -> Result<Step> {
        let has_more = pool.activities().continue_discard()?;
        Ok(if has_more { Step::More } else { Step::Done })
    }

    fn describe(&self, pool: &Pool) -> Vec<ActivityStatus> {
        let Some((start, left)) = self.remaining(pool) else { return Vec::new() };
        let done = start.bytes.minus_or_zero(left);
        let seconds = pool.unix_seconds().minus_or_zero(start.time).max(1);
        let status = ActivityStatus::new(LongWork::CheckpointDiscard, done, start.bytes);
        vec![status.at_rate(done / seconds)]
    }
}

impl Activities<'_> {
    /// Makes a checkpoint of the pool as it is now. An import can go back to it.
    pub fn create_checkpoint(self) -> Result<()> {
        self.pool.check_writable()?;
        self.pool
            .0
            .spa
            .create_checkpoint()
            .map_err(|error| self.pool.checkpoint_error("checkpoint", &error))
    }

    /// Gives the checkpoint up. [`Background::run_activities`](crate::pool::Background::run_activities) then frees
    /// what only it used.
    pub fn discard_checkpoint(self) -> Result<()> {
        self.pool.check_writable()?;
        let done = self.pool.0.spa.discard_checkpoint();
        done.map_err(|error| self.pool.checkpoint_error("discard checkpoint in", &error))?;
        self.pool.0.scheduler.wake(Work::Discard);
        Ok(())
    }

    /// Frees, with a txg, some of the space that only a discarded checkpoint used. Returns whether there is more.
    pub fn continue_discard(self) -> Result<bool> {
        self.pool.0.spa.continue_discard().map_err(|error| self.pool.explain_error(&error))
    }

    /// The checkpoint, if the pool has one or discards one.
    pub fn checkpoint_status(self) -> Option<CheckpointStatus> {
        let found = self.pool.0.spa.checkpoint_status()?;
        let state = if found.is_discarding { "discarding" } else { "exists" };
        Some(CheckpointStatus { state: state.to_owned(), time: found.time, bytes: found.bytes })
    }
}

impl Pool {
    fn checkpoint_error(&self, verb: &str, error: &spa::Error) -> Error {
        match error {
            spa::Error::Checkpoint(error) => {
                Error::Refused { what: format!("cannot {verb} '{}': {error}", self.name()) }
            }
            other => self.explain_error(other),
        }
    }
}
