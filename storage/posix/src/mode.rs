//! The permission bits of a file: 12 bits, of which 3 are set-user-ID, set-group-ID and sticky.

/// Set-user-ID.
pub const SET_UID: u32 = 0o4000;
/// Set-group-ID; of a directory: new files take its group.
pub const SET_GID: u32 = 0o2000;
/// Of a directory: only owners delete names.
pub const STICKY: u32 = 0o1000;
/// Execute permission of the group.
pub const GROUP_EXECUTE: u32 = 0o0010;
/// Execute permission of the owner, the group and others.
pub const ANY_EXECUTE: u32 = 0o0111;
/// All permission bits of a mode, without its file type.
pub const PERMISSIONS: u32 = 0o7777;

/// A mode after a write by an unprivileged process: without set-user-ID and set-group-ID.
///
/// Set-group-ID without group execute permission marked mandatory locking; as all file systems of
/// Linux do, this keeps it.
pub const fn without_setid(mode: u32) -> u32 {
    let set_gid = if mode & GROUP_EXECUTE == 0 { 0 } else { SET_GID };
    mode & !(SET_UID | set_gid)
}
