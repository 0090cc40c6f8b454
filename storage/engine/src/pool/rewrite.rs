//! The blocks of files written again as they are (zfs-rewrite(8)).

use std::ops::Range;

use ondisk::Blkptr;
use units::{ObjectId, Txg};
use zpl::RewrittenRange;

use super::OpenFileSystem;
use crate::files::Result;

/// The blocks that a rewrite leaves as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RewriteFilter {
    /// Blocks that files share by cloning: a rewritten block is shared no more, and takes space.
    pub skip_cloned: bool,
    /// Blocks that the newest snapshot shares: it keeps the old block, and the new one takes space.
    pub skip_snapshots: bool,
    /// Blocks that were written in this txg or later. None: all ages are rewritten.
    pub born_before: Option<u64>,
}

impl OpenFileSystem {
    /// Rewrites the blocks at the start of a range of a file, in bytes, as many as one transaction holds. The
    /// caller goes on at [`RewrittenRange::next`].
    pub fn rewrite_range(
        &self,
        file: ObjectId,
        range: Range<u64>,
        filter: &RewriteFilter,
    ) -> Result<RewrittenRange> {
        let spa = self.spa();
        let stopped = |_: spa::Error| zpl::Error::Stopped { objset: self.dataset().objset.id() };
        let snapshot = match filter.skip_snapshots {
            true => spa.newest_snapshot_txg(self.dataset().objset.id()).map_err(stopped)?,
            false => Txg::ZERO,
        };
        let wants = |pointer: &Blkptr| {
            let is_young = filter.born_before.is_some_and(|txg| stored_txg(pointer).get() >= txg);
            let is_kept = filter.skip_snapshots && pointer.birth() <= snapshot;
            if is_young || is_kept {
                return Ok(false);
            }
            Ok(!(filter.skip_cloned && spa.is_cloned(pointer).map_err(stopped)?))
        };
        Ok(self.writer().rewrite_range(file, range, &wants)?)
    }
}

/// The txg in which the data of a block was written. A clone is younger than its data.
fn stored_txg(pointer: &Blkptr) -> Txg {
    match pointer {
        Blkptr::Regular(block) => block.birth_physical,
        _ => pointer.birth(),
    }
}
