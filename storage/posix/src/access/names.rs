//! Whether a caller may change the names in a directory.

use super::{Check, Denied, Target, TargetAcl, check};
use crate::acl::nfs4::{self, mask};
use crate::{Capability, Credentials, FileFlags, FileType, RenameMode, mode};

/// Whether a caller may create a file of a type in a directory.
///
/// # Errors
///
/// [`Denied::Access`] or [`Denied::NotPermitted`] of the directory; [`Denied::NotPermitted`] for a device
/// without the capability for it.
pub fn check_create(
    credentials: &Credentials,
    dir: &Target,
    kind: FileType,
    rdev: (u32, u32),
) -> Check {
    let add = if kind.is_directory() { mask::ADD_SUBDIRECTORY } else { mask::ADD_FILE };
    check(credentials, dir, add | mask::EXECUTE)?;
    // device 0, 0 is a whiteout and leads nowhere
    let is_device = match kind {
        FileType::BlockDevice => true,
        FileType::CharDevice => rdev != (0, 0),
        _ => false,
    };
    if is_device && !credentials.has(Capability::MakeNode) {
        return Err(Denied::NotPermitted);
    }
    Ok(())
}

/// Whether a caller may give a file one more name.
///
/// # Errors
///
/// [`Denied::Access`] of the directory; [`Denied::NotPermitted`] if the flags of the file forbid it.
pub fn check_link(credentials: &Credentials, dir: &Target, file: &Target) -> Check {
    check(credentials, dir, mask::ADD_FILE | mask::EXECUTE)?;
    check_flags(file)
}

/// Whether a caller may take a name from a directory.
///
/// With NFSv4 ACLs a caller needs `DELETE_CHILD` of the directory or `DELETE` of the file. If the
/// directory's ACL does not mention `DELETE_CHILD`, permission to add files takes its place.
///
/// # Errors
///
/// [`Denied::Access`] of the directory; [`Denied::NotPermitted`] in a sticky directory, or if flags
/// forbid it.
pub fn check_delete(credentials: &Credentials, dir: &Target, file: &Target) -> Check {
    check(credentials, dir, mask::EXECUTE)?;
    check_entry_removal(credentials, dir, file)?;
    if dir.flags.contains(FileFlags::APPEND_ONLY) {
        return Err(Denied::NotPermitted);
    }
    let is_sticky = dir.mode & mode::STICKY != 0;
    let is_owner = credentials.uid == file.uid || credentials.uid == dir.uid;
    if is_sticky && !is_owner && !credentials.has(Capability::FileOwner) {
        return Err(Denied::NotPermitted);
    }
    check_flags(file)
}

fn check_entry_removal(credentials: &Credentials, dir: &Target, file: &Target) -> Check {
    if dir.flags.contains(FileFlags::IMMUTABLE) {
        return Err(Denied::NotPermitted);
    }
    // one check for both: a capability may cover either alone and not both
    let by_dir = check(credentials, dir, mask::DELETE_CHILD | mask::EXECUTE);
    let by_file =
        matches!(file.acl, TargetAcl::Nfs4(_)) && check(credentials, file, mask::DELETE).is_ok();
    let TargetAcl::Nfs4(entries) = &dir.acl else {
        return if by_file { Ok(()) } else { by_dir };
    };
    let owners = (dir.uid, dir.gid);
    let decision = nfs4::evaluate(entries, owners, credentials, mask::DELETE_CHILD);
    let is_unmentioned = decision == nfs4::Decision::default();
    let by_writing =
        is_unmentioned && check(credentials, dir, mask::ADD_FILE | mask::EXECUTE).is_ok();
    if by_file || by_writing { Ok(()) } else { by_dir }
}

fn check_flags(file: &Target) -> Check {
    let forbidding = FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY).union(FileFlags::NO_UNLINK);
    if file.flags.intersects(forbidding) { Err(Denied::NotPermitted) } else { Ok(()) }
}

/// Whether a caller may rename `file` from one directory to another, where `replaced` has the new name.
///
/// # Errors
///
/// The errors of [`check_delete`] and [`check_create`] for the directories. [`Denied::Access`] also
/// for a directory that moves and that the caller cannot write, as its `..` changes.
pub fn check_rename(
    credentials: &Credentials,
    (from_dir, file): (&Target, &Target),
    (to_dir, replaced): (&Target, Option<&Target>),
    is_same_dir: bool,
    rename: RenameMode,
) -> Check {
    check_delete(credentials, from_dir, file)?;
    let add = if file.kind.is_directory() { mask::ADD_SUBDIRECTORY } else { mask::ADD_FILE };
    match replaced {
        Some(replaced) => check_delete(credentials, to_dir, replaced)?,
        None => check(credentials, to_dir, add | mask::EXECUTE)?,
    }
    let moves_dir = |moved: &Target| !is_same_dir && moved.kind.is_directory();
    if moves_dir(file) {
        check(credentials, file, mask::ADD_FILE)?;
    }
    if let Some(replaced) = replaced.filter(|_| rename == RenameMode::Exchange)
        && moves_dir(replaced)
    {
        check(credentials, replaced, mask::ADD_FILE)?;
    }
    Ok(())
}
