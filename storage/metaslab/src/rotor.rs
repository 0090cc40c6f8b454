//! The choice of the next vdev: each gets a run of blocks in turn, longer the more space it has
//! left.
//!
//! Runs are long enough that a drive sees sequences, and short enough that all drives have work.
//! A run's length is proportional to the free space, so vdevs fill up at the same time. Blocks that
//! exceed a run's end are a debt of the vdev's next runs.

use std::sync::Arc;

use units::VdevId;

use crate::Class;
use crate::group::MetaslabGroup;

/// Bytes of a run for each data drive of an average vdev, on a vdev with as much free space as the average.
const RUN_SIZE: u64 = 1 << 20;
/// The longest run, and the largest debt, in average runs.
const MAX_RUN_FACTOR: u64 = 16;
/// A vdev with at least the average is out of debt after this many runs.
const MAX_TURNS: usize = 32;

/// The vdevs of a class, and the present one.
#[derive(Debug, Default)]
pub(crate) struct Rotor {
    groups: Vec<Arc<MetaslabGroup>>,
    /// Bytes that each may still get.
    credits: Vec<i64>,
    current: usize,
}

impl Rotor {
    pub(crate) fn add(&mut self, top: Arc<MetaslabGroup>) {
        self.groups.push(top);
        self.credits.push(0);
    }

    pub(crate) fn remove(&mut self, vdev: VdevId) {
        if let Some(index) = self.groups.iter().position(|top| top.spec.vdev == vdev) {
            self.groups.remove(index);
            self.credits.remove(index);
            self.current = 0;
        }
    }

    pub(crate) fn groups(&self) -> &[Arc<MetaslabGroup>] {
        &self.groups
    }

    /// The index of the present vdev; 0 if there is none.
    pub(crate) fn next_index(&mut self, class: Class) -> usize {
        assert_eq!(self.credits.len(), self.groups.len(), "each vdev has its credit");
        for _ in 0..self.groups.len() * MAX_TURNS {
            if self.credits[self.current] > 0 {
                break;
            }
            self.current = (self.current + 1) % self.groups.len();
            self.credits[self.current] += self.run_length(class);
        }
        self.current
    }

    fn run_length(&self, class: Class) -> i64 {
        let share = |top: &Arc<MetaslabGroup>| u128::from(top.available(class));
        let average = self.groups.iter().map(share).sum::<u128>() / self.groups.len() as u128;
        let run = self.average_run();
        let scaled = u128::from(run) * share(&self.groups[self.current]) / average.max(1);
        units::narrow::<i64>(scaled.clamp(1, u128::from(run * MAX_RUN_FACTOR)))
    }

    /// That many bytes went to the vdev at this index.
    pub(crate) fn charge(&mut self, index: usize, bytes: u64) {
        let most = units::narrow::<i64>(self.average_run() * MAX_RUN_FACTOR);
        let bytes = units::narrow::<i64>(bytes);
        let credit = &mut self.credits[index];
        *credit = (*credit - bytes).max(-most);
    }

    /// The vdev at this index had no space: continue with the next.
    pub(crate) fn skip(&mut self, index: usize) {
        self.credits[index] = self.credits[index].min(0);
    }

    /// Bytes of a run on a vdev with average free space. It does not depend on the vdev's own width: a wide vdev has
    /// more free space already, and would fill up first if its width counted again.
    fn average_run(&self) -> u64 {
        let widths = self.groups.iter().map(|top| u64::from(top.spec.data_width.clamp(1, 1 << 10)));
        RUN_SIZE * widths.sum::<u64>() / (self.groups.len() as u64).max(1)
    }
}
