//! The one place where a txg becomes the pool: labels and uberblocks.
//!
//! ```text
//! 1  flush                    all blocks of the txg last, also those that another flush took along
//! 2  labels 0 and 2, flush    only if the configuration changed. Cut here, they are newer than any
//!                             uberblock and not believed; 1 and 3 still say what was
//! 3  uberblocks, flush        the txg exists from the first one on that reaches a drive
//! 4  labels 1 and 3, flush    only if the configuration changed
//! ```
//!
//! Every writable leaf gets everything, whatever it missed before, except the uberblock of a txg in
//! which it failed: its DTL is recorded only with the next txg, and until then its old uberblock
//! shows that it lacks this one. Nothing else writes to the labels' space.
//!
//! Learnt from: `vdev_label.c` of OpenZFS 2.3.2. Proved by: `a_cut_leaves_one_txg_or_the_other`.

use std::sync::Arc;

use ondisk::Checksum;
use ondisk::label::{self, LabelConfig, PoolConfig, PoolState, VdevConfig, VdevKind, config_field};
use ondisk::nvlist::{Nvlist, Value};
use ondisk::uberblock::Uberblock;
use transform::checksum::embedded;
use units::{Guid, MinusOrZero, Txg};
use vdev::{DeviceError, Leaf, LeafError, VdevNode, VdevTree};

use crate::Error;

/// Commits txgs to the leaves of a pool.
#[derive(Clone, Debug)]
pub struct TxgCommitter<'a> {
    /// The pool's vdevs.
    pub tree: &'a VdevTree,
    /// Those of them that are logs: their records are in the txg itself.
    pub logs: Vec<Guid>,
    /// Whether the last slot of each ring is reserved for MMP heartbeats.
    pub multihost: bool,
}

impl TxgCommitter<'_> {
    /// Commits what `uberblock` is the root of. `config` is the pool's configuration, its root's
    /// tree included, where it changed since the last commit; its `txg` is put into the labels.
    ///
    /// Leaves that failed are added to `faults`. Ok means that the txg is on disk, and that every
    /// top-level vdev that is not a log has a leaf that knows it. After an error the same commit can be tried
    /// again; whether the txg exists is then known only to the drives.
    pub fn commit(
        &self,
        uberblock: &Uberblock,
        config: Option<&PoolConfig>,
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let counts = |top: &VdevNode| !self.logs.contains(&top.guid);
        // Rule: flush before the uberblock. A drive may reorder writes: after a power cut an uberblock
        // without its blocks would be the newest state, and unreadable.
        self.tree.flush_vdevs(&counts, faults)?;
        // a commit of the intent log flushes as well, and may have failed with blocks of this txg
        if self.tree.check_txgs_durable(uberblock.txg..=uberblock.txg, &counts).is_err() {
            return Err(Error::WritesLost);
        }
        // Rule W3: the labels are built before the first is written. One that is too long then fails the commit, and
        // no drive has half of a new configuration.
        let labels = config.map(|config| self.build_labels(config)).transpose()?;
        // Rule: two labels before the uberblocks, two after. A cut then damages at most one pair, and the
        // other pair describes the state of the newest uberblock.
        if let Some(labels) = &labels {
            self.write_labels(labels, [0, 2], faults)?;
        }
        self.write_uberblocks(uberblock, faults)?;
        if let Some(labels) = &labels {
            self.write_labels(labels, [1, 3], faults)?;
        }
        Ok(())
    }

    /// Makes all leaves into ones without any past: four labels without configuration and without
    /// uberblocks. To be called before a pool's first commit.
    pub fn clear_labels(&self, faults: &mut Vec<LeafError>) -> Result<(), Error> {
        let mut good = Vec::new();
        for leaf in self.tree.writable_leaves() {
            let written = label_offsets(&leaf, 0..label::COPIES)
                .try_for_each(|start| leaf.write(start, &empty_label(start)));
            good.extend(record_fault(&leaf, written, faults).then_some(leaf.guid()));
        }
        self.flush_and_check(&good, faults)
    }

    /// The label of each leaf that can be written, with the top-level vdev it is part of.
    fn build_labels(&self, config: &PoolConfig) -> Result<Vec<LabelWrite>, Error> {
        let mut labels = Vec::new();
        for top in config.tree.iter().flat_map(|root| &root.children) {
            for leaf in physical_leaves(top) {
                let Some(target) = self.tree.leaf(leaf.guid).filter(|leaf| leaf.is_writable())
                else {
                    continue;
                };
                let list = leaf_label_config(config, top, leaf).to_list();
                let field = config_field(&list).ok_or(Error::LabelTooLong)?;
                labels.push(LabelWrite {
                    leaf: target,
                    top: top.guid,
                    is_log: top.is_log,
                    config_field: field,
                });
            }
        }
        Ok(labels)
    }

    fn write_labels(
        &self,
        labels: &[LabelWrite],
        which: [u32; 2],
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let mut good = Vec::new();
        for each in labels {
            let length = units::to_u64(each.config_field.len());
            assert_eq!(length, label::CONFIG_SIZE, "a configuration fills its field of the label");
            let written = label_offsets(&each.leaf, which).try_for_each(|start| {
                let place = start + label::CONFIG_OFFSET;
                let mut field = each.config_field.clone();
                seal_checksum(&mut field, place);
                each.leaf.write(place, &field)
            });
            if record_fault(&each.leaf, written, faults) {
                good.push(each.leaf.guid());
            }
        }
        // Rule W3: the flush ends before the next half or the uberblocks are written. A drive that reorders could have
        // both halves of the labels damaged by one cut.
        let failed = self.flush_leaves(faults);
        good.retain(|guid| !failed.contains(guid));
        let has = |top: Guid| labels.iter().any(|e| e.top == top && good.contains(&e.leaf.guid()));
        let lacking = labels.iter().find(|each| !each.is_log && !has(each.top));
        lacking.map_or(Ok(()), |each| Err(Error::VdevNotWritten { top: each.top }))
    }

    fn write_uberblocks(
        &self,
        uberblock: &Uberblock,
        faults: &mut Vec<LeafError>,
    ) -> Result<(), Error> {
        let mut good = Vec::new();
        // Rule W4: a leaf that missed a part of the txg keeps its older uberblock. Imported alone it then shows the
        // older state, which it has as a whole.
        for leaf in commit_targets(self.tree, uberblock.txg) {
            let ashift = u64::from(leaf.ashift().get());
            let within = label::slot_offset(ashift, slot_txg(uberblock), self.multihost);
            let written = label_offsets(&leaf, 0..label::COPIES).try_for_each(|start| {
                let written = write_uberblock_slot(uberblock, &leaf, start + within);
                written.inspect(|()| leaf.record_label_txg(uberblock.txg))
            });
            good.extend(record_fault(&leaf, written, faults).then_some(leaf.guid()));
        }
        self.flush_and_check(&good, faults)
    }

    /// Writes an MMP heartbeat into one label of a leaf; returns whether the leaf took it.
    pub fn write_heartbeat(uberblock: &Uberblock, leaf: &Leaf, copy: u32) -> bool {
        let within = label::heartbeat_offset(leaf.ashift().get().into());
        label_offsets(leaf, [copy])
            .any(|start| write_uberblock_slot(uberblock, leaf, start + within).is_ok())
    }

    /// Flushes; an error if no leaf is left that has all the writes.
    fn flush_and_check(&self, good: &[Guid], faults: &mut Vec<LeafError>) -> Result<(), Error> {
        let failed = self.flush_leaves(faults);
        let lasts = good.iter().any(|leaf| !failed.contains(leaf));
        if lasts { Ok(()) } else { Err(Error::NoDeviceWritten) }
    }

    /// Flushes all leaves; returns the failed ones.
    fn flush_leaves(&self, faults: &mut Vec<LeafError>) -> Vec<Guid> {
        let failed: Vec<Guid> =
            self.tree.flush_leaves().into_iter().map(|leaf| leaf.guid()).collect();
        for leaf in &failed {
            push_fault(LeafError { leaf: *leaf, error: DeviceError::WriteFailed }, faults);
        }
        failed
    }
}

/// The writable leaves whose uberblock may have this txg; all of them, if that were none.
pub(crate) fn commit_targets(tree: &VdevTree, txg: Txg) -> Vec<Arc<Leaf>> {
    let all = tree.writable_leaves();
    let whole: Vec<_> = all.iter().filter(|leaf| !leaf.has_missed_txg(txg)).cloned().collect();
    if whole.is_empty() { all } else { whole }
}

/// Makes a leaf into one without any past.
pub(crate) fn clear_leaf_labels(leaf: &Leaf) -> Result<(), DeviceError> {
    label_offsets(leaf, 0..label::COPIES)
        .try_for_each(|start| leaf.write(start, &empty_label(start)))
        .and_then(|()| leaf.flush())
}

/// Marks the labels of a leaf that left its pool: state destroyed, and no pool. `zpool labelclear` finds a label
/// to clear, as on a device that OpenZFS removed, and no import finds a pool.
pub(crate) fn write_removed_labels(leaf: &Leaf) -> Result<(), DeviceError> {
    let Some(field) = config_field(&removed_label(leaf.guid())) else {
        return clear_leaf_labels(leaf);
    };
    label_offsets(leaf, 0..label::COPIES)
        .try_for_each(|start| leaf.write(start, &encode_label(&field, start)))
        .and_then(|()| leaf.flush())
}

/// The label of a device that left its pool.
pub(crate) fn removed_label(device: Guid) -> Nvlist {
    let mut list = Nvlist::new();
    list.push("version", Value::U64(crate::create::POOL_VERSION));
    list.push("state", Value::U64(PoolState::Destroyed.number()));
    list.push("txg", Value::U64(0));
    list.push("guid", Value::U64(device.get()));
    list
}

/// A label that begins at `start`, without any past.
fn empty_label(start: u64) -> Vec<u8> {
    let mut bytes = vec![0; units::to_usize(label::SIZE)];
    let from = units::to_usize(label::BOOT_ENV_OFFSET);
    let length = units::to_usize(label::BOOT_ENV_SIZE);
    seal_checksum(&mut bytes[from..from + length], start + label::BOOT_ENV_OFFSET);
    bytes
}

/// The same with a configuration.
pub(crate) fn encode_label(config: &[u8], start: u64) -> Vec<u8> {
    let length = units::to_u64(config.len());
    assert!(length <= label::CONFIG_SIZE, "a configuration of {length} bytes fits its label");
    let mut bytes = empty_label(start);
    let from = units::to_usize(label::CONFIG_OFFSET);
    let field = &mut bytes[from..from + config.len()];
    field.copy_from_slice(config);
    seal_checksum(field, start + label::CONFIG_OFFSET);
    bytes
}

/// A label to be written.
struct LabelWrite {
    leaf: Arc<Leaf>,
    top: Guid,
    is_log: bool,
    config_field: Vec<u8>,
}

/// The content of a leaf's label: the pool, and the leaf's top-level vdev.
pub fn leaf_label_config(pool: &PoolConfig, top: &VdevConfig, leaf: &VdevConfig) -> LabelConfig {
    let pool = PoolConfig { tree: Some(top.clone()), ..pool.clone() };
    LabelConfig::for_leaf(pool, leaf.guid, leaf.is_spare)
}

/// The leaves that have a device with labels of its own.
fn physical_leaves(top: &VdevConfig) -> impl Iterator<Item = &VdevConfig> {
    top.leaves().filter(|leaf| matches!(leaf.kind, VdevKind::Disk | VdevKind::File))
}

fn write_uberblock_slot(uberblock: &Uberblock, leaf: &Leaf, place: u64) -> Result<(), DeviceError> {
    let size = units::to_usize(label::slot_size(leaf.ashift().get().into()));
    let mut slot = vec![0; size];
    let device = leaf.device().map_or(0, |device| device.size());
    let mut labels = (0..label::COPIES).filter_map(|copy| label::offset(copy, device));
    assert!(
        labels.any(|start| start <= place && place + units::to_u64(size) <= start + label::SIZE),
        "an uberblock is written into the ring of a label"
    );
    slot[..Uberblock::SIZE].copy_from_slice(&uberblock.encode());
    seal_checksum(&mut slot, place);
    leaf.write(place, &slot)
}

/// Where these copies of the label begin on the leaf's device.
fn label_offsets(leaf: &Leaf, which: impl IntoIterator<Item = u32>) -> impl Iterator<Item = u64> {
    let size = leaf.device().map_or(0, |device| device.size());
    which.into_iter().filter_map(move |copy| label::offset(copy, size))
}

/// The txg that selects the slot: that of the uberblock, except for the one with a raidz
/// expansion's scratch state, which must not overwrite the one that it amends.
fn slot_txg(uberblock: &Uberblock) -> Txg {
    let amends = uberblock.reflow.scratch == ondisk::uberblock::Scratch::Valid;
    Txg::new(uberblock.txg.get().minus_or_zero(u64::from(amends)))
}

fn seal_checksum(field: &mut [u8], place: u64) {
    let sealed = embedded::seal(field, &[place, 0, 0, 0], Checksum::Label, false);
    assert!(sealed.is_some(), "fields of labels have space for their checksum");
}

/// Returns whether it was written; reports an error.
fn record_fault(
    leaf: &Leaf,
    written: Result<(), DeviceError>,
    faults: &mut Vec<LeafError>,
) -> bool {
    if let Err(trouble) = written {
        push_fault(LeafError { leaf: leaf.guid(), error: trouble }, faults);
    }
    written.is_ok()
}

fn push_fault(fault: LeafError, faults: &mut Vec<LeafError>) {
    if !faults.contains(&fault) {
        faults.push(fault);
    }
}
