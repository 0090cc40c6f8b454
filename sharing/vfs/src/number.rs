//! Numbers of nodes: unique over all datasets that a tree shows, as protocols want inode numbers.
//!
//! ```text
//! bits    meaning
//!  0-39   the object's number in its dataset; 0 for what is no object
//! 40-60   which of the tree's datasets, in the order in which the tree came to know them
//! 61-63   what: 0 a file of any kind, 1 the root of a dataset that is closed, 2 `.zfs`,
//!         3 `.zfs/snapshot`, 4 `.zfs/volume`, 5 a volume as a file
//! ```
//!
//! So the files of the dataset that is the tree's root have the numbers that OpenZFS shows, and
//! those of all others have them in their lower 40 bits. A file whose object has a higher number
//! (that takes 512 TiB of dnodes) cannot be shown.

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Node {
    /// A file of any kind.
    File(Place, u64),
    /// The root of a dataset that cannot be opened.
    Closed(Place),
    /// `.zfs` of a dataset.
    Control(Place),
    /// `.zfs/snapshot` of a dataset.
    Snapshots(Place),
    /// `.zfs/volume` of a dataset.
    Volumes(Place),
    /// A volume as a file.
    Volume(Place),
}

/// Which dataset of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// There can be so many.
    pub(crate) const MOST: u32 = 1 << 21;
}

const OBJECT_BITS: u32 = 40;
const KIND_SHIFT: u32 = 61;

impl Node {
    /// The number; none if the object's is too high.
    pub(crate) fn number(self) -> Option<u64> {
        let (kind, place, object) = match self {
            Self::File(place, object) => (0, place, object),
            Self::Closed(place) => (1, place, 0),
            Self::Control(place) => (2, place, 0),
            Self::Snapshots(place) => (3, place, 0),
            Self::Volumes(place) => (4, place, 0),
            Self::Volume(place) => (5, place, 0),
        };
        let fits = object < 1 << OBJECT_BITS && place.0 < Place::MOST;
        fits.then(|| kind << KIND_SHIFT | u64::from(place.0) << OBJECT_BITS | object)
    }

    /// What a number stands for, if anything.
    pub(crate) fn of(number: u64) -> Option<Self> {
        let object = number & ((1 << OBJECT_BITS) - 1);
        let place = (number >> OBJECT_BITS) & u64::from(Place::MOST - 1);
        let place = Place(u32::try_from(place).ok()?);
        match number >> KIND_SHIFT {
            0 => Some(Self::File(place, object)),
            1 => Some(Self::Closed(place)),
            2 => Some(Self::Control(place)),
            3 => Some(Self::Snapshots(place)),
            4 => Some(Self::Volumes(place)),
            5 => Some(Self::Volume(place)),
            _ => None,
        }
    }

    pub(crate) fn place(self) -> Place {
        match self {
            Self::File(place, _)
            | Self::Closed(place)
            | Self::Control(place)
            | Self::Snapshots(place)
            | Self::Volumes(place)
            | Self::Volume(place) => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, Place};

    #[test]
    fn numbers_stand_for_nodes() {
        let place = Place(Place::MOST - 1);
        for node in [
            Node::File(Place(0), 34),
            Node::File(place, (1 << 40) - 1),
            Node::Closed(place),
            Node::Control(Place(1)),
            Node::Snapshots(place),
            Node::Volumes(Place(3)),
            Node::Volume(place),
        ] {
            let number = node.number().expect("it fits");
            assert_eq!(Node::of(number), Some(node));
        }
        assert_eq!(Node::File(Place(0), 34).number(), Some(34));
        assert_eq!(Node::File(place, 1 << 40).number(), None);
        assert_eq!(Node::of(7 << 61), None);
    }
}
