//! The ACLs of a file, and the facts for access checks.
//!
//! Every file has an NFSv4 ACL. A trivial one allows what the mode allows, and the mode decides. Where the
//! dataset has `acltype=posix`, files may have POSIX ACLs as extended attributes instead.

use ondisk::acl::parse_posix;
use posix::access::{Target, TargetAcl};
use posix::acl::{Ace, PosixAclEntry, PosixAclKind, nfs4};

use super::{File, Result};

/// The group bits of a mode: without them Linux does not use the POSIX ACL.
const GROUP_BITS: u32 = 0o070;

impl File {
    /// The facts for access checks.
    pub fn access_target(&self) -> Result<Target> {
        let stat = self.stat();
        let acl = if self.node.fs().options().posix_acls {
            let is_asked = stat.mode & GROUP_BITS != 0;
            let acl = if is_asked { self.posix_acl(PosixAclKind::Access)? } else { None };
            acl.map_or(TargetAcl::Mode, TargetAcl::Posix)
        } else if self.node.attributes().has_trivial_acl() {
            TargetAcl::Mode
        } else {
            TargetAcl::Nfs4(self.nfs4_acl()?)
        };
        let (kind, mode, uid, gid) = (stat.kind, stat.mode, stat.uid, stat.gid);
        Ok(Target { kind, mode, uid, gid, flags: stat.flags, acl })
    }

    /// A POSIX ACL of the file; none if the mode has all permissions, or the dataset has no POSIX
    /// ACLs.
    pub fn posix_acl(&self, kind: PosixAclKind) -> Result<Option<Vec<PosixAclEntry>>> {
        let Some(bytes) = self.xattr(kind.xattr_name())? else { return Ok(None) };
        let entries = parse_posix(&bytes).map_err(|why| self.node.malformed_xattr(why))?;
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// The NFSv4 ACL of the file; where none is stored, that of its mode.
    pub fn nfs4_acl(&self) -> Result<Vec<Ace>> {
        let stored = self.node.acl()?.entries;
        if stored.is_empty() {
            let stat = self.stat();
            return Ok(nfs4::acl_from_mode(stat.mode, stat.is_directory()));
        }
        Ok(stored)
    }
}
