//! From devices to pools: labels of one pool guid belong together.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use ondisk::label::{LabelConfig, PoolState, VdevConfig, VdevKind};
use ondisk::uberblock::Uberblock;
use units::{Guid, Txg, VdevId};
use vdev::LeafDevice;

use crate::duplicates::{self, Duplicate};
use crate::labels::{self, LabeledDevice};

/// A pool of which devices were found.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The pool's identity.
    pub guid: Guid,
    /// Its devices, one for each leaf, in the order in which they were given.
    pub devices: Vec<LabeledDevice>,
    /// Devices with the label of one of these, which are left alone.
    pub duplicates: Vec<Duplicate>,
}

/// The facts about one leaf before the pool is opened.
#[derive(Clone, Debug)]
pub struct LeafSummary {
    /// Its guid.
    pub guid: Guid,
    /// Its path in the labels.
    pub path: String,
    /// The device, where it was found.
    pub device: Option<String>,
}

/// Reads the labels of all devices and sorts them into pools, by name and then by guid. Spares and
/// cache devices belong to no pool by their labels and come second.
pub fn scan_devices(devices: &[Arc<dyn Device>]) -> (Vec<Candidate>, Vec<LabeledDevice>) {
    let mut pools: BTreeMap<Guid, Vec<LabeledDevice>> = BTreeMap::new();
    let mut others = Vec::new();
    for device in devices {
        let (Some(labelled), _) = labels::read(device) else { continue };
        let state = labelled.config.pool.state;
        match (state, labelled.config.pool.pool_guid) {
            (PoolState::Spare | PoolState::Cache, _) => others.push(labelled),
            (_, Some(guid)) => pools.entry(guid).or_default().push(labelled),
            // a device that left its pool
            (PoolState::Destroyed, None) => (),
            (_, None) => others.push(labelled),
        }
    }
    let candidate = |(guid, devices)| {
        let (devices, duplicates) = duplicates::split_duplicates(devices);
        Candidate { guid, devices, duplicates }
    };
    let mut found: Vec<_> = pools.into_iter().map(candidate).collect();
    found.sort_by(|a, b| (a.name(), a.guid).cmp(&(b.name(), b.guid)));
    (found, others)
}

impl Candidate {
    /// The newest label: the pool's configuration until its own is read.
    pub fn config(&self) -> Option<&LabelConfig> {
        self.devices.iter().map(|device| &device.config).max_by_key(|config| config.pool.txg)
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        self.config().and_then(|config| config.pool.name.as_deref()).unwrap_or("")
    }

    /// All uberblocks that stand on any device, best first, each txg's best only.
    pub fn uberblocks(&self) -> Vec<&Uberblock> {
        let slots = self.devices.iter().flat_map(|device| &device.slots);
        let mut all: Vec<&Uberblock> = slots.map(|slot| &slot.uberblock).collect();
        all.sort_by_key(|uberblock| std::cmp::Reverse(uberblock.rank()));
        all.dedup_by_key(|uberblock| uberblock.txg);
        all
    }

    /// The best uberblock that stands on any device.
    pub fn newest_uberblock(&self) -> Option<&Uberblock> {
        self.uberblocks().first().copied()
    }

    /// The top-level vdevs from the labels, each by the newest label that has it. None for those
    /// without a found device.
    pub(crate) fn tops(&self) -> Vec<Option<&VdevConfig>> {
        let said = self.config().and_then(|config| config.pool.vdev_children);
        // labels of the first versions do not have the number of vdevs
        let trees = self.devices.iter().filter_map(|device| device.config.pool.tree.as_ref());
        let seen = trees.map(|tree| u64::from(tree.id.get()) + 1).max();
        let count = said.or(seen).unwrap_or(1);
        // an address has 24 bits for a vdev; no pool has more than a label can hold
        let count = units::to_usize(count.min(1 << 12));
        let mut tops: Vec<Option<(&VdevConfig, Txg)>> = vec![None; count];
        for device in &self.devices {
            let config = &device.config;
            let Some(tree) = &config.pool.tree else { continue };
            let txg = config.pool.txg;
            let index = units::to_usize(tree.id.get());
            if let Some(place) = tops.get_mut(index)
                && place.is_none_or(|(_, known)| known < txg)
            {
                *place = Some((tree, txg));
            }
        }
        tops.into_iter().map(|top| top.map(|(tree, _)| tree)).collect()
    }

    /// Finds the device of a leaf. A leaf has all txgs of its pool, unless the others of its
    /// top-level vdev have newer ones. Not every vdev is written in every txg, but all leaves of a
    /// written one are.
    pub(crate) fn find_leaf(&self, leaf: Guid) -> Option<LeafDevice> {
        let device = self.devices.iter().find(|device| device.guid() == leaf)?;
        let top = device.config.top_guid;
        let siblings = self.devices.iter().filter(|other| other.config.top_guid == top);
        let newest = siblings.map(LabeledDevice::newest_txg).max().unwrap_or(Txg::ZERO);
        let synced =
            if device.newest_txg() == newest { Txg::new(u64::MAX) } else { device.newest_txg() };
        Some(LeafDevice { device: Arc::clone(&device.device), label_txg: synced })
    }

    /// The leaves that a description names, and which of them were found.
    pub fn leaves<'a>(&'a self, tree: &'a VdevConfig) -> impl Iterator<Item = LeafSummary> + 'a {
        let real = |leaf: &&VdevConfig| matches!(leaf.kind, VdevKind::Disk | VdevKind::File);
        tree.leaves().filter(real).map(|leaf| LeafSummary {
            guid: leaf.guid,
            path: leaf.path.clone().unwrap_or_default(),
            device: self.find_leaf(leaf.guid).map(|found| found.device.name().to_owned()),
        })
    }

    /// The description of a top-level vdev by the labels.
    pub fn top(&self, id: VdevId) -> Option<&VdevConfig> {
        self.tops().get(usize::try_from(id.get()).ok()?).copied().flatten()
    }
}
