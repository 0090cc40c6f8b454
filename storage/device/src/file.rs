//! A file or block device: opened read-only, or for this program alone.
//!
//! A disk that is pulled out and put in again is a new disk for the system, often with another
//! name, because the old one is still open. The old handle then fails every request. So the handle
//! can be exchanged while the device is in use.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock, flock};
use rustix::io::{Errno, retry_on_intr};
use units::MinusOrZero as _;

use crate::location::DeviceLocation;
use crate::own_volumes;
use crate::probe::{find_moved_device, io_error_text};
use crate::write_claim::WriteClaim;
use crate::{Device, Error};

/// The most parts that the system takes in one request.
const MAX_IOVECS: usize = 1024;

/// A file or block device.
#[derive(Debug)]
pub struct File {
    location: DeviceLocation,
    handle: RwLock<Arc<Handle>>,
    /// Bytes that it had when it was opened, or when its growth was last adopted.
    size: AtomicU64,
    /// It is a file in memory: no request waits for hardware.
    is_in_memory: bool,
    /// It has data that no flush has confirmed.
    has_unflushed: AtomicBool,
    /// It was replaced before it had flushed all data; the next flush reports that.
    writes_lost: AtomicBool,
    // after the handle: what others may do again once it is dropped needs the handle closed
    write_claim: Option<Mutex<WriteClaim>>,
}

/// A handle with a lock on its file.
#[derive(Debug)]
struct Handle {
    file: fs::File,
    /// How many are writing with it.
    active_writes: AtomicUsize,
}

impl Drop for Handle {
    /// Unlocks explicitly: a forked child also has the handle until its exec, and merely closing
    /// our handle would leave the file locked until then.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl From<fs::File> for Handle {
    fn from(file: fs::File) -> Self {
        Self { file, active_writes: AtomicUsize::new(0) }
    }
}

/// Something that is being written, with the handle that there was when it began.
struct WriteGuard<'a> {
    device: &'a File,
    handle: Arc<Handle>,
}

impl WriteGuard<'_> {
    /// Writes up to [`MAX_IOVECS`] parts; how many bytes.
    fn write_some(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match retry_on_intr(|| rustix::io::pwritev(&self.handle.file, parts, offset))? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => Ok(count),
        }
    }
}

impl Drop for WriteGuard<'_> {
    /// A flush that came while it was written may have come too early for it.
    fn drop(&mut self) {
        self.device.has_unflushed.store(true, Ordering::Release);
        let before = self.handle.active_writes.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0 || std::thread::panicking(), "a write ends that began");
    }
}

impl File {
    /// Opens it read-only. An image that another program has open for writing is refused: its
    /// content would change while it is read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        if WriteClaim::is_claimed(&read_metadata(path, &name)?) {
            return Err(Error::WriteLocked { path: name });
        }
        let (handle, size) = open_with_size(path, &name, fs::OpenOptions::new().read(true))?;
        // a lock of our own keeps well-behaved writers out for as long as we read
        if flock(&handle, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
            || has_foreign_lock(&handle, rustix::process::FlockType::ReadLock)
        {
            return Err(Error::WriteLocked { path: name });
        }
        Ok(Self::from_handle(path, Arc::new(handle.into()), size, None))
    }

    /// Opens it for reading and writing, for this handle alone: a disk that is mounted or part of
    /// something, and a file that any well-behaved program has open, is refused.
    pub fn open_exclusive(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let facts = read_metadata(path, &name)?;
        let in_use = || Error::InUse { path: name.clone() };
        let mark = WriteClaim::acquire(&facts).ok_or_else(in_use)?;
        let (handle, size) = open_locked(path, &name, &facts)?;
        Ok(Self::from_handle(path, handle, size, Some(Mutex::new(mark))))
    }

    fn from_handle(
        path: &Path,
        handle: Arc<Handle>,
        size: u64,
        write_claim: Option<Mutex<WriteClaim>>,
    ) -> Self {
        let is_in_memory = is_memory_backed(&handle.file);
        let (has_unflushed, writes_lost) = Default::default();
        let (location, handle) = (DeviceLocation::new(path), RwLock::new(handle));
        let size = AtomicU64::new(size);
        Self { location, handle, size, is_in_memory, has_unflushed, writes_lost, write_claim }
    }

    fn handle(&self) -> Arc<Handle> {
        Arc::clone(&self.handle.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a write before the handle can be exchanged, so that the exchange knows of it.
    fn begin_write(&self) -> WriteGuard<'_> {
        let handle = self.handle.read().unwrap_or_else(PoisonError::into_inner);
        handle.active_writes.fetch_add(1, Ordering::AcqRel);
        WriteGuard { device: self, handle: Arc::clone(&handle) }
    }

    /// Installs a handle and returns the old one. No thread gets the new handle before it is known
    /// whether all writes to the old one are stable. Otherwise a flush of the new one would confirm
    /// writes that are lost.
    fn replace_handle(&self, new: &Arc<Handle>) -> Arc<Handle> {
        let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *handle, Arc::clone(new));
        let is_kept =
            || !self.has_unflushed.load(Ordering::Acquire) || old.file.sync_data().is_ok();
        let doubtful = old.active_writes.load(Ordering::Acquire) > 0 || !is_kept();
        self.writes_lost.fetch_or(doubtful, Ordering::AcqRel);
        old
    }

    /// Opens the path again; fails unless it has the same size and `judge` recognizes its content.
    fn open_replacement(
        &self,
        path: &Path,
        facts: &fs::Metadata,
        judge: &dyn Fn(&Arc<dyn Device>) -> bool,
    ) -> Result<Arc<Handle>, Error> {
        let path_name = path.display().to_string();
        let (handle, size) = open_locked(path, &path_name, facts)?;
        let found: Arc<dyn Device> =
            Arc::new(Self::from_handle(path, Arc::clone(&handle), size, None));
        if size < self.size() || !judge(&found) {
            let reason = "it is not the one that was there before".to_owned();
            return Err(Error::Open { path: path_name, reason });
        }
        Ok(handle)
    }

    /// Exchanges the handle for a new one of the path.
    fn reopen_at(
        &self,
        path: &Path,
        held: &mut WriteClaim,
        judge: &dyn Fn(&Arc<dyn Device>) -> bool,
    ) -> Result<(), Error> {
        let facts = read_metadata(path, &path.display().to_string())?;
        let mark = if held.matches(&facts) {
            None
        } else {
            let in_use = || Error::InUse { path: path.display().to_string() };
            Some(WriteClaim::acquire(&facts).ok_or_else(in_use)?)
        };
        let old = self.handle();
        // where it is the same file after all, our own lock would be in our way
        let _ = flock(&old.file, FlockOperation::Unlock);
        let new = self.open_replacement(path, &facts, judge).inspect_err(|_| {
            let _ = lock_exclusive(&old.file);
        })?;
        drop(old);
        drop(self.replace_handle(&new));
        self.location.update(path);
        if let Some(mark) = mark {
            *held = mark;
        } else {
            // closing the old handle released the process's record lock
            let _ = lock_exclusive(&new.file);
        }
        Ok(())
    }

    fn write_error(&self, offset: u64, length: usize, error: &io::Error) -> Error {
        Error::Write {
            device: self.name().to_owned(),
            offset,
            length,
            reason: io_error_text(error),
        }
    }

    fn read_error(&self, offset: u64, length: usize, error: &io::Error) -> Error {
        Error::Read { device: self.name().to_owned(), offset, length, reason: io_error_text(error) }
    }

    /// Fills up to [`MAX_IOVECS`] parts; how many bytes.
    fn read_some(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match retry_on_intr(|| rustix::io::preadv(&self.handle().file, parts, offset))? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

fn read_metadata(path: &Path, name: &str) -> Result<fs::Metadata, Error> {
    let facts = fs::metadata(path)
        .map_err(|error| Error::Open { path: name.to_owned(), reason: io_error_text(&error) })?;
    own_volumes::check(&facts, name)?;
    Ok(facts)
}

/// Opens it for reading and writing, for this handle alone; gives its size, too.
fn open_locked(path: &Path, name: &str, facts: &fs::Metadata) -> Result<(Arc<Handle>, u64), Error> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    if facts.file_type().is_block_device() {
        // for block devices alone it means: only if the system itself does not use it
        let flag = rustix::fs::OFlags::EXCL.bits();
        options.custom_flags(units::narrow::<i32>(flag));
    }
    if is_write_protected(facts) {
        return Err(Error::WriteProtected { path: name.to_owned() });
    }
    let (handle, size) = open_with_size(path, name, &options)?;
    match lock_exclusive(&handle) {
        Ok(()) => Ok((Arc::new(handle.into()), size)),
        Err(Errno::WOULDBLOCK | Errno::ACCESS) => Err(Error::InUse { path: name.to_owned() }),
        Err(errno) => {
            Err(Error::Open { path: name.to_owned(), reason: io_error_text(&errno.into()) })
        }
    }
}

/// Whether it is a read-only block device. Linux opens such a device for writing all the same,
/// and fails each write.
fn is_write_protected(facts: &fs::Metadata) -> bool {
    if !facts.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
    let flag = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    flag.is_ok_and(|flag| flag.trim() == "1")
}

/// Locks it for this handle alone: with two kinds of lock, since programs look for one or the other.
fn lock_exclusive(handle: &fs::File) -> rustix::io::Result<()> {
    flock(handle, FlockOperation::NonBlockingLockExclusive)
        .and_then(|()| fcntl_lock(handle, FlockOperation::NonBlockingLockExclusive))
}

/// Opens it and finds its size.
fn open_with_size(
    path: &Path,
    name: &str,
    options: &fs::OpenOptions,
) -> Result<(fs::File, u64), Error> {
    let failed = |error: io::Error| {
        let path = name.to_owned();
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => Error::InUse { path },
            Some(Errno::ROFS) => Error::WriteProtected { path },
            _ => Error::Open { path, reason: io_error_text(&error) },
        }
    };
    let kind = read_metadata(path, name)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Error::UnsupportedType { path: name.to_owned() });
    }
    let mut file = options.open(path).map_err(failed)?;
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok((file, size))
}

/// Whether it is on a file system that has no drives.
fn is_memory_backed(file: &fs::File) -> bool {
    /// The magic numbers of tmpfs and ramfs in statfs(2).
    const MEMORY_FS_MAGIC: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    rustix::fs::fstatfs(file).is_ok_and(|found| MEMORY_FS_MAGIC.contains(&found.f_type))
}

/// Whether some process holds a record lock on it that forbids one of the kind (virtual machines
/// hold such locks).
fn has_foreign_lock(file: &fs::File, kind: rustix::process::FlockType) -> bool {
    let ask = rustix::process::Flock::from(kind);
    matches!(rustix::process::fcntl_getlk(file, &ask), Ok(Some(_)))
}

impl Device for File {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn current_size(&self) -> u64 {
        // requests name their offsets: the position of the handle is unused
        let end = (&self.handle().file).seek(SeekFrom::End(0));
        end.unwrap_or(0).max(self.size())
    }

    fn adopt_size(&self) {
        self.size.fetch_max(self.current_size(), Ordering::AcqRel);
    }

    fn name(&self) -> &str {
        self.location.name()
    }

    fn path(&self) -> Option<&Path> {
        Some(self.location.path())
    }

    fn is_gone(&self) -> bool {
        let Some(held) = &self.write_claim else { return false };
        let there = fs::metadata(self.location.path());
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        !there.is_ok_and(|facts| held.matches(&facts))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Error::check_range(self.name(), self.size(), offset, into.len())?;
        let read = self.handle().file.read_exact_at(into, offset);
        read.map_err(|error| self.read_error(offset, into.len(), &error))
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), Error> {
        let length = parts.iter().map(|part| part.len()).sum();
        Error::check_range(self.name(), self.size(), offset, length)?;
        let parts = parts.iter_mut().filter(|part| !part.is_empty());
        let mut slices: Vec<IoSliceMut<'_>> = parts.map(|part| IoSliceMut::new(part)).collect();
        let (mut rest, mut at) = (&mut slices[..], offset);
        while !rest.is_empty() {
            let count = rest.len().min(MAX_IOVECS);
            let read = self
                .read_some(at, &mut rest[..count])
                .map_err(|error| self.read_error(offset, length, &error))?;
            IoSliceMut::advance_slices(&mut rest, read);
            at += read as u64;
        }
        assert_eq!(at, offset + units::to_u64(length), "each part is filled");
        Ok(())
    }

    fn is_writable(&self) -> bool {
        self.write_claim.is_some()
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        if !self.is_writable() {
            return Err(Error::ReadOnly { device: self.name().to_owned() });
        }
        Error::check_range(self.name(), self.size(), offset, from.len())?;
        let written = self.begin_write().handle.file.write_all_at(from, offset);
        written.map_err(|error| self.write_error(offset, from.len(), &error))
    }

    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        if let [part] = parts {
            return self.write_at(offset, part);
        }
        if !self.is_writable() {
            return Err(Error::ReadOnly { device: self.name().to_owned() });
        }
        let length = parts.iter().map(|part| part.len()).sum();
        Error::check_range(self.name(), self.size(), offset, length)?;
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let underway = self.begin_write();
        let mut rest = &mut slices[..];
        let mut at = offset;
        while !rest.is_empty() {
            let some = rest.get(..MAX_IOVECS).unwrap_or(rest);
            let written = underway
                .write_some(at, some)
                .map_err(|error| self.write_error(offset, length, &error))?;
            IoSlice::advance_slices(&mut rest, written);
            at += written as u64;
        }
        assert_eq!(at, offset + units::to_u64(length), "each part is written");
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        if !self.is_writable() {
            return Ok(());
        }
        let failed = |reason| Error::Flush { device: self.name().to_owned(), reason };
        // Rule W2: the handle is taken before the marks. A replacement in between sets `writes_lost`, and the next
        // flush reports it; in the other order this flush would confirm writes to the old handle.
        let handle = self.handle();
        if self.writes_lost.swap(false, Ordering::AcqRel) {
            return Err(failed(
                "the device went away before it had flushed all written data".to_owned(),
            ));
        }
        let unkept = self.has_unflushed.swap(false, Ordering::AcqRel);
        handle.file.sync_data().map_err(|error| {
            self.has_unflushed.fetch_or(unkept, Ordering::AcqRel);
            failed(io_error_text(&error))
        })
    }

    fn reopen(&self, judge: &dyn Fn(&Arc<dyn Device>) -> bool) -> Result<(), Error> {
        let Some(held) = &self.write_claim else { return Ok(()) };
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let here = self.location.path();
        self.reopen_at(here, &mut held, judge).or_else(|error| {
            let is_it = |found: &Arc<dyn Device>| found.size() >= self.size() && judge(found);
            let there = find_moved_device(here, &is_it).ok_or(error)?;
            self.reopen_at(&there, &mut held, judge)
        })
    }

    fn may_block(&self) -> bool {
        !self.is_in_memory
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        let (offset, length) = (range.start, range.end.minus_or_zero(range.start));
        if !self.is_writable() || length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.handle().file, flags, offset, length) {
            // a hint that the system does not take
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(errno) => {
                let length = units::to_usize(length);
                Err(self.write_error(offset, length, &errno.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::File;
    use crate::{Device, Error};
    use std::path::PathBuf;

    /// A file in a folder of its own, which goes when the test ends.
    struct TestImage(PathBuf);

    impl TestImage {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let path = folder.join("image");
            std::fs::write(&path, vec![7; 1 << 16]).unwrap();
            Self(path)
        }
    }

    impl Drop for TestImage {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
        }
    }

    #[test]
    fn open_for_writing_is_exclusive() {
        let image = TestImage::new("device-alone");
        let reader = File::open(&image.0).unwrap();
        assert!(matches!(File::open_exclusive(&image.0), Err(Error::InUse { .. })));
        assert!(matches!(reader.write_at(0, &[1]), Err(Error::ReadOnly { .. })));
        assert!(!reader.is_writable());
        drop(reader);
        let writer = File::open_exclusive(&image.0).unwrap();
        assert!(matches!(File::open(&image.0), Err(Error::WriteLocked { .. })));
        assert!(matches!(File::open_exclusive(&image.0), Err(Error::InUse { .. })));
        drop(writer);
        assert!(File::open_exclusive(&image.0).is_ok());
    }

    #[test]
    fn inherited_handle_keeps_no_lock() {
        let image = TestImage::new("device-inherited");
        for open in [File::open, File::open_exclusive] {
            let file = open(&image.0).unwrap();
            // the state of a child between fork and exec
            let inherited = file.handle().file.try_clone().unwrap();
            assert!(File::open_exclusive(&image.0).is_err());
            drop(file);
            assert!(File::open_exclusive(&image.0).is_ok());
            drop(inherited);
        }
    }

    #[test]
    fn returned_file_is_reopened_if_recognized() {
        let image = TestImage::new("device-back");
        let file = File::open_exclusive(&image.0).unwrap();
        file.write_at(0, b"before").unwrap();
        file.flush().unwrap();
        // it is the same still
        file.reopen(&|_| true).unwrap();
        assert!(matches!(File::open_exclusive(&image.0), Err(Error::InUse { .. })));
        assert!(std::fs::File::open(&image.0).unwrap().try_lock().is_err(), "others see the lock");
        let away = image.0.with_extension("away");
        std::fs::rename(&image.0, &away).unwrap();
        let gone = file.reopen(&|_| true);
        assert!(matches!(gone, Err(Error::Open { .. })), "{gone:?}");
        std::fs::copy(&away, &image.0).unwrap();
        let unknown = file.reopen(&|found| {
            let mut bytes = [0; 6];
            found.read_at(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"before");
            assert!(!found.is_writable());
            false
        });
        assert!(matches!(unknown, Err(Error::Open { .. })), "{unknown:?}");
        file.write_at(0, b"others").unwrap();
        assert_eq!(std::fs::read(&away).unwrap()[..6], *b"others", "it is the old one still");
        file.reopen(&|_| true).unwrap();
        file.write_at(0, b"behind").unwrap();
        assert_eq!(std::fs::read(&away).unwrap()[..6], *b"others");
        assert_eq!(std::fs::read(&image.0).unwrap()[..6], *b"behind");
        file.flush().unwrap();
        assert!(File::open_exclusive(&away).is_ok() && File::open_exclusive(&image.0).is_err());
        std::fs::write(&image.0, b"short").unwrap();
        assert!(file.reopen(&|_| true).is_err());
    }

    #[test]
    fn returned_file_is_found_under_another_name() {
        let image = TestImage::new("device-moved");
        let (here, folder) = (&image.0, image.0.parent().unwrap());
        let away = folder.join("away/image");
        let there = ["sdf", "sdg"].map(|name| folder.join(name));
        std::fs::create_dir(folder.join("away")).unwrap();
        std::fs::write(here, vec![7; 1 << 20]).unwrap();
        let file = File::open_exclusive(here).unwrap();
        assert!(!file.is_gone());
        std::fs::rename(here, &away).unwrap();
        assert!(file.is_gone());
        assert!(file.reopen(&|_| true).is_err());
        // one that is too short is another, and of two it may be neither
        std::fs::write(folder.join("short"), vec![7; (1 << 20) - 1]).unwrap();
        for path in &there {
            std::fs::copy(&away, path).unwrap();
        }
        assert!(file.reopen(&|_| true).is_err());
        assert_eq!(file.path(), Some(here.as_path()));
        std::fs::write(&there[0], vec![0; 1 << 20]).unwrap();
        let is_it = |found: &std::sync::Arc<dyn Device>| {
            let mut byte = [0];
            found.read_at(0, &mut byte).is_ok() && byte == [7]
        };
        file.reopen(&is_it).unwrap();
        assert_eq!(
            (file.path(), file.name()),
            (Some(there[1].as_path()), there[1].to_str().unwrap())
        );
        assert!(!file.is_gone());
        file.write_at(0, b"moved").unwrap();
        assert_eq!(std::fs::read(&there[1]).unwrap()[..5], *b"moved");
        assert!(File::open_exclusive(&there[1]).is_err() && File::open_exclusive(&away).is_ok());
    }

    #[test]
    fn flush_reports_writes_lost_with_the_device() {
        // a full device fails the write, and also the flush
        let image = TestImage::new("device-unkept");
        let file = File::open_exclusive(&image.0).unwrap();
        file.write_at(0, b"taken").unwrap();
        file.writes_lost.store(true, std::sync::atomic::Ordering::Release);
        assert!(matches!(file.flush(), Err(Error::Flush { .. })));
        file.flush().unwrap();
    }

    #[test]
    fn write_during_reopen_counts_as_lost() {
        let image = TestImage::new("device-underway");
        let file = File::open_exclusive(&image.0).unwrap();
        let away = image.0.with_extension("away");
        std::fs::rename(&image.0, &away).unwrap();
        std::fs::copy(&away, &image.0).unwrap();
        let underway = file.begin_write();
        file.flush().unwrap();
        file.reopen(&|_| true).unwrap();
        underway.write_some(0, &[std::io::IoSlice::new(b"lost")]).unwrap();
        drop(underway);
        assert_eq!(std::fs::read(&image.0).unwrap()[..4], [7; 4]);
        assert!(matches!(file.flush(), Err(Error::Flush { .. })));
        file.flush().unwrap();
    }

    #[test]
    fn writes_are_read_back_without_growth() {
        let image = TestImage::new("device-written");
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
        let (mut one, mut tiny) = (vec![0; 4000], vec![[0; 3]; 1700]);
        let mut parts: Vec<&mut [u8]> = vec![&mut one];
        parts.extend(tiny.iter_mut().map(|part| &mut part[..]));
        file.read_parts_at(100, &mut parts).unwrap();
        assert_eq!([&one[..], tiny.as_flattened()].concat(), bytes[100..100 + 4000 + 5100]);
        assert!(matches!(
            file.read_parts_at((1 << 16) - 1, &mut [&mut [0; 2]]),
            Err(Error::OutOfRange { .. })
        ));
        assert!(matches!(file.write_at((1 << 16) - 1, &[1, 2]), Err(Error::OutOfRange { .. })));
        assert!(matches!(
            file.write_parts_at((1 << 16) - 1, &[&[1], &[2]]),
            Err(Error::OutOfRange { .. })
        ));
        file.discard(4096..8192).unwrap();
        assert_eq!(std::fs::metadata(&image.0).unwrap().len(), 1 << 16);
    }
}
