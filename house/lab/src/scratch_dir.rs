//! A folder of any file system as a place to measure: all happens in one new folder in it, which is
//! removed at the end.
//!
//! Files are opened for direct I/O, which passes by this machine's page cache; where the file system
//! does not know that, content is written out and dropped from memory before it is read.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::Error;
use crate::target::{BlockTarget, FileTarget};
use crate::test_data::{ALIGNMENT, AlignedBuffer};

/// The prefix of the folder's name; the process's number follows.
const DIR_NAME_PREFIX: &str = "poolhouse-bench-";
/// Places of a file at which is looked whether they are in memory.
const CACHE_SAMPLES: u64 = 64;

/// A new folder in the one that is measured.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    root: PathBuf,
    is_direct: bool,
}

/// Where in `dir` all would happen.
pub(crate) fn scratch_path(dir: &Path) -> PathBuf {
    dir.join(format!("{DIR_NAME_PREFIX}{}", std::process::id()))
}

/// The leftovers in `dir` of earlier measurements that were killed.
pub fn leftover_dirs(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(DIR_NAME_PREFIX));
        number.is_some_and(|number| {
            let is_number = number.parse::<u32>().is_ok();
            is_number && !Path::new("/proc").join(number).exists()
        })
    });
    ours.map(|entry| entry.path()).collect()
}

impl ScratchDir {
    /// Makes it; `buffered`: reads and writes go through the page cache, as most programs' do.
    pub(crate) fn create(dir: &Path, buffered: bool) -> Result<Self, Error> {
        let root = scratch_path(dir);
        fs::create_dir(&root).map_err(Error::io(&root, "made"))?;
        let mut folder = Self { root, is_direct: false };
        folder.is_direct = !buffered && folder.can_use_direct_io();
        Ok(folder)
    }

    /// Whether reads and writes pass by the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Bytes that may still be written.
    pub(crate) fn free_bytes(&self) -> Result<u64, Error> {
        let facts = rustix::fs::statvfs(&self.root)
            .map_err(|error| Error::io(&self.root, "examined for free space")(error.into()))?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// Tries direct I/O: some file systems open files for it, and then refuse to do it.
    fn can_use_direct_io(&self) -> bool {
        let path = self.root.join("probe");
        let mut page = AlignedBuffer::new(ALIGNMENT);
        let tried = open_file(&path, true, true).and_then(|file| {
            file.write_all_at(page.as_mut(), 0)?;
            file.read_exact_at(page.as_mut(), 0)
        });
        // files that remain here are removed with the folder
        let _ = fs::remove_file(&path);
        tried.is_ok()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // no caller is left for the error; the next measurement here names the leftover files
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn open_file(path: &Path, new: bool, direct: bool) -> std::io::Result<File> {
    let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    OpenOptions::new().read(true).write(true).create_new(new).custom_flags(flags).open(path)
}

impl FileTarget for ScratchDir {
    fn create_block_file(&self, name: &str) -> Result<Box<dyn BlockTarget>, Error> {
        let path = self.path(name);
        let file = open_file(&path, true, self.is_direct).map_err(Error::io(&path, "made"))?;
        let plain = open_file(&path, false, false).map_err(Error::io(&path, "opened"))?;
        Ok(Box::new(BlockFile { path, file, buffered: plain }))
    }

    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.path(name);
        let made = File::create_new(&path).and_then(|mut file| file.write_all(content));
        made.map_err(Error::io(&path, "made"))
    }

    fn stat_file(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::metadata(&path).map(drop).map_err(Error::io(&path, "looked at"))
    }

    fn read_file(&self, name: &str, into: &mut [u8]) -> Result<(), Error> {
        let path = self.path(name);
        let read = File::open(&path).and_then(|mut file| file.read_exact(into));
        read.map_err(Error::io(&path, "read"))
    }

    fn drop_file_caches(&self, names: &[String]) -> Result<(), Error> {
        names.iter().try_for_each(|name| {
            let path = self.path(name);
            let file = File::open(&path).map_err(Error::io(&path, "opened"))?;
            drop_page_cache(&file);
            Ok(())
        })
    }

    fn remove_file(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::remove_file(&path).map_err(Error::io(&path, "removed"))
    }

    fn create_dir(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(Error::io(&path, "made"))
    }

    fn remove_dir(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::remove_dir(&path).map_err(Error::io(&path, "removed"))
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = File::open(&self.root)
            .and_then(|folder| rustix::fs::syncfs(&folder).map_err(std::io::Error::from));
        synced.map_err(Error::io(&self.root, "synced"))
    }
}

/// Drops a file's content from memory, as far as it is written out.
pub(crate) fn drop_page_cache(file: &File) {
    // only an advice: the check afterwards shows whether it worked
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// The cached part of a file of `size` bytes; none if the file system does not report it.
pub(crate) fn cached_fraction(file: &File, size: u64) -> Option<f64> {
    let samples = CACHE_SAMPLES.min(size / ALIGNMENT as u64);
    // one page at a time, or looking would fetch more
    let whole = NonZeroU64::new(size)?;
    rustix::fs::fadvise(file, 0, Some(whole), Advice::Random).ok()?;
    let (mut found, mut looked) = (0, 0);
    for sample in 0..samples {
        let at = match rustix::fs::seek(file, SeekFrom::Data(size / samples * sample)) {
            Ok(at) => at,
            // nothing but a hole from there on, which is never read from a drive
            Err(Errno::NXIO) => break,
            Err(_) => size / samples * sample,
        };
        looked += 1;
        let mut byte = [0_u8];
        let mut into = [std::io::IoSliceMut::new(&mut byte)];
        match rustix::io::preadv2(file, &mut into, at, ReadWriteFlags::NOWAIT) {
            Ok(_) => found += 1,
            Err(Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
    let _ = rustix::fs::fadvise(file, 0, Some(whole), Advice::Normal);
    (samples > 0).then(|| crate::number::ratio(found, looked.max(1)))
}

/// A large file.
struct BlockFile {
    path: PathBuf,
    /// For the work; direct if the file system knows that.
    file: File,
    /// For the page cache.
    buffered: File,
}

impl BlockTarget for BlockFile {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact_at(into, at).map_err(Error::io(&self.path, "read"))
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(from, at).map_err(Error::io(&self.path, "written"))
    }

    fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(Error::io(&self.path, "synced"))
    }

    fn drop_cache(&self) -> Result<Option<f64>, Error> {
        self.sync()?;
        drop_page_cache(&self.buffered);
        let facts = self.buffered.metadata().map_err(Error::io(&self.path, "looked at"))?;
        let found = cached_fraction(&self.buffered, facts.len());
        drop_page_cache(&self.buffered);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{ScratchDir, leftover_dirs, scratch_path};
    use crate::target::FileTarget;
    use crate::test_data::AlignedBuffer;

    #[test]
    fn scratch_dir_is_removed_on_drop() {
        let dir = fixtures::scratch_dir("lab-folder");
        let folder = ScratchDir::create(&dir, false).unwrap();
        folder.create_dir("f").unwrap();
        folder.write_file("f/a", b"abc").unwrap();
        folder.stat_file("f/a").unwrap();
        let mut into = [0; 3];
        folder.read_file("f/a", &mut into).unwrap();
        assert_eq!(&into, b"abc");
        assert!(folder.write_file("f/a", b"again").is_err() && folder.remove_file("f/b").is_err());
        assert!(ScratchDir::create(&dir, false).is_err(), "two would be in each other's way");
        assert!(folder.free_bytes().unwrap() > 0);
        drop(folder);
        assert!(!scratch_path(&dir).exists());
        assert!(std::fs::read_dir(&dir).unwrap().next().is_none());
    }

    #[test]
    fn written_bytes_leave_page_cache() {
        let dir = fixtures::scratch_dir("lab-blocks");
        for buffered in [false, true] {
            let folder = ScratchDir::create(&dir, buffered).unwrap();
            let blocks = folder.create_block_file("b").unwrap();
            let mut page = AlignedBuffer::new(1 << 20);
            page.as_mut().fill(7);
            blocks.write(0, page.as_mut()).unwrap();
            page.as_mut().fill(0);
            let found = blocks.drop_cache().unwrap();
            assert!(found.is_none_or(|part| part < 0.5), "{found:?}");
            blocks.read(0, page.as_mut()).unwrap();
            assert!(page.as_mut().iter().all(|byte| *byte == 7));
            assert!(blocks.read(1 << 20, page.as_mut()).is_err(), "it ends there");
        }
    }

    #[test]
    fn leftover_dirs_are_listed() {
        let dir = fixtures::scratch_dir("lab-left");
        for name in ["poolhouse-bench-4294967295", "poolhouse-bench-x", "other"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        assert_eq!(leftover_dirs(&dir), [dir.join("poolhouse-bench-4294967295")]);
    }
}
