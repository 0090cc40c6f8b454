//! The receiver of reports about blocks that readers found to be damaged: in part, or for good.

use ondisk::blkptr::Regular;
use units::{Guid, Zbookmark};

/// Repairs parts of blocks, and records blocks that are lost. Readers call it: it must return at once.
pub trait SelfHealer: Send + Sync + std::fmt::Debug {
    /// These drives have a wrong part of a block; `stored` are its right stored bytes.
    fn report_damage(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8], guilty: &[Guid]);

    /// No copy of a block could be read and verified.
    fn report_unreadable(&self, block: &Regular, zbookmark: Zbookmark);
}
