//! A new file system: the object set's contents before the first file is created.

use std::sync::Arc;

use dmu::Objset;
use ondisk::ObjectType;
use ondisk::sa::{Attribute, Value};
use posix::Time;
use txg::Tx;
use units::ObjectId;
use zap::{NewZap, Normalization, Zap};

use crate::master_node::MASTER_NODE;
use crate::new_znode::{NewZnode, SA_VERSION};
use crate::sa_schema::SaSchema;
use crate::sa_table::bonus_capacity;
use crate::{CaseSensitivity, Result, sa_layouts};

/// The options of a new file system.
#[derive(Clone, Debug)]
pub struct FsCreateOptions {
    /// Its version: 5, or an older one for older systems.
    pub version: u64,
    /// How names are compared.
    pub case: CaseSensitivity,
    /// How names are normalized: see [`crate::MasterNode::normalization`].
    pub normalization: u64,
    /// Names are UTF-8 and nothing else.
    pub utf8_only: bool,
    /// The owner of the root directory: user and group.
    pub owner: (u32, u32),
    /// The time.
    pub now: Time,
    /// Files have a project, as the pool has the feature project_quota.
    pub has_projects: bool,
    /// Slots of 512 bytes that the root directory's dnode takes.
    pub dnode_slots: u8,
}

/// Makes the content of a new file system in a blank object set, within one transaction: the
/// master node, the tables of attributes, the set of unlinked files and the root directory.
/// `random` stirs the tables' hashes.
pub fn create_fs(
    objset: &Objset,
    tx: &Tx,
    new: &FsCreateOptions,
    random: &mut dyn FnMut() -> u64,
) -> Result<()> {
    let mut table = || NewZap { salt: random(), ..NewZap::default() };
    let master = Zap::create_at(objset, tx, MASTER_NODE, ObjectType::MASTER_NODE, &table())?;
    let id = master.object().id();
    let put = |name: &[u8], word: u64| {
        Ok::<_, crate::Error>(Zap::open(objset.object(id)?)?.update_u64(tx, name, word)?)
    };
    put(b"normalization", new.normalization)?;
    put(b"utf8only", new.utf8_only.into())?;
    put(b"casesensitivity", new.case.number())?;
    put(b"VERSION", new.version)?;
    let mut attributes = ObjectId::default();
    if new.version >= SA_VERSION {
        let tables = Zap::create(objset, tx, ObjectType::SA_MASTER_NODE, &table())?;
        attributes = tables.object().id();
        put(b"SA_ATTRS", attributes.get())?;
    }
    let unlinked = Zap::create(objset, tx, ObjectType::UNLINKED_SET, &table())?;
    put(b"DELETE_QUEUE", unlinked.object().id().get())?;
    let root = create_root(objset, tx, new, attributes, random)?;
    put(b"ROOT", root.get())
}

fn create_root(
    objset: &Objset,
    tx: &Tx,
    new: &FsCreateOptions,
    attributes: ObjectId,
    random: &mut dyn FnMut() -> u64,
) -> Result<ObjectId> {
    let schema = Arc::new(SaSchema::empty(new.version, attributes));
    let owner = (u64::from(new.owner.0), u64::from(new.owner.1));
    let project = new.has_projects.then_some(0);
    let birth = NewZnode { project_id: project, ..NewZnode::directory(0o755, owner, new.now) };
    let slots = new.dnode_slots.max(1);
    let mut sheet = birth.sa_table(&schema, slots);
    let table = NewZap {
        normalization: dir_normalization(new.case, new.normalization),
        salt: random(),
        bonus_kind: sheet.bonus_kind(),
        bonus: vec![0; bonus_capacity(slots, 1)],
        slots,
        ..NewZap::default()
    };
    let object = Zap::create(objset, tx, ObjectType::DIRECTORY, &table)?.object().clone();
    // it is its own parent
    sheet.set_word(Attribute::Parent, object.id().get());
    sheet.set_word(Attribute::Gen, tx.txg().get());
    let mut add =
        |values: &[Value]| sa_layouts::add_layout_in_tx(objset, &schema, random(), tx, values);
    sheet.resolve_layouts(&mut add)?;
    sheet.store(tx, &object)?;
    Ok(object.id())
}

/// How the tables of directories make names equal.
pub(crate) fn dir_normalization(case: CaseSensitivity, normalization: u64) -> Normalization {
    match case {
        CaseSensitivity::Sensitive => Normalization(normalization),
        CaseSensitivity::Insensitive | CaseSensitivity::Mixed => {
            Normalization(normalization | Normalization::UPPER.0)
        }
    }
}
