//! The metadata of a copied file: owner, mode, attributes, ACLs, times.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use engine::files::{File, FileStat, FileType, Time};
use rustix::fs::{
    AtFlags, CWD, FileType as NodeType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
};

/// The metadata that could not be kept, by its name, with the count and the first reason. It is
/// reported once, at the end.
#[derive(Default)]
pub(crate) struct LostAttributes {
    counts: Mutex<BTreeMap<&'static str, (u64, String)>>,
}

impl LostAttributes {
    pub(crate) fn add(&self, what: &'static str, why: &dyn std::fmt::Display) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = counts.entry(what).or_insert_with(|| (0, why.to_string()));
        entry.0 += 1;
    }

    /// The kind of metadata, the count, and the first reason.
    pub(crate) fn summary(&self) -> Vec<(&'static str, u64, String)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(what, (count, why))| (*what, *count, why.clone())).collect()
    }
}

/// The metadata to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeOptions {
    /// Owners and groups.
    pub(crate) owner: bool,
    /// Extended attributes and ACLs.
    pub(crate) xattrs: bool,
}

/// How far off the time of a file is that could not be copied in full, in seconds: by this a later
/// run knows that it may try again. Coarse file systems keep it.
pub(crate) const DAMAGED_MTIME_SHIFT: i64 = 2;

/// Sets the metadata of `file` on `path`. `shift` is added to its modification time.
pub(crate) fn apply_attributes(
    path: &Path,
    file: &File,
    keep: AttributeOptions,
    shift: i64,
    not_kept: &LostAttributes,
) {
    let facts = file.stat();
    if keep.owner {
        let (uid, gid) = (Uid::from_raw(facts.uid), Gid::from_raw(facts.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Err(error) = rustix::fs::chownat(CWD, path, Some(uid), Some(gid), flags) {
            not_kept.add("owners", &error);
        }
    }
    if facts.kind != FileType::Symlink
        && let Err(error) = rustix::fs::chmod(path, Mode::from_raw_mode(facts.mode))
    {
        not_kept.add("modes", &error);
    }
    if keep.xattrs && matches!(facts.kind, FileType::File | FileType::Directory) {
        set_xattrs(path, file, not_kept);
    }
    let mut modified = facts.mtime;
    modified.seconds = modified.seconds.saturating_add(shift);
    if let Err(error) = set_times(path, facts.atime, modified) {
        not_kept.add("times", &error);
    }
}

fn set_xattrs(path: &Path, file: &File, not_kept: &LostAttributes) {
    let found = match file.xattrs() {
        Ok(found) => found,
        Err(why) => return not_kept.add("extended attributes that cannot be read", &why),
    };
    for (name, value) in found {
        let what = match name.split(|byte| *byte == b'.').next() {
            Some(b"system") => "ACLs",
            Some(b"trusted") => "trusted attributes",
            Some(b"security") => "security attributes",
            _ => "extended attributes",
        };
        if let Err(error) = rustix::fs::lsetxattr(path, &*name, &value, XattrFlags::empty()) {
            not_kept.add(what, &error);
        }
    }
}

fn set_times(path: &Path, accessed: Time, modified: Time) -> io::Result<()> {
    let spec = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times = Timestamps { last_access: spec(accessed), last_modification: spec(modified) };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Makes a node that has no content: a device, FIFO or socket.
pub(crate) fn create_node(path: &Path, facts: &FileStat) -> io::Result<()> {
    let kind = match facts.kind {
        FileType::Fifo => NodeType::Fifo,
        FileType::Socket => NodeType::Socket,
        FileType::CharDevice => NodeType::CharacterDevice,
        _ => NodeType::BlockDevice,
    };
    let device = rustix::fs::makedev(facts.rdev.0, facts.rdev.1);
    let mode = Mode::from_raw_mode(facts.mode & 0o777);
    Ok(rustix::fs::mknodat(CWD, path, kind, mode, device)?)
}
