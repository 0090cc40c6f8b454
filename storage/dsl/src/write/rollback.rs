//! Going back to the latest snapshot: the head becomes a clone of it, and what the head was is
//! destroyed.

use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use units::{ObjectId, Txg};

use super::change::{Change, free_log};
use super::names::Head;
use super::space::{For, Space, signed};
use super::{bookmark, create, deadlist, destroy, limits, livelist, remapped};
use crate::{Error, Result};

/// Makes a head again what its latest snapshot is, which must be `to` if that is given. What has the
/// head's content open must open it anew. The intent log that the snapshot may have a part of is
/// not the head's: whoever calls empties it in the same group.
pub fn rollback(change: &Change<'_>, name: &str, to: Option<&str>) -> Result<()> {
    let head = change.find_head(name)?;
    let record = change.dataset(head.dataset)?;
    judge(change, head, &record, name, to)?;
    free_log(change, head.dataset)?;
    let part = "%rollback";
    let clone = create::new_head(change, head.dir, part, Some(record.previous))?;
    swap(change, clone, head)?;
    destroy::destroy_head(change, clone)
}

fn judge(
    change: &Change<'_>,
    head: Head,
    record: &DatasetPhys,
    name: &str,
    to: Option<&str>,
) -> Result<()> {
    // a clone has its origin for a predecessor, which is no snapshot of it
    let own = change.previous_of(record)?.is_some_and(|(_, it)| it.next == head.dataset);
    if !own {
        return Err(Error::NoSuchDataset { name: format!("{name}@") });
    }
    if record.previous_txg >= change.txg() {
        return Err(Error::TooSoon { name: name.to_owned() });
    }
    if let Some(to) = to {
        let (_, wanted) = change.find_snapshot(to)?;
        if wanted != record.previous {
            return Err(Error::NotLatest { name: to.to_owned() });
        }
    }
    if bookmark::newest(change, head.dataset)? > record.previous_txg {
        return Err(Error::NotLatest { name: name.to_owned() });
    }
    let limits = limits::of_head(change, head.dir)?;
    let back = change.dataset(record.previous)?.referenced;
    if limits.quota != 0 && back > limits.quota {
        return Err(Error::NoRoom { needed: back, left: limits.quota });
    }
    let needed = limits.reservation.min(record.unique);
    let left = limits::available(change, head.dir)?;
    if needed > left { Err(Error::NoRoom { needed, left }) } else { Ok(()) }
}

/// A head takes the place of another that follows the same snapshot.
pub(crate) fn swap(change: &Change<'_>, clone: Head, head: Head) -> Result<()> {
    swap_features(change, clone.dataset, head.dataset)?;
    let (a, b) = (change.dataset(clone.dataset)?, change.dataset(head.dataset)?);
    let origin = change.dataset(a.previous)?;
    let alone = deadlist::space_between(change, a.deadlist, origin.previous_txg, None)?.used;
    change.change_dataset(a.previous, |origin| {
        origin.unique = u64::try_from(alone).unwrap_or(0);
    })?;
    swap_space(change, [(clone, &a), (head, &b)])?;
    exchange(change, clone.dataset, &b)?;
    exchange(change, head.dataset, &a)?;
    let reservation = limits::of_head(change, head.dir)?.reservation;
    let unused = |record: &DatasetPhys| signed(reservation.min(record.unique));
    let more = Space::only_used(unused(&b).wrapping_sub(unused(&a)));
    change.add_space(head.dir, For::Refreservation, more)?;
    remapped::swap(change, clone.dataset, head.dataset)?;
    bookmark::next_changed(change, head.dataset, b.previous)?;
    livelist::remove(change, clone.dir)?;
    livelist::remove(change, head.dir)
}

fn swap_features(change: &Change<'_>, a: ObjectId, b: ObjectId) -> Result<()> {
    let (of_a, of_b) = (create::features_of(change, a)?, create::features_of(change, b)?);
    for (at, features) in [(a, &of_a), (b, &of_b)] {
        for (feature, _) in features {
            create::remove_feature(change, at, feature)?;
        }
    }
    for (at, features) in [(b, &of_a), (a, &of_b)] {
        for (feature, numbers) in features {
            create::set_feature(change, at, feature, numbers)?;
        }
    }
    Ok(())
}

/// What two heads and their deadlists take goes with them to the other's directory.
fn swap_space(change: &Change<'_>, [clone, head]: [(Head, &DatasetPhys); 2]) -> Result<()> {
    let whole = |(_, record): (Head, &DatasetPhys)| {
        let reached = [record.referenced, record.compressed, record.uncompressed];
        let dead = deadlist::space(change, record.deadlist)?;
        Ok::<_, Error>(Space::from_counts(reached) + dead)
    };
    let delta = whole(clone)? - whole(head)?;
    change.add_space(head.0.dir, For::Head, delta)?;
    change.add_space(clone.0.dir, For::Head, -delta)?;
    // of the deadlists only what is the directory's own counts as its snapshots'
    let origin = change.dir(head.0.dir)?.origin;
    let own = if origin.exists() { change.dataset(origin)?.creation_txg } else { Txg::ZERO };
    let dead = |record: &DatasetPhys| deadlist::space_between(change, record.deadlist, own, None);
    let more = dead(clone.1)?.used.wrapping_sub(dead(head.1)?.used);
    change.move_space(head.0.dir, more, [For::Head, For::Snapshots])
}

/// A dataset gets the content of another.
fn exchange(change: &Change<'_>, id: ObjectId, other: &DatasetPhys) -> Result<()> {
    change.change_dataset(id, |it| {
        it.root = other.root.clone();
        it.referenced = other.referenced;
        it.compressed = other.compressed;
        it.uncompressed = other.uncompressed;
        it.unique = other.unique;
        it.deadlist = other.deadlist;
    })
}

/// Whether a directory is a clone: of a snapshot of something.
pub(crate) fn is_clone(change: &Change<'_>, dir: &DirPhys) -> Result<bool> {
    Ok(dir.origin.exists() && create::nothing(change)? != Some(dir.origin))
}
