//! New directories and datasets.
//!
//! Every dataset begins as a clone: of the snapshot it is made from, or of the pool's snapshot of
//! nothing, `$ORIGIN@$ORIGIN`. What is reached only through the origin is none of its own space.

use ondisk::dsl::{Dataset as DatasetPhys, Dir as DirPhys};
use ondisk::feature::Feature;
use ondisk::{Blkptr, ObjectType, version};
use units::{ObjectId, ObjsetId, Txg};

use super::change::{Change, DIRECTORY, log_of};
use super::features::{self, guid};
use super::names::{self, Head};
use super::{deadlist, keys, limits};
use crate::dir::extension;
use crate::{Error, Result};

/// Makes an empty file system's or volume's dataset. Its content is made by the floors above, and
/// written with a [`super::DatasetLedger`].
pub fn create(change: &Change<'_>, name: &str) -> Result<ObjsetId> {
    names::judge_path(name)?;
    let (above, part) = names::split_last(name)?;
    let parent = change.find_head(above)?;
    judge_new(change, parent.dir, name, part)?;
    let head = new_head(change, parent.dir, part, None)?;
    Ok(ObjsetId::new(head.dataset.get()))
}

/// Makes a file system or volume with the content of a snapshot, which it shares. The intent log
/// that the snapshot may have a part of is not the clone's: whoever calls empties it in the same
/// group, for which an encrypted one's key is needed ([`log_bars`]).
pub fn clone(change: &Change<'_>, name: &str, origin: &str) -> Result<ObjsetId> {
    names::judge_path(name)?;
    let (above, part) = names::split_last(name)?;
    let parent = change.find_head(above)?;
    judge_new(change, parent.dir, name, part)?;
    let (_, snapshot) = change.find_snapshot(origin)?;
    if change.dataset(snapshot)?.creation_txg >= change.txg() {
        // the clone's root block, which is written at once, would be taken for the snapshot's
        return Err(Error::TooSoon { name: origin.to_owned() });
    }
    let origin = snapshot;
    let head = new_head(change, parent.dir, part, Some(origin))?;
    Ok(ObjsetId::new(head.dataset.get()))
}

/// Says of a head, whose content is not made yet, that names in it are compared without case.
pub fn make_caseless(change: &Change<'_>, dataset: ObjsetId) -> Result<()> {
    let id = ObjectId::new(dataset.get());
    change.change_dataset(id, |dataset| dataset.flags |= DatasetPhys::CASELESS)
}

/// Refuses a snapshot with a part of an intent log whose root block cannot be written without a
/// key: whoever follows it would take the log for its own. None: the latest of the head.
pub fn log_bars(change: &Change<'_>, head: &str, snapshot: Option<&str>) -> Result<()> {
    let snapshot = match snapshot {
        Some(name) => change.find_snapshot(name)?.1,
        None => change.dataset(change.find_head(head)?.dataset)?.previous,
    };
    if !snapshot.exists() {
        return Ok(());
    }
    let encrypted = super::snapshot::encrypted(change, change.dataset(snapshot)?.dir)?;
    if encrypted && log_of(change, snapshot)?.is_some() {
        let name = change.snapshot_part(snapshot)?;
        return Err(Error::Busy { name, why: "it is locked, and has a part of an intent log" });
    }
    Ok(())
}

fn judge_new(change: &Change<'_>, parent: ObjectId, name: &str, part: &str) -> Result<()> {
    if change.number(change.dir(parent)?.children, part)?.is_some() {
        return Err(Error::Exists { name: name.to_owned() });
    }
    Ok(())
}

/// Makes a directory with a head, empty or with the content of a snapshot.
pub(crate) fn new_head(
    change: &Change<'_>,
    parent: ObjectId,
    part: &str,
    origin: Option<ObjectId>,
) -> Result<Head> {
    let dir = new_dir(change, parent, part)?;
    let dataset = new_dataset(change, dir, origin)?;
    if origin.is_some() && features::is_enabled(change, guid::LIVELIST)? {
        // counted first: the lists in it are then of the form that livelists need
        features::add(change, guid::LIVELIST)?;
        let livelist = deadlist::create(change)?;
        change.set_field(dir, DirPhys::LIVELIST, &[livelist.get()])?;
    }
    if features::is_active(change, guid::LIMITS)? {
        for count in [DirPhys::FILESYSTEM_COUNT, DirPhys::SNAPSHOT_COUNT] {
            change.set_field(dir, count, &[0])?;
        }
    }
    Ok(Head { dir, dataset })
}

/// Makes a directory without a head. `parent` is none for the topmost.
pub(crate) fn new_dir(change: &Change<'_>, parent: ObjectId, part: &str) -> Result<ObjectId> {
    let mut new = DirPhys {
        creation_time: change.now.seconds,
        parent,
        flags: if change.version >= version::USED_BREAKDOWN { DirPhys::BREAKDOWN } else { 0 },
        ..DirPhys::default()
    };
    let dir = change.new_record(ObjectType::DSL_DIR, new.encode())?;
    if parent.exists() {
        change.insert(change.dir(parent)?.children, part, dir.get())?;
        if !part.starts_with('$') {
            limits::count_filesystems(change, parent, 1)?;
        }
    } else {
        change.insert(DIRECTORY, part, dir.get())?;
    }
    new.properties = change.new_table(ObjectType::DSL_PROPS)?;
    new.children = change.new_table(ObjectType::DSL_DIR_CHILD_MAP)?;
    change.change_dir(dir, |dir| *dir = new)?;
    Ok(dir)
}

/// Makes the head of a directory that has none.
pub(crate) fn new_dataset(
    change: &Change<'_>,
    dir: ObjectId,
    origin: Option<ObjectId>,
) -> Result<ObjectId> {
    let origin = match origin {
        Some(origin) => Some(origin),
        None => nothing(change)?,
    };
    let mut new = DatasetPhys {
        dir,
        fsid_guid: change.new_fsid(),
        guid: change.new_guid(),
        creation_time: change.now.seconds,
        creation_txg: change.creation_txg(),
        flags: flags_of_head(change),
        ..empty()
    };
    let dataset = change.new_record(ObjectType::DSL_DATASET, new.encode())?;
    new.snapshot_names = change.new_caseless_table(ObjectType::DSL_DATASET_SNAP_MAP)?;
    match origin {
        Some(origin) => begin_as_clone(change, dir, dataset, &mut new, origin)?,
        None => new.deadlist = deadlist::create(change)?,
    }
    change.change_dataset(dataset, |dataset| *dataset = new)?;
    change.change_dir(dir, |dir| dir.head = dataset)?;
    Ok(dataset)
}

/// The flags of a head whose unique bytes are exact: pools know them since version 9.
pub(crate) fn flags_of_head(change: &Change<'_>) -> u64 {
    if change.version >= version::UNIQUE_ACCURATE { DatasetPhys::UNIQUE_ACCURATE } else { 0 }
}

/// A dataset of which nothing is known.
pub(crate) fn empty() -> DatasetPhys {
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
pub(crate) fn nothing(change: &Change<'_>) -> Result<Option<ObjectId>> {
    let children = change.dir(change.root()?)?.children;
    let Some(dir) = change.number(children, "$ORIGIN")? else { return Ok(None) };
    let head = change.dir(ObjectId::new(dir))?.head;
    if !head.exists() {
        return Ok(None);
    }
    let previous = change.dataset(head)?.previous;
    Ok(Some(previous).filter(|previous| previous.exists()))
}

fn begin_as_clone(
    change: &Change<'_>,
    dir: ObjectId,
    dataset: ObjectId,
    new: &mut DatasetPhys,
    origin: ObjectId,
) -> Result<()> {
    let from = change.dataset(origin)?;
    new.previous = origin;
    new.previous_txg = from.creation_txg;
    (new.referenced, new.compressed, new.uncompressed) =
        (from.referenced, from.compressed, from.uncompressed);
    new.root = from.root.clone();
    new.flags |= from.flags & (DatasetPhys::INCONSISTENT | DatasetPhys::CASELESS);
    copy_features(change, origin, dataset)?;
    let origin_head = change.dataset(change.dir(from.dir)?.head)?;
    let end = Some(new.previous_txg);
    new.deadlist = deadlist::create_like(change, origin_head.deadlist, end, origin)?;
    change.change_dataset(origin, |it| it.children = it.children.saturating_add(1))?;
    change.change_dir(dir, |dir| dir.origin = origin)?;
    if change.version >= version::NEXT_CLONES {
        let next_clones = change.table_or_new(from.next_clones, ObjectType::NEXT_CLONES)?;
        change.insert_member(next_clones, dataset.get())?;
        change.change_dataset(origin, |origin| origin.next_clones = next_clones)?;
    }
    if change.version >= version::DEADLISTS {
        let clones = change.table_or_new(change.dir(from.dir)?.clones, ObjectType::DSL_CLONES)?;
        change.insert_member(clones, dataset.get())?;
        change.change_dir(from.dir, |dir| dir.clones = clones)?;
    }
    keys::share(change, from.dir, dir)
}

/// The features that a dataset itself uses, with what it says of each.
pub(crate) fn features_of(
    change: &Change<'_>,
    dataset: ObjectId,
) -> Result<Vec<(&'static Feature, Vec<u64>)>> {
    let object = change.object(dataset)?;
    let mut found = Vec::new();
    for feature in ondisk::feature::FEATURES.iter().filter(|feature| feature.per_dataset) {
        if let Some(value) = extension(&object, feature.guid)? {
            found.push((feature, value.u64s()));
        }
    }
    Ok(found)
}

/// Says that a dataset uses a feature, as it does now.
pub(crate) fn set_feature(
    change: &Change<'_>,
    dataset: ObjectId,
    feature: &Feature,
    numbers: &[u64],
) -> Result<()> {
    features::add_use(change, feature)?;
    change.set_field(dataset, feature.guid, numbers)
}

/// Says that a dataset uses a feature, where that is not said yet.
pub(crate) fn note_feature(
    change: &Change<'_>,
    dataset: ObjectId,
    feature: &Feature,
) -> Result<()> {
    if change.field(dataset, feature.guid)?.is_some() {
        return Ok(());
    }
    set_feature(change, dataset, feature, &[0])
}

/// Says no more that a dataset uses a feature.
pub(crate) fn remove_feature(
    change: &Change<'_>,
    dataset: ObjectId,
    feature: &Feature,
) -> Result<()> {
    change.remove_field(dataset, feature.guid)?;
    features::take_use(change, feature)
}

/// Says of a dataset that it uses what another uses.
pub(crate) fn copy_features(change: &Change<'_>, from: ObjectId, to: ObjectId) -> Result<()> {
    let all = features_of(change, from)?;
    all.into_iter().try_for_each(|(feature, numbers)| set_feature(change, to, feature, &numbers))
}
