//! The receiver of reports about wrong or unreadable parts of blocks that could still be read.

use ondisk::blkptr::Regular;
use units::{Guid, Zbookmark};

/// Repairs such drives.
pub trait SelfHealer: Send + Sync + std::fmt::Debug {
    /// These drives have a wrong part of a block; `stored` are its right stored bytes.
    /// The reader calls it: it must return at once.
    fn report_damage(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8], guilty: &[Guid]);
}
