//! A store in a folder: a disk, a USB drive, a mounted share.
//!
//! An object is a file. It is written under another name, flushed, and then gets its own name if that is
//! free; the folder is flushed, too. So an object is whole or absent, and an object that was reported as
//! stored survives a power cut.
//!
//! ```text
//! FOLDER/heads/0000000000000001
//! FOLDER/packs/0000000000000001-…
//! FOLDER/packs/.part-PID-N       an object that is being written
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::backup::{ObjectInfo, ObjectStore, StoreError};
use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

/// The prefix of the names of files that are being written.
const PART: &str = ".part-";
/// A file that is being written is not older: a request takes seconds.
const PART_AGE: Duration = Duration::from_hours(24);

/// A store in a folder.
#[derive(Debug)]
pub struct FolderStore {
    root: PathBuf,
    next_part: AtomicU64,
}

impl FolderStore {
    /// The store in a folder. `create` makes the folder if it does not exist, for its owner alone.
    pub fn open(root: PathBuf, create: bool) -> engine::Result<Self> {
        let failed = |why: &io::Error| engine::Error::UnusablePath {
            path: root.display().to_string(),
            reason: engine::error::io_error_text(why),
        };
        if create {
            match DirBuilder::new().mode(0o700).create(&root) {
                Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(failed(&why)),
                _ => {}
            }
        }
        if !std::fs::metadata(&root).map_err(|why| failed(&why))?.is_dir() {
            return Err(failed(&io::Error::from(ErrorKind::NotADirectory)));
        }
        Ok(Self { root, next_part: AtomicU64::new(0) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn create_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        if std::fs::symlink_metadata(&path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !folder.exists() {
            create_folder(folder)?;
        }
        let number = self.next_part.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!("{PART}{}-{number}", std::process::id()));
        let written = write_part(&part, content).and_then(|()| publish(&part, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written.and_then(|()| File::open(folder)?.sync_all())
    }
}

/// Makes a folder of the store, and flushes the one above, which then has its name.
fn create_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(why),
        _ => {}
    }
    folder.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}

fn write_part(part: &Path, content: &[u8]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(part)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Gives a file its name if that is free. File systems without rename-if-absent have links.
fn publish(part: &Path, path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(CWD, part, CWD, path, AtFlags::empty())?;
            std::fs::remove_file(part)
        }
        other => Ok(other?),
    }
}

fn store_error(why: &io::Error) -> StoreError {
    let text = engine::error::io_error_text(why);
    match why.kind() {
        ErrorKind::NotFound => StoreError::NotFound,
        ErrorKind::AlreadyExists => StoreError::AlreadyExists,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::Denied { why: text }
        }
        _ => StoreError::Unavailable { why: text },
    }
}

impl ObjectStore for FolderStore {
    fn location(&self) -> String {
        format!("file://{}", self.root.display())
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        self.create_file(name, content).map_err(|why| store_error(&why))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let read = || {
            let mut file = File::open(self.path(name))?;
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|why: io::Error| store_error(&why))
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        std::fs::metadata(self.path(name)).map(|it| it.len()).map_err(|why| store_error(&why))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let (folder, begin) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        let entries = match std::fs::read_dir(self.path(folder)) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|why| store_error(&why))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|why| store_error(&why))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') || !name.starts_with(begin) {
                continue;
            }
            let info = match entry.metadata() {
                // deleted since the folder was read
                Err(why) if why.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(|why| store_error(&why))?,
            };
            let modified = info.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let name = format!("{folder}/{name}");
            let modified = modified.map(|since| since.as_secs());
            found.push(ObjectInfo { name, size: info.len(), modified });
        }
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        match std::fs::remove_file(self.path(name)) {
            Err(why) if why.kind() != ErrorKind::NotFound => Err(store_error(&why)),
            _ => Ok(()),
        }
    }

    fn remove_leftovers(&self) {
        for folder in std::fs::read_dir(&self.root).into_iter().flatten().flatten() {
            for entry in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let is_part = entry.file_name().to_string_lossy().starts_with(PART);
                let modified = entry.metadata().and_then(|it| it.modified()).ok();
                let age = modified.and_then(|at| SystemTime::now().duration_since(at).ok());
                if is_part && age.is_some_and(|age| age > PART_AGE) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }
}
