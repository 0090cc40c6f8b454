//! Which vdev is next: each gets a run of blocks in turn, longer the more space it has left.
//!
//! Runs are long enough that a drive sees sequences, and short enough that all drives have work.
//! As a run's length goes with the free space, vdevs fill up at the same time.

use std::sync::Arc;

use crate::Class;
use crate::top::Top;

/// Bytes of a run for each drive's worth of data, on a vdev with as much space as the average.
const RUN: u64 = 1 << 20;
/// No run is longer than so many average ones.
const LONGEST: u64 = 8;

/// The vdevs of a class, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Rotor {
    pub(crate) tops: Vec<Arc<Top>>,
    at: usize,
    left: u64,
}

impl Rotor {
    /// The vdevs in the order in which to try them.
    pub(crate) fn order(&mut self, class: Class) -> impl Iterator<Item = usize> + use<> {
        let count = self.tops.len();
        if self.left == 0 && count > 0 {
            self.turn(class);
        }
        let at = self.at;
        (0..count).map(move |step| (at + step) % count)
    }

    /// That many bytes went to the vdev at this index.
    pub(crate) fn used(&mut self, index: usize, bytes: u64) {
        if index == self.at {
            self.left = self.left.saturating_sub(bytes);
        }
    }

    fn turn(&mut self, class: Class) {
        let count = self.tops.len();
        self.at = (self.at + 1) % count;
        let share = |top: &Arc<Top>| top.available(class);
        let average = self.tops.iter().map(share).sum::<u64>() / count as u64;
        let top = &self.tops[self.at];
        let run = RUN * u64::from(top.spec.width.max(1));
        let scaled = u128::from(run) * u128::from(share(top)) / u128::from(average.max(1));
        self.left = u64::try_from(scaled).unwrap_or(u64::MAX).min(run * LONGEST).max(1);
    }
}
