//! A file or block device, opened read-only.

use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Device, Error};

/// A file or block device, opened read-only.
#[derive(Debug)]
pub struct File {
    name: String,
    handle: fs::File,
    size: u64,
}

impl File {
    /// Opens it. An image that another program holds for writing is refused: what is read from it
    /// would change underfoot.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| Error::Open {
            path: name.clone(),
            reason: crate::probe::plain(&error),
        };
        let mut file = fs::File::open(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Error::Kind { path: name });
        }
        // a lock of our own keeps well-behaved writers out for as long as we read
        if flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
            || held_for_writing(&file)
        {
            return Err(Error::Busy { path: name });
        }
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Self { name, handle: file, size })
    }
}

/// Whether some process holds a record lock on it that keeps readers out (as virtual machines do).
fn held_for_writing(file: &fs::File) -> bool {
    let ask = rustix::process::Flock::from(rustix::process::FlockType::ReadLock);
    matches!(rustix::process::fcntl_getlk(file, &ask), Ok(Some(_)))
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
            reason: crate::probe::plain(&error),
        })
    }
}
