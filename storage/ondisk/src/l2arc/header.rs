//! The header of a cache drive.
//!
//! ```text
//! offset  size  field             meaning
//!      0     8  magic             "ZFSCACHE" as a number; its byte order is the header's
//!      8     8  version           1
//!     16     8  spa_guid          the pool
//!     24     8  vdev_guid         the drive
//!     32     8  log_entries       how many entries each log block has; 0: there is no log
//!     40     8  evict             blocks from the hand up to here are not there any more
//!     48     8  flags             bit 0: the hand has not come to the end yet
//!     56     8  start             of the ring, bytes from the drive's start
//!     64     8  end               of the ring
//!     72   128  start_lbps        the newest log block and the one before, see log.rs
//!    200     8  lb_asize          bytes of all log blocks that are there
//!    208     8  lb_count          how many
//!    216     8  trim_action_time  when the drive was trimmed last
//!    224     8  trim_state        and how far that came
//!    232   240  pad               0
//!    472    40  tail              magic and checksum, on drives with sectors of 512 bytes
//!    512
//! ```
//!
//! On drives with larger sectors the header fills one, and its checksum stands at the end of that.
//!
//! Learnt from: `arc_impl.h` of OpenZFS 2.3.2. Proved by: `golden_cache_header`.

use units::Guid;

use super::LogPointer;
use crate::Result;
use crate::writer::FixedWriter;

const MAGIC: u64 = 0x5a46_5343_4143_4845;
const VERSION: u64 = 1;
const FIRST_SWEEP: u64 = 1;
const STRUCTURE: &str = "header of a cache drive";
/// Bytes without the checksum.
const FIELDS_SIZE: usize = 232;

/// The header of a cache drive. Addresses are bytes from the drive's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The pool.
    pub pool: Guid,
    /// The drive.
    pub device: Guid,
    /// Entries of each log block; 0: there is no log.
    pub log_entries: u64,
    /// Blocks from the hand up to here are not there any more.
    pub evict: u64,
    /// The hand has not reached the end yet.
    pub first_sweep: bool,
    /// Where the ring begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// The newest log block, and the one before.
    pub logs: [LogPointer; 2],
    /// Bytes of all log blocks that are there.
    pub log_bytes: u64,
    /// How many there are.
    pub log_count: u64,
}

impl Header {
    /// Bytes that it has at least; else it fills a sector.
    pub const SIZE: usize = 512;

    /// Reads a header; whether its checksum is right is the reader's to check.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = super::read_magic(STRUCTURE, bytes, MAGIC)?;
        let version = reader.u64()?;
        if version != VERSION {
            return Err(reader.corrupt_field(8, "the version is 1", version));
        }
        Ok(Self {
            pool: Guid::new(reader.u64()?),
            device: Guid::new(reader.u64()?),
            log_entries: reader.u64()?,
            evict: reader.u64()?,
            first_sweep: reader.u64()? & FIRST_SWEEP != 0,
            start: reader.u64()?,
            end: reader.u64()?,
            logs: [LogPointer::read(&mut reader)?, LogPointer::read(&mut reader)?],
            log_bytes: reader.u64()?,
            log_count: reader.u64()?,
        })
    }

    /// The fields as bytes; zeros follow up to the checksum at the end of the sector.
    pub fn encode(&self) -> [u8; FIELDS_SIZE] {
        let mut bytes = [0; FIELDS_SIZE];
        let mut room = FixedWriter::new(&mut bytes);
        room.u64(MAGIC).u64(VERSION).u64(self.pool.get()).u64(self.device.get());
        room.u64(self.log_entries).u64(self.evict).u64(u64::from(self.first_sweep));
        room.u64(self.start).u64(self.end);
        for log in &self.logs {
            room.bytes(&log.encode());
        }
        room.u64(self.log_bytes).u64(self.log_count);
        bytes
    }
}
