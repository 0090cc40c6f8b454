//! New tables.

use dmu::{NewObject, Object, Objset};
use ondisk::ObjectType;
use ondisk::zap::Normalization;
use ondisk::zap::fat::Flags;
use ondisk::zap::micro::MicroMut;
use txg::Tx;
use units::{BlockId, ObjectId};

use crate::write::fat;
use crate::{Result, Zap};

/// The options of a new table.
#[derive(Clone, Debug)]
pub struct NewZap {
    /// How names are made equal.
    pub normalization: Normalization,
    /// Keys and hashes; any flag makes the table a fat one at once.
    pub flags: Flags,
    /// Stirred into the hash: a random number.
    pub salt: u64,
    /// log2 of the bytes of a block, of a table with flags. Others begin with one sector, and have
    /// blocks of 16 KiB when they are fat.
    pub block_shift: u8,
    /// log2 of the bytes of an indirect block.
    pub indirect_shift: u8,
    /// The type of the bonus.
    pub bonus_kind: ObjectType,
    /// The bonus.
    pub bonus: Vec<u8>,
    /// 512-byte slots of the dnode.
    pub slots: u8,
}

impl Default for NewZap {
    fn default() -> Self {
        Self {
            normalization: Normalization::default(),
            flags: Flags::default(),
            salt: 1,
            block_shift: 14,
            indirect_shift: 17,
            bonus_kind: ObjectType::NONE,
            bonus: Vec::new(),
            slots: 1,
        }
    }
}

impl NewZap {
    pub(super) fn new_object(&self, kind: ObjectType) -> NewObject {
        let block_size = match self.flags.0 {
            0 => SECTOR,
            _ => 1_u32.checked_shl(self.block_shift.into()).unwrap_or(0).max(SECTOR),
        };
        NewObject {
            kind,
            block_size,
            indirect_shift: self.indirect_shift,
            bonus_kind: self.bonus_kind,
            bonus: self.bonus.clone(),
            slots: self.slots,
            checksum: 0,
            compression: 0,
            shape: None,
        }
    }
}

/// The first size of a micro table's block, and its growth step.
pub(crate) const SECTOR: u32 = 512;

impl Zap {
    /// A new table in an object of its own.
    pub fn create(objset: &Objset, tx: &Tx, kind: ObjectType, new: &NewZap) -> Result<Self> {
        let object = objset.create(tx, &new.new_object(kind))?;
        Self::init_zap(objset, tx, object.id(), new)
    }

    /// A new table in the object of a number that is free.
    pub fn create_at(
        objset: &Objset,
        tx: &Tx,
        id: ObjectId,
        kind: ObjectType,
        new: &NewZap,
    ) -> Result<Self> {
        objset.create_at(tx, id, &new.new_object(kind))?;
        Self::init_zap(objset, tx, id, new)
    }

    /// Creates a table in an existing object without content. The caller sets the object's type to
    /// a table's.
    pub fn create_in(object: &Object, tx: &Tx, new: &NewZap) -> Result<Self> {
        Self::init_zap(object.objset(), tx, object.id(), new)
    }

    fn init_zap(objset: &Objset, tx: &Tx, id: ObjectId, new: &NewZap) -> Result<Self> {
        let object = objset.object(id)?;
        // the hash needs something to begin with
        let salt = new.salt | 1;
        if new.flags.0 == 0 {
            object.change_block(tx, BlockId::new(0), &mut |bytes| {
                MicroMut::init(bytes, fat::ORDER, salt, new.normalization);
            })?;
        } else {
            fat::init_fat(&object, tx, salt, new.normalization, new.flags)?;
        }
        Self::open(object)
    }
}
