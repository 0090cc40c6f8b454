//! Hot spares and cache drives: the pool's configuration names them, and they are in none of its
//! vdevs.
//!
//! The pool's directory leads to a packed list of each (`spares`, `l2cache`), with one list for
//! each drive: `type`, `guid`, `path`, `is_spare`, `ashift`. The distributed spares of a dRAID are
//! among the spares, as vdevs of the kind `dspare` without a drive: `top_guid` and `spareid`
//! identify them. The labels of such a drive hold only its role:
//!
//! ```text
//! version  state (3 a spare, 4 a cache)  guid  ashift (of a cache)  path
//! ```
//!
//! Learnt from: pools and drives of OpenZFS 2.3.2. Proved by: rounds against it.

use std::sync::Arc;

use device::Device;
use dsl::write::SyncTaskContext;
use ondisk::l2arc;
use ondisk::label::{self, PoolState, VdevConfig, VdevKind, config_field};
use ondisk::nvlist::{Nvlist, Value};
use units::{Ashift, Guid};

use crate::active::{Environment, write_packed_nvlist};
use crate::commit::{encode_label, removed_label};
use crate::create::INITIAL_TXG;
use crate::vdev_layout::DeviceSpec;
use crate::{Error, LabelCopy, PoolDirectory};

/// The role of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuxiliaryRole {
    /// To take the place of a drive that fails.
    Spare,
    /// A device of the read cache (L2ARC).
    Cache,
}

/// A drive that is part of no vdev.
#[derive(Clone)]
pub struct AuxiliaryDevice {
    /// Its role.
    pub role: AuxiliaryRole,
    /// Its path.
    pub spec: DeviceSpec,
    /// The drive itself.
    pub device: Arc<dyn Device>,
}

impl std::fmt::Debug for AuxiliaryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}('{}')", self.role, self.spec.path)
    }
}

/// A drive that a pool names and that is part of no vdev; also a spare that a dRAID has in itself.
#[derive(Clone, Debug)]
pub struct AuxiliaryEntry {
    /// Its role.
    pub role: AuxiliaryRole,
    /// Its guid.
    pub guid: Guid,
    /// Its name: the path.
    pub path: String,
    /// The sectors in which it is written.
    pub ashift: Option<Ashift>,
    /// Whether it is distributed spare space of a dRAID.
    pub is_distributed: bool,
    /// Its configuration in the pool.
    nvlist: Nvlist,
}

impl AuxiliaryEntry {
    fn new(role: AuxiliaryRole, nvlist: Nvlist) -> Self {
        Self {
            role,
            guid: Guid::new(nvlist.u64("guid").unwrap_or(0)),
            path: nvlist.text("path").unwrap_or_default(),
            ashift: nvlist.u64("ashift").and_then(Ashift::new),
            is_distributed: nvlist.text("type").as_deref() == Some(VdevKind::DraidSpare.name()),
            nvlist,
        }
    }
}

impl AuxiliaryEntry {
    /// The dRAID of a distributed spare.
    pub(crate) fn top_guid(&self) -> Option<Guid> {
        self.nvlist.u64("top_guid").filter(|_| self.is_distributed).map(Guid::new)
    }

    /// Its configuration as a vdev.
    pub(crate) fn config(&self) -> Result<VdevConfig, Error> {
        Ok(VdevConfig::parse(&self.nvlist)?)
    }
}

/// Its entry in the pool's directory.
const DIRECTORY_ENTRIES: [(AuxiliaryRole, &str); 2] =
    [(AuxiliaryRole::Spare, "spares"), (AuxiliaryRole::Cache, "l2cache")];

/// The configured ones of a pool.
pub(crate) fn read_entries(directory: &PoolDirectory) -> Result<Vec<AuxiliaryEntry>, Error> {
    let mut all = Vec::new();
    for (role, entry) in DIRECTORY_ENTRIES {
        let list = directory.nvlist(entry)?;
        let lists = list.iter().flat_map(|list| list.nvlists(entry));
        all.extend(lists.map(|list| AuxiliaryEntry::new(role, list.clone())));
    }
    Ok(all)
}

/// Has the pool name these, and no others.
pub(crate) fn write_entries(
    change: &SyncTaskContext<'_>,
    named: &[AuxiliaryEntry],
) -> Result<(), Error> {
    for (role, entry) in DIRECTORY_ENTRIES {
        let own = named.iter().filter(|named| named.role == role);
        let lists: Vec<Nvlist> = own.map(|named| named.nvlist.clone()).collect();
        // a pool that never had any has no list of them
        if lists.is_empty() && PoolDirectory::open(change.mos.clone())?.object(entry)?.is_none() {
            continue;
        }
        let mut list = Nvlist::new();
        list.push(entry, Value::Lists(lists));
        write_packed_nvlist(change.mos, change.tx, entry, &list)?;
    }
    Ok(())
}

/// A drive whose label is to be written.
pub(crate) struct AuxiliaryLabel {
    pub(crate) entry: AuxiliaryEntry,
    pub(crate) device: Arc<dyn Device>,
    label: Nvlist,
}

/// In which sectors they are written: the largest of the pool's vdevs.
pub(crate) fn max_ashift(tops: &[VdevConfig]) -> u64 {
    tops.iter().filter_map(|top| top.ashift).max().unwrap_or(0)
}

/// Names a new pool's spares and drives of the cache in it.
pub(crate) fn register_auxiliary(
    change: &SyncTaskContext<'_>,
    tops: &[VdevConfig],
    drives: &[AuxiliaryDevice],
    world: &Environment,
) -> Result<Vec<AuxiliaryLabel>, Error> {
    let ashift = max_ashift(tops);
    let labels: Vec<_> =
        drives.iter().map(|each| AuxiliaryLabel::new(each, world, ashift)).collect();
    let mut all: Vec<AuxiliaryEntry> = labels.iter().map(|label| label.entry.clone()).collect();
    for top in tops {
        all.extend(distributed_spare_entries(top, world));
    }
    write_entries(change, &all)?;
    Ok(labels)
}

fn string_value(text: &str) -> Value {
    Value::Str(text.as_bytes().to_vec())
}

/// The pool's configuration of a drive.
fn pool_nvlist(each: &AuxiliaryDevice, guid: Guid, ashift: u64) -> Nvlist {
    let mut list = Nvlist::new();
    let kind = if each.spec.is_disk { VdevKind::Disk } else { VdevKind::File };
    list.push("type", string_value(kind.name()));
    list.push("guid", Value::U64(guid.get()));
    list.push("path", string_value(&each.spec.path));
    if each.spec.is_disk {
        list.push("whole_disk", Value::U64(0));
    }
    if each.role == AuxiliaryRole::Spare {
        list.push("is_spare", Value::U64(1));
    }
    list.push("ashift", Value::U64(ashift));
    list.push("create_txg", Value::U64(INITIAL_TXG.get()));
    list
}

/// The spares that a new dRAID has in itself.
pub(crate) fn distributed_spare_entries(
    top: &VdevConfig,
    environment: &Environment,
) -> impl Iterator<Item = AuxiliaryEntry> {
    let spares = distributed_spares(top, environment).into_iter();
    spares.map(|list| AuxiliaryEntry::new(AuxiliaryRole::Spare, list))
}

/// The pool's configuration of a dRAID's distributed spares.
fn distributed_spares(top: &VdevConfig, world: &Environment) -> Vec<Nvlist> {
    let (Some(draid), Some(parity)) = (&top.draid, top.nparity) else { return Vec::new() };
    let spare = |number: u64| {
        let mut list = Nvlist::new();
        list.push("type", string_value(VdevKind::DraidSpare.name()));
        list.push("guid", Value::U64(world.random_u64().max(1)));
        list.push("path", string_value(&format!("draid{parity}-{}-{number}", top.id)));
        list.push("top_guid", Value::U64(top.guid.get()));
        list.push("spareid", Value::U64(number));
        list.push("whole_disk", Value::U64(1));
        list.push("is_spare", Value::U64(1));
        list.push("ashift", Value::U64(top.ashift.unwrap_or(0)));
        list.push("create_txg", Value::U64(INITIAL_TXG.get()));
        list
    };
    (0..draid.spares).map(spare).collect()
}

/// The content of a drive's label.
fn label_nvlist(each: &AuxiliaryDevice, guid: Guid, ashift: u64) -> Nvlist {
    let mut list = Nvlist::new();
    list.push("version", Value::U64(crate::create::POOL_VERSION));
    let state = if each.role == AuxiliaryRole::Spare { 3 } else { 4 };
    list.push("state", Value::U64(state));
    list.push("guid", Value::U64(guid.get()));
    if each.role == AuxiliaryRole::Cache {
        list.push("ashift", Value::U64(ashift));
    }
    list.push("path", string_value(&each.spec.path));
    list
}

impl AuxiliaryLabel {
    /// A drive that is new in a pool.
    pub(crate) fn new(each: &AuxiliaryDevice, world: &Environment, ashift: u64) -> Self {
        let guid = Guid::new(world.random_u64().max(1));
        Self {
            entry: AuxiliaryEntry::new(each.role, pool_nvlist(each, guid, ashift)),
            device: Arc::clone(&each.device),
            label: label_nvlist(each, guid, ashift),
        }
    }

    /// A spare that was part of a vdev, and is available again.
    pub(crate) fn of_spare(entry: AuxiliaryEntry, device: Arc<dyn Device>) -> Self {
        let mut label = Nvlist::new();
        label.push("version", Value::U64(crate::create::POOL_VERSION));
        label.push("state", Value::U64(3));
        label.push("guid", Value::U64(entry.guid.get()));
        label.push("path", string_value(&entry.path));
        Self { entry, device, label }
    }

    /// Writes all four labels.
    pub(crate) fn write(&self) -> Result<(), Error> {
        let field = config_field(&self.label).ok_or(Error::LabelTooLong)?;
        let failed = |error: device::Error| Error::Auxiliary { why: error.to_string() };
        for copy in 0..label::COPIES {
            let Some(start) = label::offset(copy, self.device.size()) else { continue };
            self.device.write_at(start, &encode_label(&field, start)).map_err(failed)?;
        }
        self.device.flush().map_err(failed)
    }
}

/// Whether the label of a drive identifies it as this one.
pub fn is_labeled_as(device: &Arc<dyn Device>, guid: Guid) -> bool {
    let (labelled, _) = crate::read_labels(device);
    labelled.is_some_and(|found| {
        let state = found.config.pool.state;
        found.guid() == guid && matches!(state, PoolState::Spare | PoolState::Cache)
    })
}

/// Marks the labels of a spare or cache device that left its pool, and clears the header of a cache device.
pub(crate) fn write_removed_labels(device: &dyn Device, guid: Guid) -> Result<(), Error> {
    if device.size() > l2arc::HEADER_OFFSET + label::SIZE {
        clear_area(device, l2arc::HEADER_OFFSET)?;
    }
    let field = config_field(&removed_label(guid)).ok_or(Error::LabelTooLong)?;
    let failed = |error: device::Error| Error::Auxiliary { why: error.to_string() };
    for start in label::offsets(device.size()) {
        device.write_at(start, &encode_label(&field, start)).map_err(failed)?;
    }
    device.flush().map_err(failed)
}

/// Clears those labels of a device that are valid by `copies`, which [`crate::read_labels`] returned. Other bytes at
/// the places of labels may be data, and stay.
pub fn clear_labels(device: &dyn Device, copies: &[LabelCopy]) -> Result<(), Error> {
    let valid = copies.iter().map(|copy| matches!(copy, LabelCopy::Valid(_)));
    let valid = label::offsets(device.size()).zip(valid).filter(|(_, is_valid)| *is_valid);
    valid.map(|(start, _)| start).try_for_each(|start| clear_area(device, start))?;
    device.flush().map_err(|error| Error::Auxiliary { why: error.to_string() })
}

/// Clears the valid labels of a spare or cache device, and the header of a cache device.
pub fn clear_auxiliary(device: &dyn Device, copies: &[LabelCopy]) -> Result<(), Error> {
    if device.size() > l2arc::HEADER_OFFSET + label::SIZE {
        clear_area(device, l2arc::HEADER_OFFSET)?;
    }
    clear_labels(device, copies)
}

fn clear_area(device: &dyn Device, start: u64) -> Result<(), Error> {
    let zeros = vec![0; units::to_usize(label::SIZE)];
    let written = device.write_at(start, &zeros);
    written.map_err(|error| Error::Auxiliary { why: error.to_string() })
}
