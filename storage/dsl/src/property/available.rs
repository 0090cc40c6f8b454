//! How much more may be written.

use crate::Dataset;
use crate::write::space::raise_limit;
use units::MinusOrZero as _;

/// Bytes that a head may still grow by, as quotas, reservations and the pool allow; 0 for others.
pub fn available_space(dataset: &Dataset, refquota: u64, refreservation: u64) -> u64 {
    let Some(phys) = dataset.phys() else { return 0 };
    let dirs: Vec<_> = dataset.dir().ancestors().collect();
    let mut space = u64::MAX;
    for dir in dirs.iter().rev() {
        let record = dir.phys();
        let mut quota = if record.quota == 0 { u64::MAX } else { record.quota };
        if dir.parent().is_none() {
            quota = quota.min(dataset.tree().pool_info().usable_space);
        }
        // the reservation here adds to the available space above
        if space != u64::MAX {
            space = raise_limit(space, record.reserved.minus_or_zero(record.used));
        }
        space = quota.checked_sub(record.used).map_or(0, |left| left.min(space));
    }
    space = raise_limit(space, refreservation.minus_or_zero(phys.unique));
    if refquota != 0 {
        space = space.min(refquota.minus_or_zero(phys.referenced));
    }
    space
}
