//! Drives with too many errors: OpenZFS's rule, applied to the counts of each drive.
//!
//! Ten errors within ten minutes are too many. A drive with that many I/O errors is taken out of
//! service, unless its vdev has no valid replicas without it. A drive with that many checksum
//! errors stays in use and is DEGRADED until `zpool clear`. A hot spare replaces either.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::label::VdevConfig;
use spa::OfflineResult;
use units::Guid;
use vdev::OutOfService;

use crate::pool::handles::Drives;

/// As many errors are too many,
const MAX_ERRORS: u64 = 10;
/// within this many seconds.
const WINDOW_SECONDS: u64 = 600;

/// A drive that was found to have too many errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosedDrive {
    /// Its path.
    pub device: String,
    /// FAULTED, and out of service, or DEGRADED.
    pub state: &'static str,
}

/// The errors of drives in the last minutes.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    drives: BTreeMap<Guid, [ErrorWindow; 2]>,
    degraded: BTreeSet<Guid>,
    /// Drives that `zpool offline -f` degraded.
    externally_degraded: BTreeSet<Guid>,
}

/// The errors of one kind.
#[derive(Debug, Default)]
struct ErrorWindow {
    /// The count at the last look.
    last: u64,
    /// By how much the count grew, and when.
    growth: Vec<(u64, u64)>,
}

impl ErrorWindow {
    /// Notes a count; returns whether there were too many errors of late.
    fn record(&mut self, count: u64, now: u64) -> bool {
        // a clear resets the counts
        let more = count.checked_sub(self.last).unwrap_or(count);
        self.last = count;
        if more > 0 {
            self.growth.push((now, more));
        }
        self.growth.retain(|(then, _)| now.abs_diff(*then) <= WINDOW_SECONDS);
        self.growth.iter().map(|(_, more)| more).sum::<u64>() >= MAX_ERRORS
    }
}

impl Diagnosis {
    /// Whether a drive gave wrong data too often.
    pub(super) fn is_degraded(&self, drive: Guid) -> bool {
        self.degraded.contains(&drive)
    }

    /// Notes that a command degraded a drive.
    pub(super) fn degrade(&mut self, drive: Guid) {
        self.externally_degraded.insert(drive);
    }

    /// The words behind the row of a drive that is degraded. `config`: the pool's entry of it.
    pub(super) fn degraded_note(&self, config: &VdevConfig) -> Option<&'static str> {
        if self.externally_degraded.contains(&config.guid) {
            return Some("external device fault");
        }
        (config.state.degraded || self.is_degraded(config.guid)).then_some("too many errors")
    }

    /// Forgets the errors of a drive, or of all.
    pub(super) fn clear(&mut self, only: Option<Guid>) {
        self.drives.retain(|drive, _| only.is_some_and(|guid| guid != *drive));
        self.degraded.retain(|drive| only.is_some_and(|guid| guid != *drive));
        self.externally_degraded.retain(|drive| only.is_some_and(|guid| guid != *drive));
    }
}

impl Drives<'_> {
    /// Takes drives out of service that had too many errors of late. To be called every few seconds.
    pub fn diagnose(self) -> Vec<DiagnosedDrive> {
        let mut found = Vec::new();
        if self.pool.is_read_only() || self.pool.is_suspended() {
            return found;
        }
        let now = (self.pool.0.environment.now)().0;
        for leaf in self.pool.0.spa.tree().leaves() {
            // a missing one is removed, and not faulted
            if leaf.device().is_none() || leaf.is_device_gone() {
                continue;
            }
            let (checksum, read) = leaf.error_counts();
            let io = read + leaf.write_errors();
            let mut diagnosis = self.pool.0.diagnosis.lock();
            let [io_errors, wrong] = diagnosis.drives.entry(leaf.guid()).or_default();
            let (too_many_io, too_many_wrong) =
                (io_errors.record(io, now), wrong.record(checksum, now));
            let is_new = too_many_wrong && diagnosis.degraded.insert(leaf.guid());
            drop(diagnosis);
            let device = || leaf.device().map_or_else(String::new, |it| it.name().to_owned());
            let take_offline =
                || self.pool.0.spa.take_offline(leaf.guid(), OutOfService::TooManyErrors);
            if too_many_io && take_offline().is_ok_and(|done| done == OfflineResult::OutOfService) {
                found.push(DiagnosedDrive { device: device(), state: "FAULTED" });
            } else if is_new {
                // a pool that cannot be written shows it until the export
                let _ = self.pool.0.spa.mark_degraded(leaf.guid());
                found.push(DiagnosedDrive { device: device(), state: "DEGRADED" });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorWindow, WINDOW_SECONDS};

    #[test]
    fn ten_errors_in_ten_minutes_are_too_many() {
        let mut window = ErrorWindow::default();
        assert!(!window.record(9, 1000));
        assert!(!window.record(9, 1001));
        assert!(window.record(10, 1002));
        let mut window = ErrorWindow::default();
        assert!(!window.record(9, 1000));
        assert!(!window.record(11, 1001 + WINDOW_SECONDS), "nine of them are long ago");
        // cleared meanwhile
        assert!(!window.record(3, 1002 + WINDOW_SECONDS));
        assert!(window.record(9, 1003 + WINDOW_SECONDS));
    }
}
