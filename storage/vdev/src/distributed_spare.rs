//! A distributed spare of a dRAID that stands in for one of its drives.
//!
//! ```text
//! draid ─ a b ┌ spare ─ c  draid1-0-0 ┐ d e      the spare's columns lie on a, b, d, e: the drive
//!                                                of each slice follows from its permutation
//! ```
//!
//! The spare has no device. Its DTL says of which txgs its columns are not written yet; what a drive that
//! holds its columns fails to take is in the DTL of that drive.
//!
//! Proved by: `tests/it/repair.rs`; the engine's `tests/it/distributed_spares.rs`.

use std::sync::Arc;

use units::{Guid, Txg};

use crate::leaf::UNKNOWN_BIRTH;
use crate::node::NodeAddress;
use crate::write::DraidChildren;
use crate::{Leaf, VdevNode};

/// A distributed spare that is part of a vdev.
#[derive(Clone, Debug)]
pub struct DistributedSpare {
    number: u32,
    leaf: Arc<Leaf>,
}

impl DistributedSpare {
    /// The spare of that number; `name` is its path in the pool's configuration.
    pub fn new(guid: Guid, number: u32, name: String) -> Self {
        Self { number, leaf: Arc::new(Leaf::new(guid, name, None, Txg::new(u64::MAX))) }
    }

    /// Its identity and its DTL. It never has a device.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.leaf
    }

    /// Whether its columns of blocks of that txg are written.
    pub(crate) fn has_txg(&self, birth: Txg) -> bool {
        let missed = self.leaf.dtl();
        missed.is_empty() || (birth != UNKNOWN_BIRTH && !missed.contains(birth))
    }

    /// The drive that holds its column at an offset, and `length` bytes from there on.
    ///
    /// # Panics
    ///
    /// If the bytes lie in two slices: the second part would be on another drive.
    pub(crate) fn target<'a>(
        &self,
        family: DraidChildren<'a>,
        spot: NodeAddress,
        length: usize,
    ) -> Option<(&'a VdevNode, NodeAddress)> {
        let (draid, children) = family?;
        let within = spot.offset % draid.slice_size();
        assert!(
            within + units::to_u64(length) <= draid.slice_size(),
            "no request to a distributed spare crosses the end of a slice"
        );
        let target = children.get(draid.spare_child(self.number, spot.offset)?)?;
        // the drive may itself be replaced by a spare, and so on
        Some((target, NodeAddress { spare_depth: spot.spare_depth.checked_sub(1)?, ..spot }))
    }
}
