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
use ondisk::label::{self, VdevConfig, VdevKind, config_field};
use ondisk::nvlist::{Nvlist, Value};
use units::Guid;

use crate::Error;
use crate::commit::seal_copy;
use crate::create::FIRST;
use crate::design::Drive;
use crate::owned::{World, put_packed};

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

/// The label of a drive, to be written when the pool is there.
pub(crate) struct Labelled {
    device: Arc<dyn Device>,
    list: Nvlist,
}

/// Names a new pool's spares and drives of the cache in it.
pub(crate) fn note(
    change: &Change<'_>,
    tops: &[VdevConfig],
    drives: &[Auxiliary],
    world: &World,
) -> Result<Vec<Labelled>, Error> {
    let ashift = tops.iter().filter_map(|top| top.ashift).max().unwrap_or(0);
    let (mut labels, mut spares, mut caches) = (Vec::new(), Vec::new(), Vec::new());
    for each in drives {
        let guid = Guid::new(world.number().max(1));
        labels.push(Labelled {
            device: Arc::clone(&each.device),
            list: of_label(each, guid, ashift),
        });
        match each.role {
            Role::Spare => spares.push(of_pool(each, guid, ashift)),
            Role::Cache => caches.push(of_pool(each, guid, ashift)),
        }
    }
    for top in tops {
        spares.extend(distributed(top, world));
    }
    for (name, lists) in [("spares", spares), ("l2cache", caches)] {
        if !lists.is_empty() {
            let mut list = Nvlist::new();
            list.push(name, Value::Lists(lists));
            put_packed(change.mos, change.tx, name, &list)?;
        }
    }
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
