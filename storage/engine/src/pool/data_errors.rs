//! The files with known damage: the entries of the pool's error log, by name.
//!
//! The names come from a walk of the datasets, so they are looked up from time to time only.

use units::Zbookmark;

use super::Pool;
use crate::pool::handles::Scans;

/// Seconds after which the files of the error log are looked up again.
const DAMAGE_INTERVAL: u64 = 30;

/// The files of the error log, for a while.
#[derive(Default)]
pub(super) struct DataErrors {
    /// The number of entries of the error log.
    count: u64,
    /// When they were looked up, in seconds since 1970.
    time: u64,
    /// The last txg that was synced then.
    txg: u64,
    files: Vec<String>,
}

impl Pool {
    /// The files that damaged blocks belong to.
    pub(super) fn name_lost(&self, lost: Vec<(Zbookmark, String)>) -> Vec<String> {
        if lost.is_empty() {
            return Vec::new();
        }
        let _pin = self.pin();
        let plain = |(place, why): &(Zbookmark, String)| format!("{place}: {why}");
        let Ok(tree) = self.tree() else { return lost.iter().map(plain).collect() };
        let found = ::check::name_lost_blocks(&self.0.spa.synced_mos(), &tree, lost);
        found.iter().map(crate::check::format_damage).collect()
    }
}

impl Scans<'_> {
    /// The files with damage that is known: the error log, which a scrub that finds them whole empties.
    pub fn data_errors(self) -> Vec<String> {
        let count = self.pool.0.spa.logged_error_count().unwrap_or(0);
        let now = self.pool.unix_seconds();
        let mut known = self.pool.0.scan_control.data_errors.lock();
        if count == 0 {
            *known = DataErrors::default();
        } else if known.count != count || now.abs_diff(known.time) >= DAMAGE_INTERVAL {
            let places = self.pool.0.spa.damaged_places().unwrap_or_default();
            let reasons = self.pool.damage_reasons();
            let unknown = || "it could not be read or repaired".to_owned();
            let reason = |place| reasons.get(&place).cloned().unwrap_or_else(unknown);
            let lost = places.into_iter().map(|place| (place, reason(place))).collect();
            let txg = self.pool.txg();
            *known = DataErrors { count, time: now, txg, files: self.pool.name_lost(lost) };
        }
        known.files.clone()
    }

    /// Has the next look at the files with damage read them anew, if the pool changed since the last one.
    pub fn refresh_data_errors(self) {
        let txg = self.pool.txg();
        let mut known = self.pool.0.scan_control.data_errors.lock();
        if known.txg != txg {
            *known = DataErrors::default();
        }
    }
}
