//! Records of files, directories and symbolic links that were made.
//!
//! ```text
//! offset  size  field       meaning
//!     32     8  dir         object of the directory
//!     40     8  object      bits 0-47 the new object, 56-63 its dnode slots less one
//!     48     8  mode
//!     56     8  uid         with a domain's index in the upper half
//!     64     8  gid         the same
//!     72     8  generation
//!     80    16  crtime      seconds, nanoseconds
//!     96     8  rdev
//!    104
//! ```
//!
//! Without an ACL follow: attributes (kinds 15, 18), the domains of uid and gid if they have any,
//! the name, and a symbolic link's target. With an ACL:
//!
//! ```text
//! offset  size  field         meaning
//!    104     8  ace_count
//!    112     8  domain_count
//!    120     8  fuid_count
//!    128     8  ace_bytes
//!    136     8  acl_flags
//!    144
//! ```
//!
//! and then: attributes (kinds 16, 19), entries (padded to 8 bytes), fuids, domains, the name.
//! Strings end with a NUL.
//!
//! Learnt from: `zdb -ivv` of the fixtures `intent-log*`. Proved by: `golden_records`.

use units::ObjectId;

use super::body::{Acl, Attributes, domains, string};
use crate::{Reader, Result};

/// The kind of the new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateKind {
    /// Anything that is none of the others (`TX_CREATE*`).
    File,
    /// A directory (`TX_MKDIR*`).
    Directory,
    /// The directory of an object's extended attributes (`TX_MKXATTR`).
    XattrDirectory,
    /// A symbolic link (`TX_SYMLINK`).
    Symlink,
}

/// Something was made (`lr_create_t`, `lr_acl_create_t`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Create {
    /// The kind of the new file.
    pub kind: CreateKind,
    /// Its parent directory; for an attribute directory the object that it belongs to (`lr_doid`).
    pub dir: ObjectId,
    /// The new object (`lr_foid`).
    pub object: ObjectId,
    /// Slots of 512 bytes that its dnode takes.
    pub slots: u16,
    /// Type and permissions (`lr_mode`).
    pub mode: u64,
    /// Owner (`lr_uid`).
    pub uid: u64,
    /// Group (`lr_gid`).
    pub gid: u64,
    /// The txg that made it (`lr_gen`).
    pub generation: u64,
    /// Seconds and nanoseconds since 1970 (`lr_crtime`).
    pub crtime: [u64; 2],
    /// Device numbers (`lr_rdev`).
    pub rdev: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// A symbolic link's target, else empty.
    pub target: Vec<u8>,
    /// The extended optional attributes, beyond POSIX.
    pub attributes: Option<Attributes>,
    /// Its ACL.
    pub acl: Option<Acl>,
    /// Domains that uid and gid refer to, if there is no ACL.
    pub domains: Vec<Vec<u8>>,
}

impl Create {
    pub(super) fn read(
        kind: CreateKind,
        has_acl: bool,
        has_attributes: bool,
        reader: &mut Reader<'_>,
    ) -> Result<Self> {
        let dir = ObjectId::new(reader.u64()?);
        let (object, slots) = slots(reader.u64()?);
        let mut create = Self {
            kind,
            dir,
            object,
            slots,
            mode: reader.u64()?,
            uid: reader.u64()?,
            gid: reader.u64()?,
            generation: reader.u64()?,
            crtime: reader.words()?,
            rdev: reader.u64()?,
            name: Vec::new(),
            target: Vec::new(),
            attributes: None,
            acl: None,
            domains: Vec::new(),
        };
        let acl = if has_acl { Some(reader.words()?) } else { None };
        if has_attributes {
            create.attributes = Some(Attributes::read(reader)?);
        }
        if let Some(counts) = acl {
            create.acl = Some(Acl::read(counts, reader)?);
        } else if matches!(kind, CreateKind::File | CreateKind::Directory) {
            create.domains = domains(domain_count(create.uid, create.gid), reader)?;
        }
        create.name = string(reader)?;
        if kind == CreateKind::Symlink {
            create.target = string(reader)?;
        }
        Ok(create)
    }
}

/// An object with the slots of its dnode.
fn slots(word: u64) -> (ObjectId, u16) {
    let [.., high] = word.to_le_bytes();
    (ObjectId::new(word & ((1 << 48) - 1)), u16::from(high).saturating_add(1))
}

/// How many domains two owners refer to by the index in their upper halves.
const fn domain_count(uid: u64, gid: u64) -> u64 {
    let (user, group) = (uid >> 32, gid >> 32);
    match (user, group) {
        (0, 0) => 0,
        (0, _) | (_, 0) => 1,
        _ if user == group => 1,
        _ => 2,
    }
}
