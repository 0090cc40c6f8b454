//! A pool's vdevs, and which of their devices are there.

use ondisk::label::{Bias, VdevConfig, VdevKind};
use spa::{Candidate, LabeledDevice};
use units::{Guid, MinusOrZero, Txg, VdevId};

use super::{Vdev, VdevState};
use crate::error::UnavailableVdev;

/// Bytes at the ends of a device that labels take and its vdev does not have.
const LABELS_SIZE: u64 = (4 << 20) + (512 << 10);

/// The top-level vdevs: as the pool knows them if it could be opened, else as its labels do.
pub(crate) fn top_vdevs(candidate: &Candidate, pool: Option<&spa::Pool>) -> Vec<VdevConfig> {
    if let Some(root) = pool.and_then(|pool| pool.config().tree.as_ref()) {
        return root.children.clone();
    }
    let ids = 0..top_count(candidate);
    ids.filter_map(|id| candidate.top(VdevId::new(id)).cloned()).collect()
}

/// How many top-level vdevs there are by the labels. An address has 24 bits for one.
fn top_count(candidate: &Candidate) -> u32 {
    let said = candidate.config().and_then(|config| config.pool.vdev_children).unwrap_or(1);
    units::narrow::<u32>(said.min(1 << 12))
}

/// The name that `zpool status` has for a vdev.
pub(crate) fn vdev_name(config: &VdevConfig) -> String {
    let id = config.id;
    match &config.kind {
        VdevKind::Raidz => format!("raidz{}-{id}", config.nparity.unwrap_or(1)),
        VdevKind::Draid => {
            let parity = config.nparity.unwrap_or(1);
            let (data, spares) = config.draid.map_or((0, 0), |draid| (draid.data, draid.spares));
            format!("draid{parity}:{data}d:{}c:{spares}s-{id}", config.children.len())
        }
        VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare | VdevKind::Cache => {
            let path = config.path.clone().unwrap_or_else(|| config.guid.to_string());
            path.rsplit('/').next().unwrap_or(&path).to_owned()
        }
        kind => format!("{kind}-{id}"),
    }
}

/// The device of a leaf.
fn find_device(candidate: &Candidate, leaf: Guid) -> Option<&LabeledDevice> {
    candidate.devices.iter().find(|device| device.guid() == leaf)
}

/// The newest txg that any device of the same top-level vdev knows.
pub(crate) fn newest_sibling_txg(candidate: &Candidate, device: &LabeledDevice) -> Txg {
    let top = device.config.top_guid;
    let siblings = candidate.devices.iter().filter(|other| other.config.top_guid == top);
    siblings.map(LabeledDevice::newest_txg).max().unwrap_or(Txg::ZERO)
}

/// The size of a device (bytes) and what its label wants, if it is too short.
pub(crate) fn truncation(device: &LabeledDevice) -> Option<(u64, u64)> {
    let tree = device.config.pool.tree.as_ref()?;
    let asize = tree.asize?;
    let share = match tree.kind {
        // while a raidz is widened its size is still that of before
        VdevKind::Raidz | VdevKind::Draid => {
            asize.checked_div(u64::try_from(tree.children.len()).ok()?)?
        }
        _ => asize,
    };
    let (size, wanted) = (device.device.size(), share.checked_add(LABELS_SIZE)?);
    (size < wanted).then_some((size, wanted))
}

/// Whether blocks can be read from a vdev, by the devices that are there.
fn is_readable(config: &VdevConfig, candidate: &Candidate) -> bool {
    let gone = || config.children.iter().filter(|child| !is_readable(child, candidate)).count();
    match config.kind {
        VdevKind::Disk | VdevKind::File => find_device(candidate, config.guid).is_some(),
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => gone() < config.children.len(),
        VdevKind::Raidz | VdevKind::Draid => gone() <= redundancy(config),
        VdevKind::Missing => false,
        _ => true,
    }
}

/// How many children a vdev can do without.
fn redundancy(config: &VdevConfig) -> usize {
    match config.kind {
        VdevKind::Raidz | VdevKind::Draid => units::to_usize(config.nparity.unwrap_or(1)),
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
            config.children.len().minus_or_zero(1)
        }
        _ => 0,
    }
}

/// The missing children of a vdev, if they exceed its redundancy.
pub(crate) fn unavailable_vdev(
    config: &VdevConfig,
    candidate: &Candidate,
) -> Option<UnavailableVdev> {
    if is_readable(config, candidate) {
        return None;
    }
    let leaves = candidate.leaves(config).filter(|leaf| leaf.device.is_none());
    Some(UnavailableVdev {
        vdev: vdev_name(config),
        devices: config.children.len().max(1),
        missing: leaves.map(|leaf| leaf.path).collect(),
        redundancy: redundancy(config),
    })
}

/// The same of all top-level vdevs, as the labels know them; some may not be known at all.
pub(crate) fn unavailable_vdevs(candidate: &Candidate) -> Vec<UnavailableVdev> {
    let holes = candidate.config().map_or(&[][..], |config| &config.pool.holes);
    let of = |id: u32| match candidate.top(VdevId::new(id)) {
        Some(config) => unavailable_vdev(config, candidate),
        None if holes.contains(&u64::from(id)) => None,
        None => {
            let (vdev, missing) = (format!("vdev {id}"), Vec::new());
            Some(UnavailableVdev { vdev, devices: 0, missing, redundancy: 0 })
        }
    };
    (0..top_count(candidate)).filter_map(of).collect()
}

/// Describes a vdev and all below it.
pub(super) fn summarize_vdev(config: &VdevConfig, candidate: &Candidate, is_top: bool) -> Vdev {
    let below = config.children.iter().map(|child| summarize_vdev(child, candidate, false));
    let children: Vec<Vdev> = below.collect();
    let is_device = matches!(config.kind, VdevKind::Disk | VdevKind::File);
    let device = find_device(candidate, config.guid).filter(|_| is_device);
    let newest = device.map(|device| newest_sibling_txg(candidate, device));
    let stale = device.map(LabeledDevice::newest_txg).filter(|synced| Some(*synced) < newest);
    let whole =
        children.iter().all(|child| matches!(child.state, VdevState::Online | VdevState::Removed));
    let state = match config.kind {
        VdevKind::Indirect | VdevKind::Hole => VdevState::Removed,
        _ if !is_readable(config, candidate) => VdevState::Missing,
        _ if device.is_some_and(|device| truncation(device).is_some()) => VdevState::Truncated,
        _ if stale.is_some() => VdevState::Stale,
        _ if !whole => VdevState::Degraded,
        _ => VdevState::Online,
    };
    Vdev {
        name: vdev_name(config),
        kind: config.kind.name().to_owned(),
        class: allocation_class(config),
        guid: config.guid.get(),
        state,
        path: config.path.clone(),
        found: device.map(|device| device.device.name().to_owned()),
        size: if is_top { config.asize } else { device.map(|device| device.device.size()) },
        ashift: config.ashift.filter(|_| is_top),
        synced: stale.map(Txg::get),
        children,
    }
}

fn allocation_class(config: &VdevConfig) -> Option<String> {
    if config.is_log {
        return Some("log".to_owned());
    }
    match config.bias.as_ref()? {
        Bias::Log => Some("log".to_owned()),
        Bias::Special => Some("special".to_owned()),
        Bias::Dedup => Some("dedup".to_owned()),
        Bias::Unknown(name) => Some(name.clone()),
    }
}

/// Describes a spare or a cache.
pub(super) fn summarize_auxiliary(config: &VdevConfig, others: &[LabeledDevice]) -> Vdev {
    let found = others.iter().find(|other| other.guid() == config.guid);
    // a distributed spare is part of its draid
    let there = found.is_some() || config.kind == VdevKind::DraidSpare;
    Vdev {
        name: vdev_name(config),
        kind: config.kind.name().to_owned(),
        class: None,
        guid: config.guid.get(),
        state: if there { VdevState::Online } else { VdevState::Missing },
        path: config.path.clone(),
        found: found.map(|found| found.device.name().to_owned()),
        size: found.map(|found| found.device.size()),
        ashift: None,
        synced: None,
        children: Vec::new(),
    }
}
