//! Dataset: one state of a directory's content, the present one or a snapshot.
//!
//! It is the bonus of an object of type "DSL dataset". Where the object's data is a ZAP, newer
//! fields stand there: those of a stopped receive, bookmarks, and one entry for each pool feature
//! that the dataset uses, under the feature's guid.
//!
//! ```text
//! offset  size  field           meaning
//!      0     8  dir             object of its directory
//!      8     8  previous        object of the next older snapshot (or of a clone's origin), or 0
//!     16     8  previous_txg    its creation txg
//!     24     8  next            object of the next newer dataset; 0 for a head
//!     32     8  snapshot_names  ZAP, name to dataset; 0 for a snapshot
//!     40     8  children        heads: 0; snapshots: how many datasets follow it (clones too)
//!     48     8  creation_time   seconds since 1970
//!     56     8  creation_txg    the txg in which it came to be
//!     64     8  deadlist        object of the blocks that the previous has and this one has not
//!     72     8  referenced      bytes of all blocks that can be reached
//!     80     8  compressed      the same before redundancy
//!     88     8  uncompressed    the same before compression
//!     96     8  unique          bytes that no other dataset reaches
//!    104     8  fsid_guid       56 bits, may change
//!    112     8  guid            never changes
//!    120     8  flags           below
//!    128   128  root            block pointer of the object set
//!    256     8  next_clones     ZAP of datasets that follow a snapshot besides `next`, or 0
//!    264     8  properties      ZAP of a snapshot's properties, or 0
//!    272     8  holds           ZAP of a snapshot's holds, or 0
//!    280    40  padding         0
//!    320
//! ```
//!
//! `flags`: bit 0 inconsistent (a receive is running or was interrupted), 1 not promotable, 2
//! `unique` is right, 3 to be destroyed when the last hold or clone is gone, 16 names are
//! compared without case.
//!
//! Learnt from: `zdb -dddd` of the fixtures' MOS. Proved by: `golden_dataset`.

use units::{Guid, ObjectId, Txg};

use super::dir::{encode_words, object};
use crate::{Blkptr, Order, Reader, Result};

/// A dataset (`dsl_dataset_phys_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dataset {
    /// Its directory (`ds_dir_obj`).
    pub dir: ObjectId,
    /// The next older snapshot (`ds_prev_snap_obj`).
    pub previous: ObjectId,
    /// When that was taken (`ds_prev_snap_txg`).
    pub previous_txg: Txg,
    /// The next newer dataset (`ds_next_snap_obj`).
    pub next: ObjectId,
    /// ZAP of the names of all snapshots of this head (`ds_snapnames_zapobj`).
    pub snapshot_names: ObjectId,
    /// Datasets that follow a snapshot; 0 for a head (`ds_num_children`).
    pub children: u64,
    /// Seconds since 1970 (`ds_creation_time`).
    pub creation_time: u64,
    /// The txg in which it came to be (`ds_creation_txg`).
    pub creation_txg: Txg,
    /// The blocks that died since the previous snapshot (`ds_deadlist_obj`).
    pub deadlist: ObjectId,
    /// Bytes that it reaches (`ds_referenced_bytes`).
    pub referenced: u64,
    /// The same before redundancy (`ds_compressed_bytes`).
    pub compressed: u64,
    /// The same before compression (`ds_uncompressed_bytes`).
    pub uncompressed: u64,
    /// Bytes that only it reaches (`ds_unique_bytes`).
    pub unique: u64,
    /// 56 bits that identify the file system to a kernel (`ds_fsid_guid`).
    pub fsid_guid: u64,
    /// Its guid (`ds_guid`).
    pub guid: Guid,
    /// Bits (`ds_flags`).
    pub flags: u64,
    /// The root block of its object set (`ds_bp`).
    pub root: Blkptr,
    /// ZAP of the datasets that follow it as clones (`ds_next_clones_obj`).
    pub next_clones: ObjectId,
    /// ZAP of a snapshot's properties (`ds_props_obj`).
    pub properties: ObjectId,
    /// ZAP of a snapshot's holds, tag to time (`ds_userrefs_obj`).
    pub holds: ObjectId,
}

impl Dataset {
    /// Bytes on disk.
    pub const SIZE: usize = 320;
    /// The flag that a receive is running or was interrupted.
    pub const INCONSISTENT: u64 = 1;
    /// The flag that it may not change places with its origin.
    pub const NOT_PROMOTABLE: u64 = 1 << 1;
    /// The flag that `unique` is right.
    pub const UNIQUE_ACCURATE: u64 = 1 << 2;
    /// The flag that it goes when its last hold or clone does.
    pub const DEFER_DESTROY: u64 = 1 << 3;
    /// The flag that names in it are compared without case.
    pub const CASELESS: u64 = 1 << 16;
    /// Name of the ZAP of bookmarks.
    pub const BOOKMARKS: &'static str = "com.delphix:bookmarks";
    /// Name of the deadlist of blocks remapped from removed vdevs.
    pub const REMAP_DEADLIST: &'static str = "com.delphix:remap_deadlist";
    /// Name of the identity of the set of nonces, for raw sends.
    pub const IVSET_GUID: &'static str = "com.datto:ivset_guid";
    /// Name of the guids of the snapshots that a redacted dataset was redacted by.
    pub const REDACTED_SNAPS: &'static str = "com.delphix:redacted_datasets";
    /// Name of the incremental source of a stopped receive, a guid.
    pub const RESUME_FROM_GUID: &'static str = "com.delphix:resume_fromguid";
    /// Name of the name of the snapshot being received.
    pub const RESUME_TO_NAME: &'static str = "com.delphix:resume_toname";
    /// Name of the guid of the snapshot being received.
    pub const RESUME_TO_GUID: &'static str = "com.delphix:resume_toguid";
    /// Name of the object at which a receive stopped.
    pub const RESUME_OBJECT: &'static str = "com.delphix:resume_object";
    /// Name of the offset in that object.
    pub const RESUME_OFFSET: &'static str = "com.delphix:resume_offset";
    /// Name of the bytes received so far.
    pub const RESUME_BYTES: &'static str = "com.delphix:resume_bytes";
    /// Present if the stream has large blocks.
    pub const RESUME_LARGE_BLOCKS: &'static str = "com.delphix:resume_largeblockok";
    /// Present if the stream has embedded blocks.
    pub const RESUME_EMBEDDED: &'static str = "com.delphix:resume_embedok";
    /// Present if the stream has compressed blocks.
    pub const RESUME_COMPRESSED: &'static str = "com.delphix:resume_compressok";
    /// Present if the stream is raw.
    pub const RESUME_RAW: &'static str = "com.datto:resume_rawok";
    /// Name of the guids of the snapshots that the stream is redacted by.
    pub const RESUME_REDACT_SNAPS: &'static str = "com.delphix:resume_redact_book_snaps";

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let start = reader.position();
        let dataset = Self {
            dir: object(reader)?,
            previous: object(reader)?,
            previous_txg: Txg::new(reader.u64()?),
            next: object(reader)?,
            snapshot_names: object(reader)?,
            children: reader.u64()?,
            creation_time: reader.u64()?,
            creation_txg: Txg::new(reader.u64()?),
            deadlist: object(reader)?,
            referenced: reader.u64()?,
            compressed: reader.u64()?,
            uncompressed: reader.u64()?,
            unique: reader.u64()?,
            fsid_guid: reader.u64()?,
            guid: Guid::new(reader.u64()?),
            flags: reader.u64()?,
            root: Blkptr::read(reader)?,
            next_clones: object(reader)?,
            properties: object(reader)?,
            holds: object(reader)?,
        };
        reader.seek(start);
        reader.skip(Self::SIZE)?;
        Ok(dataset)
    }

    /// From a bonus buffer; later bytes are ignored.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new("DSL dataset", bytes, order))
    }

    /// The bytes of one, as it lies in a bonus buffer.
    ///
    /// # Panics
    ///
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn encode(&self) -> Vec<u8> {
        let before = [
            self.dir.get(),
            self.previous.get(),
            self.previous_txg.get(),
            self.next.get(),
            self.snapshot_names.get(),
            self.children,
            self.creation_time,
            self.creation_txg.get(),
            self.deadlist.get(),
            self.referenced,
            self.compressed,
            self.uncompressed,
            self.unique,
            self.fsid_guid,
            self.guid.get(),
            self.flags,
        ];
        let after = [self.next_clones.get(), self.properties.get(), self.holds.get()];
        let mut bytes = encode_words(&before, 128);
        bytes.extend_from_slice(&self.root.encode());
        bytes.extend(encode_words(&after, 64));
        assert_eq!(bytes.len(), Self::SIZE, "the record of a dataset has its size");
        bytes
    }

    /// Whether it is a snapshot (and not a head).
    pub const fn is_snapshot(&self) -> bool {
        self.children != 0
    }

    /// Whether a receive into it is running or was interrupted.
    pub const fn is_inconsistent(&self) -> bool {
        self.flags & Self::INCONSISTENT != 0
    }

    /// Whether `unique` can be trusted.
    pub const fn is_unique_accurate(&self) -> bool {
        self.flags & Self::UNIQUE_ACCURATE != 0
    }

    /// Whether it goes when its last hold or clone does.
    pub const fn is_defer_destroy(&self) -> bool {
        self.flags & Self::DEFER_DESTROY != 0
    }
}
