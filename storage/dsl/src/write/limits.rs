//! What directories may use: quotas, reservations, what is left, and counts of what is below.

use ondisk::dsl::Dir as DirPhys;
use units::{ObjectId, ObjsetId};

use super::change::Change;
use super::features::{self, guid};
use super::space::{For, Space, counted_change, signed};
use crate::settings::{Setting, Settings};
use crate::{Error, Result};

/// The limits of a head: its own, which its snapshots have no part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeadLimits {
    /// Bytes that it may reach; 0: no limit.
    pub(crate) quota: u64,
    /// Bytes that are kept for what only it reaches.
    pub(crate) reservation: u64,
}

pub(crate) fn of_head(change: &Change<'_>, dir: ObjectId) -> Result<HeadLimits> {
    let settings = Settings::read(change.mos, change.dir(dir)?.properties)?;
    let number = |name| match settings.get(name).map(|set| &set.value) {
        Some(Setting::Number(number)) => *number,
        _ => 0,
    };
    Ok(HeadLimits { quota: number("refquota"), reservation: number("refreservation") })
}

/// Bytes that may still be used in a directory, by what its quota and those above allow and what
/// is reserved elsewhere leaves.
pub fn available(change: &Change<'_>, dir: ObjectId) -> Result<u64> {
    available_moving(change, dir, None)
}

/// The same, as if bytes had been taken out of a directory above before: which, and how many.
pub(crate) fn available_moving(
    change: &Change<'_>,
    dir: ObjectId,
    taken: Option<(ObjectId, u64)>,
) -> Result<u64> {
    left_in(change, dir, taken, true)
}

fn left_in(
    change: &Change<'_>,
    dir: ObjectId,
    taken: Option<(ObjectId, u64)>,
    quotas: bool,
) -> Result<u64> {
    let mut chain = Vec::new();
    let mut at = dir;
    while at.exists() {
        let record = change.dir(at)?;
        let parent = record.parent;
        if chain.len() > 256 {
            return Err(Error::Circle { object: dir, what: "directories" });
        }
        chain.push((at, record));
        at = parent;
    }
    let mut left = u64::MAX;
    for (id, record) in chain.iter().rev() {
        let mut used = record.used;
        let limited = quotas && record.quota != 0;
        let mut quota = if limited { record.quota } else { u64::MAX };
        if !record.parent.exists() {
            quota = quota.min(change.usable);
        }
        if left != u64::MAX {
            left = left.saturating_add(record.reserved.saturating_sub(used));
        }
        if let Some((_, bytes)) = taken.filter(|(above, _)| above == id) {
            used = used.saturating_sub(bytes);
            left = left.saturating_add(bytes);
        }
        left = left.min(quota.saturating_sub(used));
    }
    Ok(left)
}

/// What may still be written to a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that it may come to reach more than it does.
    pub bytes: u64,
    /// Whether it is a quota that ends it, and not the pool.
    pub quota: bool,
}

/// What may still be written to a head, as of now: what is on its way to the drives is the
/// caller's to take off.
pub fn room(change: &Change<'_>, dataset: ObjsetId) -> Result<Room> {
    let record = change.dataset(ObjectId::new(dataset.get()))?;
    let limits = of_head(change, record.dir)?;
    // what is kept for the head counts as used already
    let kept = limits.reservation.saturating_sub(record.unique);
    let left = |quotas| left_in(change, record.dir, None, quotas);
    let pool = left(false)?.saturating_add(kept);
    let mut bytes = left(true)?.saturating_add(kept);
    if limits.quota != 0 {
        bytes = bytes.min(limits.quota.saturating_sub(record.referenced));
    }
    Ok(Room { bytes, quota: bytes < pool })
}

/// The directory in which two lie, one of them perhaps.
pub(crate) fn common_above(change: &Change<'_>, a: ObjectId, b: ObjectId) -> Result<ObjectId> {
    let (above_a, above_b) = (chain(change, a)?, chain(change, b)?);
    let found = above_a.into_iter().find(|dir| above_b.contains(dir));
    found.ok_or(Error::Circle { object: a, what: "directories" })
}

/// A directory and all above it, upwards.
pub(crate) fn chain(change: &Change<'_>, dir: ObjectId) -> Result<Vec<ObjectId>> {
    let mut chain = vec![dir];
    let mut at = change.dir(dir)?.parent;
    while at.exists() {
        if chain.len() > 256 {
            return Err(Error::Circle { object: dir, what: "directories" });
        }
        chain.push(at);
        at = change.dir(at)?.parent;
    }
    Ok(chain)
}

/// Refuses to move `bytes` from one directory into another for which there is no room there.
pub(crate) fn judge_move(
    change: &Change<'_>,
    from: ObjectId,
    to: ObjectId,
    bytes: u64,
) -> Result<()> {
    let common = common_above(change, from, to)?;
    let mut delta = signed(bytes).wrapping_neg();
    let mut at = from;
    while at != common {
        let dir = change.dir(at)?;
        delta = counted_change(dir.used, delta, dir.reserved);
        at = dir.parent;
    }
    let left = available_moving(change, to, Some((common, delta.unsigned_abs())))?;
    if left < bytes { Err(Error::NoRoom { needed: bytes, left }) } else { Ok(()) }
}

/// Sets a directory's quota, in bytes; 0 is none. The property is set apart.
pub(crate) fn set_quota(change: &Change<'_>, dir: ObjectId, quota: u64) -> Result<()> {
    let record = change.dir(dir)?;
    if quota != 0 && quota < record.used.max(record.reserved) {
        return Err(Error::NoRoom { needed: record.used.max(record.reserved), left: quota });
    }
    change.change_dir(dir, |dir| dir.quota = quota)
}

/// Sets a directory's reservation, in bytes. The property is set apart.
pub(crate) fn set_reservation(change: &Change<'_>, dir: ObjectId, reserved: u64) -> Result<()> {
    let record = change.dir(dir)?;
    let more = record.used.max(reserved).saturating_sub(record.used.max(record.reserved));
    if more > 0 {
        let left = if record.parent.exists() {
            available(change, record.parent)?
        } else {
            change.usable.saturating_sub(record.used)
        };
        if more > left {
            return Err(Error::NoRoom { needed: more, left });
        }
        if record.quota > 0 && reserved > record.quota {
            return Err(Error::NoRoom { needed: reserved, left: record.quota });
        }
    }
    reserve(change, dir, reserved)
}

/// Sets a directory's reservation, whatever room there is.
pub(crate) fn reserve(change: &Change<'_>, dir: ObjectId, reserved: u64) -> Result<()> {
    let (parent, delta) = change.change_dir(dir, |dir| {
        let before = signed(dir.used.max(dir.reserved));
        dir.reserved = reserved;
        (dir.parent, signed(dir.used.max(reserved)).wrapping_sub(before))
    })?;
    if parent.exists() {
        change.add_space(parent, For::ChildReservations, Space::only_used(delta))?;
    }
    Ok(())
}

/// Refuses a limit on what a head may reach that it does not keep.
pub(crate) fn judge_head_quota(change: &Change<'_>, dir: ObjectId, quota: u64) -> Result<()> {
    let head = change.dataset(change.dir(dir)?.head)?;
    let least = head.referenced.max(of_head(change, dir)?.reservation);
    if quota != 0 && quota < least {
        return Err(Error::NoRoom { needed: least, left: quota });
    }
    Ok(())
}

/// Accounts for a head's new reservation, of which `before` was there. The property is set apart.
pub(crate) fn set_head_reservation(
    change: &Change<'_>,
    dir: ObjectId,
    before: u64,
    reserved: u64,
) -> Result<()> {
    let unique = change.dataset(change.dir(dir)?.head)?.unique;
    let more = unique.max(reserved).saturating_sub(unique.max(before));
    if more > 0 {
        let left = available(change, dir)?;
        if more > left {
            return Err(Error::NoRoom { needed: more, left });
        }
        let quota = of_head(change, dir)?.quota;
        if quota > 0 && reserved > quota {
            return Err(Error::NoRoom { needed: reserved, left: quota });
        }
    }
    reserve_head(change, dir, before, reserved)
}

/// Accounts for a head's new reservation, whatever room there is.
pub(crate) fn reserve_head(
    change: &Change<'_>,
    dir: ObjectId,
    before: u64,
    reserved: u64,
) -> Result<()> {
    let unique = change.dataset(change.dir(dir)?.head)?.unique;
    let unused = |bytes: u64| signed(bytes.saturating_sub(unique));
    let delta = unused(reserved).wrapping_sub(unused(before));
    change.add_space(dir, For::Refreservation, Space::only_used(delta))
}

// ---- counts of file systems and snapshots, where a limit is or was set ----

/// So many more file systems and volumes are below a directory.
pub(crate) fn count_filesystems(change: &Change<'_>, dir: ObjectId, more: i64) -> Result<()> {
    count(change, dir, DirPhys::FILESYSTEM_COUNT, more)
}

/// So many more snapshots are of a directory or below it.
pub(crate) fn count_snapshots(change: &Change<'_>, dir: ObjectId, more: i64) -> Result<()> {
    count(change, dir, DirPhys::SNAPSHOT_COUNT, more)
}

fn count(change: &Change<'_>, dir: ObjectId, name: &str, more: i64) -> Result<()> {
    if more == 0 {
        return Ok(());
    }
    for dir in chain(change, dir)? {
        // where nothing is counted, nothing above is counted either
        let Some(count) = change.field_number(dir, name)? else { return Ok(()) };
        change.set_field(dir, name, &[count.saturating_add_signed(more)])?;
    }
    Ok(())
}

/// Begins to count in a directory and all below it.
pub(crate) fn begin_to_count(change: &Change<'_>, dir: ObjectId) -> Result<()> {
    if !features::is_active(change, guid::LIMITS)? {
        features::add(change, guid::LIMITS)?;
    }
    counts(change, dir, 0).map(drop)
}

/// The file systems below a directory, and the snapshots of it and below; counted if they were not.
pub(crate) fn counts(change: &Change<'_>, dir: ObjectId, depth: usize) -> Result<[u64; 2]> {
    if depth > 256 {
        return Err(Error::Circle { object: dir, what: "directories" });
    }
    let names = [DirPhys::FILESYSTEM_COUNT, DirPhys::SNAPSHOT_COUNT];
    let known = (change.field_number(dir, names[0])?, change.field_number(dir, names[1])?);
    if let (Some(filesystems), Some(snapshots)) = known {
        return Ok([filesystems, snapshots]);
    }
    let record = change.dir(dir)?;
    let [mut filesystems, mut snapshots] = [0_u64; 2];
    for entry in change.entries(record.children)? {
        let (false, Some(child)) = (entry.name.starts_with(b"$"), entry.value.u64()) else {
            continue;
        };
        let [more, below] = counts(change, ObjectId::new(child), depth.saturating_add(1))?;
        filesystems = filesystems.saturating_add(more).saturating_add(1);
        snapshots = snapshots.saturating_add(below);
    }
    if record.head.exists() {
        let names = change.entries(change.dataset(record.head)?.snapshot_names)?;
        let own = names.iter().filter(|entry| !entry.name.starts_with(b"%")).count();
        snapshots = snapshots.saturating_add(super::list::number(own));
    }
    change.set_field(dir, names[0], &[filesystems])?;
    change.set_field(dir, names[1], &[snapshots])?;
    Ok([filesystems, snapshots])
}
