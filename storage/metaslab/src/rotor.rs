//! Which vdev is next: each gets a run of blocks in turn, longer the more space it has left.
//!
//! Runs are long enough that a drive sees sequences, and short enough that all drives have work.
//! As a run's length goes with the free space, vdevs fill up at the same time. What a block takes
//! beyond a run's end is remembered as a debt of the vdev's next turns.

use std::sync::Arc;

use crate::Class;
use crate::top::Top;

/// Bytes of a run for each drive's worth of data, on a vdev with as much space as the average.
const RUN: u64 = 1 << 20;
/// No run is longer, and no debt larger, than so many average runs.
const LONGEST: u64 = 16;
/// One that has the average at least is out of debt after so many turns.
const MOST_TURNS: usize = 32;

/// The vdevs of a class, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Rotor {
    tops: Vec<Arc<Top>>,
    /// Bytes that each may still get.
    credits: Vec<i64>,
    at: usize,
}

impl Rotor {
    pub(crate) fn add(&mut self, top: Arc<Top>) {
        self.tops.push(top);
        self.credits.push(0);
    }

    pub(crate) fn tops(&self) -> &[Arc<Top>] {
        &self.tops
    }

    /// The index of the vdev whose turn it is; 0 if there is none.
    pub(crate) fn turn(&mut self, class: Class) -> usize {
        for _ in 0..self.tops.len().saturating_mul(MOST_TURNS) {
            if self.credits[self.at] > 0 {
                break;
            }
            self.at = (self.at + 1) % self.tops.len();
            self.credits[self.at] += self.run(class);
        }
        self.at
    }

    fn run(&self, class: Class) -> i64 {
        let share = |top: &Arc<Top>| u128::from(top.available(class));
        let average = self.tops.iter().map(share).sum::<u128>() / self.tops.len() as u128;
        let top = &self.tops[self.at];
        let run = average_run(top);
        let scaled = u128::from(run) * share(top) / average.max(1);
        i64::try_from(scaled.clamp(1, u128::from(run * LONGEST))).unwrap_or(i64::MAX)
    }

    /// That many bytes went to the vdev at this index.
    pub(crate) fn used(&mut self, index: usize, bytes: u64) {
        let most = i64::try_from(average_run(&self.tops[index]) * LONGEST).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let credit = &mut self.credits[index];
        *credit = credit.saturating_sub(bytes).max(-most);
    }

    /// The vdev at this index had no room: the turn is another's.
    pub(crate) fn pass(&mut self, index: usize) {
        self.credits[index] = self.credits[index].min(0);
    }
}

fn average_run(top: &Top) -> u64 {
    RUN * u64::from(top.spec.width.clamp(1, 1 << 10))
}
