//! Folders of snapshots, restored beside the present ones as a job.
//!
//! ```text
//! photos                           the present folder, which stays as it is
//! photos (monday).partial          grows while the job runs; a job that is cut leaves it
//! photos (monday)                  its name once all is there
//! ```
//!
//! Names, hard links, symbolic links, device nodes, owners, permissions, ACLs, times and extended attributes are
//! restored. File systems that were mounted below the folder are not part of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;

use api::{JobProgress, RestoreFolder, StartedRestore, restored_name};
use engine::files::{File, FileSystemReader};
use posix::access::OpenMode;
use posix::acl::PosixAclKind;
use posix::{
    FileType, Ino, NewInode, RenameMode, RenameRequest, SetAttributes, SetTime, XattrMode,
};
use vfs::{FileSystem as _, PoolFileSystem};

use super::Pools;
use super::files::{
    CONTEXT, MAX_NAMES, copy_access, copy_content, find, nearest_folder, restored_into, unreadable,
};
use super::filesystems::Door;
use crate::auth::Caller;
use crate::jobs::{JobControl, RunningJob};
use crate::{Error, Result};

/// The ending of the folder while the job runs.
const PARTIAL: &str = ".partial";
/// The errors that the job's sentence has.
const MAX_SHOWN: usize = 3;

/// The control of the job: what it has copied.
#[derive(Default)]
struct RestoreControl {
    bytes: AtomicU64,
    is_cancelled: AtomicBool,
}

impl JobControl for RestoreControl {
    fn progress(&self) -> JobProgress {
        let done = self.bytes.load(Ordering::Relaxed);
        // the size of a folder is known only once it is read
        JobProgress { done, total: 0, unit: "bytes".to_owned() }
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }
}

/// A restore that runs.
struct FolderRestore {
    pools: Arc<Pools>,
    control: Arc<RestoreControl>,
    door: Door,
    reader: FileSystemReader,
    /// Inodes with several names: those in the snapshot, and the restored ones.
    links: HashMap<u64, Ino>,
    files: u64,
    failures: Vec<String>,
    failed: u64,
}

/// A folder that is copied: its inode in the snapshot and in the present, and its path below the top.
struct CopiedFolder {
    from: File,
    into: Ino,
    path: String,
}

impl Pools {
    /// Starts the job that restores a folder of the snapshot that `reader` reads.
    pub(crate) fn restore_folder(
        self: &Arc<Self>,
        reader: FileSystemReader,
        call: &RestoreFolder,
        caller: &Caller,
    ) -> Result<StartedRestore> {
        let head = restored_into(&call.snapshot, call.into.as_deref())?;
        let pool = self.pool_of_dataset(head)?;
        let top = find(&reader, &call.snapshot, &call.path)?;
        if !top.stat().is_directory() {
            let why = format!("'{}' of '{}' is not a folder", call.path, call.snapshot);
            return Err(Error::refused_error(why));
        }
        let path = call.path.trim_matches('/');
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let name = if name.is_empty() { "files" } else { name };
        let name = restored_name(name, &call.snapshot);
        let door = pool.filesystems.open_door(head, "the restore of a folder")?;
        drop(pool);
        let refused =
            |why: vfs::Error| Error::refused_error(format!("cannot restore '{path}': {why}"));
        let (folder, dir) = nearest_folder(door.filesystem(), dir).map_err(refused)?;
        let (name, into) = create_partial(door.filesystem(), folder, &name).map_err(refused)?;
        let control = Arc::new(RestoreControl::default());
        let subject = format!("{}:/{path}", call.snapshot);
        let uid = caller.peer.uid;
        let job = self.jobs.start("restore", &subject, uid, Arc::clone(&control) as Arc<_>);
        let started = StartedRestore { job: job.id(), path: format!("{dir}/{name}") };
        let work = FolderRestore {
            pools: Arc::clone(self),
            control,
            door,
            reader,
            links: HashMap::new(),
            files: 0,
            failures: Vec::new(),
            failed: 0,
        };
        let thread = Builder::new().name("folder restore".to_owned());
        let spawned = thread.spawn(move || work.run(top, (folder, &name, into), job));
        spawned.map_err(|why| Error::refused_error(format!("no thread: {why}")))?;
        Ok(started)
    }
}

/// Creates the folder of a restore under a name that neither it nor its partial form has. Returns its final name.
fn create_partial(fs: &PoolFileSystem, folder: Ino, name: &str) -> vfs::Result<(String, Ino)> {
    let new = NewInode { kind: FileType::Directory, mode: 0o700, umask: 0, ..NewInode::default() };
    let mut tried = name.to_owned();
    for number in 2..MAX_NAMES {
        let is_free = fs.lookup(&CONTEXT, folder, tried.as_bytes()).is_err();
        let partial = format!("{tried}{PARTIAL}");
        match fs.create(&CONTEXT, folder, partial.as_bytes(), &new) {
            Ok(made) if is_free => return Ok((tried, made.ino)),
            Ok(_) => fs.rmdir(&CONTEXT, folder, partial.as_bytes())?,
            Err(vfs::Error::Refused { reason: vfs::Reason::Exists }) => {}
            Err(why) => return Err(why),
        }
        tried = format!("{name} {number}");
    }
    Err(vfs::Error::Refused { reason: vfs::Reason::Exists })
}

impl FolderRestore {
    fn run(mut self, top: File, (folder, name, into): (Ino, &str, Ino), job: RunningJob) {
        let partial = format!("{name}{PARTIAL}");
        let copied = self.copy_tree(top, into);
        let fs = self.door.filesystem();
        let files = self.files;
        match copied {
            Ok(true) if self.failed == 0 => {
                let rename = RenameRequest {
                    from_dir: folder,
                    from_name: partial.as_bytes(),
                    to_dir: folder,
                    to_name: name.as_bytes(),
                    mode: RenameMode::NoReplace,
                };
                let renamed = fs.rename(&CONTEXT, &rename).and_then(|()| fs.commit_all(&CONTEXT));
                match renamed {
                    Ok(()) => job.finish_with(format!("{files} names were restored to '{name}'.")),
                    Err(why) => job.fail(format!(
                        "All {files} names were restored, and the folder keeps the name '{partial}': {why}"
                    )),
                }
            }
            Ok(true) => job.fail(format!(
                "{files} names were restored to '{partial}', and {} could not be: {}",
                self.failed,
                self.failures.join("; ")
            )),
            Ok(false) => {
                job.cancelled(format!("Cancelled. '{partial}' has the {files} names until then."));
            }
            Err(why) => {
                job.fail(format!("The restore stopped: {why}. '{partial}' has {files} names."));
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.control.is_cancelled.load(Ordering::Acquire)
            || self.pools.shutting_down.load(Ordering::Acquire)
    }

    /// Copies all below a folder. Returns whether it came to the end.
    fn copy_tree(&mut self, top: File, into: Ino) -> Result<bool> {
        let mut pending = vec![CopiedFolder { from: top, into, path: String::new() }];
        let mut done = Vec::new();
        while let Some(folder) = pending.pop() {
            let path = &folder.path;
            let failed = |why: engine::files::Error| unreadable("the snapshot", path, &why);
            for entry in self.reader.read_dir_sorted(&folder.from).map_err(failed)? {
                if self.is_ending() {
                    return Ok(false);
                }
                let shown = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                match self.copy_entry(&entry.name, entry.ino, folder.into) {
                    Ok(None) => {}
                    Ok(Some((from, into))) => {
                        pending.push(CopiedFolder { from, into, path: shown });
                    }
                    Err(why) => {
                        self.failed += 1;
                        if self.failures.len() < MAX_SHOWN {
                            self.failures.push(format!("'{shown}': {why}"));
                        }
                    }
                }
            }
            done.push(folder);
        }
        // the names in a folder change its times, so that these are set last
        for folder in done.iter().rev() {
            self.set_access(&folder.from, folder.into)
                .map_err(|why| Error::refused_error(format!("'{}': {why}", folder.path)))?;
        }
        Ok(true)
    }

    /// Copies a name of a folder. Returns the folders whose content is to be copied next.
    fn copy_entry(&mut self, name: &[u8], ino: u64, dir: Ino) -> vfs::Result<Option<(File, Ino)>> {
        let file = self.reader.file(ino)?;
        let stat = file.stat();
        let fs = self.door.filesystem();
        if let Some(known) = self.links.get(&ino) {
            fs.link(&CONTEXT, *known, dir, name)?;
            self.files += 1;
            return Ok(None);
        }
        let target = if stat.kind == FileType::Symlink { file.read_link()? } else { Vec::new() };
        let new = NewInode {
            kind: stat.kind,
            mode: if stat.is_directory() { 0o700 } else { 0o600 },
            umask: 0,
            rdev: stat.rdev,
            target: &target,
            times: None,
        };
        let made = fs.create(&CONTEXT, dir, name, &new)?.ino;
        if stat.is_directory() {
            self.files += 1;
            return Ok(Some((file, made)));
        }
        if stat.kind == FileType::File {
            let mode = OpenMode { read: true, write: true, ..OpenMode::default() };
            let opened = fs.open(&CONTEXT, made, mode)?;
            let control = &self.control;
            let mut goes_on = |bytes: u64| {
                control.bytes.fetch_add(bytes, Ordering::Relaxed);
                !self.is_ending()
            };
            copy_content(fs, &file, &opened, &mut goes_on)?;
        }
        self.set_access(&file, made)?;
        if stat.nlink > 1 {
            self.links.insert(ino, made);
        }
        self.files += 1;
        Ok(None)
    }

    /// Sets owner, permissions, ACL, extended attributes and times.
    fn set_access(&self, from: &File, into: Ino) -> vfs::Result<()> {
        let (fs, stat) = (self.door.filesystem(), from.stat());
        if stat.kind == FileType::Symlink {
            let (uid, gid) = (Some(stat.uid), Some(stat.gid));
            fs.set_attributes(
                &CONTEXT,
                into,
                &SetAttributes { uid, gid, ..SetAttributes::default() },
            )?;
            for (name, value) in from.xattrs()? {
                fs.set_xattr(&CONTEXT, into, &name, Some(&value), XattrMode::Any)?;
            }
        } else {
            copy_access(fs, from, into)?;
        }
        let limits = fs.limits();
        if stat.is_directory() && limits.has_posix_acls && !limits.has_nfs4_acls {
            let inherited = from.posix_acl(PosixAclKind::Default)?;
            fs.set_posix_acl(&CONTEXT, into, PosixAclKind::Default, inherited.as_deref())?;
        }
        let times = SetAttributes {
            atime: Some(SetTime::At(stat.atime)),
            mtime: Some(SetTime::At(stat.mtime)),
            ..SetAttributes::default()
        };
        fs.set_attributes(&CONTEXT, into, &times).map(drop)
    }
}
