//! Who is told what drives gave wrong, or could not give, of blocks that could be read all the same.

use ondisk::blkptr::Regular;
use units::{Guid, Zbookmark};

/// Has such drives mended.
pub trait SelfHealer: Send + Sync + std::fmt::Debug {
    /// These drives have a block wrong of which `stored` are the right bytes, as they are stored.
    /// Called by whoever reads: it is to return at once.
    fn report_damage(&self, block: &Regular, zbookmark: Zbookmark, stored: &[u8], guilty: &[Guid]);
}
