//! Other names and other places in the tree.

use units::ObjectId;

use super::change::Change;
use super::names;
use super::space::{For, Space, signed};
use super::{limits, snapshot};
use crate::{Error, Result};
use ondisk::dsl::Dir as DirPhys;

/// Gives a file system or volume another name, perhaps elsewhere in the tree, with all below it.
pub fn rename(change: &Change<'_>, from: &str, to: &str) -> Result<()> {
    names::judge_path(to)?;
    let dir = change.find_dir(from)?;
    let (above, part) = names::split_last(to)?;
    let parent = change.find_head(above)?.dir;
    let record = change.dir(dir)?;
    if !record.parent.exists() {
        return Err(Error::Busy { name: from.to_owned(), why: "it is the pool's own" });
    }
    if change.number(change.dir(parent)?.children, part)?.is_some() {
        return Err(Error::Exists { name: to.to_owned() });
    }
    if limits::chain(change, parent)?.contains(&dir) {
        return Err(names::bad(to, "it would lie below itself"));
    }
    judge_below(change, dir, to, 0)?;
    if parent != record.parent {
        judge_keys(change, dir, parent, from)?;
        limits::judge_move(change, record.parent, parent, record.used.max(record.reserved))?;
        move_counts(change, dir, [record.parent, parent])?;
        move_space(change, &record, parent)?;
    }
    let old = change.own_name(dir)?;
    change.remove(change.dir(record.parent)?.children, &old)?;
    change.insert(change.dir(parent)?.children, part, dir.get())?;
    change.change_dir(dir, |dir| dir.parent = parent)
}

/// Whether all names below would still be short enough, and not too deep.
fn judge_below(change: &Change<'_>, dir: ObjectId, path: &str, depth: usize) -> Result<()> {
    if depth > 256 {
        return Err(Error::Circle { object: dir, what: "directories" });
    }
    names::judge_length(path)?;
    let record = change.dir(dir)?;
    if record.head.exists() {
        for entry in change.entries(change.dataset(record.head)?.snapshot_names)? {
            let name = format!("{path}@{}", String::from_utf8_lossy(&entry.name));
            names::judge_length(&name)?;
        }
    }
    for entry in change.entries(record.children)? {
        let child = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let id = ObjectId::new(entry.value.u64().unwrap_or(0));
        judge_below(change, id, &child, depth.saturating_add(1))?;
    }
    Ok(())
}

/// A directory that is encrypted with the key of one above must stay below that one.
fn judge_keys(change: &Change<'_>, dir: ObjectId, parent: ObjectId, name: &str) -> Result<()> {
    let own = encryption_root(change, dir)?.filter(|root| *root != dir);
    if own.is_some() && encryption_root(change, parent)? != own {
        return Err(Error::OtherKey { name: name.to_owned() });
    }
    Ok(())
}

/// The directory whose user's key opens a directory; `None` if that is not encrypted.
pub(crate) fn encryption_root(change: &Change<'_>, dir: ObjectId) -> Result<Option<ObjectId>> {
    let Some(key) = change.field_object(dir, DirPhys::CRYPTO_KEY)? else { return Ok(None) };
    let root = change.number(key, "DSL_CRYPTO_ROOT_DDOBJ")?;
    let entry = "DSL_CRYPTO_ROOT_DDOBJ";
    root.map(|root| Some(ObjectId::new(root))).ok_or(Error::KeyEntry { object: key, entry })
}

fn move_counts(change: &Change<'_>, dir: ObjectId, [from, to]: [ObjectId; 2]) -> Result<()> {
    let counted = |name| change.field_number(dir, name);
    let (filesystems, snapshots) =
        (counted(DirPhys::FILESYSTEM_COUNT)?, counted(DirPhys::SNAPSHOT_COUNT)?);
    let (filesystems, snapshots) = match (filesystems, snapshots) {
        (Some(below), Some(snapshots)) => (signed(below).saturating_add(1), signed(snapshots)),
        _ if change.field_number(to, DirPhys::FILESYSTEM_COUNT)?.is_some() => {
            let [below, snapshots] = limits::counts(change, dir, 0)?;
            (signed(below).saturating_add(1), signed(snapshots))
        }
        _ => return Ok(()),
    };
    limits::count_filesystems(change, from, filesystems.wrapping_neg())?;
    limits::count_filesystems(change, to, filesystems)?;
    limits::count_snapshots(change, from, snapshots.wrapping_neg())?;
    limits::count_snapshots(change, to, snapshots)
}

fn move_space(change: &Change<'_>, dir: &DirPhys, to: ObjectId) -> Result<()> {
    let all = Space::from_counts([dir.used, dir.compressed, dir.uncompressed]);
    let unused = Space::only_used(signed(dir.reserved.saturating_sub(dir.used)));
    change.add_space(dir.parent, For::Children, -all)?;
    change.add_space(to, For::Children, all)?;
    if unused != Space::default() {
        change.add_space(dir.parent, For::ChildReservations, -unused)?;
        change.add_space(to, For::ChildReservations, unused)?;
    }
    Ok(())
}

/// Gives a snapshot another name; with `below`, those of the same name of all heads below too.
pub fn rename_snapshot(change: &Change<'_>, name: &str, to: &str, below: bool) -> Result<()> {
    let missing = || Error::NoSuchDataset { name: name.to_owned() };
    let (path, from) = name.split_once('@').ok_or_else(missing)?;
    let head = change.find_head(path)?;
    change.snapshot_of(head.dataset, from)?.ok_or_else(missing)?;
    let mut found = Vec::new();
    let heads =
        if below { heads_below(change, head.dir, path)? } else { vec![(head, path.to_owned())] };
    for (head, path) in heads {
        names::judge_snapshot(&path, to)?;
        let Some(id) = change.snapshot_of(head.dataset, from)? else { continue };
        if change.snapshot_of(head.dataset, to)?.is_some() {
            return Err(Error::Exists { name: format!("{path}@{to}") });
        }
        found.push((head, id));
    }
    for (head, id) in found {
        let table = change.dataset(head.dataset)?.snapshot_names;
        // it may be written otherwise in the table
        change.remove(table, &change.snapshot_part(id)?)?;
        change.insert(table, to, id.get())?;
        snapshot::note_snapshots_changed(change, head.dir)?;
    }
    Ok(())
}

/// A head and all heads below it, with their paths; the pool's own and half received ones are
/// left out.
pub(crate) fn heads_below(
    change: &Change<'_>,
    dir: ObjectId,
    path: &str,
) -> Result<Vec<(names::Head, String)>> {
    let mut found = Vec::new();
    let mut waiting = vec![(dir, path.to_owned())];
    while let Some((dir, path)) = waiting.pop() {
        if found.len() > 1 << 20 {
            return Err(Error::Circle { object: dir, what: "directories" });
        }
        let record = change.dir(dir)?;
        for entry in change.entries(record.children)? {
            let hidden = entry.name.starts_with(b"$") || entry.name.starts_with(b"%");
            if let (false, Some(child)) = (hidden, entry.value.u64()) {
                let name = String::from_utf8_lossy(&entry.name);
                waiting.push((ObjectId::new(child), format!("{path}/{name}")));
            }
        }
        if record.head.exists() {
            found.push((names::Head { dir, dataset: record.head }, path));
        }
    }
    Ok(found)
}
