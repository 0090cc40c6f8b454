//! The targets of workloads: objects with bytes, and objects with files.
//!
//! A folder of any file system is such a target. Anything else becomes a target of the same
//! workloads by implementing these two traits.

use crate::Error;

/// Something with bytes at offsets: a file, a drive, a volume.
pub(crate) trait BlockTarget: Sync {
    /// Reads bytes at `at` into `into`.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error>;
    /// Writes `from` to `at`.
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error>;
    /// Waits until all that was written is safe.
    fn sync(&self) -> Result<(), Error>;
    /// The same, for a caller that syncs after every write.
    fn fsync(&self) -> Result<(), Error> {
        self.sync()
    }
    /// Drops its bytes from memory. Returns the part that is still cached, if known.
    fn drop_cache(&self) -> Result<Option<f64>, Error>;
}

/// Something with files.
pub(crate) trait FileTarget: Sync {
    /// A new empty file for bytes.
    fn create_block_file(&self, name: &str) -> Result<Box<dyn BlockTarget>, Error>;
    /// A new file with this content.
    fn write_file(&self, name: &str, content: &[u8]) -> Result<(), Error>;
    /// Looks at a file's attributes.
    fn stat_file(&self, name: &str) -> Result<(), Error>;
    /// Reads a file as far as `into` goes.
    fn read_file(&self, name: &str, into: &mut [u8]) -> Result<(), Error>;
    /// Takes the content of files out of memory.
    fn drop_file_caches(&self, names: &[String]) -> Result<(), Error>;
    /// Whether that drops the files' metadata from memory as well.
    fn can_drop_attributes(&self) -> bool {
        false
    }
    /// Removes a file.
    fn remove_file(&self, name: &str) -> Result<(), Error>;
    /// Makes a folder; names of files in it begin with `name/`.
    fn create_dir(&self, name: &str) -> Result<(), Error>;
    /// Removes an empty folder.
    fn remove_dir(&self, name: &str) -> Result<(), Error>;
    /// Waits until all changes are safe.
    fn sync(&self) -> Result<(), Error>;
}
