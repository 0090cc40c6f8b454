//! Copying the bytes of a top-level vdev that is being removed to other vdevs.
//!
//! ```text
//! source    mirror ─ a b      each child of the target gets the bytes of one child of the source
//! target    mirror ─ x y      a → x, b → y
//! ```
//!
//! The blocks of a range, and so their checksums, are not known. If one child of the source is damaged, the
//! matching child of the target is damaged in the same way, and the others still have the right bytes.
//!
//! Every device of the target must take the bytes: what one of them missed could not be found by the birth
//! txgs of blocks.

use std::sync::Arc;

use geometry::LABEL_START;
use units::{Txg, VdevId};

use crate::node::NodeAddress;
use crate::{Leaf, NodeKind, VdevNode, VdevTree};

/// Why a removal does not go on for now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvacuationPause {
    /// A device of a vdev that gets the data is missing or fails.
    #[error(
        "device '{path}' is unavailable: the removal goes on when it is back and `zpool clear` was run, or \
         when it is replaced. `zpool remove -s` cancels the removal"
    )]
    DeviceUnavailable {
        /// Where the device is, or was.
        path: String,
    },
    /// A device of a vdev that gets the data lacks some of its data.
    #[error("device '{path}' is being resilvered: the removal goes on when that has completed")]
    NeedsResilver {
        /// Where the device is.
        path: String,
    },
    /// A vdev is no single device and no mirror of devices, as long as a device is replaced.
    #[error("a device is being replaced: the removal goes on when that has completed")]
    ChildReplacing,
    /// The vdev that is removed cannot be read.
    #[error(
        "device '{path}' could not be read: run `zpool scrub`, or cancel the removal with `zpool remove -s` and \
         replace the device"
    )]
    ReadFailed {
        /// Where the device is.
        path: String,
    },
    /// A vdev that gets the data could not be written.
    #[error("device '{path}' could not be written: replace it, or run `zpool clear`")]
    WriteFailed {
        /// Where the device is.
        path: String,
    },
    /// There is no space for what is left.
    #[error(
        "the other vdevs have no space left: destroy snapshots or add a vdev, or cancel the removal with \
         `zpool remove -s`"
    )]
    NoSpace,
}

/// A range that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeCopy {
    /// The vdev that is removed, and the offset there: bytes from the end of the front labels.
    pub from: (VdevId, u64),
    /// The vdev that gets the bytes, and the offset there.
    pub to: (VdevId, u64),
    /// Bytes.
    pub length: usize,
}

impl VdevTree {
    /// Checks that all devices of a vdev can be written and lack nothing.
    pub fn check_evacuation_target(&self, vdev: VdevId) -> Result<(), EvacuationPause> {
        let node = self.top(vdev).ok_or(EvacuationPause::ChildReplacing)?;
        leaves_of(&node)?.into_iter().try_for_each(check_leaf)
    }

    /// Copies a range. What a device fails to write, it has missed of `txg`; nothing may then be read at the
    /// target.
    ///
    /// # Panics
    /// If our own arithmetic or bookkeeping is wrong.
    pub fn evacuate(&self, copy: RangeCopy, txg: Txg) -> Result<(), EvacuationPause> {
        assert_ne!(copy.from.0, copy.to.0, "data moves to another vdev");
        let missing = EvacuationPause::ChildReplacing;
        let source = self.top(copy.from.0).ok_or_else(|| missing.clone())?;
        let target = self.top(copy.to.0).ok_or(missing)?;
        let (mut sources, targets) = (leaves_of(&source)?, leaves_of(&target)?);
        let first = sources.first().map(|leaf| leaf.path().to_owned()).unwrap_or_default();
        sources.retain(|leaf| leaf.device().is_some() && leaf.dtl().is_empty());
        let mut bytes = vec![0; copy.length];
        let mut held = None;
        for (index, target) in targets.into_iter().enumerate() {
            check_leaf(target)?;
            let misses = target.miss_count();
            let wanted = index.checked_rem(sources.len());
            if held.is_none() || held != wanted {
                let order = sources.iter().cycle().skip(index).take(sources.len());
                read_any(order, copy.from.1, &mut bytes, &first)?;
                held = wanted;
            }
            let written = target.write_at(NodeAddress::new(copy.to.1, txg), &[&bytes]);
            if written.is_err() || target.miss_count() != misses {
                return Err(EvacuationPause::WriteFailed { path: target.path().to_owned() });
            }
        }
        Ok(())
    }
}

/// Reads from the first of these devices that gives the bytes.
fn read_any<'a>(
    leaves: impl Iterator<Item = &'a &'a Arc<Leaf>>,
    offset: u64,
    into: &mut [u8],
    path: &str,
) -> Result<(), EvacuationPause> {
    let mut path = path.to_owned();
    for leaf in leaves {
        leaf.path().clone_into(&mut path);
        if leaf.read(offset + LABEL_START, into).is_ok() {
            return Ok(());
        }
    }
    Err(EvacuationPause::ReadFailed { path })
}

/// The devices of a single device or a mirror.
fn leaves_of(node: &VdevNode) -> Result<Vec<&Arc<Leaf>>, EvacuationPause> {
    let leaf = |node| match node {
        &VdevNode { kind: NodeKind::Leaf(ref leaf), .. } => Ok(leaf),
        _ => Err(EvacuationPause::ChildReplacing),
    };
    match &node.kind {
        NodeKind::Mirror(children) => children.iter().map(leaf).collect(),
        _ => leaf(node).map(|leaf| vec![leaf]),
    }
}

fn check_leaf(leaf: &Arc<Leaf>) -> Result<(), EvacuationPause> {
    let path = leaf.path().to_owned();
    if !leaf.is_writable() || leaf.is_failing() {
        return Err(EvacuationPause::DeviceUnavailable { path });
    }
    if !leaf.dtl().is_empty() {
        return Err(EvacuationPause::NeedsResilver { path });
    }
    Ok(())
}
