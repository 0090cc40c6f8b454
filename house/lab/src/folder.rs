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
use crate::content::{ALIGNMENT, Aligned};
use crate::store::{Blocks, Place};

/// What the folder's name begins with; the process's number follows.
const NAME: &str = "poolhouse-bench-";
/// Places of a file at which is looked whether they are in memory.
const SAMPLES: u64 = 64;

/// A new folder in the one that is measured.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    direct: bool,
}

/// Where in `dir` all would happen.
pub(crate) fn scratch_path(dir: &Path) -> PathBuf {
    dir.join(format!("{NAME}{}", std::process::id()))
}

/// What earlier measurements left in `dir` because they were killed.
pub fn left_over(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(NAME));
        number.is_some_and(|number| {
            let is_number = number.parse::<u32>().is_ok();
            is_number && !Path::new("/proc").join(number).exists()
        })
    });
    ours.map(|entry| entry.path()).collect()
}

impl Folder {
    /// Makes it; `buffered`: reads and writes go through the page cache, as most programs' do.
    pub(crate) fn make(dir: &Path, buffered: bool) -> Result<Self, Error> {
        let root = scratch_path(dir);
        fs::create_dir(&root).map_err(Error::file(&root, "made"))?;
        let mut folder = Self { root, direct: false };
        folder.direct = !buffered && folder.knows_direct();
        Ok(folder)
    }

    /// Whether reads and writes pass by the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Bytes that may still be written.
    pub(crate) fn free_bytes(&self) -> Result<u64, Error> {
        let facts = rustix::fs::statvfs(&self.root)
            .map_err(|error| Error::file(&self.root, "asked for its free space")(error.into()))?;
        Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    /// Tries direct I/O: some file systems open files for it, and then refuse to do it.
    fn knows_direct(&self) -> bool {
        let path = self.root.join("probe");
        let mut page = Aligned::new(ALIGNMENT);
        let tried = open(&path, true, true).and_then(|file| {
            file.write_all_at(page.as_mut(), 0)?;
            file.read_exact_at(page.as_mut(), 0)
        });
        // what is not removed here goes with the folder
        let _ = fs::remove_file(&path);
        tried.is_ok()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // nobody is left to be told; the next measurement here names what is left over
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn open(path: &Path, new: bool, direct: bool) -> std::io::Result<File> {
    let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    OpenOptions::new().read(true).write(true).create_new(new).custom_flags(flags).open(path)
}

impl Place for Folder {
    fn blocks(&self, name: &str) -> Result<Box<dyn Blocks>, Error> {
        let path = self.path(name);
        let file = open(&path, true, self.direct).map_err(Error::file(&path, "made"))?;
        let plain = open(&path, false, false).map_err(Error::file(&path, "opened"))?;
        Ok(Box::new(BlockFile { path, file, plain }))
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.path(name);
        let made = File::create_new(&path).and_then(|mut file| file.write_all(content));
        made.map_err(Error::file(&path, "made"))
    }

    fn look(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::metadata(&path).map(drop).map_err(Error::file(&path, "looked at"))
    }

    fn take(&self, name: &str, into: &mut [u8]) -> Result<(), Error> {
        let path = self.path(name);
        let read = File::open(&path).and_then(|mut file| file.read_exact(into));
        read.map_err(Error::file(&path, "read"))
    }

    fn chill(&self, names: &[String]) -> Result<(), Error> {
        names.iter().try_for_each(|name| {
            let path = self.path(name);
            let file = File::open(&path).map_err(Error::file(&path, "opened"))?;
            forget(&file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::remove_file(&path).map_err(Error::file(&path, "removed"))
    }

    fn folder(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(Error::file(&path, "made"))
    }

    fn remove_folder(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::remove_dir(&path).map_err(Error::file(&path, "removed"))
    }

    fn settle(&self) -> Result<(), Error> {
        let synced = File::open(&self.root)
            .and_then(|folder| rustix::fs::syncfs(&folder).map_err(std::io::Error::from));
        synced.map_err(Error::file(&self.root, "synced"))
    }
}

/// Drops a file's content from memory, as far as it is written out.
pub(crate) fn forget(file: &File) {
    // only an advice: who cannot take it is found out by looking
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// The part of a file of `size` bytes that is in memory; none if the file system does not say.
pub(crate) fn found_in_cache(file: &File, size: u64) -> Option<f64> {
    let samples = SAMPLES.min(size / ALIGNMENT as u64);
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
    plain: File,
}

impl Blocks for BlockFile {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact_at(into, at).map_err(Error::file(&self.path, "read"))
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(from, at).map_err(Error::file(&self.path, "written"))
    }

    fn settle(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(Error::file(&self.path, "synced"))
    }

    fn chill(&self) -> Result<Option<f64>, Error> {
        self.settle()?;
        forget(&self.plain);
        let facts = self.plain.metadata().map_err(Error::file(&self.path, "looked at"))?;
        let found = found_in_cache(&self.plain, facts.len());
        forget(&self.plain);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Folder, left_over, scratch_path};
    use crate::content::Aligned;
    use crate::store::Place;

    #[test]
    fn all_of_it_is_gone_at_the_end() {
        let dir = fixtures::scratch("lab-folder");
        let folder = Folder::make(&dir, false).unwrap();
        folder.folder("f").unwrap();
        folder.put("f/a", b"abc").unwrap();
        folder.look("f/a").unwrap();
        let mut into = [0; 3];
        folder.take("f/a", &mut into).unwrap();
        assert_eq!(&into, b"abc");
        assert!(folder.put("f/a", b"again").is_err() && folder.remove("f/b").is_err());
        assert!(Folder::make(&dir, false).is_err(), "two would be in each other's way");
        assert!(folder.free_bytes().unwrap() > 0);
        drop(folder);
        assert!(!scratch_path(&dir).exists());
        assert!(std::fs::read_dir(&dir).unwrap().next().is_none());
    }

    #[test]
    fn bytes_come_back_and_leave_memory() {
        let dir = fixtures::scratch("lab-blocks");
        for buffered in [false, true] {
            let folder = Folder::make(&dir, buffered).unwrap();
            let blocks = folder.blocks("b").unwrap();
            let mut page = Aligned::new(1 << 20);
            page.as_mut().fill(7);
            blocks.write(0, page.as_mut()).unwrap();
            page.as_mut().fill(0);
            let found = blocks.chill().unwrap();
            assert!(found.is_none_or(|part| part < 0.5), "{found:?}");
            blocks.read(0, page.as_mut()).unwrap();
            assert!(page.as_mut().iter().all(|byte| *byte == 7));
            assert!(blocks.read(1 << 20, page.as_mut()).is_err(), "it ends there");
        }
    }

    #[test]
    fn what_was_left_over_is_named() {
        let dir = fixtures::scratch("lab-left");
        for name in ["poolhouse-bench-4294967295", "poolhouse-bench-x", "other"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        assert_eq!(left_over(&dir), [dir.join("poolhouse-bench-4294967295")]);
    }
}
