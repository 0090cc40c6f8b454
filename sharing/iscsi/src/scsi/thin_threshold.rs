//! The soft threshold of thin provisioning: initiators are warned before the pool has no space left.
//!
//! The warning comes once when the pool has less space available than a tenth of the size of the unit. It comes again
//! only after an eighth was available in between. Learnt from: SBC-3, 4.7.3.7.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lun::Lun;
use parking_lot::Mutex;

/// The threshold of one unit.
#[derive(Default)]
pub(crate) struct ThinThreshold {
    /// The time of the last look at the pool.
    checked: Mutex<Option<Instant>>,
    is_reached: AtomicBool,
}

impl ThinThreshold {
    /// Whether the threshold was reached since the last look. Between two looks is an interval at least.
    pub(crate) fn is_reached(&self, unit: &dyn Lun, interval: Duration) -> bool {
        {
            let mut checked = self.checked.lock();
            let is_due = checked.is_none_or(|checked| checked.elapsed() >= interval);
            if !is_due {
                return false;
            }
            *checked = Some(Instant::now());
        }
        // a unit whose space cannot be read reports errors of its own
        let space = unit.space();
        space.is_ok_and(|space| self.crosses(space.available, unit.geometry().size()))
    }

    /// Whether the available bytes are below the threshold, and those before were not.
    fn crosses(&self, available: u64, size: u64) -> bool {
        let (available, size) = (u128::from(available), u128::from(size));
        if available * 10 < size {
            return !self.is_reached.swap(true, SeqCst);
        }
        if available * 8 >= size {
            self.is_reached.store(false, SeqCst);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::ThinThreshold;

    #[test]
    fn threshold_is_reported_once_until_space_returns() {
        let threshold = ThinThreshold::default();
        let found = [2000, 100, 99, 50, 124, 99, 125, 99].map(|left| threshold.crosses(left, 1000));
        assert_eq!(found, [false, false, true, false, false, false, false, true]);
        assert!(!ThinThreshold::default().crosses(u64::MAX, u64::MAX));
    }
}
