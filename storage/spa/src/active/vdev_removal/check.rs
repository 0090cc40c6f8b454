//! When a vdev can be removed, and what must wait for a removal.

use metaslab::Class;
use ondisk::label::{VdevConfig, VdevKind};
use units::VdevId;

use super::super::device_change::DeviceChangeError;
use super::{ActivePool, FEATURE};
use crate::{Error, PoolDirectory, capacity, features};

/// Space that must stay free: one part in so many, within bounds.
const SLOP_SHIFT: u32 = 5;
const MIN_SLOP: u64 = 8 << 20;
const MAX_SLOP: u64 = 128 << 30;

/// Why a vdev cannot be removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalError {
    /// The feature is not enabled.
    #[error(
        "the device_removal feature must be enabled in order to remove a vdev with data: run \
         `zpool upgrade`"
    )]
    FeatureDisabled,
    /// The vdev is being removed.
    #[error("removal for this vdev is already in progress")]
    AlreadyRemoving,
    /// Another vdev is being removed.
    #[error(
        "Pool busy; removal may already be in progress: wait for it with `zpool wait -t remove`, or \
         cancel it with `zpool remove -s`"
    )]
    Busy,
    /// A vdev of the pool is a raidz or dRAID, is not plain, or has other sectors.
    #[error(
        "invalid config; all top-level vdevs must have the same sector size and not be raidz. To shrink \
         such a pool, copy its datasets to another pool with `zfs send -R`, and destroy it"
    )]
    InvalidConfig,
    /// The others have no space for what is on it.
    #[error(
        "out of space: {needed} bytes are needed without it, and {available} are available. Destroy snapshots \
         or datasets, or add a vdev"
    )]
    NoSpace {
        /// Bytes that are allocated on the vdev, or by which datasets have less space without it.
        needed: u64,
        /// Bytes that other vdevs can take, or that datasets have left.
        available: u64,
    },
    /// Nothing else can be allocated from.
    #[error("it is the only vdev for data")]
    OnlyVdev,
    /// The vdev cannot be read.
    #[error("one or more of its devices is currently unavailable or being resilvered")]
    Unhealthy,
    /// No vdev is being removed.
    #[error("no removal is in progress")]
    NotRemoving,
    /// Something else has to wait for the removal.
    #[error(
        "device removal in progress: wait for it with `zpool wait -t remove`, or cancel it with \
         `zpool remove -s`"
    )]
    InProgress,
    /// A raidz or dRAID vdev, or one with other sectors, is added to a pool with removed vdevs.
    #[error(
        "invalid config; a pool with removing/removed vdevs does not support adding raidz or dRAID vdevs"
    )]
    RaidzAdded,
}

impl ActivePool {
    /// Checks whether a top-level vdev with data can be removed.
    pub fn check_removal(&self, vdev: VdevId) -> Result<(), Error> {
        self.check_no_checkpoint().map_err(DeviceChangeError::from)?;
        let config = self.config();
        let tops = config.tree.map(|root| root.children).unwrap_or_default();
        let top = tops.iter().find(|top| top.id == vdev).ok_or(DeviceChangeError::NotInPool)?;
        let features = features::read(&PoolDirectory::open(self.mos.clone())?)?;
        if !features.iter().any(|feature| feature.guid == FEATURE) {
            return Err(RemovalError::FeatureDisabled.into());
        }
        if top.removing {
            return Err(RemovalError::AlreadyRemoving.into());
        }
        if tops.iter().any(|top| top.removing)
            || self.expanding_vdev().is_some()
            || !self.rebuilding_vdevs().is_empty()
        {
            return Err(RemovalError::Busy.into());
        }
        if tops.iter().any(|other| !fits_removal(other, top.ashift)) {
            return Err(RemovalError::InvalidConfig.into());
        }
        self.check_removal_space(vdev)?;
        let node = self.tree.top(vdev).ok_or(DeviceChangeError::NotInPool)?;
        let is_complete = |leaf: &vdev::Leaf| leaf.is_writable() && leaf.dtl().is_empty();
        if !node.leaves().into_iter().any(|leaf| is_complete(leaf)) {
            return Err(RemovalError::Unhealthy.into());
        }
        Ok(())
    }

    fn check_removal_space(&self, vdev: VdevId) -> Result<(), RemovalError> {
        let allocator = self.space.allocator();
        let needed = allocator.vdev_usage(vdev).map_or(0, |usage| usage.allocated);
        let others = allocator.vdevs_in_class(Class::Normal).into_iter();
        let others: Vec<VdevId> =
            others.filter(|other| *other != vdev && self.is_allocating(*other)).collect();
        if others.is_empty() {
            return Err(RemovalError::OnlyVdev);
        }
        let usages = others.iter().filter_map(|other| allocator.vdev_usage(*other).ok());
        let (mut capacity, mut free) = (0, 0);
        for usage in usages {
            capacity += usage.capacity;
            free += usage.capacity - usage.allocated;
        }
        let slop = (capacity >> SLOP_SHIFT).clamp(MIN_SLOP, MAX_SLOP);
        let available = free - slop.min(free);
        if available < needed {
            return Err(RemovalError::NoSpace { needed, available });
        }
        Ok(())
    }

    /// Bytes by which the space that datasets may use shrinks when a vdev is removed.
    pub fn space_lost_by_removal(&self, vdev: VdevId) -> Result<u64, Error> {
        let (_mos, mut pool) = self.synced_pool()?;
        let before = capacity::base_space(&pool);
        let mut tops = pool.config.tree.iter_mut().flat_map(|root| &mut root.children);
        if let Some(top) = tops.find(|top| top.id == vdev) {
            top.removing = true;
        }
        Ok(before - capacity::base_space(&pool).min(before))
    }

    /// Whether a vdev may be allocated from by its configuration.
    pub(super) fn is_allocating(&self, vdev: VdevId) -> bool {
        let config = self.config.lock();
        let mut tops = config.current.tree.iter().flat_map(|root| &root.children);
        tops.any(|top| top.id == vdev && !top.removing && !top.non_allocating)
    }

    /// Refuses what cannot be done while a vdev is being removed.
    pub(in crate::active) fn check_no_removal(&self) -> Result<(), RemovalError> {
        if self.removing_vdev().is_some() { Err(RemovalError::InProgress) } else { Ok(()) }
    }

    /// Refuses a new vdev to which what was removed, or is being removed, cannot be copied.
    pub(in crate::active) fn check_added_to_removed(
        &self,
        new: &VdevConfig,
    ) -> Result<(), RemovalError> {
        let config = self.config.lock();
        let tops = config.current.tree.as_ref().map_or(&[][..], |root| &root.children);
        let removing = tops.iter().find(|top| top.removing);
        let is_other = removing.is_some_and(|top| top.ashift != new.ashift);
        let is_removed = |top: &VdevConfig| top.removing || top.kind == VdevKind::Indirect;
        if tops.iter().any(is_removed) && (is_other || new.nparity.is_some()) {
            return Err(RemovalError::RaidzAdded);
        }
        Ok(())
    }
}

/// Whether a pool with this vdev can have a vdev of that sector size removed.
fn fits_removal(top: &VdevConfig, ashift: Option<u64>) -> bool {
    match top.kind {
        VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing => true,
        VdevKind::Disk | VdevKind::File => top.is_log || top.ashift == ashift,
        VdevKind::Mirror => {
            (top.is_log || top.ashift == ashift)
                && top.children.iter().all(|child| child.kind.is_leaf())
        }
        _ => false,
    }
}
