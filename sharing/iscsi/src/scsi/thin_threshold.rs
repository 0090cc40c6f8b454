//! The soft threshold of thin provisioning: initiators are warned before the pool has no space left.
//!
//! The warning comes once when the pool has less space available than a part of the size of the unit, a tenth where
//! nothing else is configured. It comes again only after a quarter more was available in between.
//!
//! Initiators read the threshold in a mode page, and the space in a log page:
//! ```text
//! mode page 0x1c, subpage 0x02: code, subpage, bytes that follow (16 bits), 12 bytes 0, and the threshold:
//!   0x80 enabled (soft, of a resource that decreases), 0x01 available space, 16 bits 0, count (32 bits)
//! log page 0x0c: code, 0, bytes that follow (16 bits), and parameters:
//!   code (16 bits: 1 available, 2 used), 0x03, 8, count (32 bits), 2 shared or 1 of this unit alone, 24 bits 0
//! ```
//! Counts are of sets of blocks, of 1 MiB each. Learnt from: SBC-3, 4.7.3.7, 6.4.5 and 6.5.9; SPC-4, 7.3.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use lun::{Geometry, Lun};
use parking_lot::Mutex;

use super::execute::read_failure;
use super::{Failure, Sense};

/// Bytes that are counted as one in pages.
const SET_BYTES: u64 = 1 << 20;
/// The pages of LOG SENSE.
const LOG_PAGES: u8 = 0x00;
const SPACE_LOG: u8 = 0x0c;

/// The exponent of the blocks of a set.
pub(crate) fn set_exponent(geometry: &Geometry) -> u8 {
    let blocks = SET_BYTES / u64::from(geometry.block_size);
    u8::try_from(blocks.ilog2()).expect("a logarithm of 64 bits is short")
}

fn sets(bytes: u64) -> [u8; 4] {
    u32::try_from(bytes / SET_BYTES).unwrap_or(u32::MAX).to_be_bytes()
}

/// The mode page of a threshold in percent of the unit's size; 0: none.
pub(crate) fn mode_page(geometry: &Geometry, percent: u8) -> Vec<u8> {
    // an initiator cannot change it
    let bytes = u128::from(geometry.size()) * u128::from(percent) / 100;
    let bytes = u64::try_from(bytes).expect("a part of 64 bits");
    let enabled = if percent > 0 { 0x80 } else { 0 };
    [&[0x5c, 0x02, 0, 20][..], &[0; 12], &[enabled, 0x01, 0, 0], &sets(bytes)].concat()
}

/// The answer to LOG SENSE.
pub(crate) fn log_page(unit: &dyn Lun, page: u8) -> Result<Vec<u8>, Failure> {
    let body = match page {
        LOG_PAGES => vec![LOG_PAGES, SPACE_LOG],
        SPACE_LOG => {
            let space = unit.space().map_err(|error| read_failure(&error))?;
            let parameter = |code: u8, bytes: u64, scope: u8| {
                [&[0, code, 0x03, 8][..], &sets(bytes), &[scope, 0, 0, 0]].concat()
            };
            [parameter(1, space.available, 2), parameter(2, space.used, 1)].concat()
        }
        _ => return Err(Sense::invalid_field(2).into()),
    };
    let length = u16::try_from(body.len()).expect("pages are short");
    Ok([&[page, 0][..], &length.to_be_bytes(), &body].concat())
}

/// The threshold of one unit.
#[derive(Default)]
pub(crate) struct ThinThreshold {
    /// The time of the last look at the pool.
    checked: Mutex<Option<Instant>>,
    is_reached: AtomicBool,
}

impl ThinThreshold {
    /// Whether the threshold was reached since the last look. Between two looks is an interval at least.
    pub(crate) fn is_reached(&self, unit: &dyn Lun, percent: u8, interval: Duration) -> bool {
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
        space.is_ok_and(|space| self.crosses(space.available, unit.geometry().size(), percent))
    }

    /// Whether the available bytes are below the threshold, and those before were not.
    fn crosses(&self, available: u64, size: u64, percent: u8) -> bool {
        let (available, part) = (u128::from(available), u128::from(size) * u128::from(percent));
        if available * 100 < part {
            return !self.is_reached.swap(true, SeqCst);
        }
        if available * 80 >= part {
            self.is_reached.store(false, SeqCst);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use lun::Geometry;

    use super::{ThinThreshold, mode_page, set_exponent};

    #[test]
    fn threshold_is_reported_once_until_space_returns() {
        let threshold = ThinThreshold::default();
        let found =
            [2000, 100, 99, 50, 124, 99, 125, 99].map(|left| threshold.crosses(left, 1000, 10));
        assert_eq!(found, [false, false, true, false, false, false, false, true]);
        assert!(!ThinThreshold::default().crosses(u64::MAX, u64::MAX, 99));
        assert!(!ThinThreshold::default().crosses(0, 1000, 0), "0 percent: never");
        assert!(ThinThreshold::default().crosses(499, 1000, 50));
    }

    #[test]
    fn mode_page_counts_sets_of_blocks() {
        let geometry = Geometry {
            block_size: 4096,
            blocks: (3 << 30) / 4096,
            physical_block_size: 16384,
            optimal_transfer: (16384, 1 << 20),
            unmap_granularity: 16384,
            is_read_only: false,
        };
        assert_eq!(set_exponent(&geometry), 8, "256 blocks are 1 MiB");
        let page = mode_page(&geometry, 25);
        assert_eq!((page.len(), &page[..4]), (24, &[0x5c, 2, 0, 20][..]));
        assert_eq!(page[16..], [0x80, 1, 0, 0, 0, 0, 3, 0], "768 MiB");
        assert_eq!(mode_page(&geometry, 0)[16..], [0, 1, 0, 0, 0, 0, 0, 0]);
    }
}
