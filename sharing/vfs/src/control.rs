//! `.zfs`: what is in the root of each file system, though it is not listed there.
//!
//! ```text
//! .zfs/snapshot/NAME   the root of a snapshot
//! .zfs/volume/NAME     a volume just below the file system, as a file (OpenZFS has no such thing)
//! ```

use crate::dataset::Dataset;
use crate::number::Node;
use crate::{Error, Result, Tree};

pub(crate) const NAME: &[u8] = b".zfs";
pub(crate) const SNAPSHOTS: &[u8] = b"snapshot";
pub(crate) const VOLUMES: &[u8] = b"volume";

/// What a name names in a directory that no dataset stores.
pub(crate) fn lookup(tree: &Tree, node: Node, dataset: &Dataset, name: &[u8]) -> Result<Node> {
    match node {
        Node::Control(place) if name == SNAPSHOTS => Ok(Node::Snapshots(place)),
        Node::Control(place) if name == VOLUMES && !dataset.volumes.is_empty() => {
            Ok(Node::Volumes(place))
        }
        Node::Control(_) => Err(Error::Absent),
        Node::Snapshots(_) => {
            let names = dataset.snapshots(tree.pool())?;
            let found = names.iter().find(|known| known.as_bytes() == name).ok_or(Error::Absent)?;
            let place = tree.snapshot(dataset, found)?;
            Ok(tree.root_of(&*tree.dataset(place)?))
        }
        Node::Volumes(_) => dataset.volume(name).map(Node::Volume).ok_or(Error::Absent),
        Node::Closed(_) => match dataset.child(name) {
            Some(child) => Ok(tree.root_of(&*tree.dataset(child)?)),
            None => Err(why_closed(tree, dataset)),
        },
        Node::File(..) | Node::Volume(_) => Err(Error::NotDirectory),
    }
}

/// Why a dataset is closed.
pub(crate) fn why_closed(tree: &Tree, dataset: &Dataset) -> Error {
    tree.files(dataset).err().unwrap_or(Error::Absent)
}
