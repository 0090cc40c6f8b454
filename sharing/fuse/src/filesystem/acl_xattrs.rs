//! NFSv4 ACLs of files as extended attributes of the mount, where the dataset has acltype=nfsv4.
//!
//! nfs4_getfacl(1) and nfs4_setfacl(1) use `system.nfs4_acl`; Samba's nfs4acl_xattr and the tools of TrueNAS use
//! `system.nfs4_acl_xdr`. Every file has both. Only the first one is listed, and only for a nontrivial ACL:
//! programs that copy files know it as permissions.

use posix::acl::xattr::{
    AclXattrError, NFS4_ACL, NFS4_ACL_XDR, decode_nfs4_acl, decode_nfs4_acl_xdr, encode_nfs4_acl,
    encode_nfs4_acl_xdr,
};
use posix::acl::{PosixAclKind, nfs4};
use posix::{Ino, XattrMode};
use rustix::io::Errno;
use vfs::{Context, FileSystem as _};

use super::FileSystemServer;
use crate::convert::map_errno;

/// The files that name users and groups, with their numbers in the third field.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

impl FileSystemServer {
    /// Whether an extended attribute is the NFSv4 ACL of the file.
    pub(super) fn is_acl_xattr(&self, name: &[u8]) -> bool {
        [NFS4_ACL, NFS4_ACL_XDR].contains(&name) && self.fs.has_nfs4_acls()
    }

    /// Whether an attribute is a POSIX ACL that acltype=off hides. The kernel reads it to check
    /// permissions. It takes a missing attribute for no ACL, but any other error for a failed
    /// check.
    pub(super) fn hides_posix_acl(&self, name: &[u8]) -> bool {
        !self.fs.has_posix_acls()
            && [PosixAclKind::Access, PosixAclKind::Default]
                .iter()
                .any(|kind| kind.xattr_name() == name)
    }

    /// The name of an NFSv4 ACL in a list of attributes, if the ACL is not trivial.
    pub(super) fn listed_acl_xattr(&self, context: &Context<'_>, ino: Ino) -> Option<Vec<u8>> {
        if !self.fs.has_nfs4_acls() {
            return None;
        }
        // a caller that may not read the ACL does not see it
        let entries = self.fs.nfs4_acl(context, ino).ok()?;
        (!nfs4::is_trivial(&entries)).then(|| NFS4_ACL.to_vec())
    }

    /// The value of such an attribute.
    pub(super) fn acl_xattr(
        &self,
        context: &Context<'_>,
        ino: Ino,
        name: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        let entries = map_errno(self.fs.nfs4_acl(context, ino))?;
        let bytes = if name == NFS4_ACL {
            encode_nfs4_acl(&entries)
        } else {
            let is_directory = map_errno(self.fs.attributes(context, ino))?.kind.is_directory();
            encode_nfs4_acl_xdr(&entries, is_directory)
        };
        bytes.map_err(|why| to_errno(&why))
    }

    /// Sets the ACL. Without a value it becomes that of the mode.
    pub(super) fn set_acl_xattr(
        &self,
        context: &Context<'_>,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), Errno> {
        if mode == XattrMode::Create {
            // every file has an ACL
            return Err(Errno::EXIST);
        }
        let entries = match value {
            Some(bytes) if name == NFS4_ACL => decode_nfs4_acl(bytes, &lookup_name),
            Some(bytes) => decode_nfs4_acl_xdr(bytes),
            None => {
                let found = map_errno(self.fs.attributes(context, ino))?;
                Ok(nfs4::acl_from_mode(found.mode, found.kind.is_directory()))
            }
        };
        let entries = entries.map_err(|why| to_errno(&why))?;
        map_errno(self.fs.set_nfs4_acl(context, ino, &entries))
    }
}

fn to_errno(why: &AclXattrError) -> Errno {
    match why {
        AclXattrError::Malformed | AclXattrError::UnknownPrincipal { .. } => Errno::INVAL,
        AclXattrError::NotRepresentable => Errno::OPNOTSUPP,
    }
}

/// The number of a user or group of this system.
fn lookup_name(name: &str, is_group: bool) -> Option<u32> {
    let text = std::fs::read_to_string(if is_group { GROUPS } else { USERS }).ok()?;
    find_number(&text, name)
}

/// The third field of the line that begins with a name.
fn find_number(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::find_number;

    #[test]
    fn names_have_the_number_of_their_line() {
        let text = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:50::/home/alice:/bin/sh\nbad\n";
        assert_eq!(find_number(text, "alice"), Some(1000));
        assert_eq!(find_number(text, "root"), Some(0));
        assert_eq!([find_number(text, "ali"), find_number(text, "bad")], [None, None]);
    }
}
