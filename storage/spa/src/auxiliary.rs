//! Hot spares and drives of the read cache: a pool names them, and none of its vdevs has them.
//!
//! The pool's directory leads to a packed list of each (`spares`, `l2cache`), with one list for each
//! drive: `type`, `guid`, `path`, `is_spare`, `ashift`. The distributed spares of a dRAID are among
//! the spares, as vdevs of the kind `dspare` without a drive: `top_guid` and `spareid` say whose
//! which they are. The labels of such a drive say no more than what it is:
//!
//! ```text
//! version  state (3 a spare, 4 a cache)  guid  ashift (of a cache)  path
//! ```
//!
//! Learnt from: pools and drives of OpenZFS 2.3.2. Proved by: rounds against it.

use std::sync::Arc;

use device::Device;
use dsl::write::Change;
use ondisk::l2arc;
use ondisk::label::{self, PoolState, VdevConfig, VdevKind, config_field};
use ondisk::nvlist::{Nvlist, Value};
use units::{Ashift, Guid};

use crate::commit::seal_copy;
use crate::create::FIRST;
use crate::design::Drive;
use crate::owned::{World, put_packed};
use crate::{Directory, Error};

/// What a drive is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// To take the place of a drive that fails.
    Spare,
    /// To keep what is often read.
    Cache,
}

/// A drive that is part of no vdev.
#[derive(Clone)]
pub struct Auxiliary {
    /// What it is there for.
    pub role: Role,
    /// Its path.
    pub drive: Drive,
    /// The drive itself.
    pub device: Arc<dyn Device>,
}

impl std::fmt::Debug for Auxiliary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}('{}')", self.role, self.drive.path)
    }
}

/// A drive that a pool names and that is part of no vdev; also a spare that a dRAID has in itself.
#[derive(Clone, Debug)]
pub struct Named {
    /// What it is there for.
    pub role: Role,
    /// Its identity.
    pub guid: Guid,
    /// What it is called: its path.
    pub path: String,
    /// The sectors in which it is written.
    pub ashift: Option<Ashift>,
    /// Whether it is room in the drives of a dRAID.
    pub is_distributed: bool,
    /// What the pool says of it.
    list: Nvlist,
}

impl Named {
    fn new(role: Role, list: Nvlist) -> Self {
        Self {
            role,
            guid: Guid::new(list.u64("guid").unwrap_or(0)),
            path: list.text("path").unwrap_or_default(),
            ashift: list.u64("ashift").and_then(Ashift::new),
            is_distributed: list.text("type").as_deref() == Some(VdevKind::DraidSpare.name()),
            list,
        }
    }
}

/// Where the pool's directory has them.
const ENTRIES: [(Role, &str); 2] = [(Role::Spare, "spares"), (Role::Cache, "l2cache")];

/// Those that a pool names.
pub(crate) fn named(directory: &Directory) -> Result<Vec<Named>, Error> {
    let mut all = Vec::new();
    for (role, entry) in ENTRIES {
        let list = directory.list(entry)?;
        let lists = list.iter().flat_map(|list| list.nvlists(entry));
        all.extend(lists.map(|list| Named::new(role, list.clone())));
    }
    Ok(all)
}

/// Has the pool name these, and no others.
pub(crate) fn put(change: &Change<'_>, named: &[Named]) -> Result<(), Error> {
    for (role, entry) in ENTRIES {
        let own = named.iter().filter(|named| named.role == role);
        let lists: Vec<Nvlist> = own.map(|named| named.list.clone()).collect();
        // a pool that never had any has no list of them
        if lists.is_empty() && Directory::open(change.mos.clone())?.object(entry)?.is_none() {
            continue;
        }
        let mut list = Nvlist::new();
        list.push(entry, Value::Lists(lists));
        put_packed(change.mos, change.tx, entry, &list)?;
    }
    Ok(())
}

/// A drive whose label is to be written.
pub(crate) struct Labelled {
    pub(crate) named: Named,
    pub(crate) device: Arc<dyn Device>,
    list: Nvlist,
}

/// In which sectors they are written: the largest of the pool's vdevs.
pub(crate) fn ashift_of(tops: &[VdevConfig]) -> u64 {
    tops.iter().filter_map(|top| top.ashift).max().unwrap_or(0)
}

/// Names a new pool's spares and drives of the cache in it.
pub(crate) fn note(
    change: &Change<'_>,
    tops: &[VdevConfig],
    drives: &[Auxiliary],
    world: &World,
) -> Result<Vec<Labelled>, Error> {
    let ashift = ashift_of(tops);
    let labels: Vec<_> = drives.iter().map(|each| Labelled::new(each, world, ashift)).collect();
    let mut all: Vec<Named> = labels.iter().map(|label| label.named.clone()).collect();
    for top in tops {
        let spares = distributed(top, world).into_iter();
        all.extend(spares.map(|list| Named::new(Role::Spare, list)));
    }
    put(change, &all)?;
    Ok(labels)
}

fn text(text: &str) -> Value {
    Value::Str(text.as_bytes().to_vec())
}

/// What the pool says of a drive.
fn of_pool(each: &Auxiliary, guid: Guid, ashift: u64) -> Nvlist {
    let mut list = Nvlist::new();
    let kind = if each.drive.is_disk { VdevKind::Disk } else { VdevKind::File };
    list.push("type", text(kind.name()));
    list.push("guid", Value::U64(guid.get()));
    list.push("path", text(&each.drive.path));
    if each.drive.is_disk {
        list.push("whole_disk", Value::U64(0));
    }
    if each.role == Role::Spare {
        list.push("is_spare", Value::U64(1));
    }
    list.push("ashift", Value::U64(ashift));
    list.push("create_txg", Value::U64(FIRST.get()));
    list
}

/// What the pool says of the spares that a dRAID has in itself.
fn distributed(top: &VdevConfig, world: &World) -> Vec<Nvlist> {
    let (Some(draid), Some(parity)) = (&top.draid, top.nparity) else { return Vec::new() };
    let spare = |number: u64| {
        let mut list = Nvlist::new();
        list.push("type", text(VdevKind::DraidSpare.name()));
        list.push("guid", Value::U64(world.number().max(1)));
        list.push("path", text(&format!("draid{parity}-{}-{number}", top.id)));
        list.push("top_guid", Value::U64(top.guid.get()));
        list.push("spareid", Value::U64(number));
        list.push("whole_disk", Value::U64(1));
        list.push("is_spare", Value::U64(1));
        list.push("ashift", Value::U64(top.ashift.unwrap_or(0)));
        list.push("create_txg", Value::U64(FIRST.get()));
        list
    };
    (0..draid.spares).map(spare).collect()
}

/// What a drive says of itself.
fn of_label(each: &Auxiliary, guid: Guid, ashift: u64) -> Nvlist {
    let mut list = Nvlist::new();
    list.push("version", Value::U64(crate::create::VERSION));
    let state = if each.role == Role::Spare { 3 } else { 4 };
    list.push("state", Value::U64(state));
    list.push("guid", Value::U64(guid.get()));
    if each.role == Role::Cache {
        list.push("ashift", Value::U64(ashift));
    }
    list.push("path", text(&each.drive.path));
    list
}

impl Labelled {
    /// A drive that is new in a pool.
    pub(crate) fn new(each: &Auxiliary, world: &World, ashift: u64) -> Self {
        let guid = Guid::new(world.number().max(1));
        Self {
            named: Named::new(each.role, of_pool(each, guid, ashift)),
            device: Arc::clone(&each.device),
            list: of_label(each, guid, ashift),
        }
    }

    /// Writes all four labels.
    pub(crate) fn write(&self) -> Result<(), Error> {
        let field = config_field(&self.list).ok_or(Error::LabelTooLong)?;
        let failed = |why: device::Error| Error::Auxiliary { why: why.to_string() };
        for copy in 0..label::COPIES {
            let Some(start) = label::offset(copy, self.device.size()) else { continue };
            self.device.write_at(start, &seal_copy(&field, start)).map_err(failed)?;
        }
        self.device.flush().map_err(failed)
    }
}

/// Whether the label of a drive says that it is this one.
pub fn is_labelled(device: &Arc<dyn Device>, guid: Guid) -> bool {
    let (labelled, _) = crate::read_labels(device);
    labelled.is_some_and(|found| {
        let state = found.config.pool.state;
        found.guid() == guid && matches!(state, PoolState::Spare | PoolState::Cache)
    })
}

/// Takes from a drive what says that it is one: its labels, and the header of a cache.
pub(crate) fn disown(device: &dyn Device) -> Result<(), Error> {
    let failed = |why: device::Error| Error::Auxiliary { why: why.to_string() };
    let wiped = vec![0; usize::try_from(label::SIZE).unwrap_or(0)];
    for start in label::offsets(device.size()) {
        device.write_at(start, &wiped).map_err(failed)?;
    }
    if device.size() > l2arc::HEADER_AT + label::SIZE {
        device.write_at(l2arc::HEADER_AT, &wiped).map_err(failed)?;
    }
    device.flush().map_err(failed)
}
