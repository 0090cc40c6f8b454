//! Whether a caller may use extended attributes and ACLs (xattr(7)).
//!
//! ```text
//! namespace   read                       write
//! user.       read permission            write permission; only of files and directories; in a
//!                                        sticky directory only the owner sets its own
//! trusted.    CAP_SYS_ADMIN              CAP_SYS_ADMIN
//! security.   everyone                   CAP_SYS_ADMIN; security.capability: CAP_SETFCAP
//! system.     everyone                   the owner
//! ```

use super::{Check, Denied, Target, TargetAcl, check};
use crate::acl::nfs4::mask;
use crate::{Capability, Credentials, FileFlags, FileType, mode};

/// Whether a caller may read an extended attribute.
///
/// # Errors
///
/// [`Denied::Access`]; [`Denied::NoData`] for a namespace that is hidden from the caller.
pub fn check_get_xattr(credentials: &Credentials, target: &Target, name: &[u8]) -> Check {
    if name.starts_with(b"trusted.") {
        return if credentials.has(Capability::Administrator) {
            Ok(())
        } else {
            Err(Denied::NoData)
        };
    }
    if name.starts_with(b"user.") {
        if !has_user_xattrs(target) {
            return Err(Denied::NoData);
        }
        return check(credentials, target, mask::READ_DATA);
    }
    Ok(())
}

/// Whether a list of extended attributes shows a name to a caller.
pub fn is_xattr_listed(credentials: &Credentials, name: &[u8]) -> bool {
    !name.starts_with(b"trusted.") || credentials.has(Capability::Administrator)
}

/// Whether a caller may set or remove an extended attribute.
///
/// # Errors
///
/// [`Denied::Access`] or [`Denied::NotPermitted`].
pub fn check_set_xattr(credentials: &Credentials, target: &Target, name: &[u8]) -> Check {
    if target.flags.intersects(FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY)) {
        return Err(Denied::NotPermitted);
    }
    let needs = |capability| {
        if credentials.has(capability) { Ok(()) } else { Err(Denied::NotPermitted) }
    };
    if name == b"security.capability" {
        return needs(Capability::SetFileCapabilities);
    }
    if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
        return needs(Capability::Administrator);
    }
    if name.starts_with(b"system.") {
        return check_set_acl(credentials, target);
    }
    let is_sticky_dir = target.kind.is_directory() && target.mode & mode::STICKY != 0;
    if !has_user_xattrs(target) || is_sticky_dir && !target.is_owned_by(credentials) {
        return Err(Denied::NotPermitted);
    }
    check(credentials, target, mask::WRITE_DATA)
}

/// Whether a caller may set the ACL of a file.
///
/// # Errors
///
/// [`Denied::NotPermitted`].
pub fn check_set_acl(credentials: &Credentials, target: &Target) -> Check {
    let by_acl = matches!(target.acl, TargetAcl::Nfs4(_))
        && check(credentials, target, mask::WRITE_ACL).is_ok();
    let is_immutable = target.flags.contains(FileFlags::IMMUTABLE);
    if !is_immutable && (target.is_owned_by(credentials) || by_acl) {
        Ok(())
    } else {
        Err(Denied::NotPermitted)
    }
}

/// Links and special files are writable for everybody, so user attributes on them could fill the
/// disk.
fn has_user_xattrs(target: &Target) -> bool {
    matches!(target.kind, FileType::File | FileType::Directory)
}
