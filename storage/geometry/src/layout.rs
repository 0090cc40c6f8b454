//! Any kind of top-level vdev, as far as arithmetic is concerned.

use crate::{Draid, Expandable};
use units::{Ashift, Txg};

/// How a top-level vdev lays out blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A single drive or a mirror: a block lies whole at its own offset on each child.
    Plain(Ashift),
    /// raidz1 to 3.
    Raidz(Expandable),
    /// dRAID.
    Draid(Draid),
}

impl Layout {
    /// log2 of the sector.
    pub fn ashift(&self) -> Ashift {
        match self {
            Self::Plain(ashift) => *ashift,
            Self::Raidz(raidz) => raidz.current().ashift(),
            Self::Draid(draid) => draid.ashift(),
        }
    }

    /// Bytes that a block of `psize` bytes takes of the vdev if born in `birth`.
    pub fn asize(&self, psize: u64, birth: Txg) -> u64 {
        match self {
            Self::Plain(ashift) => ashift.round_up(psize.max(1)),
            Self::Raidz(raidz) => raidz.asize(psize, birth),
            Self::Draid(draid) => draid.asize(psize),
        }
    }

    /// The factor that turns allocated space into used and available space: the number of data
    /// bytes of a 128 KiB block per 512 allocated bytes (rounded down; 512 where nothing is lost).
    /// An expanded raidz keeps the ratio of its creation. (`vdev_deflate_ratio`)
    pub fn deflate_ratio(&self) -> u64 {
        let taken = self.asize(1 << 17, Txg::ZERO) >> 9;
        (1 << 17) / taken.max(1)
    }

    /// The share of `asize` allocated bytes in the pool's used and available space.
    pub fn deflated(&self, asize: u64) -> u64 {
        (asize >> 9) * self.deflate_ratio()
    }
}
