//! Drives, opened.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::drive_checks;
use crate::drive_info::DriveInfo;
use crate::scratch_dir::{cached_fraction, drop_page_cache};
use crate::target::BlockTarget;
use crate::test_data::{ALIGNMENT, AlignedBuffer};
use crate::{Error, System};

/// A drive, or a file in the place of one.
#[derive(Debug)]
pub(super) struct Drive {
    path: PathBuf,
    /// Through the page cache; of a drive that may be overwritten, the exclusive handle.
    buffered: File,
    /// Passing by the page cache, where that is possible.
    direct: Option<File>,
    pub(super) info: DriveInfo,
    pub(super) size: u64,
    pub(super) can_overwrite: bool,
    pub(super) is_in_use: bool,
}

impl Drive {
    /// Opens it for reading; if it is among those that may be overwritten, also for writing, after
    /// all checks against data loss.
    pub(super) fn open(path: &Path, overwrite: &[String], system: &System) -> Result<Self, Error> {
        let kind = std::fs::metadata(path).map_err(Error::io(path, "looked at"))?;
        let is_device = kind.file_type().is_block_device();
        if !is_device && !kind.is_file() {
            let what = format!("'{}' is neither a drive nor a file", path.display());
            return Err(Error::invalid_request(what));
        }
        let whole = is_device.then(|| whole_drive_name(system, kind.rdev())).flatten();
        let facts = match &whole {
            Some(name) => DriveInfo::read(system, name),
            None => DriveInfo { name: path.display().to_string(), ..DriveInfo::default() },
        };
        let user = whole.as_deref().and_then(|name| drive_checks::in_use_reason(system, name));
        let mut drive = Self {
            path: path.to_owned(),
            buffered: open_file(path, false, OFlags::empty()).map_err(Error::io(path, "opened"))?,
            direct: None,
            info: facts,
            size: 0,
            can_overwrite: false,
            is_in_use: user.is_some(),
        };
        drive.size =
            device_size(&drive.buffered).map_err(Error::io(path, "examined for its size"))?;
        if drive.info.size_bytes == 0 {
            drive.info.size_bytes = drive.size;
        }
        if overwrite.iter().any(|name| drive.has_name(name)) {
            drive.claim_for_writing(is_device, user, whole.as_deref(), system)?;
        }
        drive.direct = drive.open_direct();
        Ok(drive)
    }

    /// Whether that is its path, its name, or the end of its path.
    pub(super) fn has_name(&self, name: &str) -> bool {
        let last = self.path.file_name().is_some_and(|last| last == name);
        last || self.path == Path::new(name) || self.info.name == name
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        // a partition is not the drive that it is on
        match self.path.to_str().and_then(|path| path.strip_prefix("/dev/")) {
            Some(name) => name,
            None => &self.info.name,
        }
    }

    /// Whether reads and writes pass by the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Makes sure that it may be overwritten.
    fn claim_for_writing(
        &mut self,
        is_device: bool,
        user: Option<String>,
        whole: Option<&str>,
        system: &System,
    ) -> Result<(), Error> {
        let refused =
            |why: String| Error::Refused { subject: self.path.display().to_string(), why };
        if let Some(user) = user {
            return Err(refused(user));
        }
        let parts = whole.map(|name| drive_checks::partitions(system, name)).unwrap_or_default();
        if !parts.is_empty() {
            return Err(refused(format!("it has partitions: {}", parts.join(", "))));
        }
        if let Some(why) = drive_checks::nonempty_reason(&self.buffered, &self.path, self.size)? {
            return Err(refused(why));
        }
        // a device that is opened so (O_EXCL) has no other user
        let flags = if is_device { OFlags::EXCL } else { OFlags::empty() };
        match open_file(&self.path, true, flags) {
            Ok(file) => self.buffered = file,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(refused("another program uses it".to_owned()));
            }
            Err(error) => return Err(Error::io(&self.path, "opened for writing")(error)),
        }
        self.can_overwrite = true;
        Ok(())
    }

    /// Bypasses the page cache, if possible. The earlier handle stays open: it protects a drive
    /// that is overwritten from other users.
    fn open_direct(&self) -> Option<File> {
        let file = open_file(&self.path, self.can_overwrite, OFlags::DIRECT).ok()?;
        let mut page = AlignedBuffer::new(ALIGNMENT);
        file.read_exact_at(page.as_mut(), 0).ok()?;
        Some(file)
    }

    /// For reading and writing.
    fn io_file(&self) -> &File {
        self.direct.as_ref().unwrap_or(&self.buffered)
    }

    /// Where may be written: all but the ends.
    pub(super) fn writable_range(&self) -> std::ops::Range<u64> {
        drive_checks::PROTECTED_END_SIZE
            ..(self.size / drive_checks::PROTECTED_END_SIZE).saturating_sub(1)
                * drive_checks::PROTECTED_END_SIZE
    }
}

impl BlockTarget for Drive {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.io_file().read_exact_at(into, at).map_err(Error::io(&self.path, "read"))
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        let inside = self.writable_range();
        let end = at.checked_add(from.len() as u64);
        let is_inside = at >= inside.start && end.is_some_and(|end| end <= inside.end);
        assert!(self.can_overwrite && is_inside, "only drives that were claimed are written to");
        self.io_file().write_all_at(from, at).map_err(Error::io(&self.path, "written"))
    }

    fn sync(&self) -> Result<(), Error> {
        self.io_file().sync_data().map_err(Error::io(&self.path, "synced"))
    }

    fn drop_cache(&self) -> Result<Option<f64>, Error> {
        if self.direct.is_some() {
            return Ok(None);
        }
        drop_page_cache(&self.buffered);
        let found = cached_fraction(&self.buffered, self.size);
        drop_page_cache(&self.buffered);
        Ok(found)
    }
}

fn open_file(path: &Path, write: bool, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

/// Where it ends: devices have no length.
pub(crate) fn device_size(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?)
}

/// The drive that a device of that number is, or is a partition of.
pub(crate) fn whole_drive_name(system: &System, number: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let device = system.resolve_link(Path::new("sys/dev/block").join(number))?;
    let is_partition = system.read_text(device.join("partition")).is_some();
    let whole = if is_partition { device.parent()? } else { &device };
    whole.file_name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::Drive;
    use crate::System;
    use crate::target::BlockTarget;
    use crate::test_data::AlignedBuffer;

    #[test]
    fn writes_need_claim_and_spare_the_ends() {
        let path = fixtures::scratch_dir("lab-drives").join("empty");
        File::create_new(&path).unwrap().set_len(8 << 20).unwrap();
        let system = System::default();
        let read_only = Drive::open(&path, &["other".into()], &system).unwrap();
        assert!(!read_only.can_overwrite);
        let drive = Drive::open(&path, &["empty".into()], &system).unwrap();
        assert!(drive.can_overwrite && drive.writable_range() == (1 << 20..7 << 20));
        let mut page = AlignedBuffer::new(4096);
        page.as_mut().fill(1);
        drive.write(1 << 20, page.as_mut()).unwrap();
        drive.sync().unwrap();
        for at in [0, (1 << 20) - 4096, 7 << 20] {
            let wrong = std::panic::AssertUnwindSafe(|| drive.write(at, &[1; 4096]));
            assert!(std::panic::catch_unwind(wrong).is_err(), "{at}");
        }
        // it still counts as empty, because nothing at its ends leads to the written data
        drop(drive);
        assert!(Drive::open(&path, &["empty".into()], &system).is_ok());
        fs::write(&path, vec![1; 8 << 20]).unwrap();
        let refused = Drive::open(&path, &["empty".into()], &system).unwrap_err().to_string();
        assert!(refused.contains("is not written to: its first MiB"), "{refused}");
        assert!(Drive::open(&path, &[], &system).is_ok(), "reading is harmless");
        assert!(Drive::open(path.parent().unwrap(), &[], &system).is_err());
    }
}
