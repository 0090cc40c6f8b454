//! New directories and datasets.
//!
//! Every dataset begins as a clone: of its origin, or of the pool's empty snapshot,
//! `$ORIGIN@$ORIGIN`. Blocks that are referenced only through the origin are not its own space.

use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use ondisk::feature::Feature;
use ondisk::{Blkptr, ObjectType, version};
use units::{ObjectId, ObjsetId, Txg};

use super::context::{POOL_DIRECTORY, SyncTaskContext, log_header};
use super::features::{self, guid};
use super::names::{self, HeadIds};
use super::space::add_signed;
use super::{deadlist, keys, limits};
use crate::dir::read_zap_field;
use crate::{Error, Result};

/// Makes an empty file system's or volume's dataset. Its content is made by the floors above, and
/// written with a [`super::DatasetLedger`].
pub fn create_dataset(change: &SyncTaskContext<'_>, name: &str) -> Result<ObjsetId> {
    names::check_path(name)?;
    let (above, part) = names::split_parent(name)?;
    let parent = change.find_head(above)?;
    check_name_free(change, parent.dir, name, part)?;
    let head = create_head(change, parent.dir, part, None)?;
    Ok(ObjsetId::new(head.dataset.get()))
}

/// Creates a file system or volume that shares the content of a snapshot. The snapshot may have a
/// part of an intent log, which does not belong to the clone: the caller empties it in the same
/// txg. For an encrypted one that needs the key ([`check_no_partial_log`]).
pub fn create_clone(change: &SyncTaskContext<'_>, name: &str, origin: &str) -> Result<ObjsetId> {
    names::check_path(name)?;
    let (above, part) = names::split_parent(name)?;
    let parent = change.find_head(above)?;
    check_name_free(change, parent.dir, name, part)?;
    let (_, snapshot) = change.find_snapshot(origin)?;
    if change.dataset_phys(snapshot)?.creation_txg >= change.txg() {
        // the clone's root block, which is written at once, would be taken for the snapshot's
        return Err(Error::SnapshotInSameTxg { name: origin.to_owned() });
    }
    let origin = snapshot;
    let head = create_head(change, parent.dir, part, Some(origin))?;
    Ok(ObjsetId::new(head.dataset.get()))
}

/// Marks a head, whose content does not exist yet, as case-insensitive.
pub fn set_case_insensitive(change: &SyncTaskContext<'_>, dataset: ObjsetId) -> Result<()> {
    let id = ObjectId::new(dataset.get());
    change.update_dataset(id, |dataset| dataset.flags |= DatasetPhys::CASELESS)
}

/// Refuses a snapshot with a part of an intent log whose root block cannot be written without a
/// key: the clone would replay the log as its own. None: the latest of the head.
pub fn check_no_partial_log(
    change: &SyncTaskContext<'_>,
    head: &str,
    snapshot: Option<&str>,
) -> Result<()> {
    let snapshot = match snapshot {
        Some(name) => change.find_snapshot(name)?.1,
        None => change.dataset_phys(change.find_head(head)?.dataset)?.previous,
    };
    if !snapshot.exists() {
        return Ok(());
    }
    let encrypted = super::snapshot::is_encrypted(change, change.dataset_phys(snapshot)?.dir)?;
    if encrypted && log_header(change, snapshot)?.is_some() {
        let name = change.snapshot_name(snapshot)?;
        return Err(Error::Busy { name, why: "it is locked, and has a part of an intent log" });
    }
    Ok(())
}

fn check_name_free(
    change: &SyncTaskContext<'_>,
    parent: ObjectId,
    name: &str,
    part: &str,
) -> Result<()> {
    if change.lookup_u64(change.dir_phys(parent)?.children, part)?.is_some() {
        return Err(Error::Exists { name: name.to_owned() });
    }
    Ok(())
}

/// Makes a directory with a head, empty or with the content of a snapshot.
pub(crate) fn create_head(
    change: &SyncTaskContext<'_>,
    parent: ObjectId,
    part: &str,
    origin: Option<ObjectId>,
) -> Result<HeadIds> {
    let dir = create_dir(change, parent, part)?;
    let dataset = create_head_dataset(change, dir, origin)?;
    if origin.is_some() && features::is_enabled(change, guid::LIVELIST)? {
        // counted first: the lists in it are then of the form that livelists need
        features::increment(change, guid::LIVELIST)?;
        let livelist = deadlist::create(change)?;
        change.set_zap_field(dir, DirPhys::LIVELIST, &[livelist.get()])?;
    }
    if features::is_active(change, guid::LIMITS)? {
        for count in [DirPhys::FILESYSTEM_COUNT, DirPhys::SNAPSHOT_COUNT] {
            change.set_zap_field(dir, count, &[0])?;
        }
    }
    Ok(HeadIds { dir, dataset })
}

/// Makes a directory without a head. `parent` is none for the topmost.
pub(crate) fn create_dir(
    change: &SyncTaskContext<'_>,
    parent: ObjectId,
    part: &str,
) -> Result<ObjectId> {
    let mut new = DirPhys {
        creation_time: change.now.seconds,
        parent,
        flags: if change.version >= version::USED_BREAKDOWN { DirPhys::BREAKDOWN } else { 0 },
        ..DirPhys::default()
    };
    let dir = change.create_bonus_object(ObjectType::DSL_DIR, new.encode())?;
    if parent.exists() {
        change.insert_u64(change.dir_phys(parent)?.children, part, dir.get())?;
        if !part.starts_with('$') {
            limits::adjust_filesystem_count(change, parent, 1)?;
        }
    } else {
        change.insert_u64(POOL_DIRECTORY, part, dir.get())?;
    }
    new.properties = change.create_zap(ObjectType::DSL_PROPS)?;
    new.children = change.create_zap(ObjectType::DSL_DIR_CHILD_MAP)?;
    change.update_dir(dir, |dir| *dir = new)?;
    Ok(dir)
}

/// Makes the head of a directory that has none.
pub(crate) fn create_head_dataset(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    origin: Option<ObjectId>,
) -> Result<ObjectId> {
    let origin = match origin {
        Some(origin) => Some(origin),
        None => origin_snapshot(change)?,
    };
    let mut new = DatasetPhys {
        dir,
        fsid_guid: change.new_fsid(),
        guid: change.new_guid(),
        creation_time: change.now.seconds,
        creation_txg: change.creation_txg(),
        flags: head_flags(change),
        ..empty_phys()
    };
    let dataset = change.create_bonus_object(ObjectType::DSL_DATASET, new.encode())?;
    new.snapshot_names = change.create_case_insensitive_zap(ObjectType::DSL_DATASET_SNAP_MAP)?;
    match origin {
        Some(origin) => init_as_clone(change, dir, dataset, &mut new, origin)?,
        None => new.deadlist = deadlist::create(change)?,
    }
    change.update_dataset(dataset, |dataset| *dataset = new)?;
    change.update_dir(dir, |dir| dir.head = dataset)?;
    Ok(dataset)
}

/// The flags of a head whose unique bytes are exact: pools know them since version 9.
pub(crate) fn head_flags(change: &SyncTaskContext<'_>) -> u64 {
    if change.version >= version::UNIQUE_ACCURATE { DatasetPhys::UNIQUE_ACCURATE } else { 0 }
}

/// A dataset of which nothing is known.
pub(crate) fn empty_phys() -> DatasetPhys {
    DatasetPhys {
        dir: ObjectId::META,
        previous: ObjectId::META,
        previous_txg: Txg::ZERO,
        next: ObjectId::META,
        snapshot_names: ObjectId::META,
        children: 0,
        creation_time: 0,
        creation_txg: Txg::ZERO,
        deadlist: ObjectId::META,
        referenced: 0,
        compressed: 0,
        uncompressed: 0,
        unique: 0,
        fsid_guid: 0,
        guid: units::Guid::new(0),
        flags: 0,
        root: Blkptr::EMPTY,
        next_clones: ObjectId::META,
        properties: ObjectId::META,
        holds: ObjectId::META,
    }
}

/// The snapshot of nothing; a pool that is just being made has none yet.
pub(crate) fn origin_snapshot(change: &SyncTaskContext<'_>) -> Result<Option<ObjectId>> {
    let children = change.dir_phys(change.root_dir()?)?.children;
    let Some(dir) = change.lookup_u64(children, "$ORIGIN")? else { return Ok(None) };
    let head = change.dir_phys(ObjectId::new(dir))?.head;
    if !head.exists() {
        return Ok(None);
    }
    let previous = change.dataset_phys(head)?.previous;
    Ok(Some(previous).filter(|previous| previous.exists()))
}

fn init_as_clone(
    change: &SyncTaskContext<'_>,
    dir: ObjectId,
    dataset: ObjectId,
    new: &mut DatasetPhys,
    origin: ObjectId,
) -> Result<()> {
    let from = change.dataset_phys(origin)?;
    new.previous = origin;
    new.previous_txg = from.creation_txg;
    (new.referenced, new.compressed, new.uncompressed) =
        (from.referenced, from.compressed, from.uncompressed);
    new.root = from.root.clone();
    new.flags |= from.flags & (DatasetPhys::INCONSISTENT | DatasetPhys::CASELESS);
    copy_features(change, origin, dataset)?;
    let origin_head = change.dataset_phys(change.dir_phys(from.dir)?.head)?;
    let end = Some(new.previous_txg);
    new.deadlist = deadlist::clone_empty(change, origin_head.deadlist, end, origin)?;
    change.update_dataset(origin, |it| add_signed(&mut it.children, 1))?;
    change.update_dir(dir, |dir| dir.origin = origin)?;
    if change.version >= version::NEXT_CLONES {
        let next_clones = change.zap_or_create(from.next_clones, ObjectType::NEXT_CLONES)?;
        change.insert_member(next_clones, dataset.get())?;
        change.update_dataset(origin, |origin| origin.next_clones = next_clones)?;
    }
    if change.version >= version::DEADLISTS {
        let clones =
            change.zap_or_create(change.dir_phys(from.dir)?.clones, ObjectType::DSL_CLONES)?;
        change.insert_member(clones, dataset.get())?;
        change.update_dir(from.dir, |dir| dir.clones = clones)?;
    }
    keys::add_key_reference(change, from.dir, dir)
}

/// The features of a dataset itself, with the value of each.
pub(crate) fn dataset_features(
    change: &SyncTaskContext<'_>,
    dataset: ObjectId,
) -> Result<Vec<(&'static Feature, Vec<u64>)>> {
    let object = change.object(dataset)?;
    let mut found = Vec::new();
    for feature in ondisk::feature::FEATURES.iter().filter(|feature| feature.per_dataset) {
        if let Some(value) = read_zap_field(&object, feature.guid)? {
            found.push((feature, value.u64s()));
        }
    }
    Ok(found)
}

/// Activates a feature of a dataset.
pub(crate) fn activate_feature(
    change: &SyncTaskContext<'_>,
    dataset: ObjectId,
    feature: &Feature,
    numbers: &[u64],
) -> Result<()> {
    features::increment_feature(change, feature)?;
    change.set_zap_field(dataset, feature.guid, numbers)
}

/// Activates a feature of a dataset, if it is not active yet.
pub(crate) fn ensure_feature_active(
    change: &SyncTaskContext<'_>,
    dataset: ObjectId,
    feature: &Feature,
) -> Result<()> {
    if change.zap_field(dataset, feature.guid)?.is_some() {
        return Ok(());
    }
    activate_feature(change, dataset, feature, &[0])
}

/// Deactivates a feature of a dataset.
pub(crate) fn deactivate_feature(
    change: &SyncTaskContext<'_>,
    dataset: ObjectId,
    feature: &Feature,
) -> Result<()> {
    change.remove_zap_field(dataset, feature.guid)?;
    features::decrement_feature(change, feature)
}

/// Activates the features of another dataset.
pub(crate) fn copy_features(
    change: &SyncTaskContext<'_>,
    from: ObjectId,
    to: ObjectId,
) -> Result<()> {
    let all = dataset_features(change, from)?;
    all.into_iter()
        .try_for_each(|(feature, numbers)| activate_feature(change, to, feature, &numbers))
}
