//! How a device can fail.

/// Why a device could not be opened, read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The path does not exist, or its permissions forbid opening it, or the like.
    #[error("{path}: {reason}")]
    Open {
        /// Its path.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// A socket, a terminal, or some other thing that holds no bytes to be read at an offset.
    #[error("{path}: is neither a file, a folder nor a block device")]
    UnsupportedType {
        /// Its path.
        path: String,
    },
    /// Another program holds it for writing.
    #[error("{path}: another program is using it for writing; stop that program first")]
    WriteLocked {
        /// Its path.
        path: String,
    },
    /// It was opened for writing while another program, or this one, has it open.
    #[error("{path}: it is in use; stop the program that uses it first")]
    InUse {
        /// Its path.
        path: String,
    },
    /// It is the device of a volume that this process serves.
    #[error("{path}: {}", own_volume_text(volume))]
    OwnVolume {
        /// Its path.
        path: String,
        /// The full name of the volume.
        volume: String,
    },
    /// It is to be written, and the device, the medium or its file system is write-protected.
    #[error("{path}: it is write-protected")]
    WriteProtected {
        /// Its path.
        path: String,
    },
    /// The system reported an error.
    #[error("{device}: reading {length} bytes at {offset}: {reason}")]
    Read {
        /// Its name.
        device: String,
        /// Bytes from its start.
        offset: u64,
        /// Bytes wanted.
        length: usize,
        /// The system's words.
        reason: String,
    },
    /// The system reported an error.
    #[error("{device}: writing {length} bytes at {offset}: {reason}")]
    Write {
        /// Its name.
        device: String,
        /// Bytes from its start.
        offset: u64,
        /// Bytes to be written.
        length: usize,
        /// The system's words.
        reason: String,
    },
    /// A flush failed: written data may not be on stable storage.
    #[error("{device}: flush: {reason}")]
    Flush {
        /// Its name.
        device: String,
        /// The system's words.
        reason: String,
    },
    /// It was opened for reading only.
    #[error("{device}: it is open for reading only")]
    ReadOnly {
        /// Its name.
        device: String,
    },
    /// It ends before that: it was truncated, or is not the right one.
    #[error("{device}: {length} bytes wanted at {offset}, but it ends at {size}")]
    OutOfRange {
        /// Its name.
        device: String,
        /// Bytes from its start.
        offset: u64,
        /// Bytes wanted.
        length: usize,
        /// Its size in bytes.
        size: u64,
    },
}

impl Error {
    /// The error for a read or write beyond the end, if it is one.
    pub(crate) fn check_range(
        device: &str,
        size: u64,
        offset: u64,
        length: usize,
    ) -> Result<(), Self> {
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= size) {
            return Ok(());
        }
        Err(Self::OutOfRange { device: device.to_owned(), offset, length, size })
    }
}

/// Why no pool may lie on a volume.
pub fn own_volume_text(volume: &str) -> String {
    format!(
        "it is the volume '{volume}' of an imported pool, and a pool on it would wait for itself; use a disk or a file"
    )
}
