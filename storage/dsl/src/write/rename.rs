//! Other names and other places in the tree.

use units::{MinusOrZero, ObjectId};

use super::context::SyncTaskContext;
use super::names;
use super::space::{SpaceDelta, UsedBy, to_i64};
use super::{limits, snapshot};
use crate::{Error, Result};
use ondisk::dsl::Dir as DirPhys;

/// Gives a file system or volume another name, perhaps elsewhere in the tree, with all below it.
pub fn rename(change: &SyncTaskContext<'_>, from: &str, to: &str) -> Result<()> {
    names::check_not_hidden(from)?;
    names::check_path(to)?;
    let dir = change.find_dir(from)?;
    let (above, part) = names::split_parent(to)?;
    let parent = change.find_head(above)?.dir;
    let record = change.dir_phys(dir)?;
    if !record.parent.exists() {
        return Err(Error::Busy { name: from.to_owned(), why: "it is the pool's own" });
    }
    if change.lookup_u64(change.dir_phys(parent)?.children, part)?.is_some() {
        return Err(Error::Exists { name: to.to_owned() });
    }
    if limits::ancestors(change, parent)?.contains(&dir) {
        return Err(Error::BelowItself { name: to.to_owned() });
    }
    check_descendant_names(change, dir, to, 0)?;
    if parent != record.parent {
        check_encryption_root(change, dir, parent, from)?;
        limits::check_move(change, record.parent, parent, record.used.max(record.reserved))?;
        move_counts(change, dir, [record.parent, parent])?;
        move_space(change, &record, parent)?;
    }
    let old = change.dir_name(dir)?;
    change.remove(change.dir_phys(record.parent)?.children, &old)?;
    change.insert_u64(change.dir_phys(parent)?.children, part, dir.get())?;
    change.update_dir(dir, |dir| dir.parent = parent)
}

/// Whether all names below would still be short enough, and not too deep.
fn check_descendant_names(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    path: &str,
    depth: usize,
) -> Result<()> {
    if depth > 256 {
        return Err(Error::Cycle { object: dir, links: "directories" });
    }
    names::check_length(path)?;
    let record = change.dir_phys(dir)?;
    if record.head.exists() {
        for entry in change.zap_entries(change.dataset_phys(record.head)?.snapshot_names)? {
            let name = format!("{path}@{}", String::from_utf8_lossy(&entry.name));
            names::check_length(&name)?;
        }
    }
    for entry in change.zap_entries(record.children)? {
        let child = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let id = ObjectId::new(entry.value.u64().unwrap_or(0));
        check_descendant_names(change, id, &child, depth + 1)?;
    }
    Ok(())
}

/// A directory that is encrypted with the key of one above must stay below that one.
fn check_encryption_root(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    parent: ObjectId,
    name: &str,
) -> Result<()> {
    let own = encryption_root(change, dir)?.filter(|root| *root != dir);
    if own.is_some() && encryption_root(change, parent)? != own {
        return Err(Error::EncryptionRootMismatch { name: name.to_owned() });
    }
    Ok(())
}

/// The encryption root of a directory; `None` if that is not encrypted.
pub(crate) fn encryption_root(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
) -> Result<Option<ObjectId>> {
    let Some(key) = change.zap_field_object(dir, DirPhys::CRYPTO_KEY)? else { return Ok(None) };
    let root = change.lookup_u64(key, "DSL_CRYPTO_ROOT_DDOBJ")?;
    let entry = "DSL_CRYPTO_ROOT_DDOBJ";
    root.map(|root| Some(ObjectId::new(root))).ok_or(Error::KeyEntry { object: key, entry })
}

fn move_counts(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    [from, to]: [ObjectId; 2],
) -> Result<()> {
    let counted = |name| change.zap_field_u64(dir, name);
    let (filesystems, snapshots) =
        (counted(DirPhys::FILESYSTEM_COUNT)?, counted(DirPhys::SNAPSHOT_COUNT)?);
    let (filesystems, snapshots) = match (filesystems, snapshots) {
        (Some(below), Some(snapshots)) => (to_i64(below) + 1, to_i64(snapshots)),
        _ if change.zap_field_u64(to, DirPhys::FILESYSTEM_COUNT)?.is_some() => {
            let [below, snapshots] = limits::count_descendants(change, dir, 0)?;
            (to_i64(below) + 1, to_i64(snapshots))
        }
        _ => return Ok(()),
    };
    limits::adjust_filesystem_count(change, from, filesystems.wrapping_neg())?;
    limits::adjust_filesystem_count(change, to, filesystems)?;
    limits::adjust_snapshot_count(change, from, snapshots.wrapping_neg())?;
    limits::adjust_snapshot_count(change, to, snapshots)
}

fn move_space(change: &SyncTaskContext<'_>, dir: &DirPhys, to: ObjectId) -> Result<()> {
    let all = SpaceDelta::from_counts([dir.used, dir.compressed, dir.uncompressed]);
    let unused = SpaceDelta::only_used(to_i64(dir.reserved.minus_or_zero(dir.used)));
    change.add_space(dir.parent, UsedBy::Children, -all)?;
    change.add_space(to, UsedBy::Children, all)?;
    if unused != SpaceDelta::default() {
        change.add_space(dir.parent, UsedBy::ChildReservations, -unused)?;
        change.add_space(to, UsedBy::ChildReservations, unused)?;
    }
    Ok(())
}

/// Renames a snapshot; with `below`, also those of the same name of all descendants.
pub fn rename_snapshot(
    change: &SyncTaskContext<'_>,
    name: &str,
    to: &str,
    below: bool,
) -> Result<()> {
    let missing = || Error::NoSuchDataset { name: name.to_owned() };
    let (path, from) = name.split_once('@').ok_or_else(missing)?;
    let head = change.find_head(path)?;
    change.find_snapshot_id(head.dataset, from)?.ok_or_else(missing)?;
    let mut found = Vec::new();
    let heads = if below {
        descendant_heads(change, head.dir, path)?
    } else {
        vec![(head, path.to_owned())]
    };
    for (head, path) in heads {
        names::check_snapshot_name(&path, to)?;
        let Some(id) = change.find_snapshot_id(head.dataset, from)? else { continue };
        if change.find_snapshot_id(head.dataset, to)?.is_some() {
            return Err(Error::Exists { name: format!("{path}@{to}") });
        }
        found.push((head, id));
    }
    for (head, id) in found {
        let table = change.dataset_phys(head.dataset)?.snapshot_names;
        // it may be written otherwise in the table
        change.remove(table, &change.snapshot_name(id)?)?;
        change.insert_u64(table, to, id.get())?;
        snapshot::update_snapshots_changed(change, head.dir)?;
    }
    Ok(())
}

/// A head and all heads below it, with their paths; the pool's own and half received ones are
/// left out.
pub(crate) fn descendant_heads(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    path: &str,
) -> Result<Vec<(names::HeadIds, String)>> {
    let mut found = Vec::new();
    let mut waiting = vec![(dir, path.to_owned())];
    while let Some((dir, path)) = waiting.pop() {
        if found.len() > 1 << 20 {
            return Err(Error::Cycle { object: dir, links: "directories" });
        }
        let record = change.dir_phys(dir)?;
        for entry in change.zap_entries(record.children)? {
            let hidden = entry.name.starts_with(b"$") || entry.name.starts_with(b"%");
            if let (false, Some(child)) = (hidden, entry.value.u64()) {
                let name = String::from_utf8_lossy(&entry.name);
                waiting.push((ObjectId::new(child), format!("{path}/{name}")));
            }
        }
        if record.head.exists() {
            found.push((names::HeadIds { dir, dataset: record.head }, path));
        }
    }
    Ok(found)
}
