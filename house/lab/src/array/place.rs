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
use super::session::{Session, caller};
use crate::Error;
use crate::store::{Blocks, Place};

/// A file system.
pub(super) struct FileSystem {
    pool: Arc<Pool>,
    name: String,
    folders: Mutex<HashMap<String, ObjectId>>,
}

impl FileSystem {
    /// The file system of that name.
    pub(super) fn of(pool: &Arc<Pool>, name: &str) -> Self {
        Self { pool: Arc::clone(pool), name: name.to_owned(), folders: Mutex::default() }
    }

    /// Does something to it.
    fn with<T>(
        &self,
        work: impl FnOnce(&Session, &OpenFileSystem) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.pool.with(|session| work(session, &session.files(&self.name)?))
    }

    /// Bytes that a file takes on the drives, parity included, with all that was changed so far.
    pub(super) fn allocated(&self, name: &str) -> Result<u64, Error> {
        self.with(|session, files| {
            session.held().sync()?;
            let found = files.reader().find(name.as_bytes())?.ok_or_else(|| absent(name))?;
            Ok(found.content().allocated()?)
        })
    }

    /// The folder in which a name stands, and the name in it.
    fn split<'n>(
        &self,
        files: &OpenFileSystem,
        name: &'n str,
    ) -> Result<(ObjectId, &'n str), Error> {
        let Some((folder, name)) = name.rsplit_once('/') else {
            return Ok((ObjectId::new(files.reader().root_object()), name));
        };
        let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let found = folders.get(folder).copied().ok_or_else(|| absent(folder))?;
        Ok((found, name))
    }

    /// Makes a file or a folder.
    fn make(&self, files: &OpenFileSystem, name: &str, kind: FileType) -> Result<ObjectId, Error> {
        let (folder, name) = self.split(files, name)?;
        let mode = if kind == FileType::Directory { 0o777 } else { 0o666 };
        let new = NewInode { kind, mode, ..NewInode::default() };
        Ok(ObjectId::new(files.create(&caller(), folder, name.as_bytes(), &new)?.ino()))
    }
}

fn absent(name: &str) -> Error {
    Error::asked(format!("'{name}' is not where it was made"))
}

impl Place for FileSystem {
    fn blocks(&self, name: &str) -> Result<Box<dyn Blocks>, Error> {
        let id = self.with(|_, files| self.make(files, name, FileType::File))?;
        let (pool, fs, end) = (Arc::clone(&self.pool), self.name.clone(), AtomicU64::new(0));
        Ok(Box::new(LargeFile { pool, fs, id, end }))
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.with(|_, files| {
            let id = self.make(files, name, FileType::File)?;
            files.write(&caller(), id, WriteOffset::At(0), content)?;
            Ok(())
        })
    }

    fn look(&self, name: &str) -> Result<(), Error> {
        self.with(|_, files| {
            let found = files.reader().find(name.as_bytes())?;
            std::hint::black_box(found.ok_or_else(|| absent(name))?.stat());
            Ok(())
        })
    }

    fn take(&self, name: &str, into: &mut [u8]) -> Result<(), Error> {
        self.with(|_, files| {
            let found = files.reader().find(name.as_bytes())?.ok_or_else(|| absent(name))?;
            whole(found.content().read(0, into)?, into)
        })
    }

    fn chill(&self, _: &[String]) -> Result<(), Error> {
        self.pool.chill()?;
        Ok(())
    }

    fn forgets_attributes(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.with(|session, files| {
            let (folder, last) = self.split(files, name)?;
            if let Some(found) = files.reader().find(name.as_bytes())? {
                session.let_go(found.ino());
            }
            files.unlink(&caller(), folder, last.as_bytes())?;
            Ok(())
        })
    }

    fn folder(&self, name: &str) -> Result<(), Error> {
        let id = self.with(|_, files| self.make(files, name, FileType::Directory))?;
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), id);
        Ok(())
    }

    fn remove_folder(&self, name: &str) -> Result<(), Error> {
        self.with(|_, files| {
            let (folder, last) = self.split(files, name)?;
            files.rmdir(&caller(), folder, last.as_bytes())?;
            Ok(())
        })?;
        self.folders.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }

    fn settle(&self) -> Result<(), Error> {
        self.pool.with(|session| Ok(session.held().sync()?))
    }
}

/// A large file.
struct LargeFile {
    pool: Arc<Pool>,
    fs: String,
    id: ObjectId,
    /// Bytes that it holds.
    end: AtomicU64,
}

impl Blocks for LargeFile {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.pool.with(|session| {
            let content = session.content(&session.files(&self.fs)?, self.id.get())?;
            whole(content.read(at, into)?, into)
        })
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.pool.with(|session| {
            let files = session.files(&self.fs)?;
            let end = files.write(&caller(), self.id, WriteOffset::At(at), from)?;
            if self.end.fetch_max(end, Relaxed) < end {
                session.let_go(self.id.get());
            }
            Ok(())
        })
    }

    fn settle(&self) -> Result<(), Error> {
        self.pool.with(|session| Ok(session.held().sync()?))
    }

    fn promise(&self) -> Result<(), Error> {
        self.pool.with(|session| Ok(session.files(&self.fs)?.fsync(Some(self.id.get()))?))
    }

    fn chill(&self) -> Result<Option<f64>, Error> {
        self.pool.chill()
    }
}

/// All that was asked for was read.
fn whole(count: usize, asked: &[u8]) -> Result<(), Error> {
    if count == asked.len() {
        return Ok(());
    }
    Err(Error::asked(format!("of {} bytes only {count} were read", asked.len())))
}
