//! A file system of a pool as a place to measure: what programs do to a mounted one, without the
//! kernel between.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use engine::files::FileType;
use engine::pool::OpenFileSystem;
use posix::{NewInode, WriteOffset};
use units::ObjectId;

use super::pool::Pool;
use super::session::{Session, credentials};
use crate::Error;
use crate::target::{BlockTarget, FileTarget};

/// A file system.
pub(super) struct FileSystem {
    pool: Arc<Pool>,
    name: String,
    directories: Mutex<HashMap<String, ObjectId>>,
}

impl FileSystem {
    /// The file system of that name.
    pub(super) fn new(pool: &Arc<Pool>, name: &str) -> Self {
        Self { pool: Arc::clone(pool), name: name.to_owned(), directories: Mutex::default() }
    }

    /// Does something to it.
    fn with_filesystem<T>(
        &self,
        work: impl FnOnce(&Session, &OpenFileSystem) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.pool.with_session(|session| work(session, &session.open_filesystem(&self.name)?))
    }

    /// Bytes that a file takes on the drives, parity included, with all that was changed so far.
    pub(super) fn allocated_bytes(&self, name: &str) -> Result<u64, Error> {
        self.with_filesystem(|session, files| {
            session.pool().sync()?;
            let found =
                files.reader().find(name.as_bytes())?.ok_or_else(|| not_found_error(name))?;
            Ok(found.content().allocated()?)
        })
    }

    /// The folder in which a name stands, and the name in it.
    fn split_path<'n>(
        &self,
        files: &OpenFileSystem,
        name: &'n str,
    ) -> Result<(ObjectId, &'n str), Error> {
        let Some((folder, name)) = name.rsplit_once('/') else {
            return Ok((ObjectId::new(files.reader().root_object()), name));
        };
        let folders = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let found = folders.get(folder).copied().ok_or_else(|| not_found_error(folder))?;
        Ok((found, name))
    }

    /// Makes a file or a folder.
    fn create_inode(
        &self,
        files: &OpenFileSystem,
        name: &str,
        kind: FileType,
    ) -> Result<ObjectId, Error> {
        let (folder, name) = self.split_path(files, name)?;
        let mode = if kind == FileType::Directory { 0o777 } else { 0o666 };
        let new = NewInode { kind, mode, ..NewInode::default() };
        Ok(ObjectId::new(files.create(&credentials(), folder, name.as_bytes(), &new)?.ino()))
    }
}

fn not_found_error(name: &str) -> Error {
    Error::invalid_request(format!("'{name}' is not where it was made"))
}

impl FileTarget for FileSystem {
    fn create_block_file(&self, name: &str) -> Result<Box<dyn BlockTarget>, Error> {
        let id = self.with_filesystem(|_, files| self.create_inode(files, name, FileType::File))?;
        let (pool, fs, end) = (Arc::clone(&self.pool), self.name.clone(), AtomicU64::new(0));
        Ok(Box::new(LargeFile { pool, filesystem: fs, object: id, size: end }))
    }

    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.with_filesystem(|_, files| {
            let id = self.create_inode(files, name, FileType::File)?;
            files.write(&credentials(), id, WriteOffset::At(0), content)?;
            Ok(())
        })
    }

    fn stat_file(&self, name: &str) -> Result<(), Error> {
        self.with_filesystem(|_, files| {
            let found = files.reader().find(name.as_bytes())?;
            std::hint::black_box(found.ok_or_else(|| not_found_error(name))?.stat());
            Ok(())
        })
    }

    fn read_file(&self, name: &str, into: &mut [u8]) -> Result<(), Error> {
        self.with_filesystem(|_, files| {
            let found =
                files.reader().find(name.as_bytes())?.ok_or_else(|| not_found_error(name))?;
            check_full_read(found.content().read(0, into)?, into)
        })
    }

    fn drop_file_caches(&self, _: &[String]) -> Result<(), Error> {
        self.pool.reopen()?;
        Ok(())
    }

    fn can_drop_attributes(&self) -> bool {
        true
    }

    fn remove_file(&self, name: &str) -> Result<(), Error> {
        self.with_filesystem(|session, files| {
            let (folder, last) = self.split_path(files, name)?;
            if let Some(found) = files.reader().find(name.as_bytes())? {
                session.invalidate_content(found.ino());
            }
            files.unlink(&credentials(), folder, last.as_bytes())?;
            Ok(())
        })
    }

    fn create_dir(&self, name: &str) -> Result<(), Error> {
        let id =
            self.with_filesystem(|_, files| self.create_inode(files, name, FileType::Directory))?;
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), id);
        Ok(())
    }

    fn remove_dir(&self, name: &str) -> Result<(), Error> {
        self.with_filesystem(|_, files| {
            let (folder, last) = self.split_path(files, name)?;
            files.rmdir(&credentials(), folder, last.as_bytes())?;
            Ok(())
        })?;
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        self.pool.with_session(|session| Ok(session.pool().sync()?))
    }
}

/// A large file.
struct LargeFile {
    pool: Arc<Pool>,
    filesystem: String,
    object: ObjectId,
    /// Bytes that it holds.
    size: AtomicU64,
}

impl BlockTarget for LargeFile {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.pool.with_session(|session| {
            let content = session
                .open_content(&session.open_filesystem(&self.filesystem)?, self.object.get())?;
            check_full_read(content.read(at, into)?, into)
        })
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.pool.with_session(|session| {
            let files = session.open_filesystem(&self.filesystem)?;
            let end = files.write(&credentials(), self.object, WriteOffset::At(at), from)?;
            if self.size.fetch_max(end, Relaxed) < end {
                session.invalidate_content(self.object.get());
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<(), Error> {
        self.pool.with_session(|session| Ok(session.pool().sync()?))
    }

    fn fsync(&self) -> Result<(), Error> {
        self.pool.with_session(|session| {
            Ok(session.open_filesystem(&self.filesystem)?.fsync(Some(self.object.get()))?)
        })
    }

    fn drop_cache(&self) -> Result<Option<f64>, Error> {
        self.pool.reopen()
    }
}

/// All requested bytes were read.
fn check_full_read(count: usize, asked: &[u8]) -> Result<(), Error> {
    if count == asked.len() {
        return Ok(());
    }
    Err(Error::invalid_request(format!("of {} bytes only {count} were read", asked.len())))
}
