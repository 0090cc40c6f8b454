//! What every pool has of directories and datasets from the beginning.
//!
//! ```text
//! root_dataset        the topmost directory, with the pool's own file system
//! ├ $MOS              what the MOS uses; no dataset
//! ├ $FREE             what waits to be freed; no dataset
//! └ $ORIGIN           a dataset of nothing, whose snapshot every other begins as a clone of
//! free_bpobj          the list of what waits to be freed
//! features_for_...    the features' tables
//! ```

use ondisk::feature::Feature;
use units::{ObjectId, ObjsetId};

use super::change::{Change, DIRECTORY};
use super::create::{new_dataset, new_dir};
use super::space::{For, Space};
use super::{features, list, snapshot};
use crate::{Error, Result};

/// The name of the list of what waits to be freed.
pub(crate) const FREE_LIST: &str = "free_bpobj";
const ROOT: &str = "root_dataset";

/// What a new pool has of directories and datasets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skeleton {
    /// The topmost directory.
    pub root_dir: ObjectId,
    /// The directory that counts what the MOS uses.
    pub mos_dir: ObjectId,
    /// The directory that counts what waits to be freed.
    pub free_dir: ObjectId,
    /// The list of what waits to be freed.
    pub free_list: ObjectId,
    /// The snapshot of nothing.
    pub origin: ObjsetId,
    /// The pool's own file system. Its content is still to be made, and written with a
    /// [`super::DatasetLedger`].
    pub root: ObjsetId,
}

/// Makes them in a MOS that has nothing but an empty table as object 1, and enables features.
pub fn create(change: &Change<'_>, enable: &[&'static Feature]) -> Result<Skeleton> {
    let root_dir = new_dir(change, ObjectId::META, ROOT)?;
    let mos_dir = new_dir(change, root_dir, "$MOS")?;
    let free_dir = new_dir(change, root_dir, "$FREE")?;
    let free_list = list::create(change)?;
    change.insert(DIRECTORY, FREE_LIST, free_list.get())?;
    let dir = new_dir(change, root_dir, "$ORIGIN")?;
    let nothing = new_dataset(change, dir, None)?;
    let origin = snapshot::of_nothing(change, nothing)?;
    features::create_tables(change)?;
    for feature in enable {
        features::enable(change, feature)?;
    }
    let root = new_dataset(change, root_dir, None)?;
    let [origin, root] = [origin, root].map(|id| ObjsetId::new(id.get()));
    Ok(Skeleton { root_dir, mos_dir, free_dir, free_list, origin, root })
}

/// One of the pool's own directories: `$MOS`, `$FREE`.
pub(crate) fn own_dir(change: &Change<'_>, name: &'static str) -> Result<ObjectId> {
    let children = change.dir(change.root()?)?.children;
    let dir = change.number(children, name)?.ok_or(Error::Missing { name })?;
    Ok(ObjectId::new(dir))
}

/// The MOS uses so much more than it did.
pub fn add_mos_space(change: &Change<'_>, delta: Space) -> Result<()> {
    if delta == Space::default() {
        return Ok(());
    }
    change.add_space(own_dir(change, "$MOS")?, For::Head, delta)
}
