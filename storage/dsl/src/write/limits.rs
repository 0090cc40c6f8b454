//! Limits of directories: quotas, reservations, available space, and counts of descendants.

use ondisk::dsl::Dir as DirPhys;
use units::{MinusOrZero, ObjectId, ObjsetId};

use super::context::SyncTaskContext;
use super::features::{self, guid};
use super::space::{SpaceDelta, UsedBy, parent_delta, raise_limit, to_i64, with_delta};
use crate::local_properties::{LocalProperties, PropertyValue};
use crate::{Error, Result};

/// The limits of a head: its own, which its snapshots have no part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeadLimits {
    /// Bytes that it may reach; 0: no limit.
    pub(crate) refquota: u64,
    /// Bytes that are kept for what only it reaches.
    pub(crate) refreservation: u64,
}

pub(crate) fn head_limits(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<HeadLimits> {
    let settings = LocalProperties::read(change.mos, change.dir_phys(dir)?.properties)?;
    let number = |name| match settings.get(name).map(|set| &set.value) {
        Some(PropertyValue::Number(number)) => *number,
        _ => 0,
    };
    Ok(HeadLimits { refquota: number("refquota"), refreservation: number("refreservation") })
}

/// Bytes available in a directory, by its quota and those above, and by the reservations elsewhere.
pub fn available_space(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<u64> {
    available_after_move(change, dir, None)
}

/// The same, as if bytes had been taken out of a directory above before: which, and how many.
pub(crate) fn available_after_move(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    taken: Option<(ObjectId, u64)>,
) -> Result<u64> {
    space_left(change, dir, taken, true)
}

fn space_left(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    taken: Option<(ObjectId, u64)>,
    quotas: bool,
) -> Result<u64> {
    let mut chain = Vec::new();
    let mut at = dir;
    while at.exists() {
        let record = change.dir_phys(at)?;
        let parent = record.parent;
        if chain.len() > 256 {
            return Err(Error::Cycle { object: dir, links: "directories" });
        }
        chain.push((at, record));
        at = parent;
    }
    // Rule: the limits apply from the top down. Space that a directory reserved and did not use is available only
    // below it; in another order a write could take space that is reserved elsewhere.
    let mut left = u64::MAX;
    for (id, record) in chain.iter().rev() {
        let mut used = record.used;
        let limited = quotas && record.quota != 0;
        let mut quota = if limited { record.quota } else { u64::MAX };
        if !record.parent.exists() {
            quota = quota.min(change.usable_space);
        }
        if left != u64::MAX {
            left = raise_limit(left, record.reserved.minus_or_zero(used));
        }
        if let Some((_, bytes)) = taken.filter(|(above, _)| above == id) {
            used = used.minus_or_zero(bytes);
            left = raise_limit(left, bytes);
        }
        left = left.min(quota.minus_or_zero(used));
    }
    Ok(left)
}

/// The space available to a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceLimit {
    /// Bytes by which its referenced space may grow.
    pub bytes: u64,
    /// Whether it is a quota that ends it, and not the pool.
    pub is_quota: bool,
}

/// The space available to a head now. The caller subtracts its dirty data.
pub fn space_limit(change: &SyncTaskContext<'_>, dataset: ObjsetId) -> Result<SpaceLimit> {
    let record = change.dataset_phys(ObjectId::new(dataset.get()))?;
    let limits = head_limits(change, record.dir)?;
    // Rule: what is kept for the head counts as used already. Without it, a head that is at its quota by its own
    // refreservation could not write into the space that it has reserved.
    let kept = limits.refreservation.minus_or_zero(record.unique);
    let left = |quotas| space_left(change, record.dir, None, quotas);
    let pool = raise_limit(left(false)?, kept);
    let mut bytes = raise_limit(left(true)?, kept);
    if limits.refquota != 0 {
        bytes = bytes.min(limits.refquota.minus_or_zero(record.referenced));
    }
    Ok(SpaceLimit { bytes, is_quota: bytes < pool })
}

/// The directory in which two lie, one of them perhaps.
pub(crate) fn common_ancestor(
    change: &SyncTaskContext<'_>,
    a: ObjectId,
    b: ObjectId,
) -> Result<ObjectId> {
    let (above_a, above_b) = (ancestors(change, a)?, ancestors(change, b)?);
    let found = above_a.into_iter().find(|dir| above_b.contains(dir));
    found.ok_or(Error::Cycle { object: a, links: "directories" })
}

/// A directory and all above it, upwards.
pub(crate) fn ancestors(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<Vec<ObjectId>> {
    let mut chain = vec![dir];
    let mut at = change.dir_phys(dir)?.parent;
    while at.exists() {
        if chain.len() > 256 {
            return Err(Error::Cycle { object: dir, links: "directories" });
        }
        chain.push(at);
        at = change.dir_phys(at)?.parent;
    }
    Ok(chain)
}

/// Refuses to move `bytes` from one directory into another without that much available space.
pub(crate) fn check_move(
    change: &SyncTaskContext<'_>,
    from: ObjectId,
    to: ObjectId,
    bytes: u64,
) -> Result<()> {
    let common = common_ancestor(change, from, to)?;
    let mut delta = to_i64(bytes).wrapping_neg();
    let mut at = from;
    while at != common {
        let dir = change.dir_phys(at)?;
        delta = parent_delta(dir.used, delta, dir.reserved);
        at = dir.parent;
    }
    let left = available_after_move(change, to, Some((common, delta.unsigned_abs())))?;
    if left < bytes { Err(Error::NoSpace { needed: bytes, available: left }) } else { Ok(()) }
}

/// Sets a directory's quota, in bytes; 0 is none. The property is set apart.
pub(crate) fn set_quota(change: &SyncTaskContext<'_>, dir: ObjectId, quota: u64) -> Result<()> {
    let record = change.dir_phys(dir)?;
    if quota != 0 && quota < record.used.max(record.reserved) {
        return Err(Error::LimitBelowUsed { used: record.used.max(record.reserved), limit: quota });
    }
    change.update_dir(dir, |dir| dir.quota = quota)
}

/// Sets a directory's reservation, in bytes. The property is set apart.
pub(crate) fn set_reservation(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    reserved: u64,
) -> Result<()> {
    let record = change.dir_phys(dir)?;
    let more = record.used.max(reserved).minus_or_zero(record.used.max(record.reserved));
    if more > 0 {
        let left = if record.parent.exists() {
            available_space(change, record.parent)?
        } else {
            change.usable_space.minus_or_zero(record.used)
        };
        if more > left {
            return Err(Error::ReservationTooLarge { needed: more, available: left });
        }
        if record.quota > 0 && reserved > record.quota {
            return Err(Error::ReservationTooLarge { needed: reserved, available: record.quota });
        }
    }
    apply_reservation(change, dir, reserved)
}

/// Sets a directory's reservation without a check of the available space.
pub(crate) fn apply_reservation(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    reserved: u64,
) -> Result<()> {
    // Rule: the directory and all above it change in the same txg: the ancestors count what is used or reserved,
    // whichever is more, and a crash between them would leave a sum that no later change corrects.
    let (parent, delta) = change.update_dir(dir, |dir| {
        let before = to_i64(dir.used.max(dir.reserved));
        dir.reserved = reserved;
        (dir.parent, to_i64(dir.used.max(reserved)).wrapping_sub(before))
    })?;
    if parent.exists() {
        change.add_space(parent, UsedBy::ChildReservations, SpaceDelta::only_used(delta))?;
    }
    Ok(())
}

/// Refuses a refquota that the head exceeds already.
pub(crate) fn check_refquota(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    quota: u64,
) -> Result<()> {
    let head = change.dataset_phys(change.dir_phys(dir)?.head)?;
    let least = head.referenced.max(head_limits(change, dir)?.refreservation);
    if quota != 0 && quota < least {
        return Err(Error::LimitBelowUsed { used: least, limit: quota });
    }
    Ok(())
}

/// Accounts for a head's new refreservation, of which `before` existed. The property is set
/// separately.
pub(crate) fn set_refreservation(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    before: u64,
    reserved: u64,
) -> Result<()> {
    let unique = change.dataset_phys(change.dir_phys(dir)?.head)?.unique;
    let more = unique.max(reserved).minus_or_zero(unique.max(before));
    if more > 0 {
        let left = available_space(change, dir)?;
        if more > left {
            return Err(Error::ReservationTooLarge { needed: more, available: left });
        }
        let quota = head_limits(change, dir)?.refquota;
        if quota > 0 && reserved > quota {
            return Err(Error::ReservationTooLarge { needed: reserved, available: quota });
        }
    }
    apply_refreservation(change, dir, before, reserved)
}

/// Accounts for a head's new refreservation without a check of the available space.
pub(crate) fn apply_refreservation(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    before: u64,
    reserved: u64,
) -> Result<()> {
    let unique = change.dataset_phys(change.dir_phys(dir)?.head)?.unique;
    let unused = |bytes: u64| to_i64(bytes.minus_or_zero(unique));
    let delta = unused(reserved).wrapping_sub(unused(before));
    change.add_space(dir, UsedBy::Refreservation, SpaceDelta::only_used(delta))
}

// ---- counts of file systems and snapshots, where a limit is or was set ----

/// Adds to the count of file systems and volumes below a directory.
pub(crate) fn adjust_filesystem_count(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    more: i64,
) -> Result<()> {
    adjust_count(change, dir, DirPhys::FILESYSTEM_COUNT, more)
}

/// Adds to the count of snapshots of a directory and its descendants.
pub(crate) fn adjust_snapshot_count(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    more: i64,
) -> Result<()> {
    adjust_count(change, dir, DirPhys::SNAPSHOT_COUNT, more)
}

fn adjust_count(change: &SyncTaskContext<'_>, dir: ObjectId, name: &str, more: i64) -> Result<()> {
    if more == 0 {
        return Ok(());
    }
    for dir in ancestors(change, dir)? {
        // Rule: where nothing is counted, nothing above is counted either. Counting begins at the top, in one txg.
        let Some(count) = change.zap_field_u64(dir, name)? else { return Ok(()) };
        change.set_zap_field(dir, name, &[with_delta(count, more)])?;
    }
    Ok(())
}

/// Begins to count in a directory and all below it.
pub(crate) fn enable_counts(change: &SyncTaskContext<'_>, dir: ObjectId) -> Result<()> {
    if !features::is_active(change, guid::LIMITS)? {
        features::increment(change, guid::LIMITS)?;
    }
    count_descendants(change, dir, 0).map(drop)
}

/// The file systems below a directory, and the snapshots of it and below; counted if they were not.
pub(crate) fn count_descendants(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    depth: usize,
) -> Result<[u64; 2]> {
    if depth > 256 {
        return Err(Error::Cycle { object: dir, links: "directories" });
    }
    let names = [DirPhys::FILESYSTEM_COUNT, DirPhys::SNAPSHOT_COUNT];
    let known = (change.zap_field_u64(dir, names[0])?, change.zap_field_u64(dir, names[1])?);
    if let (Some(filesystems), Some(snapshots)) = known {
        return Ok([filesystems, snapshots]);
    }
    let record = change.dir_phys(dir)?;
    let [mut filesystems, mut snapshots] = [0_u64; 2];
    for entry in change.zap_entries(record.children)? {
        let (false, Some(child)) = (entry.name.starts_with(b"$"), entry.value.u64()) else {
            continue;
        };
        let [more, below] = count_descendants(change, ObjectId::new(child), depth + 1)?;
        filesystems = (filesystems + more) + 1;
        snapshots += below;
    }
    if record.head.exists() {
        let names = change.zap_entries(change.dataset_phys(record.head)?.snapshot_names)?;
        let own = names.iter().filter(|entry| !entry.name.starts_with(b"%")).count();
        snapshots += super::bpobj::to_u64(own);
    }
    change.set_zap_field(dir, names[0], &[filesystems])?;
    change.set_zap_field(dir, names[1], &[snapshots])?;
    Ok([filesystems, snapshots])
}
