//! Object set: a tree of objects with its intent log and its MACs.
//!
//! ```text
//! offset  size  field               since  meaning
//!      0   512  meta_dnode                 the array of all dnodes
//!    512   192  log                        the intent log's header, below
//!    704     8  kind                       1 meta (the MOS), 2 file system, 3 volume
//!    712     8  flags                      0 space, 1 objects, 2 projects are accounted
//!    720    32  portable_mac               protects what does not change in a raw send
//!    752    32  local_mac                  protects the accounting
//!    784   240  pad
//!   1024   512  user_used_dnode     v15    space by owner
//!   1536   512  group_used_dnode    v15    space by group
//!   2048   512  project_used_dnode  5000   space by project
//!   2560  1536  pad
//!   4096
//! ```
//!
//! The block ends at 1024, 2048 or 4096, as the pool's version had it. The log's header:
//!
//! ```text
//! offset  size  field             meaning
//!      0     8  claim_txg         the txg in which the chain was claimed; 0: not claimed
//!      8     8  replay_seq        the last record that was replayed
//!     16   128  chain             the first block
//!    144     8  claim_block_seq   the last block that was claimed
//!    152     8  flags             0 to be replayed, 1 claim_record_seq is valid
//!    160     8  claim_record_seq  the last record that was claimed
//!    168    24  pad
//!    192
//! ```
//!
//! Learnt from: `zdb -dddd` of the fixtures, dmu_objset.h, zil.h. Proved by: `golden_objsets`.

mod encode;

use units::Txg;

use crate::dnode::Dnode;
use crate::{Blkptr, Error, Order, Reader, Result};

/// The kind of an object set (os_type).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// None yet: its dataset was created and never mounted.
    None,
    /// The pool's own objects (MOS).
    Meta,
    /// Files.
    Filesystem,
    /// A block device.
    Volume,
    /// The kind of tests of OpenZFS.
    Other,
}

/// The flags of an object set (os_flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u64);

impl Flags {
    /// Space by owner and group is complete.
    pub const fn space_accounted(self) -> bool {
        self.0 & 1 != 0
    }

    /// Objects by owner and group are complete.
    pub const fn objects_accounted(self) -> bool {
        self.0 & 2 != 0
    }

    /// Space and objects by project are complete.
    pub const fn projects_accounted(self) -> bool {
        self.0 & 4 != 0
    }

    /// The flags of a set in which space by owner and group is complete, and maybe more.
    pub const fn accounted(objects: bool, projects: bool) -> Self {
        Self(1 | if objects { 2 } else { 0 } | if projects { 4 } else { 0 })
    }
}

/// The head of an intent log (zil_header_t).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogHeader {
    /// The txg in which the chain was claimed; 0 where it was not.
    pub claim_txg: Txg,
    /// The number of the last record that was replayed; 0: none.
    pub replay_seq: u64,
    /// The first block of the chain.
    pub chain: Blkptr,
    /// The number of the last block that was claimed.
    pub claim_block_seq: u64,
    /// Bit 0: to be replayed, bit 1: `claim_record_seq` is valid.
    pub flags: u64,
    /// The number of the last record that was claimed.
    pub claim_record_seq: u64,
}

impl Default for LogHeader {
    /// That of a set which never had a log.
    fn default() -> Self {
        Self {
            claim_txg: Txg::ZERO,
            replay_seq: 0,
            chain: Blkptr::EMPTY,
            claim_block_seq: 0,
            flags: 0,
            claim_record_seq: 0,
        }
    }
}

impl LogHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 192;
    /// The flag of a log that is to be replayed.
    pub const REPLAY_NEEDED: u64 = 1;
    /// The flag of a log that knows the last record that was claimed.
    pub const HAS_LAST_RECORD: u64 = 2;

    /// Whether a claimed log may end with a block, after the record of a number: the last of its blocks is
    /// claimed although nothing was written to it.
    pub fn can_end_at(&self, block_seq: u64, record_seq: u64) -> bool {
        let has_last = self.flags & Self::HAS_LAST_RECORD != 0;
        block_seq >= self.claim_block_seq && (!has_last || record_seq >= self.claim_record_seq)
    }

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let header = Self {
            claim_txg: Txg::new(reader.u64()?),
            replay_seq: reader.u64()?,
            chain: Blkptr::read(reader)?,
            claim_block_seq: reader.u64()?,
            flags: reader.u64()?,
            claim_record_seq: reader.u64()?,
        };
        reader.skip(24)?;
        Ok(header)
    }

    /// Whether it waits to be replayed.
    pub const fn replay_needed(&self) -> bool {
        self.flags & Self::REPLAY_NEEDED != 0
    }
}

/// The root block of an object set (objset_phys_t).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjsetHeader {
    /// The object whose content is the array of dnodes.
    pub meta: Option<Dnode>,
    /// The head of the intent log.
    pub log: LogHeader,
    /// The kind of the object set.
    pub kind: Kind,
    /// The completed accounting.
    pub flags: Flags,
    /// The MAC of an encrypted dataset: it protects the data that a raw send keeps.
    pub portable_mac: [u8; 32],
    /// Of an encrypted dataset: protects the accounting.
    pub local_mac: [u8; 32],
    /// The table of space by owner.
    pub user_used: Option<Dnode>,
    /// The table of space by group.
    pub group_used: Option<Dnode>,
    /// The table of space by project.
    pub project_used: Option<Dnode>,
}

impl ObjsetHeader {
    /// Reads the whole block.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        let mut reader = Reader::new("object set", bytes, order);
        if !matches!(bytes.len(), 1024 | 2048 | 4096) {
            let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            return Err(reader.corrupt_field(0, "its block is of 1, 2 or 4 KiB", found));
        }
        let meta = dnode(&mut reader)?;
        let log = LogHeader::read(&mut reader)?;
        let kind = match reader.u64()? {
            0 => Kind::None,
            1 => Kind::Meta,
            2 => Kind::Filesystem,
            3 => Kind::Volume,
            4 | 5 => Kind::Other,
            found => return Err(Error::Unknown { structure: "object set", field: "type", found }),
        };
        let flags = Flags(reader.u64()?);
        let portable_mac = reader.array()?;
        let local_mac = reader.array()?;
        reader.skip(240)?;
        let mut used = [None, None, None];
        for which in &mut used {
            if reader.remaining() >= Dnode::SLOT {
                *which = dnode(&mut reader)?;
            }
        }
        let [user_used, group_used, project_used] = used;
        Ok(Self {
            meta,
            log,
            kind,
            flags,
            portable_mac,
            local_mac,
            user_used,
            group_used,
            project_used,
        })
    }
}

/// A dnode of one slot, within the block.
fn dnode(reader: &mut Reader<'_>) -> Result<Option<Dnode>> {
    Dnode::parse(reader.bytes(Dnode::SLOT)?, reader.order())
}

#[cfg(test)]
mod tests {
    use super::{Kind, ObjsetHeader};
    use crate::{ObjectType, Order};

    /// The root of a file system, whose figures `zdb -dddddd` prints.
    const REAL: &[u8] = include_bytes!("../tests/golden/objset-names.bin");

    #[test]
    fn golden_objsets() {
        let header = ObjsetHeader::parse(REAL, Order::Little).unwrap();
        assert_eq!(header.kind, Kind::Filesystem);
        let meta = header.meta.unwrap();
        assert_eq!(meta.kind, ObjectType::DNODE);
        assert_eq!((meta.levels, meta.block_size, meta.indirect_size()), (6, 16384, 131072));
        assert_eq!((meta.slots, meta.pointers.len(), meta.fan_out_shift()), (1, 3, 10));
        assert!(meta.flags.used_in_bytes() && meta.spill.is_none());
        assert!(header.flags.space_accounted() && header.flags.projects_accounted());
        for used in [header.user_used, header.group_used, header.project_used] {
            assert_eq!(used.unwrap().kind, ObjectType::USED);
        }
        assert!(header.log.chain.is_hole() && !header.log.replay_needed());
    }

    #[test]
    fn older_object_sets_are_shorter() {
        let short = ObjsetHeader::parse(&REAL[..1024], Order::Little).unwrap();
        assert!(short.meta.is_some() && short.user_used.is_none());
        let middle = ObjsetHeader::parse(&REAL[..2048], Order::Little).unwrap();
        assert!(middle.group_used.is_some() && middle.project_used.is_none());
        assert!(ObjsetHeader::parse(&REAL[..1536], Order::Little).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_change_is_an_objset_or_an_error(at in 0_usize..2560, byte: u8, big: bool) {
            let mut bytes = REAL.to_vec();
            bytes[at] = byte;
            let order = if big { Order::Big } else { Order::Little };
            let _ = ObjsetHeader::parse(&bytes, order);
        }
    }
}
