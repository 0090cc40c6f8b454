//! Structures that pools of old versions lack, made when such a pool gets a newer version.
//!
//! * Version 11: the snapshot of nothing (`$ORIGIN@$ORIGIN`), from which every dataset descends, and for each
//!   snapshot the table of its clones.
//! * Version 26: the directory `$FREE` and the list of blocks to free, and for each directory the table of clones of
//!   its snapshots.
//!
//! Deadlists keep their old form until the next snapshot ([`super::old_deadlist`]).
//!
//! Learnt from: `dsl_pool_create_origin`, `dsl_pool_upgrade_clones` and `dsl_pool_upgrade_dir_clones` of OpenZFS 2.3.2.
//! Proved by: the engine's `tests/it/old.rs`, with pools of versions 1 to 15, `check` and `zdb`.

use ondisk::{ObjectType, version};
use units::ObjectId;

use super::context::{POOL_DIRECTORY, SyncTaskContext};
use super::create::{create_dir, create_head_dataset, origin_snapshot};
use super::pool::FREE_BPOBJ;
use super::space::add_signed;
use super::{bpobj, snapshot};
use crate::{Error, Result};

/// More directories within each other than names have room for.
const MAX_DEPTH: usize = 256;

/// Makes what a pool of version `new` has and one of the version of `change` lacks.
pub fn upgrade_structures(change: &SyncTaskContext<'_>, new: u64) -> Result<()> {
    let old = change.version;
    let change = &change.with_version(new);
    let is_crossed = |version| old < version && new >= version;
    let root_dir = change.root_dir()?;
    if is_crossed(version::NEXT_CLONES) {
        let dir = create_dir(change, root_dir, "$ORIGIN")?;
        let nothing = create_head_dataset(change, dir, None)?;
        snapshot::create_origin_snapshot(change, nothing)?;
    }
    let heads = find_heads(change, root_dir)?;
    if is_crossed(version::NEXT_CLONES) {
        let origin = origin_snapshot(change)?.ok_or(Error::NoDirectoryEntry { name: "$ORIGIN" })?;
        heads.iter().try_for_each(|head| list_as_clone(change, *head, origin))?;
    }
    if is_crossed(version::DEADLISTS) {
        create_dir(change, root_dir, "$FREE")?;
        let list = bpobj::create(change)?;
        change.insert_u64(POOL_DIRECTORY, FREE_BPOBJ, list.get())?;
        heads.iter().try_for_each(|head| list_in_origin_dir(change, *head))?;
    }
    Ok(())
}

/// The heads of all file systems and volumes.
fn find_heads(change: &SyncTaskContext<'_>, root_dir: ObjectId) -> Result<Vec<ObjectId>> {
    let (mut heads, mut waiting) = (Vec::new(), vec![(root_dir, 0)]);
    while let Some((dir, depth)) = waiting.pop() {
        if depth > MAX_DEPTH {
            return Err(Error::Cycle { object: dir, links: "directories" });
        }
        let phys = change.dir_phys(dir)?;
        if phys.head.exists() {
            heads.push(phys.head);
        }
        for entry in change.zap_entries(phys.children)? {
            // the pool's own directories are no datasets
            if let Some(child) = entry.value.u64().filter(|_| !entry.name.starts_with(b"$")) {
                waiting.push((ObjectId::new(child), depth + 1));
            }
        }
    }
    Ok(heads)
}

/// Puts a head, or the oldest snapshot in front of it, into the table of the snapshot that it descends from, which is
/// `nothing` where it has none.
fn list_as_clone(change: &SyncTaskContext<'_>, head: ObjectId, nothing: ObjectId) -> Result<()> {
    let mut oldest = (head, change.dataset_phys(head)?);
    let origin = loop {
        let previous = oldest.1.previous;
        if !previous.exists() {
            break adopt(change, oldest.0, nothing)?;
        }
        let phys = change.dataset_phys(previous)?;
        if phys.next != oldest.0 {
            break previous;
        }
        if phys.creation_txg >= oldest.1.creation_txg && oldest.0 != head {
            return Err(Error::Cycle { object: previous, links: "snapshots" });
        }
        oldest = (previous, phys);
    };
    let table = change.dataset_phys(origin)?.next_clones;
    let table = change.zap_or_create(table, ObjectType::NEXT_CLONES)?;
    change.insert_member(table, oldest.0.get())?;
    change.update_dataset(origin, |origin| origin.next_clones = table)
}

/// Has a dataset without predecessor descend from the snapshot of nothing.
fn adopt(change: &SyncTaskContext<'_>, dataset: ObjectId, nothing: ObjectId) -> Result<ObjectId> {
    let born = change.dataset_phys(nothing)?.creation_txg;
    let dir = change.update_dataset(dataset, |it| {
        (it.previous, it.previous_txg) = (nothing, born);
        it.dir
    })?;
    change.update_dir(dir, |dir| dir.origin = nothing)?;
    change.update_dataset(nothing, |it| add_signed(&mut it.children, 1))?;
    Ok(nothing)
}

/// Puts a head into the table of the directory whose snapshot it is a clone of.
fn list_in_origin_dir(change: &SyncTaskContext<'_>, head: ObjectId) -> Result<()> {
    let dir = change.dataset_phys(head)?.dir;
    let origin = change.dir_phys(dir)?.origin;
    if !origin.exists() {
        return Ok(());
    }
    let of = change.dataset_phys(origin)?.dir;
    let table = change.zap_or_create(change.dir_phys(of)?.clones, ObjectType::DSL_CLONES)?;
    change.insert_member(table, head.get())?;
    change.update_dir(of, |dir| dir.clones = table)
}
