//! Label: what each drive knows of the pool. Four copies, two at each end.
//!
//! On the device, whose end is first aligned down to 256 KiB: copies 0 and 1 at its start, 2 and
//! 3 at its end. Between the front copies and the data lie 3.5 MiB of boot region.
//!
//! ```text
//! offset  size    field     meaning
//!      0    8192  pad       left for a disk label
//!   8192    8192  boot_env  settings of a boot loader; a version, then text or a list
//!  16384  114688  config    packed name/value list, see config.rs
//! 131072  131072  ring      uberblocks, one slot for each of the last txgs
//! 262144
//! ```
//!
//! `boot_env`, `config` and each slot of the ring end in 40 bytes of magic and checksum, which
//! is seeded with the offset of that field on the device. Sums are not computed here:
//! [`Label::boot_env`] and the like give the whole field, checksum included.
//!
//! Learnt from: every fixture against `zdb -l`. Proved by: `golden_label`.

mod config;
mod encode;
mod list;
mod vdev;

pub use config::{LabelConfig, PoolConfig, PoolState, Split};
pub use encode::config_field;
pub use list::ConfigTarget;
pub use vdev::{Bias, Draid, Indirect, VdevConfig, VdevKind, VdevState};

use crate::gang::EMBEDDED_CHECKSUM_SIZE;
use crate::nvlist::Nvlist;
use crate::{Error, Result};

/// Bytes of a label.
pub const SIZE: u64 = 262_144;
/// How many copies of the label a device holds.
pub const COPIES: u32 = 4;
/// Where the data of a device start: addresses in DVAs count from here.
pub const DATA_START: u64 = 4 << 20;
/// Offset of the boot settings in the label, bytes.
pub const BOOT_ENV_OFFSET: u64 = 8192;
/// Bytes of the boot settings.
pub const BOOT_ENV_SIZE: u64 = 8192;
/// Offset of the configuration in the label, bytes.
pub const CONFIG_OFFSET: u64 = 16_384;
/// Bytes of the configuration, its checksum included.
pub const CONFIG_SIZE: u64 = 114_688;
/// Offset of the uberblocks in the label, bytes.
pub const RING_OFFSET: u64 = 131_072;
/// Bytes of all uberblocks.
pub const RING_SIZE: u64 = 131_072;

/// The size of a device as its labels see it, bytes: aligned down to whole labels.
pub const fn usable_size(device: u64) -> u64 {
    device & !(SIZE - 1)
}

/// Where copy `copy` (0 to 3) of the label starts on a device of that many bytes; `None` for
/// another copy, or if the device is too small for four and any data.
pub fn offset(copy: u32, device: u64) -> Option<u64> {
    let end = usable_size(device);
    if end < DATA_START {
        return None;
    }
    match copy {
        0 => Some(0),
        1 => Some(SIZE),
        2 => end.checked_sub(SIZE * 2),
        3 => end.checked_sub(SIZE),
        _ => None,
    }
}

/// Where the copies start on a device of that many bytes; none if it is too small.
pub fn offsets(device: u64) -> impl Iterator<Item = u64> {
    (0..COPIES).filter_map(move |copy| offset(copy, device))
}

/// Bytes of a slot in the ring: one sector of the device, but from 1 KiB to 8 KiB.
pub const fn slot_size(ashift: u64) -> u64 {
    match ashift {
        0..=10 => 1024,
        11 => 2048,
        12 => 4096,
        _ => 8192,
    }
}

/// How many slots the ring has.
pub const fn slot_count(ashift: u64) -> u64 {
    RING_SIZE.div_euclid(slot_size(ashift))
}

/// Bytes from a label's start to the slot of the uberblock of `txg`. Pools with multihost
/// protection reserve the last slots for MMP heartbeats.
pub fn slot_offset(ashift: u64, txg: units::Txg, multihost: bool) -> u64 {
    let slots = slot_count(ashift).saturating_sub(u64::from(multihost)).max(1);
    let slot = txg.get().checked_rem(slots).unwrap_or(0);
    RING_OFFSET.saturating_add(slot.saturating_mul(slot_size(ashift)))
}

/// Bytes from a label's start to the slot of MMP heartbeats: the last.
pub fn heartbeat_offset(ashift: u64) -> u64 {
    let last = slot_count(ashift).saturating_sub(1);
    RING_OFFSET.saturating_add(last.saturating_mul(slot_size(ashift)))
}

/// One copy of a label, as read from a device.
#[derive(Clone, Debug)]
pub struct Label<'a> {
    bytes: &'a [u8],
}

impl<'a> Label<'a> {
    /// Takes the 256 KiB of a label.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let want = field_size(SIZE);
        if bytes.len() < want {
            return Err(Error::Short { structure: "label", at: 0, need: want, have: bytes.len() });
        }
        Ok(Self { bytes })
    }

    fn slice(&self, offset: u64, size: u64) -> &'a [u8] {
        let start = field_size(offset);
        let end = start.saturating_add(field_size(size));
        self.bytes.get(start..end).unwrap_or(&[])
    }

    /// The boot settings with their checksum.
    pub fn boot_env(&self) -> &'a [u8] {
        self.slice(BOOT_ENV_OFFSET, BOOT_ENV_SIZE)
    }

    /// The packed configuration with its checksum.
    pub fn config(&self) -> &'a [u8] {
        self.slice(CONFIG_OFFSET, CONFIG_SIZE)
    }

    /// All uberblocks.
    pub fn ring(&self) -> &'a [u8] {
        self.slice(RING_OFFSET, RING_SIZE)
    }

    /// The slots of the ring with their offsets in the label (bytes), each with its checksum.
    pub fn slots(&self, ashift: u64) -> impl Iterator<Item = (u64, &'a [u8])> {
        let size = slot_size(ashift);
        let ring = self.ring();
        ring.chunks_exact(field_size(size)).zip(0_u64..).map(move |(slot, index)| {
            (RING_OFFSET.saturating_add(index.saturating_mul(size)), slot)
        })
    }

    /// Reads the configuration's list.
    pub fn nvlist(&self) -> Result<Nvlist> {
        parse_config(self.config())
    }
}

/// Reads the list of a configuration field, without its checksum.
pub fn parse_config(field: &[u8]) -> Result<Nvlist> {
    let end = field.len().saturating_sub(EMBEDDED_CHECKSUM_SIZE);
    Nvlist::decode(field.get(..end).unwrap_or(&[]))
}

/// Offsets and sizes in a label fit any machine's usize.
fn field_size(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The boot environment: settings of a boot loader in the label.
#[derive(Clone, PartialEq, Debug)]
pub enum BootEnv {
    /// It was never written.
    Empty,
    /// Text of a boot loader that knows no list (version 0).
    Raw(Vec<u8>),
    /// A list (version 1).
    List(Nvlist),
}

impl BootEnv {
    /// Reads the field; its version is big-endian on every machine.
    pub fn parse(field: &[u8]) -> Result<Self> {
        let end = field.len().saturating_sub(EMBEDDED_CHECKSUM_SIZE);
        let field = field.get(..end).unwrap_or(&[]);
        let mut reader = crate::Reader::new("boot settings", field, crate::Order::Big);
        let version = reader.u64()?;
        let content = reader.rest();
        let text = content.split(|byte| *byte == 0).next().unwrap_or(&[]);
        match version {
            0 if text.is_empty() => Ok(Self::Empty),
            0 => Ok(Self::Raw(text.to_vec())),
            1 => Nvlist::decode(content).map(Self::List),
            found => Err(Error::Unknown { structure: "boot settings", field: "version", found }),
        }
    }
}

#[cfg(test)]
mod tests;
