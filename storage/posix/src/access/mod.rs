//! Access checks: whether a caller may do something to a file.
//!
//! A check uses the permissions of [`nfs4::mask`], the finest of the three models. A mode and a
//! POSIX ACL have three permissions, which cover the masks as follows.
//!
//! ```text
//! permission   file                                 directory
//! read         READ_DATA                            LIST_DIRECTORY
//! write        WRITE_DATA, APPEND_DATA              ADD_FILE, ADD_SUBDIRECTORY, DELETE_CHILD
//! execute      EXECUTE                              EXECUTE (search)
//! owner only   WRITE_ATTRIBUTES, WRITE_ACL, WRITE_OWNER
//! everyone     READ_ATTRIBUTES, READ_ACL, READ_NAMED_ATTRIBUTES, SYNCHRONIZE
//! ```
//!
//! `DELETE` of a file is a matter of its directory ([`names::check_delete`]).
//!
//! The rules are those of Linux (path_resolution(7), capabilities(7)); the tests compare them with the
//! kernel that runs the tests.

mod attributes;
mod names;
mod xattrs;

use crate::acl::{Ace, PosixAclEntry, nfs4, posix1e};
use crate::{Attributes, Capability, Credentials, FileFlags, FileType, mode};
use nfs4::mask;

pub use attributes::{check_set_attributes, check_set_attributes_with_owner_override};
pub use names::{check_create, check_delete, check_link, check_rename};
pub use xattrs::{check_get_xattr, check_set_acl, check_set_xattr, is_xattr_listed};

/// Why a caller may not do something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The permissions of the file do not allow it (`EACCES`).
    Access,
    /// Only the owner or a privileged caller may do it, or the file's flags forbid it (`EPERM`).
    NotPermitted,
    /// The attribute is invisible to this caller (`ENODATA`).
    NoData,
}

/// The result of a check.
pub type Check = Result<(), Denied>;

/// The facts of a file that access checks need.
#[derive(Clone, Debug)]
pub struct Target {
    /// The type.
    pub kind: FileType,
    /// Permission bits: 12 bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Flags.
    pub flags: FileFlags,
    /// The ACL.
    pub acl: TargetAcl,
}

/// The ACL of a file.
#[derive(Clone, Debug, Default)]
pub enum TargetAcl {
    /// The mode determines all permissions.
    #[default]
    Mode,
    /// A POSIX access ACL.
    Posix(Vec<PosixAclEntry>),
    /// An NFSv4 ACL.
    Nfs4(Vec<Ace>),
}

const READ: u16 = 4;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;
const WRITE_MASK: u32 = mask::WRITE_DATA | mask::APPEND_DATA | mask::DELETE_CHILD;
const OWNER_MASK: u32 = mask::WRITE_ATTRIBUTES | mask::WRITE_ACL | mask::WRITE_OWNER;
/// The permissions that the immutable flag takes from everyone.
const CONTENT_WRITES: u32 = WRITE_MASK | mask::WRITE_NAMED_ATTRIBUTES;

impl From<&Attributes> for Target {
    /// A file whose mode determines all permissions.
    fn from(attributes: &Attributes) -> Self {
        let Attributes { kind, mode, uid, gid, flags, .. } = *attributes;
        Self { kind, mode, uid, gid, flags, acl: TargetAcl::Mode }
    }
}

impl Target {
    /// Whether the caller is the owner or may act as any owner.
    fn is_owned_by(&self, credentials: &Credentials) -> bool {
        credentials.is_owner_or_capable(self.uid)
    }
}

/// Whether a caller has all of the permissions `wanted` of a file.
///
/// # Errors
///
/// [`Denied::NotPermitted`] for writes to an immutable file, else [`Denied::Access`].
pub fn check(credentials: &Credentials, target: &Target, wanted: u32) -> Check {
    if wanted & CONTENT_WRITES != 0 && target.flags.contains(FileFlags::IMMUTABLE) {
        return Err(Denied::NotPermitted);
    }
    if is_allowed(credentials, target, wanted) { Ok(()) } else { Err(Denied::Access) }
}

/// The permissions among `wanted` that a caller has, each by itself (`ACCESS` of NFS).
pub fn granted(credentials: &Credentials, target: &Target, wanted: u32) -> u32 {
    let bits = (0..u32::BITS).map(|bit| 1 << bit).filter(|bit| wanted & mask::ALL & bit != 0);
    bits.filter(|bit| check(credentials, target, *bit).is_ok()).sum()
}

fn is_allowed(credentials: &Credentials, target: &Target, wanted: u32) -> bool {
    if let TargetAcl::Nfs4(entries) = &target.acl {
        return is_allowed_by_nfs4(credentials, target, entries, wanted);
    }
    let owned = wanted & OWNER_MASK == 0 || target.is_owned_by(credentials);
    let permissions = to_permissions(wanted);
    owned
        && (permissions == 0
            || is_allowed_by_mode(credentials, target, permissions)
            || is_overridden(credentials, target, permissions))
}

/// The permissions of a mode that cover a mask.
fn to_permissions(wanted: u32) -> u16 {
    let rows = [(mask::READ_DATA, READ), (WRITE_MASK, WRITE), (mask::EXECUTE, EXECUTE)];
    rows.iter().filter(|row| wanted & row.0 != 0).map(|row| row.1).sum()
}

/// Whether the mode or the POSIX ACL allows it. Linux uses the ACL only if the mode has group bits.
fn is_allowed_by_mode(credentials: &Credentials, target: &Target, wanted: u16) -> bool {
    let shift = if credentials.uid == target.uid {
        6
    } else {
        if let TargetAcl::Posix(entries) = &target.acl
            && target.mode & 0o070 != 0
        {
            let owners = (target.uid, target.gid);
            return posix1e::is_allowed(entries, owners, credentials, wanted);
        }
        if credentials.is_in_group(target.gid) { 3 } else { 0 }
    };
    u32::from(wanted) & !(target.mode >> shift) == 0
}

/// Whether a capability allows it although the permissions do not. Execution of a file still needs
/// an execute bit.
fn is_overridden(credentials: &Credentials, target: &Target, wanted: u16) -> bool {
    let reads = if target.kind.is_directory() { READ | EXECUTE } else { READ };
    if wanted & !reads == 0 && credentials.has(Capability::DacReadSearch) {
        return true;
    }
    let is_executable = target.kind.is_directory() || target.mode & mode::ANY_EXECUTE != 0;
    credentials.has(Capability::DacOverride) && (wanted & EXECUTE == 0 || is_executable)
}

fn is_allowed_by_nfs4(
    credentials: &Credentials,
    target: &Target,
    entries: &[Ace],
    wanted: u32,
) -> bool {
    let decision = nfs4::evaluate(entries, (target.uid, target.gid), credentials, wanted);
    let mut open = wanted & !decision.allowed;
    if credentials.uid == target.uid {
        // no ACL locks its owner out of repairing it
        open &= !(mask::READ_ATTRIBUTES | mask::READ_ACL | mask::WRITE_ACL);
    }
    if open & !decision.denied & mask::SYNCHRONIZE != 0 {
        open &= !mask::SYNCHRONIZE;
    }
    let owner_rights = OWNER_MASK | mask::READ_ACL;
    if credentials.has(Capability::FileOwner) {
        open &= !owner_rights;
    }
    if open & owner_rights != 0 {
        return false;
    }
    let reads = mask::READ_ATTRIBUTES | mask::READ_NAMED_ATTRIBUTES | mask::SYNCHRONIZE;
    let rest = open & !(reads | mask::WRITE_NAMED_ATTRIBUTES | mask::DELETE);
    let mut permissions = to_permissions(rest);
    permissions |= if open & reads == 0 { 0 } else { READ };
    permissions |=
        if open & (mask::WRITE_NAMED_ATTRIBUTES | mask::DELETE) == 0 { 0 } else { WRITE };
    permissions == 0 || is_overridden(credentials, target, permissions)
}

/// The access that an open requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of open(2)")]
pub struct OpenMode {
    /// The caller reads.
    pub read: bool,
    /// The caller writes.
    pub write: bool,
    /// Every write goes to the end of the file (`O_APPEND`).
    pub append: bool,
    /// The file loses its content (`O_TRUNC`).
    pub truncate: bool,
    /// Reads do not change the access time (`O_NOATIME`).
    pub no_atime: bool,
    /// The caller executes the file.
    pub execute: bool,
}

impl OpenMode {
    /// An open to read.
    pub const READ: Self = Self {
        read: true,
        write: false,
        append: false,
        truncate: false,
        no_atime: false,
        execute: false,
    };
    /// An open to read and write.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };

    /// Whether the caller changes the content.
    pub const fn is_writing(self) -> bool {
        self.write || self.append || self.truncate
    }
}

/// Whether a caller may open a file.
///
/// # Errors
///
/// [`Denied::NotPermitted`] if the flags of the file forbid it, or the caller may not request
/// `no_atime`; else [`Denied::Access`].
pub fn check_open(credentials: &Credentials, target: &Target, open: OpenMode) -> Check {
    check_open_flags(target.flags, open)?;
    let write = if open.append { mask::APPEND_DATA } else { mask::WRITE_DATA };
    let rows = [
        (open.read, mask::READ_DATA),
        (open.write, write),
        (open.truncate, mask::WRITE_DATA),
        (open.execute, mask::EXECUTE),
    ];
    let wanted = rows.iter().filter(|row| row.0).fold(0, |all, row| all | row.1);
    check(credentials, target, wanted)?;
    if open.no_atime && !target.is_owned_by(credentials) {
        return Err(Denied::NotPermitted);
    }
    Ok(())
}

/// Whether a caller may open a file, where the owner may read and write it whatever its permissions say.
///
/// NFSv3 has no open: a client reads and writes for a program that opened the file earlier, perhaps when its
/// mode was another. Servers therefore let the owner read and write always. They let a caller read a file that
/// it may execute, since a client reads a program to execute it.
///
/// # Errors
///
/// The errors of [`check_open`].
pub fn check_open_with_owner_override(
    credentials: &Credentials,
    target: &Target,
    open: OpenMode,
) -> Check {
    let is_owner = credentials.uid == target.uid;
    let reads_program =
        target.kind == FileType::File && check(credentials, target, mask::EXECUTE).is_ok();
    check_open_flags(target.flags, open)?;
    check_open(
        credentials,
        target,
        OpenMode {
            read: open.read && !is_owner && !reads_program,
            write: open.write && !is_owner,
            append: open.append && !is_owner,
            truncate: open.truncate && !is_owner,
            ..open
        },
    )
}

/// Whether the flags of a file allow such an open at all.
///
/// # Errors
///
/// [`Denied::NotPermitted`].
pub fn check_open_flags(flags: FileFlags, open: OpenMode) -> Check {
    let writes = open.write || open.append || open.truncate;
    let only_appends = open.append && !open.truncate;
    let is_forbidden = writes && flags.contains(FileFlags::IMMUTABLE)
        || writes && !only_appends && flags.contains(FileFlags::APPEND_ONLY);
    if is_forbidden { Err(Denied::NotPermitted) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
