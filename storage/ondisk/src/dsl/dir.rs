//! Directory: a name in the pool's tree, with its properties and space accounting.
//!
//! It is the bonus of an object of type "DSL directory". Where the object's data is a ZAP,
//! newer fields stand there under names ([`Dir::CRYPTO_KEY`] and others).
//!
//! ```text
//! offset  size  field           meaning
//!      0     8  creation_time   seconds since 1970; unused
//!      8     8  head            object of the dataset that is its present content, or 0
//!     16     8  parent          object of the directory above, or 0
//!     24     8  origin          object of the snapshot that it is a clone of, or 0
//!     32     8  children        ZAP, name to directory
//!     40     8  used            bytes of it and all below
//!     48     8  compressed      the same before raidz and copies
//!     56     8  uncompressed    the same before compression
//!     64     8  quota           bytes, 0: none
//!     72     8  reserved        bytes
//!     80     8  properties      ZAP
//!     88     8  delegations     ZAP of permissions, or 0
//!     96     8  flags           bit 0: the breakdown below is kept
//!    104    40  used_breakdown  head, snapshots, children, children's reservations, refreservation
//!    144     8  clones          ZAP of the directories that are clones of its snapshots, or 0
//!    152   104  padding         0
//!    256
//! ```
//!
//! Learnt from: `zdb -dddd` of the fixtures' MOS. Proved by: `golden_dir`.

use units::ObjectId;

use crate::{Order, Reader, Result};

/// The breakdown of a directory's used space, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsedBreakdown {
    /// By the head alone (`usedbydataset`).
    pub head: u64,
    /// By snapshots alone (`usedbysnapshots`).
    pub snapshots: u64,
    /// By the directories below.
    pub children: u64,
    /// Reserved by the directories below, and not used yet.
    pub child_reservations: u64,
    /// By the head's refreservation.
    pub refreservation: u64,
}

/// A directory (`dsl_dir_phys_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dir {
    /// When it was made, in seconds since 1970 (`dd_creation_time`).
    pub creation_time: u64,
    /// Its present content; none for the pool's own hidden directories (`dd_head_dataset_obj`).
    pub head: ObjectId,
    /// The directory above (`dd_parent_obj`).
    pub parent: ObjectId,
    /// The snapshot that it is a clone of (`dd_origin_obj`).
    pub origin: ObjectId,
    /// ZAP of the directories below (`dd_child_dir_zapobj`).
    pub children: ObjectId,
    /// Bytes used by it and all below (`dd_used_bytes`).
    pub used: u64,
    /// The same before redundancy (`dd_compressed_bytes`).
    pub compressed: u64,
    /// The same before compression (`dd_uncompressed_bytes`).
    pub uncompressed: u64,
    /// The quota, in bytes; 0: none (`dd_quota`).
    pub quota: u64,
    /// The reservation, in bytes (`dd_reserved`).
    pub reserved: u64,
    /// ZAP of its properties (`dd_props_zapobj`).
    pub properties: ObjectId,
    /// ZAP of delegated permissions (`dd_deleg_zapobj`).
    pub delegations: ObjectId,
    /// Bits (`dd_flags`).
    pub flags: u64,
    /// The breakdown of the used bytes; only if [`Dir::has_breakdown`] (`dd_used_breakdown`).
    pub breakdown: UsedBreakdown,
    /// ZAP of its clones' directories (`dd_clones`).
    pub clones: ObjectId,
}

impl Dir {
    /// Bytes on disk.
    pub const SIZE: usize = 256;
    /// The flag that the breakdown of the used bytes is kept.
    pub const BREAKDOWN: u64 = 1;
    /// Name of the count of file systems and volumes below, where a limit is or was set.
    pub const FILESYSTEM_COUNT: &'static str = "com.joyent:filesystem_count";
    /// Name of the count of snapshots here and below.
    pub const SNAPSHOT_COUNT: &'static str = "com.joyent:snapshot_count";
    /// Name of the object that holds the wrapped keys of an encrypted directory.
    pub const CRYPTO_KEY: &'static str = "com.datto:crypto_key_obj";
    /// Name of a clone's livelist.
    pub const LIVELIST: &'static str = "com.delphix:livelist";
    /// Name of the time of the last change to the set of snapshots: seconds, nanoseconds.
    pub const SNAPSHOTS_CHANGED: &'static str = "com.ixsystems:snapshots_changed";

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let start = reader.position();
        let dir = Self {
            creation_time: reader.u64()?,
            head: object(reader)?,
            parent: object(reader)?,
            origin: object(reader)?,
            children: object(reader)?,
            used: reader.u64()?,
            compressed: reader.u64()?,
            uncompressed: reader.u64()?,
            quota: reader.u64()?,
            reserved: reader.u64()?,
            properties: object(reader)?,
            delegations: object(reader)?,
            flags: reader.u64()?,
            breakdown: UsedBreakdown {
                head: reader.u64()?,
                snapshots: reader.u64()?,
                children: reader.u64()?,
                child_reservations: reader.u64()?,
                refreservation: reader.u64()?,
            },
            clones: object(reader)?,
        };
        reader.seek(start);
        reader.skip(Self::SIZE)?;
        Ok(dir)
    }

    /// From a bonus buffer; later bytes are ignored.
    pub fn parse(bytes: &[u8], order: Order) -> Result<Self> {
        Self::read(&mut Reader::new("DSL directory", bytes, order))
    }

    /// The bytes of one, as it lies in a bonus buffer.
    pub fn encode(&self) -> Vec<u8> {
        let breakdown = &self.breakdown;
        let words = [
            self.creation_time,
            self.head.get(),
            self.parent.get(),
            self.origin.get(),
            self.children.get(),
            self.used,
            self.compressed,
            self.uncompressed,
            self.quota,
            self.reserved,
            self.properties.get(),
            self.delegations.get(),
            self.flags,
            breakdown.head,
            breakdown.snapshots,
            breakdown.children,
            breakdown.child_reservations,
            breakdown.refreservation,
            self.clones.get(),
        ];
        encode_words(&words, Self::SIZE)
    }

    /// Whether the breakdown of the used bytes is kept.
    pub const fn has_breakdown(&self) -> bool {
        self.flags & Self::BREAKDOWN != 0
    }
}

pub(super) fn object(reader: &mut Reader<'_>) -> Result<ObjectId> {
    reader.u64().map(ObjectId::new)
}

/// Words one after the other, and zeros up to a size.
pub(super) fn encode_words(words: &[u64], size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(bytes.len() <= size, "{} words are in a record of {size} bytes", words.len());
    bytes.resize(size, 0);
    bytes
}
