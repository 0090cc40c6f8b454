//! Devices: disks, partitions and files.
//!
//! A [`Device`] is read, and maybe written, at an offset and knows its size; the upper crates see
//! no more. [`File::open`] and [`probe`] open read-only. Only [`File::open_exclusive`] gives a file
//! or disk that can be written, and then no other program has it.
#![forbid(unsafe_code)]

pub mod buffer;
mod device_slice;
mod error;
mod file;
mod io_stats;
mod location;
mod lost_partition;
mod memory;
mod own_volumes;
mod partition;
mod path_match;
mod probe;
mod signature;
mod write_claim;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use device_slice::DeviceSlice;
pub use error::{Error, own_volume_text};
pub use file::File;
pub use io_stats::{IoCounts, IoKind, IoStats, LatencyHistogram, SizeHistogram};
pub use memory::MemoryDevice;
pub use own_volumes::OwnVolume;
pub use partition::{Partition, partitions};
pub use path_match::{is_same_file, path_match_score};
pub use probe::{ProbeResult, find_moved_device, probe, probe_deep};
pub use signature::detect_signature;
pub use write_claim::is_open_for_writing;

/// A device: a disk, a partition or a file.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Bytes that it holds.
    fn size(&self) -> u64;

    /// Bytes that it holds now: more than [`Device::size`] if it grew since it was opened.
    fn current_size(&self) -> u64 {
        self.size()
    }

    /// Adopts the size that it has now, if it grew since it was opened. The places of labels change with it.
    fn adopt_size(&self) {}

    /// Its path, for messages; a reopened device may have another one.
    fn name(&self) -> &str;

    /// The path in the file system, if it is a file or a disk of its own.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Whether the opened file or disk is gone: its path leads nowhere, or to another one.
    fn is_gone(&self) -> bool {
        false
    }

    /// Fills `into` from `offset` (bytes), wholly or not at all.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Fills the parts one after the other from `offset` (bytes) on: one request where the device
    /// can scatter. After an error they hold anything.
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), Error> {
        let mut offset = offset;
        for part in parts {
            self.read_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Whether it was opened for writing.
    fn is_writable(&self) -> bool {
        false
    }

    /// Writes all of `from` at `offset` (bytes). After an error any part of it may be there; after
    /// a power cut too, until [`Device::flush`] has returned.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let (_, _) = (offset, from);
        Err(Error::ReadOnly { device: self.name().to_owned() })
    }

    /// Writes the parts one behind the other, from `offset` (bytes) on: one request where the
    /// device can gather.
    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> Result<(), Error> {
        let mut offset = offset;
        for part in parts {
            self.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Returns when all earlier writes will outlast a power cut. After an error none of those
    /// since the last good flush may be relied upon, even if a later flush succeeds.
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a request may wait for hardware, so that parallel requests to several devices pay
    /// off.
    fn may_block(&self) -> bool {
        false
    }

    /// How many requests took longer than half a minute since it was opened.
    fn slow_requests(&self) -> u64 {
        0
    }

    /// The counts of its requests, if they are counted.
    fn io_stats(&self) -> Option<&IoStats> {
        None
    }

    /// The time since some moment, by which waits in its queue are measured. A device without a clock measures none.
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    /// Reopens it at its path, or else under another name in the same folder, if `judge` recognizes
    /// the content. A device that went away and came back needs this, since its old handle fails.
    /// If it went away before it had flushed all data, the next flush fails.
    fn reopen(&self, judge: &dyn Fn(&Arc<dyn Device>) -> bool) -> Result<(), Error> {
        let _ = judge;
        Ok(())
    }

    /// Trims a range (bytes): a hint that its content is no longer needed. Later reads of the range
    /// may return anything.
    fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        let _ = range;
        Ok(())
    }
}
