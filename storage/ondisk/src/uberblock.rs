//! Uberblock: the root of one transaction group.
//!
//! Each label ends in a ring of uberblocks. The newest one with a valid checksum is the pool's
//! state.
//!
//! ```text
//! offset  size  field             meaning
//!      0     8  magic             0x00bab10c; its byte order is the block's
//!      8     8  version           of the pool: 1 to 28, or 5000 with feature flags
//!     16     8  txg               the last one it holds
//!     24     8  guid_sum          sum of the guids of all vdevs, wrapping
//!     32     8  timestamp         seconds since 1970
//!     40   128  rootbp            the MOS
//!    168     8  software_version  the newest version its writer knew
//!    176     8  mmp_magic         0xa11cea11 if the fields of multihost protection are set
//!    184     8  mmp_delay         nanoseconds between heartbeats; 0: the protection is off
//!    192     8  mmp_config        bits 0-7 which are valid, 8-31 interval in ms, 32-47 sequence
//!                                 number, 48-63 how many missed intervals are failure
//!    200     8  checkpoint_txg    if not 0 this is a checkpoint, made in that txg
//!    208     8  raidz_reflow      bits 0-54 offset in sectors of 512, 55-63 state of the scratch
//!    216
//! ```
//!
//! The slot is filled with zeros up to the checksum in its last 40 bytes, which is seeded with
//! the slot's own address on the device.
//!
//! Learnt from: labels of the fixtures against `zdb -lu`. Proved by: `golden_uberblock`.

use units::Txg;

use crate::{Blkptr, Error, Order, Reader, Result};

const MAGIC: u64 = 0x00ba_b10c;
const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Far more txgs than a pool can write: sums with a few more stay within 64 bits.
const MAX_TXG: u64 = 1 << 63;
const STRUCTURE: &str = "uberblock";

/// The root of a transaction group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uberblock {
    /// The byte order in which it was written.
    pub order: Order,
    /// Version of the pool: 1 to 28, or 5000 with feature flags.
    pub version: u64,
    /// The last transaction group it holds.
    pub txg: Txg,
    /// Sum of the guids of all vdevs, wrapping.
    pub guid_sum: u64,
    /// Seconds since 1970.
    pub timestamp: u64,
    /// The pool's own object set.
    pub root: Blkptr,
    /// The newest version its writer knew.
    pub software_version: u64,
    /// Multihost protection; `None` in pools older than it.
    pub multihost: Option<Multihost>,
    /// The txg of the checkpoint that this is; 0 for a common uberblock.
    pub checkpoint_txg: Txg,
    /// How far the widening of a raidz vdev has come.
    pub reflow: Reflow,
}

/// The MMP fields: a host writes heartbeats while it has the pool imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Multihost {
    /// Nanoseconds between the signs; 0: the protection is off.
    pub delay: u64,
    /// Milliseconds between the writes, where given.
    pub interval: Option<u32>,
    /// Counts the writes within one txg, where given.
    pub sequence: Option<u16>,
    /// The number of missed intervals after which the host suspends the pool, if given (0: never).
    pub fail_intervals: Option<u16>,
}

/// How far the widening of a raidz vdev has come (ub_raidz_reflow_info).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Reflow {
    /// Bytes of the vdev from its start that lie in the new width already.
    pub offset: u64,
    /// The content of the scratch area in the boot region.
    pub scratch: Scratch,
}

/// The state of the scratch area during a raidz expansion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Scratch {
    /// Unused.
    #[default]
    Unused,
    /// The first rows, which in their own place may be half written.
    Valid,
    /// Invalid: the rows are in place.
    InvalidSynced,
    /// Invalid, found at an import.
    InvalidSyncedOnImport,
    /// Invalid, and the expansion continued.
    InvalidSyncedReflow,
    /// A state of a newer version.
    Unknown(u16),
}

impl Scratch {
    /// From the number on disk.
    pub const fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Unused,
            1 => Self::Valid,
            2 => Self::InvalidSynced,
            3 => Self::InvalidSyncedOnImport,
            4 => Self::InvalidSyncedReflow,
            _ => Self::Unknown(number),
        }
    }
}

impl Uberblock {
    /// Bytes of the fields; a slot is larger and its checksum stands at its end.
    pub const SIZE: usize = 216;

    /// Reads a slot of the ring, or the copy in the checkpoint's entry; `None` if it is empty
    /// (no magic number in either order).
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let magic = Reader::new(STRUCTURE, bytes, Order::Little).u64()?;
        let order = if magic == MAGIC {
            Order::Little
        } else if magic.swap_bytes() == MAGIC {
            Order::Big
        } else {
            return Ok(None);
        };
        Self::read(&mut Reader::new(STRUCTURE, bytes, order)).map(Some)
    }

    /// Reads in the cursor's order.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let magic = reader.u64()?;
        if magic != MAGIC {
            return Err(reader.corrupt_field(8, "the magic number is there", magic));
        }
        let version = reader.u64()?;
        let txg = Txg::new(reader.u64()?);
        if txg.get() > MAX_TXG {
            return Err(reader.corrupt_field(8, "a pool has less than 2^63 txgs", txg.get()));
        }
        let guid_sum = reader.u64()?;
        let timestamp = reader.u64()?;
        let root = Blkptr::read(reader)?;
        let software_version = reader.u64()?;
        let mmp_magic = reader.u64()?;
        let mmp_delay = reader.u64()?;
        let mmp_config = reader.u64()?;
        let checkpoint_txg = Txg::new(reader.u64()?);
        let reflow = reader.u64()?;
        Ok(Self {
            order: reader.order(),
            version,
            txg,
            guid_sum,
            timestamp,
            root,
            software_version,
            multihost: (mmp_magic == MMP_MAGIC).then(|| Multihost::new(mmp_delay, mmp_config)),
            checkpoint_txg,
            reflow: Reflow::from_word(reflow),
        })
    }

    /// The fields as bytes, little-endian; the rest of a slot is zeros up to its checksum.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let (mmp_magic, mmp_delay, mmp_config) = match &self.multihost {
            Some(multihost) => (MMP_MAGIC, multihost.delay, multihost.word()),
            None => (0, 0, 0),
        };
        let head = [MAGIC, self.version, self.txg.get(), self.guid_sum, self.timestamp];
        let tail = [
            self.software_version,
            mmp_magic,
            mmp_delay,
            mmp_config,
            self.checkpoint_txg.get(),
            self.reflow.word(),
        ];
        let mut bytes = [0; Self::SIZE];
        let root = self.root.encode();
        let fields = head.iter().flat_map(|word| word.to_le_bytes()).chain(root);
        let fields = fields.chain(tail.iter().flat_map(|word| word.to_le_bytes()));
        for (place, byte) in bytes.iter_mut().zip(fields) {
            *place = byte;
        }
        bytes
    }

    /// Parses a slot that must hold an uberblock; an empty slot is an error.
    pub fn parse_required(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes)?.ok_or(Error::Rule {
            structure: STRUCTURE,
            at: 0,
            rule: "the magic number is there",
            found: 0,
        })
    }

    /// The sort key of uberblocks: the greatest wins. The txg counts first, then the timestamp,
    /// then the MMP heartbeat.
    pub fn rank(&self) -> (Txg, u64, u16) {
        let sequence = self.multihost.and_then(|multihost| multihost.sequence).unwrap_or(0);
        (self.txg, self.timestamp, sequence)
    }

    /// Whether it is the pool as of a checkpoint.
    pub const fn is_checkpoint(&self) -> bool {
        !self.checkpoint_txg.is_zero()
    }
}

impl Multihost {
    fn new(delay: u64, config: u64) -> Self {
        let [valid, ms0, ms1, ms2, seq0, seq1, fail0, fail1] = config.to_le_bytes();
        Self {
            delay,
            interval: (valid & 1 != 0).then(|| u32::from_le_bytes([ms0, ms1, ms2, 0])),
            sequence: (valid & 2 != 0).then(|| u16::from_le_bytes([seq0, seq1])),
            fail_intervals: (valid & 4 != 0).then(|| u16::from_le_bytes([fail0, fail1])),
        }
    }
}

impl Multihost {
    /// The word on disk.
    fn word(&self) -> u64 {
        let valid = u8::from(self.interval.is_some())
            | u8::from(self.sequence.is_some()) << 1
            | u8::from(self.fail_intervals.is_some()) << 2;
        let [ms0, ms1, ms2, _] = self.interval.unwrap_or(0).to_le_bytes();
        let [seq0, seq1] = self.sequence.unwrap_or(0).to_le_bytes();
        let [fail0, fail1] = self.fail_intervals.unwrap_or(0).to_le_bytes();
        u64::from_le_bytes([valid, ms0, ms1, ms2, seq0, seq1, fail0, fail1])
    }
}

impl Scratch {
    /// The number on disk.
    const fn number(self) -> u16 {
        match self {
            Self::Unused => 0,
            Self::Valid => 1,
            Self::InvalidSynced => 2,
            Self::InvalidSyncedOnImport => 3,
            Self::InvalidSyncedReflow => 4,
            Self::Unknown(number) => number,
        }
    }
}

impl Reflow {
    /// The word on disk.
    fn word(self) -> u64 {
        u64::from(self.scratch.number()) << 55 | (self.offset >> 9) & ((1 << 55) - 1)
    }

    /// From the word on disk.
    pub fn from_word(word: u64) -> Self {
        let offset = word & ((1 << 55) - 1);
        let state = u16::try_from(word >> 55).unwrap_or(u16::MAX);
        Self { offset: offset << 9, scratch: Scratch::from_number(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, MMP_MAGIC, Reflow, Scratch, Uberblock};
    use crate::Order;

    fn block(order: Order) -> Vec<u8> {
        let mut words = [0_u64; 27];
        words[0] = MAGIC;
        words[1] = 5000;
        words[2] = 28;
        words[3] = 7;
        words[4] = 1795210260;
        words[22] = MMP_MAGIC;
        words[24] = (10 << 48) | (3 << 32) | (1000 << 8) | 7;
        words[26] = (1 << 55) | 8;
        let bytes = |word: &u64| match order {
            Order::Little => word.to_le_bytes(),
            Order::Big => word.to_be_bytes(),
        };
        words.iter().flat_map(bytes).collect()
    }

    #[test]
    fn uberblock_reads_the_same_in_both_orders() {
        let little = Uberblock::parse_required(&block(Order::Little)).unwrap();
        let big = Uberblock::parse_required(&block(Order::Big)).unwrap();
        assert_eq!((little.order, big.order), (Order::Little, Order::Big));
        assert_eq!(little, Uberblock { order: Order::Little, ..big });
        let multihost = little.multihost.unwrap();
        assert_eq!(multihost.interval, Some(1000));
        assert_eq!((multihost.sequence, multihost.fail_intervals), (Some(3), Some(10)));
        assert_eq!(little.reflow, Reflow { offset: 4096, scratch: Scratch::Valid });
    }

    #[test]
    fn empty_slot_is_none_truncated_is_error() {
        assert_eq!(Uberblock::parse(&[0; 1024]), Ok(None));
        assert!(Uberblock::parse(&block(Order::Little)[..200]).is_err());
        assert!(Uberblock::parse_required(&[0; 1024]).is_err());
    }

    #[test]
    fn rank_orders_by_txg_time_sequence() {
        let one = Uberblock::parse_required(&block(Order::Little)).unwrap();
        let later = Uberblock { timestamp: one.timestamp + 1, ..one.clone() };
        let newer = Uberblock { txg: units::Txg::new(29), timestamp: 0, ..one.clone() };
        let silent = Uberblock { multihost: None, ..one.clone() };
        assert!(later.rank() > one.rank());
        assert!(newer.rank() > later.rank());
        assert!(silent.rank() < one.rank());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(mut bytes: [u8; 216]) {
            let _ = Uberblock::parse(&bytes);
            bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
            let _ = Uberblock::parse(&bytes);
            bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            if let Ok(Some(one)) = Uberblock::parse(&bytes) {
                proptest::prop_assert_eq!(Uberblock::parse_required(&one.encode()), Ok(one));
            }
        }
    }
}
