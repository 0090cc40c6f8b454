//! What can be measured by the workloads: something with bytes, and something with files.
//!
//! A folder of any file system is one such place. Whatever else has files and bytes becomes
//! measurable with the same workloads by these two traits.

use crate::Error;

/// Something with bytes at offsets: a file, a drive, a volume.
pub(crate) trait BlockTarget: Sync {
    /// Fills `into` with what stands at `at`.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error>;
    /// Writes `from` to `at`.
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error>;
    /// Waits until all that was written is safe.
    fn sync(&self) -> Result<(), Error>;
    /// The same, for who asks after every write.
    fn fsync(&self) -> Result<(), Error> {
        self.sync()
    }
    /// Takes its bytes out of memory. Says which part still is there, if that can be known.
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
    /// Whether that takes what is known of the files out of memory as well.
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
