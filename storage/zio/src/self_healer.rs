//! The receiver of reports about blocks that readers found damaged: in part, or as a whole.

use ondisk::blkptr::Regular;
use units::{Guid, Zbookmark};

/// Repairs such drives.
pub trait SelfHealer: Send + Sync + std::fmt::Debug {
    /// These drives have a wrong part of a block; `stored` are its right stored bytes.
    /// The reader calls it: it must return at once.
    fn report_damage(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8], guilty: &[Guid]);

    /// No copy of a block could be read or reconstructed, though its devices are there.
    /// The reader calls it: it must return at once.
    fn report_lost_block(&self, block: &Regular, zbookmark: Zbookmark);
}
