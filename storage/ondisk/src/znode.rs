//! The legacy znode in a bonus buffer: file systems before version 5, and files that they left.
//!
//! ```text
//! offset  size  field   meaning
//!      0    16  atime   seconds and nanoseconds, as are the three below
//!     16    16  mtime
//!     32    16  ctime
//!     48    16  crtime
//!     64     8  gen     the txg in which the file came to be
//!     72     8  mode    type and permissions
//!     80     8  size    bytes; of a directory its entries, with . and ..
//!     88     8  parent  the object of the directory above
//!     96     8  links
//!    104     8  xattr   the object of the directory of extended attributes, or 0
//!    112     8  rdev    the device that a device node stands for
//!    120     8  flags   see [`flag`]
//!    128     8  uid     FUID of the owner
//!    136     8  gid     FUID of the group
//!    144     8  zap     never used
//!    152    24  pad
//!    176    88  acl     see acl.rs
//!    264
//! ```
//!
//! A short symbolic link's target, or a virus scanner's stamp, follows in the bonus buffer.
//!
//! Learnt from: `zdb -dddd` of the version 28 fixtures. Proved by: the fixture tests.

use posix::Time;

use crate::acl::ZnodeAcl;
use crate::{Reader, Result};

/// Bits of a file's `flags` (zp_flags, ZPL_FLAGS).
#[allow(missing_docs, reason = "each is the field's name of it")]
pub mod flag {
    pub const XATTR: u64 = 0x1;
    pub const INHERIT_ACE: u64 = 0x2;
    pub const ACL_TRIVIAL: u64 = 0x4;
    pub const ACL_OBJ_ACE: u64 = 0x8;
    pub const ACL_PROTECTED: u64 = 0x10;
    pub const ACL_DEFAULTED: u64 = 0x20;
    pub const ACL_AUTO_INHERIT: u64 = 0x40;
    pub const BONUS_SCANSTAMP: u64 = 0x80;
    pub const NO_EXECS_DENIED: u64 = 0x100;
    pub const READONLY: u64 = 1 << 32;
    pub const HIDDEN: u64 = 1 << 33;
    pub const SYSTEM: u64 = 1 << 34;
    pub const ARCHIVE: u64 = 1 << 35;
    pub const IMMUTABLE: u64 = 1 << 36;
    pub const NOUNLINK: u64 = 1 << 37;
    pub const APPENDONLY: u64 = 1 << 38;
    pub const NODUMP: u64 = 1 << 39;
    pub const OPAQUE: u64 = 1 << 40;
    pub const AV_QUARANTINED: u64 = 1 << 41;
    pub const AV_MODIFIED: u64 = 1 << 42;
    pub const REPARSE: u64 = 1 << 43;
    pub const OFFLINE: u64 = 1 << 44;
    pub const SPARSE: u64 = 1 << 45;
    /// Files made in this directory get its project.
    pub const PROJINHERIT: u64 = 1 << 46;
    /// The file has a project attribute.
    pub const PROJID: u64 = 1 << 47;
}

/// Reads a time: two words.
pub fn read_time(reader: &mut Reader<'_>) -> Result<Time> {
    reader.words().map(Time::from_words)
}

/// A znode (znode_phys_t).
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "drawn above")]
pub struct Znode {
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub crtime: Time,
    pub gen_txg: u64,
    pub mode: u64,
    pub size: u64,
    pub parent: u64,
    pub links: u64,
    pub xattr: u64,
    pub rdev: u64,
    pub flags: u64,
    pub uid: u64,
    pub gid: u64,
    pub acl: ZnodeAcl,
}

impl Znode {
    /// Bytes of it; in the bonus buffer a short symbolic link's target follows.
    pub const SIZE: usize = 264;

    /// Reads it from the start of a bonus buffer.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            atime: read_time(reader)?,
            mtime: read_time(reader)?,
            ctime: read_time(reader)?,
            crtime: read_time(reader)?,
            gen_txg: reader.u64()?,
            mode: reader.u64()?,
            size: reader.u64()?,
            parent: reader.u64()?,
            links: reader.u64()?,
            xattr: reader.u64()?,
            rdev: reader.u64()?,
            flags: reader.u64()?,
            uid: reader.u64()?,
            gid: {
                let gid = reader.u64()?;
                reader.skip(32)?;
                gid
            },
            acl: ZnodeAcl::read(reader)?,
        })
    }
}

/// The meaning of a device number (zp_rdev): (major, minor). Linux stores its kernel's 32-bit
/// number with 12 and 20 bits; the other systems store 32 bits of each. Their upper half is 0 only
/// for major 0, and that is read as Linux does.
pub const fn device(rdev: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = rdev.to_le_bytes();
    let (low, high) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if high != 0 { (high, low) } else { (low >> 20, low & 0xf_ffff) }
}

/// A device as Linux stores it: 12 bits of major, 20 of minor.
pub const fn device_word(major: u32, minor: u32) -> u64 {
    ((major as u64 & 0xfff) << 20) | (minor as u64 & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::{Time, Znode, device, device_word};
    use crate::{Order, Reader};

    #[test]
    fn both_device_encodings_are_decoded() {
        assert_eq!(device((259 << 20) + 70000), (259, 70000));
        assert_eq!(device((1 << 20) + 3), (1, 3));
        assert_eq!(device((13 << 32) + 2), (13, 2));
        assert_eq!(device(device_word(259, 70000)), (259, 70000));
    }

    #[test]
    fn times_before_1970_are_negative() {
        let time = Time::from_words([u64::MAX, 5]);
        assert_eq!(time.total_nanoseconds(), -999_999_995);
        assert!(time < Time::default());
    }

    #[test]
    fn znode_fields_match_the_drawing() {
        let bytes: Vec<u8> = (0..33_u64).flat_map(|word| (word * 8).to_be_bytes()).collect();
        assert_eq!(bytes.len(), Znode::SIZE);
        let mut reader = Reader::new("znode", &bytes, Order::Big);
        let znode = Znode::read(&mut reader).expect("znode");
        assert_eq!((znode.mode, znode.rdev, znode.gid), (72, 112, 136));
        assert_eq!(znode.acl.external, 176);
        assert!(reader.expect_end().is_ok());
    }
}
