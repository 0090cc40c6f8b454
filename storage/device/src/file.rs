//! A file or block device: opened read-only, or for this program alone.

use std::fs;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock, flock};
use rustix::io::Errno;

use crate::held::Mark;
use crate::probe::plain;
use crate::{Device, Error};

/// The most parts that the system takes in one request.
const MOST_PARTS: usize = 1024;

/// A file or block device.
#[derive(Debug)]
pub struct File {
    name: String,
    handle: fs::File,
    size: u64,
    /// It lies in memory: nothing that is asked of it waits for hardware.
    in_memory: bool,
    // after the handle: what others may do again once it is dropped needs the handle closed
    held: Option<Mark>,
}

impl File {
    /// Opens it read-only. An image that another program holds for writing is refused: what is
    /// read from it would change underfoot.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        if Mark::is_set(&facts(path, &name)?) {
            return Err(Error::Busy { path: name });
        }
        let (handle, size) = open(path, &name, fs::OpenOptions::new().read(true))?;
        // a lock of our own keeps well-behaved writers out for as long as we read
        if flock(&handle, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
            || lock_of_another(&handle, rustix::process::FlockType::ReadLock)
        {
            return Err(Error::Busy { path: name });
        }
        let in_memory = lies_in_memory(&handle);
        Ok(Self { name, handle, size, in_memory, held: None })
    }

    /// Opens it for reading and writing, for this handle alone: a disk that is mounted or part of
    /// something, and a file that any well-behaved program has open, is refused.
    pub fn open_exclusive(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let facts = facts(path, &name)?;
        let in_use = || Error::InUse { path: name.clone() };
        let mark = Mark::set(&facts).ok_or_else(in_use)?;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true);
        if facts.file_type().is_block_device() {
            // for block devices alone it means: only if the system itself does not use it
            let flag = rustix::fs::OFlags::EXCL.bits();
            options.custom_flags(i32::try_from(flag).unwrap_or_default());
        }
        let (handle, size) = open(path, &name, &options)?;
        // two kinds of lock, since programs look for one or the other
        let locked = flock(&handle, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| fcntl_lock(&handle, FlockOperation::NonBlockingLockExclusive));
        match locked {
            Ok(()) => {
                let in_memory = lies_in_memory(&handle);
                Ok(Self { name, handle, size, in_memory, held: Some(mark) })
            }
            Err(Errno::WOULDBLOCK | Errno::ACCESS) => Err(in_use()),
            Err(errno) => Err(Error::Open { path: name, reason: plain(&errno.into()) }),
        }
    }

    fn write_failed(&self, offset: u64, length: usize, error: &io::Error) -> Error {
        Error::Write { device: self.name.clone(), offset, length, reason: plain(error) }
    }

    /// Writes up to [`MOST_PARTS`] parts; how many bytes.
    fn write_some(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match rustix::io::pwritev(&self.handle, parts, offset) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                other => return Ok(other?),
            }
        }
    }
}

fn facts(path: &Path, name: &str) -> Result<fs::Metadata, Error> {
    fs::metadata(path).map_err(|error| Error::Open { path: name.to_owned(), reason: plain(&error) })
}

/// Opens it and finds its size.
fn open(path: &Path, name: &str, options: &fs::OpenOptions) -> Result<(fs::File, u64), Error> {
    let failed = |error: io::Error| {
        let path = name.to_owned();
        if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
            return Error::InUse { path };
        }
        Error::Open { path, reason: plain(&error) }
    };
    let kind = facts(path, name)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Error::Kind { path: name.to_owned() });
    }
    let mut file = options.open(path).map_err(failed)?;
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok((file, size))
}

/// Whether it is on a file system that has no drives.
fn lies_in_memory(file: &fs::File) -> bool {
    /// What statfs(2) calls tmpfs and ramfs.
    const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    rustix::fs::fstatfs(file).is_ok_and(|found| MEMORY.contains(&found.f_type))
}

/// Whether some process holds a record lock on it that forbids one of the kind (virtual machines
/// hold such locks).
fn lock_of_another(file: &fs::File, kind: rustix::process::FlockType) -> bool {
    let ask = rustix::process::Flock::from(kind);
    matches!(rustix::process::fcntl_getlk(file, &ask), Ok(Some(_)))
}

impl Drop for File {
    /// Gives up its lock by name: a child that was just forked has the handle too until it becomes
    /// another program, and merely closing ours would leave the file locked for that moment.
    fn drop(&mut self) {
        let _ = flock(&self.handle, FlockOperation::Unlock);
    }
}

impl Device for File {
    fn size(&self) -> u64 {
        self.size
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Error::check_range(&self.name, self.size, offset, into.len())?;
        self.handle.read_exact_at(into, offset).map_err(|error| Error::Read {
            device: self.name.clone(),
            offset,
            length: into.len(),
            reason: plain(&error),
        })
    }

    fn is_writable(&self) -> bool {
        self.held.is_some()
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        if !self.is_writable() {
            return Err(Error::ReadOnly { device: self.name.clone() });
        }
        Error::check_range(&self.name, self.size, offset, from.len())?;
        let written = self.handle.write_all_at(from, offset);
        written.map_err(|error| self.write_failed(offset, from.len(), &error))
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        if let [part] = parts {
            return self.write_at(offset, part);
        }
        if !self.is_writable() {
            return Err(Error::ReadOnly { device: self.name.clone() });
        }
        let length = parts.iter().map(|part| part.len()).sum();
        Error::check_range(&self.name, self.size, offset, length)?;
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        let mut at = offset;
        while !rest.is_empty() {
            let some = rest.get(..MOST_PARTS).unwrap_or(rest);
            let written = self
                .write_some(at, some)
                .map_err(|error| self.write_failed(offset, length, &error))?;
            IoSlice::advance_slices(&mut rest, written);
            at = at.saturating_add(written as u64);
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        if !self.is_writable() {
            return Ok(());
        }
        self.handle
            .sync_data()
            .map_err(|error| Error::Flush { device: self.name.clone(), reason: plain(&error) })
    }

    fn waits(&self) -> bool {
        !self.in_memory
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        let (offset, length) = (range.start, range.end.saturating_sub(range.start));
        if !self.is_writable() || length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.handle, flags, offset, length) {
            // a hint that the system does not take
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(errno) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Err(self.write_failed(offset, length, &errno.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::File;
    use crate::{Device, Error};
    use std::path::PathBuf;

    /// A file that goes when the test ends.
    struct Image(PathBuf);

    impl Image {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
            std::fs::write(&path, vec![7; 1 << 16]).unwrap();
            Self(path)
        }
    }

    impl Drop for Image {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn who_writes_is_alone() {
        let image = Image::new("device-alone");
        let reader = File::open(&image.0).unwrap();
        assert!(matches!(File::open_exclusive(&image.0), Err(Error::InUse { .. })));
        assert!(matches!(reader.write_at(0, &[1]), Err(Error::ReadOnly { .. })));
        assert!(!reader.is_writable());
        drop(reader);
        let writer = File::open_exclusive(&image.0).unwrap();
        assert!(matches!(File::open(&image.0), Err(Error::Busy { .. })));
        assert!(matches!(File::open_exclusive(&image.0), Err(Error::InUse { .. })));
        drop(writer);
        assert!(File::open_exclusive(&image.0).is_ok());
    }

    #[test]
    fn a_handle_that_a_child_has_inherited_keeps_nothing_locked() {
        let image = Image::new("device-inherited");
        for open in [File::open, File::open_exclusive] {
            let file = open(&image.0).unwrap();
            // what a child has of it between fork and exec
            let inherited = file.handle.try_clone().unwrap();
            assert!(File::open_exclusive(&image.0).is_err());
            drop(file);
            assert!(File::open_exclusive(&image.0).is_ok());
            drop(inherited);
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_grows() {
        let image = Image::new("device-written");
        let file = File::open_exclusive(&image.0).unwrap();
        file.write_at(100, b"one").unwrap();
        let many: Vec<[u8; 3]> = (0..3000_u32).map(|i| [i.to_le_bytes()[0]; 3]).collect();
        let parts: Vec<&[u8]> = many.iter().map(<[u8; 3]>::as_slice).collect();
        file.write_parts_at(200, &parts).unwrap();
        file.write_parts_at(200, &[&[], b"ab", b"c", &[]]).unwrap();
        file.flush().unwrap();
        let mut bytes = vec![0; 10_000];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes[99..104], &bytes[200..203]), (&b"\x07one\x07"[..], &b"abc"[..]));
        assert_eq!((&bytes[203..9200], bytes[9200]), (&many.as_flattened()[3..], 7));
        assert!(matches!(file.write_at((1 << 16) - 1, &[1, 2]), Err(Error::End { .. })));
        assert!(matches!(
            file.write_parts_at((1 << 16) - 1, &[&[1], &[2]]),
            Err(Error::End { .. })
        ));
        file.discard(4096..8192).unwrap();
        assert_eq!(std::fs::metadata(&image.0).unwrap().len(), 1 << 16);
    }
}
