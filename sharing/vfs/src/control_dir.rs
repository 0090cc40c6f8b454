//! `.zfs`: the control directory in the root of each file system, which is not listed.
//!
//! ```text
//! .zfs/snapshot/NAME   the root of a snapshot
//! .zfs/shadow/@GMT-... the root of a snapshot, named by its creation time (see `shadow`)
//! .zfs/volume/NAME     a volume just below the file system, as a file
//! ```
//!
//! OpenZFS has neither `shadow` nor `volume`. `shadow` can be looked up, and is not listed; a [`DatasetTree`] does not
//! have it.

use crate::tree_dataset::TreeDataset;
use crate::vnode::Vnode;
use crate::{DatasetTree, Error, Result};

pub(crate) const CONTROL_DIR: &[u8] = b".zfs";
pub(crate) const SNAPSHOT_DIR: &[u8] = b"snapshot";
pub(crate) const SHADOW_DIR: &[u8] = b"shadow";
pub(crate) const VOLUME_DIR: &[u8] = b"volume";

/// The object of a name in a directory that no dataset stores.
pub(crate) fn lookup(
    tree: &DatasetTree,
    node: Vnode,
    dataset: &TreeDataset,
    name: &[u8],
) -> Result<Vnode> {
    match node {
        Vnode::ControlDir(place) if name == SNAPSHOT_DIR => Ok(Vnode::SnapshotDir(place)),
        Vnode::ControlDir(place) if name == VOLUME_DIR && !dataset.volumes.is_empty() => {
            Ok(Vnode::VolumeDir(place))
        }
        Vnode::ControlDir(_) | Vnode::ShadowDir(_) => Err(Error::NotFound),
        Vnode::SnapshotDir(_) => {
            let names = dataset.snapshots(tree.catalog())?;
            let found =
                names.iter().find(|known| known.as_bytes() == name).ok_or(Error::NotFound)?;
            let place = tree.snapshot_index(dataset, found)?;
            Ok(tree.root_vnode(&*tree.dataset(place)?))
        }
        Vnode::VolumeDir(_) => dataset.volume(name).map(Vnode::Volume).ok_or(Error::NotFound),
        Vnode::Unopened(_) => match dataset.child(name) {
            Some(child) => Ok(tree.root_vnode(&*tree.dataset(child)?)),
            None => Err(open_error(tree, dataset)),
        },
        Vnode::File(..) | Vnode::Volume(_) => Err(Error::NotDirectory),
    }
}

/// Why a dataset is closed.
pub(crate) fn open_error(tree: &DatasetTree, dataset: &TreeDataset) -> Error {
    tree.files(dataset).err().unwrap_or(Error::NotFound)
}
