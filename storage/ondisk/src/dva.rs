//! Data virtual address: where one copy of a block lies.
//!
//! ```text
//! word  bits   field     unit
//!    0  0-23   asize     512-byte sectors allocated (with parity and gang headers)
//!    0  24-31  grid      unused; holds raidz facts of old, ignored
//!    0  32-55  vdev      index of the top-level vdev
//!    1  0-62   offset    512-byte sectors from the end of the vdev's front labels
//!    1  63     gang      the address is of a gang header
//! ```
//!
//! Learnt from: `zdb -bbb` of every fixture. Proved by: `spec_words` below and the fixture tests.

use units::VdevId;

use crate::{Reader, Result};

/// Where one copy of a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dva {
    /// The top-level vdev.
    pub vdev: VdevId,
    /// Bytes from the end of the vdev's front labels (4 MiB from its start).
    pub offset: u64,
    /// Bytes allocated there, parity and padding included.
    pub asize: u64,
    /// Whether a gang header is at the address instead of the block.
    pub gang: bool,
}

/// 2^54 sectors are 2^63 bytes: what an offset may reach.
const OFFSET_MASK: u64 = (1 << 54) - 1;

impl Dva {
    /// Reads the two words; `None` if both are 0.
    pub fn read(reader: &mut Reader<'_>) -> Result<Option<Self>> {
        let [first, second] = reader.words()?;
        Ok(Self::from_words(first, second))
    }

    /// The same from the words themselves. An offset beyond 2^63 bytes cannot be true and is cut;
    /// the block's checksum then fails, as it does for any other wrong address.
    pub fn from_words(first: u64, second: u64) -> Option<Self> {
        if first == 0 && second == 0 {
            return None;
        }
        let vdev = u32::try_from((first >> 32) & 0x00ff_ffff).unwrap_or(u32::MAX);
        Some(Self {
            vdev: VdevId::new(vdev),
            offset: (second & OFFSET_MASK) << 9,
            asize: (first & 0x00ff_ffff) << 9,
            gang: second >> 63 == 1,
        })
    }

    /// The two words, as they stand on disk.
    ///
    /// # Panics
    /// If a number does not fit its bits: what was read from a drive always does.
    pub fn to_words(self) -> [u64; 2] {
        assert!(self.vdev.get() >> 24 == 0, "the number of vdev {} fits 24 bits", self.vdev);
        let sectors = self.asize >> 9;
        assert!(
            sectors >> 24 == 0 && self.asize.is_multiple_of(512),
            "{} bytes are allocated",
            self.asize
        );
        assert!(
            self.offset >> 63 == 0 && self.offset.is_multiple_of(512),
            "a block is at {}",
            self.offset
        );
        [
            (u64::from(self.vdev.get()) << 32) | ((self.asize >> 9) & 0x00ff_ffff),
            (self.offset >> 9) | (u64::from(self.gang) << 63),
        ]
    }
}

impl std::fmt::Display for Dva {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gang = if self.gang { " gang" } else { "" };
        write!(f, "{}:{:x}:{:x}{gang}", self.vdev, self.offset, self.asize)
    }
}

#[cfg(test)]
mod tests {
    use super::Dva;

    #[test]
    fn spec_words() {
        // <0:2c000:1000> of a block pointer as zdb prints it
        let dva = Dva::from_words(8, 0x160).unwrap();
        assert_eq!(dva.to_string(), "0:2c000:1000");
        assert_eq!(dva.to_words(), [8, 0x160]);
        let gang = Dva::from_words((3 << 32) | 1, (1 << 63) | 5).unwrap();
        assert_eq!(gang.to_string(), "3:a00:200 gang");
        assert_eq!(gang.to_words(), [(3 << 32) | 1, (1 << 63) | 5]);
        assert_eq!(Dva::from_words(0, 0), None);
    }
}
