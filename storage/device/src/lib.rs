//! What holds bytes: disks, partitions and files.
//!
//! A [`Device`] is read at an offset and knows its size; that is all the floors above see. Every
//! device is opened read-only, and nothing here can write.
#![forbid(unsafe_code)]

pub mod buffer;
mod error;
mod file;
mod memory;
mod partition;
mod probe;
mod window;

pub use error::Error;
pub use file::File;
pub use memory::Memory;
pub use partition::{Partition, partitions};
pub use probe::{Found, probe};
pub use window::Window;

/// What holds bytes.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Bytes that it holds.
    fn size(&self) -> u64;

    /// What a person calls it: its path.
    fn name(&self) -> &str;

    /// Fills `into` from `offset` (bytes), wholly or not at all.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error>;
}
