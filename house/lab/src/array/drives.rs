//! Drives for test pools: they are unused and empty, unless they were named to be overwritten.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use engine::pool;

use super::DrivePart;
use crate::disk::drive_checks;
use crate::disk::drives::{device_size, whole_drive_name};
use crate::drive_info::DriveInfo;
use crate::scratch_dir::{cached_fraction, drop_page_cache};
use crate::{Error, System};

/// The space that OpenZFS keeps free behind the partition that it makes on a whole disk.
const RESERVED_AT_END: u64 = 9 << 20;

/// A drive, or a file in the place of one.
#[derive(Debug)]
pub(super) struct Drive {
    path: PathBuf,
    /// For the page cache. It stays open: closing another handle of the same file in this process
    /// would release the pool's lock.
    buffered: File,
    /// A file with holes, which gets all of them back.
    is_sparse: bool,
    pub(super) size: u64,
    pub(super) info: DriveInfo,
    pub(super) had_data: bool,
}

impl Drive {
    /// Looks at a drive, and refuses one that is in use, or that holds anything and is not among
    /// those to be overwritten.
    pub(super) fn open(path: &Path, overwrite: &[String], system: &System) -> Result<Self, Error> {
        let kind = std::fs::metadata(path).map_err(Error::io(path, "looked at"))?;
        let is_device = kind.file_type().is_block_device();
        if !is_device && !kind.is_file() {
            let what = format!("'{}' is neither a drive nor a file", path.display());
            return Err(Error::invalid_request(what));
        }
        let refused = |why: String| Error::Refused { subject: path.display().to_string(), why };
        let whole = is_device.then(|| whole_drive_name(system, kind.rdev())).flatten();
        if let Some(user) =
            whole.as_deref().and_then(|name| drive_checks::in_use_reason(system, name))
        {
            return Err(refused(user));
        }
        let plain = File::open(path).map_err(Error::io(path, "opened"))?;
        let size = device_size(&plain).map_err(Error::io(path, "examined for its size"))?;
        let content = drive_checks::nonempty_reason(&plain, path, size)?;
        if let Some(why) = content.as_ref().filter(|_| !is_named_in(path, overwrite)) {
            return Err(refused(format!("{why}; or name it with --overwrite")));
        }
        let mut facts = match &whole {
            Some(name) => DriveInfo::read(system, name),
            None => DriveInfo { name: path.display().to_string(), ..DriveInfo::default() },
        };
        if facts.size_bytes == 0 {
            facts.size_bytes = size;
        }
        let is_sparse = !is_device && kind.blocks().saturating_mul(512) < size / 2;
        let (path, held_data) = (path.to_owned(), content.is_some());
        Ok(Self { path, buffered: plain, is_sparse, size, info: facts, had_data: held_data })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The end of its path.
    pub(super) fn name(&self) -> String {
        let last = self.path.file_name().unwrap_or(self.path.as_os_str());
        last.to_string_lossy().into_owned()
    }

    /// Opens it, or a part of it, for a pool.
    pub(super) fn open_for_pool(&self, part: DrivePart) -> Result<pool::Drive, Error> {
        Ok(pool::open_drive(&self.path, self.byte_range(part))?)
    }

    /// The bytes of a part; none: all.
    pub(super) fn byte_range(&self, part: DrivePart) -> Option<Range<u64>> {
        match part {
            DrivePart::Whole => None,
            DrivePart::PartitionAt(begin) => {
                Some(begin..self.size.saturating_sub(RESERVED_AT_END).max(begin))
            }
        }
    }

    /// Drops its pages from the page cache; returns the part that is still cached.
    pub(super) fn drop_cache(&self) -> Option<f64> {
        drop_page_cache(&self.buffered);
        let found = cached_fraction(&self.buffered, self.size);
        drop_page_cache(&self.buffered);
        found
    }

    /// Makes it empty: clears everything that leads to its old content.
    pub(super) fn clear_labels(&self, part: DrivePart) -> Result<(), Error> {
        let failed = || Error::io(&self.path, "emptied");
        let file = OpenOptions::new().write(true).open(&self.path).map_err(failed())?;
        // some file systems do not change the size of a file (nbdfuse): zeros are written there
        if self.is_sparse && file.set_len(0).is_ok() {
            return file.set_len(self.size).map_err(failed());
        }
        let zeros = vec![0; usize::try_from(drive_checks::PROTECTED_END_SIZE).unwrap_or(0)];
        let range = self.byte_range(part).unwrap_or(0..self.size);
        for (begin, end) in [(0, self.size), (range.start, range.end)] {
            for at in [begin, end.saturating_sub(drive_checks::PROTECTED_END_SIZE).max(begin)] {
                file.write_all_at(&zeros, at).map_err(failed())?;
            }
        }
        file.sync_data().map_err(failed())
    }
}

/// Whether a drive was named: by its path, or by the end of it.
pub(super) fn is_named_in(path: &Path, names: &[String]) -> bool {
    names
        .iter()
        .any(|name| path == Path::new(name) || path.file_name().is_some_and(|n| n == &**name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::{Drive, DrivePart, File};
    use crate::System;

    #[test]
    fn file_of_fixed_size_is_cleared() {
        let flags = MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("drive", flags).unwrap());
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&[7; 4096], 16 << 10).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let path = format!("/proc/self/fd/{number}");
        let names = [path.clone()];
        let drive = Drive::open(path.as_ref(), &names, &System::default()).unwrap();
        assert!(drive.is_sparse && drive.had_data);
        drive.clear_labels(DrivePart::Whole).unwrap();
        let mut bytes = [1; 4096];
        file.read_exact_at(&mut bytes, 16 << 10).unwrap();
        assert_eq!(bytes, [0; 4096]);
    }
}
