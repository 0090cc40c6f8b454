//! Drives with too many errors: OpenZFS's rule, applied to the counts of each drive.
//!
//! Ten errors within ten minutes are too many, unless the vdev has thresholds of its own
//! ([`super::vdev_settings`]). A drive with that many I/O errors is taken out of service, unless its vdev has no valid
//! replicas without it. A drive with that many checksum errors stays in use and is DEGRADED until `zpool clear`; so is one
//! with too many slow I/Os, where they count. A hot spare replaces either.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::label::VdevConfig;
use spa::OfflineResult;
use units::Guid;
use vdev::OutOfService;

use super::vdev_settings::{FaultThresholds, Threshold};
use crate::pool::handles::Drives;

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
    /// I/O errors, checksum errors and slow I/Os.
    drives: BTreeMap<Guid, [ErrorWindow; 3]>,
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
    /// Whether there were errors of late, with this count.
    fn is_active(&self, count: u64) -> bool {
        count != self.last || !self.growth.is_empty()
    }

    /// Notes a count; returns whether there were too many errors of late.
    fn record(&mut self, count: u64, now: u64, most: Threshold) -> bool {
        // a clear resets the counts
        let more = count.checked_sub(self.last).unwrap_or(count);
        self.last = count;
        if more > 0 {
            self.growth.push((now, more));
        }
        self.growth.retain(|(then, _)| now.abs_diff(*then) <= most.seconds);
        self.growth.iter().map(|(_, more)| more).sum::<u64>() >= most.events.max(1)
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
            let counts = [io, checksum, leaf.slow_requests()];
            let [too_many_io, too_many_wrong, too_many_slow] =
                self.record_errors(leaf.guid(), counts, now);
            let is_degraded = too_many_wrong || too_many_slow;
            let is_new = is_degraded && self.pool.0.diagnosis.lock().degraded.insert(leaf.guid());
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

    /// Notes the counts of I/O errors, checksum errors and slow I/Os of a drive; returns of which there were too many.
    fn record_errors(self, drive: Guid, counts: [u64; 3], now: u64) -> [bool; 3] {
        let mut diagnosis = self.pool.0.diagnosis.lock();
        let windows = diagnosis.drives.entry(drive).or_default();
        if !windows.iter().zip(counts).any(|(window, count)| window.is_active(count)) {
            return [false; 3];
        }
        drop(diagnosis);
        // read from the pool, and only for a drive with errors
        let FaultThresholds { checksum, io, slow } = self.pool.fault_thresholds(drive);
        let mut diagnosis = self.pool.0.diagnosis.lock();
        let [io_errors, wrong, slow_ios] = diagnosis.drives.entry(drive).or_default();
        let [io_count, wrong_count, slow_count] = counts;
        let unlimited = Threshold { events: u64::MAX, seconds: 0 };
        [
            io_errors.record(io_count, now, io),
            wrong.record(wrong_count, now, checksum),
            slow_ios.record(slow_count, now, slow.unwrap_or(unlimited)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorWindow;
    use crate::pool::vdev_settings::FaultThresholds;

    #[test]
    fn ten_errors_in_ten_minutes_are_too_many() {
        let most = FaultThresholds::default().io;
        let record = |window: &mut ErrorWindow, count, now| window.record(count, now, most);
        let mut window = ErrorWindow::default();
        assert!(!record(&mut window, 9, 1000));
        assert!(!record(&mut window, 9, 1001));
        assert!(record(&mut window, 10, 1002));
        let mut window = ErrorWindow::default();
        assert!(!record(&mut window, 9, 1000));
        assert!(!record(&mut window, 11, 1001 + most.seconds), "nine of them are long ago");
        // cleared meanwhile
        assert!(!record(&mut window, 3, 1002 + most.seconds));
        assert!(record(&mut window, 9, 1003 + most.seconds));
    }
}
