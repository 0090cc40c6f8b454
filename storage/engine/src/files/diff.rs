//! The differences between a file system and one of its snapshots: found by the dnode blocks that
//! both share, so that unchanged files are not read.

use dmu::{Object, Objset, SpecialObject};
use ondisk::dnode::Dnode;
use ondisk::{Blkptr, ObjectType};
use units::{BlockId, Level, ObjectId};

use super::{FileSystemReader, Result};

/// Bytes of the smallest dnode.
const MIN_DNODE_SIZE: u64 = Dnode::SLOT as u64;

/// An object that is not the same in two file systems of one descent. It need not be a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// The object's number.
    pub id: u64,
    /// Its state in either of them.
    pub kinds: [ObjectKind; 2],
}

/// The state of an object, from its dnode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// The object does not exist, or is not a file.
    None,
    /// A file, but no directory.
    File,
    /// A directory.
    Directory,
}

impl FileSystemReader {
    /// The objects that are not the same in `other`, of which this was made, or which was made of it, by
    /// number. Neither may be one that is being changed.
    pub fn changed_objects(&self, other: &Self) -> Result<Vec<ChangedObject>> {
        let sets = [self.fs.objset(), other.fs.objset()];
        let [one, two] = sets.map(|set| set.special_object(SpecialObject::Meta));
        let (Some(one), Some(two)) = (one, two) else { return Ok(Vec::new()) };
        let slots = (u64::from(one.block_size()) / MIN_DNODE_SIZE).max(1);
        let mut found = Vec::new();
        for block in 0..=one.max_block().get().max(two.max_block().get()) {
            if dnode_block_pointer(&one, block)? == dnode_block_pointer(&two, block)? {
                continue;
            }
            let first = block * slots;
            for id in first..first + slots {
                let (here, there) = (read_dnode(sets[0], id)?, read_dnode(sets[1], id)?);
                if here != there {
                    found.push(ChangedObject { id, kinds: [here, there].map(object_kind) });
                }
            }
        }
        Ok(found)
    }
}

fn object_kind(dnode: Option<Dnode>) -> ObjectKind {
    match dnode {
        Some(dnode) if dnode.kind == ObjectType::DIRECTORY => ObjectKind::Directory,
        Some(dnode) if [ObjectType::SA, ObjectType::ZNODE].contains(&dnode.bonus_kind) => {
            ObjectKind::File
        }
        _ => ObjectKind::None,
    }
}

/// Of a block of dnodes; a hole behind the last.
fn dnode_block_pointer(dnodes: &Object, block: u64) -> Result<Blkptr> {
    if block > dnodes.max_block().get() {
        return Ok(Blkptr::EMPTY);
    }
    Ok(dnodes.pointer(Level::new(0), BlockId::new(block))?)
}

fn read_dnode(set: &Objset, id: u64) -> Result<Option<Dnode>> {
    match set.dnode(ObjectId::new(id)) {
        Ok(dnode) => Ok(Some(dnode)),
        Err(why) if why.is_not_found() => Ok(None),
        Err(why) => Err(why.into()),
    }
}
