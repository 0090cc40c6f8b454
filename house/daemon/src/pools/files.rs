//! Files in snapshots: listed, and restored beside the present ones. The snapshots are of a pool, or of a repository of
//! backups.
//!
//! A restored file gets its content without a name, and its name last: no power cut leaves a part of a file under
//! the name.

use api::{FileEntry, ListFiles, RestoreFile, restored_name};
use engine::files::{File, FileSystemReader};
use posix::access::OpenMode;
use posix::acl::PosixAclKind;
use posix::{Credentials, FileType, Ino, NewInode, SetAttributes, SetTime, WriteOffset, XattrMode};
use vfs::{Context, DoorId, FileSystem as _, PoolFileSystem};

use super::{Pools, diff};
use crate::{Error, Result};

/// The names that one call lists, at most.
const MAX_ENTRIES: usize = 20_000;
/// The bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// The names that are tried for a restored file.
pub(super) const MAX_NAMES: usize = 100;
pub(super) const CONTEXT: Context<'static> = Context::new(&Credentials::ROOT, DoorId::DAEMON);

/// The names in a folder of a snapshot or file system.
pub(crate) fn list(reader: &FileSystemReader, call: &ListFiles) -> Result<Vec<FileEntry>> {
    let dir = find(reader, &call.dataset, &call.path)?;
    if !dir.stat().is_directory() {
        let why = format!("'{}' of '{}' is not a folder", call.path, call.dataset);
        return Err(Error::refused_error(why));
    }
    let failed = |why: engine::files::Error| unreadable(&call.dataset, &call.path, &why);
    let mut entries = Vec::new();
    for found in reader.read_dir_sorted(&dir).map_err(failed)?.into_iter().take(MAX_ENTRIES) {
        let stat = reader.stat(found.ino).map_err(failed)?;
        entries.push(FileEntry {
            is_exact: std::str::from_utf8(&found.name).is_ok(),
            name: String::from_utf8_lossy(&found.name).into_owned(),
            file_type: diff::letter(stat.kind).to_owned(),
            size: stat.size,
            modified: stat.mtime.seconds,
        });
    }
    Ok(entries)
}

/// The file system of a snapshot `FS@NAME`, or the one that gets what is restored instead.
pub(super) fn restored_into<'a>(snapshot: &'a str, into: Option<&'a str>) -> Result<&'a str> {
    let Some((head, _)) = snapshot.split_once('@') else {
        return Err(Error::usage_error(format!("'{snapshot}' is not a snapshot: FS@NAME")));
    };
    Ok(into.unwrap_or(head))
}

impl Pools {
    /// The files of a snapshot `FS@NAME`, or of a file system as of its last txg.
    pub(crate) fn snapshot_reader(&self, dataset: &str) -> Result<FileSystemReader> {
        let head = dataset.split('@').next().unwrap_or(dataset);
        Ok(self.pool_of_dataset(head)?.handle.datasets().synced_reader(dataset)?)
    }

    /// Restores a file of the snapshot that `reader` reads.
    pub(crate) fn restore_file(
        &self,
        reader: &FileSystemReader,
        call: &RestoreFile,
    ) -> Result<String> {
        let head = restored_into(&call.snapshot, call.into.as_deref())?;
        let pool = self.pool_of_dataset(head)?;
        let file = find(reader, &call.snapshot, &call.path)?;
        if file.stat().kind != FileType::File {
            let why = format!("'{}' is not a regular file; copy it from .zfs/snapshot", call.path);
            return Err(Error::refused_error(why));
        }
        let path = call.path.trim_matches('/');
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let door = pool.filesystems.open_door(head, "restored file")?;
        let fs = door.filesystem();
        let refused =
            |why: vfs::Error| Error::refused_error(format!("cannot restore '{path}': {why}"));
        let (folder, dir) = nearest_folder(fs, dir).map_err(refused)?;
        let name =
            restore(fs, &file, folder, &restored_name(name, &call.snapshot)).map_err(refused)?;
        Ok(format!("{dir}/{name}"))
    }
}

pub(super) fn unreadable(dataset: &str, path: &str, why: &engine::files::Error) -> Error {
    Error::refused_error(format!("cannot read '{path}' of '{dataset}': {why}"))
}

pub(super) fn find(reader: &FileSystemReader, dataset: &str, path: &str) -> Result<File> {
    let found = reader.find(path.as_bytes()).map_err(|why| unreadable(dataset, path, &why))?;
    found.ok_or_else(|| Error::refused_error(format!("there is no '{path}' in '{dataset}'")))
}

/// The folder of a path in the present file system, or the nearest one above it that exists. Returns its path, too: `/a/b`,
/// or nothing for the root.
pub(super) fn nearest_folder(fs: &PoolFileSystem, path: &str) -> vfs::Result<(Ino, String)> {
    let (mut folder, mut found) = (fs.root()?, String::new());
    for part in path.split('/').filter(|part| !part.is_empty()) {
        match fs.lookup(&CONTEXT, folder, part.as_bytes()) {
            Ok(next) if next.kind == FileType::Directory => folder = next.ino,
            Ok(_) | Err(vfs::Error::NotFound) => break,
            Err(why) => return Err(why),
        }
        found = format!("{found}/{part}");
    }
    Ok((folder, found))
}

/// Copies a file into a folder of the present file system. Returns the name, which no other file had.
fn restore(fs: &PoolFileSystem, file: &File, folder: Ino, name: &str) -> vfs::Result<String> {
    let stat = file.stat();
    let new = NewInode { mode: 0o600, umask: 0, ..NewInode::default() };
    let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
    let opened = fs.create_tmpfile(&CONTEXT, folder, &new, mode)?;
    let ino = opened.attributes.ino;
    copy_content(fs, file, &opened.file, &mut |_| true)?;
    copy_access(fs, file, ino)?;
    let times = SetAttributes {
        atime: Some(SetTime::At(stat.atime)),
        mtime: Some(SetTime::At(stat.mtime)),
        ..SetAttributes::default()
    };
    fs.set_attributes(&CONTEXT, ino, &times)?;
    let mut tried = name.to_owned();
    for number in 2..MAX_NAMES {
        match fs.link(&CONTEXT, ino, folder, tried.as_bytes()) {
            Err(vfs::Error::Refused { reason: vfs::Reason::Exists }) => {
                tried = format!("{name} {number}");
            }
            Err(why) => return Err(why),
            Ok(_) => {
                fs.commit(&CONTEXT, ino)?;
                return Ok(tried);
            }
        }
    }
    Err(vfs::Error::Refused { reason: vfs::Reason::Exists })
}

/// Copies the bytes. Chunks of zeros stay holes. `goes_on` gets the bytes of each chunk; if it returns false, the copy
/// ends early.
pub(super) fn copy_content(
    fs: &PoolFileSystem,
    file: &File,
    into: &<PoolFileSystem as vfs::FileSystem>::File,
    goes_on: &mut dyn FnMut(u64) -> bool,
) -> vfs::Result<()> {
    let content = file.content();
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let count = content.read(at, &mut chunk)?;
        let Some(bytes) = chunk.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        if bytes.iter().any(|byte| *byte != 0) {
            fs.write(&CONTEXT, into, WriteOffset::At(at), bytes)?;
        }
        at += units::to_u64(count);
        if !goes_on(units::to_u64(count)) {
            return Ok(());
        }
    }
    fs.truncate(&CONTEXT, into, content.size())
}

/// Copies owner, permissions, ACLs and extended attributes. The owner comes before the permissions, since a change of
/// the owner clears set-ID bits.
pub(super) fn copy_access(fs: &PoolFileSystem, file: &File, ino: Ino) -> vfs::Result<()> {
    let stat = file.stat();
    let owner =
        SetAttributes { uid: Some(stat.uid), gid: Some(stat.gid), ..SetAttributes::default() };
    fs.set_attributes(&CONTEXT, ino, &owner)?;
    for (name, value) in file.xattrs()? {
        if !name.starts_with(b"system.") {
            fs.set_xattr(&CONTEXT, ino, &name, Some(&value), XattrMode::Any)?;
        }
    }
    let mode = SetAttributes { mode: Some(stat.mode), ..SetAttributes::default() };
    fs.set_attributes(&CONTEXT, ino, &mode)?;
    let limits = fs.limits();
    if limits.has_nfs4_acls {
        fs.set_nfs4_acl(&CONTEXT, ino, &file.nfs4_acl()?)?;
    } else if limits.has_posix_acls
        && let Some(acl) = file.posix_acl(PosixAclKind::Access)?
    {
        fs.set_posix_acl(&CONTEXT, ino, PosixAclKind::Access, Some(&acl))?;
    }
    Ok(())
}
