//! Hot spares in use: when a spare is detached again, and when it stays permanently.
//!
//! ```text
//! spare ─ b s        b is back and complete        b     s is available again   (b has `unspare`)
//! spare ─ replacing ─ b n   s    n is complete     n     s is available again
//! spare ─ b s        `zpool detach` of b           s     s is no spare any more
//! ```
//!
//! `unspare` marks a leaf that came back while a spare stands in for it. Without the mark, a spare that a
//! command put beside a healthy drive would be detached at once.
//!
//! Learnt from: `vdev_resilver_done_hunt`, `spa_vdev_detach` and `vdev_online` of OpenZFS 2.3.2. Proved by:
//! the engine's `tests/it/spares.rs`, and OpenZFS, which imports pools with spares in use.

use ondisk::label::{VdevConfig, VdevKind};
use units::Guid;

use super::ActivePool;
use super::attach::{edit_vdev, parent_of};
use crate::Error;

/// Marks a leaf that came back, if a spare stands in for it.
pub(super) fn request_unspare(root: &mut VdevConfig, leaf: Guid) -> bool {
    let is_original = parent_of(root, leaf).is_some_and(|parent| {
        parent.kind == VdevKind::Spare
            && parent.children.first().is_some_and(|first| first.guid == leaf)
    });
    if is_original {
        edit_vdev(root, leaf, &mut |entry| entry.state.unspare = true);
    }
    is_original
}

/// The spare that stays permanently when the leaf that it replaces is detached.
pub(super) fn promoted_spare(parent: &VdevConfig, gone: Guid) -> Option<Guid> {
    match (&parent.kind, &parent.children[..]) {
        // a distributed spare stays one: the drive may be replaced by another later
        (VdevKind::Spare, [first, .., last])
            if first.guid == gone && last.is_spare && last.kind != VdevKind::DraidSpare =>
        {
            Some(last.guid)
        }
        _ => None,
    }
}

impl ActivePool {
    /// Marks leaves that came back with the import while a spare stands in for them: they lack txgs, as the
    /// spare was attached while they were away.
    pub(super) fn unspare_returned(&self) {
        let mut config = self.config.lock();
        let Some(root) = config.current.tree.as_mut() else { return };
        let returned = |leaf: &&VdevConfig| {
            let found = self.tree.leaf(leaf.guid);
            !leaf.state.unspare
                && found.is_some_and(|leaf| leaf.is_writable() && !leaf.dtl().is_empty())
        };
        let returned: Vec<Guid> = root.leaves().filter(returned).map(|leaf| leaf.guid).collect();
        let marked = returned.into_iter().filter(|leaf| request_unspare(root, *leaf)).count();
        config.is_dirty |= marked > 0;
    }

    /// Detaches leaves whose replacement is complete, and spares whose original is complete again; returns
    /// how many.
    pub fn finish_replacements(&self) -> Result<usize, Error> {
        let mut count = 0;
        // the spare of a replacing is detached after the old leaf
        loop {
            let next = self.completed_replacements().into_iter().next();
            let Some(leaf) = next else { return Ok(count) };
            count += usize::from(self.detach_completed(leaf)?);
        }
    }

    /// Detaches a leaf if its replacement is complete, and a spare if its original is complete again; returns
    /// whether it did. Rule: this is decided in the txg of the detach. A spare that was put beside another
    /// drive in the meantime would otherwise be detached from that one.
    pub fn detach_completed(&self, leaf: Guid) -> Result<bool, Error> {
        self.detach_if(leaf, |active, leaf| active.completed_replacements().contains(&leaf))
    }

    /// Leaves that can be detached as others have all that they hold. None while the pool has a
    /// checkpoint.
    pub(crate) fn completed_replacements(&self) -> Vec<Guid> {
        if self.check_no_checkpoint().is_err() {
            return Vec::new();
        }
        let config = self.config();
        let mut found = Vec::new();
        for vdev in config.tree.iter().flat_map(VdevConfig::walk) {
            let obsolete = match (&vdev.kind, &vdev.children[..]) {
                (VdevKind::Replacing, [old, new]) if self.is_up_to_date(new) => Some(old.guid),
                (VdevKind::Spare, [first, .., last])
                    if first.state.unspare && self.is_up_to_date(first) =>
                {
                    Some(last.guid)
                }
                _ => None,
            };
            found.extend(obsolete.filter(|leaf| self.is_expendable(*leaf)));
        }
        found
    }

    /// Whether a vdev is a leaf that is in service and lacks nothing.
    fn is_up_to_date(&self, vdev: &VdevConfig) -> bool {
        let leaf = self.tree.leaf(vdev.guid);
        leaf.is_some_and(|leaf| leaf.is_writable() && !leaf.is_failing() && leaf.dtl().is_empty())
    }

    /// Whether the vdev of a leaf has valid replicas without it.
    pub(super) fn is_expendable(&self, leaf: Guid) -> bool {
        let tops = self.tree.tops().into_iter();
        let mut tops = tops.filter(|(_, top)| {
            let mut own = top.leaves().into_iter().chain(top.distributed_spares());
            own.any(|own| own.guid() == leaf)
        });
        tops.next().is_some_and(|(_, top)| top.outage(&|own| own.guid() == leaf).is_empty())
    }

    /// Has spares detached whose original works again after its errors were cleared.
    pub fn unspare_cleared(&self, only: Option<Guid>) -> Result<(), Error> {
        let config = self.config();
        let leaves = config.tree.iter().flat_map(VdevConfig::leaves);
        let back = |leaf: &&VdevConfig| {
            let found = self.tree.leaf(leaf.guid);
            only.is_none_or(|guid| leaf.guid == guid)
                && !leaf.state.unspare
                && found.is_some_and(|leaf| leaf.is_writable() && !leaf.is_failing())
        };
        let mut root = config.tree.clone();
        let Some(root) = &mut root else { return Ok(()) };
        let back: Vec<Guid> = leaves.filter(back).map(|leaf| leaf.guid).collect();
        let marked: Vec<Guid> =
            back.into_iter().filter(|leaf| request_unspare(root, *leaf)).collect();
        if marked.is_empty() {
            return Ok(());
        }
        self.run_sync_task(move |active, _| {
            let mut config = active.config();
            if let Some(root) = config.tree.as_mut() {
                for leaf in &marked {
                    request_unspare(root, *leaf);
                }
                active.set_vdev_tree(root.clone());
            }
        })
    }
}
