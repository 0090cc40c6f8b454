//! Space accounting: keeps the tables of space and of objects by user, group and project in step
//! with the files of a txg.
//!
//! A file counts for its owners with its allocated bytes and a slot's 512 bytes for its dnode, and
//! under `obj-` as one object. The flags of its dnode tell whether it was counted. Other objects
//! (tables of the file system) have no owners.
//!
//! A bonus of attributes has the owners at these offsets after its header:
//!
//! ```text
//! offset  size  field
//!     24     8  user
//!     32     8  group
//!     48     8  flags    bit 47: there is a project
//!    128     8  project
//! ```
//!
//! Learnt from: `zdb -ddddd`, `zfs userspace`. Proved by: the tests of `engine`, which compare with
//! the tables that OpenZFS left in its pools.

use std::collections::BTreeMap;

use dmu::{DnodeChange, Objset, SpecialObject};
use ondisk::dnode::{Dnode, Flags};
use ondisk::sa::Header;
use ondisk::{ObjectType, Reader};
use txg::Tx;
use zap::{NewZap, Zap};

use crate::Result;

/// Bytes of the dnode that a file is charged for, whatever its dnode's size.
const DNODE_BYTES: u64 = 512;
/// The flag of a file that has a project.
const PROJID_FLAG: u64 = 1 << 47;

/// The kinds of accounting that the pool's features and version allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountingMode {
    /// Objects, too (userobj_accounting).
    pub objects: bool,
    /// For projects, too (project_quota).
    pub projects: bool,
}

impl AccountingMode {
    /// The flags of files that are counted so.
    pub fn dnode_flags(self) -> Flags {
        Flags(Flags::SPACE_ACCOUNTED | if self.objects { Flags::OBJECT_ACCOUNTED } else { 0 })
    }

    /// The flags of a file system whose files are all counted.
    pub fn objset_flags(self) -> ondisk::objset::Flags {
        ondisk::objset::Flags::accounted(self.objects, self.projects)
    }
}

/// The owners of a file: user, group, project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnerIds([u64; 3]);

/// The changes of a txg to one table: bytes and objects of each owner.
type UsageDeltas = BTreeMap<u64, [i64; 2]>;

/// Takes what became of objects into the tables, within the group that wrote them. `random` stirs
/// the hashes of tables that have to be made.
pub fn update_accounting(
    objset: &Objset,
    tx: &Tx,
    changed: &[DnodeChange],
    counting: AccountingMode,
    random: &mut dyn FnMut() -> u64,
) -> Result<()> {
    let mut deltas = [const { UsageDeltas::new() }; 3];
    for object in changed.iter().filter(|object| !SpecialObject::is_special(object.id)) {
        for (dnode, sign) in [(&object.before, -1), (&object.after, 1)] {
            if let Some(dnode) = dnode {
                count_dnode(dnode, sign, &mut deltas);
            }
        }
    }
    let tables = [SpecialObject::UserUsed, SpecialObject::GroupUsed, SpecialObject::ProjectUsed];
    for (which, deltas) in tables.into_iter().zip(deltas) {
        if which == SpecialObject::ProjectUsed && !counting.projects {
            continue;
        }
        let table = if let Some(object) = objset.special_object(which) {
            Zap::open(object)?
        } else {
            let new = NewZap { salt: random(), ..NewZap::default() };
            Zap::create_at(objset, tx, which.id(), ObjectType::USED, &new)?
        };
        for (id, [bytes, objects]) in deltas {
            for (name, delta) in [(format!("{id:x}"), bytes), (format!("obj-{id:x}"), objects)] {
                if delta != 0 {
                    table.add_u64(tx, name.as_bytes(), delta)?;
                }
            }
        }
    }
    Ok(())
}

/// Counts a file for its owners, or takes it off.
fn count_dnode(dnode: &Dnode, sign: i64, deltas: &mut [UsageDeltas; 3]) {
    let Some(OwnerIds(ids)) = owner_ids(dnode) else { return };
    let space = units::narrow::<i64>(dnode.used_bytes + DNODE_BYTES);
    let counted = [
        if dnode.flags.space_accounted() { space } else { 0 },
        i64::from(dnode.flags.object_accounted()),
    ];
    for (deltas, id) in deltas.iter_mut().zip(ids) {
        for (sum, by) in deltas.entry(id).or_default().iter_mut().zip(counted) {
            *sum = sum.saturating_add(by * sign);
        }
    }
}

/// The owners of a file; none for other objects.
fn owner_ids(dnode: &Dnode) -> Option<OwnerIds> {
    let word =
        |order, at: usize| Reader::new("attributes", dnode.bonus.get(at..)?, order).u64().ok();
    match dnode.bonus_kind {
        ObjectType::ZNODE => Some(OwnerIds([word(dnode.order, 128)?, word(dnode.order, 136)?, 0])),
        // one whose attribute layout does not exist yet
        ObjectType::SA if dnode.bonus.iter().take(4).all(|byte| *byte == 0) => {
            Some(OwnerIds([0; 3]))
        }
        ObjectType::SA => {
            let Header { size, order, .. } = Header::parse(&dnode.bonus).ok()?;
            let at = |offset: usize| word(order, size.checked_add(offset)?);
            let project = if at(48)? & PROJID_FLAG != 0 { at(128)? } else { 0 };
            Some(OwnerIds([at(24)?, at(32)?, project]))
        }
        _ => None,
    }
}
