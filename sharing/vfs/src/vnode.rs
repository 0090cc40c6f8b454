//! Numbers of nodes: unique over all datasets that a tree shows, as protocols want inode numbers.
//!
//! ```text
//! bits    meaning
//!  0-39   the object's number in its dataset; 0 for what is not an object
//! 40-60   which of the tree's datasets, in the order in which the tree came to know them
//! 61-63   what: 0 a file of any kind, 1 the root of a dataset that is closed, 2 `.zfs`,
//!         3 `.zfs/snapshot`, 4 `.zfs/volume`, 5 a volume as a file, 6 `.zfs/shadow`
//! ```
//!
//! So the files of the dataset that is the tree's root have the numbers that OpenZFS shows, and
//! all others have those in their lower 40 bits. A file whose object has a higher number
//! (that takes 512 TiB of dnodes) cannot be shown.

/// The object of an inode number.
use posix::Ino;
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Vnode {
    /// A file of any kind.
    File(DatasetIndex, u64),
    /// The root of a dataset that cannot be opened.
    Unopened(DatasetIndex),
    /// `.zfs` of a dataset.
    ControlDir(DatasetIndex),
    /// `.zfs/snapshot` of a dataset.
    SnapshotDir(DatasetIndex),
    /// `.zfs/volume` of a dataset.
    VolumeDir(DatasetIndex),
    /// A volume as a file.
    Volume(DatasetIndex),
    /// `.zfs/shadow` of a dataset.
    ShadowDir(DatasetIndex),
}

/// Which dataset of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DatasetIndex(pub(crate) u32);

impl DatasetIndex {
    /// The most datasets.
    pub(crate) const LIMIT: u32 = 1 << 21;
}

const OBJECT_BITS: u32 = 40;
const KIND_SHIFT: u32 = 61;

impl Vnode {
    /// The number; none if the object's is too high.
    pub(crate) fn ino(self) -> Option<Ino> {
        let (kind, place, object) = match self {
            Self::File(place, object) => (0, place, object),
            Self::Unopened(place) => (1, place, 0),
            Self::ControlDir(place) => (2, place, 0),
            Self::SnapshotDir(place) => (3, place, 0),
            Self::VolumeDir(place) => (4, place, 0),
            Self::Volume(place) => (5, place, 0),
            Self::ShadowDir(place) => (6, place, 0),
        };
        let fits = object < 1 << OBJECT_BITS && place.0 < DatasetIndex::LIMIT;
        fits.then(|| Ino::new(kind << KIND_SHIFT | u64::from(place.0) << OBJECT_BITS | object))
    }

    /// The object of an inode number, if it is valid.
    pub(crate) fn from_ino(number: Ino) -> Option<Self> {
        let number = number.get();
        let object = number & ((1 << OBJECT_BITS) - 1);
        let place = (number >> OBJECT_BITS) & u64::from(DatasetIndex::LIMIT - 1);
        let place = DatasetIndex(u32::try_from(place).ok()?);
        match number >> KIND_SHIFT {
            0 => Some(Self::File(place, object)),
            1 => Some(Self::Unopened(place)),
            2 => Some(Self::ControlDir(place)),
            3 => Some(Self::SnapshotDir(place)),
            4 => Some(Self::VolumeDir(place)),
            5 => Some(Self::Volume(place)),
            6 => Some(Self::ShadowDir(place)),
            _ => None,
        }
    }

    pub(crate) fn dataset_index(self) -> DatasetIndex {
        match self {
            Self::File(place, _)
            | Self::Unopened(place)
            | Self::ControlDir(place)
            | Self::SnapshotDir(place)
            | Self::VolumeDir(place)
            | Self::Volume(place)
            | Self::ShadowDir(place) => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use posix::Ino;

    use super::{DatasetIndex, Vnode};

    #[test]
    fn numbers_stand_for_nodes() {
        let place = DatasetIndex(DatasetIndex::LIMIT - 1);
        for node in [
            Vnode::File(DatasetIndex(0), 34),
            Vnode::File(place, (1 << 40) - 1),
            Vnode::Unopened(place),
            Vnode::ControlDir(DatasetIndex(1)),
            Vnode::SnapshotDir(place),
            Vnode::VolumeDir(DatasetIndex(3)),
            Vnode::Volume(place),
            Vnode::ShadowDir(place),
        ] {
            let number = node.ino().expect("it fits");
            assert_eq!(Vnode::from_ino(number), Some(node));
        }
        assert_eq!(Vnode::File(DatasetIndex(0), 34).ino(), Some(Ino::new(34)));
        assert_eq!(Vnode::File(place, 1 << 40).ino(), None);
        assert_eq!(Vnode::from_ino(Ino::new(7 << 61)), None);
    }
}
