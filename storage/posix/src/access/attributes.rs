//! Whether a caller may set attributes, and which set-ID bits survive it.

use super::{Check, Denied, Target, TargetAcl, check};
use crate::acl::nfs4::mask;
use crate::{Capability, Credentials, FileFlags, FlagChange, SetAttributes, SetTime, mode};

/// Whether a caller may set attributes of a file. Returns the attributes to set: a caller outside the
/// file's group cannot set its set-group-ID bit.
///
/// # Errors
///
/// [`Denied::NotPermitted`] for what only the owner or a privileged caller may do; [`Denied::Access`] for
/// a size, and for the current time, without write permission.
pub fn check_set_attributes(
    credentials: &Credentials,
    target: &Target,
    set: &SetAttributes,
) -> Result<SetAttributes, Denied> {
    check_owner(credentials, target, set)?;
    if set.mode.is_some() && !may_change(credentials, target, mask::WRITE_ACL) {
        return Err(Denied::NotPermitted);
    }
    check_times(credentials, target, set)?;
    if let Some(change) = set.flags {
        check_flags(credentials, target, change)?;
    }
    let owned = set.crtime.is_some() || set.project_id.is_some();
    if owned && !may_change(credentials, target, mask::WRITE_ATTRIBUTES) {
        return Err(Denied::NotPermitted);
    }
    if set.size.is_some() {
        if target.flags.contains(FileFlags::APPEND_ONLY) {
            return Err(Denied::NotPermitted);
        }
        check(credentials, target, mask::WRITE_DATA)?;
    }
    let gid = set.gid.unwrap_or(target.gid);
    let keeps_setgid = credentials.is_in_group(gid) || credentials.has(Capability::FileSetId);
    let clear = if keeps_setgid { 0 } else { mode::SET_GID };
    Ok(SetAttributes { mode: set.mode.map(|mode| mode & !clear), ..*set })
}

/// Whether a caller may set attributes of a file, where the owner may set its size whatever its permissions
/// say (see [`super::check_open_with_owner_override`]). Returns the attributes to set.
///
/// # Errors
///
/// The errors of [`check_set_attributes`].
pub fn check_set_attributes_with_owner_override(
    credentials: &Credentials,
    target: &Target,
    set: &SetAttributes,
) -> Result<SetAttributes, Denied> {
    let is_fixed = target.flags.intersects(FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY));
    let has_override = set.size.is_some() && credentials.uid == target.uid && !is_fixed;
    let size = if has_override { None } else { set.size };
    let checked = check_set_attributes(credentials, target, &SetAttributes { size, ..*set })?;
    Ok(SetAttributes { size: set.size, ..checked })
}

/// Whether the caller owns the file, or an NFSv4 ACL gives the caller the permission `by_acl`.
fn may_change(credentials: &Credentials, target: &Target, by_acl: u32) -> bool {
    target.is_owned_by(credentials)
        || matches!(target.acl, TargetAcl::Nfs4(_)) && check(credentials, target, by_acl).is_ok()
}

/// A change of owner needs a capability. The owner may change the group to one of the owner's
/// groups. A caller with `WRITE_OWNER` by an NFSv4 ACL may take ownership.
fn check_owner(credentials: &Credentials, target: &Target, set: &SetAttributes) -> Check {
    if set.uid.is_none() && set.gid.is_none() {
        return Ok(());
    }
    if credentials.has(Capability::Chown) {
        // the set-ID bits that a new owner clears are a change of the mode
        let changes_mode = clears_setid(credentials, target);
        let may = !changes_mode || target.is_owned_by(credentials);
        return if may { Ok(()) } else { Err(Denied::NotPermitted) };
    }
    let is_taker = matches!(target.acl, TargetAcl::Nfs4(_))
        && check(credentials, target, mask::WRITE_OWNER).is_ok();
    let is_owner = credentials.uid == target.uid;
    let uid_ok = set
        .uid
        .is_none_or(|uid| is_owner && uid == target.uid || is_taker && uid == credentials.uid);
    let gid_ok = set.gid.is_none_or(|gid| {
        let may_name = gid == target.gid || credentials.is_in_group(gid);
        (is_owner || is_taker) && may_name
    });
    if uid_ok && gid_ok { Ok(()) } else { Err(Denied::NotPermitted) }
}

/// Whether a new owner or group clears set-ID bits of a file.
fn clears_setid(credentials: &Credentials, target: &Target) -> bool {
    let keeps_setgid = target.mode & mode::GROUP_EXECUTE == 0
        && (credentials.is_in_group(target.gid) || credentials.has(Capability::FileSetId));
    let cleared = if keeps_setgid { mode::SET_UID } else { mode::SET_UID | mode::SET_GID };
    !target.kind.is_directory() && target.mode & cleared != 0
}

/// The owner may set any time; a caller with write permission may set the current one.
fn check_times(credentials: &Credentials, target: &Target, set: &SetAttributes) -> Check {
    let times = [set.atime, set.mtime];
    if times == [None, None] || may_change(credentials, target, mask::WRITE_ATTRIBUTES) {
        return Ok(());
    }
    // a truncation sets the modification time with the size, whose permission counts
    if set.size.is_some() && set.atime.is_none() && set.mtime == Some(SetTime::Now) {
        return Ok(());
    }
    let are_now = times == [Some(SetTime::Now); 2];
    if !are_now {
        return Err(Denied::NotPermitted);
    }
    check(credentials, target, mask::WRITE_DATA)
}

fn check_flags(credentials: &Credentials, target: &Target, change: FlagChange) -> Check {
    let guarded = FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY).union(FileFlags::NO_UNLINK);
    let flipped = change.apply(target.flags).bits() ^ target.flags.bits();
    if flipped & guarded.bits() != 0 && !credentials.has(Capability::Immutable) {
        return Err(Denied::NotPermitted);
    }
    if may_change(credentials, target, mask::WRITE_ATTRIBUTES) {
        Ok(())
    } else {
        Err(Denied::NotPermitted)
    }
}
