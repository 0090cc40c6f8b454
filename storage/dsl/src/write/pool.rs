//! The directories and datasets of a new pool.
//!
//! ```text
//! root_dataset        the topmost directory, with the pool's own file system
//! ├ $MOS              what the MOS uses; no dataset
//! ├ $FREE             what waits to be freed; no dataset
//! └ $ORIGIN           a dataset of nothing, whose snapshot every other begins as a clone of
//! free_bpobj          the list of what waits to be freed
//! features_for_...    the features' tables
//! ```
//!
//! A pool of a legacy version gets only what its version has.

use ondisk::feature::{Feature, VERSION_FEATURES};
use ondisk::version;
use units::{ObjectId, ObjsetId};

use super::context::{POOL_DIRECTORY, SyncTaskContext};
use super::create::{create_dir, create_head_dataset};
use super::space::{SpaceDelta, UsedBy};
use super::{bpobj, features, snapshot};
use crate::{Error, Result};

/// The name of the list of blocks to free.
pub(crate) const FREE_BPOBJ: &str = "free_bpobj";
const ROOT_DATASET: &str = "root_dataset";

/// Creates the directories and datasets of a new pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewPoolObjects {
    /// The topmost directory.
    pub root_dir: ObjectId,
    /// The directory that counts the space of the MOS.
    pub mos_dir: ObjectId,
    /// The directory that counts the blocks to be freed later, and the list of these blocks: since version 26.
    pub free: Option<(ObjectId, ObjectId)>,
    /// The snapshot of nothing: since version 11.
    pub origin_snapshot: Option<ObjsetId>,
    /// The pool's own file system. Its content is still to be made, and written with a
    /// [`super::DatasetLedger`].
    pub root_objset: ObjsetId,
}

/// Makes them in a MOS that has nothing but an empty table as object 1, and enables features.
pub fn create_pool_objects(
    change: &SyncTaskContext<'_>,
    enable: &[&'static Feature],
) -> Result<NewPoolObjects> {
    let root_dir = create_dir(change, ObjectId::META, ROOT_DATASET)?;
    let mos_dir = create_dir(change, root_dir, "$MOS")?;
    let mut free = None;
    if change.version >= version::DEADLISTS {
        let free_dir = create_dir(change, root_dir, "$FREE")?;
        let free_list = bpobj::create(change)?;
        change.insert_u64(POOL_DIRECTORY, FREE_BPOBJ, free_list.get())?;
        free = Some((free_dir, free_list));
    }
    let mut origin = None;
    if change.version >= version::NEXT_CLONES {
        let dir = create_dir(change, root_dir, "$ORIGIN")?;
        let nothing = create_head_dataset(change, dir, None)?;
        origin = Some(snapshot::create_origin_snapshot(change, nothing)?);
    }
    if change.version >= VERSION_FEATURES {
        features::create_feature_zaps(change)?;
    }
    for feature in enable {
        features::enable(change, feature)?;
    }
    let root = create_head_dataset(change, root_dir, None)?;
    let to_objset = |id: ObjectId| ObjsetId::new(id.get());
    let (origin_snapshot, root_objset) = (origin.map(to_objset), to_objset(root));
    Ok(NewPoolObjects { root_dir, mos_dir, free, origin_snapshot, root_objset })
}

/// One of the pool's own directories: `$MOS`, `$FREE`.
pub(crate) fn special_dir(change: &SyncTaskContext<'_>, name: &'static str) -> Result<ObjectId> {
    let children = change.dir_phys(change.root_dir()?)?.children;
    let dir = change.lookup_u64(children, name)?.ok_or(Error::NoDirectoryEntry { name })?;
    Ok(ObjectId::new(dir))
}

/// Adds to the space of the MOS.
pub fn add_mos_space(change: &SyncTaskContext<'_>, delta: SpaceDelta) -> Result<()> {
    if delta == SpaceDelta::default() {
        return Ok(());
    }
    change.add_space(special_dir(change, "$MOS")?, UsedBy::Head, delta)
}
