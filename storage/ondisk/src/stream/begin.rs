//! BEGIN: the stream's snapshot, its base snapshot, and the features that a receiver needs.
//!
//! ```text
//! offset  size  field          meaning
//!      0     8  magic          0x2f5bacbac
//!      8     8  version_info   bits 0-1 kind (1 a snapshot, 2 a compound of several), 2-57 features
//!     16     8  creation_time  of the snapshot, seconds since 1970
//!     24     4  objset_type    2 a file system, 3 a volume
//!     28     4  flags          bits below
//!     32     8  to_guid        guid of the snapshot
//!     40     8  from_guid      guid of the snapshot that it follows; 0: a full stream
//!     48   256  to_name        name of the snapshot on the sender, ends with a zero byte
//!    304
//! ```
//!
//! Flags: 0 from_guid is the origin of a clone, 1 names are compared without case, 2 FREE and
//! FREEOBJECTS are complete (the stream can become a clone), 3 the spill flags of records are set.
//!
//! Learnt from: zfs_ioctl.h. Proved by: `golden_stream_header`.

use super::encode::RecordBuffer;
use super::{WHAT, object_type};
use crate::{Error, Reader, Result};

/// The first record of a stream (drr_begin).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Whether the stream holds one snapshot or several (DMU_GET_STREAM_HDRTYPE).
    pub kind: StreamKind,
    /// The features that a receiver must support (DMU_GET_FEATUREFLAGS).
    pub features: StreamFeatures,
    /// When the snapshot was taken, seconds since 1970.
    pub creation_time: u64,
    /// The kind of the dataset, as a number (dmu_objset_type_t).
    pub objset_type: u8,
    /// Facts about the stream.
    pub flags: BeginFlags,
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The guid of the snapshot on which the stream is based; 0 for a full stream.
    pub from_guid: u64,
    /// The name of the snapshot on the sender, without the zero bytes behind it.
    pub to_name: Vec<u8>,
}

/// Whether a stream holds one snapshot or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// The records of one snapshot (DMU_SUBSTREAM).
    Snapshot,
    /// Streams of several snapshots, or of one with its properties (DMU_COMPOUNDSTREAM).
    Compound,
}

/// The features that a receiver must support, one a bit (DMU_BACKUP_FEATURE_*).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamFeatures(pub u64);

/// The flags of [`Begin`] (DRR_FLAG_*).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BeginFlags(pub u32);

impl BeginFlags {
    /// `from_guid` is the origin of the clone that the snapshot is of.
    pub const CLONE: u32 = 1;
    /// Names of files are compared without case.
    pub const CASE_INSENSITIVE: u32 = 1 << 1;
    /// The records of free objects and ranges are complete.
    pub const FREE_RECORDS: u32 = 1 << 2;
    /// OBJECT and SPILL records list the existing spill blocks.
    pub const SPILL_BLOCK: u32 = 1 << 3;

    /// Whether a flag is set.
    pub const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

impl StreamFeatures {
    /// WRITE_BYREF records (obsolete).
    pub const DEDUP: u64 = 1;
    /// Checksums in WRITE records serve to find duplicates (obsolete).
    pub const DEDUP_PROPERTIES: u64 = 1 << 1;
    /// Spill blocks of system attributes.
    pub const SA_SPILL: u64 = 1 << 2;
    /// WRITE_EMBEDDED records.
    pub const EMBEDDED_DATA: u64 = 1 << 16;
    /// Payloads compressed with lz4.
    pub const LZ4: u64 = 1 << 17;
    /// Blocks above 128 KiB.
    pub const LARGE_BLOCKS: u64 = 1 << 19;
    /// The stream continues an interrupted one.
    pub const RESUMING: u64 = 1 << 20;
    /// REDACT records.
    pub const REDACTED: u64 = 1 << 21;
    /// Compressed payloads of WRITE records.
    pub const COMPRESSED: u64 = 1 << 22;
    /// Dnodes above 512 bytes.
    pub const LARGE_DNODE: u64 = 1 << 23;
    /// Blocks as they are stored, still encrypted.
    pub const RAW: u64 = 1 << 24;
    /// Payloads compressed with zstd.
    pub const ZSTD: u64 = 1 << 25;
    /// The compound header lists holds.
    pub const HOLDS: u64 = 1 << 26;
    /// Large blocks may follow a stream without them.
    pub const SWITCH_TO_LARGE_BLOCKS: u64 = 1 << 27;
    /// Names of files above 255 bytes.
    pub const LONG_NAME: u64 = 1 << 28;
    /// Micro ZAPs above 128 KiB.
    pub const LARGE_MICROZAP: u64 = 1 << 29;

    const NAMES: [(u64, &'static str); 16] = [
        (Self::DEDUP, "dedup"),
        (Self::DEDUP_PROPERTIES, "dedupprops"),
        (Self::SA_SPILL, "sa_spill"),
        (Self::EMBEDDED_DATA, "embed_data"),
        (Self::LZ4, "lz4"),
        (Self::LARGE_BLOCKS, "large_blocks"),
        (Self::RESUMING, "resuming"),
        (Self::REDACTED, "redacted"),
        (Self::COMPRESSED, "compressed"),
        (Self::LARGE_DNODE, "large_dnode"),
        (Self::RAW, "raw"),
        (Self::ZSTD, "zstd"),
        (Self::HOLDS, "holds"),
        (Self::SWITCH_TO_LARGE_BLOCKS, "switch_to_large_blocks"),
        (Self::LONG_NAME, "longname"),
        (Self::LARGE_MICROZAP, "large_microzap"),
    ];

    /// Whether a feature is set.
    pub const fn has(self, feature: u64) -> bool {
        self.0 & feature != 0
    }

    /// The flags with one more feature.
    #[must_use]
    pub const fn with(self, feature: u64) -> Self {
        Self(self.0 | feature)
    }

    /// The names of the features that are set; an unknown one is called by its bit.
    pub fn names(self) -> Vec<String> {
        let known = Self::NAMES.iter().filter(|(bit, _)| self.has(*bit));
        let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
        let all = Self::NAMES.iter().fold(0, |sum, (bit, _)| sum | bit);
        let unknown = (0..64_u32).filter(|bit| (self.0 & !all) >> bit & 1 != 0);
        names.extend(unknown.map(|bit| format!("feature {bit}")));
        names
    }
}

impl Begin {
    /// Whether the dataset is a volume.
    pub const fn is_volume(&self) -> bool {
        self.objset_type == 3
    }

    /// The number that marks a stream and its byte order.
    pub const MAGIC: u64 = 0x2_f5ba_cbac;
    /// Bytes that a name may have, with the zero byte behind it.
    pub const NAME_SIZE: usize = 256;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let magic = reader.u64()?;
        if magic != Self::MAGIC {
            return Err(reader.corrupt_field(8, "a stream begins with its magic number", magic));
        }
        let version_info = reader.u64()?;
        let kind = match version_info & 3 {
            1 => StreamKind::Snapshot,
            2 => StreamKind::Compound,
            found => return Err(Error::Unknown { structure: WHAT, field: "stream type", found }),
        };
        let creation_time = reader.u64()?;
        let objset_type = object_type(reader)?.0;
        let flags = BeginFlags(reader.u32()?);
        let to_guid = reader.u64()?;
        let from_guid = reader.u64()?;
        let name = reader.bytes(Self::NAME_SIZE)?;
        let Some(length) = name.iter().position(|byte| *byte == 0) else {
            return Err(reader.corrupt_field(Self::NAME_SIZE, "a name ends with a zero byte", 1));
        };
        let to_name = name.get(..length).unwrap_or_default().to_vec();
        let features = StreamFeatures(version_info >> 2 & (u64::MAX >> 8));
        Ok(Self { kind, features, creation_time, objset_type, flags, to_guid, from_guid, to_name })
    }

    pub(super) fn write(&self, buffer: &mut RecordBuffer) {
        let kind = match self.kind {
            StreamKind::Snapshot => 1,
            StreamKind::Compound => 2,
        };
        // a name ends with a zero byte
        let length = self.to_name.len().min(Self::NAME_SIZE.saturating_sub(1));
        buffer
            .u64(Self::MAGIC)
            .u64(kind | self.features.0 << 2)
            .u64(self.creation_time)
            .u32(self.objset_type.into())
            .u32(self.flags.0)
            .u64(self.to_guid)
            .u64(self.from_guid)
            .bytes(self.to_name.get(..length).unwrap_or_default());
    }
}
