//! Cloned blocks: which are referred to more than once without dedup (block_cloning).
//!
//! Each top-level vdev with such blocks has an object, named `com.fudosecurity:brt:vdev:<index>`
//! in the pool directory. Its content is an array of 16-bit counts, one for each range of the
//! vdev; its bonus is
//!
//! ```text
//! offset  size  field        meaning
//!      0     8  entries      the ZAP with the entries themselves
//!      8     8  ranges       how many counts there are
//!     16     8  byte_order   of the counts: 0 little, 1 big
//!     24     8  total        sum of all counts
//!     32     8  range_size   bytes that one count stands for (16 MiB)
//!     40     8  used         bytes of the blocks
//!     48     8  saved        bytes that clones did not take
//!     56
//! ```
//!
//! An entry's key is one word, the offset of the block on the vdev in bytes; its value is 8 bytes,
//! the number of references beyond the first, in the order of the machine that wrote the pool.
//!
//! Learnt from: `zdb -TTT` of the fixture `holes-and-clones`. Proved by: the test below.

use units::{ObjectId, VdevId};

use crate::writer::FixedWriter;
use crate::{Order, Reader, Result};

/// The table of cloned blocks of one vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneTable {
    /// The ZAP with the entries.
    pub entries: ObjectId,
    /// How many ranges are counted.
    pub ranges: u64,
    /// The byte order of the counts.
    pub counts_order: Order,
    /// Sum of all counts: entries in the table.
    pub total: u64,
    /// Bytes that one count stands for.
    pub range_size: u64,
    /// Bytes of the blocks.
    pub used: u64,
    /// Bytes that clones did not take.
    pub saved: u64,
}

impl CloneTable {
    /// Bytes on disk.
    pub const SIZE: usize = 56;

    /// Reads the bonus.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let entries = ObjectId::new(reader.u64()?);
        let ranges = reader.u64()?;
        let counts_order = match reader.u64()? {
            0 => Order::Little,
            1 => Order::Big,
            found => return Err(reader.corrupt_field(8, "the byte order is 0 or 1", found)),
        };
        let total = reader.u64()?;
        let range_size = reader.u64()?;
        let used = reader.u64()?;
        let saved = reader.u64()?;
        Ok(Self { entries, ranges, counts_order, total, range_size, used, saved })
    }

    /// The bonus, little-endian.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        FixedWriter::new(&mut bytes)
            .u64(self.entries.get())
            .u64(self.ranges)
            .u64(u64::from(self.counts_order == Order::Big))
            .u64(self.total)
            .u64(self.range_size)
            .u64(self.used)
            .u64(self.saved);
        bytes
    }
}

/// The name of a vdev's table in the pool directory.
pub fn clone_table_name(vdev: VdevId) -> String {
    format!("com.fudosecurity:brt:vdev:{vdev}")
}

/// Reads the value of an entry: references beyond the first.
pub fn clone_count(value: &[u8], order: Order) -> Result<u64> {
    let mut reader = Reader::new("clone entry", value, order);
    let count = reader.u64()?;
    reader.expect_end()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::{CloneTable, clone_count, clone_table_name};
    use crate::{Order, Reader};

    #[test]
    fn clone_table_stores_byte_order_of_counts() {
        // of fixture `holes-and-clones`, whose table holds 4 blocks, 512K used and 1M saved
        let mut words = [150_u64, 7, 0, 4, 16 << 20, 512 << 10, 1 << 20];
        let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        let raw = bytes(&words);
        let table = CloneTable::read(&mut Reader::new("t", &raw, Order::Little)).unwrap();
        assert_eq!((table.counts_order, table.total), (Order::Little, 4));
        assert_eq!((table.used, table.saved), (512 << 10, 1 << 20));
        assert_eq!(table.encode()[..], raw);
        words[2] = 1;
        let raw = bytes(&words);
        let table = CloneTable::read(&mut Reader::new("t", &raw, Order::Little)).unwrap();
        assert_eq!(table.counts_order, Order::Big);
        assert_eq!(table.encode()[..], raw);
        words[2] = 2;
        assert!(CloneTable::read(&mut Reader::new("t", &bytes(&words), Order::Little)).is_err());
        assert_eq!(clone_count(&[1, 0, 0, 0, 0, 0, 0, 0], Order::Little), Ok(1));
        assert!(clone_count(&[1; 9], Order::Little).is_err());
        assert_eq!(clone_table_name(units::VdevId::new(3)), "com.fudosecurity:brt:vdev:3");
    }
}
