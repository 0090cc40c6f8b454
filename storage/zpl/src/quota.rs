//! Quotas of the owners of files.
//!
//! Six tables of the master node have them, by the owner's number in hexadecimal: bytes and objects
//! for users, groups and projects. Usage is counted when a txg is synced (`accounting.rs`),
//! so a quota can be exceeded by the data written until then, as in OpenZFS.
//!
//! Learnt from: `zdb -ddddd`, `zfs userspace`. Proved by: the tests of `engine`.

use dmu::{Objset, SpecialObject};
use ondisk::ObjectType;
use txg::Tx;
use units::ObjectId;
use zap::{NewZap, Zap};

use crate::{MasterNode, Result};

/// The kind of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaOwner {
    /// A user, by number.
    User(u64),
    /// A group, by number.
    Group(u64),
    /// A project, by number.
    Project(u64),
}

/// A quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaLimit {
    /// A limit in bytes; 0: none.
    Bytes(u64),
    /// A limit in objects; 0: none.
    Objects(u64),
}

/// The tables of the master node with the limits of bytes and of objects, and the object with the
/// usage.
const QUOTA_TABLES: [(&str, &str, SpecialObject); 3] = [
    ("userquota@", "userobjquota@", SpecialObject::UserUsed),
    ("groupquota@", "groupobjquota@", SpecialObject::GroupUsed),
    ("projectquota@", "projectobjquota@", SpecialObject::ProjectUsed),
];

impl QuotaOwner {
    /// The objects with its limits and its usage, and its number.
    fn quota_tables(self) -> ((&'static str, &'static str, SpecialObject), u64) {
        let [users, groups, projects] = QUOTA_TABLES;
        match self {
            Self::User(id) => (users, id),
            Self::Group(id) => (groups, id),
            Self::Project(id) => (projects, id),
        }
    }
}

/// Sets what an owner may use. `random` stirs the hashes of a table that has to be made.
pub fn set_quota(
    objset: &Objset,
    tx: &Tx,
    owner: QuotaOwner,
    limit: QuotaLimit,
    random: &mut dyn FnMut() -> u64,
) -> Result<()> {
    let ((of_bytes, of_objects, _), id) = owner.quota_tables();
    let (name, most) = match limit {
        QuotaLimit::Bytes(most) => (of_bytes, most),
        QuotaLimit::Objects(most) => (of_objects, most),
    };
    let master = Zap::open(objset.object(crate::master_node::MASTER_NODE)?)?;
    let table = match master.lookup_u64(name.as_bytes())? {
        Some(table) => Zap::open(objset.object(ObjectId::new(table))?)?,
        None if most == 0 => return Ok(()),
        None => {
            let new = NewZap { salt: random(), ..NewZap::default() };
            let table = Zap::create(objset, tx, ObjectType::QUOTA, &new)?;
            master.insert_u64(tx, name.as_bytes(), table.object().id().get())?;
            table
        }
    };
    let owner = format!("{id:x}");
    match most {
        0 => drop(table.remove(tx, owner.as_bytes())?),
        most => table.update_u64(tx, owner.as_bytes(), most)?,
    }
    Ok(())
}

/// An owner's limit, in bytes or in objects; 0: none.
pub fn read_quota(objset: &Objset, owner: QuotaOwner, objects: bool) -> Result<u64> {
    let ((of_bytes, of_objects, _), id) = owner.quota_tables();
    let master = Zap::open(objset.object(crate::master_node::MASTER_NODE)?)?;
    let name = if objects { of_objects } else { of_bytes };
    let Some(table) = master.lookup_u64(name.as_bytes())? else { return Ok(0) };
    let table = Zap::open(objset.object(ObjectId::new(table))?)?;
    Ok(table.lookup_u64(format!("{id:x}").as_bytes())?.unwrap_or(0))
}

/// An owner's usage as of the last synced txg, in bytes or in objects.
pub fn read_usage(objset: &Objset, owner: QuotaOwner, objects: bool) -> Result<u64> {
    let ((_, _, which), id) = owner.quota_tables();
    let Some(used) = objset.special_object(which).map(Zap::open).transpose()? else { return Ok(0) };
    let name = if objects { format!("obj-{id:x}") } else { format!("{id:x}") };
    Ok(used.lookup_u64(name.as_bytes())?.unwrap_or(0))
}

/// Whether a file system has quotas of owners at all.
pub fn has_quotas(objset: &Objset) -> Result<bool> {
    let master = Zap::open(objset.object(crate::master_node::MASTER_NODE)?)?;
    for (bytes, objects, _) in QUOTA_TABLES {
        for name in [bytes, objects] {
            if master.lookup_u64(name.as_bytes())?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether there are files without a name, which still use space: they are open, or are being
/// freed.
pub fn has_unlinked_files(objset: &Objset) -> Result<bool> {
    let table = MasterNode::read(objset)?.unlinked_set;
    if !table.exists() {
        return Ok(false);
    }
    Ok(Zap::open(objset.object(table)?)?.entries().next().transpose()?.is_some())
}

/// Whether one of these owners (user, group, project) has reached its quota. `objects`: whether one
/// more file is to be created.
pub fn is_over_quota(objset: &Objset, owners: [Option<u64>; 3], objects: bool) -> Result<bool> {
    let master = Zap::open(objset.object(crate::master_node::MASTER_NODE)?)?;
    for ((of_bytes, of_objects, which), owner) in QUOTA_TABLES.into_iter().zip(owners) {
        let Some(owner) = owner else { continue };
        let Some(used) = objset.special_object(which).map(Zap::open).transpose()? else { continue };
        let owner = format!("{owner:x}");
        for (limits, name) in [(of_bytes, owner.clone()), (of_objects, format!("obj-{owner}"))] {
            let Some(id) = master.lookup_u64(limits.as_bytes())? else { continue };
            let limits = Zap::open(objset.object(ObjectId::new(id))?)?;
            let wanted = objects || name == owner;
            if let Some(limit) = limits.lookup_u64(owner.as_bytes())?.filter(|_| wanted)
                && used.lookup_u64(name.as_bytes())?.unwrap_or(0) >= limit
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
