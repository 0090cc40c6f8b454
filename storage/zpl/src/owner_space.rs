//! The space of all owners of a file system: usage and quotas of each user, group or project.
//!
//! The accounting object of the kind has an entry per owner, the number in hexadecimal; `obj-` before it
//! where the entry counts objects. The quotas stand in the tables of the master node.

use std::collections::BTreeMap;

use dmu::Objset;
use units::ObjectId;
use zap::Zap;

use crate::Result;
use crate::quota::{OwnerKind, quota_tables};

/// The space of one owner, as of the last txg that was synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerSpace {
    /// Bytes of the owner's files.
    pub used: Option<u64>,
    /// Objects of the owner.
    pub objects_used: Option<u64>,
    /// Bytes that the owner may use.
    pub quota: Option<u64>,
    /// Objects that the owner may have.
    pub object_quota: Option<u64>,
}

/// Reads the space of all owners of a kind, by the owner's number.
pub fn list_owner_space(objset: &Objset, kind: OwnerKind) -> Result<BTreeMap<u64, OwnerSpace>> {
    let (byte_quotas, object_quotas, accounting) = quota_tables(kind);
    let mut owners: BTreeMap<u64, OwnerSpace> = BTreeMap::new();
    if let Some(used) = objset.special_object(accounting).map(Zap::open).transpose()? {
        for_each_number(&used, |name, value| match name.strip_prefix("obj-") {
            Some(id) => set_field(&mut owners, id, |space| space.objects_used = Some(value)),
            None => set_field(&mut owners, name, |space| space.used = Some(value)),
        })?;
    }
    let master = Zap::open(objset.object(crate::master_node::MASTER_NODE)?)?;
    if let Some(table) = master.lookup_u64(byte_quotas.as_bytes())? {
        let table = Zap::open(objset.object(ObjectId::new(table))?)?;
        for_each_number(&table, |name, value| {
            set_field(&mut owners, name, |space| space.quota = Some(value));
        })?;
    }
    if let Some(table) = master.lookup_u64(object_quotas.as_bytes())? {
        let table = Zap::open(objset.object(ObjectId::new(table))?)?;
        for_each_number(&table, |name, value| {
            set_field(&mut owners, name, |space| space.object_quota = Some(value));
        })?;
    }
    Ok(owners)
}

/// Calls `visit` with each entry whose value is one number.
fn for_each_number(table: &Zap, mut visit: impl FnMut(&str, u64)) -> Result<()> {
    for entry in table.entries() {
        let entry = entry?;
        if let (Ok(name), Some(value)) = (std::str::from_utf8(&entry.name), entry.value.u64()) {
            visit(name, value);
        }
    }
    Ok(())
}

/// Sets a field of the owner with this hexadecimal number. Names of another form are not owners.
fn set_field(owners: &mut BTreeMap<u64, OwnerSpace>, id: &str, set: impl FnOnce(&mut OwnerSpace)) {
    if let Ok(id) = u64::from_str_radix(id, 16) {
        set(owners.entry(id).or_default());
    }
}
