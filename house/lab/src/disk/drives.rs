//! Drives, opened.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::claim;
use crate::content::{ALIGNMENT, Aligned};
use crate::drive::DriveFacts;
use crate::folder::{forget, found_in_cache};
use crate::store::Blocks;
use crate::{Error, System};

/// A drive, or a file in the place of one.
#[derive(Debug)]
pub(super) struct Drive {
    path: PathBuf,
    /// Through the page cache; of a drive that may be overwritten, the hold that keeps others away.
    plain: File,
    /// Passing by the page cache, where that is possible.
    direct: Option<File>,
    pub(super) facts: DriveFacts,
    pub(super) size: u64,
    pub(super) overwrites: bool,
    pub(super) in_use: bool,
}

impl Drive {
    /// Opens it to be read; if it is among those that may be overwritten, to be written too, after
    /// everything was done to make sure that nothing is lost.
    pub(super) fn open(path: &Path, overwrite: &[String], system: &System) -> Result<Self, Error> {
        let kind = std::fs::metadata(path).map_err(Error::file(path, "looked at"))?;
        let is_device = kind.file_type().is_block_device();
        if !is_device && !kind.is_file() {
            let what = format!("'{}' is neither a drive nor a file", path.display());
            return Err(Error::asked(what));
        }
        let whole = is_device.then(|| whole_drive(system, kind.rdev())).flatten();
        let facts = match &whole {
            Some(name) => DriveFacts::of(system, name),
            None => DriveFacts { name: path.display().to_string(), ..DriveFacts::default() },
        };
        let user = whole.as_deref().and_then(|name| claim::user(system, name));
        let mut drive = Self {
            path: path.to_owned(),
            plain: open(path, false, OFlags::empty()).map_err(Error::file(path, "opened"))?,
            direct: None,
            facts,
            size: 0,
            overwrites: false,
            in_use: user.is_some(),
        };
        drive.size = end(&drive.plain).map_err(Error::file(path, "asked for its size"))?;
        if drive.facts.size_bytes == 0 {
            drive.facts.size_bytes = drive.size;
        }
        if overwrite.iter().any(|name| drive.is_called(name)) {
            drive.claim(is_device, user, whole.as_deref(), system)?;
        }
        drive.direct = drive.direct();
        Ok(drive)
    }

    /// Whether that is its path, its name, or the end of its path.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let last = self.path.file_name().is_some_and(|last| last == name);
        last || self.path == Path::new(name) || self.facts.name == name
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        // a partition is not the drive that it is on
        match self.path.to_str().and_then(|path| path.strip_prefix("/dev/")) {
            Some(name) => name,
            None => &self.facts.name,
        }
    }

    /// Whether reads and writes pass by the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Makes sure that it may be overwritten.
    fn claim(
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
        let parts = whole.map(|name| claim::partitions(system, name)).unwrap_or_default();
        if !parts.is_empty() {
            return Err(refused(format!("it has partitions: {}", parts.join(", "))));
        }
        if let Some(why) = claim::content(&self.plain, &self.path, self.size)? {
            return Err(refused(why));
        }
        // a device that is opened so is nobody else's
        let flags = if is_device { OFlags::EXCL } else { OFlags::empty() };
        match open(&self.path, true, flags) {
            Ok(file) => self.plain = file,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(refused("another program uses it".to_owned()));
            }
            Err(error) => return Err(Error::file(&self.path, "opened for writing")(error)),
        }
        self.overwrites = true;
        Ok(())
    }

    /// Passes by the page cache, if it can. What was opened before stays open: it is what keeps
    /// others from a drive that is overwritten.
    fn direct(&self) -> Option<File> {
        let file = open(&self.path, self.overwrites, OFlags::DIRECT).ok()?;
        let mut page = Aligned::new(ALIGNMENT);
        file.read_exact_at(page.as_mut(), 0).ok()?;
        Some(file)
    }

    /// For reading and writing.
    fn work(&self) -> &File {
        self.direct.as_ref().unwrap_or(&self.plain)
    }

    /// Where may be written: all but the ends.
    pub(super) fn inside(&self) -> std::ops::Range<u64> {
        claim::END..(self.size / claim::END).saturating_sub(1) * claim::END
    }
}

impl Blocks for Drive {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.work().read_exact_at(into, at).map_err(Error::file(&self.path, "read"))
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        let inside = self.inside();
        let end = at.checked_add(from.len() as u64);
        let is_inside = at >= inside.start && end.is_some_and(|end| end <= inside.end);
        assert!(self.overwrites && is_inside, "only drives that were claimed are written to");
        self.work().write_all_at(from, at).map_err(Error::file(&self.path, "written"))
    }

    fn settle(&self) -> Result<(), Error> {
        self.work().sync_data().map_err(Error::file(&self.path, "synced"))
    }

    fn chill(&self) -> Result<Option<f64>, Error> {
        if self.direct.is_some() {
            return Ok(None);
        }
        forget(&self.plain);
        let found = found_in_cache(&self.plain, self.size);
        forget(&self.plain);
        Ok(found)
    }
}

fn open(path: &Path, write: bool, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

/// Where it ends: devices have no length.
pub(crate) fn end(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?)
}

/// The drive that a device of that number is, or is a partition of.
pub(crate) fn whole_drive(system: &System, number: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let device = system.resolve(Path::new("sys/dev/block").join(number))?;
    let is_partition = system.text(device.join("partition")).is_some();
    let whole = if is_partition { device.parent()? } else { &device };
    whole.file_name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::Drive;
    use crate::System;
    use crate::content::Aligned;
    use crate::store::Blocks;

    #[test]
    fn only_what_was_typed_is_written_to_and_never_its_ends() {
        let path = fixtures::scratch("lab-drives").join("empty");
        File::create_new(&path).unwrap().set_len(8 << 20).unwrap();
        let system = System::default();
        let read_only = Drive::open(&path, &["other".into()], &system).unwrap();
        assert!(!read_only.overwrites);
        let drive = Drive::open(&path, &["empty".into()], &system).unwrap();
        assert!(drive.overwrites && drive.inside() == (1 << 20..7 << 20));
        let mut page = Aligned::new(4096);
        page.as_mut().fill(1);
        drive.write(1 << 20, page.as_mut()).unwrap();
        drive.settle().unwrap();
        for at in [0, (1 << 20) - 4096, 7 << 20] {
            let wrong = std::panic::AssertUnwindSafe(|| drive.write(at, &[1; 4096]));
            assert!(std::panic::catch_unwind(wrong).is_err(), "{at}");
        }
        // it still counts as empty, since nothing at its ends leads to what was written
        drop(drive);
        assert!(Drive::open(&path, &["empty".into()], &system).is_ok());
        fs::write(&path, vec![1; 8 << 20]).unwrap();
        let refused = Drive::open(&path, &["empty".into()], &system).unwrap_err().to_string();
        assert!(refused.contains("is not written to: its first MiB"), "{refused}");
        assert!(Drive::open(&path, &[], &system).is_ok(), "reading harms nobody");
        assert!(Drive::open(path.parent().unwrap(), &[], &system).is_err());
    }
}
