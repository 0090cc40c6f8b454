//! A cache of a store in a local folder, with a bound.
//!
//! Packs, index objects and manifests never change, and no name is used twice. So what was read once is right
//! for ever, and the cache needs no check with the store. Heads are not cached. A file has the bytes of
//! one read and their BLAKE3 hash, so that damage on the local disk is noticed.
//!
//! ```text
//! FOLDER/packs-0000000000000001-…-1048576-2097152      bytes 1048576 to 2097152 of a pack, and 32 bytes of hash
//! FOLDER/.part-PID-N                                   a file that is being written
//! ```

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use engine::backup::{ObjectInfo, ObjectStore, StoreError};

/// The objects that never change.
const CACHED: [&str; 3] = ["packs/", "index/", "snapshots/"];
const HASH_SIZE: usize = 32;

/// A store with a cache in a folder.
pub struct CachedStore {
    store: Arc<dyn ObjectStore>,
    folder: PathBuf,
    max_bytes: u64,
    /// Bytes in the folder, as far as this process knows.
    bytes: AtomicU64,
    next_part: AtomicU64,
}

impl CachedStore {
    /// Puts a cache before a store. The folder is created for its owner alone. `max_bytes`: the files in it
    /// take no more; those that were read longest ago go first.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        folder: PathBuf,
        max_bytes: u64,
    ) -> engine::Result<Self> {
        let failed = |why: &io::Error| engine::Error::UnusablePath {
            path: folder.display().to_string(),
            reason: engine::error::io_error_text(why),
        };
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(failed(&why)),
            _ => {}
        }
        let files = list_files(&folder).map_err(|why| failed(&why))?;
        let bytes = AtomicU64::new(files.iter().map(|file| file.size).sum());
        let cached = Self { store, folder, max_bytes, bytes, next_part: AtomicU64::new(0) };
        cached.make_space();
        Ok(cached)
    }

    fn path(&self, name: &str, range: &Range<u64>) -> PathBuf {
        let name = name.replace('/', "-");
        self.folder.join(format!("{name}-{}-{}", range.start, range.end))
    }

    /// Writes the bytes of a read into the cache. A failure to write the cache is not an error.
    fn store_file(&self, path: &Path, bytes: &[u8]) {
        let number = self.next_part.fetch_add(1, Ordering::Relaxed);
        let part = self.folder.join(format!(".part-{}-{number}", std::process::id()));
        let size = bytes.len() as u64 + HASH_SIZE as u64;
        if size > self.max_bytes {
            return;
        }
        if write_file(&part, bytes).and_then(|()| std::fs::rename(&part, path)).is_err() {
            let _ = std::fs::remove_file(&part);
            return;
        }
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > self.max_bytes {
            self.make_space();
        }
    }

    /// Removes the files that were read longest ago until nine tenths of the bound are used.
    fn make_space(&self) {
        let Ok(mut files) = list_files(&self.folder) else { return };
        let mut bytes: u64 = files.iter().map(|file| file.size).sum();
        if bytes > self.max_bytes {
            files.sort_by_key(|file| file.used);
            let target = self.max_bytes / 10 * 9;
            for file in files {
                if bytes <= target {
                    break;
                }
                // another process may have removed it
                let _ = std::fs::remove_file(&file.path);
                bytes -= file.size;
            }
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

struct CachedFile {
    path: PathBuf,
    size: u64,
    used: SystemTime,
}

fn list_files(folder: &Path) -> io::Result<Vec<CachedFile>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // removed since the folder was read
        let Ok(info) = entry.metadata() else { continue };
        let used = info.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        files.push(CachedFile { path: entry.path(), size: info.len(), used });
    }
    Ok(files)
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.write_all(blake3::hash(bytes).as_bytes())
}

/// The bytes of a file of the cache; none if it is not there or damaged.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH_SIZE)?)?;
    if blake3::hash(content).as_bytes() != hash {
        return None;
    }
    // the time of its last use
    let file = OpenOptions::new().write(true).open(path).ok()?;
    let _ = file.set_modified(SystemTime::now());
    bytes.truncate(bytes.len() - HASH_SIZE);
    Some(bytes)
}

impl ObjectStore for CachedStore {
    fn location(&self) -> String {
        self.store.location()
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        self.store.create(name, content)
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        if !CACHED.iter().any(|folder| name.starts_with(folder)) {
            return self.store.read(name, range);
        }
        let path = self.path(name, &range);
        if let Some(known) = read_file(&path) {
            return Ok(known);
        }
        let bytes = self.store.read(name, range)?;
        self.store_file(&path, &bytes);
        Ok(bytes)
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        self.store.size(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.store.delete(name)
    }

    fn protect(&self, name: &str, until: u64) -> Result<bool, StoreError> {
        self.store.protect(name, until)
    }

    fn forget(&self, name: &str) {
        let prefix = format!("{}-", name.replace('/', "-"));
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn remove_leftovers(&self) {
        self.store.remove_leftovers();
    }
}
