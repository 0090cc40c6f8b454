//! The drive that a burn-in writes and reads, past the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::BurnInError;

/// A drive under test. Offsets and lengths are multiples of 4 KiB.
pub trait BurnInTarget {
    /// Writes all bytes at an offset.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills the buffer from an offset.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Returns once all writes outlast a power cut.
    fn flush(&self) -> io::Result<()>;
}

/// A block device or a file. The caller holds the drive for itself while this is in use.
#[derive(Debug)]
pub struct DirectDrive {
    file: File,
}

impl DirectDrive {
    /// Opens a drive for reading and writing.
    pub fn open(path: &Path) -> Result<Self, BurnInError> {
        let failed = |why| BurnInError::Open { why };
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits())
            .map_err(|_| failed(io::ErrorKind::Unsupported.into()))?;
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let opened = options.clone().custom_flags(direct).open(path);
        // file systems of drive files may not have it
        let file = opened.or_else(|_| options.open(path)).map_err(failed)?;
        Ok(Self { file })
    }
}

impl BurnInTarget for DirectDrive {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()?;
        // without direct I/O the page cache would answer the read pass; it is a hint, and may fail
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    }
}
