//! Where things lie on drives.

use crate::number::number;

number!(
    /// The index of a top-level vdev in the pool, or of a child in its parent.
    VdevId(u32)
);
number!(
    /// The index of a metaslab in its top-level vdev: a stretch of space with its own map.
    MetaslabId(u32)
);
number!(
    /// A count of 512-byte sectors, the unit of addresses and sizes in block pointers.
    Sectors(u64)
);

impl Sectors {
    /// log2 of the unit.
    pub const SHIFT: u32 = 9;

    /// The same in bytes; `None` where it does not fit 64 bits.
    pub const fn bytes(self) -> Option<u64> {
        self.get().checked_mul(1 << Self::SHIFT)
    }
}

/// log2 of the smallest write a vdev takes: 9 (512 bytes) to 16 (64 KiB).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ashift(u8);

impl Ashift {
    /// The smallest there is: 512-byte sectors.
    pub const MIN: Self = Self(9);
    /// The largest that OpenZFS allows: 64 KiB.
    pub const MAX: Self = Self(16);

    /// `None` outside of 9..=16.
    pub const fn new(shift: u64) -> Option<Self> {
        match shift {
            9..=16 => Some(Self(shift.to_le_bytes()[0])),
            _ => None,
        }
    }

    /// The shift itself.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// The sector's size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }

    /// How many sectors hold `bytes`.
    pub const fn sectors(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes())
    }

    /// `bytes`, rounded up to whole sectors.
    pub const fn round_up(self, bytes: u64) -> u64 {
        self.sectors(bytes) * self.bytes()
    }
}

impl std::fmt::Display for Ashift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}
