//! How much more may be written.

use crate::Dataset;

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
            space = space.saturating_add(record.reserved.saturating_sub(record.used));
        }
        space = quota.checked_sub(record.used).map_or(0, |left| left.min(space));
    }
    space = space.saturating_add(refreservation.saturating_sub(phys.unique));
    if refquota != 0 {
        space = space.min(refquota.saturating_sub(phys.referenced));
    }
    space
}
